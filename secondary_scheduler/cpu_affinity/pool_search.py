# SPDX-License-Identifier: Apache-2.0

"""Placement of guests on the cores of a pool, by predicted performance.

Guests without a place are placed one by one.  Then the best move of one guest,
or exchange of two, is made until none is better (local search).
"""

import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from secondary_scheduler.cpu_affinity.assignment import (
    Assignment,
    Change,
    FixedLoad,
)
from secondary_scheduler.cpu_affinity.base import (
    AffinityGuest,
    AffinityOptions,
    AffinityView,
)
from secondary_scheduler.cpu_affinity.kinds import (
    CpuGroups,
    CpuKind,
    GuestKind,
    Homes,
    MoveLimit,
)
from secondary_scheduler.cpu_affinity.occupants import OccupantTable
from secondary_scheduler.cpu_affinity.pool_cores import PoolCores
from secondary_scheduler.model.topology import Cpus

#: New homes of one guest, or of two that change places.
Step = tuple[tuple[str, Homes], ...]
#: Gains of performance that are rounding errors.
_EPSILON = 1e-9
#: Predictions in a search, and in one among many guests that have a place.
_MOST_TRIALS, _FEW_TRIALS = 20_000, 3_000
#: Guests whose steps are all compared.
_MOST_TOGETHER = 50


class PoolSearch:
    """Running guests on the CPUs of a host.

    :param cores: the cores that may be used
    :param fixed: primaries by CPU
    :param floating: primaries that may run on all CPUs
    """

    def __init__(self, table: OccupantTable, view: AffinityView,
                 cores: PoolCores, fixed: Mapping[int, FixedLoad],
                 floating: Sequence[FixedLoad]) -> None:
        self._model = table.model
        self._siblings = view.topology.cores
        self._cores = cores
        self._core = {cpu: number for number, core in enumerate(
            self._siblings) for cpu in core}
        self._allowed = frozenset[int]().union(*cores.cores)
        self._needed = frozenset(self._core[min(core)]
                                 for core in cores.needed)
        self._domains = view.topology.cache_domains
        self._node = {cpu: node for node in view.topology.nodes
                      for cpu in node}
        self._assignment = Assignment(table, self._domains, fixed, floating)
        #: vCPUs on each CPU and on each core; number of cores used or needed.
        self._load: Counter[int] = Counter()
        self._used: Counter[int] = Counter()
        self._opened = len(self._needed)
        self._guests: dict[str, AffinityGuest] = {}
        self._class: dict[str, str] = {}
        self._homes: dict[str, Homes] = {}
        #: CPUs with the memory of guests that ran before.
        self._memory: dict[str, Cpus] = {}
        #: Guests of one vCPU on each CPU.
        self._residents: dict[int, list[str]] = {
            cpu: [] for cpu in self._core}
        self._groups = CpuGroups()
        self._update_kinds(range(len(self._siblings)))
        self._choices: dict[tuple[Cpus, Cpus | None, int],
                            Sequence[tuple[Cpus, bool]]] = {}
        self._trials = 0
        #: Whether no guest would move if the host stays as it is.
        self.converged = False

    @property
    def pool(self) -> Cpus:
        """CPUs of guests, with the others of their cores that are allowed."""
        homes = frozenset(cpu for some in self._homes.values()
                          for cpu in some)
        return homes.union(*(one for one in self._cores.cores if one & homes))

    def keep(self, running: Iterable[AffinityGuest],
             before: Mapping[str, Homes]) -> dict[str, Homes]:
        """Return the guests that can stay where they were.

        If they use more cores than the pool needs, those with the fewest
        guests are given up.
        """
        found = {one.name: before[one.name] for one in running
                 if len(before.get(one.name, ())) == one.vcpus
                 and set(before[one.name]) <= (one.usable & self._allowed)}
        users = Counter(core for homes in found.values()
                        for core in {self._core[cpu] for cpu in homes})
        ranks = {self._core[min(core)]: place
                 for place, core in enumerate(self._cores.cores)}
        kept: set[int] = set()
        room = 0.0
        for core in sorted(users.keys() | self._needed, key=lambda core: (
                core not in self._needed, -users[core], ranks[core])):
            if (len(kept) >= self._cores.count
                    and room >= self._cores.need - _EPSILON):
                break
            kept.add(core)
            room += self._cores.rooms[ranks[core]]
        return {name: homes for name, homes in found.items()
                if all(self._core[cpu] in kept for cpu in homes)}

    def place(self, running: Sequence[AffinityGuest],
              settled: Mapping[str, Homes], movable: Collection[str],
              before: Mapping[str, Homes], options: AffinityOptions
              ) -> dict[str, Homes]:
        """Return the CPU of each vCPU of all running guests.

        :param settled: guests that have their CPUs already
        :param movable: those of them that may move
        :param before: earlier CPUs of guests, near which their memory is
        """
        for guest in running:
            name = guest.name
            self._guests[name] = guest
            self._class[name] = self._model.class_name(guest.workload_class)
            # A CPU that is gone does not say where the memory is.
            if options.keeps_node and before.get(name) and (
                    before[name][0] in self._node):
                self._memory[name] = self._node[before[name][0]]
        self._move(tuple(settled.items()))
        free = [one.name for one in running if one.name not in settled]
        for name in free:
            steps = (((name, homes),) for homes in self._placements(name))
            # The first of equal ones, so that decisions can be repeated.
            self._move(max(steps, key=self._gain))
        self._improve(free, (), 0, _MOST_TRIALS)
        start = self._assignment.score
        undo = self._improve([*free, *(name for name in settled
                                       if name in movable)],
                             settled, options.most_moves,
                             _MOST_TRIALS if len(running) <= _MOST_TOGETHER
                             else _FEW_TRIALS)
        vcpus = sum(one.vcpus for one in running)
        if self._assignment.score - start < options.least_gain * vcpus:
            for step in reversed(undo):
                self._move(step)
            self.converged = settled.keys() <= set(movable)
        return dict(self._homes)

    # -- steps -------------------------------------------------------------
    def _changes(self, step: Step) -> list[Change]:
        found: list[Change] = []
        for name, homes in step:
            old: Sequence[int | None] = self._homes.get(
                name, (None,) * len(homes))
            found.extend((self._class[name], one, other)
                         for one, other in zip(old, homes, strict=True)
                         if one != other)
        return found

    def _gain(self, step: Step) -> float:
        self._trials += 1
        (name, homes), *others = step
        if len(homes) > 1:
            return self._assignment.gain(self._changes(step))
        (before,) = self._homes.get(name, (None,))
        return self._assignment.shift_gain(
            self._class[name], before, homes[0],
            self._class[others[0][0]] if others else None)

    def _move(self, step: Step) -> Step:
        """Make a step; return the step that undoes it."""
        undo = tuple((name, self._homes[name]) for name, _ in step
                     if name in self._homes)
        self._assignment.apply(self._changes(step))
        cores: set[int] = set()
        for name, homes in step:
            old = self._homes.get(name, ())
            self._used.subtract(self._core[cpu] for cpu in old)
            self._used.update(self._core[cpu] for cpu in homes)
            self._load.subtract(old)
            self._load.update(homes)
            cores.update(self._core[cpu] for cpu in (*old, *homes))
            if self._guests[name].vcpus == 1:
                for cpu in old:
                    self._residents[cpu].remove(name)
                self._residents[homes[0]].append(name)
            self._homes[name] = homes
        self._used = +self._used
        self._opened = len(self._used.keys() | self._needed)
        self._update_kinds(cores)
        return undo

    def _update_kinds(self, cores: Iterable[int]) -> None:
        """Find the kinds of the CPUs of some cores anew."""
        for core in cores:
            used, needed = self._used[core] > 0, core in self._needed
            for cpu in self._siblings[core]:
                self._groups.put(cpu, CpuKind(
                    self._assignment.state(cpu), used, needed,
                    cpu in self._allowed))

    def _fits(self, name: str, homes: Homes) -> bool:
        """Return whether the pool is no larger with new homes of a guest."""
        opens = {self._core[cpu] for cpu in homes if not self._used[
            self._core[cpu]]} - self._needed
        if not opens or self._opened + len(opens) <= self._cores.count:
            return True
        left = Counter(self._core[cpu] for cpu in self._homes.get(name, ()))
        left.subtract(self._core[cpu] for cpu in homes)
        closes = sum(self._used[core] == number > 0
                     for core, number in left.items()
                     if core not in self._needed)
        return (self._opened + len(opens) - closes
                <= max(self._cores.count, self._opened))

    # -- candidates --------------------------------------------------------
    def _placements(self, name: str) -> Iterator[Homes]:
        """Yield the places of a guest that are worth a trial, at least one.

        If the pool has no room for it, its place is outside of the pool.
        """
        guest = self._guests[name]
        for cpus, limited in self._choices_of(
                guest.usable, self._memory.get(name), guest.vcpus):
            for places in (self._places(name, guest.vcpus, cpus),
                           self._scattered(name, guest.vcpus, cpus)):
                found = False
                for homes in places:
                    if not limited or self._fits(name, homes):
                        found = True
                        yield homes
                if found:
                    return

    def _choices_of(self, usable: Cpus, memory: Cpus | None, vcpus: int
                    ) -> Sequence[tuple[Cpus, bool]]:
        """Return CPUs for a guest, the best first.

        :returns: sets of CPUs, and whether the pool must not grow for them
        """
        key = usable, memory, vcpus
        if key not in self._choices:
            near = usable & self._allowed
            found = [(near, True), (usable, False)]
            if memory and len(near & memory) >= min(vcpus, len(near)):
                found.insert(0, (near & memory, True))
            self._choices[key] = found
        return self._choices[key]

    def _places(self, name: str, vcpus: int, cpus: Cpus) -> Iterator[Homes]:
        """Yield places for the vCPUs of a guest, on CPUs of one cache."""
        if vcpus == 1:
            for cpu in self._groups.representatives(
                    cpus, self._homes.get(name, ())):
                yield (cpu,)
            return
        for domain in self._domains:
            if len(cpus & domain) >= vcpus:
                yield self._spread(name, vcpus, cpus & domain)

    def _scattered(self, name: str, vcpus: int, cpus: Cpus
                   ) -> Iterator[Homes]:
        """Yield a place for several vCPUs, on CPUs of any caches."""
        if vcpus > 1 and cpus:
            yield self._spread(name, vcpus, cpus)

    def _spread(self, name: str, vcpus: int, cpus: Cpus) -> Homes:
        """Return distinct CPUs for vCPUs, while there are any.

        Cores in use come first, then CPUs with few guests.
        """
        others = {cpu: self._load[cpu] for cpu in cpus
                  if self._core[cpu] in self._used}
        for cpu in self._homes.get(name, ()):
            if cpu in others:
                others[cpu] -= 1
        free = max(0, self._cores.count - self._opened)
        fresh: list[int] = []
        opened: set[int] = set()
        for cpu in sorted(cpus - others.keys()):
            core = self._core[cpu]
            if core in self._needed or core in opened or len(opened) < free:
                if core not in self._needed:
                    opened.add(core)
                fresh.append(cpu)
        used = sorted(others, key=lambda cpu: (others[cpu], cpu))
        busy = bisect.bisect(used, 0, key=others.__getitem__)
        order = used[:busy] + fresh + used[busy:] or sorted(cpus)
        return tuple(order[number % len(order)] for number in range(vcpus))

    # -- local search ------------------------------------------------------
    def _improve(self, names: Sequence[str], settled: Collection[str],
                 most_moves: int, most_trials: int) -> list[Step]:
        """Make the best step until none is better.

        Of many guests, the best step of each is made in turn, since the steps
        of all are too many.

        :param settled: guests of which at most ``most_moves`` move
        :param most_trials: how many predictions are made
        :returns: the steps that undo all steps, in their order
        """
        undo: list[Step] = []
        limit = MoveLimit(frozenset(names), settled, most_moves)
        last = self._trials + most_trials
        groups = ([names] if len(names) <= _MOST_TOGETHER
                  else [[name] for name in self._slowest_first(names)])
        #: Kinds of guests that found no step since the last one was made.
        tried: set[GuestKind] = set()
        while self._trials < last:
            before = len(undo)
            for group in groups:
                best, gain = None, _EPSILON
                for step in self._steps(group, limit, tried):
                    more = self._gain(step)
                    if more > gain:
                        best, gain = step, more
                    if self._trials >= last:
                        break
                if best is not None:
                    limit.note([name for name, _ in best])
                    undo.append(self._move(best))
                    tried = set()
            if len(undo) == before:
                break
        return undo

    def _slowest_first(self, names: Sequence[str]) -> list[str]:
        """Return guests in order of what they would gain alone on a CPU."""
        return sorted(names, key=lambda name: -max(
            self._model.on_cpu(self._assignment.occupants(cpu).classes)[
                self._class[name]] for cpu in self._homes[name]))

    def _steps(self, group: Sequence[str], limit: MoveLimit,
               tried: set[GuestKind]) -> Iterator[Step]:
        """Yield moves of some guests, and exchanges of them with others.

        :param tried: kinds of guests that are left out; those of the group are
            added
        """
        for name in group:
            kind = self._guest_kind(name, limit)
            if kind in tried or not limit.allows(name):
                continue
            tried.add(kind)
            for homes in self._placements(name):
                if homes != self._homes[name]:
                    yield ((name, homes),)
            if self._guests[name].vcpus == 1:
                for other in self._partners(name, limit, len(group) > 1):
                    yield ((name, self._homes[other]),
                           (other, self._homes[name]))

    def _guest_kind(self, name: str, limit: MoveLimit) -> GuestKind:
        guest, homes = self._guests[name], self._homes[name]
        return GuestKind(
            self._class[name],
            self._groups.kind(homes[0]) if guest.vcpus == 1 else homes,
            guest.usable, self._memory.get(name), limit.counts(name))

    def _partners(self, name: str, limit: MoveLimit, together: bool
                  ) -> Iterator[str]:
        """Yield guests to exchange with: of each class on each kind of CPU.

        :param together: whether the partners have their own turn in the same
            search, so that one of two exchanges is enough
        """
        own = self._class[name]
        for alike in self._groups:
            for one in self._assignment.occupants(alike[0]).each:
                if one != own and not (together and one < own):
                    found = next((
                        other for cpu in alike for other in self._residents[
                            cpu] if self._class[other] == one
                        and other in limit.names
                        and limit.allows(name, other)
                        and self._can_exchange(name, other)), None)
                    if found is not None:
                        yield found

    def _can_exchange(self, name: str, other: str) -> bool:
        """Return whether two guests of one vCPU can change places."""
        return (self._homes[name] != self._homes[other]
                and self._may_use(name, self._homes[other])
                and self._may_use(other, self._homes[name]))

    def _may_use(self, name: str, homes: Homes) -> bool:
        memory = self._memory.get(name)
        return (set(homes) <= self._guests[name].usable
                and (memory is None or set(homes) <= memory
                     or not set(self._homes[name]) <= memory))
