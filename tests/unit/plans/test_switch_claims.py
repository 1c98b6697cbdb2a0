# SPDX-License-Identifier: Apache-2.0

"""Chains, groups and claims of context switches."""

import dataclasses
import unittest

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import InstanceState
from secondary_scheduler.model.constraints import Among, Gather, Spread
from secondary_scheduler.plans.checker import check
from secondary_scheduler.plans.operations import (
    ClaimedState,
    Operation,
    OperationKind,
    Plan,
    SwitchClaim,
)
from tests.unit.decisions.worlds import TOTAL, cluster, host, slots_policy, vm

ONE = {**TOTAL, vocabulary.SLOT: 1}
_AFTER = {OperationKind.SUSPEND: InstanceState.SUSPENDED,
          OperationKind.SHELVE: InstanceState.SHELVED}


def op(number, kind, uuid, source, target=None, start=0.0, after=(),
       lease=None):
    return Operation(number, kind, uuid, lease or f'lease-{uuid}', source,
                     target, start, 5.0, after)


def migrate(number, uuid, source, target, start=0.0, after=(), **values):
    return op(number, OperationKind.MIGRATE, uuid, source, target, start,
              after, **values)


def suspend(number, uuid, source, start=0.0, after=(), **values):
    return op(number, OperationKind.SUSPEND, uuid, source, None, start, after,
              **values)


def resume(number, uuid, home, start=0.0, after=(), **values):
    return op(number, OperationKind.RESUME, uuid, home, home, start, after,
              **values)


def switch(*operations, bypassed=(), **states):
    """Return a plan with true claims, or with the given ones."""
    ends = {one.instance: ClaimedState(
        _AFTER.get(one.kind, InstanceState.ACTIVE),
        None if one.kind is OperationKind.SHELVE
        else one.target or one.source) for one in operations}
    return Plan(operations, switch=SwitchClaim(
        'cost', 9, 9, 'optimal', {**ends, **states}, bypassed))


class Case(unittest.TestCase):

    def good(self, world, plan, lanes=None):
        self.assertEqual([], check(world, plan, lanes))

    def bad(self, words, world, plan, lanes=None):
        faults = check(world, plan, lanes)
        self.assertTrue(any(words in fault for fault in faults),
                        f'{words!r} not in {faults}')


class TestChains(Case):

    def setUp(self):
        self.world = cluster(
            host('n1', total=ONE), host('n2', total=ONE), host('n3'),
            vm('v1', 'n1'), vm('v2', 'n2'))
        self.cycle = (
            migrate(1, 'v1', 'n1', 'n3'),
            migrate(2, 'v2', 'n2', 'n1', 5.0, (1,)),
            migrate(3, 'v1', 'n3', 'n2', 10.0, (2,)))

    def test_cycle_is_broken_by_a_pivot(self):
        self.good(self.world, switch(*self.cycle))
        self.bad('instance v1 has several operations', self.world,
                 Plan(self.cycle))

    def test_wait_of_a_part_is_a_dependency(self):
        self.bad('operation 3 (migrate of v1): nothing makes it wait for 1',
                 self.world, switch(*self.cycle[:2], dataclasses.replace(
                     self.cycle[2], after=())))

    def test_returning_instance_needs_room_again(self):
        there, back = (migrate(1, 'v1', 'n1', 'n3'),
                       migrate(2, 'v1', 'n3', 'n1', 5.0, (1,)))
        self.good(self.world, switch(there, back))
        self.bad('host n1 has no room', self.world, switch(
            there, migrate(3, 'v2', 'n2', 'n1', 5.0, (1,)),
            dataclasses.replace(back, start_s=11.0)))
        # Only the estimated times keep it from n1 before v2 has gone.
        self.bad('operation 2 (migrate of v1): nothing makes it wait until '
                 'host n1 has room', self.world, switch(
                     there, migrate(3, 'v2', 'n2', 'n1', 5.0, (1,)),
                     migrate(4, 'v2', 'n1', 'n2', 10.0, (3,)),
                     dataclasses.replace(back, start_s=15.0)))

    def test_lease_is_suspended_and_resumed_if_the_plan_says_so(self):
        world = cluster(
            host('n1', policies=(slots_policy(1),)), host('n2'), host('n3'),
            vm('a', 'n1'), vm('b', 'n2'))
        chain = (suspend(1, 'a', 'n1'),
                 migrate(2, 'b', 'n2', 'n1', 5.0, (1,)),
                 migrate(3, 'b', 'n1', 'n3', 10.0, (2,)),
                 resume(4, 'a', 'n1', 15.0, (3,)),
                 migrate(5, 'a', 'n1', 'n2', 20.0, (4,)))
        self.good(world, switch(*chain, bypassed=('lease-a',)))
        self.bad('instance a has several operations: suspend, resume, '
                 'migrate', world, switch(*chain))
        self.bad('lease lease-a is both preempted and brought back', world,
                 switch(*chain))
        self.bad('instance a is not suspended and resumed with lease '
                 'lease-a, but has operations suspend', world,
                 switch(*chain[:3], bypassed=('lease-a',)))
        # While it is suspended its use is free, but the resume waits.
        self.bad('a policy of n1 allows no more slots', world, switch(
            *chain[:2], resume(4, 'a', 'n1', 10.0, (2,)),
            bypassed=('lease-a',)))

    def test_member_that_is_down_returns_with_a_bypassed_lease(self):
        world = cluster(
            host('n1', policies=(slots_policy(1),)), host('n2'), host('n3'),
            vm('a', 'n1', lease='l'), vm('b', 'n2'),
            vm('c', 'n3', InstanceState.SUSPENDED, lease='l',
               preempted=True))
        chain = (suspend(1, 'a', 'n1', lease='l'),
                 migrate(2, 'b', 'n2', 'n1', 5.0, (1,)),
                 migrate(3, 'b', 'n1', 'n3', 10.0, (2,)),
                 resume(4, 'a', 'n1', 15.0, (3,), lease='l'),
                 resume(5, 'c', 'n3', 16.0, (3,), lease='l'),
                 migrate(6, 'c', 'n3', 'n2', 21.0, (5,), lease='l'))
        self.good(world, switch(*chain, bypassed=('l',)))
        self.bad('lease l is not suspended and resumed, as claimed', world,
                 switch(resume(1, 'c', 'n3', lease='l'), bypassed=('l',)))

    def test_other_chains_are_refused(self):
        for chain in (
                (migrate(1, 'v1', 'n1', 'n3'),
                 suspend(2, 'v1', 'n3', 5.0, (1,))),
                (suspend(1, 'v1', 'n1'), resume(2, 'v1', 'n1', 5.0, (1,)),
                 suspend(3, 'v1', 'n1', 10.0, (2,)))):
            self.bad('instance v1 has several operations', self.world,
                     switch(*chain))


class TestGroups(Case):

    def setUp(self):
        self.uuids = ['vm2', 'vm10', 'vm9']
        self.running = cluster(
            host('h'), host('x'),
            *(vm(uuid, 'h', lease='l') for uuid in self.uuids), vm('z', 'h'))
        self.suspended = cluster(
            host('h'), host('x'), vm('z', 'h'), *(
                vm(uuid, 'h', InstanceState.SUSPENDED, lease='l',
                   preempted=True) for uuid in self.uuids))

    def down(self, *starts, after=((), (), ())):
        return [suspend(number, uuid, 'h', start, waits, lease='l')
                for number, (uuid, start, waits) in enumerate(zip(
                    self.uuids, starts, after, strict=True), 1)]

    def up(self, *starts, after=((), (), ())):
        return [resume(number, uuid, 'h', start, waits, lease='l')
                for number, (uuid, start, waits) in enumerate(zip(
                    self.uuids, starts, after, strict=True), 1)]

    def test_members_start_in_natural_order_one_second_apart(self):
        for world, make in ((self.running, self.down),
                            (self.suspended, self.up)):
            self.good(world, switch(*make(0.0, 2.0, 1.0)))
            self.good(world, switch(*make(0.0, 5.0, 1.0)))
            self.bad('members do not start within 5 s', world,
                     switch(*make(0.0, 5.1, 1.0)))
            self.bad('(%s of vm10): starts less than 1 s after 3' % (
                'suspend' if make == self.down else 'resume'), world,
                switch(*make(0.0, 1.9, 1.0)))
            self.bad('starts less than 1 s after 3, the preceding member of '
                     'lease l', world, switch(*make(0.0, 1.0, 2.0)))
            # A plan without claims is not a context switch.
            self.good(world, Plan(tuple(make(0.0, 0.0, 0.0))))

    def test_members_wait_for_the_same_operations(self):
        first = migrate(9, 'z', 'h', 'x')
        alike = switch(first, *self.up(5.0, 7.0, 6.0, after=((9,),) * 3))
        self.good(self.suspended, alike)
        self.bad('(resume of vm9): waits for other operations than 1',
                 self.suspended, switch(first, *self.up(
                     5.0, 7.0, 6.0, after=((9,), (9,), ()))))
        self.bad('waits for other operations than', self.running, switch(
            *self.down(0.0, 6.0, 1.0, after=((), (3,), ()))))

    def test_group_needs_one_lane_on_a_host(self):
        group = self.down(0.0, 2.0, 1.0)
        self.good(self.running, switch(*group), 1)
        beside = migrate(9, 'z', 'h', 'x', 7.0)
        self.bad('too many at a time on h: 2 operations', self.running,
                 switch(*group, beside), 1)
        for after in ((1,), (2, 3)):
            self.bad('too many at a time on h: 2 operations', self.running,
                     switch(*group, dataclasses.replace(
                         beside, after=after)), 1)
        self.good(self.running, switch(*group, dataclasses.replace(
            beside, after=(1, 2, 3))), 1)
        # Separate operations need a lane each.
        self.bad('too many at a time on h: 3 operations', self.running,
                 Plan(tuple(group)), 2)


class TestEnd(Case):

    def setUp(self):
        self.world = cluster(host('h'), host('x'), vm('a', 'h'), vm('b', 'h'))
        self.move = migrate(1, 'a', 'h', 'x')

    def test_plan_ends_as_claimed(self):
        self.good(self.world, switch(self.move, b=ClaimedState(
            InstanceState.ACTIVE, 'h')))
        for claimed, words in (
                ({'a': ClaimedState(InstanceState.ACTIVE, 'h')},
                 'instance a ends active on host x, not active on host h as '
                 'claimed'),
                ({'a': ClaimedState(InstanceState.SUSPENDED, 'x')},
                 'not suspended on host x'),
                ({'b': ClaimedState(InstanceState.ACTIVE, 'x')},
                 'instance b ends active on host h'),
                ({'z': ClaimedState(InstanceState.ACTIVE, 'x')},
                 'instance z, which is unknown')):
            self.bad(words, self.world, switch(self.move, **claimed))
        self.bad('the claimed end omits instance a', self.world, Plan(
            (self.move,), switch=SwitchClaim('cost', 1, 1, '', {})))

    def test_claim_names_the_host_of_an_unshelved_instance(self):
        self.bad('instance a ends active on host x', self.world, switch(
            self.move, a=ClaimedState(InstanceState.ACTIVE, None)))
        world = cluster(host('h'), vm('a', None, InstanceState.SHELVED))
        up = op(1, OperationKind.UNSHELVE, 'a', None, 'h')
        self.good(world, switch(up, a=ClaimedState(
            InstanceState.ACTIVE, 'h')))
        for claimed in (ClaimedState(InstanceState.ACTIVE, None),
                        ClaimedState(InstanceState.SHELVED, None)):
            self.bad('instance a ends active on host h', world,
                     switch(up, a=claimed))

    def test_cost_is_at_least_its_bound(self):
        for value, bound, words in (
                (3, 4, 'claimed cost 3 is below its bound 4'),
                (4, 3, 'claimed cost 4 is not optimal: its bound is 3'),
                (4, None, 'claimed cost 4 is not optimal'),
                (float('nan'), None, 'claimed cost nan is no cost'),
                (-1, None, 'claimed cost -1 is no cost')):
            plan = switch(self.move)
            self.bad(words, self.world, dataclasses.replace(
                plan, switch=dataclasses.replace(
                    plan.switch, value=value, bound=bound)))

    def test_room_that_the_lease_schedule_keeps_is_left(self):
        world = cluster(host('h'), vm('a', 'h'), host(
            'x', total=ONE, held={vocabulary.SLOT: 1}))
        self.bad('host x has no room in CUSTOM_SECONDARY_SLOT', world,
                 switch(self.move))
        self.good(world, Plan((self.move,)))


class TestConstraints(Case):

    def world(self, *constraints, **hosts):
        return dataclasses.replace(
            cluster(*map(host, 'hxyz'), *(
                vm(uuid, where) for uuid, where in hosts.items())),
            constraints=constraints)

    def test_broken_constraint_is_not_made_worse(self):
        world = self.world(Spread(frozenset('abcd')), a='h', b='h', c='x',
                           d='y', e='x')
        self.good(world, Plan((migrate(1, 'a', 'h', 'z'),)))
        self.good(world, Plan((migrate(1, 'e', 'x', 'h'),)))
        self.bad('breaks spread of a, b, c, ...: c shares host h', world,
                 Plan((migrate(1, 'c', 'x', 'h'),)))
        self.bad('breaks spread of a, b, c, ...: a shares host x', world,
                 Plan((migrate(1, 'a', 'h', 'x'),)))

    def test_broken_gather_and_among_are_repaired(self):
        for constraint in (
                Gather(frozenset('abc')),
                Among(frozenset('abc'), tuple(map(frozenset, 'hxyz')))):
            world = self.world(constraint, a='h', b='x', c='x')
            self.good(world, Plan((migrate(1, 'a', 'h', 'x'),)))
            self.good(world, Plan((
                migrate(1, 'b', 'x', 'h'),
                migrate(2, 'c', 'x', 'h', 5.0, (1,)))))
            self.bad(f'breaks {constraint}', world,
                     Plan((migrate(1, 'a', 'h', 'y'),)))

    def test_migrating_instance_is_on_two_hosts(self):
        world = self.world(Spread(frozenset('ab')), a='h', b='x')
        out = migrate(1, 'a', 'h', 'y')
        self.good(world, Plan((out, migrate(2, 'b', 'x', 'h', 5.0, (1,)))))
        self.bad('breaks spread of a, b: b shares host h', world,
                 Plan((out, migrate(2, 'b', 'x', 'h', 4.0))))
        self.bad('operation 2 (migrate of b): nothing makes it wait until it '
                 'cannot break spread of a, b', world,
                 Plan((out, migrate(2, 'b', 'x', 'h', 5.0))))

    def test_suspended_instance_stays_on_its_host(self):
        world = dataclasses.replace(
            cluster(host('h'), host('x'), vm('b', 'x'),
                    vm('a', 'h', InstanceState.SUSPENDED)),
            constraints=(Spread(frozenset('ab')),))
        self.bad('breaks spread of a, b', world,
                 Plan((migrate(1, 'b', 'x', 'h'),)))
        self.good(world, Plan((resume(1, 'a', 'h'),)))

    def test_unknown_members_are_on_no_host(self):
        world = self.world(Spread(frozenset({'a', 'gone'})), a='h')
        self.good(world, Plan((migrate(1, 'a', 'h', 'x'),)))


class TestSizes(Case):

    def test_instance_that_wants_more_than_any_host_may_return_alone(self):
        world = cluster(host('large', 85.0, cpus=64.0),
                        host('small', 10.0, cpus=4.0), *(
            vm(uuid, None, InstanceState.SHELVED, cpu=5.1, preempted=True)
            for uuid in 'vw'))
        first, second = (
            op(number, OperationKind.UNSHELVE, uuid, None, 'small', start)
            for number, uuid, start in ((1, 'v', 0.0), (2, 'w', 5.0)))
        self.good(world, switch(first))
        self.bad('leaves 3.2 CPUs on host small, of which instances from '
                 'hosts of another size use 5.12 CPUs', world,
                 switch(first, second))
        self.assertNotEqual([], check(world, Plan((first,))))
