# SPDX-License-Identifier: Apache-2.0

"""Constant loads in the simulators, without throttle and back-off.

``guided`` decides in the simulator of hosts and operations.  A round there is
a time in which operations preempt, and one after it in which they return.
``context-switch`` decides in the simulator of rounds, without durations.
"""

from collections import Counter
from collections.abc import Iterator
import dataclasses
import json
import math
import typing

import numpy as np

from secondary_scheduler.decisions.switch_model import SwitchModelBuilder
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.lease_order import PRIORITY
from secondary_scheduler.plans import model_documents
from secondary_scheduler.plans.operations import (
    PREEMPTIONS,
    RETURNS,
    OperationKind,
)
from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.engine import Simulation, Workload
from secondary_scheduler.simulation.record import Recorder
from secondary_scheduler.simulation.switches.rounds import RoundTrip
from secondary_scheduler.simulation.world import Shape

#: No limit by an agent, no floor, no time in which hosts are left alone.
UNLIMITED = dataclasses.replace(
    profiles.OURS, local_control=False, local_trigger=False,
    patience_s=0.0, backoff_s=0.0)
#: Simulated seconds, and those in which operations may begin.
SECONDS, BUSY_S = 400, 200
#: Clusters of a run: hosts and their cores, vCPUs of an instance, and the
#: sizes of leases.
CLUSTERS = ((3, 8, 2, (1, 1, 1, 2, 2)), (4, 8, 1, (1,) * 8),
            (2, 4, 1, (1, 1, 2)), (5, 16, 4, (1, 2, 2, 3, 4)))
_POLICIES = ('cpu <= 80% for 10s',)


class _Events(Recorder):
    """Keeps the operations of each cluster."""

    def __init__(self, shape: Shape, titles: list[str]) -> None:
        super().__init__(shape, titles)
        self.operations: list[list[dict[str, typing.Any]]] = [
            [] for _one in titles]

    def event(self, cluster: int, event: str, **fields: typing.Any) -> None:
        """Note an event of a cluster."""
        super().event(cluster, event, **fields)
        if event == 'operation' and fields['issued'] > 0:
            self.operations[cluster].append(fields)


class Course(typing.NamedTuple):
    """Operations by round of one model, and the faults that were found."""

    operations: list[int]
    late: list[str]
    again: list[str]


def simulate_guided(models: int, seed: int) -> Iterator[Course]:
    """Yield the courses of clusters whose primaries have constant loads.

    No host is given more than it has, since a full host hides what its
    instances would use.  Links have no policy: operations load them.
    """
    for number, (hosts, cores, vcpus, leases) in enumerate(CLUSTERS):
        count = len(range(number, models, len(CLUSTERS)))
        if not count:
            continue
        random = np.random.default_rng((seed, number))
        shape = Shape(count, hosts, cores, leases, vcpus=vcpus)
        load = random.uniform(0, 100 - shape.percent(vcpus) * math.ceil(
            shape.instances / hosts), count * hosts)
        record = _Events(shape, [str(one) for one in range(count)])
        Simulation(Workload(
            shape, _POLICIES, np.tile(load, (2 * SECONDS, 1)),
            tuple((seed, number, one) for one in range(count)),
            placed=True), UNLIMITED, record).run()
        yield from map(_course, record.operations)


def _course(operations: list[dict[str, typing.Any]]) -> Course:
    """Return the rounds of a simulated cluster."""
    counts, late, again = [0], [], []
    returned: set[str] = set()
    returning = False
    for one in sorted(operations, key=lambda one: float(one['issued'])):
        kind, name = OperationKind(one['kind']), str(one['instance'])
        if kind in RETURNS:
            returned.add(name)
        if kind in PREEMPTIONS and name in returned:
            again.append(name)
        if returning and one['by'] == 'reconfigurator':
            counts.append(0)
        returning = one['by'] == 'provisioner'
        counts[-1] += 1
        if len(counts) > 2 or one['issued'] > BUSY_S:
            late.append(f'{kind} {name} at {one["issued"]} s')
    return Course(counts, late, again)


def simulate_switches(models: typing.Iterable[dict[str, typing.Any]],
                      rounds: int) -> Iterator[Course]:
    """Yield the courses of model documents by rounds of a context switch."""
    for model in models:
        cluster = model_documents.read_model(json.dumps(model))
        built = SwitchModelBuilder(
            cluster, cluster.hosts, LoadLimits(), PRIORITY).build()
        points = Counter({one.name: one.points for one in built.queue})
        trip = RoundTrip(built.configuration, points.__getitem__,
                         headroom=0.1)
        moves = [trip.decide() for _round in range(rounds)]
        returned: set[str] = set()
        again = []
        for one in (move for those in moves for move in those):
            if one.kind is OperationKind.RESUME:
                returned.add(one.member)
            if one.kind is OperationKind.SUSPEND and one.member in returned:
                again.append(one.member)
        yield Course([len(those) for those in moves], [
            f'{move.kind} {move.member}'
            for those in moves[2:] for move in those], again)
