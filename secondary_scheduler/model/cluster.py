# SPDX-License-Identifier: Apache-2.0

"""The cluster as a value: hosts, and the secondaries on them.

It follows Nova's facts (see reference/decisions, 7).  A suspended or stopped
instance stays on its host, keeps its allocation there and resumes there.
Only shelving frees the host, and it loses memory.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
import dataclasses
import enum
import functools
import operator
import typing

from secondary_scheduler.model import units, vocabulary
from secondary_scheduler.model.arrivals import Arrival, fill_unknown
from secondary_scheduler.model.constraints import Constraint, PlacementRules
from secondary_scheduler.model.lazy import Lazy
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.model.resources import STATIC


class InstanceState(enum.StrEnum):
    """State of an instance, in Nova's terms."""

    ACTIVE = 'active'
    SUSPENDED = 'suspended'
    STOPPED = 'stopped'
    SHELVED = 'shelved'
    BUSY = 'busy'       # an operation of any origin is under way
    OTHER = 'other'     # paused, error, rescued ...: never touched


#: States in which a preempted instance waits to run again.
DOWN = frozenset(
    {InstanceState.SUSPENDED, InstanceState.STOPPED, InstanceState.SHELVED})


class DirtyMemory(typing.NamedTuple):
    """Memory that a guest writes to in 1 s and in 5 s, in MiB.

    A page counts once, however often it is written to.  The two figures
    together distinguish a small writable working set (Sliwko 2019, section
    2.1) from writes all over the memory.
    """

    in_1s: float = 0.0
    in_5s: float = 0.0


#: Predicted parts of performance that differ less are equal.
_EQUAL_PERFORMANCE = 0.05

#: No writes, or unknown.
CLEAN = DirtyMemory()


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """One secondary instance.

    :param priority: the higher, the later it is preempted
    :param cpu: its use in CPUs, now or before it went down; None if unknown
    :param usage: the same of further resources in their units (see
        ``model.units``)
    :param dirty: the memory that it writes to
    :param wanted_cpu: CPUs that it would use if nothing limited it; None if
        that is unknown (see ``estimation.demand``)
    :param running_s: seconds for which it has run since it last went down;
        None if that is unknown, or long ago
    :param preempted: it is down because the scheduler preempted it
    :param blocked: no operation may touch it
    :param cooling_down: recently operated on; only an operation for a static
        policy may touch it (Boettger 2012, section 4.4.6.3)
    :param migration_failed: its live migration has just failed; it may be
        suspended but not migrated
    :param return_failed: it is down and its return failed; no retry yet
    :param preempt_failed: it runs and its preemption failed; no retry yet
        unless a policy is violated
    :param origin: the host from which a decision migrated it
    :param workload_class: class for which agents predict slow-downs; None if
        it has none
    :param suspect: trials on its host have confirmed that it harms the
        primary; it leaves first
    """

    uuid: str
    lease: str
    host: str | None
    state: InstanceState
    vcpus: int
    memory_mb: int
    disk_gb: int
    priority: float = vocabulary.DEFAULT_PRIORITY
    preempt_policy: vocabulary.PreemptPolicy = (
        vocabulary.PreemptPolicy.SUSPEND)
    cpu: float | None = None
    preempted: bool = False
    blocked: bool = False
    cooling_down: bool = False
    migration_failed: bool = False
    return_failed: bool = False
    preempt_failed: bool = False
    anti_affinity: str | None = None
    origin: str | None = None
    usage: Mapping[str, float] = dataclasses.field(default_factory=dict)
    dirty: DirtyMemory = CLEAN
    wanted_cpu: float | None = None
    running_s: float | None = None
    workload_class: str | None = None
    suspect: bool = False

    @property
    def claims(self) -> dict[str, int]:
        """Its allocation on the host's child provider, by resource class."""
        return {vocabulary.VCPU: self.vcpus,
                vocabulary.MEMORY_MB: self.memory_mb,
                vocabulary.DISK_GB: self.disk_gb,
                vocabulary.SLOT: 1}

    def holds(self, resource: str) -> int:
        """Return its amount of a static resource while it runs."""
        return {'slots': 1, 'cores': self.vcpus,
                'memory': self.memory_mb}[resource]

    def use(self, resource: str) -> float | None:
        """Return the use of a measured resource in its unit, if known."""
        return self.cpu if resource == 'cpu' else self.usage.get(resource)


@dataclasses.dataclass(frozen=True)
class HostPolicy:
    """A policy that applies to a place, with its counters there.

    :param threshold: in percent of the place; an amount for static resources
    :param timelimit: in seconds
    :param failed: number of failed checks in a row, one a second
    :param violated: the global trigger has fired
    :param sensitivity: failed checks after which the global trigger fires
    """

    text: str
    resource: str
    threshold: float
    timelimit: int
    failed: int = 0
    violated: bool = False
    sensitivity: int = 1

    @property
    def static(self) -> bool:
        """Whether only an operation can change the resource's use."""
        return self.resource in STATIC


class Place:
    """A host, or an item that hosts share; policies apply to it.

    ``part`` is the fraction of the place that one whole host makes up, for
    measured resources.
    """

    name: str
    policies: tuple[HostPolicy, ...]
    usage: Mapping[str, float]
    part: float = 1.0

    @property
    def violated(self) -> bool:
        """Whether the global trigger of any policy has fired."""
        return any(p.violated for p in self.policies)

    def primary_use(self, resource: str) -> float | None:
        """Use of a measured resource by primaries, in percent, if known."""
        return self.usage.get(resource)


@dataclasses.dataclass(frozen=True)
class Host(Place):
    """One compute host.

    :param cpus: its capacity in CPUs
    :param total: most claims that the inventory of the child provider allows,
        by resource class
    :param reserved: part of them that is reserved, by resource class
    :param cpu_primary: recent CPU use by everything but secondaries, in
        percent of the host; None if unknown
    :param usable: False if the host is disabled, down or closed, or if its
        data is stale
    :param blocked: it is cooling down after an operation
    :param usage: use of further resources by primaries, as ``cpu_primary``
    :param capacities: capacity of further measured resources in their units,
        as far as it is known
    :param held: what the lease schedule keeps for servers that are about to
        start there, by resource class
    :param arrivals: its agent's predictions for one more secondary, by
        workload class
    """

    name: str
    cpus: float
    total: Mapping[str, int]
    reserved: Mapping[str, int] = dataclasses.field(default_factory=dict)
    cpu_primary: float | None = None
    policies: tuple[HostPolicy, ...] = ()
    usable: bool = True
    blocked: bool = False
    usage: Mapping[str, float] = dataclasses.field(default_factory=dict)
    capacities: Mapping[str, float] = dataclasses.field(default_factory=dict)
    held: Mapping[str, int] = dataclasses.field(default_factory=dict)
    arrivals: Mapping[str, Arrival] = dataclasses.field(default_factory=dict)

    def capacity(self, resource: str) -> float | None:
        """Return the capacity of a measured resource, None if not known.

        It is in the resource's unit, 100 % for a resource without one, and 0
        for a resource that the host does not have.
        """
        if resource not in units.UNITS:
            return units.WHOLE
        return self.capacities.get(
            resource, self.cpus if resource == 'cpu' else None)

    @property
    def can_run(self) -> bool:
        """Whether it has CPUs and memory; no instance runs without them."""
        return self.capacity('cpu') != 0 and self.capacity('mem') != 0

    def threshold(self, resource: str = 'cpu') -> float | None:
        """Lowest threshold of the policies on a resource, or None."""
        values = [p.threshold for p in self.policies
                  if p.resource == resource]
        return min(values, default=None)

    def primary_use(self, resource: str) -> float | None:
        """Return use by primaries; CPU has a field of its own.

        It is unknown of a resource that the host does not have, since a
        percentage of nothing has no meaning.
        """
        if self.capacity(resource) == 0:
            return None
        return (self.cpu_primary if resource == 'cpu'
                else super().primary_use(resource))


@dataclasses.dataclass(frozen=True)
class Item(Place):
    """Something that hosts share (Boettger 2012, section 4.3.5).

    It is a switch or a storage, or just the set of hosts of a policy on their
    sum.  Its name differs from those of all hosts; its hosts are all in the
    cluster.

    :param part: as in ``Place``; the mean of hosts that differ in size
    :param usage: use by primaries, by resource in percent of the item
    """

    name: str
    hosts: tuple[str, ...]
    policies: tuple[HostPolicy, ...]
    part: float = 1.0
    usage: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class LeaseMembers:
    """Instances that run or wait together as one lease.

    ``priority`` is given, or follows from ``owner_priority`` and the size
    (see reference/errata, Boettger, priority).

    :param waited_s: seconds for which a queued lease has waited
    :param age_s: seconds since the lease arrived, whether it runs or waits;
        None if that is unknown
    :param guaranteed: it has a guaranteed start, so nothing displaces it
    """

    name: str
    priority: float | None = None
    owner_priority: float = vocabulary.DEFAULT_PRIORITY
    state: LeaseState = LeaseState.ACTIVE
    waited_s: float = 0.0
    age_s: float | None = None
    guaranteed: bool = False


class InFlight(typing.NamedTuple):
    """An operation that is under way; ``remaining_s`` in seconds.

    Fields are as in ``plans.operations.Operation``.  The instance is busy and
    counts as in its old state.
    """

    kind: str
    instance: str
    source: str | None
    target: str | None
    remaining_s: float


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Hosts by name, secondaries by UUID, and operations under way.

    A *place* is a host or an item that hosts share.  A lease that is missing
    in ``leases`` has the priority of its instances.  Members of
    ``constraints`` are UUIDs.  A cluster is immutable, and caches derived
    values.
    """

    hosts: Mapping[str, Host]
    instances: Mapping[str, Instance]
    leases: Mapping[str, LeaseMembers] = dataclasses.field(
        default_factory=dict)
    in_flight: tuple[InFlight, ...] = ()
    items: Mapping[str, Item] = dataclasses.field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()

    def __getstate__(self) -> Mapping[str, object]:
        """Return the fields only: derived values may not be pickled."""
        return {one.name: getattr(self, one.name)
                for one in dataclasses.fields(self)}

    def at(self, place: str) -> Place:
        """Return a host or an item."""
        return self.items[place] if place in self.items else self.hosts[place]

    def hosts_of(self, place: str) -> tuple[str, ...]:
        """Return the hosts of an item, or the host itself."""
        return self.items[place].hosts if place in self.items else (place,)

    def places(self, host: str) -> tuple[str, ...]:
        """Return the names of a host and of its items."""
        return (host, *self._items_of.get(host, ()))

    @property
    def violated(self) -> bool:
        """Whether a policy of any place is violated."""
        return (any(host.violated for host in self.hosts.values())
                or any(item.violated for item in self.items.values()))

    def capacity(self, place: str | None, resource: str) -> float | None:
        """Return the capacity of a place for a measured resource, if known.

        ``place`` is None for an instance without a host.  Its use may have
        been measured on the largest host, whose capacity is returned.
        """
        if place is None:
            return self._largest[resource]
        if place in self.hosts:
            return self.hosts[place].capacity(resource)
        return (self._item_capacity[place, resource]
                if place in self.items else None)

    def percent(self, place: str, resource: str, instance: Instance
                ) -> float | None:
        """Return an instance's use of a measured resource, if it is known.

        It is in percent of ``place``, wherever the instance is.
        """
        amount = instance.use(resource)
        capacity = self.capacity(place, resource)
        return (None if amount is None or capacity is None
                else units.to_percent(amount, capacity))

    def are_alike(self, one: str | None, other: str | None,
                  resource: str) -> bool:
        """Return whether one percent is the same amount on two hosts."""
        return one == other or units.are_alike(
            *(self.capacity(host, resource) for host in (one, other)))

    @functools.cached_property
    def _largest(self) -> Lazy[str, float | None]:
        return Lazy(lambda resource: max(
            filter(None, (host.capacity(resource)
                          for host in self.hosts.values())), default=None))

    @functools.cached_property
    def _item_capacity(self) -> Lazy[tuple[str, str], float | None]:
        return Lazy(functools.partial(_item_capacity, self.hosts, self.items))

    def is_open(self, host: str, calm: bool = False) -> bool:
        """Return whether an instance may be brought to a host.

        With ``calm``, also require that no policy of the host or of its items
        fails at the moment.
        """
        one = self.hosts[host]
        return one.usable and not one.blocked and one.can_run and not any(
            policy.violated or (calm and policy.failed)
            for place in self.places(host)
            for policy in self.at(place).policies)

    def prefer_predicted(self, hosts: Iterable[str], instance: Instance,
                         newcomers: Mapping[str, int]) -> Iterable[str]:
        """Return hosts, those with the highest predicted performance first.

        Hosts with about equal predictions keep their order, and so do all if
        nothing is predicted for the instance.

        :param newcomers: number of instances that come to hosts and that the
            predictions have not counted.  Each counts like the new one
        """
        known = self._predicted[instance.workload_class]
        if not known:
            return hosts
        return sorted(hosts, key=lambda host: -round(
            known[host] ** (1 + newcomers.get(host, 0)) / _EQUAL_PERFORMANCE))

    @functools.cached_property
    def _predicted(self) -> Lazy[str | None, Mapping[str, float]]:
        """Predicted performance on each host by workload class."""
        return Lazy(functools.partial(_predicted_performance, self.hosts))

    @functools.cached_property
    def rules(self) -> PlacementRules:
        """All placement constraints at once."""
        return PlacementRules(self.constraints)

    @functools.cached_property
    def _items_of(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self.items):
            for host in self.items[name].hosts:
                found[host].append(name)
        return found

    def residents(self, place: str) -> list[Instance]:
        """Return the instances on the hosts of a place, sorted by UUID."""
        return sorted((one for host in self.hosts_of(place)
                       for one in self.by_host.get(host, ())), key=_UUID)

    def members(self, lease: str) -> list[Instance]:
        """Return the instances of a lease, sorted by UUID."""
        return sorted(self._by_lease.get(lease, ()), key=_UUID)

    def named_leases(self) -> Collection[str]:
        """Return the names of leases with instances, unordered."""
        return self._by_lease.keys()

    @functools.cached_property
    def by_host(self) -> Mapping[str, list[Instance]]:
        """Instances by host, unordered."""
        found: dict[str, list[Instance]] = defaultdict(list)
        for instance in self.instances.values():
            if instance.host is not None:
                found[instance.host].append(instance)
        return found

    @functools.cached_property
    def _by_lease(self) -> Mapping[str, list[Instance]]:
        found: dict[str, list[Instance]] = defaultdict(list)
        for instance in self.instances.values():
            found[instance.lease].append(instance)
        return found


def _item_capacity(hosts: Mapping[str, Host], items: Mapping[str, Item],
                   key: tuple[str, str]) -> float | None:
    item, resource = items[key[0]], key[1]
    sizes = [hosts[name].capacity(resource) for name in item.hosts]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or not known or not item.part:
        return None
    return sum(known) / len(known) / item.part


def _predicted_performance(hosts: Mapping[str, Host],
                           workload_class: str | None
                           ) -> Mapping[str, float]:
    found = [host.arrivals.get(workload_class or '')
             for host in hosts.values()]
    return dict(zip(hosts, fill_unknown([
        None if one is None else one.performance for one in found]),
        strict=False))


_UUID = operator.attrgetter('uuid')
