# SPDX-License-Identifier: Apache-2.0

"""Order of the operations of a switch."""

import dataclasses
import unittest

from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.switch_limit import choose_leases
from secondary_scheduler.decisions.switch_ordering import (
    arrange_switch,
    leases_awaited,
)
from secondary_scheduler.estimation.durations import Durations
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import InstanceState
from secondary_scheduler.model.constraints import (
    Among,
    Gather,
    Lonely,
    Spread,
)
from secondary_scheduler.plans.operations import OperationKind
from tests.unit.decisions import worlds
from tests.unit.decisions.worlds import TOTAL, host, vm

SUSPENDED = InstanceState.SUSPENDED


def small(name, slots=1):
    return host(name, total={**TOTAL, vocabulary.SLOT: slots})


class Case(unittest.TestCase):

    def draft(self, *things, lanes=1):
        self.limits = LoadLimits(margin=0.0, lanes=lanes)
        return Draft(worlds.cluster(*things), self.limits)

    def arrange(self, draft):
        return arrange_switch(draft.cluster, draft.steps, self.limits,
                              Durations(migrate=5, suspend=3, resume=4))


class ArrangeTest(Case):

    def test_members_are_suspended_in_natural_order_one_second_apart(self):
        draft = self.draft(host('h'), host('i'), *(
            vm(f'vm{number}', where, lease='l')
            for number, where in ((10, 'h'), (2, 'h'), (1, 'i'))))
        for one in 'vm10', 'vm1', 'vm2':
            draft.preempt(draft.instances[one], OperationKind.SUSPEND)
        found = self.arrange(draft)
        self.assertEqual(
            [('vm1', 0.0), ('vm2', 1.0), ('vm10', 2.0)],
            [(one.instance, one.start_s) for one in found])
        # Both members on one host share its lane.
        self.assertEqual([(), (), ()], [one.after for one in found])

    def test_group_waits_for_all_that_a_member_waits_for(self):
        draft = self.draft(
            host('h'), host('i'), vm('x', 'h'), vm('a', 'h', SUSPENDED,
                                                   lease='l'),
            vm('b', 'i', SUSPENDED, lease='l'))
        draft.preempt(draft.instances['x'], OperationKind.SUSPEND)
        for one, where in (('a', 'h'), ('b', 'i')):
            draft.activate(draft.instances[one], where)
        found = self.arrange(draft)
        self.assertEqual([(), (1,), (1,)], [one.after for one in found])
        self.assertEqual([0.0, 3.0, 4.0], [one.start_s for one in found])

    def test_next_operation_in_a_lane_waits_for_the_whole_group(self):
        draft = self.draft(
            host('h'), host('i'), vm('a', 'h', lease='l'),
            vm('b', 'h', lease='l'), vm('c', 'h'))
        for one in 'ab':
            draft.preempt(draft.instances[one], OperationKind.SUSPEND)
        draft.migrate(draft.instances['c'], 'i')
        last = self.arrange(draft)[-1]
        self.assertEqual(((1, 2), 4.0), (last.after, last.start_s))

    def test_resumes_wait_for_the_last_that_can_run(self):
        # The first member could resume at once.
        draft = self.draft(
            small('h', 2), small('i'), small('k'), vm('a', 'h', SUSPENDED,
                                                      lease='l'),
            vm('m', 'h', memory_mb=4096), vm('b', 'i', SUSPENDED, lease='l'))
        draft.activate(draft.instances['a'], 'h')
        draft.migrate(draft.instances['m'], 'k')
        draft.activate(draft.instances['b'], 'i')
        found = self.arrange(draft)
        self.assertEqual(['m', 'a', 'b'], [one.instance for one in found])
        self.assertEqual([(), (1,), (1,)], [one.after for one in found])

    def test_unshelve_waits_for_its_room(self):
        draft = self.draft(
            small('h'), small('i'), vm('a', 'h'),
            vm('b', None, InstanceState.SHELVED))
        draft.migrate(draft.instances['a'], 'i')
        draft.activate(draft.instances['b'], 'h')
        first, second = self.arrange(draft)
        self.assertEqual(('h', (first.id,)), (second.target, second.after))

    def test_return_of_a_bypass_takes_its_room_again(self):
        draft = self.draft(
            small('h'), small('i'), small('k'), vm('a', 'h'), vm('b', 'i'))
        for uuid, where in (('a', 'k'), ('a', 'h'), ('a', 'k'), ('b', 'h')):
            draft.migrate(draft.instances[uuid], where)
        found = self.arrange(draft)
        self.assertIn(3, found[3].after)

    def test_arrival_waits_for_a_member_that_must_not_share_its_host(self):
        world = self.draft(host('h'), host('i'), host('k'), vm('a', 'h'),
                           vm('b', 'i'), lanes=2).cluster
        for constraint, after in (
                (Spread(frozenset('ab')), (1,)),
                (Lonely(frozenset('a')), (1,)),
                (Lonely(frozenset('b')), (1,)),
                (Spread(frozenset('ac')), ())):
            draft = Draft(dataclasses.replace(
                world, constraints=(constraint,)), self.limits)
            draft.migrate(draft.instances['b'], 'k')
            draft.migrate(draft.instances['a'], 'i')
            self.assertEqual([(), after], [
                one.after for one in self.arrange(draft)])

    def test_arrival_waits_for_a_member_that_must_not_be_elsewhere(self):
        world = self.draft(
            host('h'), host('i'), vm('a', 'h'),
            vm('b', None, InstanceState.SHELVED, preempted=True),
            lanes=2).cluster
        groups = frozenset('h'), frozenset('i')
        for constraint, after in (
                (Gather(frozenset('ab')), (1,)),
                (Among(frozenset('ab'), groups), (1,)),
                (Among(frozenset('ab'), (frozenset('hi'),)), ()),
                (Gather(frozenset('ac')), ())):
            draft = Draft(dataclasses.replace(
                world, constraints=(constraint,)), self.limits)
            draft.migrate(draft.instances['a'], 'i')
            draft.activate(draft.instances['b'], 'i')
            self.assertEqual([(), after], [
                one.after for one in self.arrange(draft)], constraint)

    def test_no_steps_are_no_operations(self):
        self.assertEqual((), self.arrange(self.draft(host('h'))))


class LimitTest(Case):

    def test_lease_awaits_those_that_free_its_room(self):
        draft = self.draft(
            small('h'), small('i'), small('k'), vm('a', 'h', lease='x'),
            vm('b', 'i', lease='y'), vm('c', 'k', lease='z'), small('m'))
        draft.migrate(draft.instances['a'], 'm')
        draft.migrate(draft.instances['b'], 'h')
        draft.preempt(draft.instances['c'], OperationKind.SUSPEND)
        awaited = leases_awaited(draft.cluster, draft.steps, self.limits)
        self.assertEqual({'x': set(), 'y': {'x'}, 'z': set()}, awaited)

    def test_leases_are_chosen_in_the_order_of_the_queue(self):
        draft = self.draft(host('h'), host('i'), *(
            vm(uuid, 'h', lease=lease)
            for uuid, lease in ('ax', 'bx', 'cy', 'dz', 'ez')))
        for uuid in 'abc':
            draft.migrate(draft.instances[uuid], 'i')
        for uuid in 'de':
            draft.preempt(draft.instances[uuid], OperationKind.SUSPEND)
        for queue, awaited, most, chosen in (
                ('xyz', {}, 3, 'xy'), ('xyz', {}, 5, 'xyz'),
                ('zyx', {}, 3, 'xy'),           # suspensions come last
                ('xyz', {'x': 'z'}, 4, 'xz'), ('yxz', {'x': 'z'}, 3, 'yz'),
                ('xyz', {'x': 'y', 'y': 'z'}, 1, 'xyz')):
            self.assertEqual(set(chosen), choose_leases(
                queue, awaited, draft.steps, most), (queue, awaited, most))
