# SPDX-License-Identifier: Apache-2.0

"""Room that a move of a switch takes before it begins, and frees at its end.

A migration is charged at both ends while it runs, and so is a resume on
another host (Hermenier 2009, section 4.1).
"""

from secondary_scheduler.model.configuration import (
    Amounts,
    Member,
    MemberState,
    Move,
)
from secondary_scheduler.model.operation_kinds import OperationKind


def taken_room(move: Move, member: Member, passes: bool = False
               ) -> Amounts | None:
    """Return the amounts that a move takes on its target, None without one.

    A member that resumes on its own host holds its claim there already.

    :param passes: it resumes there only to be migrated
    """
    if move.target is None:
        return None
    if move.kind is OperationKind.RESUME and not move.is_remote:
        need = _held(member, passes)
        return tuple(max(one - other, 0) for one, other
                     in zip(need, member.claim, strict=True))
    return member.demand


def freed_room(move: Move, member: Member, passes: bool = False
               ) -> Amounts | None:
    """Return the amounts that a move frees on its source, None without one.

    :param member: as it is before the move, if the move deletes it
    :param passes: it resumed there only to be migrated
    """
    if move.source is None or move.source == move.target:
        return None
    if move.kind is OperationKind.SUSPEND:
        return tuple(one - other for one, other
                     in zip(member.demand, member.claim, strict=True))
    if move.kind is OperationKind.RESUME or (
            move.kind is OperationKind.DELETE
            and member.state is MemberState.SUSPENDED):
        return member.claim
    return _held(member, passes)


def _held(member: Member, passes: bool) -> Amounts:
    """Return what a running member holds on its host."""
    if not passes or member.floor is None:
        return member.demand
    return tuple(max(one, other) for one, other
                 in zip(member.floor, member.claim, strict=True))
