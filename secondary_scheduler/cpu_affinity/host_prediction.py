# SPDX-License-Identifier: Apache-2.0

"""Predictions for a host: of its secondaries, and of one more of each class.

Guests are where the last decision has put them; no guest moves for a
newcomer.  So a prediction is cheap, and not too good.  It is about
interference only: the CPU time that primaries leave is not in it.
"""

from collections.abc import Collection, Mapping, Sequence
import math

from secondary_scheduler.cpu_affinity.assignment import Assignment
from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
    AffinityGuest,
    AffinityOptions,
    AffinityView,
)
from secondary_scheduler.cpu_affinity.measurements import GENERATOR_PREFIX
from secondary_scheduler.cpu_affinity.occupants import OccupantTable
from secondary_scheduler.cpu_affinity.prediction import SlowdownModel
from secondary_scheduler.cpu_affinity.primary_loads import primary_loads
from secondary_scheduler.cpu_affinity.workload_profiles import (
    WorkloadProfiles,
)
from secondary_scheduler.model.arrivals import Arrival
from secondary_scheduler.model.topology import Cpus

#: Sets of classes whose predictions are kept.
_MOST_OCCUPANTS = 1 << 14


class HostPredictor:
    """Predicts slow-downs; keeps estimates of the profiles.

    :param profiles: profiles of workload classes
    :param options: of them, the weight of primaries
    """

    def __init__(self, profiles: WorkloadProfiles,
                 options: AffinityOptions) -> None:
        # No instance is a generator of load.
        self._classes = tuple(one for one in profiles.uses
                              if not one.startswith(GENERATOR_PREFIX))
        self._model = SlowdownModel(profiles)
        self._table = OccupantTable(self._model)
        self._weight = options.primary_weight

    def predict_guests(self, view: AffinityView, decision: AffinityDecision
                       ) -> dict[str, float]:
        """Predict the slow-down of the running guests, by their names.

        That of a guest is that of its slowest vCPU.

        :param decision: the last one of any driver, for this view or an
            earlier one
        """
        fixed, _ = primary_loads(view, self._model, self._weight)
        neighbours = _Neighbours(self._placed(view, decision), {
            cpu: one.workload_class for cpu, one in fixed.items()}, view)
        found: dict[str, float] = {}
        for guest in view.guests:
            name = self._model.class_name(guest.workload_class)
            values = [self._slowdown(name, neighbours.on_cpu(cpu, name),
                                     neighbours.beside(cpu))
                      for cpu in _homes(guest, decision, view.topology.cpus)]
            if values:
                found[guest.name] = max(values)
        return found

    def predict_arrivals(self, view: AffinityView, decision: AffinityDecision,
                         usable: Cpus) -> dict[str, Arrival]:
        """Predict one more running vCPU of each known class.

        Its CPU is the one where the least performance is lost, its own and
        that of others together.

        :param decision: the last one of any driver, for this view or an
            earlier one
        :param usable: CPUs on which a new secondary may run
        :returns: a prediction for each class of the profiles but generators
            of load; nothing if a new secondary may run nowhere
        """
        fixed, floating = primary_loads(view, self._model, self._weight)
        classes = self._placed(view, decision)
        neighbours = _Neighbours(classes, {
            cpu: one.workload_class for cpu, one in fixed.items()}, view)
        if len(self._table) > _MOST_OCCUPANTS:
            self._table = OccupantTable(self._model)
        assignment = Assignment(self._table, view.topology.cache_domains,
                                fixed, floating)
        assignment.apply([(name, None, cpu) for cpu, some in classes.items()
                          for name in some])
        alike = {assignment.state(cpu): cpu for cpu in _candidates(
            view, decision, usable & view.topology.cpus)}
        found: dict[str, Arrival] = {}
        for name in self._classes if alike else ():
            gain, cpu = max((assignment.gain([(name, None, cpu)]), cpu)
                            for cpu in alike.values())
            slowdown = self._slowdown(name, neighbours.on_cpu(cpu),
                                      neighbours.beside(cpu))
            found[name] = Arrival(slowdown,
                                  max(0.0, -gain - math.log(slowdown)))
        return found

    def _placed(self, view: AffinityView, decision: AffinityDecision
                ) -> dict[int, list[str]]:
        """Return the classes of the running vCPUs on each CPU."""
        found: dict[int, list[str]] = {}
        for guest in view.guests:
            for cpu in _homes(guest, decision, view.topology.cpus):
                found.setdefault(cpu, []).append(
                    self._model.class_name(guest.workload_class))
        return found

    def _slowdown(self, name: str, on_cpu: Sequence[str],
                  beside: Collection[str]) -> float:
        return (self._model.on_cpu(tuple(sorted((*on_cpu, name))))[name]
                * self._model.beside(name, beside))


class _Neighbours:
    """Classes beside a vCPU: on its CPU, and elsewhere in its cache.

    :param classes: those of the running vCPUs on each CPU
    :param primaries: class of the primaries on each CPU
    """

    def __init__(self, classes: Mapping[int, Sequence[str]],
                 primaries: Mapping[int, str], view: AffinityView) -> None:
        self._classes = classes
        self._primaries = primaries
        self._caches = view.topology.cache_domains

    def on_cpu(self, cpu: int, own: str | None = None) -> list[str]:
        """Return the classes on a CPU, without one vCPU of its own."""
        found = list(self._classes.get(cpu, ()))
        if own is not None:
            found.remove(own)
        return found

    def beside(self, cpu: int) -> set[str]:
        """Return the classes of the cache, guests on the CPU left out."""
        cache = next(part for part in self._caches if cpu in part)
        return {*(one for other in cache - {cpu}
                  for one in self._classes.get(other, ())),
                *(self._primaries[other] for other in cache
                  if other in self._primaries)}


def _homes(guest: AffinityGuest, decision: AffinityDecision, cpus: Cpus
           ) -> list[int]:
    """Return the CPU of each vCPU of a guest that runs, as far as known."""
    if guest.name in decision.idle:
        return []
    homes = decision.homes.get(guest.name) or tuple(
        min(some) for some in decision.sets.get(guest.name, ()))
    return [cpu for cpu in homes if cpu in cpus]


def _candidates(view: AffinityView, decision: AffinityDecision, usable: Cpus
                ) -> Cpus:
    """Return the CPUs that a newcomer may get.

    The driver ``pool`` alone has homes.  Its pool does not grow with a
    newcomer if the controller leaves no more than the guests can use already.
    """
    running = sum(one.vcpus for one in view.guests
                  if one.name not in decision.idle)
    if decision.homes and view.share_cpus <= running:
        return decision.pool & usable or usable
    return usable
