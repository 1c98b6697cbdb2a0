# SPDX-License-Identifier: Apache-2.0

"""Servers and hosts as Nova and Placement report them."""

from collections import defaultdict
from collections.abc import Mapping
import contextlib
import dataclasses
import datetime
import math
from typing import Any

from oslo_utils import timeutils

from secondary_scheduler.cpu_affinity import workload_keys
from secondary_scheduler.model import cluster, vocabulary
from secondary_scheduler.model.resources import RATES
from secondary_scheduler.plans.constraint_rules import KnownNames
from secondary_scheduler.reading.values import InputError, parse_number
from secondary_scheduler.watcher.scope import HostPlace

#: Server metadata of a preempted instance: ``<reason>@<UTC time>``.
PREEMPTED = 'secondary:preempted'
#: Server metadata: the host from which the instance was first moved away.
ORIGIN = 'secondary:origin'
#: Server metadata: the node number of a server within its lease.
NODE = 'secondary:node'
#: Server metadata: the CPUs that the instance wanted when it was preempted.
WANTED_CPU = 'secondary:wanted_cpu'
#: Server metadata: the use of links and disks, in MB/s, with which the
#: instance counted when it was preempted: ``<resource>=<amount> ...``.
USED = 'secondary:used'
#: Server metadata: the time (UTC) of an announced preemption.
NOTICE = 'secondary:preempt_at'

#: Scope of extra specs about the metadata of aggregates.
_AGGREGATE = 'aggregate_instance_extra_specs:'

_STATES = {
    'ACTIVE': cluster.InstanceState.ACTIVE,
    'SUSPENDED': cluster.InstanceState.SUSPENDED,
    'SHUTOFF': cluster.InstanceState.STOPPED,
    'SHELVED': cluster.InstanceState.SHELVED,
    'SHELVED_OFFLOADED': cluster.InstanceState.SHELVED,
}
_BUSY = ('BUILD', 'MIGRATING', 'RESIZE', 'REBOOT', 'HARD_REBOOT', 'REBUILD',
         'REVERT_RESIZE', 'PASSWORD')


def _time(text: str | None) -> datetime.datetime | None:
    """Return a time of Nova's API; without a zone it is in UTC."""
    if not text:
        return None
    return timeutils.normalize_time(timeutils.parse_isotime(text)).replace(
        tzinfo=datetime.UTC)


def _age_s(moment: datetime.datetime | None) -> float | None:
    return None if moment is None else max(0.0, timeutils.delta_seconds(
        moment, timeutils.utcnow(with_timezone=True)))


def _aggregate_specs(specs: Mapping[str, Any]) -> dict[str, str]:
    """Return the extra specs about aggregates, by the key in their metadata.
    """
    return {key.removeprefix(_AGGREGATE): str(value)
            for key, value in specs.items() if key.startswith(_AGGREGATE)}


def node_of(metadata: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the lease (UUID) and node number in a server's metadata."""
    lease, node = metadata.get(vocabulary.LEASE_METADATA), metadata.get(NODE)
    if lease is None or node is None or not node.isdecimal():
        return None
    return lease, int(node)


def lease_tag(lease: str, node: int) -> str:
    """Return the tag of a lease's (UUID) server, by which Nova finds it."""
    return f'secondary-lease-{lease}-{node}'


@dataclasses.dataclass(frozen=True)
class NovaServer:
    """A secondary as Nova reports it; ``status`` in the API's capitals.

    * ``zone``: the availability zone that it must not leave, '' if it may.
    * ``aggregate_specs``: extra specs of its flavor about aggregates, by the
      key in their metadata.
    * ``workload_class``: the class for which agents predict slow-downs, if
      they know it.
    """

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
    created: datetime.datetime | None = None
    launched: datetime.datetime | None = None
    name: str = ''
    user: str = ''
    flavor: str = ''
    fault: str = ''
    zone: str = ''
    aggregate_specs: Mapping[str, str] = dataclasses.field(
        default_factory=dict)
    workload_class: str | None = None

    @classmethod
    def from_sdk(cls, server: Any, tells_zone: bool = True
                 ) -> 'NovaServer | None':
        """Read an openstacksdk server; None if it is not a secondary.

        The flavor embedded in the server counts (microversion 2.47 and
        later), since the flavor of that name may have changed.

        :param tells_zone: the API tells the requested availability zone
            (microversion 2.96 and later).  Otherwise it may be any, so the
            server must not leave the zone that it is in.
        """
        flavor = server.flavor
        specs = (flavor and flavor.extra_specs) or {}
        mark = vocabulary.read_mark(specs)
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
            updated=_time(server.updated_at),
            created=_time(server.created_at),
            launched=_time(server.launched_at),
            name=server.name or '', user=server.user_id or '',
            flavor=flavor.original_name or '',
            fault=str((server.fault or {}).get('message') or ''),
            zone=(server.pinned_availability_zone if tells_zone
                  else server.availability_zone) or '',
            aggregate_specs=_aggregate_specs(specs),
            # The image of a server that boots from a volume has no id.
            workload_class=workload_keys.class_name(
                specs, getattr(server.image, 'id', None),
                flavor.original_name))

    @classmethod
    def planned(cls, name: str, project: str, lease: str,
                specs: Mapping[str, str]) -> 'NovaServer | None':
        """Return a server of a lease that does not exist yet.

        None unless its flavor is one of secondaries.

        :param name: name in the place of its UUID
        :param lease: UUID of the lease
        :param specs: extra specs of its flavor
        """
        mark = vocabulary.read_mark(specs)
        return None if mark is None else cls(
            uuid=name, project=project, host=None, status='BUILD',
            task_state=None, vcpus=0, memory_mb=0, disk_gb=0, mark=mark,
            metadata={vocabulary.LEASE_METADATA: lease},
            aggregate_specs=_aggregate_specs(specs))

    def _label(self, metadata_key: str, hint: str) -> str | None:
        value = self.metadata.get(metadata_key) or self.hints.get(hint)
        if isinstance(value, list | tuple):
            value = value[0] if value else None
        return str(value) if value else None

    @property
    def lease(self) -> str:
        """Id of the lease; without a label the instance is its own lease.

        The project is part of the id: a tenant cannot join the lease of
        another project.
        """
        label = self._label(vocabulary.LEASE_METADATA, vocabulary.LEASE_HINT)
        return f'{self.project}:{label}' if label else self.uuid

    @property
    def priority(self) -> int:
        """Priority of the flavor, lowered if the owner asks for that."""
        wish = self._label(vocabulary.PRIORITY_METADATA,
                           vocabulary.PRIORITY_HINT)
        if wish is None:
            return self.mark.priority
        return vocabulary.lowered_priority(self.mark, wish)

    @property
    def state(self) -> cluster.InstanceState:
        """State in the cluster model; BUSY during an operation."""
        if self.task_state is not None or self.status in _BUSY:
            return cluster.InstanceState.BUSY
        return _STATES.get(self.status, cluster.InstanceState.OTHER)

    @property
    def preempted(self) -> bool:
        """Whether it is down and has the mark of a preempted instance."""
        return self.state in cluster.DOWN and PREEMPTED in self.metadata

    @property
    def wanted_cpu(self) -> float | None:
        """CPUs that it wanted when it was preempted, None if unknown.

        The owner can change the value, as a guest can change its load.  At
        most its vCPUs are returned.
        """
        try:
            wanted = float(self.metadata.get(WANTED_CPU, 'nan'))
        except ValueError:
            return None
        return (min(wanted, float(self.vcpus))
                if math.isfinite(wanted) and wanted >= 0 else None)

    @property
    def used(self) -> dict[str, float]:
        """Use of links and disks before its preemption, by resource in MB/s.

        The owner can change the values, as a guest can change its load.
        Unreadable ones are left out.
        """
        found = {}
        for item in self.metadata.get(USED, '').split():
            resource, _equals, text = item.partition('=')
            with contextlib.suppress(InputError):
                if resource in RATES:
                    found[resource] = parse_number(text)
        return found

    @property
    def fallen(self) -> bool:
        """Whether it is in ERROR since its preemption or its return.

        It cannot return until it is rebooted or deleted by hand.
        """
        return (self.status == 'ERROR' and self.task_state is None
                and PREEMPTED in self.metadata)

    @property
    def unchanged_s(self) -> float:
        """Seconds since Nova changed it last, 0 if that is unknown.

        For a preempted instance this is its waiting time.  The time in its
        mark is not used: the owner could change it.
        """
        return _age_s(self.updated) or 0.0

    @property
    def age_s(self) -> float | None:
        """Seconds since its owner asked for it, None if that is unknown."""
        return _age_s(self.created)

    @property
    def launched_s(self) -> float | None:
        """Seconds since its last boot or unshelving, None if unknown."""
        return _age_s(self.launched)


@dataclasses.dataclass(frozen=True)
class ComputeHost:
    """A compute service and the inventory of its child provider.

    * ``root``: UUID of the compute node, which is its root provider.
    * ``total``: inventory; empty if the host has no child provider of ours.
    * ``ratios``: allocation ratios; 1 where one is missing.
    * ``used``: usage by all consumers, known to us or not.
    * ``metadata``: metadata of its aggregates, all values of each key.
    * ``switched_off``: closed by us, because its scope is switched off.
    * ``disabled``: closed by an operator.
    * ``unreachable``: its cell does not answer Nova.  Its servers are
      unknown, so it is not empty.

    Nothing is moved to a host that is switched off, disabled or unreachable.
    """

    name: str
    root: str | None
    up: bool
    place: HostPlace = HostPlace()
    total: Mapping[str, int] = dataclasses.field(default_factory=dict)
    reserved: Mapping[str, int] = dataclasses.field(default_factory=dict)
    used: Mapping[str, int] = dataclasses.field(default_factory=dict)
    ratios: Mapping[str, float] = dataclasses.field(default_factory=dict)
    metadata: Mapping[str, frozenset[str]] = dataclasses.field(
        default_factory=dict)
    switched_off: bool = False
    disabled: bool = False
    unreachable: bool = False

    def most_claims(self, name: str) -> int:
        """Return what servers could claim of a class with nothing reserved."""
        return int(self.total.get(name, 0) * self.ratios.get(name, 1.0))

    def claimable(self, name: str) -> int:
        """Return what Placement lets servers claim of a resource class."""
        return int(self._allowed(name) * self.ratios.get(name, 1.0))

    def most_runnable(self, name: str) -> int:
        """Return what running servers could claim with nothing reserved.

        A ratio above 1 leaves room for the claims of suspended servers: it
        lets no more servers run.  One below 1 limits all claims.
        """
        return min(self.total.get(name, 0), self.most_claims(name))

    def runnable(self, name: str) -> int:
        """Return what running servers may claim of a resource class."""
        return min(self._allowed(name), self.claimable(name))

    def _allowed(self, name: str) -> int:
        return self.total.get(name, 0) - self.reserved.get(name, 0)

    @property
    def closed(self) -> bool:
        """Whether Placement admits no further secondary."""
        return all(self.reserved.get(name, 0) >= amount
                   for name, amount in self.total.items())


@dataclasses.dataclass(frozen=True)
class ServerGroup:
    """A server group of Nova with a hard policy.

    :param apart: the policy is anti-affinity; otherwise it is affinity
    :param members: UUIDs of servers, secondary or not
    :param most_on_host: largest number of members on one host, if ``apart``
    """

    id: str
    apart: bool
    members: frozenset[str]
    most_on_host: int = 1


@dataclasses.dataclass(frozen=True)
class CloudSnapshot:
    """Hosts, servers and server groups at some moments.

    ``primary_hosts`` are the hosts of members of ``groups`` that are not
    secondary; the host of a member that is missing there is unknown.
    ``unseen`` are the UUIDs of servers that Nova cannot show; those that it
    has shown before are in ``servers`` as they were.
    ``hosts_time`` and ``servers_time`` are seconds of a monotonic clock.
    """

    hosts: Mapping[str, ComputeHost] = dataclasses.field(default_factory=dict)
    servers: Mapping[str, NovaServer] = dataclasses.field(default_factory=dict)
    groups: tuple[ServerGroup, ...] = ()
    primary_hosts: Mapping[str, str | None] = dataclasses.field(
        default_factory=dict)
    hosts_time: float | None = None
    servers_time: float | None = None
    unseen: frozenset[str] = frozenset()

    @property
    def unreachable_hosts(self) -> frozenset[str]:
        """Hosts in cells that do not answer Nova."""
        return frozenset(name for name, host in self.hosts.items()
                         if host.unreachable)

    @property
    def names(self) -> KnownNames:
        """Names of hosts, instances and leases."""
        leases = defaultdict(list)
        for server in self.servers.values():
            leases[server.lease].append(server.uuid)
        return KnownNames(self.servers.keys(), leases, self.hosts.keys())

    @property
    def anti_affinity(self) -> dict[str, str]:
        """The group of each member that admits one member on a host."""
        return {member: group.id for group in self.groups
                if group.apart and group.most_on_host == 1
                for member in group.members}

    @property
    def places(self) -> dict[str, HostPlace]:
        """Aggregates and zone of each host, for scopes."""
        return {name: host.place for name, host in self.hosts.items()}
