"""A load that does not change leads to no operation in the end (R37).

Whatever a cluster looks like, decisions are made, carried out and made again
on what that has led to, as often as anything is planned.
"""

import dataclasses
import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.decisions import violations
from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.priority import PriorityDecision
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

#: Who takes away, and who brings back.
PAIRS = st.sampled_from([
    (PriorityDecision(), PriorityDecision()),
    (GuidedDecision(), GuidedDecision()),
    (GuidedDecision(), ProvisioningDecision()),
    (GuidedDecision(**_THESIS), ProvisioningDecision(**_THESIS))])


def measured(world):
    """Return a cluster as its agents would see and hold it.

    Each guest has its fair part of what primary and policies leave, and never
    less than the minimum share; a policy that is violated even so is one for
    the cloud.
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
    """Return a cluster of which every primary's use is known."""
    return dataclasses.replace(world, hosts={
        name: dataclasses.replace(
            host, cpu_primary=host.cpu_primary or 0.0,
            usage={**dict.fromkeys(MODELLED, 0.0), **host.usage})
        for name, host in world.hosts.items()})


class TestConstantLoad(unittest.TestCase):

    @given(worlds.clusters(failed=0.1), PAIRS)
    def test_operations_come_to_an_end(self, world, pair):
        taking, bringing = pair
        world = measured(known(world))
        for _round in range(2 * len(world.instances) + 2):
            plans = []
            for decision, kind in ((taking, 'preempt'),
                                   (bringing, 'return')):
                plan = decision.decide(
                    world, DecisionRequest(kind), Budget(2000))
                world = measured(worlds.apply(world, plan))
                plans.append(plan)
            if not any(plans):
                return
        self.fail(f'operations for ever: {plans}')
