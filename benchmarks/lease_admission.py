# SPDX-License-Identifier: Apache-2.0

"""Time in which a large site answers a request for a lease.

A table of 50,000 slots on 10,000 hosts: leases that run, wait, and are
promised hosts for the next days.  Each request is answered and then undone,
so that all meet the same table.  README.md says what is in a row.
"""

import argparse
import gc
import json
import resource
import sys
import time
import typing

import numpy as np

from benchmarks import forms
from secondary_scheduler.leases.scheduling.admission import (
    AdmissionControl,
)
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import (
    Lease,
    NodeSet,
    Terms,
)
from secondary_scheduler.leases.scheduling.planned_starts import (
    PlannedStarts,
)
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.pricing import Constant
from secondary_scheduler.leases.scheduling.queue import QueuedLease
from secondary_scheduler.leases.scheduling.scheduler import Scheduler
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.model.lease_states import LeaseState

HOSTS, SLOTS = 10_000, 50_000
#: A host holds four of the smallest VMs, or one of the largest.
CAPACITY = (400, 4096)
NEEDS = ((100, 1024), (200, 2048), (400, 1024), (400, 4096))
NODES_MOST = 500
HOUR = 3600
DURATION = (HOUR, 24 * HOUR)
#: Reservations have from a minute to two weeks of notice, and leases with a
#: deadline may start on the first day: they are what it is full of.
NOTICE, FIRST = (60, 14 * 24 * HOUR), 24 * HOUR
SLACK = (1.2, 4.0)
WAITING = 500
#: All is offered at a rate of 1: who pays at most so much is told whether
#: there is room, and leaves no trace.
REFUSED = 0.5
#: What is told of a distribution.
SHARES = {'median': 0.5, 'p99': 0.99, 'max': 1.0}
GOALS = {LeaseKind.RESERVATION: {'median': 5.0, 'p99': 20.0},
         LeaseKind.BEST_EFFORT: {'median': 20.0, 'p99': 200.0},
         LeaseKind.DEADLINE: {'median': 1000.0, 'p99': 5000.0}}


class Counted(PlannedStarts):
    """Counts the leases with deadlines that are re-planned."""

    requeued = 0

    def requeue(self, lease: Lease) -> QueuedLease:
        self.requeued += lease.terms.kind is LeaseKind.DEADLINE
        return super().requeue(lease)


class Answers(AdmissionControl):
    """Plans the start of best-effort leases with a highest rate."""

    def _accept(self, lease: Lease) -> bool:
        if lease.terms.kind is LeaseKind.BEST_EFFORT and lease.terms.max_rate:
            return self._planner.find_earliest_booking(
                lease.work, self._state.now) is not None
        return super()._accept(lease)


class Asked(Scheduler):
    """A scheduler that answers requests, and counts re-planned leases."""

    def __init__(self, site: Site) -> None:
        settings = Settings(pricing=Constant(1.0))
        super().__init__(site, settings)
        self.counted = Counted(settings, self._state, self._planner)
        self._admission = Answers(
            settings, self._state, self._planner, self.counted)

    def of(self, kind: LeaseKind) -> dict[str, int]:
        """Return leases of a kind, and the slots they hold."""
        bookings = [one.booking for one in self._state.booked.values()
                    if one.terms.kind is kind]
        return {'leases': len(bookings),
                'slots': sum(len(one.slot.hosts) for one in bookings if one)}


class Requests:
    """Draws leases."""

    def __init__(self, hosts: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._most = max(NODES_MOST * hosts // HOSTS, 1)

    def draw(self, kind: LeaseKind, asked: bool = False) -> Lease:
        """Return a lease, or one that there is only to be an answer for.

        As many have 1 to 2 nodes as 100 to 200; so are durations and notices.
        """
        rng = self._rng
        number = int(np.exp(rng.uniform(0, np.log(self._most + 1))))
        duration = int(np.exp(rng.uniform(*np.log(DURATION))))
        start = deadline = None
        if kind is LeaseKind.RESERVATION:
            start = int(np.exp(rng.uniform(*np.log(NOTICE))))
        if kind is LeaseKind.DEADLINE:
            start = 0 if asked else int(rng.integers(FIRST))
            deadline = start + int(duration * rng.uniform(*SLACK))
        return Lease(f'{kind}', Terms(
            (NodeSet(number, NEEDS[rng.integers(len(NEEDS))]),), duration,
            start=start, deadline=deadline,
            preemptible=kind is not LeaseKind.RESERVATION,
            max_rate=REFUSED if asked else None), 0)


def filled(hosts: int, slots: int, waiting: int, seed: int) -> Asked:
    """Return a scheduler whose table holds so many slots.

    So many leases wait, and as many have deadlines.
    """
    scheduler = Asked(Site(('CPU', 'Memory'), np.tile(
        np.array(CAPACITY, dtype=np.int64), (hosts, 1))))
    requests = Requests(hosts, seed)

    def submit(kind: LeaseKind) -> None:
        scheduler.submit(requests.draw(kind))
        scheduler.fill()

    def held() -> int:
        return sum(scheduler.of(kind)['slots'] for kind in LeaseKind)

    while len(scheduler.queue) < waiting:
        submit(LeaseKind.BEST_EFFORT)
    while scheduler.of(LeaseKind.DEADLINE)['leases'] < waiting:
        submit(LeaseKind.DEADLINE)
    while held() < slots:
        submit(LeaseKind.RESERVATION)
    return scheduler


def answers(scheduler: Asked, requests: Requests, kind: LeaseKind, number: int
            ) -> dict[str, typing.Any]:
    """Return how long answers take, as distributions in ms.

    With deadlines, only of those for which others were planned anew.
    """
    spent = []
    accepted = most = 0
    gc.collect()
    while len(spent) < number:
        lease = requests.draw(kind, asked=True)
        scheduler.counted.requeued = 0
        begun, cpu = time.perf_counter(), time.process_time()
        scheduler.submit(lease)
        took = time.perf_counter() - begun, time.process_time() - cpu
        anew = scheduler.counted.requeued
        if kind is not LeaseKind.DEADLINE or anew:
            spent.append(took)
            accepted += lease.state is LeaseState.REJECTED_BY_USER
            most = max(most, anew)
    return {'kind': kind, 'n': number, 'accepted': accepted,
            'planned_anew_max': most, **{
                f'{name}_ms': {label: round(float(np.quantile(
                    values, share)) * 1e3, 2)
                    for label, share in SHARES.items()}
                for name, values in zip(('wall', 'cpu'),
                                        np.array(spent).T, strict=True)}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--hosts', type=int, default=HOSTS)
    parser.add_argument('--slots', type=int, default=SLOTS)
    parser.add_argument('--waiting', type=int, default=WAITING, metavar='N',
                        help='leases that wait, and as many with deadlines '
                        '(default %(default)s)')
    parser.add_argument('--number', type=int, default=1000,
                        help='requests of each kind (default %(default)s); a '
                        'tenth of that with deadlines')
    parser.add_argument('--seed', type=int, default=1)
    forms.add_quick(parser, hosts=100, slots=500, waiting=20, number=20)
    options = parser.parse_args()
    begun = time.process_time()
    scheduler = filled(options.hosts, options.slots, options.waiting,
                       options.seed)
    print(json.dumps({
        'hosts': options.hosts, 'seed': options.seed,
        **{kind: scheduler.of(kind) for kind in GOALS},
        'waiting': len(scheduler.queue),
        'cpu_s': round(time.process_time() - begun, 1)}), flush=True)
    requests = Requests(options.hosts, options.seed + 1)
    missed = False
    for kind, goal in GOALS.items():
        row = answers(scheduler, requests, kind, max(
            options.number // (10 if kind is LeaseKind.DEADLINE else 1), 1))
        missed |= any(row['cpu_ms'][name] > most
                      for name, most in goal.items())
        print(json.dumps(row | {'goal_ms': goal}), flush=True)
    print(json.dumps({'rss_mib': round(resource.getrusage(
        resource.RUSAGE_SELF).ru_maxrss / 1024)}))
    return 1 if missed else 0


if __name__ == '__main__':
    sys.exit(main())
