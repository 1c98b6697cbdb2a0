# SPDX-License-Identifier: Apache-2.0

"""Placement constraints while a switch runs.

They hold at every instant.  A member is on both hosts while it migrates, and
on its own host while it is suspended (``model.constraints``).
"""

from collections.abc import Iterable

from secondary_scheduler.model.configuration import Configuration, Move
from secondary_scheduler.model.constraints import Occupancy, PlacementRules
from secondary_scheduler.model.operation_kinds import OperationKind


class SwitchRules:
    """Constraints, and the hosts that members are on at present.

    :param current: the configuration at the start
    """

    def __init__(self, current: Configuration) -> None:
        self._rules = PlacementRules(current.constraints)
        self._placed = Occupancy({
            name: [one.host] for name, one in current.members.items()
            if one.host is not None} if current.constraints else {})

    def concern(self, moves: Iterable[Move]) -> bool:
        """Return whether there are constraints that can forbid a move."""
        return bool(self._rules.constraints) and any(
            move.target is not None for move in moves)

    def admits(self, member: str, source: str | None, target: str) -> bool:
        """Return whether a member may go to a host now."""
        return self._rules.admits(member, source, target, self._placed)

    def admit(self, moves: Iterable[Move]) -> bool:
        """Return whether all moves may begin at once."""
        if not self._rules.constraints:
            return True
        entered: list[tuple[str, str]] = []     # undone if one is forbidden
        for move in moves:
            target = move.target
            if target is None or target == move.source:
                continue
            if not self.admits(move.member, move.source, target):
                break
            self._placed.enter(move.member, target)
            entered.append((move.member, target))
        else:
            return True
        for member, host in entered:
            self._placed.leave(member, host)
        return False

    def enter(self, member: str, host: str) -> None:
        """Note that a member may arrive on a host."""
        if self._rules.constraints:
            self._placed.enter(member, host)

    def withdraw(self, member: str, host: str) -> None:
        """Undo ``enter``."""
        if self._rules.constraints:
            self._placed.leave(member, host)

    def arrive(self, moves: Iterable[Move]) -> None:
        """Note the targets of moves that begin."""
        if self._rules.constraints:
            for move in moves:
                if move.target is not None:
                    self._placed.enter(move.member, move.target)

    def leave(self, moves: Iterable[Move]) -> None:
        """Note the hosts that members have left."""
        if self._rules.constraints:
            for move in moves:
                if move.source not in (None, move.target) and (
                        move.kind is not OperationKind.SUSPEND):
                    self._placed.leave(move.member, str(move.source))
