"""What hosts can take and instances need, as arrays.

Rows are hosts in the order of their names, columns are resources: first the
four that an allocation holds, then each one that a policy bounds.  It is the
view for questions about all hosts at once; the outlook answers those about a
single host, at any time, and both count use in the same way.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
import itertools

import numpy as np
from numpy.typing import NDArray

from secondary_scheduler.decisions.outlook import Outlook
from secondary_scheduler.estimation.room import RUNNING
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import STATIC, Host, Instance
from secondary_scheduler.model.lazy import Lazy
from secondary_scheduler.plans.operations import Kind

CLAIMS = (vocabulary.VCPU, vocabulary.MEMORY_MB, vocabulary.DISK_GB,
          vocabulary.SLOT)

#: Room for what nothing bounds.
UNBOUNDED = 1e15

#: Hosts that are looked at in one go; each further go looks at twice as many.
FIRST_LOOK = 64

_EPSILON = 1e-6

Vector = NDArray[np.float64]


class Loads:
    """The free room of all hosts, kept up to date by ``move``.

    ``closed`` names hosts to which nothing may move.  ``room`` (H, K) is what
    instances may hold and ``free`` (H, K) what is left of it; ``needs`` has
    the vector (K) of each running instance, by UUID.
    """

    def __init__(self, outlook: Outlook, closed: Collection[str]) -> None:
        cluster = outlook.cluster
        self.outlook = outlook
        self.names = sorted(cluster.hosts)
        self._rows = {name: row for row, name in enumerate(self.names)}
        hosts = [cluster.hosts[name] for name in self.names]
        self.bounded = tuple(sorted({
            policy.resource for host in hosts for policy in host.policies}))
        self.room = np.array([self._room_of(host) for host in hosts])
        # Rounded, so that the order in which it is summed up does not show.
        self.free = np.round(self.room - self._held(), 6)
        self.needs: Lazy[str, Vector] = Lazy(self._need)
        arriving = outlook.overheads.arriving.get(Kind.MIGRATE, {})
        self._arrival = np.array([0.0] * len(CLAIMS) + [
            arriving.get(resource, 0.0) for resource in self.bounded])
        self._unit = np.maximum(self.room, 1.0)
        self._typical = np.median(self._unit, axis=0)
        self._looks = list(self._first_looks([
            row for row, host in enumerate(hosts)
            if cluster.is_open(host.name) and outlook.known(host)
            and host.name not in closed]))

    def _room_of(self, host: Host) -> list[float]:
        bounds = dict.fromkeys(self.bounded, UNBOUNDED)
        for policy in host.policies:
            # What the primary does with a static resource is not ours.
            used = 0.0 if policy.static else host.primary_use(policy.resource)
            bounds[policy.resource] = min(
                bounds[policy.resource],
                self.outlook.limit(policy) - (used or 0.0))
        return [*(float(host.total.get(name, 0) - host.reserved.get(name, 0))
                  for name in CLAIMS), *bounds.values()]

    def _held(self) -> Vector:
        """Return what instances hold of each host's room (H, K).

        Those on their way hold it on both hosts.
        """
        cluster = self.outlook.cluster
        there: list[Instance] = []
        places: list[int] = []
        coming = defaultdict(list)
        for work in cluster.in_flight:
            comer = cluster.instances[work.instance]
            if work.target != comer.host:
                coming[work.target].append(comer)
        for row, name in enumerate(self.names):
            here = [*cluster.by_host.get(name, ()), *coming[name]]
            there += here
            places += [row] * len(here)
        running = np.array([one.state in RUNNING for one in there], float)
        columns = [_column(there, 'cores'), _column(there, 'memory'),
                   np.array([one.disk_gb for one in there], float),
                   _column(there, 'slots')]
        columns += [running * self._uses(there, resource)
                    for resource in self.bounded]
        at = np.array(places, np.intp)
        held: Vector = np.stack([
            np.bincount(at, column, len(self.names)) for column in columns],
            axis=1)
        return held

    def _uses(self, instances: Sequence[Instance], resource: str) -> Vector:
        """Return what each instance uses of a resource while it runs (N)."""
        if resource in STATIC:
            return _column(instances, resource)
        newcomer = self.outlook.overheads.newcomer
        if resource != 'cpu':
            return np.array([one.usage.get(resource, newcomer)
                             for one in instances], float)
        cpu = np.array([one.cpu for one in instances], float)
        use: Vector = np.where(np.isnan(cpu), newcomer, np.maximum(
            cpu, self.outlook.limits.minimum_share))
        return use

    def _need(self, uuid: str) -> Vector:
        one = self.outlook.cluster.instances[uuid]
        usage = self.outlook.guests[uuid].usage
        newcomer = self.outlook.overheads.newcomer
        return np.array([*(one.claims[name] for name in CLAIMS),
                         *(usage.get(resource, newcomer)
                           for resource in self.bounded)], float)

    def _first_looks(self, rows: Sequence[int]) -> Iterator[NDArray[np.intp]]:
        """Yield rows in parts that are the larger, the less room they have."""
        left = (self.free / self._unit)[rows].min(axis=1, initial=1.0)
        order = iter(np.array(rows, np.intp)[np.argsort(-left, kind='stable')])
        size = FIRST_LOOK
        while part := list(itertools.islice(order, size)):
            yield np.array(part, np.intp)
            size *= 2

    def move(self, uuid: str, source: str, target: str) -> None:
        """Move what an instance needs from one host to another."""
        self.free[self._rows[source]] += self.needs[uuid]
        self.free[self._rows[target]] -= self.needs[uuid]

    def _asked(self, uuid: str) -> Vector:
        """Return what must be free where an instance arrives (K).

        A migration may use more than the instance that comes.
        """
        asked: Vector = np.maximum(self.needs[uuid], self._arrival)
        return asked

    def size(self, uuid: str) -> float:
        """Return how large an instance is, in parts of a middling host."""
        return float((self.needs[uuid] / self._typical).sum())

    def fits(self, uuid: str, host: str, without: str) -> bool:
        """Tell whether a host has room for an instance if another leaves."""
        asked = self._asked(uuid)
        free = self.free[self._rows[host]] + self.needs[without]
        return bool(((free - asked >= -_EPSILON) | (asked == 0)).all())

    def takers(self, uuid: str) -> Iterator[str]:
        """Yield the open hosts with room for an instance.

        Those that had most room in the beginning are looked at first, and of
        those looked at together the one is first that has most left.
        """
        asked = self._asked(uuid)
        for look in self._looks:
            left = self.free[look] - asked
            fit = ((left >= -_EPSILON) | (asked == 0)).all(axis=1)
            if fit.any():
                rows = look[fit]
                rest = (left[fit] / self._unit[rows]).min(axis=1)
                for row in rows[np.argsort(-rest, kind='stable')]:
                    yield self.names[row]

    def nearly(self, uuid: str, count: int) -> list[str]:
        """Return open hosts without room, those that lack least first."""
        asked = self._asked(uuid)
        rows = np.concatenate([np.empty(0, np.intp), *self._looks])
        lack = np.maximum(asked - self.free[rows], 0.0) * (asked > 0)
        lacks = (lack / self._unit[rows]).sum(axis=1)
        order = np.argsort(lacks, kind='stable')
        return [self.names[row] for row in rows[order[lacks[order] > 0]][
            :count]]


def _column(instances: Sequence[Instance], resource: str) -> Vector:
    """Return what each instance holds of a static resource (N)."""
    if resource == 'slots':
        return np.ones(len(instances))
    if resource == 'cores':
        return np.array([one.vcpus for one in instances], float)
    return np.array([one.memory_mb for one in instances], float)
