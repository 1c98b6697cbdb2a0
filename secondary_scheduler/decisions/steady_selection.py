# SPDX-License-Identifier: Apache-2.0

"""Selection of leases that moves running ones only where it must.

First fit decreasing packs all leases anew, and ignores where they run.  On a
nearly full cluster it so may miss a lease that fits where it is.  Here

* running leases stay where they are while that is possible,
* a lease that does not run takes room first that none of them uses,
* it displaces leases after it only if such room does not suffice.

First fit decreasing replaces this selection if it selects more, compared
lease by lease in the order of the queue.  So a selection changes only for a
better one.

A changed selection may leave room for further leases: others have moved, and
leases that run may use the headroom.  So leases are selected again, from the
result, until none is added.  Otherwise each round would start a few more of
them, although the demand is constant.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.packing import (
    first_fit,
    in_state,
    is_placed,
)
from secondary_scheduler.decisions.queue_pass import serve_queue
from secondary_scheduler.decisions.sample_rules import SampleRules
from secondary_scheduler.decisions.selection import (
    QueuedLease,
    Selection,
    SelectionOptions,
    is_young,
    order_leases,
    select,
)
from secondary_scheduler.model.configuration import (
    Amounts,
    Configuration,
    Member,
    MemberState,
)

#: Dimension of which leases need headroom to start.
_CPU = 'cpu'


def select_steadily(current: Configuration, queue: Sequence[QueuedLease],
                    options: SelectionOptions, headroom: float = 0.0,
                    growth: Mapping[str, int] | None = None) -> Selection:
    """Select the leases that run (see ``selection.select``).

    :param headroom: part of the CPU of each host that must be free in
        addition for a lease to start; leases that run may use it
    :param growth: CPU by which the demand of each member can still grow, in
        the unit of the configuration; no host keeps more free than that
    """
    before = current
    found = _select_startable(current, queue, options, headroom, growth)
    selected = _selected(found)
    while len(selected) < len(queue) and (
            found.sample.members != before.members):
        following = _select_startable(found.sample, queue, options, headroom,
                                      growth)
        if not selected < _selected(following):
            break
        before, found = found.sample, following
        selected = _selected(found)
    return found


def _selected(selection: Selection) -> set[str]:
    return {lease for lease, state in selection.states.items()
            if state is MemberState.RUNNING}


def _select_startable(current: Configuration, queue: Sequence[QueuedLease],
                      options: SelectionOptions, headroom: float,
                      growth: Mapping[str, int] | None) -> Selection:
    """Select leases, but start none without the headroom."""
    down = {one.lease for one in current.members.values()
            if not one.fixed and one.state is not MemberState.RUNNING}
    if headroom and down:
        states = _select(_with_headroom(current, headroom, growth), queue,
                         options).states
        startable = {lease for lease in down
                     if states.get(lease) is MemberState.RUNNING}
        queue = [lease for lease in queue
                 if lease.name not in down or lease.name in startable]
    return _select(current, queue, options)


def _select(current: Configuration, queue: Sequence[QueuedLease],
            options: SelectionOptions) -> Selection:
    order = order_leases(current, queue, options)
    steady = _SteadySelector(current, order).select()
    if not (_has_total(current, order, steady.states)
            or _starts(current, steady.states)
            and any(is_young(current, lease, options) for lease in queue)):
        return steady   # first fit selects no more, and holds nothing back
    packed = select(current, queue, options)
    if packed.held_back:
        order = [one for one in order if one not in packed.held_back]
        steady = _SteadySelector(current, order).select()

    def chosen(selection: Selection) -> list[bool]:
        return [selection.states[lease] is MemberState.RUNNING
                for lease in order]

    return packed if chosen(packed) > chosen(steady) else steady


def _has_total(current: Configuration, order: Sequence[str],
               states: Mapping[str, MemberState]) -> bool:
    """Return whether one more lease may fit beside those before it.

    The sums of all hosts have to suffice for all of them, and one empty host
    for each member.  Without that, no packing is better than these states.
    """
    queued = set(order)
    room = FreeRoom.of(current, (
        one for one in current.members.values()
        if one.fixed or one.lease not in queued))
    nothing = (0,) * len(current.dimensions)
    free = [[max(amount, 0) for amount in amounts]
            for amounts in zip(nothing, *room.free.values(), strict=True)]
    total, largest = ([most(amounts) for amounts in free]
                      for most in (sum, max))
    for lease in order:
        needs = list(zip(*(
            one.demand for one in current.leases[lease]
            if is_placed(one, MemberState.RUNNING)), strict=True))
        if states[lease] is MemberState.RUNNING:
            total = [most - sum(amounts) for most, amounts in zip(
                total, needs or [()] * len(total), strict=True)]
        elif all(sum(amounts) <= most and max(amounts) <= one
                 for amounts, most, one in zip(
                     needs, total, largest, strict=True)):
            return True
    return False


def _starts(current: Configuration, states: Mapping[str, MemberState]
            ) -> bool:
    """Return whether a lease is selected of which a member does not run."""
    return any(state is MemberState.RUNNING and any(
        one.state is not MemberState.RUNNING and is_placed(one, state)
        for one in current.leases[lease])
               for lease, state in states.items())


def _with_headroom(current: Configuration, headroom: float,
                   growth: Mapping[str, int] | None) -> Configuration:
    """Return a configuration of hosts with less CPU, but all that is used.

    Overloaded hosts lose the headroom too, as running leases have to go.  A
    member that alone needs all that a host has counts as if it fitted there
    exactly.
    """
    if _CPU not in current.dimensions:
        return current
    index = current.dimensions.index(_CPU)
    used = current.used()
    free = {host: math.ceil(amounts[index] * headroom)
            for host, amounts in current.capacity.items()}
    if growth is not None:
        free = _bound_by_growth(current, free, growth)
    reduced = {host: amounts[index] - free[host]
               for host, amounts in current.capacity.items()}
    largest = max(reduced.values(), default=0)
    most = max((amounts[index] for amounts in current.capacity.values()),
               default=0)
    return dataclasses.replace(
        current,
        capacity={
            host: _replace(amounts, index, max(
                reduced[host], used[host][index]
                if used[host][index] <= amounts[index] else 0))
            for host, amounts in current.capacity.items()},
        members={name: dataclasses.replace(
            one, demand=_replace(one.demand, index, largest))
            if one.state is not MemberState.RUNNING
            and largest < one.demand[index] <= most else one
            for name, one in current.members.items()})


def _bound_by_growth(current: Configuration, free: Mapping[str, int],
                     growth: Mapping[str, int]) -> dict[str, int]:
    """Return the CPU that running members and one newcomer can still need."""
    newcomer = max((growth.get(name, 0)
                    for name, one in current.members.items()
                    if one.state is not MemberState.RUNNING), default=0)
    grown = dict.fromkeys(free, newcomer)
    for name, one in current.members.items():
        if one.state is MemberState.RUNNING and one.host in grown:
            grown[str(one.host)] += growth.get(name, 0)
    return {host: min(amount, grown[host]) for host, amount in free.items()}


def _replace(amounts: Amounts, index: int, amount: int) -> Amounts:
    return (*amounts[:index], amount, *amounts[index + 1:])


def _claim(member: Member) -> Amounts | None:
    """Return what a member holds if its lease is not selected."""
    return member.claim if member.host is not None else None


def _held(member: Member) -> Amounts | None:
    return member.held


class _SteadySelector:
    """Places one lease after another.

    :ivar least: room beside the leases that are selected, with the claims of
        all others
    :ivar unused: room beside the selected leases and all that run now, unless
        they are rejected
    """

    def __init__(self, current: Configuration, order: list[str]) -> None:
        self.current = current
        self.order = order
        self.least = FreeRoom(current.capacity, current.closed)
        self.unused = FreeRoom.of(current)
        self.rules = SampleRules(current)
        self.states: dict[str, MemberState] = {}
        self.changed: list[Member] = []
        queued = set(order)
        for one in current.members.values():
            held = (_held(one) if one.fixed or one.lease not in queued
                    else _claim(one))
            if held is not None:
                self.least.take(str(one.host), held)

    def select(self) -> Selection:
        """Select leases in their order."""
        serve_queue(self.order, self._select)
        return Selection(self.states, self.current.with_members(self.changed))

    def _select(self, lease: str) -> bool:
        """Select a lease if it fits; else free its room."""
        members = [one for one in self.current.leases[lease]
                   if is_placed(one, MemberState.RUNNING)]
        found = self._place(members)
        if found is None:
            self.states[lease] = self._reject(members)
            return False
        self.states[lease] = MemberState.RUNNING
        self.changed += (
            dataclasses.replace(one, state=MemberState.RUNNING,
                                host=found[one.name])
            for one in members if one.host != found[one.name]
            or one.state is not MemberState.RUNNING)
        return True

    def _place(self, members: list[Member]) -> dict[str, str] | None:
        if all(one.state is MemberState.RUNNING for one in members):
            hosts = {one.name: str(one.host) for one in members}
            if self._fits(self.least, members, hosts, _claim):
                return hosts
        found = self._fit_in(self.unused, members, _held)
        if found is not None:
            self._take(self.least, members, found, _claim)
            return found
        found = self._fit_in(self.least, members, _claim)
        if found is not None:
            self._take(self.unused, members, found, _held)
        return found

    def _fits(self, room: FreeRoom, members: list[Member],
              hosts: dict[str, str],
              held: Callable[[Member], Amounts | None]) -> bool:
        """Take room on given hosts, or return False."""
        self._take(room, members, hosts, held)
        # A need of nothing fits also where a dimension is overdrawn.
        if all(amount >= 0 or not need
               for one in members
               for amount, need in zip(
                   room.free.get(hosts[one.name], one.demand), one.demand,
                   strict=True)):
            return True
        self._give(room, members, hosts, held)
        return False

    def _fit_in(self, room: FreeRoom, members: list[Member],
                held: Callable[[Member], Amounts | None]
                ) -> dict[str, str] | None:
        """Place members in a room, the present host first."""
        self._change(room.give, members, held)
        found = first_fit(self.current, members, room, self.rules, near=True)
        if found is None:
            self._change(room.take, members, held)
        return found

    def _take(self, room: FreeRoom, members: list[Member],
              hosts: dict[str, str],
              held: Callable[[Member], Amounts | None]) -> None:
        self._change(room.give, members, held)
        for one in members:
            room.take(hosts[one.name], one.demand)

    def _give(self, room: FreeRoom, members: list[Member],
              hosts: dict[str, str],
              held: Callable[[Member], Amounts | None]) -> None:
        for one in members:
            room.give(hosts[one.name], one.demand)
        self._change(room.take, members, held)

    @staticmethod
    def _change(change: Callable[[str, Amounts], None],
                members: list[Member],
                held: Callable[[Member], Amounts | None]) -> None:
        for one in members:
            amounts = held(one)
            if amounts is not None:
                change(str(one.host), amounts)

    def _reject(self, members: list[Member]) -> MemberState:
        """Free the room of a lease, and return its state."""
        self._change(self.unused.give, members, _held)
        self._change(self.unused.take, members, _claim)
        self.changed += (in_state(one, MemberState.SUSPENDED)
                         for one in members)
        started = any(one.state is not MemberState.WAITING
                      for one in members)
        return MemberState.SUSPENDED if started else MemberState.WAITING
