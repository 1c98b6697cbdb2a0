# SPDX-License-Identifier: Apache-2.0

"""Constant load finally leads to no operation.

See Boettger 2012, section 4.4.6.3.  Decisions on any cluster are repeated on
the result of their plans, until both plans are empty.
"""

import dataclasses
import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.decisions import violations
from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.provisioning import ProvisioningDecision
from secondary_scheduler.estimation.durations import ConcurrentDurations
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import units
from secondary_scheduler.model.resources import UNTHROTTLED
from secondary_scheduler.policies.language import MODELLED
from tests.unit.decisions import worlds
from tests.unit.decisions.test_properties import COUNTING

LIMITS = LoadLimits()
_THESIS = {'durations': ConcurrentDurations(), 'profile': violations.THESIS}

#: Decisions that preempt, and decisions that return.
PAIRS = st.sampled_from([
    (GuidedDecision(), GuidedDecision()),
    (GuidedDecision(), ProvisioningDecision()),
    (GuidedDecision(**_THESIS), ProvisioningDecision(**_THESIS))])


def measured(world):
    """Return a cluster as its agents would measure and throttle it.

    Each guest has its fair part of the rest below the threshold, and never
    less than the minimum share.  Policies that still fail are violated.
    """
    hosts, instances = {}, dict(world.instances)
    for name, host in world.hosts.items():
        there = worlds.on(world, name, *COUNTING)
        for policy in host.policies:
            if policy.resource in UNTHROTTLED:
                continue
            used = host.primary_use(policy.resource)
            room = policy.threshold - LIMITS.margin - used
            share = min(50.0, max(LIMITS.minimum_share,
                                  room / max(1, len(there))))
            there = [_using(one, policy.resource, units.to_amount(
                share, host.capacity(policy.resource))) for one in there]
        instances |= {one.uuid: one for one in there}
    world = dataclasses.replace(world, instances=instances)
    for name, host in world.hosts.items():
        hosts[name] = dataclasses.replace(host, policies=tuple(
            _checked(policy, world, name) for policy in host.policies))
    items = {name: dataclasses.replace(item, policies=tuple(
        _checked(policy, world, name) for policy in item.policies))
        for name, item in world.items.items()}
    return dataclasses.replace(world, hosts=hosts, items=items)


def _using(one, resource, amount):
    if resource == 'cpu':
        return dataclasses.replace(one, cpu=amount)
    return dataclasses.replace(one, usage={**one.usage, resource: amount})


def _checked(policy, world, name):
    resource = policy.resource
    there = [one for one in world.residents(name) if one.state in COUNTING]
    use = (sum(one.holds(resource) for one in there) if policy.static
           else world.at(name).primary_use(resource) + sum(
               world.percent(name, resource, one) or 0.0 for one in there))
    fails = bool(there) and use > policy.threshold
    return dataclasses.replace(policy, violated=fails, failed=4 * fails)


def known(world):
    """Return a cluster in which all use by primaries is known."""
    return dataclasses.replace(world, hosts={
        name: dataclasses.replace(
            host, cpu_primary=host.cpu_primary or 0.0,
            usage={**dict.fromkeys(MODELLED, 0.0), **host.usage})
        for name, host in world.hosts.items()})


class TestConstantLoad(unittest.TestCase):

    @given(worlds.clusters(failed=0.1), PAIRS)
    def test_constant_load_leads_to_no_operations(self, world, pair):
        preempting, returning = pair
        world = measured(known(world))
        for _round in range(2 * len(world.instances) + 2):
            plans = []
            for decision, kind in ((preempting, 'preempt'),
                                   (returning, 'return')):
                plan = decision.decide(
                    world, DecisionRequest(kind), Budget(2000))
                world = measured(worlds.apply(world, plan))
                plans.append(plan)
            if not any(plans):
                return
        self.fail(f'operations never end: {plans}')
