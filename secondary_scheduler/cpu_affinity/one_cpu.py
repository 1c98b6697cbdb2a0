# SPDX-License-Identifier: Apache-2.0

"""Placement loop of the drivers that confine each vCPU to one CPU.

The loop is algorithm 1 of Kaffes 2015 (section 3.2): idle guests go to one
CPU and count as no load, the others are placed one by one in order of their
arrival.  Nothing changes while the sets of idle and running guests stay the
same.
"""

import abc
from collections.abc import Sequence
import dataclasses

from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
    AffinityGuest,
    AffinityView,
    CpuAffinityDriver,
    check_guests,
)
from secondary_scheduler.cpu_affinity.workload_profiles import (
    WorkloadProfiles,
)
from secondary_scheduler.model.topology import Cpus


class CpuLists:
    """Classes of the vCPUs on each CPU, and their use of resources.

    Uses are in percent, as in profiles; an unknown use counts as none.
    """

    def __init__(self, view: AffinityView, profiles: WorkloadProfiles
                 ) -> None:
        self._profiles = profiles
        self.classes: dict[int, tuple[str | None, ...]] = {
            cpu: () for cpu in sorted(view.topology.cpus)}
        self._package = {
            cpu: number for number, part in enumerate(view.topology.packages)
            for cpu in part}
        self.cpu_use: dict[int, float] = dict.fromkeys(self.classes, 0.0)
        self._bandwidth = [0.0] * len(view.topology.packages)
        self.network = self.disk = 0.0

    def bandwidth(self, cpu: int) -> float:
        """Return the use of memory bandwidth on the package of a CPU."""
        return self._bandwidth[self._package[cpu]]

    def add(self, workload_class: str | None, cpu: int) -> None:
        """Add a vCPU of a class to a CPU."""
        use = self._profiles.use(workload_class)
        self.classes[cpu] += (workload_class,)
        self.cpu_use[cpu] += use.cpu or 0.0
        self._bandwidth[self._package[cpu]] += use.memory_bandwidth or 0.0
        self.network += use.network or 0.0
        self.disk += use.disk or 0.0


class OneCpuDriver(CpuAffinityDriver):
    """Driver that confines each vCPU to one CPU."""

    @abc.abstractmethod
    def select(self, workload_class: str | None, candidates: Sequence[int],
               placed: CpuLists) -> int:
        """Return the CPU for a vCPU of a class.

        :param candidates: CPUs that it may use, in ascending order
        :param placed: the vCPUs that are placed already
        """

    def decide(self, view: AffinityView,
               previous: AffinityDecision | None) -> AffinityDecision:
        """Place all guests anew if the sets of idle or running ones changed.
        """
        check_guests(view)
        idle = frozenset(one.name for one in view.guests if self.is_idle(one))
        if previous is not None and self._holds(view, idle, previous):
            return dataclasses.replace(previous, idle=idle)
        sets = self.place(view, idle)
        return one_cpu_decision(view, idle, sets, previous)

    def _holds(self, view: AffinityView, idle: frozenset[str],
               previous: AffinityDecision) -> bool:
        """Return whether the last decision still stands."""
        return (idle == previous.idle
                and {one.name for one in view.guests} == set(previous.sets)
                and all(len(previous.sets[one.name]) == one.vcpus
                        and all(cpus <= one.usable
                                for cpus in previous.sets[one.name])
                        for one in view.guests))

    def place(self, view: AffinityView, idle: frozenset[str]
              ) -> dict[str, tuple[Cpus, ...]]:
        """Return the sets of all guests, starting from no placed guest."""
        placed = CpuLists(view, self.profiles)
        sets: dict[str, tuple[Cpus, ...]] = {}
        for guest in view.guests:
            if guest.name in idle:
                sets[guest.name] = guest.vcpus * (frozenset(
                    {min(guest.usable)}),)
            else:
                sets[guest.name] = self._place_guest(guest, placed)
        return sets

    def _place_guest(self, guest: AffinityGuest, placed: CpuLists
                     ) -> tuple[Cpus, ...]:
        """Place the vCPUs of a guest, on distinct CPUs while there are any.
        """
        chosen: list[int] = []
        for _ in range(guest.vcpus):
            rest = sorted(guest.usable - set(chosen)) or sorted(guest.usable)
            cpu = self.select(guest.workload_class, rest, placed)
            placed.add(guest.workload_class, cpu)
            chosen.append(cpu)
        return tuple(frozenset({cpu}) for cpu in chosen)


def one_cpu_decision(view: AffinityView, idle: frozenset[str],
                     sets: dict[str, tuple[Cpus, ...]],
                     previous: AffinityDecision | None,
                     placed: int = 0) -> AffinityDecision:
    """Return a decision with the time of each change."""
    before = previous.sets if previous else {}
    return AffinityDecision(
        pool=frozenset(cpu for some in sets.values() for cpus in some
                       for cpu in cpus),
        sets=sets, idle=idle,
        changed_s={name: previous.changed_s[name]
                   if previous and before.get(name) == some else view.now_s
                   for name, some in sets.items()},
        placed=placed)
