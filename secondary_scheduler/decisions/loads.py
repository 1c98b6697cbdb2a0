# SPDX-License-Identifier: Apache-2.0

"""Free room of hosts and needs of instances, as arrays.

Rows are hosts in the order of their names.  Columns are resources: first the
four of an allocation, then each one with a policy.  This module answers
questions about all hosts at once, ``what_if`` those about a single host at
any time.  Both count use in the same way.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
import itertools

import numpy as np
from numpy.typing import NDArray

from secondary_scheduler.decisions.what_if import WhatIf
from secondary_scheduler.estimation.room import RUNNING
from secondary_scheduler.model import units, vocabulary
from secondary_scheduler.model.cluster import Host, Instance
from secondary_scheduler.model.lazy import Lazy
from secondary_scheduler.model.resources import STATIC
from secondary_scheduler.plans.operations import OperationKind

CLAIMS = (vocabulary.VCPU, vocabulary.MEMORY_MB, vocabulary.DISK_GB,
          vocabulary.SLOT)

#: Room in a resource without a bound.
UNBOUNDED = 1e15

#: Hosts in the first batch that is examined; further batches double in size.
FIRST_LOOK = 64

_EPSILON = 1e-6

Vector = NDArray[np.float64]


class Loads:
    """The free room of all hosts, kept up to date by ``move``.

    ``room`` (H, K) is the room for instances, and ``free`` (H, K) the rest of
    it.  Measured resources are in percent of each host, others in their
    units.

    :param closed: hosts that are no targets of migrations
    """

    def __init__(self, preview: WhatIf, closed: Collection[str]) -> None:
        cluster = preview.cluster
        self.preview = preview
        self.names = sorted(cluster.hosts)
        self._rows = {name: row for row, name in enumerate(self.names)}
        hosts = [cluster.hosts[name] for name in self.names]
        self.bounded = tuple(sorted({
            policy.resource for host in hosts for policy in host.policies}))
        self.room = np.array([self._room_of(host) for host in hosts])
        #: Size of one unit on each host (H, K), NaN where it is not known.
        self._scale = np.stack(
            [np.ones(len(hosts))] * len(CLAIMS)
            + [_scale(hosts, resource) for resource in self.bounded], axis=1)
        #: Counted use of an instance if unknown, and least counted use (K).
        self._unknown = np.array([0.0] * len(CLAIMS) + [
            preview.overheads.newcomer * (resource not in STATIC)
            for resource in self.bounded])
        self._least = np.array([0.0] * len(CLAIMS) + [
            preview.limits.minimum_share * (resource == 'cpu')
            for resource in self.bounded])
        # Rounded, so that the order of summation has no effect.
        self.free = np.round(self.room - self._held(), 6)
        self._amounts: Lazy[str, Vector] = Lazy(self._amounts_of)
        arriving = preview.overheads.arriving.get(OperationKind.MIGRATE, {})
        self._arrival = np.array([0.0] * len(CLAIMS) + [
            arriving.get(resource, 0.0) for resource in self.bounded])
        self._unit = np.maximum(self.room, 1.0)
        self._typical = np.median(self._unit, axis=0)
        self._middling = np.array([
            np.median(known) if len(known := one[~np.isnan(one)]) else np.nan
            for one in self._scale.T])
        self._looks = list(self._first_looks([
            row for row, host in enumerate(hosts)
            if cluster.is_open(host.name) and preview.known(host)
            and host.name not in closed]))

    def _room_of(self, host: Host) -> list[float]:
        bounds = dict.fromkeys(self.bounded, UNBOUNDED)
        for policy in host.policies:
            # Policies on static resources do not count the primary.
            used = 0.0 if policy.static else host.primary_use(policy.resource)
            bounds[policy.resource] = min(
                bounds[policy.resource],
                self.preview.limit(policy) - (used or 0.0))
        return [*(float(host.total.get(name, 0) - host.reserved.get(name, 0))
                  for name in CLAIMS), *bounds.values()]

    def _held(self) -> Vector:
        """Return the used part of each host's room (H, K).

        Migrating instances count on both hosts.
        """
        cluster = self.preview.cluster
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
        at = np.array(places, np.intp)
        columns += [running * self._counted(
            _uses(there, resource), self._scale[at, column], column)
            for column, resource in enumerate(self.bounded, len(CLAIMS))]
        held: Vector = np.stack([
            np.bincount(at, column, len(self.names)) for column in columns],
            axis=1)
        return held

    def _counted(self, amounts: Vector, scale: Vector,
                 columns: int | slice = slice(None)) -> Vector:
        """Return counted use of amounts on hosts with a scale."""
        use = amounts * scale
        use = np.where(scale == 1.0, use, np.round(use, units.DIGITS))
        counted: Vector = np.where(
            np.isnan(use), self._unknown[columns],
            np.maximum(use, self._least[columns]))
        return counted

    def _amounts_of(self, uuid: str) -> Vector:
        """Return the claims and the use of an instance, in units (K)."""
        usage = self.preview.guests[uuid].usage
        claims = self.preview.cluster.instances[uuid].claims
        return np.array([*(claims[name] for name in CLAIMS),
                         *map(usage.get, self.bounded)], float)

    def _needs(self, uuid: str, rows: NDArray[np.intp] | int) -> Vector:
        """Return the counted use of an instance on hosts (..., K)."""
        return self._counted(self._amounts[uuid], self._scale[rows])

    def _first_looks(self, rows: Sequence[int]) -> Iterator[NDArray[np.intp]]:
        """Yield batches of rows of growing size, the emptiest hosts first."""
        left = (self.free / self._unit)[rows].min(axis=1, initial=1.0)
        order = iter(np.array(rows, np.intp)[np.argsort(-left, kind='stable')])
        size = FIRST_LOOK
        while part := list(itertools.islice(order, size)):
            yield np.array(part, np.intp)
            size *= 2

    def move(self, uuid: str, source: str, target: str) -> None:
        """Move the use of an instance from one host to another."""
        for host, sign in ((source, 1), (target, -1)):
            row = self._rows[host]
            self.free[row] += sign * self._needs(uuid, row)

    def _asked(self, uuid: str, rows: NDArray[np.intp] | int) -> Vector:
        """Return the room that a migration needs on its target (..., K).

        The migration itself may use more than the instance.
        """
        asked: Vector = np.maximum(self._needs(uuid, rows), self._arrival)
        return asked

    def size(self, uuid: str) -> float:
        """Return the size of an instance relative to a median host."""
        needs = self._counted(self._amounts[uuid], self._middling)
        return float((needs / self._typical).sum())

    def fits(self, uuid: str, host: str, without: str | None = None) -> bool:
        """Return whether a host has room for an instance.

        ``without`` is an instance that is assumed to leave.
        """
        row = self._rows[host]
        asked, free = self._asked(uuid, row), self.free[row]
        if without is not None:
            free = free + self._needs(without, row)
        return bool(((free - asked >= -_EPSILON) | (asked == 0)).all())

    def takers(self, uuid: str) -> Iterator[str]:
        """Yield the open hosts with room for an instance.

        Batches are sorted by initial room, and hosts within a batch by the
        room that would be left, in descending order.
        """
        for look in self._looks:
            asked = self._asked(uuid, look)
            left = self.free[look] - asked
            fit = ((left >= -_EPSILON) | (asked == 0)).all(axis=1)
            if fit.any():
                rows = look[fit]
                rest = (left[fit] / self._unit[rows]).min(axis=1)
                for row in rows[np.argsort(-rest, kind='stable')]:
                    yield self.names[row]

    def nearly(self, uuid: str, count: int) -> list[str]:
        """Return open hosts without room, sorted by the missing room."""
        rows = np.concatenate([np.empty(0, np.intp), *self._looks])
        asked = self._asked(uuid, rows)
        lack = np.maximum(asked - self.free[rows], 0.0) * (asked > 0)
        lacks = (lack / self._unit[rows]).sum(axis=1)
        order = np.argsort(lacks, kind='stable')
        return [self.names[row] for row in rows[order[lacks[order] > 0]][
            :count]]


def _scale(hosts: Sequence[Host], resource: str) -> Vector:
    """Return the size of one unit of a resource on each host (H).

    It is in percent of the host, NaN where its capacity is not known.
    """
    if resource in STATIC:
        return np.ones(len(hosts))
    sizes = np.array([host.capacity(resource) for host in hosts], float)
    scale: Vector = np.full(len(hosts), units.BEYOND)
    np.divide(units.WHOLE, sizes, out=scale, where=sizes != 0)
    return scale


def _uses(instances: Sequence[Instance], resource: str) -> Vector:
    """Return the use of a resource by each running instance (N)."""
    if resource in STATIC:
        return _column(instances, resource)
    return np.array([one.use(resource) for one in instances], float)


def _column(instances: Sequence[Instance], resource: str) -> Vector:
    """Return the amount of a static resource of each instance (N)."""
    if resource == 'slots':
        return np.ones(len(instances))
    if resource == 'cores':
        return np.array([one.vcpus for one in instances], float)
    return np.array([one.memory_mb for one in instances], float)
