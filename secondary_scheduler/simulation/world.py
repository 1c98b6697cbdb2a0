# SPDX-License-Identifier: Apache-2.0

"""The state of the simulated clusters, as arrays.

C clusters of h hosts and n instances each are rows of arrays of H = C h hosts
and N = C n instances; cluster c has the hosts from c h on and the instances
from c n on.  Shares are in percent of a host, work in core-seconds.
"""

from collections.abc import Sequence
import dataclasses
import functools

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NOWHERE = -1

#: Compiles loops that would need many passes of NumPy.
compiled = numba.njit

#: Compiles into the caller; for short functions called for each host.
inlined = numba.njit(inline='always')


class Status:
    """State of an instance since the end of its last operation.

    An absent instance has not arrived yet, or is gone for good.  The values
    are plain integers, since NumPy compares arrays with enums slowly.
    """

    ABSENT = -1
    STOPPED = 0
    SUSPENDED = 1
    RUNNING = 2


@dataclasses.dataclass(frozen=True)
class Shape:
    """Size of all clusters of a run, and defaults of their instances.

    ``leases`` lists the sizes of the leases of a cluster.  An instance has
    ``vcpus`` and can use all of them, unless it is of ``Arrivals``.  Its boot
    uses ``boot`` percent of the host, and it sends ``net`` percent of its
    host's link.  A result is ``unit`` core-seconds.  ``memory_mb`` is the
    memory for instances on each host.
    """

    clusters: int
    hosts: int
    cores: int
    leases: tuple[int, ...]
    vcpus: int = 1
    boot: float = 20.0
    unit: float = 150.0
    net: float = 0.0
    memory_mb: int = 10**6

    @functools.cached_property
    def instances(self) -> int:
        """Number of instances in each cluster."""
        return sum(self.leases)

    def percent(self, cores: float | Floats) -> Floats:
        """Return a number of cores in percent of a host."""
        return np.minimum(100.0, 100.0 * np.asarray(cores) / self.cores)


class World:
    """State of hosts, instances and leases."""

    def __init__(self, shape: Shape, seeds: Sequence[Sequence[int]]) -> None:
        """Queue all leases, in an order drawn by the seed."""
        self.shape = shape
        clusters, hosts = shape.clusters, shape.clusters * shape.hosts
        count = clusters * shape.instances
        self.random = [np.random.default_rng(seed) for seed in seeds]
        self.cluster_of_host = np.repeat(np.arange(clusters), shape.hosts)
        self.cluster_of = np.repeat(np.arange(clusters), shape.instances)
        #: Number of the lease of each instance, in the order of the queue.
        self.lease_of = np.concatenate([self._leases(c) for c in
                                        range(clusters)]).astype(np.int64)
        self.queued_since = np.zeros((clusters, len(shape.leases)))
        self.status = np.full(count, Status.STOPPED, dtype=np.int8)
        self.host = np.full(count, NOWHERE, dtype=np.int64)
        self.frozen = np.zeros(count, dtype=bool)
        self.frozen_s = np.zeros(count)
        #: Of each instance: its number and that of its lease in the log, the
        #: CPU that it can use and boot with (percent of a host), its vCPUs
        #: and memory, and the work of a result (core-seconds).
        self.number = np.arange(count) % max(1, shape.instances)
        self.lease_number = self.lease_of.copy()
        self.most = np.full(count, shape.percent(shape.vcpus))
        self.boot = np.minimum(shape.boot, self.most)
        self.vcpus = np.full(count, shape.vcpus)
        self.memory_mb = np.zeros(count)
        self.unit = np.full(count, shape.unit)
        self.work = np.zeros(count)         # since the last result
        self.hold_until = np.full(count, -np.inf)       # back-off, remedy
        self.block_until = np.full(hosts, -np.inf)
        #: Hosts that are up, and hosts whose agent is up.
        self.up = np.ones(hosts, dtype=bool)
        self.watched = np.ones(hosts, dtype=bool)
        #: Seconds left of the operation on each instance.
        self.left = np.full(count, np.inf)
        self.booting = np.zeros(count, dtype=bool)
        #: Instances of operations that wait for others of their plan.
        self.reserved = np.zeros(count, dtype=bool)

    def _leases(self, cluster: int) -> Ints:
        sizes = self.random[cluster].permutation(np.array(self.shape.leases))
        return np.repeat(np.arange(len(sizes)), sizes)

    @property
    def busy(self) -> Bools:
        """Instances with an operation under way, (N,)."""
        return np.isfinite(self.left)

    @property
    def running(self) -> Bools:
        """Instances that can work on their host, (N,)."""
        return self.status == Status.RUNNING

    @property
    def present(self) -> Bools:
        """Instances that exist, on a host or not, (N,)."""
        return self.status != Status.ABSENT

    def name(self, instance: int) -> str:
        """Return the name of an instance in the log."""
        return f'{self.number[instance]:05}'

    def remove(self, instance: int) -> None:
        """Remove an instance."""
        self.status[instance] = Status.ABSENT
        self.host[instance] = NOWHERE
        self.frozen[instance] = self.reserved[instance] = False
        self.work[instance] = 0.0

    def hosts_of(self, cluster: int) -> range:
        """Return the numbers of a cluster's hosts."""
        first = cluster * self.shape.hosts
        return range(first, first + self.shape.hosts)

    def instances_of(self, cluster: int) -> range:
        """Return the numbers of a cluster's instances."""
        first = cluster * self.shape.instances
        return range(first, first + self.shape.instances)

    def members(self, instance: int) -> list[int]:
        """Return the instances of an instance's lease, itself included."""
        those = self.instances_of(int(self.cluster_of[instance]))
        lease = self.lease_of[instance]
        return [one for one in those if self.lease_of[one] == lease]

    def sum_by_host(self, values: npt.NDArray[np.generic],
                    where: Bools) -> Floats:
        """Return the sum of a value of instances on each host, (H,).

        Instances of ``where`` must have a host.
        """
        return _sum_by(self.host, values, where, len(self.block_until))

    def count_by_host(self, where: Bools) -> Floats:
        """Return the number of some instances on each host, (H,)."""
        return self.sum_by_host(where, where)

    def count_by_cluster(self, where: Bools) -> Floats:
        """Return the number of some instances in each cluster, (C,)."""
        return _sum_by(self.cluster_of, where, where, self.shape.clusters)


@compiled
def _sum_by(group: Ints, values: npt.NDArray[np.generic], where: Bools,
            groups: int) -> Floats:
    found = np.zeros(groups)
    for one in range(len(group)):
        if where[one]:
            found[group[one]] += values[one]
    return found
