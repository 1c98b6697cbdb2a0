# SPDX-License-Identifier: Apache-2.0

"""Circuit breaker: the most preemptions that a period may have."""

from collections.abc import Collection
import dataclasses
import logging
from typing import Any

from oslo_log import log

from secondary_scheduler.model.cluster import Cluster
from secondary_scheduler.plans import operations
from secondary_scheduler.watcher import decision_measures
from secondary_scheduler.watcher.history import SELECT_REQUEST, AuditHistory
from secondary_scheduler.watcher.scope import ResolvedScope
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)


def within_breaker(plan: operations.Plan, allowed: int) -> operations.Plan:
    """Return the plan with at most ``allowed`` preemptions.

    Leases are counted in the order of the plan.  A lease with more preemptions
    than are left is dropped as a whole, as are the leases whose operations
    wait for one of its operations.
    """
    by_lease: dict[str, int] = {}
    for operation in plan.operations:
        if operation.kind in operations.PREEMPTIONS:
            by_lease[operation.lease] = by_lease.get(operation.lease, 0) + 1
    dropped: set[str] = set()
    for lease, count in by_lease.items():
        if count > allowed:
            dropped.add(lease)
        else:
            allowed -= count
    if not dropped:
        return plan
    gone = {o.id for o in plan.operations if o.lease in dropped}
    while True:
        more = {o.id for o in plan.operations if set(o.after) & gone} - gone
        if not more:
            break
        # An operation that waits for a dropped one drops its whole lease.
        leases = {o.lease for o in plan.operations if o.id in more}
        gone |= more | {o.id for o in plan.operations if o.lease in leases}
    kept = tuple(o for o in plan.operations if o.id not in gone)
    return dataclasses.replace(
        plan, operations=kept, switch=plan.switch and _claim_for(
            plan.switch, kept))


def _claim_for(claim: operations.SwitchClaim,
               kept: Collection[operations.Operation]
               ) -> operations.SwitchClaim:
    """Return the claim of a plan of which some leases were dropped.

    Its value is at most that of all operations, and the bound does not apply
    to a part of them.
    """
    instances = {operation.instance for operation in kept}
    leases = {operation.lease for operation in kept}
    return dataclasses.replace(
        claim, bound=None, status='feasible',
        states={uuid: state for uuid, state in claim.states.items()
                if uuid in instances},
        bypassed=tuple(one for one in claim.bypassed if one in leases))


def breaker_limit(options: Any, secondaries: int, kind: str = 'preempt'
                  ) -> int:
    """Return the number of preemptions that a period may have on a scope.

    :param kind: of the decision; ``select`` has a share of its own.
    """
    percent = (options.select_breaker_percent if kind == SELECT_REQUEST
               else options.breaker_percent)
    return max(int(options.breaker_minimum),
               int(secondaries * percent / 100))


def apply_breaker(history: AuditHistory, cluster: Cluster,
                  scope: ResolvedScope, plan: operations.Plan,
                  kind: str) -> operations.Plan:
    """Return the part of a plan that the circuit breaker lets pass.

    An alarm is logged for the rest.

    :param kind: of the decision.
    """
    if not any(o.kind in operations.PREEMPTIONS
               for o in plan.operations):
        return plan
    options = CONF.secondary_watcher
    inside = {uuid for uuid, i in cluster.instances.items()
              if i.host in scope.hosts or i.host is None}
    lately = len(history.preempted_lately(
        select=kind == SELECT_REQUEST) & inside)
    limit = breaker_limit(options, len(inside), kind)
    kept = within_breaker(plan, max(0, limit - lately))
    if kept is not plan:
        left = set(plan.operations) - set(kept.operations)
        decision_measures.shared().note_breaker(len(left))
        sources = {o.source for o in left} & cluster.hosts.keys()
        violated = {place for host in sources
                    for place in cluster.places(host)
                    if cluster.at(place).violated}
        kept = dataclasses.replace(kept, unresolved=tuple(
            sorted(violated.union(plan.unresolved))))
        selects = kind == SELECT_REQUEST
        LOG.log(
            logging.WARNING if selects else logging.ERROR,
            'Circuit breaker: %(lately)d preemptions in the last '
            '%(period)d s of at most %(limit)d; %(left)d operations are '
            'left out, and %(effect)s.', {
                'lately': lately, 'period': options.breaker_period,
                'limit': limit, 'left': len(left),
                'effect': 'the rest of the switch waits' if selects
                else 'only the agents protect primaries'})
    return kept
