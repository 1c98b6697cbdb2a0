# SPDX-License-Identifier: Apache-2.0

"""Decisions on random models of constant loads, round after round.

A round preempts and then returns, and carries both plans out in the model
document.  The use of each instance stays what it is, as no agent limits it.
After two rounds no operation may be left, except for migrations home.  No
instance may be down then that fits under the stricter threshold of a return.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
import itertools
import json
import random
import typing

from benchmarks import forms
from secondary_scheduler.decisions.base import (
    Budget,
    Decision,
    DecisionRequest,
)
from secondary_scheduler.decisions.context_switch import (
    ContextSwitchDecision,
)
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.plans import checker, model_documents
from secondary_scheduler.plans.operations import (
    PREEMPTIONS,
    RETURNS,
    Operation,
    OperationKind,
)

DRIVERS: Mapping[str, type[Decision]] = {
    'guided': GuidedDecision, 'context-switch': ContextSwitchDecision}
#: Rounds that may have operations, and rounds that are made.
BUSY, ROUNDS = 2, 5
#: Percent of a host that a return leaves to each instance at least, and
#: distance of CPU from its threshold.
SHARE, MARGIN = 10.0, 1.0
#: Part of the CPU of a host that a context switch keeps free beside a return.
HEADROOM = 0.1

_RATES = ('net_in', 'net_out', 'disk_in', 'disk_out')
_STATES = {OperationKind.SUSPEND: 'suspended', OperationKind.STOP: 'stopped',
           OperationKind.SHELVE: 'shelved'}

Document = dict[str, typing.Any]


def draw_model(seed: int) -> Document:
    """Return a model document with hosts of equal or of different size."""
    rng = random.Random(seed)
    used = ['cpu', *rng.sample([*_RATES, 'mem', 'pressure'],
                               rng.randint(0, 3))]
    sizes = (8,) if rng.random() < 0.5 else (4, 8, 16)
    hosts = [_draw_host(rng, f'n{number}', rng.choice(sizes), used)
             for number in range(rng.randint(1, 5))]
    policies = [f'{one} <= {rng.choice([70, 80, 90])}% for 10s'
                for one in used]
    if rng.random() < 0.2:
        policies.append(f'slots <= {rng.randint(1, 4)} for 10s')
    if rng.random() < 0.15:
        policies.append(f'{rng.choice(used)} <= {rng.choice([50, 70])}% for '
                        '10s in aggregate:rack')
    instances = [
        one for lease in range(rng.randint(1, 8))
        for one in _draw_lease(rng, f'l{lease}', hosts, used)]
    return {'schema': 1, 'policies': policies, 'hosts': hosts,
            'instances': instances}


def _draw_host(rng: random.Random, name: str, cpus: int,
               used: Sequence[str]) -> Document:
    return {
        'name': name, 'aggregates': ['rack'] * (rng.random() < 0.6),
        'capacity': {'cpus': cpus, 'vcpus': 4 * cpus,
                     'memory_mb': 2048 * cpus, 'disk_gb': 40,
                     'slots': rng.choice([4, 8, 16]),
                     **dict.fromkeys(_RATES, 125.0 * cpus)},
        'usage': {one: round(rng.uniform(0, 85), 1) for one in used
                  if rng.random() < 0.95},
        'usable': rng.random() < 0.95}


def _draw_lease(rng: random.Random, lease: str, hosts: Sequence[Document],
                used: Sequence[str]) -> Iterator[Document]:
    down = rng.random() < 0.2
    for number in range(rng.choice([1, 1, 1, 2, 3])):
        state = rng.choice(['suspended'] * 3 + ['stopped', 'shelved']
                           ) if down else 'active'
        yield {
            'name': f'{lease}v{number}', 'lease': lease,
            'host': None if state == 'shelved' else rng.choice(hosts)['name'],
            'state': state, 'preempted': down,
            'preempt_policy': rng.choice(['suspend'] * 5
                                         + ['stop', 'shelve']),
            'priority': rng.randint(1, 10),
            'demand': {'vcpus': rng.randint(1, 2), 'memory_mb': 512,
                       'disk_gb': 1},
            'usage': {one: round(rng.choice([0, rng.uniform(0, 15),
                                             rng.uniform(0, 45)]), 1)
                      for one in used if rng.random() < 0.95},
            'group': lease if rng.random() < 0.05 else None,
            'pinned': rng.random() < 0.05, 'blocked': rng.random() < 0.02}


def decide_round(model: Document, driver: str) -> tuple[Operation, ...]:
    """Preempt and return in a model, and change it by both plans."""
    found: tuple[Operation, ...] = ()
    for request in ('preempt', 'return'):
        cluster = model_documents.read_model(json.dumps(model))
        plan = DRIVERS[driver]().decide(cluster, DecisionRequest(
            typing.cast(typing.Any, request)), Budget())
        faults = checker.check(cluster, plan)
        if faults:
            raise SystemExit(f'the checker says: {faults[0]}')
        for one in sorted(plan.operations, key=lambda one: (
                one.start_s, one.id)):
            _carry_out(model, one)
        found += plan.operations
    return found


def _carry_out(model: Document, operation: Operation) -> None:
    """Change a model as an operation changes a cloud.

    Use stays the same amount.  It is in percent of the present host, or of
    the largest one if there is none.
    """
    one = next(guest for guest in model['instances']
               if guest['name'] == operation.instance)
    before, was = one['host'], _sizes(model, one['host'])
    if operation.kind in PREEMPTIONS:
        one |= {'state': _STATES[operation.kind], 'preempted': True}
        if operation.kind is OperationKind.SHELVE:
            one['host'] = None
    else:
        if operation.kind is OperationKind.MIGRATE:
            origin = one.get('origin') or before
            one['origin'] = None if origin == operation.target else origin
        one |= {'state': 'active', 'preempted': False,
                'host': operation.target}
    now = _sizes(model, one['host'])
    one['usage'] = {
        resource: percent if was.get(resource) == now.get(resource)
        else percent * was[resource] / now[resource]
        for resource, percent in one['usage'].items()}


def _sizes(model: Document, host: str | None) -> dict[str, float]:
    """Return the amounts that are 100 % of a host, or of the largest one."""
    found: dict[str, float] = {}
    for one in model['hosts']:
        if host in (None, one['name']):
            size = one['capacity']
            for resource, amount in {
                    **size, 'cpu': size['cpus'],
                    'mem': size['memory_mb']}.items():
                found[resource] = max(found.get(resource, 0.0), amount)
    return found


def is_home(model: Document, operation: Operation) -> bool:
    """Return whether an operation has brought an instance home."""
    return operation.kind is OperationKind.MIGRATE and any(
        one['name'] == operation.instance and one['origin'] is None
        for one in model['instances'])


def find_fitting(model: Document, driver: str) -> list[str]:
    """Return preempted instances that fit on their own hosts.

    They are alone in their leases.  The sums are made of the document, and
    share no code with decisions.  The list is empty if a policy fails.
    """
    hosts = {one['name']: one for one in model['hosts']}
    rules = [policy.split() for policy in model['policies']]
    if any(_used(model, rule, name) > _limit(rule)
           for rule in rules for name in hosts if _binds(rule, hosts[name])):
        return []
    leases = [one['lease'] for one in model['instances']]
    return [
        one['name'] for one in model['instances']
        if one['preempted'] and one['state'] in ('suspended', 'stopped')
        and leases.count(one['lease']) == 1 and not one['blocked']
        and hosts[one['host']]['usable'] and all(
            _has_room(model, rule, one, driver) for rule in rules
            if _binds(rule, hosts[one['host']]))]


def _binds(rule: list[str], host: Document) -> bool:
    return 'in' not in rule or rule[-1].partition(':')[2] in (
        host['aggregates'])


def _limit(rule: list[str]) -> float:
    return float(rule[2].strip('%'))


def _bound(model: Document, rule: list[str], host: str) -> list[Document]:
    """Return the hosts on which a rule that binds a host counts."""
    return [one for one in model['hosts'] if one['name'] == host
            or 'in' in rule and _binds(rule, one)]


def _used(model: Document, rule: list[str], host: str,
          newcomer: Document | None = None, assumed: float = 0.0) -> float:
    """Return what instances and the primary use under a rule.

    A number of slots, or a percentage of all hosts that it counts on.

    :param assumed: unknown use, in percent of a host
    """
    resource = rule[0]
    hosts = _bound(model, rule, host)
    there = [one for one in model['instances']
             if one is newcomer or one['state'] == 'active'
             and one['host'] in {two['name'] for two in hosts}]
    if resource == 'slots':
        return len(there)
    sizes = {one['name']: _sizes(model, one['name']).get(resource, 1.0)
             for one in hosts}
    use = sum(one['usage'].get(resource, assumed) * sizes[one['host']]
              for one in there)
    if there:
        use += sum(one['usage'].get(resource, 0.0) * sizes[one['name']]
                   for one in hosts)
    return float(use / sum(sizes.values()))


def _has_room(model: Document, rule: list[str], one: Document,
              driver: str) -> bool:
    """Return whether a rule leaves room for the return of an instance."""
    resource, host = rule[0], one['host']
    if resource == 'slots':
        return _used(model, rule, host, one) <= _limit(rule)
    homes = _bound(model, rule, host)
    if any(resource not in two['usage'] for two in homes):
        return False    # use by primaries is unknown
    limit = _limit(rule) - (MARGIN if resource == 'cpu' else 0.0)
    running = [two for two in model['instances']
               if two['host'] == host and two['state'] == 'active']
    if driver == 'context-switch':
        claims = [two for two in model['instances'] if two['host'] == host]
        if len(homes) > 1 or len(claims) > homes[0]['capacity']['slots']:
            return False    # it divides items, and overbooks no inventory
        if any(not {resource, 'cpu'} <= two['usage'].keys()
               for two in (*running, one)):
            return False    # it assumes more where use is unknown
        limit -= 100 * HEADROOM * (resource == 'cpu')
        return _used(model, rule, host, one, SHARE) < limit - 0.1
    shares = 0.0 if 'in' in rule or resource in ('mem', 'pressure') else (
        homes[0]['usage'][resource] + SHARE * (len(running) + 1))
    return shares <= limit and _used(
        model, rule, host, one, SHARE) <= limit - 1e-6


class Outcome(typing.NamedTuple):
    """Operations of each round, and the faults that were found.

    ``late`` are operations after the rounds that may have some, and
    ``again`` instances preempted after a return.
    """

    operations: list[int]
    late: list[str]
    again: list[str]
    fitting: list[str]


def run(seed: int, driver: str) -> Outcome:
    """Decide on a random model, round after round."""
    model = draw_model(seed)
    counts, late, again, returned = [], [], [], set()
    for number in range(ROUNDS):
        found = [one for one in decide_round(model, driver)
                 if not is_home(model, one)]
        counts.append(len(found))
        for one in found:
            if one.kind in PREEMPTIONS and one.instance in returned:
                again.append(one.instance)
            if one.kind in RETURNS:
                returned.add(one.instance)
        if number >= BUSY:
            late += [f'{one.kind} {one.instance}' for one in found]
    return Outcome(counts, late, again, find_fitting(model, driver))


def measure(options: argparse.Namespace) -> dict[str, typing.Any]:
    """Run all models with a driver, and count what is found."""
    seeds = range(options.seed, options.seed + options.models)
    runs: Mapping[int, typing.Any] = dict(zip(
        seeds, simulate(options, seeds) if options.simulate
        else (run(seed, options.driver) for seed in seeds), strict=True))
    return {
        'driver': options.driver, 'models': len(runs),
        'operations': [sum(some) for some in itertools.zip_longest(
            *(one.operations for one in runs.values()), fillvalue=0)],
        **{name: {seed: found for seed, one in runs.items()
                  if (found := getattr(one, name, []))}
           for name in ('late', 'again', 'fitting')}}


def simulate(options: argparse.Namespace, seeds: Sequence[int]
             ) -> Iterator[typing.Any]:
    """Return the courses of all models in the simulator of a driver."""
    # The simulator needs Numba, which decisions do not.
    from benchmarks import constant_simulations
    if options.driver == 'guided':
        return constant_simulations.simulate_guided(
            options.models, options.seed)
    return constant_simulations.simulate_switches(
        map(draw_model, seeds), ROUNDS)


def main() -> None:
    """Read the command line, and print what is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--driver', choices=tuple(DRIVERS), default='guided')
    parser.add_argument('--models', type=int, default=1000)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--simulate', action='store_true',
                        help='run a simulator instead of "plan decide"')
    forms.add_quick(parser, models=20)
    found = measure(parser.parse_args())
    print(json.dumps(found, indent=1))
    if found['late'] or found['again'] or found['fitting']:
        raise SystemExit(1)


if __name__ == '__main__':
    main()
