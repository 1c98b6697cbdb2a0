# SPDX-License-Identifier: Apache-2.0

"""A primary beside secondaries on the CPUs of one host.

The threads of the primary float over all CPUs.  Each second, a thread that has
work takes an idle CPU, on the socket where it was if there is one, or else the
CPU of a secondary, which it wins by its weight.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import random
import typing

from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
    AffinityGuest,
    AffinityView,
    CpuAffinityDriver,
    PrimaryUse,
)
from secondary_scheduler.cpu_affinity.prediction import (
    SlowdownModel,
    max_min_shares,
)
from secondary_scheduler.cpu_affinity.workload_profiles import (
    WorkloadProfiles,
)
from secondary_scheduler.model.topology import Cpus, Topology
from secondary_scheduler.simulation.affinity.run import spread

#: Seconds of a run, between two decisions, and between two balancings.
RUN_S, DECISION_S, BALANCE_S = 600, 60, 30
#: Threads of the primary, on a host with as many CPUs.
THREADS = 4
#: Class of the primary as a victim of secondaries, and as their neighbour.
VICTIM, NEIGHBOUR = 'HL', 'MS'


class Harm(typing.NamedTuple):
    """Result of a run.

    :param loss: part of its speed that the primary loses while it works
    :param work: work of all secondaries, in seconds of a guest alone
    """

    loss: float
    work: float


@dataclasses.dataclass
class PrimaryRun:
    """Primary and secondaries under a limit on the use of the host.

    :param classes: class of each secondary
    :param load: part of the time for which a thread has work
    :param threshold: largest use of all CPUs, as a part of them
    :param weight: CPU weight of a secondary beside the primary
    """

    profiles: WorkloadProfiles
    topology: Topology
    classes: Sequence[str]
    load: float
    seed: int
    threshold: float = 0.9
    weight: float = 0.01

    def __post_init__(self) -> None:
        self._model = SlowdownModel(self.profiles)
        self._cpus = sorted(self.topology.cpus)
        self._domain = {cpu: number for number, part in enumerate(
            self.topology.cache_domains) for cpu in part}
        self._threads = min(THREADS, len(self._cpus))
        self._share = max(0.0, self.threshold * len(self._cpus)
                          - self._threads * self.load)

    def run(self, driver: CpuAffinityDriver | None) -> Harm:
        """Run with a driver; None leaves all guests to the kernel.

        The same draws decide with each driver when threads and guests have
        work.
        """
        works = random.Random(f'work {self.seed} {self.load}')
        kernel = random.Random(f'kernel {self.seed}')
        sets: list[Cpus] = [self.topology.cpus] * len(self.classes)
        decision: AffinityDecision | None = None
        seen = dict.fromkeys(self._cpus, 0)
        lost = busy = work = 0.0
        threads = [kernel.choice(self._cpus) for _ in range(self._threads)]
        for second in range(RUN_S):
            if driver is not None and second % DECISION_S == 0:
                decision = driver.decide(self._view(second, seen), decision)
                sets = [decision.sets[str(number)][0]
                        for number in range(len(self.classes))]
                seen = dict.fromkeys(self._cpus, 0)
            if second % BALANCE_S == 0:
                places = spread(kernel, self._cpus, sets)
                shares = self._shares(places)
            active = [works.random() < self.load for _ in range(self._threads)]
            running = self._running(places, shares, [
                works.random() for _ in self._cpus])
            taken = self._place(kernel, threads, active, running)
            for cpu in taken:
                seen[cpu] += 1
                lost += 1 - 1 / self._slowdown(cpu, running)
            busy += len(taken)
            work += self._work(places, running, set(taken))
        return Harm(lost / busy if busy else 0.0, work)

    def _view(self, second: int, seen: Mapping[int, int]) -> AffinityView:
        """Return the state for a driver, with use of the last period."""
        share = self._threads * self.load / len(self._cpus)
        uses = {cpu: (seen[cpu] / DECISION_S if second else share)
                for cpu in self._cpus}
        return AffinityView(
            float(second), self.topology, tuple(
                AffinityGuest(str(number), one, self.topology.cpus)
                for number, one in enumerate(self.classes)),
            self._share, {cpu: PrimaryUse(use, VICTIM)
                          for cpu, use in uses.items() if use},
            (PrimaryUse(sum(uses.values()), VICTIM),))

    def _shares(self, places: Sequence[int]) -> list[float]:
        """Return the CPU time of each guest, limited together.

        The limit of all guests is raised until they use the share of the
        host, as the usage controller does.
        """
        low, high = 0.0, 1.0
        for _ in range(20):
            limit = (low + high) / 2
            if sum(self._limited(places, limit)) > self._share:
                high = limit
            else:
                low = limit
        return self._limited(places, low if low < 0.999 else 1.0)

    def _limited(self, places: Sequence[int], limit: float) -> list[float]:
        found = [0.0] * len(places)
        for cpu in set(places):
            some = [one for one, place in enumerate(places) if place == cpu]
            uses = [min(limit, self._model.use(self.classes[one]))
                    for one in some]
            for one, share in zip(some, max_min_shares(uses, 1.0),
                                  strict=True):
                found[one] = share
        return found

    def _running(self, places: Sequence[int], shares: Sequence[float],
                 draws: Sequence[float]) -> dict[int, int]:
        """Return the guest that runs on each busy CPU.

        :param draws: a number from 0 to 1 for each CPU
        """
        chances = dict(zip(self._cpus, draws, strict=True))
        found: dict[int, int] = {}
        for guest, (cpu, share) in enumerate(zip(places, shares,
                                                 strict=True)):
            if cpu not in found:
                chances[cpu] -= share
                if chances[cpu] < 0:
                    found[cpu] = guest
        return found

    def _place(self, kernel: random.Random, threads: list[int],
               active: Sequence[bool], running: Mapping[int, int]
               ) -> list[int]:
        """Return the CPUs of the threads with work; update ``threads``."""
        taken: list[int] = []
        for number, works in enumerate(active):
            if not works:
                continue
            free = [cpu for cpu in self._cpus if cpu not in taken]
            idle = [cpu for cpu in free if cpu not in running]
            near = [cpu for cpu in idle if self._domain[cpu]
                    == self._domain[threads[number]]]
            threads[number] = (
                threads[number] if threads[number] in idle
                else kernel.choice(near or idle or free))
            taken.append(threads[number])
        return taken

    def _slowdown(self, cpu: int, running: Mapping[int, int]) -> float:
        """Return the slow-down of a thread on a CPU."""
        beside = self._model.beside(VICTIM, {
            self.classes[guest] for other, guest in running.items()
            if other != cpu and self._domain[other] == self._domain[cpu]})
        if cpu not in running:
            return beside
        # The secondary on its CPU gets the time of its weight.
        alone = self.profiles.time_sharing.slowdown(
            VICTIM, self.classes[running[cpu]])
        return beside * (1 + self.weight * (alone - 1))

    def _work(self, places: Sequence[int], running: Mapping[int, int],
              taken: set[int]) -> float:
        """Return the work that guests do in a second."""
        together: dict[int, list[int]] = {}
        for guest, cpu in enumerate(places):
            together.setdefault(cpu, []).append(guest)
        total = 0.0
        for cpu, guest in running.items():
            if cpu in taken:
                continue
            victim, domain = self.classes[guest], self._domain[cpu]
            others = {self.classes[one] for other, one in running.items()
                      if other != cpu and other not in taken
                      and self._domain[other] == domain}
            if any(self._domain[other] == domain for other in taken):
                others.add(NEIGHBOUR)
            slowdown = self._model.beside(victim, others)
            for one in together[cpu]:
                if one != guest:
                    # What sharing adds to the loss of time.
                    slowdown *= self._model.residual(victim,
                                                     self.classes[one])
            total += 1 / max(1.0, slowdown)
        return total
