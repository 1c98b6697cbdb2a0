"""The cluster as a value: hosts, secondaries, and cheap what-if copies.

It states Nova's facts (DESIGN.md decision 7): a suspended or stopped
instance stays on its host and keeps its allocation there, a resume happens
on that host; only shelving frees the host, and loses memory.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import enum

from secondary_scheduler.model import vocabulary


class State(enum.StrEnum):
    """Where an instance is in its life, in Nova's words."""

    ACTIVE = 'active'
    SUSPENDED = 'suspended'
    STOPPED = 'stopped'
    SHELVED = 'shelved'
    BUSY = 'busy'       # an operation of somebody is under way
    OTHER = 'other'     # paused, error, rescued ...: never touched


@dataclasses.dataclass(frozen=True)
class Instance:
    """One secondary instance.

    ``cpu`` is its use now in percent of its host (None: unknown);
    ``preempted`` tells that it is down because we put it down, ``wanted``
    that its owner wants it running; ``blocked`` that it was operated on a
    moment ago and must be left alone.
    """

    uuid: str
    lease: str
    project: str
    host: str | None
    state: State
    vcpus: int
    memory_mb: int
    disk_gb: int
    priority: int = vocabulary.DEFAULT_PRIORITY
    preempt_policy: vocabulary.PreemptPolicy = (
        vocabulary.PreemptPolicy.SUSPEND)
    cpu: float | None = None
    preempted: bool = False
    wanted: bool = True
    blocked: bool = False
    anti_affinity: str | None = None
    origin: str | None = None   # host from which we moved it

    @property
    def claims(self) -> dict[str, int]:
        """What its allocation holds on the host's child provider."""
        return {vocabulary.VCPU: self.vcpus,
                vocabulary.MEMORY_MB: self.memory_mb,
                vocabulary.DISK_GB: self.disk_gb,
                vocabulary.SLOT: 1}


@dataclasses.dataclass(frozen=True)
class CpuPolicy:
    """The strictest dynamic policy of a host on one resource."""

    text: str
    resource: str
    threshold: float
    timelimit: int
    failed: int = 0
    violated: bool = False


@dataclasses.dataclass(frozen=True)
class Host:
    """One compute host.

    ``cpus`` is its capacity in CPUs, ``total`` and ``reserved`` the child
    provider's inventory by resource class; ``cpu_primary`` percent of the
    host used lately by everything that is not a secondary (None: unknown);
    ``usable`` is False when the host is disabled, down, closed, or its data
    is stale; ``blocked`` while it must be left alone after an operation.
    """

    name: str
    cpus: float
    total: Mapping[str, int]
    reserved: Mapping[str, int] = dataclasses.field(default_factory=dict)
    cpu_primary: float | None = None
    policies: tuple[CpuPolicy, ...] = ()
    usable: bool = True
    blocked: bool = False
    aggregates: frozenset[str] = frozenset()

    @property
    def violated(self) -> bool:
        """Whether the global trigger of any policy has fired."""
        return any(p.violated for p in self.policies)

    def threshold(self, resource: str = 'cpu') -> float | None:
        """Lowest threshold of the policies on a resource, or None."""
        values = [p.threshold for p in self.policies
                  if p.resource == resource]
        return min(values, default=None)


class Cluster:
    """Hosts and secondaries; changing a copy leaves the original alone."""

    def __init__(self, hosts: Mapping[str, Host],
                 instances: Mapping[str, Instance]) -> None:
        self.hosts = dict(hosts)
        self.instances = dict(instances)

    def copy(self) -> 'Cluster':
        """Return a copy that can be changed; the values are shared."""
        return Cluster(self.hosts, self.instances)

    def on(self, host: str, *states: State) -> Iterator[Instance]:
        """Yield the instances on a host, in the given states (any if none)."""
        for instance in self.instances.values():
            if instance.host == host and (
                    not states or instance.state in states):
                yield instance

    def lease(self, label: str) -> list[Instance]:
        """Return the instances of a lease, in a stable order."""
        return sorted((i for i in self.instances.values()
                       if i.lease == label), key=lambda i: i.uuid)

    def update(self, uuid: str, **changes: object) -> None:
        """Replace fields of one instance of this copy."""
        self.instances[uuid] = dataclasses.replace(
            self.instances[uuid], **changes)  # type: ignore[arg-type]

    def claimed(self, host: str) -> dict[str, int]:
        """Sum what the instances on a host hold, suspended ones included."""
        sums = dict.fromkeys(vocabulary.RESOURCE_CLASSES, 0)
        for instance in self.on(host):
            for name, amount in instance.claims.items():
                sums[name] += amount
        return sums
