# SPDX-License-Identifier: Apache-2.0

"""Selection of leases that moves running ones only where it must.

First fit decreasing packs all leases anew, and ignores where they run.  On a
nearly full cluster it so may miss a lease that fits where it is.  Here

* running leases stay where they are while that is possible,
* a lease that does not run takes room first that none of them uses,
* it displaces leases after it only if such room does not suffice.

First fit decreasing replaces this selection if it selects more, compared
lease by lease in the order of the queue.  So a selection changes only for a
better one, and constant demand finally leads to no change.
"""

from collections.abc import Callable, Sequence
import dataclasses

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.packing import (
    first_fit,
    in_state,
    is_placed,
)
from secondary_scheduler.decisions.selection import (
    QueuedLease,
    Selection,
    SelectionOptions,
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
                    options: SelectionOptions, headroom: float = 0.0
                    ) -> Selection:
    """Select the leases that run (see ``selection.select``).

    :param headroom: part of the CPU of each host that must be free in
        addition for a lease to start; leases that run may use it
    """
    down = {one.lease for one in current.members.values()
            if not one.fixed and one.state is not MemberState.RUNNING}
    if headroom and down:
        states = _select(_with_headroom(current, headroom), queue,
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
    if all(one is MemberState.RUNNING for one in steady.states.values()):
        return steady
    packed = select(current, queue, options)
    if packed.held_back:
        order = [one for one in order if one not in packed.held_back]
        steady = _SteadySelector(current, order).select()

    def chosen(selection: Selection) -> list[bool]:
        return [selection.states[lease] is MemberState.RUNNING
                for lease in order]

    return packed if chosen(packed) > chosen(steady) else steady


def _with_headroom(current: Configuration, headroom: float
                   ) -> Configuration:
    """Return a configuration of hosts with less CPU, but all that is used.

    Overloaded hosts lose the headroom too, as running leases have to go.  A
    member that alone needs more than such a host has counts as if it fitted
    there exactly.
    """
    if _CPU not in current.dimensions:
        return current
    index = current.dimensions.index(_CPU)
    used = current.used()
    reduced = {host: int(amounts[index] * (1 - headroom))
               for host, amounts in current.capacity.items()}
    largest = max(reduced.values(), default=0)
    return dataclasses.replace(
        current,
        capacity={
            host: _replace(amounts, index, max(
                reduced[host], used[host][index]
                if used[host][index] <= amounts[index] else 0))
            for host, amounts in current.capacity.items()},
        members={name: one if one.state is MemberState.RUNNING
                 or one.demand[index] <= largest else dataclasses.replace(
                     one, demand=_replace(one.demand, index, largest))
                 for name, one in current.members.items()})


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
        queued = set(order)
        #: Members as they are if no lease is selected.
        self.idle = {
            one.name: in_state(one, MemberState.SUSPENDED)
            if one.lease in queued else one
            for one in current.members.values()}
        self.least = FreeRoom.of(current, self.idle.values())
        self.unused = FreeRoom.of(current)
        self.hosts: dict[str, str] = {}

    def select(self) -> Selection:
        """Select leases in their order."""
        states = {}
        for lease in self.order:
            members = [one for one in self.current.leases[lease]
                       if is_placed(one, MemberState.RUNNING)]
            found = self._place(members)
            states[lease] = MemberState.RUNNING
            if found is None:
                states[lease] = self._reject(members)
            else:
                self.hosts |= found
        return Selection(states, self.current.with_members(
            dataclasses.replace(one, state=MemberState.RUNNING,
                                host=self.hosts[one.name])
            if one.name in self.hosts else one
            for one in self.idle.values()))

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
        found = first_fit(self.current, members, room, near=True)
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
        started = any(one.state is not MemberState.WAITING
                      for one in members)
        return MemberState.SUSPENDED if started else MemberState.WAITING
