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
those that arrive much later (``model.lease_order``).  A lease may wait for
leases after it to reach their minimum run time.  Then no other lease after it
starts, since that would keep the room from it again and again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
import dataclasses
import typing

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.packing import (
    first_fit,
    in_state,
    is_placed,
)
from secondary_scheduler.decisions.queue_pass import serve_queue
from secondary_scheduler.decisions.sample_rules import SampleRules
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
    :param held_back: leases that do not start, since the room is kept for a
        lease before them
    """

    states: Mapping[str, MemberState]
    sample: Configuration
    held_back: frozenset[str] = frozenset()


def select(current: Configuration, queue: Sequence[QueuedLease],
           options: SelectionOptions = SelectionOptions()) -> Selection:
    """Select the leases that run.

    What a lease holds counts only if it is selected, except for claims of
    suspended members.  Leases that are not in the queue remain as they are,
    and so do fixed members.
    """
    return _Selector(
        current, {lease.name: place for place, lease in enumerate(queue)},
        {lease.name for lease in queue if is_young(current, lease, options)}
    ).select(order_leases(current, queue, options))


def order_leases(current: Configuration, queue: Iterable[QueuedLease],
                 options: SelectionOptions) -> list[str]:
    """Return the leases in the order in which they are evaluated."""
    return [lease.name for lease in sorted(queue, key=lambda lease: (
        not lease.guaranteed, not is_young(current, lease, options),
        -lease.points - (options.margin if _is_running(current, lease.name)
                         else 0.0)))]


def is_young(current: Configuration, lease: QueuedLease,
              options: SelectionOptions) -> bool:
    """Return whether a running lease is before its minimum run time."""
    return (lease.run_s is not None and lease.run_s < options.minimum_run_s
            and _is_running(current, lease.name))


def _is_running(current: Configuration, lease: str) -> bool:
    return any(one.state is MemberState.RUNNING and not one.fixed
               for one in current.leases.get(lease, ()))


class _Selector:
    """Places one lease after another.

    ``near`` tells whether members try their own hosts first.  It begins as
    soon as a running lease does not fit by first fit decreasing, since it may
    fit where it runs.
    """

    def __init__(self, current: Configuration, places: Mapping[str, int],
                 young: Collection[str]) -> None:
        self.current = current
        self.places = places
        self.young = young
        #: Members as they are if no lease is selected.
        self.idle = [
            in_state(one, MemberState.SUSPENDED) if one.lease in places
            else one for one in current.members.values()]
        self.free = FreeRoom.of(current, self.idle)
        self.rules = SampleRules(current)
        self.near = False
        self.selected: list[str] = []
        self.hosts: dict[str, str] = {}

    def select(self, order: Sequence[str]) -> Selection:
        """Select leases in the order in which they are given."""
        kept_for = serve_queue(
            order, self._select, keeps_room=self._waits_for_young,
            runs=lambda lease: _is_running(self.current, lease))
        behind = () if kept_for is None else order[order.index(kept_for) + 1:]
        selected = set(self.selected)
        return Selection(
            {lease: MemberState.RUNNING if lease in selected
             else self._state_below(lease) for lease in order},
            self.current.with_members(
                dataclasses.replace(one, state=MemberState.RUNNING,
                                    host=self.hosts[one.name])
                if one.name in self.hosts else one for one in self.idle),
            frozenset(lease for lease in behind
                      if not _is_running(self.current, lease)))

    def _select(self, lease: str) -> bool:
        """Select a lease if it fits."""
        fits = self._place(lease) or self._place_near(lease)
        if fits:
            self.selected.append(lease)
        return fits

    def _waits_for_young(self, lease: str) -> bool:
        """Return whether a lease could start without young ones after it."""
        if _is_running(self.current, lease):
            return False
        later = [one for name in self.selected
                 if name in self.young
                 and self.places[name] > self.places[lease]
                 for one in self.current.leases[name]
                 if one.name in self.hosts]
        if not later:
            return False
        for one in later:
            self.free.give(self.hosts[one.name], one.demand)
        members = self._members(lease)
        _change_claims(members, self.free.give)
        for one in later:
            self.rules.restore(one)
        found = first_fit(self.current, members, self.free, self.rules,
                          near=self.near)
        for name, host in (found or {}).items():
            self.free.give(host, self.current.members[name].demand)
            self.rules.restore(self.current.members[name])
        _change_claims(members, self.free.take)
        for one in later:
            self.free.take(self.hosts[one.name], one.demand)
            self.rules.enter(one, self.hosts[one.name])
        return found is not None

    def _members(self, lease: str) -> list[Member]:
        """Return the members of a lease that need hosts."""
        return [one for one in self.current.leases.get(lease, ())
                if is_placed(one, MemberState.RUNNING)]

    def _state_below(self, lease: str) -> MemberState:
        """Return the state of a lease that is not selected."""
        started = any(one.state in (MemberState.RUNNING, MemberState.SUSPENDED)
                      for one in self.current.leases.get(lease, ()))
        return MemberState.SUSPENDED if started else MemberState.WAITING

    def _place(self, lease: str) -> bool:
        members = self._members(lease)
        _change_claims(members, self.free.give)
        found = first_fit(self.current, members, self.free, self.rules,
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
        before = self.free, self.rules, self.hosts
        self.free, self.hosts = FreeRoom.of(self.current, self.idle), {}
        self.rules = SampleRules(self.current)
        self.near = True
        for one in [*self.selected, lease]:
            if not self._place(one):
                # Members with their own hosts first do not fit either.
                self.free, self.rules, self.hosts = before
                self.near = False
                return False
        return True

    def _has_total(self, lease: str) -> bool:
        """Return whether all free amounts together suffice for a lease."""
        wanted = [sum(amounts) for amounts in zip(*(
            one.demand for one in self._members(lease)), strict=True)]
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
