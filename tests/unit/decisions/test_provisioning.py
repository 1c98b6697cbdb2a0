"""Who may run, in which order, and where."""

import dataclasses
import unittest

from hypothesis import given

from secondary_scheduler.decisions import violations, what_if
from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.provisioning import ProvisioningDecision
from secondary_scheduler.decisions.waiting import priority, queue
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    HostPolicy,
    InFlight,
    InstanceState,
    Item,
    LeaseMembers,
)
from secondary_scheduler.model.lease_order import Aged, Priority
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
    """Return an instance that has never run, nor has it a host."""
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


class TestQueue(Case):

    def test_priority(self):
        self.assertEqual(6.5, priority(LeaseMembers('l'), 3))
        self.assertEqual(9.0, priority(LeaseMembers('l', owner_priority=8), 2))
        self.assertEqual(2, priority(LeaseMembers('l', 2), 30))

    def order(self, world, **values):
        return [one.lease for one in queue(
            world, **{'order': Priority()} | values)]

    def test_priority_then_first_come(self):
        world = leased(
            cluster(*(new(f'{name}{one}', name) for name, size in (
                ('a', 1), ('b', 4), ('c', 1), ('d', 2), ('e', 1))
                for one in range(size))),
            LeaseMembers('a', waited_s=5), LeaseMembers(
                'b'), LeaseMembers('c', waited_s=9),
            LeaseMembers('d', 1), LeaseMembers('e', 9))
        self.assertEqual(['e', 'b', 'c', 'a', 'd'], self.order(world))

    def test_ageing(self):
        world = leased(
            cluster(new('a', 'old'), new('b', 'high')),
            LeaseMembers('old', 1, waited_s=7200),
            LeaseMembers('high', 4),
        )
        self.assertEqual(['high', 'old'], self.order(world))
        self.assertEqual(['high', 'old'], self.order(world, order=Aged(1.4)))
        self.assertEqual(['old', 'high'], self.order(world, order=Aged(1.6)))

    def test_who_waits(self):
        world = cluster(
            host('h'),
            vm('a', 'h', InstanceState.SUSPENDED, preempted=True),
            vm('b', 'h', InstanceState.SUSPENDED),
            vm('c', 'h'),
            new('d', 'd'),
            new('e', 'e', blocked=True),
            new('r', 'r', cooling_down=True),
            new('s', 's'),
            vm('t', 'h', InstanceState.OTHER, lease='s',
               return_failed=True),
            vm(
                'u',
                'h',
                InstanceState.SUSPENDED,
                lease='u',
                preempted=True,
                return_failed=True,
            ),
            vm('v', 'h', lease='d', preempt_failed=True),
            new('f', 'f'),
            vm('g', 'h', InstanceState.BUSY, lease='f'),
        )
        self.assertEqual(['lease-a'], self.order(world))
        self.assertEqual(['d', 'lease-a'], self.order(
            leased(world, *map(LeaseMembers, 'defrsu'))))


class TestProvisioning(Case):

    def test_first_fit(self):
        world = leased(cluster(
            slots('h1', 1), slots('h2', 2), slots('h3', 9), vm('x', 'h2'),
            *(new(uuid, 'l') for uuid in 'abc')), LeaseMembers('l'))
        self.assertEqual({'a': ('start', 'h1'), 'b': ('start', 'h2'),
                          'c': ('start', 'h3')},
                         kinds(self.decide(world, spreads=False)))

    def test_where_most_cpu_is_left(self):
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

    def test_all_or_nothing_and_backfill(self):
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

    def test_what_was_accepted_counts(self):
        world = leased(cluster(
            slots('h', 1), slots('i', 1),
            *(new(uuid, uuid) for uuid in 'abc')),
            *(LeaseMembers(name, ord(name)) for name in 'abc'))
        self.assertEqual({'c': ('start', 'h'), 'b': ('start', 'i')},
                         kinds(self.decide(world)))

    def test_who_is_leaving_still_has_its_place(self):
        # Nothing of a plan can wait for what is under way already.
        world = leased(cluster(
            slots('h', 1), slots('i', 1), vm('a', 'h', InstanceState.BUSY),
            new('b', 'l')), LeaseMembers('l'))
        world = dataclasses.replace(world, in_flight=(
            InFlight('migrate', 'a', 'h', 'i', 3.0),))
        self.assertEqual({}, kinds(self.decide(world)))

    def test_each_in_its_way(self):
        down = {'preempted': True, 'lease': 'l'}
        world = cluster(
            slots('h', 9), slots('i', 9),
            vm('a', 'i', InstanceState.SUSPENDED, **down),
            vm('b', 'i', InstanceState.STOPPED, **down),
            vm('c', None, InstanceState.SHELVED, **down),
            vm('d', None, InstanceState.SUSPENDED, **down))
        self.assertEqual(
            {'a': ('resume', 'i'), 'b': ('start', 'i'),
             'c': ('unshelve', None), 'd': ('resume', 'h')},
            kinds(self.decide(world)))

    def test_in_place_or_not_at_all(self):
        for where in (slots('i', 0), slots('i', 5, usable=False),
                      slots('i', 5, blocked=True)):
            world = cluster(slots('h', 9), where, vm(
                'a', 'i', InstanceState.SUSPENDED, preempted=True))
            self.assertFalse(self.decide(world))

    def test_closed_hosts(self):
        for values in ({'usable': False}, {'blocked': True},
                       {'primary': None}, {'violated': True},
                       {'policies': ()},
                       {'total': {**TOTAL, vocabulary.VCPU: 0}}):
            world = leased(cluster(host('h', **values), new('a', 'l')),
                           LeaseMembers('l'))
            self.assertFalse(self.decide(world))

    def test_peers_stay_apart(self):
        world = leased(cluster(
            slots('h', 9), slots('i', 9), vm('x', 'h', anti_affinity='g'),
            new('a', 'l', anti_affinity='g')), LeaseMembers('l'))
        self.assertEqual({'a': ('start', 'i')}, kinds(self.decide(world)))

    def test_a_start_uses_as_much_as_a_newcomer(self):
        # while it boots 20 % of overhead, and then 20 % as a newcomer
        for primary, count in ((69.0, 1), (69.1, 0), (49.0, 2), (49.1, 1),
                               (29.0, 3)):
            world = leased(
                cluster(
                    host('h', primary), *(new(uuid, uuid) for uuid in 'abcd')
                ),
                *map(LeaseMembers, 'abcd'),
            )
            self.assertEqual(count, len(kinds(self.decide(world))))

    def test_no_agent_holds_what_hosts_share(self):
        # Less would be foreseen of a newcomer, which then has to leave again.
        uplink = HostPolicy('net_out <= 50% for 15s', 'net_out', 50.0, 15)
        for used, comes in ((40.0, True), (41.0, False)):
            world = cluster(
                host('h', usage={'net_out': 0.0}),
                Item('rack', ('h',), (uplink,), 0.5, {'net_out': 30.0}),
                vm('a', 'h', InstanceState.SUSPENDED, preempted=True,
                   usage={'net_out': used}))
            self.assertEqual(comes, bool(self.decide(world)))

    def test_horizon(self):
        # 30 + 3 starts of 20: 90 while they go on, and 90 in the end
        tight = HostPolicy('cpu <= 90%', 'cpu', 90.0, 10, sensitivity=4)
        world = leased(cluster(
            host('h', 30.0, policies=(tight,)),
            *(new(uuid, uuid) for uuid in 'abcd')), *map(LeaseMembers, 'abcd'))
        for schedule in (what_if.at_once, what_if.in_order):
            self.assertEqual(3, len(kinds(self.decide(
                world, limits=LoadLimits(margin=0.0),
                profile=violations.CostProfile(schedule=schedule)))))

    def test_scope_and_budget(self):
        world = leased(cluster(slots('h', 9), slots('i', 9), new('a', 'l')),
                       LeaseMembers('l'))
        self.assertEqual({'a': ('start', 'i')},
                         kinds(self.decide(world, hosts=('i',))))
        self.assertFalse(self.decide(world, units=0))

    def test_nobody_gives_way(self):
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
    def test_every_plan_is_good_and_keeps_the_policies(self, world):
        driver = ProvisioningDecision()
        plan = driver.decide(world, DecisionRequest('return'), Budget())
        self.assertEqual([], checker.check(
            world, plan, driver.limits.lanes))
        self.assertEqual(plan, driver.decide(world, DecisionRequest('return'),
                                             Budget()))
        after = worlds.apply(world, plan)
        # The scheduler may put who is unshelved where others are to come up.
        chosen = {after.instances[one.instance].host
                  for one in plan.operations if one.target is None}
        for name in {one.target for one in plan.operations
                     if one.target is not None} - chosen:
            values = world.hosts[name]
            running = len(worlds.on(after, name, *COUNTING))
            least = {'slots': running,
                     'cpu': values.cpu_primary + 5 * running}
            for policy in values.policies:
                self.assertLessEqual(least.get(policy.resource, 0),
                                     policy.threshold)
