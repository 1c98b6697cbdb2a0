"""Sphinx configuration; ``sphinx-build -W`` makes a warning an error."""

from importlib import metadata

project = 'secondary_scheduler'
author = 'secondary_scheduler developers'
copyright = '2026, secondary_scheduler developers'
try:
    release = metadata.version('secondary_scheduler')
except metadata.PackageNotFoundError:
    release = 'unreleased'
version = release

extensions = []
exclude_patterns = []
nitpicky = True

html_theme = 'alabaster'
html_theme_options = {
    'description': 'Secondary instances on idle capacity of OpenStack hosts',
    'fixed_sidebar': True,
    'page_width': '1080px',
}
html_sidebars = {'**': ['about.html', 'navigation.html', 'searchbox.html']}
html_show_sourcelink = False
highlight_language = 'none'
