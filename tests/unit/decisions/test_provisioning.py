# SPDX-License-Identifier: Apache-2.0

"""Decision ``provisioning``."""

import dataclasses
import unittest

from hypothesis import given

from secondary_scheduler.decisions import violations, what_if
from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.provisioning import ProvisioningDecision
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    HostPolicy,
    InFlight,
    InstanceState,
    Item,
    LeaseMembers,
)
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.plans import checker
from tests.unit.decisions import worlds
from tests.unit.decisions.test_properties import COUNTING
from tests.unit.decisions.worlds import (
    TOTAL,
    cluster,
    host,
    kinds,
    slots_policy,
    vm,
)


def slots(name, count, **values):
    return host(name, 0.0, policies=(slots_policy(count),), **values)


def new(uuid, lease, **values):
    """Return an instance that has never run and has no host."""
    return vm(uuid, None, InstanceState.STOPPED, lease=lease, **values)


def leased(world, *leases):
    return dataclasses.replace(world, leases={
        one.name: dataclasses.replace(one, state=LeaseState.QUEUED)
        for one in leases})


class Case(unittest.TestCase):

    def decide(self, world, units=1000, hosts=(), **values):
        budget = Budget(units)
        plan = ProvisioningDecision(**values).decide(
            world, DecisionRequest('return', hosts), budget)
        lanes = values.get('limits', LoadLimits()).lanes
        self.assertEqual([], checker.check(world, plan, lanes))
        self.assertEqual(budget.truncated, plan.truncated)
        return plan


class TestProvisioning(Case):

    def test_first_feasible_host_is_taken(self):
        world = leased(cluster(
            slots('h1', 1), slots('h2', 2), slots('h3', 9), vm('x', 'h2'),
            *(new(uuid, 'l') for uuid in 'abc')), LeaseMembers('l'))
        self.assertEqual({'a': ('start', 'h1'), 'b': ('start', 'h2'),
                          'c': ('start', 'h3')},
                         kinds(self.decide(world, spreads=False)))

    def test_spread_prefers_unclaimed_cpu(self):
        world = leased(cluster(
            *(slots(name, 9) for name in ('busy', 'full', 'idle')),
            vm('x', 'busy'), vm('y', 'full', vcpus=2),
            vm('z', 'idle', InstanceState.SUSPENDED),
            *(new(uuid, uuid) for uuid in 'abcd')),
            *(LeaseMembers(name, -ord(name)) for name in 'abcd'))
        self.assertEqual(
            {'a': ('start', 'idle'), 'b': ('start', 'busy'),
             'c': ('start', 'idle'), 'd': ('start', 'busy')},
            kinds(self.decide(world)))

    def test_infeasible_lease_is_skipped(self):
        world = leased(
            cluster(
                slots('h', 2),
                *(new(f'a{one}', 'big') for one in range(3)),
                new('b', 'small'),
                new('c', 'other'),
            ),
            LeaseMembers('big', 9),
            LeaseMembers('small', 2),
            LeaseMembers('other', 3),
        )
        self.assertEqual({'b', 'c'}, set(kinds(self.decide(world))))

    def test_accepted_leases_count(self):
        world = leased(cluster(
            slots('h', 1), slots('i', 1),
            *(new(uuid, uuid) for uuid in 'abc')),
            *(LeaseMembers(name, ord(name)) for name in 'abc'))
        self.assertEqual({'c': ('start', 'h'), 'b': ('start', 'i')},
                         kinds(self.decide(world)))

    def test_ongoing_departure_still_takes_room(self):
        # No operation of a plan can wait for an ongoing one.
        world = leased(cluster(
            slots('h', 1), slots('i', 1), vm('a', 'h', InstanceState.BUSY),
            new('b', 'l')), LeaseMembers('l'))
        world = dataclasses.replace(world, in_flight=(
            InFlight('migrate', 'a', 'h', 'i', 3.0),))
        self.assertEqual({}, kinds(self.decide(world)))

    def test_instances_start_by_their_state(self):
        down = {'preempted': True, 'lease': 'l'}
        world = cluster(
            slots('h', 9), slots('i', 9),
            vm('a', 'i', InstanceState.SUSPENDED, **down),
            vm('b', 'i', InstanceState.STOPPED, **down),
            vm('c', None, InstanceState.SHELVED, **down),
            vm('d', None, InstanceState.SUSPENDED, **down))
        self.assertEqual(
            {'a': ('resume', 'i'), 'b': ('start', 'i'),
             'c': ('unshelve', 'h'), 'd': ('resume', 'h')},
            kinds(self.decide(world)))

    def test_instance_with_a_host_starts_there_only(self):
        for where in (slots('i', 0), slots('i', 5, usable=False),
                      slots('i', 5, blocked=True)):
            world = cluster(slots('h', 9), where, vm(
                'a', 'i', InstanceState.SUSPENDED, preempted=True))
            self.assertFalse(self.decide(world))

    def test_closed_hosts_are_no_targets(self):
        for values in ({'usable': False}, {'blocked': True},
                       {'primary': None}, {'violated': True},
                       {'policies': ()},
                       {'total': {**TOTAL, vocabulary.VCPU: 0}}):
            world = leased(cluster(host('h', **values), new('a', 'l')),
                           LeaseMembers('l'))
            self.assertFalse(self.decide(world))

    def test_target_satisfies_anti_affinity(self):
        world = leased(cluster(
            slots('h', 9), slots('i', 9), vm('x', 'h', anti_affinity='g'),
            new('a', 'l', anti_affinity='g')), LeaseMembers('l'))
        self.assertEqual({'a': ('start', 'i')}, kinds(self.decide(world)))

    def test_start_uses_overhead_and_newcomer_share(self):
        # 20 % of overhead during the boot, then 20 % as a newcomer.
        for primary, count in ((69.0, 1), (69.1, 0), (49.0, 2), (49.1, 1),
                               (29.0, 3)):
            world = leased(
                cluster(
                    host('h', primary), *(new(uuid, uuid) for uuid in 'abcd')
                ),
                *map(LeaseMembers, 'abcd'),
            )
            self.assertEqual(count, len(kinds(self.decide(world))))

    def test_newcomer_counts_fully_on_an_item(self):
        # With a smaller estimate the newcomer would have to leave again.
        uplink = HostPolicy('net_out <= 50% for 15s', 'net_out', 50.0, 15)
        for used, comes in ((40.0, True), (41.0, False)):
            world = cluster(
                host('h', usage={'net_out': 0.0}),
                Item('rack', ('h',), (uplink,), 0.5, {'net_out': 30.0}),
                vm('a', 'h', InstanceState.SUSPENDED, preempted=True,
                   usage={'net_out': used}))
            self.assertEqual(comes, bool(self.decide(world)))

    def test_policies_hold_during_and_after_starts(self):
        # 30 + 3 starts of 20 are 90, during the starts and afterwards.
        tight = HostPolicy('cpu <= 90%', 'cpu', 90.0, 10, sensitivity=4)
        world = leased(cluster(
            host('h', 30.0, policies=(tight,)),
            *(new(uuid, uuid) for uuid in 'abcd')), *map(LeaseMembers, 'abcd'))
        for schedule in (what_if.at_once, what_if.in_order):
            self.assertEqual(3, len(kinds(self.decide(
                world, limits=LoadLimits(margin=0.0),
                profile=violations.CostProfile(schedule=schedule)))))

    def test_requested_hosts_and_budget_limit_the_plan(self):
        world = leased(cluster(slots('h', 9), slots('i', 9), new('a', 'l')),
                       LeaseMembers('l'))
        self.assertEqual({'a': ('start', 'i')},
                         kinds(self.decide(world, hosts=('i',))))
        self.assertFalse(self.decide(world, units=0))

    def test_other_requests_yield_an_empty_plan(self):
        world = cluster(host('h', 99.0, violated=True), host('i'),
                        vm('a', 'h'))
        driver = ProvisioningDecision()
        for kind, hosts, left in (('preempt', (), ('h',)),
                                  ('preempt', ('i',), ()),
                                  ('drain', ('i',), ('i',)),
                                  ('drain', (), ())):
            plan = driver.decide(world, DecisionRequest(kind, hosts), Budget())
            self.assertFalse(plan)
            self.assertEqual(left, plan.unresolved)


class TestProperties(unittest.TestCase):

    @given(worlds.clusters())
    def test_plans_are_valid_and_keep_the_policies(self, world):
        driver = ProvisioningDecision()
        plan = driver.decide(world, DecisionRequest('return'), Budget())
        self.assertEqual([], checker.check(
            world, plan, driver.limits.lanes))
        self.assertEqual(plan, driver.decide(world, DecisionRequest('return'),
                                             Budget()))
        after = worlds.apply(world, plan)
        for name in {one.target for one in plan.operations}:
            values = world.hosts[name]
            running = len(worlds.on(after, name, *COUNTING))
            least = {'slots': running,
                     'cpu': values.cpu_primary + 5 * running}
            for policy in values.policies:
                self.assertLessEqual(least.get(policy.resource, 0),
                                     policy.threshold)
