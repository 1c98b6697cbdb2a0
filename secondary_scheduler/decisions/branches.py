# SPDX-License-Identifier: Apache-2.0

"""Branches of the guided search, and the order in which it tries them.

See Boettger 2012, section 4.4.3.2, and reference/errata, Boettger, for the
order of sets of leases and the codes of suspend and stop.
"""

from collections.abc import Iterator, Sequence
import enum
import typing

Item = typing.TypeVar('Item')


class Action(enum.StrEnum):
    """Action on a lease.

    * ``MIG`` migrates the instances that violate a policy.
    * ``SUSP`` preempts all instances as their flavors say, which keeps their
      work if the flavor does.
    * ``STOP`` stops all instances, the quickest and least gentle action.
    """

    MIG = 'Mig'
    SUSP = 'Susp'
    STOP = 'Stop'


class BranchVerdict(enum.StrEnum):
    """Result of the check of a branch.

    * ``RESOURCE``: another policy would be violated, or there is no room.
    * ``TIME``: a violated policy would become invalid.
    """

    RESOURCE = 'RESOURCE'
    TIME = 'TIME'
    OK = 'OK'


#: Actions on leases, in the order in which they were chosen.
Branch = tuple[tuple[str, Action], ...]


class Tried(typing.NamedTuple):
    """A branch that was tried after the chosen ones, and its verdict."""

    branch: Branch
    verdict: BranchVerdict


def low_order(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Yield all non-empty subsets of items in the order LOW.

    ``items`` are ascending.  The order is that of binary counting, with the
    i-th lowest item as bit i.  The power set is never built as a whole.
    """
    for mask in range(1, 1 << len(items)):
        yield tuple(item for bit, item in enumerate(items) if mask >> bit & 1)


def low_actions(count: int) -> Iterator[tuple[Action, ...]]:
    """Yield the actions for ``count`` ascending leases in the order LOWACTION.

    The order is from all suspended to all stopped.  The highest lease is the
    most significant bit and suspend is 1, so the lowest lease is the first to
    be stopped.
    """
    for code in reversed(range(1 << count)):
        yield tuple(Action.SUSP if code >> bit & 1 else Action.STOP
                    for bit in range(count))
