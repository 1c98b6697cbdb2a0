# SPDX-License-Identifier: Apache-2.0

"""Cost of a cluster-wide context switch: decision, checker and peak memory.

Clusters are those of the simulator's ``entropy-cost``, or instances of
BtrPlace's benchmark.  README.md says what is in the JSON.
"""

import argparse
from collections import Counter
from collections.abc import Callable
import dataclasses
import gc
import pathlib
import resource
import time
import typing

from benchmarks import applications, btrplace, forms
from secondary_scheduler.decisions.base import (
    Budget,
    DecisionRequest,
    SwitchOptions,
)
from secondary_scheduler.decisions.context_switch import (
    ContextSwitchDecision,
)
from secondary_scheduler.decisions.optimiser import optimise
from secondary_scheduler.decisions.selection import (
    QueuedLease,
    SelectionOptions,
    select,
)
from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.decisions.steady_selection import select_steadily
from secondary_scheduler.decisions.switch_model import SwitchModelBuilder
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.estimation.switch_costs import OBJECTIVES
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    Instance,
    InstanceState,
    LeaseMembers,
)
from secondary_scheduler.model.configuration import MemberState
from secondary_scheduler.model.lease_order import PRIORITY
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.operations import Plan
from secondary_scheduler.reading import fields
from secondary_scheduler.simulation.workloads import switches

#: Instances are what they use, up to the capacity of hosts.
RIGID = LoadLimits(minimum_share=0.0, useful_share=0.0, margin=0.0)
#: Allocation ratio, so that suspended instances keep their claims.
RATIO = 16
AMPLE = 10**6
_STATES = {MemberState.RUNNING: InstanceState.ACTIVE,
           MemberState.SUSPENDED: InstanceState.SUSPENDED,
           MemberState.WAITING: InstanceState.SHELVED}

Result = typing.TypeVar('Result')


def _draw(options: argparse.Namespace) -> switches.Drawn:
    return switches.draw(
        options.seed, options.instances, options.hosts,
        (options.units, options.memory), busy=options.busy)


def draw_cluster(options: argparse.Namespace) -> Cluster:
    """Draw a cluster of the simulator, as Nova and agents would show it."""
    units, memory_mb = options.units, options.memory
    current, queue = _draw(options)
    instances = {}
    for one in current.members.values():
        wanted = float(one.demand[0])
        instances[one.name] = Instance(
            one.name, one.lease, one.host, _STATES[one.state], 1,
            one.memory_mb, 0, cpu=wanted, wanted_cpu=wanted,
            preempted=one.state is not MemberState.RUNNING)
    hosts = {name: _host(name, units, memory_mb) for name in current.capacity}
    leases = {lease: LeaseMembers(
        lease, float(len(queue) - position),
        state=LeaseState.ACTIVE if current.leases[lease][0].state
        is MemberState.RUNNING else LeaseState.QUEUED)
        for position, lease in enumerate(queue)}
    return Cluster(hosts, instances, leases)


def _host(name: str, units: int, memory_mb: int) -> Host:
    return Host(
        name, float(units), {
            vocabulary.VCPU: RATIO * units,
            vocabulary.MEMORY_MB: RATIO * memory_mb,
            vocabulary.DISK_GB: AMPLE, vocabulary.SLOT: AMPLE},
        cpu_primary=0.0, policies=(
            HostPolicy('cpu <= 100%', 'cpu', 100, 60),
            HostPolicy(f'memory <= {memory_mb}', 'memory', memory_mb, 60)))


def settled_cluster(options: argparse.Namespace) -> Cluster:
    """Return equal hosts on which each instance runs and has what it wants.

    All units and all memory but one part of each host are used.  Nothing is
    free if leases wait, so that they do not fit.
    """
    each = -(-options.instances // options.hosts)
    most = each + (not options.waiting)
    names = [f'host{number}' for number in range(options.hosts)]
    instances = {}
    for number in range(options.instances):
        name = f'instance{number}'
        instances[name] = Instance(
            name, f'lease{number // switches.SIZES[0]}',
            names[number // each], InstanceState.ACTIVE, 1, 512, 0, cpu=1.0,
            wanted_cpu=1.0)
    leases = {one.lease: LeaseMembers(one.lease)
              for one in instances.values()}
    for number in range(options.waiting):
        lease = f'waiting{number}'
        leases[lease] = LeaseMembers(lease, 0.0, state=LeaseState.QUEUED)
        for member in range(switches.SIZES[0]):
            name = f'{lease}-{member}'
            instances[name] = Instance(
                name, lease, None, InstanceState.SHELVED, 1, 512, 0, cpu=1.0,
                wanted_cpu=1.0, preempted=True)
    return Cluster({name: _host(name, most, 512 * most) for name in names},
                   instances, leases)


def draw_instance(options: argparse.Namespace) -> btrplace.Loaded:
    """Draw an instance of a family, and read it as if from a file."""
    document = applications.make_document(
        options.family, options.ratio, options.hosts, options.constraints,
        options.seed)
    return btrplace.read_document(fields.Fields(document, ''))


def measure(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return a result and the CPU seconds for it."""
    gc.collect()
    gc.disable()    # it would be measured too
    begun = time.process_time()
    found = work()
    spent = time.process_time() - begun
    gc.enable()
    return found, spent


def report(cluster: Cluster, options: argparse.Namespace
           ) -> dict[str, typing.Any]:
    """Decide on a cluster and check the plan.

    :raises SystemExit: the checker finds a fault
    """
    request = DecisionRequest('select', switch=SwitchOptions(
        objective=options.objective))
    decision = ContextSwitchDecision(RIGID)
    plan, decide_s = measure(lambda: decision.decide(
        cluster, request, Budget(options.budget)))
    fresh = dataclasses.replace(cluster)
    faults, check_s = measure(lambda: checker.check(
        fresh, plan, RIGID.lanes))
    if faults:
        raise SystemExit(f'the checker says: {faults[0]}')
    return {
        'hosts': len(cluster.hosts), 'instances': len(cluster.instances),
        'leases': len({one.lease for one in cluster.instances.values()}),
        'cpu_s': round(decide_s + check_s, 4),
        'decide_cpu_s': round(decide_s, 4),
        'check_cpu_s': round(check_s, 4),
        'rss_mib': _peak_mib(),
        'operations': dict(Counter(
            str(one.kind) for one in plan.operations)),
        'objective': options.objective, **_of_claim(plan)}


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _of_claim(plan: Plan) -> dict[str, typing.Any]:
    """Return what a plan claims about its cost."""
    claim = plan.switch
    if claim is None:
        return {'status': None}
    return {
        'status': str(claim.status), 'value': claim.value,
        'lower_bound': claim.bound, 'selected': claim.selected,
        'bypasses': claim.bypasses, 'ratio': None if not claim.bound
        else round(claim.value / claim.bound, 4)}


def steps(cluster: Cluster, options: argparse.Namespace
          ) -> dict[str, float]:
    """Return the CPU seconds of each step of the decision alone."""
    model, convert_s = measure(lambda: SwitchModelBuilder(
        cluster, cluster.hosts, RIGID, PRIORITY).build())
    current = model.configuration
    selected, select_s = measure(lambda: select_steadily(
        current, model.queue, SelectionOptions()))
    best, optimise_s = measure(lambda: optimise(
        current, selected.sample, options.objective, Budget(options.budget)))
    _switch, sequence_s = measure(lambda: sequence(current, best.target))
    return {'convert_cpu_s': round(convert_s, 4),
            'select_cpu_s': round(select_s, 4),
            'optimise_cpu_s': round(optimise_s, 4),
            'sequence_cpu_s': round(sequence_s, 4)}


def anywhere(options: argparse.Namespace) -> dict[str, typing.Any]:
    """Decide by the rules of the publication (Hermenier 2009).

    A suspended instance resumes on any host.  The checker knows Nova's rules
    only, so it has no part in this.
    """
    current, queue = _draw(options)
    selected, select_s = measure(lambda: select(current, [
        QueuedLease(lease, -position)
        for position, lease in enumerate(queue)]))
    best, optimise_s = measure(lambda: optimise(
        current, selected.sample, options.objective, Budget(options.budget)))
    return {
        'hosts': len(current.capacity), 'instances': len(current.members),
        'leases': len(queue), 'cpu_s': round(select_s + optimise_s, 4),
        'select_cpu_s': round(select_s, 4), 'rss_mib': _peak_mib(),
        'operations': dict(Counter(
            str(one.kind) for one in best.switch.moves)),
        'objective': options.objective, 'status': str(best.status),
        'value': best.value, 'lower_bound': best.bound, 'ratio': None
        if not best.bound else round(best.value / best.bound, 4)}


def switch(options: argparse.Namespace) -> dict[str, typing.Any]:
    """Decide for all leases of a drawn cluster, or of a file."""
    if options.anywhere:
        return anywhere(options)
    ignored: dict[str, int] | None = None
    if options.file is not None:
        cluster, ignored = btrplace.read_file(options.file)
    elif options.family is not None:
        cluster, ignored = draw_instance(options)
    elif options.settled:
        cluster = settled_cluster(options)
    else:
        cluster = draw_cluster(options)
    found = report(cluster, options)
    if ignored is not None:
        found |= {'constraints': dict(Counter(
            one.kind for one in cluster.constraints)), 'ignored': ignored}
    if options.steps:
        found |= steps(cluster, options)
    return found


def _kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of constraints in an argument.

    :raises argparse.ArgumentTypeError: one of them is unknown
    """
    found = tuple(filter(None, text.split(',')))
    for one in found:
        if one not in applications.KINDS:
            raise argparse.ArgumentTypeError(
                f'{one!r}: expected some of '
                + ','.join(applications.KINDS))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command line of ``decisions.py switch``."""
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--instances', type=int, default=2430)
    parser.add_argument('--units', type=int, default=2,
                        help='CPUs of a host (default %(default)s)')
    parser.add_argument('--memory', type=int, default=4096,
                        help='MiB of a host (default %(default)s)')
    parser.add_argument('--busy', type=float, default=switches.BUSY,
                        help='part of the instances that want a CPU')
    parser.add_argument('--settled', action='store_true',
                        help='a cluster on which nothing is to be done')
    parser.add_argument('--waiting', type=int, default=0, help='leases that '
                        'wait and do not fit, with --settled')
    parser.add_argument('--anywhere', action='store_true',
                        help='suspended instances resume on any host, as in '
                        'the publication')
    parser.add_argument('--file', type=pathlib.Path,
                        help='an instance of BtrPlace\'s benchmark')
    parser.add_argument('--family', choices=applications.FAMILIES,
                        help='an instance in the manner of that benchmark')
    parser.add_argument('--ratio', type=int, default=3,
                        help='its VMs for each host (default %(default)s)')
    parser.add_argument('--constraints', type=_kinds, default=(),
                        help='its constraints, of '
                        + ','.join(applications.KINDS))
    parser.add_argument('--objective', choices=tuple(OBJECTIVES),
                        default='cost')
    parser.add_argument('--budget', type=int, default=100_000)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--steps', action='store_true',
                        help='also measure each step of the decision')
    forms.add_quick(parser, hosts=40, instances=97)
    parser.set_defaults(run=switch)
