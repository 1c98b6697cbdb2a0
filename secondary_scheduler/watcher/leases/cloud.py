# SPDX-License-Identifier: Apache-2.0

"""The cloud on which leases run, through Nova, Placement and Watcher."""

from collections.abc import Callable, Collection, Sequence
import dataclasses

from oslo_db import exception as db_exception
from watcher.common import exception as watcher_exception

from secondary_scheduler.leases.engine.values import (
    RUNNING,
    Amounts,
    CloudDown,
    CloudState,
    LeaseHost,
    LeaseNode,
    LeaseServer,
    OperationRequest,
    PlannedServer,
)
from secondary_scheduler.model import cluster, vocabulary
from secondary_scheduler.model.constraints import Constraint
from secondary_scheduler.watcher.cloud_errors import CloudError
from secondary_scheduler.watcher.cloud_snapshot import (
    NOTICE,
    NovaServer,
    node_of,
)
from secondary_scheduler.watcher.cluster_state import ClusterState
from secondary_scheduler.watcher.history import Switch
from secondary_scheduler.watcher.leases.action_plans import LeaseActionPlans
from secondary_scheduler.watcher.scope import ResolvedScope, resolve_scope

#: States of servers that Nova shows for a moment after their deletion.
_GONE = ('DELETED', 'SOFT_DELETED')


class OpenStackLeaseCloud:
    """Implements ``leases.engine.values.LeaseCloud``.

    ``switches`` are the audits on whose scopes leases run.
    """

    def __init__(self, seen: ClusterState, plans: LeaseActionPlans
                 ) -> None:
        self._seen = seen
        self._plans = plans
        self.switches: list[Switch] = []
        self._pending: frozenset[LeaseNode] = frozenset()
        self._usable: Collection[str] = ()
        #: Booted servers that Nova has shown, or that were deleted.
        self._settled: set[str] = set()

    def lead(self, switches: list[Switch], term: int) -> None:
        """Take the audits and the leadership of the next pass."""
        self.switches, self._plans.term = switches, term

    def observe_state(self, known: Collection[str]) -> CloudState:
        """Return the present state.

        :raises CloudDown: if Nova or Placement does not answer.
        """
        seen = self._seen
        if seen.snapshot.hosts_time is None:
            raise CloudDown('the collector has not read the cloud yet')
        # Read before the servers, so that the state of a server is never
        # older than the end of an operation on it.
        unfinished = self._plans.find_pending()
        pending = unfinished.nodes
        ended = self._plans.find_ended()
        gone: frozenset[str] = frozenset()
        try:
            hidden = {place: uuid for place, uuid in ended.booted.items()
                      if uuid not in self._settled}
            if known or pending or hidden or self._pending:
                gone = seen.refresh_servers({*known, *hidden.values()})
            self._pending = pending
            sizes = seen.connect().sizes()
        except CloudError as exc:
            raise CloudDown(str(exc)) from exc
        snapshot = seen.snapshot
        # A server that was shown once is known by its label.
        self._settled = {
            uuid for uuid in ended.booted.values()
            if uuid in self._settled or uuid in gone
            or uuid in snapshot.servers}
        resolved = [resolve_scope(one.scope, snapshot.places)
                    for one in self.switches]
        hosts = self._hosts(resolved)
        if not hosts:
            raise CloudDown('no host on which leases may run is up')
        self._usable = hosts.keys()
        servers = {uuid: _server(one, resolved) for uuid, one
                   in snapshot.servers.items()
                   if uuid not in snapshot.unseen}
        return CloudState(
            {**{uuid: one for uuid, one in servers.items()
                if one.status not in _GONE}, **self._reported(resolved)},
            hosts, {name: (*size, 1) for name, size in sizes.items()},
            pending, ended.failures, tuple(ended.took),
            {**ended.asked, **unfinished.asked}, frozenset(ended.used),
            frozenset(ended.verified),
            {place: uuid for place, uuid in hidden.items()
             if uuid not in self._settled},
            gone | {uuid for uuid, one in servers.items()
                    if one.status in _GONE},
            snapshot.unreachable_hosts, unfinished.free)

    def _reported(self, resolved: Sequence[ResolvedScope]
                  ) -> dict[str, LeaseServer]:
        """Return the unseen servers that run by a fresh report.

        A report counts for the servers that Nova has shown on its host last.
        """
        snapshot = self._seen.snapshot
        found = {}
        for uuid in snapshot.unseen & snapshot.servers.keys():
            server = snapshot.servers[uuid]
            report = self._seen.book.get(server.host or '')
            if report is not None and any(
                    one.uuid == uuid and not one.paused
                    for one in report.instances):
                found[uuid] = dataclasses.replace(
                    _server(server, resolved), status=RUNNING, busy=False,
                    preempted=False, reachable=False)
        return found

    def _hosts(
        self, resolved: Sequence[ResolvedScope]
    ) -> dict[str, LeaseHost]:
        inside: frozenset[str] = frozenset().union(*(
            one.hosts for one in resolved))
        return {
            name: LeaseHost(name, _amounts(host.most_runnable),
                            _amounts(host.runnable))
            for name, host in self._seen.snapshot.hosts.items()
            if name in inside and host.up and host.total
            and not (host.disabled or host.switched_off)}

    def find_constraints(self, planned: Sequence[PlannedServer]
                         ) -> tuple[Constraint, ...]:
        """Return the placement constraints as of the last observation.

        :raises CloudDown: if Nova does not answer.
        """
        try:
            specs = self._seen.connect().flavor_specs() if planned else {}
        except CloudError as exc:
            raise CloudDown(str(exc)) from exc
        servers = [NovaServer.planned(one.name, one.project, one.lease,
                                      specs.get(one.flavor, {}))
                   for one in planned]
        snapshot = self._seen.snapshot
        return self._seen.find_constraints(dataclasses.replace(
            snapshot, servers={**snapshot.servers, **{
                one.uuid: one for one in servers if one is not None}}),
            self._usable)

    def forget_flavors(self) -> None:
        """Read all secondary flavors again with the next observation."""
        self._seen.connect().forget_flavors()

    def order_operations(self, orders: Sequence[OperationRequest]) -> None:
        """Have operations carried out.

        :raises CloudDown: if Watcher does not take them.
        """
        try:
            self._plans.create_plans(orders, self.switches[0].uuid)
        except (RuntimeError, db_exception.DBError,
                watcher_exception.WatcherException) as exc:
            raise CloudDown(str(exc)) from exc


def _amounts(amount_of: Callable[[str], int]) -> Amounts:
    return tuple(       # type: ignore[return-value]
        amount_of(name) for name in vocabulary.RESOURCE_CLASSES)


def _server(one: NovaServer, resolved: Sequence[ResolvedScope]
            ) -> LeaseServer:
    """Return a server; one excluded from a scope is not suspendable."""
    policy = one.mark.preempt_policy
    lease, node = node_of(one.metadata) or ('', None)
    return LeaseServer(
        one.uuid, one.project, one.host, one.status,
        (one.vcpus, one.memory_mb, one.disk_gb, 1), lease, node,
        busy=one.state is cluster.InstanceState.BUSY, preempted=one.preempted,
        notice=one.metadata.get(NOTICE, ''),
        suspendable=policy is vocabulary.PreemptPolicy.SUSPEND and not any(
            scope.excludes(one.uuid, one.project) for scope in resolved),
        name=one.name, user=one.user, flavor=one.flavor, fault=one.fault,
        changed='' if one.updated is None else one.updated.isoformat(),
        created=None if one.created is None else one.created.timestamp())
