# SPDX-License-Identifier: Apache-2.0

"""Starts without a decision, for the beginning of a run and the oracle."""

import numpy as np

from secondary_scheduler.estimation.durations import (
    ConcurrentDurations,
    DurationInput,
)
from secondary_scheduler.plans.operations import Operation, OperationKind, Plan
from secondary_scheduler.simulation.operations import Operations
from secondary_scheduler.simulation.world import Status


def start_new_instances(operations: Operations, now: float) -> None:
    """Start all new instances at once, each on the host with fewest vCPUs.

    An instance whose memory fits on no host stays stopped.
    """
    world = operations.world
    new = (world.status == Status.STOPPED) & ~world.busy
    for cluster in np.unique(world.cluster_of[new]).tolist():
        hosts, members = world.hosts_of(cluster), world.instances_of(cluster)
        here = slice(members.start, members.stop)
        at = world.host[here] - hosts.start
        held = [np.bincount(at[at >= 0], values[here][at >= 0],
                            minlength=len(hosts))
                for values in (world.vcpus, world.memory_mb)]
        found = []
        for one in np.flatnonzero(new[here]).tolist():
            fits = held[1] + world.memory_mb[here][one] <= (
                world.shape.memory_mb)
            if fits.any():
                host = int(np.where(fits, held[0], np.inf).argmin())
                found.append((one, f'{host:04}'))
                held[0][host] += world.vcpus[here][one]
                held[1][host] += world.memory_mb[here][one]
        durations = ConcurrentDurations().predict_all([
            DurationInput(OperationKind.START, None, host)
            for _one, host in found])
        operations.issue(Plan(tuple(
            Operation(number, OperationKind.START, f'{one:05}', '', None,
                      host, duration_s=duration_s)
            for number, ((one, host), duration_s) in enumerate(
                zip(found, durations, strict=True), 1))),
            cluster, now, 'provisioner')
