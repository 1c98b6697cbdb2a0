# SPDX-License-Identifier: Apache-2.0

"""Run of guests on the CPUs of one host, in steps of 30 seconds.

Guests that may use several CPUs are put on one of them in each step: in random
order on the CPU with the fewest guests, as a kernel that balances its load.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import math
import random
import statistics
import typing

from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
    AffinityGuest,
    AffinityView,
    CpuAffinityDriver,
)
from secondary_scheduler.cpu_affinity.prediction import SlowdownEstimates
from secondary_scheduler.model.topology import Cpus, Topology
from secondary_scheduler.simulation.affinity.scenarios import (
    DYNAMIC_S,
    ScenarioGuest,
)
from secondary_scheduler.simulation.affinity.truths import slowdowns

STEP_S = 30.0
#: A run that takes longer has a guest that makes no progress.
_MOST_S = 100 * 86_400.0


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """Driver, and the time between two of its decisions.

    :param driver: None leaves all guests to the kernel
    :param period_s: seconds between decisions; 0 decides when a guest comes,
        goes, wakes or becomes idle.  With a period, a guest that came or woke
        since the last decision is where it was, or anywhere
    :param share_cpus: CPUs that the driver may use for the active guests;
        without it all
    """

    driver: CpuAffinityDriver | None
    period_s: float = 60.0
    share_cpus: Callable[[AffinityView], float] | None = None


@dataclasses.dataclass
class _Present:
    """Progress of a guest on the host; slow-downs are means over time."""

    guest: ScenarioGuest
    done_s: float = 0.0
    active_s: float = 0.0
    slowdown_s: float = 0.0
    ended_s: float = math.inf


class GuestOutcome(typing.NamedTuple):
    """Performance of a guest relative to a host of its own, from 0 to 1."""

    guest: ScenarioGuest
    performance: float
    ended_s: float


@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """Result of a run.

    :param guests: outcome of each guest
    :param core_s: seconds of CPUs with running guests
    :param kept_core_s: the same if a CPU that was used once is kept until the
        last guest ends
    :param seconds: length of the run
    :param moves: changes of the sets of a running guest that was there before
    """

    guests: tuple[GuestOutcome, ...]
    core_s: float
    kept_core_s: float
    seconds: float
    moves: int

    @property
    def performance(self) -> float:
        """Mean performance, from 0 to 1 (Kaffes 2015, section 5.3)."""
        return statistics.fmean(one.performance for one in self.guests)

    @property
    def slowest(self) -> float:
        """Performance of the slowest guest."""
        return min(one.performance for one in self.guests)


class HostRun:
    """Guests of a scenario on one host."""

    def __init__(self, guests: Sequence[ScenarioGuest], algorithm: Algorithm,
                 truth: SlowdownEstimates, topology: Topology,
                 seed: int) -> None:
        self._guests = guests
        self._algorithm = algorithm
        self._truth = truth
        self._draw = random.Random(f'kernel {seed}')
        self._decision: AffinityDecision | None = None
        self._topology = topology
        self._cpus = topology.cpus
        self._core_s = self._kept_s = 0.0
        self._used: set[int] = set()
        self._moves = 0
        #: Guests that were active in the last step.
        self._were_active: set[str] = set()

    def run(self) -> RunOutcome:
        """Run until all guests have ended."""
        progress = [_Present(one) for one in self._guests]
        now_s, dynamic = 0.0, any(one.phases is not None
                                  for one in self._guests)
        while True:
            present = [one for one in progress if one.ended_s == math.inf
                       and one.guest.arrives_s <= now_s]
            if dynamic and now_s >= DYNAMIC_S:
                for one in present:
                    one.ended_s = now_s
            waiting = any(one.ended_s == math.inf for one in progress)
            if not waiting or now_s > _MOST_S:
                break
            self._step(present, now_s)
            now_s += STEP_S
        return RunOutcome(
            tuple(_outcome(one, dynamic) for one in progress),
            self._core_s, self._kept_s, now_s, self._moves)

    def _step(self, present: Sequence[_Present], now_s: float) -> None:
        self._decide(present, now_s)
        active = [one for one in present if one.guest.is_active(now_s)]
        sets = [self._set_of(one) for one in active]
        cpus = spread(self._draw, self._cpus, sets)
        found = slowdowns(
            self._truth, self._topology,
            [one.guest.workload_class for one in active], cpus)
        # A CPU in the set of a guest is not free, unless all are.
        used = set(cpus).union(*(one for one in sets if one != self._cpus))
        self._core_s += len(used) * STEP_S
        self._used |= used
        self._kept_s += len(self._used) * STEP_S
        for one, slowdown in zip(active, found, strict=True):
            one.active_s += STEP_S
            speed = 1 / slowdown
            one.slowdown_s += STEP_S * (
                speed if one.guest.phases is not None else slowdown)
            one.done_s += STEP_S * (speed if one.guest.is_batch else 1.0)
            if one.done_s >= one.guest.length_s and one.guest.phases is None:
                late_s = (one.done_s - one.guest.length_s) * (
                    slowdown if one.guest.is_batch else 1.0)
                one.ended_s = now_s + STEP_S - late_s
        self._were_active = {one.guest.name for one in active}

    def _decide(self, present: Sequence[_Present], now_s: float) -> None:
        driver = self._algorithm.driver
        if driver is None:
            return
        period_s = self._algorithm.period_s
        if period_s and now_s % period_s:
            return
        known = self._decision.sets if self._decision else {}
        guests = tuple(AffinityGuest(
            one.guest.name, one.guest.workload_class, self._cpus,
            100.0 * self._looks_active(one.guest, now_s, one.guest.name
                                       in known))
            for one in present)
        if not guests:
            return
        view = AffinityView(now_s, self._topology, guests)
        if self._algorithm.share_cpus:
            view = dataclasses.replace(
                view, share_cpus=self._algorithm.share_cpus(view))
        decision = driver.decide(view, self._decision)
        self._moves += sum(known.get(name, sets) != sets
                           for name, sets in decision.sets.items())
        self._decision = decision

    def _looks_active(self, guest: ScenarioGuest, now_s: float, known: bool
                      ) -> bool:
        """Return whether a driver sees that a guest works.

        With a period a driver has the use of the last window.
        """
        if self._algorithm.period_s and known:
            return guest.name in self._were_active
        return guest.is_active(now_s)

    def _set_of(self, one: _Present) -> Cpus:
        sets = self._decision.sets if self._decision else {}
        return sets.get(one.guest.name, (self._cpus,))[0]


def spread(draw: random.Random, cpus: Iterable[int], sets: Sequence[Cpus]
           ) -> list[int]:
    """Return a CPU for each guest, as a kernel that balances its load.

    Guests are put in random order on the CPU of their set with the fewest
    guests, those with the fewest CPUs first.
    """
    found = [-1] * len(sets)
    counts = dict.fromkeys(cpus, 0)
    order = list(range(len(sets)))
    draw.shuffle(order)
    order.sort(key=lambda place: len(sets[place]))
    for place in order:
        least = min(counts[cpu] for cpu in sets[place])
        found[place] = draw.choice(sorted(
            cpu for cpu in sets[place] if counts[cpu] == least))
        counts[found[place]] += 1
    return found


def _outcome(one: _Present, dynamic: bool) -> GuestOutcome:
    guest = one.guest
    if dynamic:
        performance = (one.slowdown_s / one.active_s if one.active_s else 1.0)
    elif guest.is_batch:
        performance = guest.length_s / (one.ended_s - guest.arrives_s)
    else:
        performance = one.active_s / one.slowdown_s
    return GuestOutcome(guest, performance, one.ended_s)
