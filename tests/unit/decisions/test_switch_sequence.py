# SPDX-License-Identifier: Apache-2.0

"""Worked examples of cluster-wide context switches.

Shapes are those of figures 5 to 9 of Hermenier 2009.
"""

import dataclasses
import unittest

from secondary_scheduler.decisions.selection import QueuedLease, select
from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.estimation.switch_costs import plan_cost, plan_span
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
)
from secondary_scheduler.model.constraints import Ban, Root, Spread

RUNNING, SUSPENDED, WAITING, ENDED = MemberState


def configuration(memory_mb, members, units=8, **options):
    """Return a configuration; members are (name, lease, state, host, MiB)."""
    return Configuration(
        ('units', 'memory_mb'),
        {host: (units, amount) for host, amount in memory_mb.items()},
        {one[0]: Member(*one[:4], demand=(1, one[4]), claim=(0, 0),
                        memory_mb=one[4])
         for one in members}, **options)


def target(current, **changes):
    """Return a configuration with (state, host) of some members changed."""
    return current.with_members([
        dataclasses.replace(current.members[name], state=state, host=host)
        for name, (state, host) in changes.items()])


def short(switch):
    """Return moves as text, pool by pool."""
    return [[f'{move.kind} {move.member} {move.source or "-"}>'
             f'{move.target or "-"}' + ' bypass' * move.bypass
             for move in pool] for pool in switch.pools]


def swap(hosts, members=('VM1', 'VM2'), **options):
    """Return two members that have to swap hosts, and their target."""
    first, second = members
    current = configuration(
        dict.fromkeys(hosts, 1024),
        [(first, 'j1', RUNNING, 'N1', 768),
         (second, 'j2', RUNNING, 'N2', 768)], **options)
    return current, target(current, **{first: (RUNNING, 'N2'),
                                       second: (RUNNING, 'N1')})


class TestWorkedExamples(unittest.TestCase):

    def check(self, switch, pools, cost, span):
        self.assertEqual(pools, short(switch))
        self.assertEqual((cost, span), (plan_cost(switch.pools),
                                        plan_span(switch.pools)))
        self.assertEqual((), switch.kept)

    def test_two_busy_members_on_a_host_of_one_unit_are_not_viable(self):
        def place(*hosts):
            members = {
                f'VM{number}': Member(
                    f'VM{number}', 'j', RUNNING, host, (number > 1, 512),
                    (0, 0), 512) for number, host in enumerate(hosts, 1)}
            return Configuration(('units', 'memory_mb'), dict.fromkeys(
                ('N1', 'N2', 'N3'), (1, 1024)), members).is_viable()

        self.assertFalse(place('N1', 'N2', 'N2'))
        for host in ('N1', 'N2', 'N3'):
            self.assertTrue(place(host, 'N2', 'N3'))

    def test_selection_suspends_a_lease_and_starts_a_smaller_one(self):
        current = configuration(
            {'N1': 1024, 'N2': 1024, 'N3': 1024},
            [('VM1', 'j1', RUNNING, 'N1', 512),
             ('VM2', 'j1', RUNNING, 'N2', 512),
             ('VM3', 'j2', RUNNING, 'N3', 512),
             ('VM4', 'j2', RUNNING, 'N3', 512),
             ('VM5', 'j3', WAITING, None, 512)], units=1)
        self.assertFalse(current.is_viable())
        selection = select(current, [QueuedLease(f'j{number}')
                                     for number in (1, 2, 3)])
        self.assertEqual(
            {'j1': RUNNING, 'j2': SUSPENDED, 'j3': RUNNING},
            selection.states)
        self.assertEqual('N3', selection.sample.members['VM5'].host)
        self.check(sequence(current, selection.sample),
                   [['suspend VM3 N3>-', 'suspend VM4 N3>-'],
                    ['boot VM5 ->N3']], 1536, 512)

    def test_migration_waits_for_a_suspension(self):
        current = configuration(
            {'N1': 1024, 'N2': 1024},
            [('VM1', 'j1', RUNNING, 'N1', 1024),
             ('VM2', 'j2', RUNNING, 'N2', 512)])
        self.check(
            sequence(current, target(current, VM1=(RUNNING, 'N2'),
                                     VM2=(SUSPENDED, 'N2'))),
            [['suspend VM2 N2>-'], ['migrate VM1 N1>N2']], 2048, 1536)

    def test_cycle_is_broken_by_a_pivot(self):
        self.check(
            sequence(*swap(['N1', 'N2', 'N3'])),
            [['migrate VM1 N1>N3 bypass'], ['migrate VM2 N2>N1'],
             ['migrate VM1 N3>N2']], 4608, 2304)

    def test_pools_have_all_feasible_moves(self):
        current = configuration(
            {'N1': 512, 'N2': 1024, 'N3': 512},
            [('VM1', 'j1', RUNNING, 'N1', 512),
             ('VM3', 'j2', RUNNING, 'N2', 1024),
             ('VM5', 'j3', SUSPENDED, 'N2', 1024),
             ('VM6', 'j4', WAITING, None, 512)])
        self.check(
            sequence(current, target(
                current, VM1=(RUNNING, 'N3'), VM3=(SUSPENDED, 'N2'),
                VM5=(RUNNING, 'N2'), VM6=(RUNNING, 'N1'))),
            [['suspend VM3 N2>-', 'migrate VM1 N1>N3'],
             ['resume VM5 N2>N2', 'boot VM6 ->N1']], 4608, 2048)

    def test_cycle_without_a_pivot_is_broken_by_suspending_a_lease(self):
        self.check(
            sequence(*swap(['N1', 'N2'])),
            [['suspend VM1 N1>- bypass'], ['migrate VM2 N2>N1'],
             ['resume VM1 N1>N2 bypass']], 5376, 3072)

    def test_overload_leaves_the_first_leases_running(self):
        hosts = [f'N{number}' for number in range(11)]
        members = [
            (f'j{lease}m{number}', f'j{lease}', RUNNING,
             hosts[(9 * lease + number) % 11], 256)
            for lease in range(4) for number in range(9)]
        current = configuration(dict.fromkeys(hosts, 3584), members, units=2)
        busy = {f'j3m{number}' for number in range(7)}
        # 29 of 36 want a unit.
        current = current.with_members([
            dataclasses.replace(one, demand=(0, 256))
            for name, one in current.members.items() if name in busy])
        selection = select(current, [QueuedLease(f'j{number}')
                                     for number in range(4)])
        self.assertEqual([RUNNING, RUNNING, SUSPENDED, RUNNING],
                         list(selection.states.values()))
        reached = sequence(current, selection.sample).reached
        self.assertTrue(reached.is_viable())
        self.assertEqual(20, sum(
            one.demand[0] for one in reached.members.values()
            if one.state is RUNNING))


class TestCycles(unittest.TestCase):

    def test_the_smallest_member_goes_to_the_pivot(self):
        current = configuration(
            {'N1': 1024, 'N2': 1024, 'N3': 1024},
            [('VM1', 'j1', RUNNING, 'N1', 900),
             ('VM2', 'j2', RUNNING, 'N2', 768)])
        switch = sequence(current, target(
            current, VM1=(RUNNING, 'N2'), VM2=(RUNNING, 'N1')))
        self.assertEqual(['migrate VM2 N2>N3 bypass'], short(switch)[0])

    def test_a_member_that_stays_makes_room_and_returns(self):
        current = configuration(
            {'N1': 1280, 'N2': 1024, 'N3': 256},
            [('VM1', 'j1', RUNNING, 'N1', 768),
             ('VM2', 'j2', RUNNING, 'N2', 512),
             ('VM3', 'j3', RUNNING, 'N1', 256)])
        switch = sequence(current, target(
            current, VM1=(RUNNING, 'N2'), VM2=(RUNNING, 'N1')))
        self.assertEqual(
            [['migrate VM3 N1>N3 bypass'], ['migrate VM2 N2>N1'],
             ['migrate VM1 N1>N2'], ['migrate VM3 N3>N1 bypass']],
            short(switch))

    def test_all_running_members_of_a_lease_are_suspended_for_a_cycle(self):
        current, aim = swap(['N1', 'N2'])
        other = Member('VM3', 'j1', RUNNING, 'N4', (1, 512), (0, 0), 512)
        current, aim = (dataclasses.replace(
            one, capacity={**one.capacity, 'N4': (8, 512)},
            members={**one.members, 'VM3': other}) for one in (current, aim))
        aim = aim.with_members([dataclasses.replace(
            current.members['VM2'], host='N1', fixed=False)])
        switch = sequence(current, aim)
        self.assertEqual(
            [['suspend VM2 N2>- bypass'], ['migrate VM1 N1>N2'],
             ['resume VM2 N2>N1 bypass']], short(switch))
        locked = current.with_members([dataclasses.replace(
            current.members['VM2'], demand=(1, 768), memory_mb=4096)])
        self.assertEqual(
            [['suspend VM1 N1>- bypass', 'suspend VM3 N4>- bypass'],
             ['migrate VM2 N2>N1'],
             ['resume VM1 N1>N2 bypass', 'resume VM3 N4>N4 bypass']],
            short(sequence(locked, aim)))

    def test_members_stay_if_they_resume_in_place_only(self):
        current, aim = swap(['N1', 'N2'], resumes_in_place=True)
        switch = sequence(current, aim)
        self.assertEqual(((), ('VM1', 'VM2')), (switch.pools, switch.kept))
        self.assertEqual(current, switch.reached)

    def test_closed_host_is_no_pivot(self):
        current, aim = swap(['N1', 'N2', 'N3'],
                            closed=frozenset({'N3'}))
        self.assertEqual('suspend VM1 N1>- bypass',
                         short(sequence(current, aim))[0][0])

    def test_order_of_hosts_decides_between_pivots(self):
        switch = sequence(*swap(['N1', 'N2', 'N10', 'N3']))
        self.assertEqual('N10', switch.pools[0][0].target)

    def test_fixed_member_and_the_one_that_wants_its_room_stay(self):
        current, aim = swap(['N1', 'N2', 'N3'])
        current = current.with_members([dataclasses.replace(
            current.members['VM2'], fixed=True)])
        self.assertEqual(((), ('VM1', 'VM2')), sequence(current, aim)[::2])

    def test_leases_are_resumed_as_a_whole_or_not_at_all(self):
        current = configuration(
            {'N1': 1024, 'N2': 512},
            [('VM1', 'j1', SUSPENDED, 'N1', 512),
             ('VM2', 'j1', SUSPENDED, 'N2', 512),
             ('VM3', 'j2', RUNNING, 'N2', 512)])
        aim = target(current, VM1=(RUNNING, 'N1'), VM2=(RUNNING, 'N2'),
                     VM3=(RUNNING, 'N1'))
        self.assertEqual((), sequence(current, aim).kept)
        for change in ({'fixed': True}, {'migratable': False}):
            with self.subTest(change):
                switch = sequence(current.with_members([dataclasses.replace(
                    current.members['VM3'], **change)]), aim)
                self.assertEqual(('VM1', 'VM2', 'VM3'), switch.kept)


class TestResumeElsewhere(unittest.TestCase):

    def setUp(self):
        self.current = configuration(
            {'N1': 1024, 'N2': 1024},
            [('VM1', 'j1', SUSPENDED, 'N1', 768),
             ('VM2', 'j2', WAITING, None, 768)])
        self.aim = target(self.current, VM1=(RUNNING, 'N2'),
                          VM2=(RUNNING, 'N1'))

    def test_remote_resume_needs_room_on_its_target_only(self):
        switch = sequence(self.current, self.aim)
        self.assertEqual([['resume VM1 N1>N2', 'boot VM2 ->N1']],
                         short(switch))
        self.assertEqual(1536, plan_cost(switch.pools))

    def test_resume_in_place_comes_before_a_migration(self):
        current = dataclasses.replace(self.current, resumes_in_place=True)
        switch = sequence(current, self.aim)
        self.assertEqual(
            [['resume VM1 N1>N1'], ['migrate VM1 N1>N2'], ['boot VM2 ->N1']],
            short(switch))

    def test_claim_is_replaced_by_the_demand(self):
        member = dataclasses.replace(self.current.members['VM1'],
                                     claim=(0, 768))
        current = dataclasses.replace(
            self.current.with_members([member]), resumes_in_place=True)
        self.assertEqual(
            [['resume VM1 N1>N1']],
            short(sequence(current, target(current, VM1=(RUNNING, 'N1')))))

    def test_member_with_a_closed_host_remains_suspended(self):
        current = dataclasses.replace(
            self.current, resumes_in_place=True, closed=frozenset({'N1'}))
        self.assertEqual(('VM1', 'VM2'), sequence(current, self.aim).kept)


class TestPassing(unittest.TestCase):

    def test_member_that_resumes_to_migrate_needs_its_floor_at_home(self):
        current = configuration(
            {'N1': 1024, 'N2': 1024},
            [('VM1', 'j1', SUSPENDED, 'N1', 768),
             ('VM2', 'j2', RUNNING, 'N1', 768)], resumes_in_place=True)
        aim = target(current, VM1=(RUNNING, 'N2'))
        crowded = current.with_members([dataclasses.replace(
            one, migratable=False) for one in current.members.values()
            if one.name == 'VM2'])
        self.assertEqual(('VM1',), sequence(crowded, aim).kept)
        crowded = crowded.with_members([dataclasses.replace(
            current.members['VM1'], floor=(0, 256))])
        self.assertEqual(
            [['resume VM1 N1>N1'], ['migrate VM1 N1>N2']],
            short(sequence(crowded, aim)))


class TestConstraints(unittest.TestCase):

    def test_pivot_satisfies_the_constraints(self):
        current, aim = swap(['N1', 'N2', 'N3', 'N4'], constraints=(
            Ban(frozenset({'VM1'}), frozenset({'N3'})),))
        self.assertEqual('N4', sequence(current, aim).pools[0][0].target)

    def test_members_of_a_spread_pass_each_other_by_a_pivot(self):
        current = configuration(
            {'N1': 1024, 'N2': 1024, 'N3': 1024},
            [('VM1', 'j1', RUNNING, 'N1', 256),
             ('VM2', 'j2', RUNNING, 'N2', 256)],
            constraints=(Spread(frozenset({'VM1', 'VM2'})),))
        for goal, pools in (
                ('N3', [['migrate VM2 N2>N3'], ['migrate VM1 N1>N2']]),
                ('N1', [['migrate VM1 N1>N3 bypass'], ['migrate VM2 N2>N1'],
                        ['migrate VM1 N3>N2']])):
            with self.subTest(goal):
                self.assertEqual(pools, short(sequence(current, target(
                    current, VM1=(RUNNING, 'N2'), VM2=(RUNNING, goal)))))

    def test_members_that_may_not_move_stay(self):
        current, aim = swap(['N1', 'N2', 'N3'], constraints=(
            Root(frozenset({'VM1', 'VM2'})),))
        self.assertEqual(((), ('VM1', 'VM2')), sequence(current, aim)[::2])


class TestStates(unittest.TestCase):

    def test_deleted_members_free_their_room(self):
        current = configuration(
            {'N1': 1024},
            [('VM1', 'j1', RUNNING, 'N1', 768),
             ('VM2', 'j2', SUSPENDED, 'N1', 768),
             ('VM3', 'j3', WAITING, None, 768)])
        switch = sequence(current, target(
            current, VM1=(ENDED, None), VM2=(RUNNING, 'N1'),
            VM3=(ENDED, None)))
        self.assertEqual([['delete VM1 N1>-'], ['resume VM2 N1>N1']],
                         short(switch))
        self.assertIs(ENDED, switch.reached.members['VM3'].state)
        self.assertEqual((), switch.kept)

    def test_impossible_change_of_state_is_named(self):
        current = configuration({'N1': 1024},
                                [('VM1', 'j1', RUNNING, 'N1', 768)])
        with self.assertRaisesRegex(ValueError,
                                    "'VM1'.* from running to waiting"):
            sequence(current, target(current, VM1=(WAITING, None)))

    def test_moves_of_a_lease_are_in_the_natural_order_of_names(self):
        current = configuration(
            {'N1': 4096}, [(f'VM{number}', 'j1', RUNNING, 'N1', 256)
                           for number in (10, 2, 1)])
        switch = sequence(current, target(current, **{
            f'VM{number}': (SUSPENDED, 'N1') for number in (1, 2, 10)}))
        self.assertEqual(['VM1', 'VM2', 'VM10'],
                         [move.member for move in switch.moves])
