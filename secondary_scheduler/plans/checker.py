# SPDX-License-Identifier: Apache-2.0

"""Independent checker; only plans that it finds valid are executed.

It shares no code with the decisions and their estimates, so it finds their
errors (see reference/decisions, 11).  It knows Nova's facts only.
"""

from collections import defaultdict
from collections.abc import Iterator
import math

from secondary_scheduler.model.cluster import Cluster, InstanceState
from secondary_scheduler.plans.operations import OperationKind, Plan
from secondary_scheduler.plans.orders import Orders, describe, held
from secondary_scheduler.plans.reachability import (
    Reachability,
    sort_by_dependencies,
)
from secondary_scheduler.plans.replay import (
    DOWN,
    IN_PLACE,
    TOLERANCE_S,
    UP,
    Replay,
)
from secondary_scheduler.plans.switch_claims import (
    check_chains,
    check_end,
    check_groups,
)


def check(cluster: Cluster, plan: Plan,
          lanes: int | None = None) -> list[str]:
    """Return the faults of a plan on a cluster, as messages.

    An empty list means that the plan is valid:

    * Each operation can start at its time.
    * Every host has room for all arrivals, also if operations take longer
      than expected.
    * Deadlines are met.
    * No lease is split.
    * No host has more than ``lanes`` concurrent operations of the plan,
      unless ``lanes`` is None.
    * Placement constraints hold at every instant, or are not broken further.
    * The claims of a context switch are true (see ``switch_claims``).
    """
    order = sort_by_dependencies(plan)
    faults = list(_structure(cluster, plan))
    if len(order) < len(plan.operations) and not faults:
        faults.append('the dependencies form a cycle')
    if faults:
        return faults
    reach = Reachability(order)
    faults += _times(plan)
    faults += _deadlines(cluster, plan)
    faults += (_repetitions(plan, reach) if plan.switch is None
               else check_chains(cluster, plan.switch, reach))
    faults += _leases(cluster, plan)
    holding = held(cluster, plan)
    replay = Replay(cluster, plan, holding)
    faults += replay.run()
    if plan.switch is not None:
        faults += check_groups(reach)
        faults += check_end(cluster, plan, plan.switch, replay.states)
    if not faults:
        # The plan is valid at its estimated times; check other times.
        faults += Orders(cluster, plan, holding, reach, lanes).faults()
    return faults


def _structure(cluster: Cluster, plan: Plan) -> Iterator[str]:
    ids = {operation.id for operation in plan.operations}
    if len(ids) < len(plan.operations):
        yield 'two operations have the same id'
    for operation in plan.operations:
        name = describe(operation)
        instance = cluster.instances.get(operation.instance)
        if instance is None:
            yield f'{name}: the instance is unknown'
        elif instance.lease != operation.lease:
            yield f'{name}: its lease is {instance.lease}'
        if (operation.target is not None
                and operation.target not in cluster.hosts):
            yield f'{name}: host {operation.target} is unknown'
        if not (0 <= operation.start_s < math.inf
                and 0 < operation.duration_s < math.inf):
            yield f'{describe(operation)}: start or duration is no time'
        for one in set(operation.after) - ids:
            yield f'{name}: waits for {one}, which is not in the plan'
    for place in plan.unresolved:
        if place not in cluster.hosts and place not in cluster.items:
            yield f'unresolved host {place} is unknown'


def _times(plan: Plan) -> Iterator[str]:
    by_id = {operation.id: operation for operation in plan.operations}
    for operation in plan.operations:
        for one in operation.after:
            other = by_id[one]
            if (operation.start_s + TOLERANCE_S
                    < other.start_s + other.duration_s):
                yield (f'{describe(operation)}: starts before operation {one} '
                       'has ended')


def _deadlines(cluster: Cluster, plan: Plan) -> Iterator[str]:
    """Check that deadlines are met, and within the limits of policies.

    A violated policy becomes invalid ``timelimit`` checks after its first
    failed one, which bounds the deadline of an operation that leaves its
    host.  Only static policies count for a host that is cooling down.
    """
    for operation in plan.operations:
        deadline, name = operation.deadline_s, describe(operation)
        if deadline is None:
            continue
        if not deadline < math.inf:
            yield f'{name}: its deadline is no time'
        if operation.start_s + operation.duration_s > deadline + TOLERANCE_S:
            yield f'{name}: ends after its deadline, {deadline:g} s'
        host = cluster.hosts.get(operation.source or '')
        left = [] if host is None else [
            policy.timelimit - policy.failed for policy in host.policies
            if policy.violated and (policy.static or not host.blocked)]
        left += [policy.timelimit - policy.failed
                 for item in cluster.items.values()
                 if operation.source in item.hosts
                 and operation.target not in item.hosts
                 for policy in item.policies if policy.violated]
        if not left:
            yield f'{name}: has a deadline, but leaves no violated host'
        elif deadline > min(left):
            yield (f'{name}: a policy of host {operation.source} is invalid '
                   f'before its deadline, {deadline:g} s')


def _repetitions(plan: Plan, reach: Reachability) -> Iterator[str]:
    """Check that an instance has one operation.

    Only a resume or start may be followed by a migration.
    """
    of_instance = defaultdict(list)
    for operation in plan.operations:
        of_instance[operation.instance].append(operation)
    for uuid, several in of_instance.items():
        if len(several) == 1:
            continue
        first, last = several[0], several[-1]
        if first.kind is OperationKind.MIGRATE:
            first, last = last, first
        if not (len(several) == 2 and first.kind in IN_PLACE
                and last.kind is OperationKind.MIGRATE
                and reach.precedes(first, last)):
            yield f'instance {uuid} has several operations'


def _leases(cluster: Cluster, plan: Plan) -> Iterator[str]:
    down = {o.instance for o in plan.operations if o.kind in DOWN}
    up = {o.instance for o in plan.operations if o.kind in UP}
    if not down | up:
        return
    preempted = {cluster.instances[uuid].lease for uuid in down}
    returned = {cluster.instances[uuid].lease for uuid in up}
    bypassed = () if plan.switch is None else plan.switch.bypassed
    for lease in sorted((preempted & returned).difference(bypassed)):
        yield f'lease {lease} is both preempted and brought back'
    for instance in cluster.instances.values():
        if (instance.lease in preempted and instance.uuid not in down
                and instance.state in (InstanceState.ACTIVE,
                                       InstanceState.BUSY)):
            yield (f'half of lease {instance.lease} is preempted: '
                   f'{instance.uuid} runs on')
        if (instance.lease in returned and instance.uuid not in up
                and instance.preempted
                and instance.state in (
                    InstanceState.SUSPENDED, InstanceState.STOPPED,
                    InstanceState.SHELVED, InstanceState.BUSY)):
            yield (f'half of lease {instance.lease} is brought back: '
                   f'{instance.uuid} stays down')
        if instance.lease in returned and instance.return_failed:
            yield (f'half of lease {instance.lease} is brought back: '
                   f'{instance.uuid} cannot come up yet')
