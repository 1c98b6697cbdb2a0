"""The cloud on which leases run: what is seen, and what has it changed."""

from collections.abc import Collection, Sequence
from typing import Any

from watcher.common import exception as watcher_exception

from secondary_scheduler.leases.engine.values import (
    CloudDown,
    CloudState,
    LeaseHost,
    LeaseNode,
    LeaseServer,
    OperationRequest,
)
from secondary_scheduler.model import cluster, vocabulary
from secondary_scheduler.watcher import cloud as clouds
from secondary_scheduler.watcher import cluster_builder as snapshots
from secondary_scheduler.watcher import cluster_state as observers
from secondary_scheduler.watcher import history as histories
from secondary_scheduler.watcher import scope as scopes
from secondary_scheduler.watcher.leases.action_plans import LeaseHistory

#: What Nova still shows for a moment, and holds nothing.
_GONE = ('DELETED', 'SOFT_DELETED')


class LeaseCloud:
    """``lease_engine.values.Cloud`` through Nova, Placement and Watcher.

    Leases run on the hosts of the ``switches`` that are on and say so.
    """

    def __init__(self, seen: observers.ClusterState, history: LeaseHistory
                 ) -> None:
        self._seen = seen
        self._history = history
        self.switches: list[histories.Switch] = []
        self._pending: frozenset[LeaseNode] = frozenset()

    def look(self, known: Collection[str]) -> CloudState:
        """Return what there is now.

        :raises CloudDown: if Nova or Placement does not answer.
        """
        seen = self._seen
        if seen.snapshot.hosts_time is None:
            raise CloudDown('the collector has not looked at the cloud yet')
        # Before the servers: what ends in between is seen with the next look.
        pending, asked = self._history.pending()
        ended = self._history.ended()
        try:
            if known or pending or self._pending:
                seen.refresh_servers()
            self._pending = pending
            servers = dict(seen.snapshot.servers)
            cloud = seen.connect()
            servers |= clouds.look_up(cloud, sorted(
                set(known) - servers.keys()))
            sizes = cloud.sizes()
        except clouds.CloudError as exc:
            raise CloudDown(str(exc)) from exc
        resolved = [scopes.resolve(one.scope, seen.snapshot.places)
                    for one in self.switches]
        hosts = self._hosts(resolved)
        if not hosts:
            raise CloudDown('no host on which leases may run is up')
        return CloudState(
            {uuid: _server(one, resolved) for uuid, one in servers.items()
             if one.status not in _GONE},
            hosts, {name: (*size, 1) for name, size in sizes.items()},
            pending, ended.failures, tuple(ended.took),
            {**ended.asked, **asked}, frozenset(ended.used))

    def _hosts(
        self, resolved: Sequence[scopes.ResolvedScope]
    ) -> dict[str, LeaseHost]:
        inside: frozenset[str] = frozenset().union(*(
            one.hosts for one in resolved))
        return {
            name: LeaseHost(name, _amounts(host, host.total), _amounts(host, {
                of: total - host.reserved.get(of, 0)
                for of, total in host.total.items()}))
            for name, host in self._seen.snapshot.hosts.items()
            if name in inside and host.up and host.total
            and not (host.disabled or host.switched_off)}

    def forget_flavors(self) -> None:
        """Ask for all secondary flavors anew with the next look."""
        self._seen.connect().forget_flavors()

    def order(self, orders: Sequence[OperationRequest]) -> None:
        """Have operations carried out.

        :raises CloudDown: if that cannot be asked for.
        """
        try:
            self._history.order(orders, self.switches[0].uuid)
        except (RuntimeError, watcher_exception.WatcherException) as exc:
            raise CloudDown(str(exc)) from exc


def _amounts(host: snapshots.ComputeHost, of: Any
             ) -> tuple[int, int, int, int]:
    return tuple(       # type: ignore[return-value]
        int(of.get(name, 0)) for name in vocabulary.RESOURCE_CLASSES)


def _server(one: snapshots.NovaServer, resolved: Sequence[scopes.ResolvedScope]
            ) -> LeaseServer:
    """Return a server; who is excluded from a scope is left alone."""
    policy = one.mark.preempt_policy
    lease, node = snapshots.node_of(one.metadata) or ('', None)
    return LeaseServer(
        one.uuid, one.project, one.host, one.status,
        (one.vcpus, one.memory_mb, one.disk_gb, 1), lease, node,
        busy=one.state is cluster.InstanceState.BUSY, preempted=one.preempted,
        notice=one.metadata.get(snapshots.NOTICE, ''),
        suspendable=policy is vocabulary.PreemptPolicy.SUSPEND and not any(
            scope.excludes(one.uuid, one.project) for scope in resolved),
        name=one.name, user=one.user, flavor=one.flavor, fault=one.fault)
