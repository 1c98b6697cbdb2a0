"""How fast the decision ``guided`` is, and how good its plans are.

Prints JSON, one object for a cluster; README.md says what is in it.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
import dataclasses
import gc
import json
import pathlib
import resource
import statistics
import time
import typing

from benchmarks import clusters, forms
from secondary_scheduler.decisions.base import Budget, Request
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.provisioning import ProvisioningDecision
from secondary_scheduler.decisions.violations import Profile
from secondary_scheduler.estimation.room import Limits
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import Cluster, Host, Instance
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.operations import Kind, Plan

#: Instances are what they use: no local means that would make room.
RIGID = Limits(minimum_share=0.0, useful_share=0.0, margin=0.0)
MOVES_ONLY = Profile(preempts=False)


class Timed(typing.NamedTuple):
    """A plan, and the CPU seconds for it and for its check."""

    plan: Plan
    decide_s: float
    check_s: float


def timed(cluster: Cluster, repeat: int) -> Timed:
    """Decide several times, each on a cluster not asked anything yet.

    Medians.  The garbage collector is held off.
    """
    decided, checked = [], []
    for _run in range(repeat):
        fresh = dataclasses.replace(cluster)
        gc.collect()
        gc.disable()
        begun = time.process_time()
        plan = GuidedDecision(RIGID, profile=MOVES_ONLY).decide(
            fresh, Request('preempt'), Budget())
        between = time.process_time()
        faults = checker.check(fresh, plan, RIGID.lanes)
        ended = time.process_time()
        gc.enable()
        if faults:
            raise SystemExit(f'the checker says: {faults[0]}')
        decided.append(between - begun)
        checked.append(ended - between)
    return Timed(plan, statistics.median(decided), statistics.median(checked))


def in_order(plan: Plan) -> list[tuple[str, str]]:
    """Return the moves of a plan, each with its target."""
    return [(one.instance, str(one.target)) for one in sorted(
        plan.operations, key=lambda one: (one.start_s, one.id))]


def used(instances: Iterable[Instance]) -> Counter[str]:
    """Return what instances use and hold together, by resource."""
    total: Counter[str] = Counter()
    for one in instances:
        total.update({'cpu': one.cpu or 0.0, 'cores': one.vcpus,
                      'memory': one.memory_mb})
    return total


def overdrawn(host: Host, instances: Iterable[Instance]) -> bool:
    """Tell whether a host holds more than its inventory has."""
    use = used(instances)
    return any(use[name] > host.total[claim] - host.reserved.get(claim, 0)
               for name, claim in (('cores', vocabulary.VCPU),
                                   ('memory', vocabulary.MEMORY_MB)))


def fails(host: Host, instances: Iterable[Instance]) -> bool:
    """Tell whether a policy of a host does not hold."""
    use = used(instances)
    return any(use[policy.resource] > policy.threshold + 1e-6
               for policy in host.policies)


def replay(cluster: Cluster, moves: Sequence[tuple[str, str]]
           ) -> tuple[int, int]:
    """Carry moves out one after the other, whoever has planned them.

    Returns the hosts on which a policy fails in the end, and the moves that
    a target had no room for.
    """
    there = {name: {one.uuid: one for one in cluster.residents(name)}
             for name in cluster.hosts}
    where = {uuid: one.host for uuid, one in cluster.instances.items()}
    infeasible = 0
    for uuid, target in moves:
        one = cluster.instances[uuid]
        there[target][uuid] = one
        infeasible += overdrawn(cluster.hosts[target],
                                there[target].values())
        del there[str(where[uuid])][uuid]
        where[uuid] = target
    return sum(fails(host, there[name].values())
               for name, host in cluster.hosts.items()), infeasible


def lower_bound(cluster: Cluster) -> int:
    """Return how many moves there must be: the fewest for each host alone."""
    return sum(max(_fewest([used([one])[policy.resource] for one in
                            cluster.residents(name)], policy.threshold)
                   for policy in host.policies)
               for name, host in cluster.hosts.items() if host.violated)


def _fewest(uses: list[float], threshold: float) -> int:
    left, count = sum(uses), 0
    for use in sorted(uses, reverse=True):
        if left <= threshold + 1e-6:
            break
        left -= use
        count += 1
    return count


def report(cluster: Cluster, repeat: int) -> dict[str, typing.Any]:
    """Decide on a cluster and say all about it."""
    done = timed(cluster, repeat)
    after, infeasible = replay(cluster, in_order(done.plan))
    return {
        'hosts': len(cluster.hosts), 'instances': len(cluster.instances),
        'leases': len({one.lease for one in cluster.instances.values()}),
        'violated': sum(one.violated for one in cluster.hosts.values()),
        'cpu_s': round(done.decide_s + done.check_s, 4),
        'check_cpu_s': round(done.check_s, 4), 'convert_cpu_s': None,
        'rss_mib': resource.getrusage(
            resource.RUSAGE_SELF).ru_maxrss // 1024,
        'operations': dict(Counter(
            str(one.kind) for one in done.plan.operations)),
        'violated_after': after, 'infeasible': infeasible,
        'lower_bound': lower_bound(cluster), 'optimum': None, 'peer': None}


def easy(options: argparse.Namespace) -> dict[str, typing.Any]:
    """Decide on Watcher's easy cluster, with ``--watcher`` beside its own."""
    cluster = clusters.easy(options.hosts, options.instances,
                            options.violated, options.seed)
    found = report(cluster, options.repeat)
    if not options.watcher:
        return found
    from benchmarks import stabilization
    model = stabilization.watcher_model(cluster)
    values = stabilization.metrics(cluster)
    begun = time.process_time()
    clusters.from_watcher(model, values)
    found['convert_cpu_s'] = round(time.process_time() - begun, 4)
    if options.watcher == 'peer':
        spent, moves = stabilization.decide(cluster, model, options.seed)
        after, infeasible = replay(cluster, moves)
        found['peer'] = {
            'name': stabilization.NAME, 'cpu_s': round(spent, 4),
            'operations': {Kind.MIGRATE.value: len(moves)},
            'violated_after': after, 'infeasible': infeasible}
    return found


def tight(options: argparse.Namespace) -> dict[str, typing.Any]:
    """Decide on tight clusters; figures of several are summed up.

    ``ratio`` is the mean of moves by optimum of each cluster.
    """
    total: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    ratios, unproved, rss = [], 0, 0
    for seed in range(options.seed, options.seed + options.count):
        cluster, planted = clusters.tight(
            options.hosts, options.instances, options.violated, seed)
        found = report(cluster, options.repeat)
        rss = found['rss_mib']
        kinds.update(found['operations'])
        total.update({name: value for name, value in found.items()
                      if isinstance(value, int | float)})
        total['planted'] += len(planted)
        if options.optimum:
            from benchmarks import exact
            optimum = exact.least_moves(cluster)
            if optimum is None:
                unproved += 1
            else:
                total['optimum'] += optimum
                ratios.append(sum(found['operations'].values()) / optimum)
    return {**found, **total, 'operations': dict(kinds), 'rss_mib': rss,
            'count': options.count,
            'optimum': total['optimum'] if ratios else None,
            **({'ratio': round(statistics.mean(ratios), 4),
                'unproved': unproved} if ratios else {})}


def btrplace(options: argparse.Namespace) -> dict[str, typing.Any]:
    """Decide on an instance of BtrPlace's: repair it, then fill it."""
    cluster = clusters.from_btrplace(options.file)
    found = report(cluster, 1)
    begun = time.process_time()
    plan = ProvisioningDecision(RIGID).decide(
        cluster, Request('return'), Budget(10**7))
    found['provisioning'] = {
        'waiting': sum(one.host is None
                       for one in cluster.instances.values()),
        'operations': dict(Counter(str(one.kind) for one in plan.operations)),
        'faults': checker.check(cluster, plan, RIGID.lanes)[:1],
        'cpu_s': round(time.process_time() - begun, 4)}
    return found


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    modes = parser.add_subparsers(required=True)
    for run, hosts, instances, violated in (
            (easy, 1000, 10_000, 0.01), (tight, 20, 120, 0.05)):
        mode = modes.add_parser(run.__name__, help=str(run.__doc__))
        mode.add_argument('--hosts', type=int, default=hosts)
        mode.add_argument('--instances', type=int, default=instances)
        mode.add_argument('--violated', type=float, default=violated,
                          help='part of the hosts (default %(default)s)')
        mode.add_argument('--seed', type=int, default=1)
        mode.add_argument('--repeat', type=int, default=5)
        mode.set_defaults(run=run)
        forms.add_quick(mode, repeat=1, hosts=20, instances=120,
                        violated=0.05)
        if run is easy:
            mode.add_argument(
                '--watcher', choices=('convert', 'peer'), help='time the '
                'conversion of its model, and its strategy as well')
        else:
            mode.add_argument('--count', type=int, default=1,
                              help='clusters, with seeds one after the other')
            mode.add_argument('--optimum', action='store_true',
                              help='solve with OR-Tools as well')
    mode = modes.add_parser('btrplace', help=str(btrplace.__doc__))
    mode.add_argument('file', type=pathlib.Path)
    mode.set_defaults(run=btrplace)
    forms.add_quick(mode)
    return parser.parse_args()


if __name__ == '__main__':
    options = parse()
    print(json.dumps(options.run(options), indent=1))
