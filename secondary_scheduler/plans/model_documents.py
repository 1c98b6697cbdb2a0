# SPDX-License-Identifier: Apache-2.0

"""Clusters as JSON documents, for other tools.

A model document (``schema`` 1)::

    {"schema": 1,
     "hosts": [{"name": "n1", "capacity": {"cpus": 2, "vcpus": 4,
                "memory_mb": 4096, "disk_gb": 40, "slots": 4},
                "usage": {"cpu": 20.0}}],
     "policies": ["slots <= 2 for 10s"],
     "instances": [{"name": "vm1", "host": "n1", "lease": "l1",
                    "state": "active", "demand": {"vcpus": 1}}],
     "leases": [], "in_flight": []}

``items`` are switches, storage and the like, which hosts share::

    {"name": "uplink", "hosts": ["n1", "n2"], "part": 0.1,
     "usage": {"net_out": 30.0}, "policies": ["net_out <= 80% for 15s"]}

``part`` is the fraction of an item that one whole host makes up, the mean one
if hosts differ in size.  A policy "in" an aggregate makes an item of the
aggregate's hosts.

``capacity`` of a host is the inventory for secondaries; a missing resource is
0.  ``usage`` is use by primaries in percent of the host; a missing resource is
unknown.

``usage`` of an instance is in percent of the host on which it was measured:
its ``host``, or the largest one if it has none.  It is converted to an amount,
which the instance keeps on a host of another size.  So ``capacity`` also has
the amounts that are 100 %: ``cpus`` (default ``vcpus``) CPUs, ``mem`` (default
``memory_mb``) MiB, and ``net_in``, ``net_out``, ``disk_in`` and ``disk_out``
MB/s.  If no host gives the capacity of a resource, all hosts have the same;
``pressure`` is a share of time, the same on each host.

A host with 0 CPUs or no memory takes no instance.  A percentage of nothing is
unknown: no policy on it is violated.  A rate must be above 0.

Optional fields of an instance are ``priority``, ``preempt_policy``, ``group``
(its anti-affinity group), ``origin``, and the truth values of
``model.cluster.Instance``: ``preempted``, ``blocked``, ``resting``
(``cooling_down``), ``pinned`` (``migration_failed``) and ``stuck``
(``preempt_failed`` of an active instance, else ``return_failed``).
``"dirty_mb": {"in_1s": 20, "in_5s": 24}`` is the memory that it writes to,
which counts if the bandwidth of migrations is known, as in a cloud.

``workload_class`` of an instance, and ``"arrivals": {"web": {"slowdown": 1.2,
"harm": 0.1}}`` of a host, are what agents predict for one more instance of a
class (see ``model.arrivals``).

A context switch uses more optional fields.  Of an instance they are
``wanted``, the CPUs that it would use if nothing limited it, and
``running_s``, the seconds for which it has run.  Of a lease they are
``age_s``, the seconds since it arrived, and ``guaranteed``.  ``held`` of a
host, in the form of ``reserved``, is kept by the lease schedule.
``constraints`` are placement constraints (see ``plans.model_constraints``).

Policies apply to the hosts of their scope.  Their state is derived from the
model, as if the trigger had fired at this moment.  A host may instead list its
own ``policies`` with their counters.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import itertools
import typing

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.arrivals import Arrival
from secondary_scheduler.model.cluster import (
    Cluster,
    DirtyMemory,
    Host,
    HostPolicy,
    InFlight,
    Instance,
    InstanceState,
    Item,
    LeaseMembers,
)
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.plans import sizes
from secondary_scheduler.plans.model_constraints import (
    read_constraint,
    write_constraints,
)
from secondary_scheduler.plans.model_policies import (
    derive_counters,
    read_policies,
    read_policy,
    read_policy_with_counters,
    total_item,
    write_policies,
)
from secondary_scheduler.plans.plan_documents import (
    SCHEMA,
    check_schema,
    read_kind,
)
from secondary_scheduler.policies import language
from secondary_scheduler.reading.fields import DocumentError, Fields, load

_CLASSES = {'vcpus': vocabulary.VCPU, 'memory_mb': vocabulary.MEMORY_MB,
            'disk_gb': vocabulary.DISK_GB, 'slots': vocabulary.SLOT}
#: Fields that give the amount of a resource.
_GIVEN_BY = {'cpu': {'cpus', 'vcpus'}, 'mem': {'mem', 'memory_mb'}}
#: Resources whose use is in percent of a host.
_PERCENT = tuple(one for one in language.MODELLED
                 if one not in language.STATIC)

T = typing.TypeVar('T')


def read_model(text: str) -> Cluster:
    """Return the cluster that a document describes.

    :raises DocumentError: naming the field and the expected value
    """
    top = load(text)
    check_schema(top)
    policies = list(read_policies(top))
    leases = _named((_lease(one) for one in top.objects('leases', True)),
                    lambda lease: lease.name, 'leases')
    bound = _named(map(_host, top.objects('hosts')),
                   lambda found: found.host.name, 'hosts')
    hosts = dict(zip(bound, sizes.complete(
        [one.host for one in bound.values()],
        {name for one in bound.values() for name in one.given}), strict=True))
    empty = Cluster(hosts, {})
    instances = _named(
        (_instance(one, leases, empty) for one in top.objects('instances')),
        lambda instance: instance.uuid, 'instances')
    shared = _named(itertools.chain(
        (_item(one, hosts) for one in top.objects('items', True)),
        (total_item(policy, [hosts[name] for name, one in bound.items()
                             if policy.applies_to(name, one.aggregates)])
         for policy in policies if policy.total)),
        lambda found: found[0].name, 'items')
    flights = tuple(_in_flight(one, hosts, instances)
                    for one in top.objects('in_flight', True))
    constraints = tuple(read_constraint(one, hosts, instances)
                        for one in top.objects('constraints', True))
    top.done()
    for number, instance in enumerate(instances.values()):
        if instance.host is not None and instance.host not in hosts:
            raise DocumentError(
                f'instances[{number}].host: expected the name of a host in '
                f'hosts, not "{instance.host}"')
        if leases and instance.lease not in leases:
            raise DocumentError(
                f'instances[{number}].lease: expected the name of a lease in '
                f'leases, not "{instance.lease}"')
    cluster = Cluster(hosts, instances, leases, flights, {
        name: item for name, (item, _policies) in shared.items()},
        constraints)
    return dataclasses.replace(cluster, hosts={
        name: dataclasses.replace(host, policies=tuple(
            derive_counters(policy, cluster, name)
            for policy in bound[name].applicable(policies)))
        for name, host in hosts.items()}, items={
            name: dataclasses.replace(item, policies=tuple(
                derive_counters(policy, cluster, name) for policy in those))
            for name, (item, those) in shared.items()})


def _named(values: Iterator[T], name: Callable[[T], str],
           what: str) -> dict[str, T]:
    found: dict[str, T] = {}
    for number, value in enumerate(values):
        if name(value) in found:
            raise DocumentError(f'{what}[{number}].name: expected a name of '
                                f'its own, not "{name(value)}" again')
        found[name(value)] = value
    return found


def _lease(fields: Fields) -> LeaseMembers:
    lease = LeaseMembers(
        fields.text('name'), fields.number('priority', None),
        fields.number('owner_priority', vocabulary.DEFAULT_PRIORITY,
                      vocabulary.LOWEST_PRIORITY,
                      vocabulary.HIGHEST_PRIORITY),
        LeaseState(fields.choice('state', list(LeaseState),
                                 LeaseState.ACTIVE)),
        fields.number('waited_s', 0.0), fields.number('age_s', None),
        fields.truth('guaranteed', False))
    fields.done()
    return lease


def _instance(fields: Fields, leases: Mapping[str, LeaseMembers],
              measured_on: Cluster) -> Instance:
    name = fields.text('name')
    host = fields.text('host', None)
    lease = fields.text('lease', f'lease-{name}')
    demand = fields.object('demand', optional=True)
    usage = sizes.amounts(
        fields.numbers('usage', most=100, known=_PERCENT), host, measured_on)
    dirty = fields.object('dirty_mb', optional=True)
    known = leases.get(lease)
    given = None if known is None else known.priority
    state = InstanceState(fields.choice('state', tuple(InstanceState)))
    runs = state is InstanceState.ACTIVE
    stuck = fields.truth('stuck', False)
    instance = Instance(
        name, lease, host, state,
        demand.whole('vcpus', 1), demand.whole('memory_mb', 0),
        demand.whole('disk_gb', 0),
        dirty=DirtyMemory(dirty.number('in_1s', 0.0),
                          dirty.number('in_5s', 0.0)),
        priority=fields.number(
            'priority', vocabulary.DEFAULT_PRIORITY if given is None
            else given),
        preempt_policy=vocabulary.PreemptPolicy(fields.choice(
            'preempt_policy', tuple(vocabulary.PreemptPolicy), 'suspend')),
        cpu=usage.pop('cpu', None),
        wanted_cpu=fields.number('wanted', None),
        running_s=fields.number('running_s', None),
        preempted=fields.truth('preempted', False),
        blocked=fields.truth('blocked', False),
        cooling_down=fields.truth('resting', False),
        migration_failed=fields.truth('pinned', False),
        return_failed=stuck and not runs, preempt_failed=stuck and runs,
        anti_affinity=fields.text('group', None),
        origin=fields.text('origin', None), usage=usage,
        workload_class=fields.text('workload_class', None))
    demand.done()
    dirty.done()
    fields.done()
    return instance


class _Bound(typing.NamedTuple):
    """A host with its scopes; ``own`` if it lists its policies itself.

    ``given`` are those of CPUs and memory of which it gives an amount.
    """

    host: Host
    aggregates: list[str]
    own: list[HostPolicy] | None
    given: frozenset[str]

    def applicable(self, policies: Sequence[language.Policy]
                 ) -> Sequence[language.Policy | HostPolicy]:
        """Return the policies that apply to the host."""
        return self.own if self.own is not None else [
            policy for policy in policies if not policy.total
            and policy.applies_to(self.host.name, self.aggregates)]


def _host(fields: Fields) -> _Bound:
    name = fields.text('name')
    capacity = fields.object('capacity')
    given = frozenset(resource for resource, names in _GIVEN_BY.items()
                      if not names.isdisjoint(capacity.names))
    reserved = _take_amounts(fields.object('reserved', optional=True))
    held = _take_amounts(fields.object('held', optional=True))
    usage = fields.numbers('usage', most=100, known=_PERCENT)
    aggregates = fields.texts('aggregates')
    cpus = capacity.number('cpus', None)
    total = {_CLASSES[one]: capacity.whole(one, 0) for one in _CLASSES}
    host = Host(
        name, float(total[vocabulary.VCPU]) if cpus is None else cpus, total,
        reserved,
        usage.pop('cpu', None), usable=fields.truth('usable', True),
        blocked=fields.truth('blocked', False), usage=usage,
        capacities=sizes.read_capacities(capacity),
        held=held,
        arrivals=dict(_arrivals(fields.object('arrivals', optional=True))))
    own = ([read_policy_with_counters(one)
            for one in fields.objects('policies')]
           if 'policies' in fields.names else None)
    for one in (capacity, fields):
        one.done()
    return _Bound(host, aggregates, own, given)


def _arrivals(fields: Fields) -> Iterator[tuple[str, Arrival]]:
    for name in fields.names:
        one = fields.object(name)
        yield name, Arrival(one.number('slowdown', least=1),
                            one.number('harm'))
        one.done()


def _take_amounts(fields: Fields) -> dict[str, int]:
    amounts = {_CLASSES[one]: fields.whole(one) for one in _CLASSES
               if one in fields.names}
    fields.done(tuple(_CLASSES))
    return amounts


def _item(fields: Fields, hosts: Mapping[str, Host]
          ) -> tuple[Item, Sequence[language.Policy | HostPolicy]]:
    """Read an item and its policies."""
    members = fields.texts('hosts')
    item = Item(fields.text('name'), tuple(sorted(set(members))), (),
                fields.number('part', 1.0),
                fields.numbers('usage', most=100, known=_PERCENT))
    if item.name in hosts:
        fields.wrong('name', 'a name that no host has', item.name)
    for name in members:
        if name not in hosts:
            fields.wrong('hosts', 'names of hosts in hosts', members)
    policies = [
        read_policy(one, f'{fields.at("policies")}[{number}]')
        if isinstance(one, str) else read_policy_with_counters(
            Fields(one, f'{fields.at("policies")}[{number}]'))
        for number, one in enumerate(fields.items('policies'))]
    fields.done()
    return item, policies


def _in_flight(fields: Fields, hosts: Mapping[str, Host],
               instances: Mapping[str, Instance]) -> InFlight:
    found = InFlight(
        read_kind(fields), fields.text('instance'), fields.text('from', None),
        fields.text('to', None), fields.number('remaining_s'))
    if found.instance not in instances:
        fields.wrong('instance', 'the name of an instance in instances',
                     found.instance)
    for name, host in (('from', found.source), ('to', found.target)):
        if host is not None and host not in hosts:
            fields.wrong(name, 'the name of a host in hosts', host)
    if instances[found.instance].state is not InstanceState.BUSY:
        fields.wrong('instance', 'an instance whose state is busy',
                     found.instance)
    fields.done()
    return found


def write_model(cluster: Cluster) -> dict[str, object]:
    """Return a document from which the same cluster can be read.

    Each host lists its policies, since their counters are part of the model.
    If any lease is known, all are listed; the others have the priority of
    their instances.
    """
    leases = dict(cluster.leases)
    if leases:
        for one in sorted(cluster.instances.values(),
                          key=lambda one: one.priority):
            leases.setdefault(one.lease, LeaseMembers(one.lease, one.priority))
    return {
        'schema': SCHEMA,
        'policies': sorted({policy.text for host in cluster.hosts.values()
                            for policy in host.policies}),
        'hosts': [{
            'name': host.name,
            'capacity': {'cpus': host.cpus, **_amounts(host.total),
                         **host.capacities},
            'reserved': _amounts(host.reserved),
            'held': _amounts(host.held),
            'arrivals': {name: one._asdict()
                         for name, one in host.arrivals.items()},
            'usage': _usage(host.cpu_primary, host.usage),
            'usable': host.usable, 'blocked': host.blocked,
            'policies': write_policies(host.policies),
        } for host in cluster.hosts.values()],
        'items': [{
            'name': item.name, 'hosts': list(item.hosts), 'part': item.part,
            'usage': dict(item.usage),
            'policies': write_policies(item.policies),
        } for item in cluster.items.values()],
        'instances': [{
            'name': one.uuid, 'host': one.host, 'lease': one.lease,
            'state': str(one.state),
            'demand': {'vcpus': one.vcpus, 'memory_mb': one.memory_mb,
                       'disk_gb': one.disk_gb},
            'usage': sizes.percentages(one, cluster),
            'wanted': one.wanted_cpu, 'running_s': one.running_s,
            'priority': one.priority,
            'preempt_policy': str(one.preempt_policy),
            'preempted': one.preempted, 'blocked': one.blocked,
            'resting': one.cooling_down, 'pinned': one.migration_failed,
            'stuck': one.return_failed or one.preempt_failed,
            'group': one.anti_affinity,
            'origin': one.origin, 'dirty_mb': one.dirty._asdict(),
            'workload_class': one.workload_class,
        } for one in cluster.instances.values()],
        'leases': [dataclasses.asdict(lease)
                   for lease in leases.values()],
        'in_flight': [{
            'kind': str(one.kind), 'instance': one.instance,
            'from': one.source, 'to': one.target,
            'remaining_s': one.remaining_s} for one in cluster.in_flight],
        'constraints': write_constraints(cluster.constraints),
    }


def _amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    return {one: amounts[name] for one, name in _CLASSES.items()
            if name in amounts}


def _usage(cpu: float | None, others: Mapping[str, float]
           ) -> dict[str, float]:
    return {**({} if cpu is None else {'cpu': cpu}), **others}
