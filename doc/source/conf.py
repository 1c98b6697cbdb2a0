# SPDX-License-Identifier: Apache-2.0

"""Sphinx configuration; ``sphinx-build -W`` makes a warning an error."""

from importlib import metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / 'ext'))

project = 'secondary_scheduler'
author = 'secondary_scheduler developers'
copyright = '2026, secondary_scheduler developers'
try:
    release = metadata.version('secondary_scheduler')
except metadata.PackageNotFoundError:
    release = 'unreleased'
version = release

extensions = [
    'cliff.sphinxext',
    'openapi_reference',
    'openstackdocstheme',
    'oslo_config.sphinxext',
    'program_help',
]
exclude_patterns = []
nitpicky = True
# Options such as --duration keep both hyphens.
smartquotes = False

html_theme = 'openstackdocs'
html_show_sourcelink = False
highlight_language = 'none'
openstackdocs_auto_name = False
openstackdocs_auto_version = False
# The repository is not on opendev.org: no links to report bugs there.
openstackdocs_bug_project = ''

autoprogram_cliff_application = 'openstack'

#: Page, name of the man page, its line in "apropos", authors, section.
man_pages = [
    ('cli/openstack', 'openstack-secondary-lease',
     'leases of secondary capacity', [author], 1),
    ('cli/secondary-agent', 'secondary-agent',
     'keep the secondaries of a compute host within the policies',
     [author], 1),
    ('cli/secondary-lease-api', 'secondary-lease-api',
     'lease service, for development', [author], 1),
    ('cli/secondary-scheduler', 'secondary-scheduler',
     'prepare hosts and flavors for secondaries, try plans, simulate',
     [author], 1),
    ('cli/secondary-scheduler-status', 'secondary-scheduler-status',
     'check a cloud before an upgrade', [author], 1),
]
