# SPDX-License-Identifier: Apache-2.0

"""All executions of small plans, by enumeration.

An operation may start as soon as those that it waits for have ended, and may
take any time.  So a state is a set of operations that have started, and a set
of those that have ended.
"""

from collections import defaultdict
import dataclasses
import itertools
import random

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    Cluster,
    HostPolicy,
    InstanceState,
)
from secondary_scheduler.model.constraints import (
    Among,
    Gather,
    Lonely,
    Split,
    Spread,
)
from secondary_scheduler.plans.operations import (
    ClaimedState,
    Operation,
    OperationKind,
    Plan,
    SwitchClaim,
)
from tests.unit.decisions.worlds import TOTAL, host, vm

HOSTS = ('h0', 'h1', 'h2')
_CHAINS = {InstanceState.ACTIVE: ('', 'm', 'm', 'm', 'mm', 's', 'sr', 'srm',
                                  'msr'),
           InstanceState.SUSPENDED: ('', 'r', 'rm')}
_KINDS = {'m': OperationKind.MIGRATE, 's': OperationKind.SUSPEND,
          'r': OperationKind.RESUME}


def draw(seed):
    """Return a small cluster, a plan on it that may be wrong, and lanes."""
    rng = random.Random(seed)
    instances = [vm(
        f'v{number}', rng.choice(HOSTS),
        rng.choice([InstanceState.ACTIVE] * 3 + [InstanceState.SUSPENDED]),
        memory_mb=rng.randint(0, 3)) for number in range(rng.randint(2, 5))]
    chains = {one.uuid: rng.choice(_CHAINS[one.state]) for one in instances}
    while sum(map(len, chains.values())) > 6:
        del chains[max(chains)]
    at = {one.uuid: one.host for one in instances}
    turns = [uuid for uuid, chain in chains.items() for _one in chain]
    rng.shuffle(turns)
    done, last, operations = defaultdict(int), {}, []
    for number, uuid in enumerate(turns):
        kind = _KINDS[chains[uuid][done[uuid]]]
        done[uuid] += 1
        after = {one for one in range(number) if rng.random() < 0.25}
        after |= {last[uuid]} if uuid in last else set()
        last[uuid] = number
        start = max((operations[one].start_s + operations[one].duration_s
                     for one in after), default=0.0)
        target = {OperationKind.MIGRATE: rng.choice(
            [one for one in HOSTS if one != at[uuid]]),
            OperationKind.RESUME: at[uuid]}.get(kind)
        operations.append(Operation(
            number, kind, uuid, f'lease-{uuid}', at[uuid], target,
            start + rng.choice([0.0, 0.0, 7.5, 20.0]), rng.uniform(1, 9),
            tuple(sorted(after))))
        at[uuid] = target or at[uuid]
    cluster = Cluster(
        {name: host(name, total={
            **TOTAL, vocabulary.SLOT: rng.choice([2, 3, 9]),
            vocabulary.MEMORY_MB: rng.choice([3, 5, 9])},
            policies=(HostPolicy('', 'slots', rng.choice([1, 2, 3, 9]), 60),))
         for name in HOSTS},
        {one.uuid: one for one in instances},
        constraints=_constraints(rng, sorted(chains)))
    claim = SwitchClaim(
        'cost', 0, None, 'feasible', {
            uuid: ClaimedState(
                InstanceState.SUSPENDED if chains[uuid].endswith('s')
                else InstanceState.ACTIVE, at[uuid])
            for uuid in chains if chains[uuid]},
        tuple(f'lease-{uuid}' for uuid, chain in chains.items()
              if 'sr' in chain))
    rng.shuffle(operations)
    return (cluster, Plan(tuple(operations), switch=claim),
            rng.choice([None, 1, 2]))


def _constraints(rng, uuids):
    """Draw a constraint, or none."""
    some = frozenset(rng.sample(uuids, min(2, len(uuids))))
    rest = frozenset(uuids) - some or frozenset({'nowhere'})
    return rng.choice([
        (), (), (Spread(some),), (Gather(some),), (Lonely(some),),
        (Split((some, rest)),),
        (Among(some, (frozenset(HOSTS[:1]), frozenset(HOSTS[1:]))),)])


def reachable(plan):
    """Yield the sets of started and of ended operations of all states."""
    seen, stack = set(), [(frozenset(), frozenset())]
    while stack:
        state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        yield state
        started, ended = state
        for one in plan.operations:
            if one.id in started - ended:
                stack.append((started, ended | {one.id}))
            elif one.id not in started and ended.issuperset(one.after):
                stack.append((started | {one.id}, ended))


@dataclasses.dataclass
class Whereabouts:
    """Hosts of instances in a state.

    :param claims: hosts with claims of each instance
    :param running: hosts that each running instance may use
    :param came: arrivals, as (instance, host, whether its claims arrived)
    """

    claims: dict
    running: dict
    came: set


def locate(cluster, plan, started, ended):
    """Return the hosts of instances in a state."""
    claims = {uuid: {one.host} for uuid, one in cluster.instances.items()}
    running = {uuid: {one.host} if one.state is InstanceState.ACTIVE
               else set() for uuid, one in cluster.instances.items()}
    came = set()
    for one in sorted(plan.operations, key=lambda one: one.id):
        uuid = one.instance
        if one.id in started and one.target is not None:
            if one.target not in claims[uuid]:
                came.add((uuid, one.target, True))
            came.add((uuid, one.target, False))
            claims[uuid].add(one.target)
            running[uuid].add(one.target)
        if one.id in ended and one.source != one.target:
            running[uuid].discard(one.source)
            came.discard((uuid, one.source, False))
            if one.target is not None:
                claims[uuid].discard(one.source)
                came.discard((uuid, one.source, True))
    return Whereabouts(claims, running, came)


def _is_overfull(cluster, now):
    for name, values in cluster.hosts.items():
        for resource, room in values.total.items():
            amounts = {uuid: one.claims[resource]
                       for uuid, one in cluster.instances.items()
                       if name in now.claims[uuid]}
            if sum(amounts.values()) > room and any(
                    amount and (uuid, name, True) in now.came
                    for uuid, amount in amounts.items()):
                return True
        there = [uuid for uuid in now.running if name in now.running[uuid]]
        if len(there) > values.policies[0].threshold and any(
                (uuid, name, False) in now.came for uuid in there):
            return True
    return False


def is_wrong(cluster, plan, lanes):
    """Return whether any execution overfills a host or breaks a rule.

    Constraints must hold before the plan.
    """
    for started, ended in reachable(plan):
        now = locate(cluster, plan, started, ended)
        going = [one for one in plan.operations if one.id in started - ended]
        crowds = (sum(name in (one.source, one.target) for one in going)
                  for name in HOSTS)
        if (_is_overfull(cluster, now)
                or (lanes is not None and max(crowds) > lanes)
                or any(one.broken(now.claims)
                       for one in cluster.constraints)):
            return True
    return False


def holds_before(cluster):
    """Return whether all constraints hold before the plan."""
    hosts = {uuid: {one.host} for uuid, one in cluster.instances.items()}
    return not any(one.broken(hosts) for one in cluster.constraints)


def seeds(count):
    """Return numbers of that many samples whose constraints hold before."""
    return itertools.islice((
        seed for seed in itertools.count()
        if holds_before(draw(seed)[0])), count)
