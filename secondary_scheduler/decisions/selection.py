# SPDX-License-Identifier: Apache-2.0

"""Selection of the leases that run (Hermenier 2009, section 3.2).

All leases are evaluated anew in the order of the queue, whether they run, are
suspended or wait.  A lease is selected as a whole if it fits by first fit
decreasing beside the ones before it, or not at all.  One that does not fit
does not block the next ones.  So a lease displaces those after it, and only
their room.

* A guaranteed lease comes first.  So does a running lease before its minimum
  run time.
* A running lease counts as if it had more points, by the margin.  So a lease
  that does not run displaces only those that have fewer points by at least
  the margin.

The order of the queue prevents starvation: with ``aged``, a lease passes all
those that arrive much later (``model.lease_order``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import typing

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.packing import (
    first_fit,
    in_state,
    is_placed,
)
from secondary_scheduler.model.configuration import (
    Amounts,
    Configuration,
    Member,
    MemberState,
)


@dataclasses.dataclass(frozen=True, slots=True)
class QueuedLease:
    """A lease of the queue.

    :param points: its rank, more points first; the unit of the margin.  For
        an order of ``model.lease_order`` it is the negated first number of a
        rank
    :param run_s: seconds since it began to run; None if it does not run, or
        has run for long
    :param guaranteed: it is never displaced
    """

    name: str
    points: float = 0.0
    run_s: float | None = None
    guaranteed: bool = False


@dataclasses.dataclass(frozen=True)
class SelectionOptions:
    """Limits of displacement.

    :param minimum_run_s: time for which a lease runs at least, in seconds
    :param margin: points that a lease needs above a running one to displace
        it
    """

    minimum_run_s: float = 0.0
    margin: float = 0.0


class Selection(typing.NamedTuple):
    """Leases by the state that they are selected for.

    :param states: in the order in which leases were evaluated
    :param sample: a viable configuration with these states
    """

    states: Mapping[str, MemberState]
    sample: Configuration


def select(current: Configuration, queue: Sequence[QueuedLease],
           options: SelectionOptions = SelectionOptions()) -> Selection:
    """Select the leases that run.

    What a lease holds counts only if it is selected, except for claims of
    suspended members.  Leases that are not in the queue remain as they are,
    and so do fixed members.
    """
    return _Selector(current, queue).select(_order(current, queue, options))


def _order(current: Configuration, queue: Iterable[QueuedLease],
           options: SelectionOptions) -> list[str]:
    """Return the leases in the order in which they are evaluated."""
    def rank(lease: QueuedLease) -> tuple[bool, bool, float]:
        runs = _is_running(current, lease.name)
        young = (runs and lease.run_s is not None
                 and lease.run_s < options.minimum_run_s)
        return (not lease.guaranteed, not young,
                -lease.points - (options.margin if runs else 0.0))

    return [lease.name for lease in sorted(queue, key=rank)]


def _is_running(current: Configuration, lease: str) -> bool:
    return any(one.state is MemberState.RUNNING and not one.fixed
               for one in current.leases.get(lease, ()))


class _Selector:
    """Places one lease after another.

    ``near`` tells whether members try their own hosts first.  It begins as
    soon as a running lease does not fit by first fit decreasing, since it may
    fit where it runs.
    """

    def __init__(self, current: Configuration,
                 queue: Iterable[QueuedLease]) -> None:
        self.current = current
        names = {lease.name for lease in queue}
        #: Members as they are if no lease is selected.
        self.idle = [
            in_state(one, MemberState.SUSPENDED) if one.lease in names
            else one for one in current.members.values()]
        self.free = FreeRoom.of(current, self.idle)
        self.near = False
        self.selected: list[str] = []
        self.hosts: dict[str, str] = {}

    def select(self, order: Iterable[str]) -> Selection:
        """Select leases in the order in which they are given."""
        states = {}
        for lease in order:
            if self._place(lease) or self._place_near(lease):
                self.selected.append(lease)
                states[lease] = MemberState.RUNNING
            else:
                states[lease] = self._state_below(lease)
        return Selection(states, self.current.with_members(
            dataclasses.replace(one, state=MemberState.RUNNING,
                                host=self.hosts[one.name])
            if one.name in self.hosts else one for one in self.idle))

    def _state_below(self, lease: str) -> MemberState:
        """Return the state of a lease that is not selected."""
        started = any(one.state in (MemberState.RUNNING, MemberState.SUSPENDED)
                      for one in self.current.leases.get(lease, ()))
        return MemberState.SUSPENDED if started else MemberState.WAITING

    def _place(self, lease: str) -> bool:
        members = [one for one in self.current.leases.get(lease, ())
                   if is_placed(one, MemberState.RUNNING)]
        _change_claims(members, self.free.give)
        found = first_fit(self.current, members, self.free,
                          near=self.near)
        if found is None:
            _change_claims(members, self.free.take)
            return False
        self.hosts |= found
        return True

    def _place_near(self, lease: str) -> bool:
        """Place a running lease, and those before it, on their own hosts."""
        if (self.near or not _is_running(self.current, lease)
                or not self._has_total(lease)):
            return False
        before = self.free, self.hosts
        self.free, self.hosts = FreeRoom.of(self.current, self.idle), {}
        self.near = True
        for one in [*self.selected, lease]:
            if not self._place(one):
                # Members with their own hosts first do not fit either.
                self.free, self.hosts = before
                self.near = False
                return False
        return True

    def _has_total(self, lease: str) -> bool:
        """Return whether all free amounts together suffice for a lease."""
        wanted = [sum(amounts) for amounts in zip(*(
            one.demand for one in self.current.leases[lease]
            if is_placed(one, MemberState.RUNNING)), strict=True)]
        free = [sum(max(amount, 0) for amount in amounts)
                for amounts in zip(*self.free.free.values(), strict=True)]
        return all(amount <= most for amount, most
                   in zip(wanted, free, strict=True))


def _change_claims(members: Iterable[Member],
                   change: Callable[[str, Amounts], None]) -> None:
    """Take or give what members hold while they are suspended."""
    for one in members:
        if one.host is not None:
            change(one.host, one.claim)
