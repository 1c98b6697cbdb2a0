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
