# SPDX-License-Identifier: Apache-2.0

"""Oracle: the best assignment of guests to CPUs that annealing finds.

It knows the true slow-downs, and places all guests anew.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
import math
import random

from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
    AffinityView,
    CpuAffinityDriver,
)
from secondary_scheduler.cpu_affinity.one_cpu import one_cpu_decision
from secondary_scheduler.cpu_affinity.prediction import (
    ClassSet,
    SlowdownEstimates,
)
from secondary_scheduler.model.topology import Topology

#: Changes of the mean performance of one guest that are accepted at the start
#: and at the end.
_HOT, _COLD = 0.3, 0.003


class _State:
    """Guests on CPUs, with the sum of the performance of each cache."""

    def __init__(self, truth: SlowdownEstimates, topology: Topology,
                 classes: Sequence[str], cpus: Sequence[int]) -> None:
        self._truth = truth
        self._classes = classes
        self._domains = [sorted(part) for part in topology.cache_domains]
        self._domain = {cpu: number for number, part in enumerate(
            self._domains) for cpu in part}
        self._known: dict[tuple[ClassSet, ...], float] = {}
        self.cpus = list(cpus)
        self.guests: dict[int, list[int]] = {}
        for guest, cpu in enumerate(cpus):
            self.guests.setdefault(cpu, []).append(guest)
        self.used = Counter(cpus)
        self._sums = {number: self._compute(number)
                      for number in range(len(self._domains))}

    @property
    def total(self) -> float:
        """Sum of the performance of all guests."""
        return sum(self._sums.values())

    def move(self, moves: Mapping[int, int]) -> None:
        """Move guests to CPUs."""
        touched = set()
        for guest, cpu in moves.items():
            old = self.cpus[guest]
            touched |= {self._domain[old], self._domain[cpu]}
            self.guests[old].remove(guest)
            self.guests.setdefault(cpu, []).append(guest)
            self.used[old] -= 1
            self.used[cpu] += 1
            self.cpus[guest] = cpu
        for number in touched:
            self._sums[number] = self._compute(number)

    def _compute(self, number: int) -> float:
        # CPUs of a cache are alike.
        contents = tuple(sorted(
            tuple(sorted(self._classes[guest] for guest in self.guests[cpu]))
            for cpu in self._domains[number] if self.guests.get(cpu)))
        if contents not in self._known:
            beside = _besides(self._truth, contents)
            self._known[contents] = sum(
                1 / (self._truth.on_cpu(some)[one] * beside[place, one])
                for place, some in enumerate(contents) for one in some)
        return self._known[contents]


def _besides(estimates: SlowdownEstimates, contents: Sequence[ClassSet]
             ) -> dict[tuple[int, str], float]:
    """Return the slow-down of each class on each CPU through the cache."""
    places: dict[str, set[int]] = {}
    for place, classes in enumerate(contents):
        for one in classes:
            places.setdefault(one, set()).add(place)
    found: dict[tuple[int, str], float] = {}
    everywhere: dict[str, float] = {}
    alone = {one: next(iter(some)) for one, some in places.items()
             if len(some) == 1}
    for place, classes in enumerate(contents):
        own = [one for one in set(classes) if alone.get(one) == place]
        for victim in set(classes):
            if own:
                found[place, victim] = estimates.beside(
                    victim, places.keys() - set(own))
            else:
                if victim not in everywhere:
                    everywhere[victim] = estimates.beside(
                        victim, places.keys())
                found[place, victim] = everywhere[victim]
    return found


def anneal(truth: SlowdownEstimates, topology: Topology,
           classes: Sequence[str], cpus: Sequence[int], most_cpus: int,
           steps: int, seed: int) -> list[int]:
    """Return the best assignment found.

    :param classes: class of each guest
    :param cpus: CPU of each guest at the start, at most ``most_cpus`` of them
    :param most_cpus: how many CPUs may have guests
    :param steps: assignments that are tried
    """
    draw = random.Random(f'annealing {seed}')
    state = _State(truth, topology, classes, cpus)
    every = sorted(topology.cpus)
    best, best_total = list(state.cpus), state.total
    for step in range(steps):
        heat = _HOT * (_COLD / _HOT) ** (step / steps)
        guest = draw.randrange(len(classes))
        old = state.cpus[guest]
        moves = {guest: draw.choice(every)}
        if len(classes) > 1 and draw.random() < 0.5:
            other = draw.randrange(len(classes))
            moves = {guest: state.cpus[other], other: old}
        undo = {one: state.cpus[one] for one in moves}
        before = state.total
        state.move(moves)
        gain = state.total - before
        used = sum(number > 0 for number in state.used.values())
        if used > most_cpus or (gain < 0 and draw.random() >= math.exp(
                gain / heat)):
            state.move(undo)
        elif state.total > best_total + 1e-12:
            best, best_total = list(state.cpus), state.total
    return best


class OracleAffinity(CpuAffinityDriver):
    """Driver that knows the true slow-downs, and moves guests for nothing.

    :param truth: true slow-downs
    :param steps: assignments that are tried in each decision
    """

    def __init__(self, truth: SlowdownEstimates, steps: int) -> None:
        self._truth = truth
        self._steps = steps

    def decide(self, view: AffinityView,
               previous: AffinityDecision | None) -> AffinityDecision:
        """Place the guests that use CPU; the others may use all CPUs."""
        every = sorted(view.topology.cpus)
        running = [one for one in view.guests if one.cpu_pct > 0]
        idle = frozenset(one.name for one in view.guests) - {
            one.name for one in running}
        if previous is not None and previous.idle == idle and (
                previous.sets.keys() == {one.name for one in view.guests}):
            return previous
        most = min(len(every), max(1, int(view.share_cpus)
                                   if view.share_cpus != math.inf
                                   else len(every)))
        sets = {one.name: (view.topology.cpus,) for one in view.guests}
        if running:
            # The first guests begin alone, the others beside them.
            start = [every[place % most] for place in range(len(running))]
            found = anneal(self._truth, view.topology,
                           [one.workload_class or '' for one in running],
                           start, most, self._steps, len(running))
            sets |= {one.name: (frozenset({cpu}),)
                     for one, cpu in zip(running, found, strict=True)}
        return one_cpu_decision(view, idle, sets, previous)
