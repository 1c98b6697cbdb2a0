"""Clusters and plans as JSON, for tools that are not ours.

A model document (``schema`` 1)::

    {"schema": 1,
     "hosts": [{"name": "n1", "capacity": {"cpus": 2, "vcpus": 4,
                "memory_mb": 4096, "disk_gb": 40, "slots": 4},
                "usage": {"cpu": 20.0}}],
     "policies": ["slots <= 2 for 10s"],
     "instances": [{"name": "vm1", "host": "n1", "lease": "l1",
                    "state": "active", "demand": {"vcpus": 1}}],
     "leases": [], "in_flight": []}

``items`` may name what hosts share, a switch or a storage::

    {"name": "uplink", "hosts": ["n1", "n2"], "part": 0.1,
     "usage": {"net_out": 30.0}, "policies": ["net_out <= 80% for 15s"]}

``part`` is what the whole of one host is of it, of hosts that differ in size
what their mean is.  A policy "in" an aggregate makes an item of the
aggregate's hosts.

``capacity`` is what secondaries may hold, ``usage`` what all others use, in
percent of the host; a resource that is left out of capacity is 0, and out of
usage unknown.

``usage`` of an instance is in percent of the host on which it was measured:
its ``host``, or the largest one where it has none.  It is read as an amount,
which the instance takes with it to a host of another size.  So ``capacity``
says as well what 100 % are: ``cpus`` (``vcpus`` if left out) CPUs, ``mem``
(``memory_mb`` if left out) MiB, and ``net_in``, ``net_out``, ``disk_in`` and
``disk_out`` MB/s.  Hosts of which none gives it are alike in a resource;
``pressure`` is a share of time, on each host the same.

An instance may say how much of its memory it writes to, ``"dirty_mb":
{"in_1s": 20, "in_5s": 24}``, which counts where the bandwidth of migrations
is known, as in a cloud.

Policies bind the hosts of their scope.  How they stand there is seen from the
model, as if the trigger had fired at this moment, unless the host lists its
``policies`` itself, with their counters.

A plan document has ``operations`` in the order in which they were decided,
the ``unresolved`` hosts, ``truncated``, and a ``score`` that is derived from
the operations and checked when it is read.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import itertools
import operator
import typing

from secondary_scheduler.model import units, vocabulary
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
from secondary_scheduler.plans.operations import Operation, OperationKind, Plan
from secondary_scheduler.policies import language, triggers
from secondary_scheduler.reading.fields import DocumentError, Fields, load

SCHEMA = 1

#: Failed checks before the trigger fires, by timelimit (Boettger Table 6.3).
SENSITIVITY = {25: 7, 20: 6, 15: 5, 10: 4, 8: 3, 6: 2}

_CLASSES = {'vcpus': vocabulary.VCPU, 'memory_mb': vocabulary.MEMORY_MB,
            'disk_gb': vocabulary.DISK_GB, 'slots': vocabulary.SLOT}
#: In the format's list of kinds, but an agent's means and no plan's.
_AGENTS_KINDS = ('freeze', 'kill')
#: Resources whose use is in percent of a host.
_PERCENT = tuple(one for one in language.MODELLED
                 if one not in language.STATIC)
_RUNNING = (InstanceState.ACTIVE, InstanceState.BUSY, InstanceState.OTHER)

T = typing.TypeVar('T')


def read_model(text: str) -> Cluster:
    """Return the cluster that a document describes.

    :raises DocumentError: naming the field and what is expected there.
    """
    top = load(text)
    _schema(top)
    policies = list(_policies(top))
    leases = _named((_lease(one) for one in top.objects('leases', True)),
                    lambda lease: lease.name, 'leases')
    bound = _named(map(_host, top.objects('hosts')),
                   lambda found: found.host.name, 'hosts')
    hosts = dict(zip(bound, sizes.complete(
        [one.host for one in bound.values()]), strict=True))
    empty = Cluster(hosts, {})
    instances = _named(
        (_instance(one, leases, empty) for one in top.objects('instances')),
        lambda instance: instance.uuid, 'instances')
    shared = _named(itertools.chain(
        (_item(one, hosts) for one in top.objects('items', True)),
        (_total(policy, [hosts[name] for name, one in bound.items()
                         if policy.applies_to(name, one.aggregates)])
         for policy in policies if policy.total)),
        lambda found: found[0].name, 'items')
    flights = tuple(_in_flight(one, hosts, instances)
                    for one in top.objects('in_flight', True))
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
        name: item for name, (item, _policies) in shared.items()})
    return dataclasses.replace(cluster, hosts={
        name: dataclasses.replace(host, policies=tuple(
            _standing_of(policy, cluster, name)
            for policy in bound[name].bound_by(policies)))
        for name, host in hosts.items()}, items={
            name: dataclasses.replace(item, policies=tuple(
                _standing_of(policy, cluster, name) for policy in those))
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


def _schema(top: Fields) -> None:
    version = top.whole('schema')
    if version != SCHEMA:
        top.wrong('schema', f'the version {SCHEMA}', version)


def _policies(top: Fields) -> Iterator[language.Policy]:
    for number, text in enumerate(top.texts('policies')):
        yield _policy(text, f'policies[{number}]')


def _policy(text: str, path: str) -> language.Policy:
    try:
        return language.parse(text, language.MODELLED, language.MODELLED)
    except language.PolicyError as exc:
        raise DocumentError(
            f'{path}: column {exc.column}: {exc.message}; expected something '
            f'like "{exc.example}"') from None


def _lease(fields: Fields) -> LeaseMembers:
    lease = LeaseMembers(
        fields.text('name'), fields.number('priority', None),
        fields.number('owner_priority', vocabulary.DEFAULT_PRIORITY,
                      vocabulary.LOWEST_PRIORITY,
                      vocabulary.HIGHEST_PRIORITY),
        LeaseState(fields.choice('state', list(LeaseState),
                                 LeaseState.ACTIVE)),
        fields.number('waited_s', 0.0))
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
        preempted=fields.truth('preempted', False),
        blocked=fields.truth('blocked', False),
        cooling_down=fields.truth('resting', False),
        migration_failed=fields.truth('pinned', False),
        return_failed=stuck and not runs, preempt_failed=stuck and runs,
        anti_affinity=fields.text('group', None),
        origin=fields.text('origin', None), usage=usage)
    demand.done()
    dirty.done()
    fields.done()
    return instance


class _Bound(typing.NamedTuple):
    """A host, and what binds it; ``own`` if it lists its policies itself."""

    host: Host
    aggregates: list[str]
    own: list[HostPolicy] | None

    def bound_by(self, policies: Sequence[language.Policy]
                 ) -> Sequence[language.Policy | HostPolicy]:
        """Return its own policies, or those whose scope it is in."""
        return self.own if self.own is not None else [
            policy for policy in policies if not policy.total
            and policy.applies_to(self.host.name, self.aggregates)]


def _host(fields: Fields) -> _Bound:
    name = fields.text('name')
    capacity = fields.object('capacity')
    reserved = fields.object('reserved', optional=True)
    usage = fields.numbers('usage', most=100, known=_PERCENT)
    aggregates = fields.texts('aggregates')
    cpus = capacity.number('cpus', None)
    total = {_CLASSES[one]: capacity.whole(one, 0) for one in _CLASSES}
    host = Host(
        name, float(total[vocabulary.VCPU]) if cpus is None else cpus, total,
        {_CLASSES[one]: reserved.whole(one) for one in _CLASSES
         if one in reserved.names},
        usage.pop('cpu', None), usable=fields.truth('usable', True),
        blocked=fields.truth('blocked', False), usage=usage,
        capacities={one: size for one in units.UNITS if one != 'cpu'
                    and (size := capacity.number(one, None))})
    own = ([_counted(one) for one in fields.objects('policies')]
           if 'policies' in fields.names else None)
    for one in (capacity, reserved, fields):
        one.done()
    return _Bound(host, aggregates, own)


def _item(fields: Fields, hosts: Mapping[str, Host]
          ) -> tuple[Item, Sequence[language.Policy | HostPolicy]]:
    """Read what hosts share, and its policies."""
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
        _policy(one, f'{fields.at("policies")}[{number}]')
        if isinstance(one, str) else _counted(
            Fields(one, f'{fields.at("policies")}[{number}]'))
        for number, one in enumerate(fields.items('policies'))]
    fields.done()
    return item, policies


def _total(policy: language.Policy, hosts: Sequence[Host]
           ) -> tuple[Item, Sequence[language.Policy]]:
    """Return what a policy on several hosts together binds.

    Use of which that of any host is not known is unknown; a large host counts
    in proportion to its size.
    """
    resource = policy.resource
    uses = [host.primary_use(resource) for host in hosts]
    known = [use for use in uses if use is not None]
    weights = [host.capacity(resource) or 0.0 for host in hosts]
    usage = {}
    if len(known) == len(uses) and any(weights):
        usage[resource] = (sum(map(operator.mul, known, weights))
                           / sum(weights))
    return Item(
        policy.text, tuple(sorted(host.name for host in hosts)), (),
        1 / max(1, len(hosts)), usage), (policy,)


def _counted(fields: Fields) -> HostPolicy:
    """Read a policy that comes with its counters."""
    policy = _policy(fields.text('text'), fields.at('text'))
    sensitivity = fields.whole('sensitivity', _sensitivity(policy), least=1)
    failed = fields.whole('failed', 0)
    violated = fields.truth('violated', failed >= sensitivity)
    fields.done()
    return HostPolicy(policy.text, policy.resource, policy.threshold,
                      policy.timelimit, failed, violated, sensitivity)


def _standing_of(policy: language.Policy | HostPolicy, cluster: Cluster,
                 name: str) -> HostPolicy:
    """See from the model how a policy stands at a place.

    Unknown use fails no policy, since nothing was measured.
    """
    if isinstance(policy, HostPolicy):
        return policy   # it came with its counters
    here = [one for one in cluster.residents(name) if one.state in _RUNNING]
    if policy.static:
        fails = sum(one.holds(policy.resource)
                    for one in here) > policy.threshold
    else:
        primary = cluster.at(name).primary_use(policy.resource)
        fails = bool(here) and primary is not None and primary + sum(
            cluster.percent(name, policy.resource, one) or 0.0
            for one in here) > policy.threshold
    sensitivity = _sensitivity(policy)
    return HostPolicy(policy.text, policy.resource, policy.threshold,
                      policy.timelimit, sensitivity if fails else 0, fails,
                      sensitivity)


def _sensitivity(policy: language.Policy) -> int:
    return 1 if policy.static else triggers.sensitivity_for(
        policy.timelimit, SENSITIVITY)


def _in_flight(fields: Fields, hosts: Mapping[str, Host],
               instances: Mapping[str, Instance]) -> InFlight:
    found = InFlight(
        _kind(fields), fields.text('instance'), fields.text('from', None),
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


def _kind(fields: Fields) -> OperationKind:
    kind = fields.choice('kind', (*OperationKind, *_AGENTS_KINDS))
    if kind in _AGENTS_KINDS:
        fields.wrong(
            'kind',
            'one of ' + ', '.join(OperationKind) + ' (an agent '
            'freezes and kills by itself, never by a plan)',
            kind,
        )
    return OperationKind(kind)


def write_model(cluster: Cluster) -> dict[str, object]:
    """Return a document from which the same cluster can be read.

    Each host lists its policies, since their counters are part of the model.
    If any lease is known, all are listed, the others with the priority that
    they have by their instances.
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
            'usage': _usage(host.cpu_primary, host.usage),
            'usable': host.usable, 'blocked': host.blocked,
            'policies': _standing(host.policies),
        } for host in cluster.hosts.values()],
        'items': [{
            'name': item.name, 'hosts': list(item.hosts), 'part': item.part,
            'usage': dict(item.usage), 'policies': _standing(item.policies),
        } for item in cluster.items.values()],
        'instances': [{
            'name': one.uuid, 'host': one.host, 'lease': one.lease,
            'state': str(one.state),
            'demand': {'vcpus': one.vcpus, 'memory_mb': one.memory_mb,
                       'disk_gb': one.disk_gb},
            'usage': sizes.percentages(one, cluster),
            'priority': one.priority,
            'preempt_policy': str(one.preempt_policy),
            'preempted': one.preempted, 'blocked': one.blocked,
            'resting': one.cooling_down, 'pinned': one.migration_failed,
            'stuck': one.return_failed or one.preempt_failed,
            'group': one.anti_affinity,
            'origin': one.origin, 'dirty_mb': one.dirty._asdict(),
        } for one in cluster.instances.values()],
        'leases': [dataclasses.asdict(lease)
                   for lease in leases.values()],
        'in_flight': [{
            'kind': str(one.kind), 'instance': one.instance,
            'from': one.source, 'to': one.target,
            'remaining_s': one.remaining_s} for one in cluster.in_flight],
    }


def _standing(policies: Sequence[HostPolicy]) -> list[dict[str, object]]:
    return [{'text': policy.text, 'failed': policy.failed,
             'violated': policy.violated, 'sensitivity': policy.sensitivity}
            for policy in policies]


def _amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    return {one: amounts[name] for one, name in _CLASSES.items()
            if name in amounts}


def _usage(cpu: float | None, others: Mapping[str, float]
           ) -> dict[str, float]:
    return {**({} if cpu is None else {'cpu': cpu}), **others}


def read_plan(text: str) -> Plan:
    """Return the plan that a document describes, good or bad.

    What it says about a cluster is for the checker to judge.

    :raises DocumentError: naming the field and what is expected there.
    """
    top = load(text)
    _schema(top)
    operations = tuple(map(_operation, top.objects('operations')))
    plan = Plan(operations, tuple(top.texts('unresolved')),
                top.truth('truncated', False))
    if 'score' in top.names:
        given = top.numbers('score')
        if given != score(plan):
            top.wrong('score', 'what follows from the operations, '
                      f'{score(plan)}, or none', given)
    top.done()
    return plan


def _operation(fields: Fields) -> Operation:
    operation = Operation(
        fields.whole('id'), _kind(fields), fields.text('instance'),
        fields.text('lease'), fields.text('from', None),
        fields.text('to', None), fields.number('start_s'),
        fields.number('duration_s'), tuple(fields.wholes('after')),
        fields.number('deadline_s', None))
    fields.done()
    return operation


def score(plan: Plan) -> dict[str, float]:
    """Return how many operations of each kind a plan has, and its length.

    ``makespan_s`` is the time at which the last is expected to end.
    """
    kinds = Counter(str(one.kind) for one in plan.operations)
    return {**{str(kind): float(kinds[kind]) for kind in OperationKind},
            'makespan_s': max((one.start_s + one.duration_s
                               for one in plan.operations), default=0.0)}


def write_plan(plan: Plan) -> dict[str, object]:
    """Return a document from which the same plan can be read."""
    return {
        'schema': SCHEMA,
        'operations': [{
            'id': one.id, 'kind': str(one.kind), 'instance': one.instance,
            'lease': one.lease, 'from': one.source, 'to': one.target,
            'start_s': one.start_s, 'duration_s': one.duration_s,
            'after': list(one.after), 'deadline_s': one.deadline_s}
            for one in plan.operations],
        'unresolved': list(plan.unresolved), 'score': score(plan),
        'truncated': plan.truncated}
