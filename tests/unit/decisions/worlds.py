# SPDX-License-Identifier: Apache-2.0

"""Small and random clusters, and clusters after a plan."""

import dataclasses
import random

from hypothesis import strategies as st

from secondary_scheduler.model import units, vocabulary
from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    Instance,
    InstanceState,
    Item,
)
from secondary_scheduler.model.constraints import (
    Among,
    Ban,
    Fence,
    Gather,
    Lonely,
    Quarantine,
    Root,
    Split,
    Spread,
)
from secondary_scheduler.model.vocabulary import PreemptPolicy
from secondary_scheduler.plans.operations import OperationKind, Plan
from secondary_scheduler.policies.language import MODELLED

#: One CPU, and one unit of any other resource, is one percent.
CPUS = 100.0
CAPACITIES = {one: 100.0 for one in units.UNITS if one != 'cpu'}
#: CPUs of hosts of several generations.
SIZES = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
TOTAL = {vocabulary.VCPU: 8, vocabulary.MEMORY_MB: 4096,
         vocabulary.DISK_GB: 40, vocabulary.SLOT: 8}


def cpu_policy(threshold=90.0, failed=0, violated=False):
    return HostPolicy(f'cpu <= {threshold:g}% for 10s', 'cpu', threshold, 10,
                      failed, violated)


def slots_policy(count, violated=False):
    return HostPolicy(f'slots <= {count} for 60s', 'slots', count, 60,
                      int(violated), violated)


def host(name, primary=20.0, violated=False, **values):
    values.setdefault('policies', (cpu_policy(
        failed=4 if violated else 0, violated=violated),))
    values.setdefault('total', TOTAL)
    values.setdefault('capacities', CAPACITIES)
    return Host(name, values.pop('cpus', CPUS), cpu_primary=primary,
                **values)


def vm(uuid, where, state=InstanceState.ACTIVE, **values):
    values.setdefault('lease', f'lease-{uuid}')
    return Instance(uuid, host=where, state=state,
                    **{'vcpus': 1, 'memory_mb': 256, 'disk_gb': 1, **values})


def cluster(*things):
    return Cluster(
        {one.name: one for one in things if isinstance(one, Host)},
        {one.uuid: one for one in things if isinstance(one, Instance)},
        items={one.name: one for one in things if isinstance(one, Item)})


def apply(before, plan):
    """Return the cluster after a plan, by Nova's facts."""
    instances = dict(before.instances)
    for operation in plan.operations:
        old = instances[operation.instance]
        changes = {'state': InstanceState.ACTIVE, 'host': operation.target}
        if operation.kind is OperationKind.MIGRATE:
            origin = old.origin or old.host
            changes['origin'] = (None if origin == operation.target
                                 else origin)
        elif operation.kind in (
            OperationKind.SUSPEND,
            OperationKind.STOP,
            OperationKind.SHELVE,
        ):
            changes = {
                'preempted': True,
                'state': {
                    OperationKind.SUSPEND: InstanceState.SUSPENDED,
                    OperationKind.STOP: InstanceState.STOPPED,
                    OperationKind.SHELVE: InstanceState.SHELVED,
                }[operation.kind],
            }
            if operation.kind is OperationKind.SHELVE:
                changes['host'] = None
        else:
            changes['preempted'] = False
        instances[old.uuid] = dataclasses.replace(
            old, return_failed=False, preempt_failed=False, **changes)
    return dataclasses.replace(before, instances=instances)


def on(world, name, *states):
    """Return the instances on a host that are in one of some states."""
    return [i for i in world.instances.values()
            if i.host == name and i.state in states]


def settle(before, plan):
    """Apply a plan and block its hosts and instances, as the watcher does."""
    after = apply(before, plan)
    uuids = {operation.instance for operation in plan.operations}
    names = {operation.source for operation in plan.operations} | {
        after.instances[uuid].host for uuid in uuids}
    return dataclasses.replace(after, hosts={
        name: dataclasses.replace(old, blocked=old.blocked or name in names)
        for name, old in after.hosts.items()}, instances={
            uuid: dataclasses.replace(
                old, blocked=old.blocked or uuid in uuids)
            for uuid, old in after.instances.items()})


def relieved(before, resources=tuple(
        one for one in MODELLED if one != 'slots')):
    """Return a cluster in which no policy on the resources fails."""
    return dataclasses.replace(before, hosts={
        name: dataclasses.replace(old, policies=tuple(
            dataclasses.replace(policy, failed=0, violated=False)
            if policy.resource in resources else policy
            for policy in old.policies))
        for name, old in before.hosts.items()})


def left_alone(world, one):
    """Return whether an instance prevents preemption of its lease."""
    needed = any(
        policy.violated and policy.static
        for peer in world.members(one.lease)
        if peer.host
        and peer.state in (InstanceState.ACTIVE, InstanceState.BUSY)
        for place in world.places(peer.host)
        for policy in world.at(place).policies
    )
    return (one.blocked or one.state is InstanceState.BUSY
            or (one.cooling_down and not needed))


def kinds(plan: Plan):
    """Return kind and target of operations by instance."""
    return {o.instance: (str(o.kind), o.target) for o in plan.operations}


_LIVING = [InstanceState.ACTIVE] * 16 + \
    [InstanceState.BUSY, InstanceState.OTHER]
_DOWN = [InstanceState.SUSPENDED, InstanceState.STOPPED, InstanceState.SHELVED]
_OTHERS = [one for one in MODELLED if one not in ('cpu', 'slots', 'cores')]


def _random_host(rng, name, violations):
    violated = violations and rng.random() < 0.5
    failed = 4 if violated else rng.choice([0, 0, 0, 2])
    policies = [cpu_policy(rng.choice([60.0, 80.0, 90.0]), failed, violated)]
    if rng.random() < 0.2:
        policies.append(slots_policy(
            rng.randint(0, 4), violations and rng.random() < 0.5))
    if rng.random() < 0.2:
        policies.append(_other_policy(
            rng, violations and rng.random() < 0.5))
    return Host(
        name, rng.choice(SIZES),
        total={**TOTAL, vocabulary.VCPU: rng.randint(2, 12)},
        reserved={vocabulary.SLOT: rng.randint(0, 4)},
        cpu_primary=rng.choice([None, rng.uniform(0, 100),
                                rng.uniform(0, 60), rng.uniform(0, 60)]),
        policies=tuple(policies), usable=rng.random() > 0.15,
        blocked=rng.random() < 0.15, usage={
            one: rng.uniform(0, 60) for one in _OTHERS
            if rng.random() < 0.9}, capacities=_random_capacities(rng))


def _random_capacities(rng):
    """Return MiB of memory, and MB/s of links and disks."""
    return {one: rng.choice([16384.0, 65536.0, 524288.0] if one == 'mem'
                            else [125.0, 1250.0, 3125.0])
            for one in CAPACITIES}


def _other_policy(rng, violated):
    """Return a policy on a resource other than CPU and slots."""
    resource = rng.choice([*_OTHERS, 'cores'])
    limit = (str(rng.randint(0, 6)) if resource == 'cores'
             else rng.choice(['40%', '75%']))
    return HostPolicy(f'{resource} <= {limit} for 15s', resource,
                      float(limit.strip('%')), 15, 5 if violated else 0,
                      violated)


def _random_items(rng, names, violations):
    """Yield up to two items, each of two hosts."""
    for number in range(rng.choice([0, 0, 1, 2])):
        policy = _other_policy(rng, violations and rng.random() < 0.3)
        if policy.resource == 'cores':
            policy = slots_policy(rng.randint(0, 8), policy.violated)
        yield Item(
            f's{number}', tuple(sorted(rng.sample(names, min(2, len(names))))),
            (policy,), rng.choice([0.1, 0.5]), {
                one: rng.uniform(0, 60) for one in _OTHERS})


def _random_usage(rng, where, hosts):
    """Return amounts that are a few percent of some host."""
    measured_on = Cluster(hosts, {})
    return {one: units.to_amount(
        round(rng.uniform(0, 30), 6), measured_on.capacity(where, one))
        for one in ('cpu', *_OTHERS) if one != 'cpu' or rng.random() < 0.5}


def _random_instance(rng, uuid, hosts, failed):
    preempted = rng.random() < 0.25
    state = rng.choice(_DOWN if preempted else _LIVING + _DOWN)
    where = None if state is InstanceState.SHELVED else rng.choice([*hosts])
    usage = _random_usage(rng, where, hosts)
    made = Instance(
        uuid, f'lease-{rng.randint(0, 9)}', where,
        state, rng.randint(1, 3), 256, 1, priority=rng.randint(1, 10),
        cpu=usage.pop('cpu', None), usage=usage,
        preempt_policy=rng.choice(list(PreemptPolicy)), preempted=preempted,
        blocked=rng.random() < 0.04, cooling_down=rng.random() < 0.1,
        return_failed=failed > 0 and rng.random() < failed,
        anti_affinity=rng.choice([None, None, None, 'g1', 'g2']),
        origin=rng.choice([None, None, *hosts]))
    return made if state is not InstanceState.ACTIVE else dataclasses.replace(
        made, return_failed=False, preempt_failed=made.return_failed)


def random_cluster(seed, hosts, instances, violations, failed=0.0,
                   alike=False):
    """Return a random cluster; its hosts have any size, or are ``alike``."""
    rng = random.Random(seed)
    names = [f'h{number}' for number in range(hosts)]
    items = list(_random_items(rng, names, violations))
    made = {name: _random_host(rng, name, violations) for name in names}
    if alike:
        made = {name: dataclasses.replace(one, cpus=CPUS,
                                          capacities=CAPACITIES)
                for name, one in made.items()}
    return cluster(
        *items, *made.values(),
        *(_random_instance(rng, f'i{number:02}', made, failed)
          for number in range(instances)))


def scaled(world, times):
    """Return a cluster with larger hosts and instances."""
    def larger(amounts):
        return {one: times * amount if one in units.UNITS else amount
                for one, amount in amounts.items()}

    return dataclasses.replace(world, hosts={
        name: dataclasses.replace(
            one, cpus=times * one.cpus, capacities=larger(one.capacities))
        for name, one in world.hosts.items()}, instances={
            uuid: dataclasses.replace(
                one, cpu=None if one.cpu is None else times * one.cpu,
                usage=larger(one.usage))
            for uuid, one in world.instances.items()})


def hot_cluster(seed):
    """Return a cluster with violated policies on CPU and links only.

    Hosts have 4 to 128 CPUs, and links of any speed.
    """
    rng = random.Random(seed)
    hosts, guests = [], []
    plenty = dict.fromkeys(TOTAL, 10**6)
    for number in range(rng.randint(2, 8)):
        one = host(f'h{number}', rng.uniform(0, 60), cpus=rng.choice(SIZES),
                   capacities=_random_capacities(rng), total=plenty,
                   usage={'net_out': rng.uniform(0, 60)}, policies=())
        there = [vm(
            f'i{number}{place:02}', one.name, vcpus=1, priority=rng.randint(
                1, 10), lease=f'lease-{rng.randint(0, 9)}',
            cpu=one.cpus * rng.uniform(0.0, 0.25),
            usage={'net_out': rng.choice([0.0, rng.uniform(0, 0.2)])
                   * one.capacities['net_out']})
            for place in range(rng.randint(0, 8))]
        cpu, net = one.cpu_primary, one.usage['net_out']
        cpu += 100 * sum(guest.cpu for guest in there) / one.cpus
        net += 100 * sum(guest.usage['net_out'] for guest in there
                         ) / one.capacities['net_out']
        hosts.append(dataclasses.replace(one, policies=tuple(
            HostPolicy(f'{resource} <= 80% for 600s', resource, 80.0, 600,
                       9 * (used > 80), used > 80, 9)
            for resource, used in (('cpu', cpu), ('net_out', net)))))
        guests += there
    return cluster(*hosts, *guests)


def planted_cluster(seed):
    """Return a violated cluster, and a repair by migrations only.

    Instances are placed so that every policy holds.  Then some are moved to
    other hosts, whose policies they violate.  The repair moves them back; it
    is the target by instance.
    """
    rng = random.Random(seed)
    names = [f'h{number}' for number in range(rng.randint(2, 6))]
    instances, number = {}, 0
    for name in names:
        for _one in range(rng.randint(1, 4)):
            uuid, number = f'i{number:02}', number + 1
            instances[uuid] = vm(
                uuid, name, lease=f'lease-{rng.randint(0, 7)}', cpu=0.2,
                preempt_policy=rng.choice(list(PreemptPolicy)))
    priorities = {f'lease-{one}': rng.randint(1, 10) for one in range(8)}
    slots = {name: sum(i.host == name for i in instances.values())
             for name in names}
    bad = rng.sample(names, rng.randint(1, max(1, len(names) // 2)))
    repair = {}
    for uuid in rng.sample(sorted(instances), len(instances)):
        home = instances[uuid].host
        if home not in bad and len(repair) < 4 and (
                not repair or rng.random() < 0.5):
            repair[uuid] = home
            instances[uuid] = dataclasses.replace(
                instances[uuid], host=rng.choice(bad))
    broken = {instances[uuid].host for uuid in repair}
    hosts = [host(name, 10.0, cpus=rng.choice(SIZES), policies=(
        cpu_policy(90.0), slots_policy(slots[name], name in broken)))
        for name in names]
    return cluster(*hosts, *(
        dataclasses.replace(one, priority=priorities[one.lease])
        for one in instances.values())), repair


def planted_clusters():
    """Return a strategy of violated clusters with a repair."""
    return st.builds(planted_cluster, st.integers(0, 2**32))


def clusters(violations=True, failed=0.0, alike=False):
    """Return a strategy of clusters; only their sizes shrink."""
    return st.builds(random_cluster, st.integers(0, 2**32),
                     st.integers(1, 6), st.integers(0, 20),
                     st.just(violations), st.just(failed), st.just(alike))


def constrain(cluster, seed):
    """Return a cluster with random placement constraints."""
    rng = random.Random(seed)
    uuids, hosts = sorted(cluster.instances), sorted(cluster.hosts)

    def some(names, most=3):
        return frozenset(rng.sample(names, min(rng.randint(1, most),
                                               len(names))))

    def parts(names):
        shuffled = rng.sample(names, len(names))
        middle = rng.randint(1, max(1, len(names) - 1))
        return tuple(frozenset(one) for one in (
            shuffled[:middle], shuffled[middle:]) if one)

    makes = [lambda: Spread(some(uuids)), lambda: Gather(some(uuids)),
             lambda: Lonely(some(uuids)), lambda: Root(some(uuids)),
             lambda: Ban(some(uuids), some(hosts)),
             lambda: Fence(some(uuids), some(hosts)),
             lambda: Among(some(uuids), parts(hosts)),
             lambda: Split(parts(uuids[:6]))] if uuids else []
    makes.append(lambda: Quarantine(some(hosts, 2)))
    return dataclasses.replace(cluster, constraints=tuple(
        rng.choice(makes)() for _number in range(rng.randint(1, 4))))


def constrained_clusters():
    """Return a strategy of clusters with placement constraints."""
    return st.builds(constrain, st.one_of(
        clusters(failed=0.1), hot_clusters(), planted_clusters().map(
            lambda planted: planted[0])), st.integers(0, 2**32))


def hot_clusters():
    """Return a strategy of clusters with violations by use."""
    return st.builds(hot_cluster, st.integers(0, 2**32))
