# SPDX-License-Identifier: Apache-2.0

"""Prediction for one more secondary on a host, by workload class.

Guests are where the last decision has put them; no guest moves for the
newcomer.  So a prediction is cheap, and not too good.  It is about
interference only: the CPU time that primaries leave is not in it.
"""

from collections.abc import Iterable
import math

from secondary_scheduler.cpu_affinity.assignment import Assignment
from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
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


class ArrivalPredictor:
    """Predicts one more vCPU of each class; keeps estimates of the profiles.

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

    def predict(self, view: AffinityView, decision: AffinityDecision,
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
            cache = next(part for part in view.topology.cache_domains
                         if cpu in part)
            slowdown = self._slowdown(name, classes.get(cpu, []), {
                *(one for other in cache - {cpu}
                  for one in classes.get(other, ())),
                *(fixed[other].workload_class for other in cache
                  if other in fixed)})
            found[name] = Arrival(slowdown,
                                  max(0.0, -gain - math.log(slowdown)))
        return found

    def _placed(self, view: AffinityView, decision: AffinityDecision
                ) -> dict[int, list[str]]:
        """Return the classes of the running vCPUs on each CPU."""
        found: dict[int, list[str]] = {}
        for guest in view.guests:
            if guest.name in decision.idle:
                continue
            homes = decision.homes.get(guest.name) or tuple(
                min(cpus) for cpus in decision.sets.get(guest.name, ()))
            for cpu in view.topology.cpus.intersection(homes):
                found.setdefault(cpu, []).extend(homes.count(cpu) * [
                    self._model.class_name(guest.workload_class)])
        return found

    def _slowdown(self, name: str, on_cpu: Iterable[str],
                  beside: Iterable[str]) -> float:
        return (self._model.on_cpu(tuple(sorted((*on_cpu, name))))[name]
                * self._model.beside(name, beside))


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
