"""Sphinx configuration of the release notes, which reno collects."""

project = 'secondary_scheduler release notes'
author = 'secondary_scheduler developers'
copyright = '2026, secondary_scheduler developers'
# The notes name their release themselves.
release = version = ''

extensions = ['openstackdocstheme', 'reno.sphinxext']
exclude_patterns = []

html_theme = 'openstackdocs'
html_show_sourcelink = False
openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_bug_project = ''
