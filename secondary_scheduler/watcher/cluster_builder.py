"""What Nova and Placement said, as values, and the cluster made of it."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
import dataclasses
import datetime
from typing import Any

from oslo_utils import timeutils

from secondary_scheduler.estimation.durations import (
    DurationInput,
    DurationModel,
)
from secondary_scheduler.model import cluster, reports, units, vocabulary
from secondary_scheduler.plans import operations
from secondary_scheduler.policies import language
from secondary_scheduler.watcher import scope as scopes
from secondary_scheduler.watcher.locks import Begun, Locks

#: Server metadata: set while an instance is down because we put it down,
#: ``<reason>@<UTC time>``; and the host from which we moved it.
PREEMPTED = 'secondary:preempted'
ORIGIN = 'secondary:origin'

_STATES = {
    'ACTIVE': cluster.InstanceState.ACTIVE,
    'SUSPENDED': cluster.InstanceState.SUSPENDED,
    'SHUTOFF': cluster.InstanceState.STOPPED,
    'SHELVED': cluster.InstanceState.SHELVED,
    'SHELVED_OFFLOADED': cluster.InstanceState.SHELVED,
}
#: Part of its cap from which an instance counts as held by it.
_HELD = 0.8
#: Seconds that an operation which should have ended is expected to take yet.
_LEAST_S = 1.0
_BUSY = ('BUILD', 'MIGRATING', 'RESIZE', 'REBOOT', 'HARD_REBOOT', 'REBUILD',
         'REVERT_RESIZE', 'PASSWORD')


#: Server metadata: which node of its lease a server is.
NODE = 'secondary:node'
#: And when it has to give way (UTC), if that was told it.
NOTICE = 'secondary:preempt_at'


def node_of(metadata: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the lease (UUID) and the node that a server says to be."""
    lease, node = metadata.get(vocabulary.LEASE_METADATA), metadata.get(NODE)
    if lease is None or node is None or not node.isdecimal():
        return None
    return lease, int(node)


@dataclasses.dataclass(frozen=True)
class NovaServer:
    """One secondary as Nova knows it; ``status`` in the API's capitals."""

    uuid: str
    project: str
    host: str | None
    status: str
    task_state: str | None
    vcpus: int
    memory_mb: int
    disk_gb: int
    mark: vocabulary.SecondaryMark
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hints: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    updated: datetime.datetime | None = None
    name: str = ''
    user: str = ''
    flavor: str = ''
    fault: str = ''

    @classmethod
    def from_sdk(cls, server: Any) -> 'NovaServer | None':
        """Read an openstacksdk server; None if it is not a secondary.

        The flavor embedded in the server counts (microversion 2.47 and
        later), since the flavor of that name may have changed.
        """
        flavor = server.flavor
        mark = vocabulary.read_mark((flavor and flavor.extra_specs) or {})
        if mark is None:
            return None
        return cls(
            uuid=server.id, project=server.project_id,
            host=server.compute_host or None, status=server.status,
            task_state=server.task_state or None,
            vcpus=int(flavor.vcpus or 0), memory_mb=int(flavor.ram or 0),
            disk_gb=vocabulary.claimed_disk_gb(flavor.disk, flavor.ephemeral,
                                               flavor.swap),
            mark=mark, metadata=dict(server.metadata or {}),
            hints=dict(server.scheduler_hints or {}),
            updated=(timeutils.parse_isotime(server.updated_at)
                     if server.updated_at else None),
            name=server.name or '', user=server.user_id or '',
            flavor=flavor.original_name or '',
            fault=str((server.fault or {}).get('message') or ''))

    def _label(self, metadata_key: str, hint: str) -> str | None:
        value = self.metadata.get(metadata_key) or self.hints.get(hint)
        if isinstance(value, list | tuple):
            value = value[0] if value else None
        return str(value) if value else None

    @property
    def lease(self) -> str:
        """Lease id: a label counts within its project only (risks F20)."""
        label = self._label(vocabulary.LEASE_METADATA, vocabulary.LEASE_HINT)
        return f'{self.project}:{label}' if label else self.uuid

    @property
    def priority(self) -> int:
        """The flavor's priority, lowered if the owner wants that."""
        wish = self._label(vocabulary.PRIORITY_METADATA,
                           vocabulary.PRIORITY_HINT)
        if wish is None:
            return self.mark.priority
        return vocabulary.lowered_priority(self.mark, wish)

    @property
    def state(self) -> cluster.InstanceState:
        """Its state in the cluster model; an operation under way is BUSY."""
        if self.task_state is not None or self.status in _BUSY:
            return cluster.InstanceState.BUSY
        return _STATES.get(self.status, cluster.InstanceState.OTHER)

    @property
    def preempted(self) -> bool:
        """Whether it is down because we took it down."""
        return self.state in cluster.DOWN and PREEMPTED in self.metadata

    @property
    def fallen(self) -> bool:
        """Whether it is in error since we took it down or brought it up.

        It cannot come up until somebody reboots or deletes it.
        """
        return (self.status == 'ERROR' and self.task_state is None
                and PREEMPTED in self.metadata)

    @property
    def unchanged_s(self) -> float:
        """Seconds since Nova has changed it, 0 if that is not known.

        For one that is preempted that is how long it has waited.  The time in
        its mark would be an owner's to change.
        """
        return max(0.0, timeutils.delta_seconds(
            self.updated, timeutils.utcnow(with_timezone=True))
            ) if self.updated else 0.0


@dataclasses.dataclass(frozen=True)
class ComputeHost:
    """One compute service and its child provider's inventory.

    ``root`` is the UUID of the compute node, which is its root provider;
    ``total`` is empty when the host has no child provider of ours, ``used``
    is what all consumers hold there, whether we know them or not;
    ``switched_off`` tells that we have closed it, because its scope is off,
    ``disabled`` that an operator has: nothing is brought to such a host.
    """

    name: str
    root: str | None
    up: bool
    place: scopes.HostPlace = scopes.HostPlace()
    total: Mapping[str, int] = dataclasses.field(default_factory=dict)
    reserved: Mapping[str, int] = dataclasses.field(default_factory=dict)
    used: Mapping[str, int] = dataclasses.field(default_factory=dict)
    switched_off: bool = False
    disabled: bool = False

    @property
    def closed(self) -> bool:
        """Whether Placement admits no further secondary."""
        return all(self.reserved.get(name, 0) >= amount
                   for name, amount in self.total.items())


@dataclasses.dataclass(frozen=True)
class CloudSnapshot:
    """What Nova and Placement said; times in s of a monotonic clock."""

    hosts: Mapping[str, ComputeHost] = dataclasses.field(default_factory=dict)
    servers: Mapping[str, NovaServer] = dataclasses.field(default_factory=dict)
    groups: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hosts_time: float | None = None
    servers_time: float | None = None

    @property
    def places(self) -> dict[str, scopes.HostPlace]:
        """Where each host belongs, for scopes."""
        return {name: host.place for name, host in self.hosts.items()}


def host_policies(report: reports.HostReport,
                  relief: bool) -> tuple[cluster.HostPolicy, ...]:
    """Return a report's policies; ``relief`` treats cpu as violated.

    So does a signal that tells of harm.  Nobody knows which instance has
    which part in it, so none can be foreseen to end it: CPU, of which all
    that share something with the primary use some, stands for it.  The least
    that ends such a violation leaves, and if the agent sees the harm go on,
    it is reported again.
    """
    violated = {p.policy for p in report.violated}
    relief = relief or any(language.is_signal(p.resource)
                           for p in report.violated)
    return tuple(
        cluster.HostPolicy(
            text=p.policy, resource=p.resource, threshold=p.threshold,
            timelimit=p.timelimit, failed=p.failed,
            violated=p.policy in violated or (
                relief and p.resource == language.CPU))
        for p in report.policies if not language.is_signal(p.resource))


def _demand(seen: reports.InstanceReport, report: reports.HostReport,
            share: float) -> float | None:
    """Return what CPU a decision counts for an instance, in CPUs.

    Its agent can squeeze it to its ``share`` of the host, in percent, so it
    never counts with more; and of one that uses all that the agent allows
    nobody knows what it wants.
    """
    if seen.cpu is None:
        return None
    held = seen.floored or (seen.cap is not None
                            and seen.cpu >= _HELD * seen.cap)
    return units.to_amount(share if held else min(seen.cpu, share),
                           report.cpus)


def _dirty(seen: reports.InstanceReport | None) -> cluster.DirtyMemory:
    """Return the memory that an instance writes to.

    At the floor that is next to nothing.
    """
    if (seen is None or seen.dirty_1s_mb is None or seen.dirty_5s_mb is None
            or seen.floored):
        return cluster.CLEAN
    return cluster.DirtyMemory(max(0.0, seen.dirty_1s_mb),
                               max(0.0, seen.dirty_5s_mb))


def _primary_usage(report: reports.HostReport | None) -> dict[str, float]:
    return {} if report is None else {
        resource: max(0.0, use) for resource, use in report.usage.items()}


def _capacities(report: reports.HostReport | None) -> dict[str, float]:
    """Return what a host has of the resources that are used."""
    return {} if report is None else {
        resource: size for resource in units.UNITS if resource != 'cpu'
        and (size := report.capacity(resource)) is not None}


def _expected_usage(server: NovaServer, seen: reports.InstanceReport | None,
                    report: reports.HostReport | None) -> dict[str, float]:
    """Return an instance's use, as it is expected of one that is down.

    It takes its memory as soon as it runs, whatever it had before.  Of a
    resource of which the host does not know how much it has, a percentage
    says nothing on another host: such a use is unknown.
    """
    if report is None:
        return {}
    if seen is None:
        return ({'mem': float(server.memory_mb)} if report.memory_mb > 0
                else {})
    return {resource: units.to_amount(max(0.0, use), size)
            for resource, use in seen.usage.items()
            if (size := report.capacity(resource)) is not None}


def _is_stuck(server: NovaServer, locks: Locks) -> bool:
    """Tell whether nothing that can wait is to be tried with it yet."""
    if server.state is cluster.InstanceState.ACTIVE:
        return server.uuid in locks.preempt_failed_instances
    return server.fallen or (server.preempted
                             and server.uuid in locks.return_failed_instances)


def build(snapshot: CloudSnapshot, scope: scopes.ResolvedScope,
          fresh: Mapping[str, reports.HostReport], locks: Locks,
          durations: DurationModel, relief: Collection[str],
          policies_hash: str | None, share: float) -> cluster.Cluster:
    """Put Nova's facts and the agents' reports together.

    A host outside the scope, or whose agent is silent, closed, or follows
    other policies than ``policies_hash`` (None: not compared) is not usable.
    What a report says of an instance counts only where Nova has it on that
    host (risks.md F21).  What others than a host's instances hold there, a
    live migration to it or one that left its claim, is nobody's to give away
    and counts as reserved.  ``share`` is what an instance is to have at least
    where it stays, in percent.
    """
    seen = {(name, i.uuid): i
            for name, report in fresh.items() for i in report.instances}
    held: dict[str, Counter[str]] = defaultdict(Counter)
    left_alone = locks.busy_instances | locks.failed_instances
    instances = {}
    for uuid, server in snapshot.servers.items():
        state = server.state
        origin = server.metadata.get(ORIGIN)
        reported = seen.get((server.host or '', uuid))
        report = fresh.get(server.host or '')
        instances[uuid] = one = cluster.Instance(
            uuid=uuid, lease=server.lease, host=server.host, state=state,
            vcpus=server.vcpus, memory_mb=server.memory_mb,
            disk_gb=server.disk_gb, priority=server.priority,
            preempt_policy=server.mark.preempt_policy,
            cpu=(_demand(reported, report, share)
                 if reported and report else None),
            dirty=_dirty(reported),
            usage=_expected_usage(server, reported, report),
            preempted=server.preempted,
            blocked=(uuid in left_alone
                     or scope.excludes(uuid, server.project)),
            resting=uuid in locks.cooling_down_instances,
            pinned=uuid in locks.migration_failed_instances,
            stuck=_is_stuck(server, locks),
            anti_affinity=snapshot.groups.get(uuid),
            origin=(origin if origin in snapshot.hosts
                    and origin != server.host else None))
        if server.host is not None:
            held[server.host].update(one.claims)
    in_flight = _in_flight(locks.begun, instances, snapshot.hosts, durations)
    for flight in in_flight:
        mover = instances[flight.instance]
        if flight.target not in (None, mover.host):
            held[flight.target].update(mover.claims)
    hosts = {}
    for name, host in snapshot.hosts.items():
        report = fresh.get(name)
        inside = name in scope.hosts
        hosts[name] = cluster.Host(
            name=name,
            cpus=report.cpus if report else 1.0,
            total=dict(host.total),
            reserved={of: host.reserved.get(of, 0)
                      + max(0, host.used.get(of, 0) - held[name][of])
                      for of in host.total},
            cpu_primary=report.cpu_primary if report else None,
            usage=_primary_usage(report),
            capacities=_capacities(report),
            policies=(host_policies(report, name in relief)
                      if report and inside else ()),
            usable=bool(
                inside and host.up and host.total and not host.disabled
                and not host.switched_off and report
                and report.admission
                and policies_hash in (None, report.policies_hash)),
            blocked=name in locks.hosts)
    return cluster.Cluster(hosts, instances, _waiting(snapshot.servers),
                           in_flight)


def _waiting(servers: Mapping[str, NovaServer]
             ) -> dict[str, cluster.LeaseMembers]:
    """Return the leases that wait to come back.

    How many instances a lease has plays no part in its priority, as it does
    in the thesis (R26): an owner could raise it by adding more.  So it could
    by adding one that has been down for months: the last one counts.
    """
    members = defaultdict(list)
    for server in servers.values():
        members[server.lease].append(server)
    return {name: cluster.LeaseMembers(
        name, priority=min(one.priority for one in those),
        waited_s=min(one.unchanged_s for one in those if one.preempted))
        for name, those in members.items()
        if any(one.preempted for one in those)}


def _in_flight(begun: Iterable[Begun],
               instances: Mapping[str, cluster.Instance],
               hosts: Collection[str], durations: DurationModel,
               ) -> tuple[cluster.InFlight, ...]:
    """Return what goes on, with what is expected to remain of it.

    Not what Nova shows to have ended, or not to fit any more; of two on one
    instance the first.
    """
    going = {one.instance: one for one in reversed(tuple(begun))
             if one.instance in instances
             and _goes_on(one, instances[one.instance])
             and all(host is None or host in hosts
                     for host in (one.source, one.target))}
    lasting = durations.of_all(
        [
            DurationInput(
                one.kind,
                one.source,
                one.target,
                instances[uuid].memory_mb,
                instances[uuid].dirty,
            )
            for uuid, one in going.items()
        ]
    )
    return tuple(
        cluster.InFlight(one.kind, one.instance, one.source, one.target,
                         max(_LEAST_S, seconds - one.age))
        for one, seconds in zip(going.values(), lasting, strict=True))


def _goes_on(operation: Begun, instance: cluster.Instance) -> bool:
    """Tell whether an operation has not had its effect, but may have it."""
    begins = (cluster.DOWN if operation.kind in operations.RETURNS
              else {cluster.InstanceState.ACTIVE})
    return (operation.source in (None, instance.host)
            and instance.state in {cluster.InstanceState.BUSY, *begins})
