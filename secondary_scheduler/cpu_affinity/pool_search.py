# SPDX-License-Identifier: Apache-2.0

"""Placement of guests on the cores of a pool, by predicted performance.

Guests without a place are placed one by one.  Then the best move of one guest,
or exchange of two, is made until none is better (local search).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import dataclasses

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
from secondary_scheduler.cpu_affinity.prediction import SlowdownModel
from secondary_scheduler.model.topology import Cpus

#: CPU of each vCPU of a guest.
Homes = tuple[int, ...]
#: New homes of one guest, or of two that change places.
Step = tuple[tuple[str, Homes], ...]
#: Gains of performance that are rounding errors.
_EPSILON = 1e-9
#: Predictions in a search, and in one among many guests that have a place.
_MOST_TRIALS, _FEW_TRIALS = 20_000, 5_000
#: Guests whose steps are all compared.
_MOST_TOGETHER = 50


@dataclasses.dataclass(frozen=True)
class PoolCores:
    """Cores that may be in the pool.

    :param cores: their CPUs, the cheapest for primaries first
    :param needed: those without which a guest could run nowhere
    :param count: how many of them make the pool
    :param need: CPUs that the pool must hold beside the use of primaries
    :param rooms: CPUs of each core beside the use of primaries
    """

    cores: tuple[Cpus, ...]
    needed: tuple[Cpus, ...]
    count: int
    need: float
    rooms: tuple[float, ...]


class PoolSearch:
    """Running guests on the CPUs of a host.

    :param cores: the cores that may be used
    :param fixed: primaries by CPU
    :param floating: primaries that may run on all CPUs
    """

    def __init__(self, model: SlowdownModel, view: AffinityView,
                 cores: PoolCores, fixed: Mapping[int, FixedLoad],
                 floating: Sequence[FixedLoad]) -> None:
        self._model = model
        self._count = cores.count
        self._cores = cores.cores
        self._pool_cores = cores
        self._core = {cpu: number for number, core in enumerate(
            view.topology.cores) for cpu in core}
        self._allowed = frozenset[int]().union(*cores.cores)
        self._needed = frozenset(self._core[min(core)]
                                 for core in cores.needed)
        self._domains = view.topology.cache_domains
        self._node = {cpu: node for node in view.topology.nodes
                      for cpu in node}
        self._assignment = Assignment(model, self._domains, fixed, floating)
        #: Number of vCPUs on each core; number of cores used or needed.
        self._used: Counter[int] = Counter()
        self._opened = len(self._needed)
        self._guests: dict[str, AffinityGuest] = {}
        self._class: dict[str, str] = {}
        self._homes: dict[str, Homes] = {}
        #: CPUs with the memory of guests that ran before.
        self._memory: dict[str, Cpus] = {}
        self._trials = 0
        #: Whether no guest would move if the host stays as it is.
        self.converged = False

    @property
    def pool(self) -> Cpus:
        """CPUs of guests, with the others of their cores that are allowed."""
        homes = frozenset(cpu for some in self._homes.values()
                          for cpu in some)
        return homes.union(*(core for core in self._cores if core & homes))

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
                 for place, core in enumerate(self._cores)}
        kept: set[int] = set()
        room = 0.0
        for core in sorted(users.keys() | self._needed, key=lambda core: (
                core not in self._needed, -users[core], ranks[core])):
            if (len(kept) >= self._count
                    and room >= self._pool_cores.need - _EPSILON):
                break
            kept.add(core)
            room += self._pool_cores.rooms[ranks[core]]
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
            if before.get(name) and options.keeps_node:
                self._memory[name] = self._node[before[name][0]]
            if name in settled:
                self._move(((name, settled[name]),))
        free = [one.name for one in running if one.name not in settled]
        for name in free:
            steps = (((name, homes),) for homes in self._placements(name))
            # The first of equal ones, so that decisions can be repeated.
            self._move(max(steps, key=self._gain))
        self._improve(free, {}, 0, _MOST_TRIALS)
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
        return self._assignment.gain(self._changes(step))

    def _move(self, step: Step) -> Step:
        """Make a step; return the step that undoes it."""
        undo = tuple((name, self._homes[name]) for name, _ in step
                     if name in self._homes)
        self._assignment.apply(self._changes(step))
        for name, homes in step:
            self._used.subtract(self._core[cpu]
                                for cpu in self._homes.get(name, ()))
            self._used.update(self._core[cpu] for cpu in homes)
            self._homes[name] = homes
        self._used = +self._used
        self._opened = len(self._used.keys() | self._needed)
        return undo

    def _fits(self, name: str, homes: Homes) -> bool:
        """Return whether the pool is no larger with new homes of a guest."""
        delta = Counter(self._core[cpu] for cpu in homes)
        delta.subtract(self._core[cpu] for cpu in self._homes.get(name, ()))
        after = self._opened + sum(
            (self._used[core] + number > 0) - (self._used[core] > 0)
            for core, number in delta.items() if core not in self._needed)
        return after <= max(self._count, self._opened)

    # -- candidates --------------------------------------------------------
    def _placements(self, name: str) -> Iterator[Homes]:
        """Yield the places of a guest that are worth a trial, at least one.

        If the pool has no room for it, its place is outside of the pool.
        """
        guest = self._guests[name]
        near = guest.usable & self._allowed
        memory = self._memory.get(name)
        choices = [near, guest.usable]
        if memory and len(near & memory) >= min(guest.vcpus, len(near)):
            choices.insert(0, near & memory)
        for cpus in choices:
            for places in (self._places(name, guest.vcpus, cpus),
                           self._scattered(name, guest.vcpus, cpus)):
                found = False
                for homes in places:
                    if cpus is guest.usable or self._fits(name, homes):
                        found = True
                        yield homes
                if found:
                    return

    def _places(self, name: str, vcpus: int, cpus: Cpus) -> Iterator[Homes]:
        """Yield places for the vCPUs of a guest, on CPUs of one cache."""
        if vcpus == 1:
            seen = set()
            for cpu in sorted(cpus):
                key = (self._assignment.state(cpu),
                       self._used[self._core[cpu]] > 0,
                       self._core[cpu] in self._needed)
                if key not in seen:
                    seen.add(key)
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
        own = Counter(self._homes.get(name, ()))
        free = max(0, self._count - self._opened)
        used = sorted((cpu for cpu in cpus if self._used[self._core[cpu]]),
                      key=lambda cpu: (len(self._assignment.classes(cpu))
                                       - own[cpu], cpu))
        fresh: list[int] = []
        opened: set[int] = set()
        for cpu in sorted(cpus.difference(used)):
            if (self._core[cpu] in opened | self._needed
                    or len(opened) < free):
                opened |= {self._core[cpu]} - self._needed
                fresh.append(cpu)
        idle = [cpu for cpu in used
                if len(self._assignment.classes(cpu)) == own[cpu]]
        order = idle + fresh + [cpu for cpu in used if cpu not in idle]
        order = order or sorted(cpus)
        return tuple(order[number % len(order)] for number in range(vcpus))

    # -- local search ------------------------------------------------------
    def _improve(self, names: Sequence[str], settled: Mapping[str, Homes],
                 most_moves: int, most_trials: int) -> list[Step]:
        """Make the best step until none is better.

        Of many guests, the best step of each is made in turn, since the steps
        of all are too many.

        :param settled: guests of which at most ``most_moves`` move
        :param most_trials: how many predictions are made
        :returns: the steps that undo all steps, in their order
        """
        undo: list[Step] = []
        moved: set[str] = set()
        last = self._trials + most_trials
        groups = ([names] if len(names) <= _MOST_TOGETHER
                  else [[name] for name in self._slowest_first(names)])
        while self._trials < last:
            before = len(undo)
            for group in groups:
                best, gain = None, _EPSILON
                some = group if len(moved) < most_moves else [
                    name for name in group
                    if name not in settled or name in moved]
                for step in self._steps(some, names) if some else ():
                    cost = sum(name in settled and name not in moved
                               for name, _ in step)
                    if (len(moved) + cost <= most_moves or not cost) and (
                            more := self._gain(step)) > gain:
                        best, gain = step, more
                    if self._trials >= last:
                        break
                if best is not None:
                    moved |= {name for name, _ in best if name in settled}
                    undo.append(self._move(best))
            if len(undo) == before:
                break
        return undo

    def _slowest_first(self, names: Sequence[str]) -> list[str]:
        """Return guests in order of what they would gain alone on a CPU."""
        return sorted(names, key=lambda name: -max(
            self._model.on_cpu(self._assignment.classes(cpu))[
                self._class[name]] for cpu in self._homes[name]))

    def _steps(self, some: Sequence[str], names: Sequence[str]
               ) -> Iterator[Step]:
        """Yield moves of some guests, and exchanges of them with others."""
        for name in some:
            for homes in self._placements(name):
                if homes != self._homes[name]:
                    yield ((name, homes),)
        single = [name for name in names if self._guests[name].vcpus == 1]
        for place, name in enumerate(single):
            if name not in some:
                continue
            for other in (single[place + 1:] if len(some) == len(names)
                          else single):
                if other != name and self._can_exchange(name, other):
                    yield ((name, self._homes[other]),
                           (other, self._homes[name]))

    def _can_exchange(self, name: str, other: str) -> bool:
        """Return whether two guests of one vCPU can change places."""
        return (self._class[name] != self._class[other]
                and self._homes[name] != self._homes[other]
                and self._may_use(name, self._homes[other])
                and self._may_use(other, self._homes[name]))

    def _may_use(self, name: str, homes: Homes) -> bool:
        memory = self._memory.get(name)
        return (set(homes) <= self._guests[name].usable
                and (memory is None or set(homes) <= memory
                     or not set(self._homes[name]) <= memory))
