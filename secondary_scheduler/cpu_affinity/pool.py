# SPDX-License-Identifier: Apache-2.0

"""Fewest whole cores for all secondaries, and the guests on them.

The pool is the fewest whole cores that hold the CPU time of secondaries beside
that of primaries.  It begins where primaries suffer least.  On it, guests are
placed for the highest predicted performance, and few of them move at a time.
"""

from collections.abc import Hashable, Iterable, Mapping
import functools

from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
    AffinityGuest,
    AffinityOptions,
    AffinityView,
    CpuAffinityDriver,
    PrimaryUse,
    check_guests,
)
from secondary_scheduler.cpu_affinity.cells import Cell, join_cpus
from secondary_scheduler.cpu_affinity.occupants import OccupantTable
from secondary_scheduler.cpu_affinity.pool_cores import (
    PoolCores,
    cpu_rooms,
    fewest_cores,
    fixed_part,
    needed_cores,
)
from secondary_scheduler.cpu_affinity.pool_search import PoolSearch
from secondary_scheduler.cpu_affinity.prediction import SlowdownModel
from secondary_scheduler.cpu_affinity.primary_loads import primary_loads
from secondary_scheduler.cpu_affinity.workload_profiles import (
    WorkloadProfiles,
)
from secondary_scheduler.model.topology import Cpus

#: Costs of cores, in CPUs of primaries times their slow-down, that differ
#: less are equal.
_EQUAL_COST = 0.05
#: Sets of classes, and caches, whose predictions are kept between decisions.
_MOST_OCCUPANTS, _MOST_CACHES = 1 << 14, 256
#: CPUs by which the need must fall below a smaller pool before it shrinks.
_SHRINK_MARGIN = 0.1


class PoolAffinity(CpuAffinityDriver):
    """Confines secondaries to a pool of cores."""

    def __init__(self, profiles: WorkloadProfiles,
                 options: AffinityOptions) -> None:
        super().__init__(profiles, options)
        self._model = SlowdownModel(profiles)
        self._make_table = functools.partial(
            OccupantTable, self._model, options.cache_weight)
        self._table = self._make_table()
        self._join_cpus = functools.lru_cache(_MOST_CACHES)(
            functools.partial(join_cpus, self._model,
                              most_loss=options.widening_loss))

    def decide(self, view: AffinityView,
               previous: AffinityDecision | None) -> AffinityDecision:
        """Choose the pool, and place guests that need a place.

        A guest that is new, that wakes, or whose CPUs are not in the pool any
        more is placed at once.  Beside these, at most ``most_moves`` guests
        that had their CPUs for ``least_residence_s`` move, and only if the
        predicted gain is at least ``least_gain``.
        """
        check_guests(view)
        idle = frozenset(one.name for one in view.guests if self.is_idle(one))
        running = [one for one in view.guests if one.name not in idle]
        cores = self._choose_cores(view, running, previous)
        state = self._state(view, idle, cores)
        if previous is not None and previous.settled_for == state:
            return previous
        if len(self._table) > _MOST_OCCUPANTS:
            self._table = self._make_table()
        search = PoolSearch(self._table, view, cores, *primary_loads(
            view, self._model, self.options.primary_weight))
        before = previous.homes if previous else {}
        settled = search.keep([one for one in running if previous is not None
                               and one.name not in previous.idle], before)
        homes = search.place(running, settled, {
            name for name in settled if previous is not None
            and view.now_s - previous.changed_s[name]
            >= self.options.least_residence_s}, before, self.options)
        pool = self._fill_pool(view, search.pool, cores, previous)
        sets = self._sets(view, running, homes, pool)
        homes = {one.name: homes.get(one.name, before.get(one.name, ()))
                 for one in view.guests}
        return AffinityDecision(
            pool=pool, sets=sets, idle=idle, homes=homes,
            settled_for=state if search.converged else None,
            changed_s={name: previous.changed_s[name]
                       if previous and name in previous.changed_s
                       and before.get(name, ()) == some else view.now_s
                       for name, some in homes.items()})

    def _state(self, view: AffinityView, idle: frozenset[str],
               cores: PoolCores) -> object:
        """Return all inputs of the placement of guests.

        Uses of CPU are rounded, so that noise does not count.  The agent makes
        another driver for learned profiles.
        """
        def rounded(one: PrimaryUse) -> Hashable:
            return one.workload_class, round(one.cpus / _EQUAL_COST)

        guests = tuple((one.name, one.workload_class, one.usable, one.vcpus)
                       for one in view.guests)
        primaries = tuple((cpu, rounded(one)) for cpu, one in sorted(
            view.primaries.items()))
        return (self.profiles, view.topology, idle, cores.cores, cores.count,
                round(cores.need / _SHRINK_MARGIN), guests, primaries,
                tuple(map(rounded, view.floating)))

    # -- the pool ----------------------------------------------------------
    def _choose_cores(self, view: AffinityView,
                      running: Iterable[AffinityGuest],
                      previous: AffinityDecision | None) -> PoolCores:
        """Return the cores that may be in the pool, and their number."""
        usable = frozenset[int]().union(
            *(one.usable for one in view.guests))
        costs = self._costs(view)
        before = previous.pool if previous else frozenset()
        order = sorted((core & usable for core in view.topology.cores
                        if core & usable), key=lambda core: (
                            round(sum(costs.get(cpu, 0.0) for cpu in core)
                                  / _EQUAL_COST),
                            not core & before, -len(core), min(core)))
        needed = needed_cores(running, usable, order)
        order = [*needed, *(core for core in order if core not in needed)]
        need = min(view.share_cpus, sum(one.vcpus for one in running))
        count = max(len(needed), fewest_cores(view, order, need))
        kept = sum(bool(core & before) for core in order)
        if count < kept:
            count = max(len(needed), min(kept, fewest_cores(
                view, order, need + _SHRINK_MARGIN)))
        highest = max((self._cost(core, costs) for core in order[:count]),
                      default=0.0)
        chosen = tuple(
            core for place, core in enumerate(order) if place < count
            or self._cost(core, costs) < highest + _EQUAL_COST)
        rooms = cpu_rooms(view)
        return PoolCores(chosen, tuple(needed), count, need, tuple(
            sum(rooms[cpu] for cpu in core) for core in chosen))

    @staticmethod
    def _cost(core: Cpus, costs: Mapping[int, float]) -> float:
        return sum(costs.get(cpu, 0.0) for cpu in core)

    def _costs(self, view: AffinityView) -> dict[int, float]:
        """Return use by primaries times their mean slow-down, by CPU."""
        matrix, part = self.profiles.time_sharing, fixed_part(view)
        return {cpu: one.cpus * part * sum(
            matrix.slowdown(one.workload_class, other)
            for other in matrix.classes) / len(matrix.classes)
            for cpu, one in view.primaries.items()}

    def _fill_pool(self, view: AffinityView, used: Cpus, cores: PoolCores,
                   previous: AffinityDecision | None) -> Cpus:
        """Return the CPUs of guests, with cores up to number and need.

        Cores may differ in size and in the use by primaries.
        """
        chosen = [core for core in cores.cores if core & used]
        before = previous.pool if previous else frozenset()
        rest = sorted((core for core in cores.cores if core not in chosen),
                      key=lambda core: not core & before)
        while rest and (len(chosen) < cores.count or fewest_cores(
                view, [*chosen, *rest], cores.need) > len(chosen)):
            chosen.append(rest.pop(0))
        return used.union(*chosen)

    # -- sets of guests ----------------------------------------------------
    def _sets(self, view: AffinityView, running: Iterable[AffinityGuest],
              homes: Mapping[str, tuple[int, ...]], pool: Cpus
              ) -> dict[str, tuple[Cpus, ...]]:
        """Return the CPUs of each vCPU, as wide as the prediction allows."""
        guests = {one.name: one for one in running}
        classes: dict[int, list[str]] = {cpu: [] for cpu in pool}
        for name, cpus in homes.items():
            for cpu in cpus:
                classes[cpu].append(self._model.class_name(
                    guests[name].workload_class))
        cell_of: dict[int, Cpus] = {}
        for domain in view.topology.cache_domains:
            for cell in self._join_cpus(tuple(
                    Cell(frozenset({cpu}), tuple(sorted(classes[cpu])))
                    for cpu in sorted(domain & pool))):
                cell_of |= dict.fromkeys(cell.cpus, cell.cpus)
        sets: dict[str, tuple[Cpus, ...]] = {}
        for one in view.guests:
            if one.name in homes:
                sets[one.name] = tuple(cell_of[cpu] & one.usable
                                       for cpu in homes[one.name])
            else:
                sets[one.name] = one.vcpus * ((pool & one.usable)
                                              or one.usable,)
        return sets
