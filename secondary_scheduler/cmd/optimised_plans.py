# SPDX-License-Identifier: Apache-2.0

"""Plans of ``secondary-scheduler plan optimise``."""

import sys

from secondary_scheduler.decisions.base import (
    Budget,
    DecisionRequest,
    SwitchOptions,
)
from secondary_scheduler.decisions.context_switch import (
    ContextSwitchDecision,
)
from secondary_scheduler.decisions.switch_improvement import UnsuitablePlan
from secondary_scheduler.model.cluster import Cluster
from secondary_scheduler.plans.operations import Plan
from secondary_scheduler.reading.values import InputError


def select_leases(cluster: Cluster, options: SwitchOptions,
                  budget: Budget) -> Plan:
    """Return the plan of a context switch."""
    return ContextSwitchDecision().decide(
        cluster, DecisionRequest('select', switch=options), budget)


def drain_unusable_hosts(cluster: Cluster, options: SwitchOptions,
                         budget: Budget) -> Plan:
    """Return the cheapest plan that clears the hosts which are not usable."""
    return ContextSwitchDecision().drain_hosts(cluster, [
        name for name, host in cluster.hosts.items() if not host.usable],
        options, budget)


def improve_plan(cluster: Cluster, given: Plan, options: SwitchOptions,
                 budget: Budget) -> Plan:
    """Return a cheaper plan, or the given one with a message.

    :raises InputError: the given plan does not consist of operations of a
        switch
    """
    try:
        value, found = ContextSwitchDecision().improve_plan(
            cluster, given, options, budget)
    except UnsuitablePlan as exc:
        raise InputError(str(exc)) from exc
    claim = found.switch
    if claim is None or (claim.value >= value
                         or claim.status == 'infeasible'):
        # Bounds are those of plans that suspend first.
        bound = ('unknown' if claim is None or claim.bound is None
                 or claim.bound > value else f'{claim.bound:g}')
        print('secondary-scheduler: no cheaper plan was found; the cost of '
              f'the given one is {value:g}, the bound is {bound}',
              file=sys.stderr)
        return given
    return found
