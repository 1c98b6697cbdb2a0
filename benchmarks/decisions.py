# SPDX-License-Identifier: Apache-2.0

"""Speed of the decisions, and quality of their plans.

``switch`` is about cluster-wide context switches (``switches.py``), the others
are about ``guided``.

They print JSON, one object for a cluster; README.md says what is in it.
"""

import argparse
from collections import Counter
import dataclasses
import gc
import json
import pathlib
import resource
import statistics
import sys
import time
import typing

from benchmarks import absolute, btrplace, clusters, forms, switches
from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.provisioning import ProvisioningDecision
from secondary_scheduler.decisions.violations import CostProfile
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import Cluster
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.operations import OperationKind, Plan
from secondary_scheduler.reading.values import InputError

#: Instances are what they use: no local means that would make room.
RIGID = LoadLimits(minimum_share=0.0, useful_share=0.0, margin=0.0)
MOVES_ONLY = CostProfile(preempts=False)


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
            fresh, DecisionRequest('preempt'), Budget())
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


def lower_bound(cluster: Cluster) -> int:
    """Return how many moves there must be: the fewest for each host alone."""
    return sum(max(_fewest([absolute.used([one])[resource] for one in
                            cluster.residents(name)], limit + slack)
                   for resource, limit, slack in absolute.limits(host))
               for name, host in cluster.hosts.items() if host.violated)


def _fewest(uses: list[float], limit: float) -> int:
    left, count = sum(uses), 0
    for use in sorted(uses, reverse=True):
        if left <= limit:
            break
        left -= use
        count += 1
    return count


def report(cluster: Cluster, repeat: int) -> dict[str, typing.Any]:
    """Decide on a cluster and say all about it."""
    done = timed(cluster, repeat)
    outcome = absolute.replay(cluster, in_order(done.plan))
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
        'violated_after': len(outcome.violated),
        'relievable': len(outcome.relievable),
        'overloaded': len(outcome.overloaded),
        'infeasible': len(outcome.infeasible),
        'lower_bound': lower_bound(cluster), 'optimum': None, 'peer': None}


def easy(options: argparse.Namespace) -> dict[str, typing.Any]:
    """Decide on Watcher's easy cluster, with ``--watcher`` beside its own."""
    if options.unequal:
        equal, unequal = (_easy(options, one) for one in (False, True))
        return {'equal': equal, 'unequal': unequal, 'cpu_ratio': round(
            unequal['cpu_s'] / equal['cpu_s'], 3)}
    return _easy(options, False)


def _easy(options: argparse.Namespace, unequal: bool
          ) -> dict[str, typing.Any]:
    cluster = clusters.easy(options.hosts, options.instances,
                            options.violated, options.seed, unequal)
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
        outcome = absolute.replay(cluster, moves)
        found['peer'] = {
            'name': stabilization.NAME, 'cpu_s': round(spent, 4),
            'operations': {OperationKind.MIGRATE.value: len(moves)},
            'violated_after': len(outcome.violated),
            'overloaded': len(outcome.overloaded),
            'infeasible': len(outcome.infeasible)}
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
            options.hosts, options.instances, options.violated, seed,
            options.unequal)
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


def repair(options: argparse.Namespace) -> dict[str, typing.Any]:
    """Decide on an instance of BtrPlace's: repair it, then fill it."""
    cluster, ignored = btrplace.read_file(options.file)
    found = report(cluster, 1) | {'ignored': ignored}
    begun = time.process_time()
    plan = ProvisioningDecision(RIGID).decide(
        cluster, DecisionRequest('return'), Budget(10**7))
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
    for run, hosts, each, violated in (
            (easy, 1000, 10, 0.01), (tight, 20, 6, 0.05)):
        mode = modes.add_parser(run.__name__, help=str(run.__doc__))
        mode.add_argument('--hosts', type=int, default=hosts)
        mode.add_argument('--instances', type=int,
                          help=f'default: {each} for each host')
        mode.add_argument('--violated', type=float, default=violated,
                          help='part of the hosts (default %(default)s)')
        mode.add_argument('--seed', type=int, default=1)
        mode.add_argument('--repeat', type=int, default=5)
        mode.add_argument(
            '--unequal', action='store_true',
            help=f'draw hosts of {clusters.SIZES[0]} to {clusters.SIZES[-1]} '
            'CPUs' + (', and compare with equal ones' if run is easy else ''))
        mode.set_defaults(run=run, each=each)
        forms.add_quick(mode, repeat=1, hosts=20, violated=0.05)
        if run is easy:
            mode.add_argument(
                '--watcher', choices=('convert', 'peer'), help='time the '
                'conversion of its model, and its strategy as well')
        else:
            mode.add_argument('--count', type=int, default=1,
                              help='clusters, with seeds one after the other')
            mode.add_argument('--optimum', action='store_true',
                              help='solve with OR-Tools as well')
    mode = modes.add_parser('btrplace', help=str(repair.__doc__))
    mode.add_argument('file', type=pathlib.Path)
    mode.set_defaults(run=repair)
    forms.add_quick(mode)
    switches.add_arguments(modes.add_parser(
        'switch', help=str(switches.switch.__doc__)))
    options = parser.parse_args()
    if 'each' in options and options.instances is None:
        options.instances = options.each * options.hosts
    return options


if __name__ == '__main__':
    options = parse()
    try:
        found = options.run(options)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(json.dumps(found, indent=1))
