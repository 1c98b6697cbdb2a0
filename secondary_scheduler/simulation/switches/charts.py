# SPDX-License-Identifier: Apache-2.0

"""Gantt charts of context switches."""

from collections.abc import Iterable

from secondary_scheduler.model.configuration import Move
from secondary_scheduler.model.operation_kinds import OperationKind
from secondary_scheduler.simulation.plots import Bar, GanttChart


def gantt_chart(times: Iterable[tuple[Move, float, float]], title: str,
                by_lease: bool = False) -> GanttChart:
    """Return a chart of moves with their starts and ends.

    :param by_lease: a row for each lease, otherwise one for each instance
    """
    return GanttChart([
        Bar(move.lease if by_lease else move.member, _kind(move), start, end)
        for move, start, end in sorted(
            times, key=lambda one: (one[1], one[2]))], title=title)


def _kind(move: Move) -> str:
    if move.kind is OperationKind.RESUME and move.is_remote:
        return 'resume elsewhere'
    return f'{move.kind} (bypass)' if move.bypass else str(move.kind)
