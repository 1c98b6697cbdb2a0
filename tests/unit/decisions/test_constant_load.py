# SPDX-License-Identifier: Apache-2.0

"""Constant load finally leads to no operation.

See Boettger 2012, section 4.4.6.3.  Decisions on any cluster are repeated on
the result of their plans, until both plans are empty.
"""

import dataclasses
import unittest

from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks import constant_loads
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


class TestUnlimitedUse(unittest.TestCase):
    """Decisions on models in which no agent limits an instance."""

    def assert_rest(self, seed, driver):
        found = constant_loads.run(seed, driver)
        self.assertEqual(([], [], []), (
            found.late, found.again, found.fitting))

    # A migration home makes room for a return in the third round.
    @example(2507)
    @given(st.integers(0, 2**32))
    def test_guided_comes_to_rest(self, seed):
        self.assert_rest(seed, 'guided')

    # Idle instances on a host that its primary has filled; an instance that
    # fits nowhere keeps the headroom of all hosts.
    @example(41)
    @example(50504)
    @given(st.integers(0, 2**32))
    def test_context_switch_comes_to_rest(self, seed):
        self.assert_rest(seed, 'context-switch')

    def test_instances_that_use_a_link_do_not_return_to_a_full_one(self):
        for resource in ('cpu', 'mem', 'net_in', 'net_out', 'disk_in',
                         'disk_out', 'pressure'):
            for driver in constant_loads.DRIVERS:
                with self.subTest(resource, driver=driver):
                    model = crowded_model(resource)
                    rounds = [len(constant_loads.decide_round(model, driver))
                              for _round in range(3)]
                    self.assertEqual([4, 0, 0], rounds)

    def test_instances_return_where_their_use_fits(self):
        for driver in constant_loads.DRIVERS:
            model = crowded_model('net_in')
            constant_loads.decide_round(model, driver)
            model['hosts'][0]['usage']['net_in'] = 55
            self.assertEqual(1, len(constant_loads.decide_round(
                model, driver)))
            self.assertEqual((), constant_loads.decide_round(model, driver))


def crowded_model(resource):
    """Return a model of two hosts, each with two instances too many."""
    link = {} if resource in ('cpu', 'mem', 'pressure') else {resource: 1000}
    return {
        'schema': 1, 'policies': [f'{resource} <= 80% for 10s'],
        'hosts': [{
            'name': f'n{number}', 'capacity': {
                'cpus': 4, 'vcpus': 16, 'memory_mb': 8192, 'slots': 8,
                **link},
            'usage': {'cpu': 5, resource: 70}} for number in range(2)],
        'instances': [{
            'name': f'v{number}', 'host': f'n{number % 2}',
            'lease': f'l{number}', 'state': 'active',
            'demand': {'vcpus': 1, 'memory_mb': 512},
            'usage': {'cpu': 2, resource: 20}} for number in range(4)]}


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
