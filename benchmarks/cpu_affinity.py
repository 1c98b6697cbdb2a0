# SPDX-License-Identifier: Apache-2.0

"""Cost of the decisions on which CPUs secondaries run.

A host with random guests is given to the driver ``pool`` as the agent does:
first nothing has a CPU, then single guests come, go, become idle and wake.

It prints JSON; README.md says what is in it.
"""

import argparse
from collections.abc import Iterator, Sequence
import dataclasses
import gc
import json
import math
import random
import statistics
import time

from benchmarks import forms
from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
    AffinityGuest,
    AffinityOptions,
    AffinityView,
    PrimaryUse,
)
from secondary_scheduler.cpu_affinity.pool import PoolAffinity
from secondary_scheduler.model.topology import (
    Partition,
    SharedCache,
    Topology,
)
from secondary_scheduler.simulation.affinity import thesis_host, truths

#: Seconds between decisions: no guest has to stay where it is.
PERIOD_S = 100.0
#: Numbers of vCPUs of guests.
SIZES = (1, 1, 1, 1, 2, 2, 4)
EVENTS = ('arrival', 'departure', 'idle', 'wake_up')


def topology(cpus: int, threads: int, cache: int, node: int) -> Topology:
    """Return a host whose siblings are half of the CPUs apart.

    :param threads: CPUs of a core
    :param cache: CPUs that share a cache
    :param node: CPUs of a package, which is a NUMA node
    """
    order = [first + thread * (cpus // threads)
             for first in range(cpus // threads) for thread in range(threads)]

    def parts(size: int) -> Partition:
        return tuple(frozenset(order[at:at + size])
                     for at in range(0, cpus, size))

    packages = parts(node)
    return Topology(parts(threads), tuple(
        SharedCache(3, part) for part in parts(cache)), packages, packages,
        packages)


class Host:
    """Guests and primaries of a host, and the driver that decides for them.

    :param vcpus: of all guests together
    :param primaries: part of the CPUs that primaries have, of which they use
        0 to 60 %
    :param floating: CPUs that primaries use which may run on all CPUs
    """

    def __init__(self, shape: Topology, vcpus: int, primaries: float,
                 floating: float, seed: int) -> None:
        self._draw = random.Random(f'{seed} {vcpus}')
        self._driver = PoolAffinity(thesis_host.PROFILES, AffinityOptions())
        guests: list[AffinityGuest] = []
        while (rest := vcpus - sum(one.vcpus for one in guests)) > 0:
            guests.append(self._new_guest(shape, str(len(guests)), rest))
        everywhere = floating / len(shape.cpus)
        self.view = AffinityView(0.0, shape, tuple(guests), primaries={
            cpu: PrimaryUse(everywhere + (
                self._draw.uniform(0.0, 0.6)
                if self._draw.random() < primaries else 0.0),
                self._draw.choice(thesis_host.CLASSES))
            for cpu in sorted(shape.cpus)}, floating=(
                PrimaryUse(floating / 2, 'HL'),
                PrimaryUse(floating / 2, 'BS')) if floating else ())
        self.decision: AffinityDecision | None = None
        self.moves = 0

    def _new_guest(self, shape: Topology, name: str, most: int
                   ) -> AffinityGuest:
        return AffinityGuest(
            name, self._draw.choice(thesis_host.CLASSES), shape.cpus,
            vcpus=min(most, self._draw.choice(SIZES)))

    def decide(self) -> float:
        """Return the CPU seconds of the next decision."""
        self.view = dataclasses.replace(
            self.view, now_s=self.view.now_s + PERIOD_S)
        gc.collect()
        gc.disable()
        begun = time.process_time()
        found = self._driver.decide(self.view, self.decision)
        spent = time.process_time() - begun
        gc.enable()
        if self.decision is not None:
            self.moves += sum(
                homes != found.homes[name] for name, homes
                in self.decision.homes.items() if name in found.homes)
        self.decision = found
        return spent

    def settle(self, most: int) -> Iterator[float]:
        """Decide until no guest moves any more; yield CPU seconds."""
        for _ in range(most):
            yield self.decide()
            if self.decision and self.decision.settled_for is not None:
                return

    def change(self, event: str) -> None:
        """Let a guest come, go, become idle or wake."""
        guests = list(self.view.guests)
        place = self._draw.randrange(len(guests))
        if event == 'arrival':
            guests.append(self._new_guest(
                self.view.topology, f'at {self.view.now_s}', SIZES[-1]))
        elif event == 'departure':
            del guests[place]
        else:
            for at, one in enumerate(guests):
                if event == 'wake_up' or at == place:
                    guests[at] = dataclasses.replace(
                        one, cpu_pct=100.0 * (event == 'wake_up'))
        self.view = dataclasses.replace(self.view, guests=tuple(guests))

    def performance(self) -> float:
        """Return the geometric mean of the predicted performance of vCPUs.

        Primaries do not count.
        """
        assert self.decision is not None
        classes, cpus = [], []
        for guest in self.view.guests:
            for cpu in self.decision.homes[guest.name]:
                classes.append(str(guest.workload_class))
                cpus.append(cpu)
        found = truths.slowdowns(
            truths.make_truth('t2', thesis_host.PROFILES, 1),
            self.view.topology, classes, cpus)
        return math.exp(-statistics.fmean(map(math.log, found)))


def summary(spent: Sequence[float]) -> dict[str, float]:
    """Return median and maximum of CPU seconds, in milliseconds."""
    return {'median_ms': round(1000 * statistics.median(spent), 2),
            'most_ms': round(1000 * max(spent), 2)}


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Decide for several hosts, and return all figures."""
    shape = topology(options.cpus, options.threads, options.cache,
                     options.node)
    spent: dict[str, list[float]] = {
        'first': [], 'next': [], 'unchanged': [],
        **{name: [] for name in EVENTS}}
    first, settled, moves = [], [], 0
    for seed in range(options.seed, options.seed + options.hosts):
        host = Host(shape, options.vcpus, options.primaries,
                    options.floating, seed)
        spent['first'].append(host.decide())
        first.append(host.performance())
        spent['next'].extend(host.settle(options.rounds))
        settled.append(host.performance())
        for _ in range(options.repeat):
            for event in EVENTS:
                host.change(event)
                spent[event].append(host.decide())
                list(host.settle(options.rounds))
                spent['unchanged'].append(host.decide())
        moves += host.moves
    return {'topology': shape.describe(), 'vcpus': options.vcpus,
            'performance_first': round(statistics.fmean(first), 4),
            'performance_settled': round(statistics.fmean(settled), 4),
            'moves': moves, **{name: summary(some)
                               for name, some in spent.items()}}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--cpus', type=int, default=128)
    parser.add_argument('--threads', type=int, default=2,
                        help='CPUs of a core (default %(default)s)')
    parser.add_argument('--cache', type=int, default=16,
                        help='CPUs that share a cache (default %(default)s)')
    parser.add_argument('--node', type=int, default=64,
                        help='CPUs of a package (default %(default)s)')
    parser.add_argument('--vcpus', type=int, default=200,
                        help='of all guests (default %(default)s)')
    parser.add_argument('--primaries', type=float, default=0.25,
                        help='part of the CPUs that primaries have (default '
                        '%(default)s)')
    parser.add_argument('--floating', type=float, default=10.0,
                        help='CPUs that floating primaries use (default '
                        '%(default)s)')
    parser.add_argument('--hosts', type=int, default=5)
    parser.add_argument('--repeat', type=int, default=5,
                        help='events of each kind on each host')
    parser.add_argument('--rounds', type=int, default=40,
                        help='decisions until no guest moves, at most')
    parser.add_argument('--seed', type=int, default=1)
    forms.add_quick(parser, cpus=16, cache=8, node=16, vcpus=24, hosts=1,
                    repeat=1, rounds=5)
    return parser.parse_args()


if __name__ == '__main__':
    print(json.dumps(measure(parse()), indent=1))
