# SPDX-License-Identifier: Apache-2.0

"""Sphinx configuration of the release notes, which reno collects."""

from collections.abc import Iterable
import typing

from dulwich import diff_tree
from reno import scanner

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

_aggregate = scanner._ChangeAggregator.aggregate_changes


def _aggregate_changes(self: typing.Any, entry: typing.Any,
                       changes: Iterable[typing.Any]) -> typing.Any:
    """Treat a note that a merge adds to one parent and changes for the other
    as added; reno 4.1 raises ValueError for it.
    """
    merged = {diff_tree.CHANGE_ADD, diff_tree.CHANGE_MODIFY}
    return _aggregate(self, entry, [
        [one for one in change if one.type == diff_tree.CHANGE_ADD]
        if isinstance(change, list) and {one.type for one in change} == merged
        else change for change in changes])


scanner._ChangeAggregator.aggregate_changes = _aggregate_changes
