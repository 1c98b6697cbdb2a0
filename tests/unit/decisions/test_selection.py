# SPDX-License-Identifier: Apache-2.0

"""Packing of members, and selection of the leases that run."""

import dataclasses
import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.packing import (
    PackingError,
    first_fit,
    first_fit_target,
    sticky_target,
)
from secondary_scheduler.decisions.sample_rules import SampleRules
from secondary_scheduler.decisions.selection import (
    QueuedLease,
    SelectionOptions,
    select,
)
from secondary_scheduler.model.configuration import MemberState
from tests.unit.decisions import switch_worlds as worlds
from tests.unit.decisions.test_switch_sequence import configuration

RUNNING, SUSPENDED, WAITING, ENDED = MemberState


def queue(current):
    """Return the leases of a configuration in the order of their names."""
    return [QueuedLease(name) for name in sorted(current.leases)]


class TestFreeRoom(unittest.TestCase):

    @given(st.lists(st.tuples(st.integers(-2, 4), st.integers(0, 4)),
                    max_size=9),
           st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4),
                              st.integers(0, 4)), max_size=12))
    def test_first_host_is_that_of_a_linear_search(self, capacity, changes):
        hosts = {f'h{number}': amounts
                 for number, amounts in enumerate(capacity)}
        room = FreeRoom(hosts, frozenset({'h1'}))
        for number, *need in changes:
            expected = next((
                host for host in hosts if host != 'h1'
                and worlds.fits(need, room.free[host])), None)
            self.assertEqual(expected, room.find_first(tuple(need)))
            room.take(f'h{number}', tuple(need))

    def test_predicate_excludes_hosts(self):
        room = FreeRoom({'a': (1,), 'b': (1,)})
        self.assertEqual('b', room.find_first((1,), lambda one: one != 'a'))
        self.assertIsNone(room.find_first((1,), lambda one: False))


class TestPacking(unittest.TestCase):

    def setUp(self):
        self.current = configuration(
            {'N1': 1024, 'N2': 1024, 'N3': 1024},
            [('VM1', 'j1', RUNNING, 'N3', 512),
             ('VM2', 'j1', SUSPENDED, 'N2', 768),
             ('VM3', 'j2', WAITING, None, 256)])

    def hosts(self, target):
        return {name: one.host for name, one in target.members.items()}

    def test_first_fit_ignores_present_hosts(self):
        target = first_fit_target(self.current, {'j1': RUNNING,
                                                 'j2': RUNNING})
        self.assertEqual({'VM2': 'N1', 'VM1': 'N2', 'VM3': 'N1'},
                         self.hosts(target))

    def test_sticky_first_fit_tries_the_present_host_first(self):
        target = sticky_target(self.current, {'j1': RUNNING, 'j2': RUNNING})
        self.assertEqual({'VM1': 'N3', 'VM2': 'N2', 'VM3': 'N1'},
                         self.hosts(target))
        self.assertEqual({RUNNING}, {one.state for one
                                     in target.members.values()})

    def test_states_other_than_running_leave_members_where_they_are(self):
        for pack in (first_fit_target, sticky_target):
            target = pack(self.current, {'j1': SUSPENDED, 'j2': WAITING})
            self.assertEqual({'VM1': 'N3', 'VM2': 'N2', 'VM3': None},
                             self.hosts(target))
            self.assertEqual(
                [SUSPENDED, SUSPENDED, WAITING],
                [one.state for one in target.members.values()])

    def test_leases_without_a_state_keep_their_room(self):
        target = first_fit_target(self.current, {'j2': RUNNING})
        self.assertEqual({'VM1': 'N3', 'VM2': 'N2', 'VM3': 'N1'},
                         self.hosts(target))
        self.assertIs(SUSPENDED, target.members['VM2'].state)

    def test_leases_that_do_not_fit_are_named(self):
        current = dataclasses.replace(self.current,
                                      capacity={'N1': (8, 1024)})
        for pack in (first_fit_target, sticky_target):
            with self.assertRaisesRegex(PackingError, 'j1'):
                pack(current, {'j1': RUNNING})

    def test_failed_packing_leaves_the_room_unchanged(self):
        room = FreeRoom({'N1': (8, 1024)})
        self.assertIsNone(first_fit(
            self.current, self.current.leases['j1'], room,
            SampleRules(self.current)))
        self.assertEqual({'N1': [8, 1024]}, room.free)

    def test_member_that_cannot_migrate_stays_on_its_host(self):
        current = self.current.with_members([dataclasses.replace(
            self.current.members['VM1'], migratable=False)])
        target = first_fit_target(current, {'j1': RUNNING, 'j2': RUNNING})
        self.assertEqual('N3', target.members['VM1'].host)

    def test_member_on_a_closed_host_cannot_resume_in_place(self):
        current = dataclasses.replace(
            self.current, closed=frozenset({'N2'}), resumes_in_place=True)
        with self.assertRaises(PackingError):
            first_fit_target(current, {'j1': RUNNING})
        self.assertIs(SUSPENDED, select(
            current, queue(current)).states['j1'])
        target = sticky_target(dataclasses.replace(
            current, resumes_in_place=False), {'j1': RUNNING})
        self.assertEqual('N1', target.members['VM2'].host)

    @given(worlds.switches(in_place=False))
    def test_baselines_reach_the_selected_states(self, switched):
        current, _ = switched
        selection = select(current, queue(current))
        for target in (first_fit_target(current, selection.states),
                       sticky_target(current, selection.states)):
            self.assertEqual(
                {name: one.state for name, one
                 in selection.sample.members.items()},
                {name: one.state for name, one in target.members.items()})


class TestSelection(unittest.TestCase):

    def setUp(self):
        self.current = configuration(
            {'N1': 1024},
            [('VM1', 'low', RUNNING, 'N1', 512),
             ('VM2', 'high', WAITING, None, 1024),
             ('VM3', 'small', WAITING, None, 256)])

    def select(self, *leases, **options):
        return select(self.current, leases, SelectionOptions(**options))

    def running(self, *leases, **options):
        states = self.select(*leases, **options).states
        return [name for name, state in states.items() if state is RUNNING]

    def test_higher_lease_displaces_a_lower_one(self):
        self.assertEqual(['high'], self.running(
            QueuedLease('high', 2), QueuedLease('low', 1)))

    def test_lease_that_does_not_fit_does_not_block_the_next(self):
        self.assertEqual(['low', 'small'], self.running(
            QueuedLease('low', 3), QueuedLease('high', 2),
            QueuedLease('small', 1)))

    def test_margin_is_needed_for_displacement(self):
        for margin, expected in ((1, ['high']), (1.5, ['low'])):
            with self.subTest(margin):
                self.assertEqual(expected, self.running(
                    QueuedLease('high', 2), QueuedLease('low', 1),
                    margin=margin))

    def test_lease_runs_for_its_minimum_time(self):
        for run_s, expected in ((59, ['low']), (60, ['high']),
                                (None, ['high'])):
            with self.subTest(run_s):
                self.assertEqual(expected, self.running(
                    QueuedLease('high', 2), QueuedLease('low', 1, run_s),
                    minimum_run_s=60))

    def test_room_is_kept_for_a_lease_that_waits_for_a_young_one(self):
        leases = (QueuedLease('high', 3), QueuedLease('low', 2, 10),
                  QueuedLease('small', 1))
        selection = self.select(*leases, minimum_run_s=60)
        self.assertEqual({'low': RUNNING, 'high': WAITING, 'small': WAITING},
                         selection.states)
        self.assertEqual({'small'}, selection.held_back)
        # A young lease before it in the queue is not the reason.
        leases = (QueuedLease('low', 3, 10), QueuedLease('high', 2),
                  QueuedLease('small', 1))
        self.assertEqual(['low', 'small'],
                         self.running(*leases, minimum_run_s=60))

    def test_room_stays_kept_beyond_a_running_lease_that_does_not_fit(self):
        self.current = self.current.with_members([dataclasses.replace(
            self.current.members['VM1'], name='VM4', lease='grown',
            demand=(1, 768))])
        selection = self.select(
            QueuedLease('high', 3), QueuedLease('grown', 2),
            QueuedLease('small', 1), QueuedLease('low', 1, 10),
            minimum_run_s=60)
        self.assertEqual({'low': RUNNING, 'high': WAITING,
                          'grown': SUSPENDED, 'small': WAITING},
                         selection.states)

    def test_nothing_displaces_a_guaranteed_lease(self):
        self.assertEqual(['low'], self.running(
            QueuedLease('high', 2), QueuedLease('low', 1, guaranteed=True)))

    def test_leases_outside_of_the_queue_remain(self):
        selection = self.select(QueuedLease('high'))
        self.assertEqual({'high': WAITING}, selection.states)
        self.assertEqual(self.current, selection.sample)

    def test_fixed_members_keep_their_room(self):
        current = self.current.with_members([dataclasses.replace(
            self.current.members['VM1'], fixed=True)])
        self.assertIs(WAITING, select(
            current, [QueuedLease('high')]).states['high'])

    def test_claims_of_suspended_members_remain(self):
        member = dataclasses.replace(
            self.current.members['VM1'], state=SUSPENDED, claim=(0, 512))
        current = self.current.with_members([member])
        leases = [QueuedLease('high'), QueuedLease('low')]
        selection = select(current, leases)
        self.assertEqual({'high': WAITING, 'low': RUNNING}, selection.states)

    def test_running_lease_fits_where_it_is(self):
        current = configuration(
            {'N1': 1000, 'N2': 800},
            [('VM1', 'j1', RUNNING, 'N2', 800),
             ('VM2', 'j2', RUNNING, 'N1', 1000)])
        selection = select(current, [QueuedLease('j1'), QueuedLease('j2')])
        self.assertEqual(current, selection.sample)

    @given(worlds.switches(fixed=0.1, closed=0.1))
    def test_sample_has_whole_leases_and_arrivals_fit(self, switched):
        current, _ = switched
        selection = select(current, queue(current))
        sample = selection.sample
        free = worlds.Replay(sample).free()
        for name, one in sample.members.items():
            old = current.members[name]
            if one.fixed:
                self.assertEqual(old, one)
            elif one.state is RUNNING:
                self.assertIs(RUNNING, selection.states[one.lease])
                self.assertTrue(all(
                    amount >= 0 or not need for amount, need
                    in zip(free[one.host], one.demand, strict=True)))
            else:
                self.assertIsNot(RUNNING, selection.states[one.lease])
        self.assertEqual(selection, select(current, queue(current)))
