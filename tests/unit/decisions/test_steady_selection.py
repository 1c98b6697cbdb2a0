# SPDX-License-Identifier: Apache-2.0

"""Selection that moves running leases only where it must."""

import random
import unittest
from unittest import mock

from secondary_scheduler.decisions import steady_selection
from secondary_scheduler.decisions.selection import (
    QueuedLease,
    SelectionOptions,
    select,
)
from secondary_scheduler.decisions.steady_selection import select_steadily
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
)

RUNNING, SUSPENDED, WAITING = (
    MemberState.RUNNING, MemberState.SUSPENDED, MemberState.WAITING)


def member(name, host, cpu, state=RUNNING, lease=None):
    return Member(name, lease or name, state, host, (cpu,), (0,), 512)


class SelectSteadilyTest(unittest.TestCase):

    def select(self, capacity, *members, headroom=0.0, growth=None,
               **points):
        current = Configuration(('cpu',), {
            host: (amount,) for host, amount in capacity.items()},
            {one.name: one for one in members})
        queue = [QueuedLease(lease, points.get(lease, 0.0))
                 for lease in dict.fromkeys(one.lease for one in members)]
        found = select_steadily(current, queue, SelectionOptions(),
                                headroom, growth)
        self.assertTrue(found.sample.is_viable())
        self.packed = select(current, queue)
        return ([lease for lease, state in found.states.items()
                 if state is RUNNING],
                {name: one.host for name, one in found.sample.members.items()
                 if one.state is RUNNING})

    def test_running_leases_stay_where_first_fit_moves_them(self):
        found = self.select({'a': 3, 'b': 3}, member('x', 'b', 1),
                            member('y', 'a', 2))
        self.assertEqual((['x', 'y'], {'x': 'b', 'y': 'a'}), found)

    def test_newcomer_takes_room_that_is_not_in_use(self):
        found = self.select(
            {'a': 2, 'b': 2}, member('high', None, 2, WAITING),
            member('low', 'a', 2), high=9.0)
        self.assertEqual((['high', 'low'], {'high': 'b', 'low': 'a'}), found)

    def test_newcomer_displaces_lower_leases_if_it_must(self):
        found = self.select(
            {'a': 2}, member('high', None, 2, WAITING),
            member('low', 'a', 2), high=9.0)
        self.assertEqual((['high'], {'high': 'a'}), found)

    def test_first_lease_keeps_an_overloaded_host(self):
        found = self.select({'a': 2, 'b': 1}, member('x', 'a', 2),
                            member('y', 'a', 1), member('z', 'a', 1))
        self.assertEqual((['x', 'y'], {'x': 'a', 'y': 'b'}), found)

    def test_lease_is_selected_as_a_whole(self):
        found = self.select(
            {'a': 2, 'b': 1}, member('x', 'a', 1),
            member('y1', 'b', 1, SUSPENDED, 'y'),
            member('y2', 'b', 2, SUSPENDED, 'y'),
            member('z', 'b', 1, SUSPENDED))
        self.assertEqual((['x', 'z'], {'x': 'a', 'z': 'b'}), found)

    def test_packing_anew_counts_if_more_leases_run(self):
        # Two hosts are half full; a lease needs a whole one.
        found = self.select({'a': 2, 'b': 2}, member('x', 'a', 1),
                            member('y', 'b', 1), member('z', None, 2, WAITING))
        self.assertEqual(['x', 'y', 'z'], found[0])
        self.assertEqual(found[1], {
            name: one.host for name, one
            in self.packed.sample.members.items() if one.state is RUNNING})

    def test_rejected_lease_leaves_its_room_to_the_next(self):
        found = self.select(
            {'a': 2, 'b': 2}, member('x', 'a', 2),
            member('y1', 'a', 1, RUNNING, 'y'),
            member('y2', 'b', 2, RUNNING, 'y'),
            member('z', 'b', 2, SUSPENDED))
        self.assertEqual((['x', 'z'], {'x': 'a', 'z': 'b'}), found)

    def test_lease_starts_only_with_headroom_and_runs_on_without(self):
        for demand, other, starts in ((30, 60, True), (31, 60, False),
                                      (95, 0, True)):
            found, _hosts = self.select(
                {'a': 100}, member('x', 'a', other),
                member('y', 'a', demand, SUSPENDED), headroom=0.1)
            self.assertEqual(starts, 'y' in found, (demand, other))
        for demand, kept in ((40, ['x', 'y']), (41, ['x'])):
            self.assertEqual(kept, self.select(
                {'a': 100}, member('x', 'a', 60), member('y', 'a', demand),
                headroom=0.1)[0])

    def test_all_leases_start_that_later_rounds_would_start(self):
        # With the headroom free, the members of y need two hosts.  They run
        # on one, so that the other one has room for z.
        found = self.select(
            {'a': 100, 'b': 100}, member('y1', None, 50, WAITING, 'y'),
            member('y2', None, 50, WAITING, 'y'),
            member('z', None, 45, WAITING), y=9.0, headroom=0.1)
        self.assertEqual(
            (['y', 'z'], {'y1': 'a', 'y2': 'a', 'z': 'b'}), found)

    def test_room_of_a_displaced_lease_counts_as_free(self):
        found = self.select(
            {'a': 100}, member('low', 'a', 100),
            member('high', 'a', 90, SUSPENDED), high=9.0, headroom=0.1)
        self.assertEqual(['high'], found[0])

    def test_headroom_is_what_demand_can_still_grow_by(self):
        for growth, starts in ((None, False), ({}, True),
                               ({'x': 4}, False), ({'x': 3}, True),
                               ({'x': 2, 'y': 2}, False),
                               ({'x': 2, 'z': 9}, True)):
            found, _hosts = self.select(
                {'a': 100, 'b': 10}, member('x', 'a', 60),
                member('y', 'a', 37, SUSPENDED), member('z', 'b', 5),
                headroom=0.1, growth=growth)
            self.assertEqual(starts, 'y' in found, growth)

    def test_first_fit_is_not_tried_where_sums_do_not_suffice(self):
        full = member('x', 'a', 2), member('y', 'b', 1)
        for waiting in ([member('z', None, 2, WAITING)],
                        [member('z1', None, 1, WAITING, 'z'),
                         member('z2', None, 1, WAITING, 'z')]):
            with mock.patch.object(steady_selection, 'select') as packed:
                found, _hosts = self.select({'a': 2, 'b': 2}, *full, *waiting)
            packed.assert_not_called()
            self.assertEqual(['x', 'y'], found)

    def test_selects_at_least_what_first_fit_selects(self):
        tried = 0
        for seed in range(300):
            current, queue, options = draw_cluster(random.Random(seed))
            with mock.patch.object(steady_selection, 'select',
                                   wraps=select) as packed:
                found = select_steadily(current, queue, options)
            tried += packed.called
            first = select(current, queue, options)
            order = [lease for lease in first.states
                     if lease not in first.held_back]
            selected, least = (
                [one.states[lease] is RUNNING for lease in order]
                for one in (found, first))
            self.assertGreaterEqual(selected, least, seed)
            self.assertFalse(any(
                found.states.get(lease) is RUNNING
                for lease in first.held_back), seed)
        self.assertTrue(0 < tried < 300, tried)


def draw_cluster(rng):
    """Return a small random cluster, a queue and options."""
    hosts = {f'h{number}': (rng.randint(1, 4), rng.randint(1, 4))
             for number in range(rng.randint(1, 4))}
    members, queue = {}, []
    for lease in range(rng.randint(1, 6)):
        state = rng.choice((RUNNING, SUSPENDED, WAITING))
        queue.append(QueuedLease(
            f'l{lease}', rng.randint(0, 3),
            rng.choice((None, 10)) if state is RUNNING else None))
        for number in range(rng.randint(1, 3)):
            name = f'l{lease}-{number}'
            members[name] = Member(
                name, f'l{lease}', state, None if state is WAITING
                else rng.choice(list(hosts)),
                (rng.randint(0, 2), rng.randint(0, 2)),
                (rng.randint(0, 1), 0), 512, fixed=rng.random() < 0.1)
    return (Configuration(('cpu', 'memory'), hosts, members), queue,
            SelectionOptions(rng.choice((0, 60)), rng.choice((0, 2))))
