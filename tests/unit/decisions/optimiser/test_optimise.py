# SPDX-License-Identifier: Apache-2.0

"""Results of the optimiser on clusters with a known answer."""

import importlib.util
import sys
import unittest
from unittest import mock

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser import optimise, refinement
from secondary_scheduler.decisions.optimiser.evaluation import Evaluator
from secondary_scheduler.decisions.optimiser.problem import build_problem
from secondary_scheduler.decisions.optimiser.solver import Solved
from secondary_scheduler.decisions.packing import (
    first_fit_target,
    sticky_target,
)
from secondary_scheduler.decisions.selection import QueuedLease, select
from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.estimation.switch_costs import (
    local_cost,
    memory_moved,
    plan_cost,
)
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
)
from secondary_scheduler.model.constraints import Ban, Root, Spread
from secondary_scheduler.simulation.workloads.switches import draw

RUNNING, SUSPENDED, WAITING = (
    MemberState.RUNNING, MemberState.SUSPENDED, MemberState.WAITING)
NEEDS_SOLVER = unittest.skipUnless(
    importlib.util.find_spec('ortools'), 'OR-Tools is not installed')


def member(name, state, host, memory, cpu=0, **more):
    return Member(name, name.split('-')[0], state, host, (cpu, memory),
                  (0, 0), memory, **more)


def cluster(capacity, *members, **more):
    return Configuration(('cpu', 'memory'), capacity,
                         {one.name: one for one in members}, **more)


def drawn(seed, vms, hosts=200, busy=0.6):
    """Return a configuration and the states of its leases."""
    current, queue = draw(seed, vms, hosts=hosts, busy=busy)
    states = select(current, [
        QueuedLease(name, -number) for number, name in enumerate(queue)
    ]).states
    return current, states


def tight(seed=4):
    """Return a cluster on which bound and heuristic differ."""
    current, states = drawn(seed, 122, hosts=50, busy=0.9)
    return current, first_fit_target(current, states)


class TestOptimise(unittest.TestCase):
    """The optimiser finds and proves the cheapest switch."""

    def test_resume_at_home_is_optimal_where_first_fit_is_remote(self):
        current = cluster({'h1': (2, 2048), 'h2': (2, 2048)},
                          member('a-1', SUSPENDED, 'h2', 1024))
        sample = first_fit_target(current, {'a': RUNNING})
        self.assertEqual('h1', sample.members['a-1'].host)
        found = optimise(current, sample, 'cost', Budget())
        self.assertEqual(('optimal', 1024, 1024, 0.0),
                         (found.status, found.value, found.bound,
                          found.percent))
        self.assertEqual('h2', found.target.members['a-1'].host)

    def test_smallest_member_leaves_an_overloaded_host(self):
        current = cluster(
            {'h1': (1, 4096), 'h2': (1, 4096)},
            member('a-1', RUNNING, 'h1', 2048, 1),
            member('b-1', RUNNING, 'h1', 512, 1))
        sample = first_fit_target(current, {'a': RUNNING, 'b': RUNNING})
        for objective in ('cost', 'span', 'memory'):
            with self.subTest(objective):
                found = optimise(current, sample, objective, Budget())
                self.assertEqual(('optimal', 512),
                                 (found.status, found.value))

    def test_least_memory_moved_is_not_the_least_plan_cost(self):
        # At home, the resume waits until the other member has left.
        current = cluster(
            {'h1': (1, 4096), 'h2': (2, 4096)},
            member('a-1', RUNNING, 'h1', 2048, 1),
            member('b-1', SUSPENDED, 'h1', 256, 1))
        sample = current.with_members([
            member('a-1', RUNNING, 'h2', 2048, 1),
            member('b-1', RUNNING, 'h1', 256, 1)])
        found = optimise(current, sample, 'cost', Budget())
        self.assertEqual((512, 'optimal'), (found.value, found.status))
        self.assertEqual('h2', found.target.members['b-1'].host)

    def test_configuration_as_wanted_leaves_nothing_to_do(self):
        current = cluster({'h1': (2, 2048)},
                          member('a-1', RUNNING, 'h1', 1024, 1))
        found = optimise(current, current, 'cost', Budget())
        self.assertEqual(('nothing_to_do', 0, (), 0.0),
                         (found.status, found.value, found.switch.pools,
                          found.percent))

    def test_boots_go_to_the_roomiest_hosts(self):
        current = cluster(
            {f'h{number}': (2, 4096) for number in range(1, 4)},
            *(member(f'a-{number}', WAITING, None, 512)
              for number in range(1, 4)))
        found = optimise(current, first_fit_target(current, {'a': RUNNING}),
                         'cost', Budget())
        self.assertEqual(['h1', 'h2', 'h3'], sorted(
            str(one.host) for one in found.target.members.values()))

    def test_fixed_and_unmigratable_members_stay(self):
        current = cluster(
            {'h1': (2, 4096), 'h2': (2, 4096)},
            member('a-1', RUNNING, 'h1', 256, 1, fixed=True),
            member('b-1', RUNNING, 'h1', 256, 1, migratable=False),
            member('c-1', RUNNING, 'h1', 2048, 1))
        sample = current.with_members([member('c-1', RUNNING, 'h2', 2048, 1)])
        found = optimise(current, sample, 'cost', Budget())
        self.assertEqual((2048, 'optimal'), (found.value, found.status))
        self.assertEqual(['h1', 'h1', 'h2'], [
            one.host for one in found.target.members.values()])

    def test_closed_host_receives_no_member(self):
        current = cluster(
            {'h1': (2, 4096), 'h2': (2, 4096)},
            member('a-1', SUSPENDED, 'h1', 512, 1),
            closed=frozenset({'h1'}))
        found = optimise(current, first_fit_target(current, {'a': RUNNING}),
                         'cost', Budget())
        self.assertEqual(('h2', 1024, 'optimal'), (
            found.target.members['a-1'].host, found.value, found.status))

    def test_infeasible_states_name_a_smallest_conflict(self):
        current = cluster(
            {'h1': (1, 1024), 'h2': (1, 1024)},
            member('a-1', SUSPENDED, 'h1', 1024, 1, migratable=False),
            member('b-1', RUNNING, 'h1', 512, 1, migratable=False),
            member('c-1', WAITING, None, 512),
            resumes_in_place=True)
        sample = current.with_members([
            member('a-1', RUNNING, 'h1', 1024, 1),
            member('c-1', RUNNING, 'h2', 512)])
        found = optimise(current, sample, 'cost', Budget())
        self.assertEqual('infeasible', found.status)
        self.assertEqual(('lease a', 'lease b', 'host h1'), found.conflict)
        self.assertEqual((), found.switch.pools)

    def test_overload_that_no_lease_can_end_blocks_no_other_lease(self):
        current = cluster(
            {'h1': (1, 1024), 'h2': (1, 1024)},
            member('a-1', RUNNING, 'h1', 512, 1, migratable=False),
            member('b-1', RUNNING, 'h1', 512, 1, migratable=False),
            member('c-1', SUSPENDED, 'h2', 512, 1))
        sample = current.with_members([member('c-1', RUNNING, 'h2', 512, 1)])
        found = optimise(current, sample, 'cost', Budget())
        self.assertEqual(('optimal', 512), (found.status, found.value))

    def test_broken_constraint_is_repaired(self):
        current = cluster(
            {'h1': (2, 4096), 'h2': (2, 4096)},
            member('a-1', RUNNING, 'h1', 512),
            member('b-1', RUNNING, 'h1', 256),
            constraints=(Spread(frozenset({'a-1', 'b-1'})),))
        found = optimise(current, current, 'cost', Budget())
        self.assertEqual(['h1', 'h2'], [
            one.host for one in found.target.members.values()])
        self.assertEqual(256, found.value)

    def test_new_configuration_breaks_no_constraint(self):
        current = cluster(
            {'h1': (2, 4096), 'h2': (1, 4096), 'h3': (2, 4096)},
            member('a-1', SUSPENDED, 'h1', 512, 1),
            member('b-1', RUNNING, 'h2', 512, 1),
            member('c-1', WAITING, None, 512, 1),
            constraints=(Spread(frozenset({'a-1', 'c-1'})),
                         Ban(frozenset({'c-1'}), frozenset({'h3'})),
                         Root(frozenset({'b-1'}))))
        sample = current.with_members([
            member('a-1', RUNNING, 'h3', 512, 1),
            member('c-1', RUNNING, 'h1', 512, 1)])
        found = optimise(current, sample, 'cost', Budget())
        # The lease c has no host beside a at home, and a is on h1 until it
        # has resumed on h3.
        self.assertEqual('h2', found.target.members['b-1'].host)
        hosts = {name: (one.host,)
                 for name, one in found.target.members.items() if one.host}
        self.assertEqual([], [
            text for one in current.constraints for text in one.broken(hosts)])

    def test_lease_that_runs_in_part_remains_as_it_is(self):
        current = cluster(
            {'h1': (2, 4096), 'h2': (2, 4096)},
            member('a-1', RUNNING, 'h1', 512),
            member('a-2', SUSPENDED, 'h2', 512),
            member('b-1', WAITING, None, 256))
        sample = current.with_members([member('b-1', RUNNING, 'h2', 256)])
        # Without work units only the sticky configuration is a candidate.
        # The search ends long before 99 durations are asked for.
        found = optimise(current, sample, 'time', Budget(0),
                         mock.Mock(side_effect=[0.0] * 99))
        self.assertEqual(
            [RUNNING, SUSPENDED, RUNNING],
            [one.state for one in found.target.members.values()])
        self.assertEqual(('optimal', ()), (found.status, found.left))

    def test_unknown_objective_lists_the_known_ones(self):
        current = cluster({'h1': (1, 1024)})
        with self.assertRaisesRegex(ValueError, 'cost, span, memory, time'):
            optimise(current, current, 'speed', Budget())
        with self.assertRaisesRegex(ValueError, 'seconds'):
            optimise(current, current, 'time', Budget())


class TestSamples(unittest.TestCase):
    """Clusters as in Entropy's simulations."""

    def test_optimised_is_never_dearer_than_sticky_nor_first_fit(self):
        for seed, busy in ((1, 0.6), (2, 0.6), (3, 0.9), (4, 0.9)):
            current, states = drawn(seed, 122, hosts=50, busy=busy)
            targets = [sticky_target(current, states),
                       first_fit_target(current, states)]
            for objective, measure in (('cost', plan_cost),
                                       ('memory', memory_moved)):
                with self.subTest(seed=seed, objective=objective):
                    found = optimise(current, targets[1], objective, Budget())
                    for target in targets:
                        switch = sequence(current, target)
                        self.assertLessEqual(
                            found.value, measure(switch.pools))

    def test_two_runs_give_the_same_result(self):
        current, sample = tight()
        results = [optimise(current, sample, 'cost', Budget())
                   for _ in range(2)]
        self.assertEqual(results[0], results[1])

    def test_spent_budget_still_gives_a_switch(self):
        current, sample = tight()
        found = optimise(current, sample, 'cost', Budget(0))
        self.assertEqual(
            {name: one.state for name, one in sample.members.items()},
            {name: one.state
             for name, one in found.switch.reached.members.items()})
        self.assertLessEqual(found.bound, found.value)


class TestSolver(unittest.TestCase):
    """The solver is an addition, and is not trusted."""

    def test_missing_solver_is_reported_and_heuristics_continue(self):
        current, sample = tight()
        with mock.patch.dict(sys.modules, {
                'ortools': None, 'ortools.sat': None,
                'ortools.sat.python': None}):
            found = optimise(current, sample, 'cost', Budget())
        self.assertTrue(found.solver_missing)
        self.assertEqual('within', found.status)
        self.assertLess(found.bound, found.value)
        self.assertGreater(found.percent, 0)

    def test_solver_is_not_asked_where_the_bound_is_met(self):
        current, states = drawn(1, 100)
        with mock.patch.object(refinement, 'solve') as solve:
            found = optimise(current, first_fit_target(current, states),
                             'cost', Budget())
        self.assertEqual('optimal', found.status)
        solve.assert_not_called()

    def test_late_members_move_with_what_follows_stage_one(self):
        current = cluster(
            {'h1': (2, 2048), 'h2': (2, 1024), 'h3': (2, 512)},
            member('a-1', SUSPENDED, 'h1', 1024),
            member('b-1', RUNNING, 'h1', 512), resumes_in_place=True)
        target = current.with_members([
            member('a-1', RUNNING, 'h2', 1024),
            member('b-1', RUNNING, 'h3', 512)])
        evaluator = Evaluator(build_problem(current, target), plan_cost,
                              Budget())
        for late, pools in (((), ['ab', 'a']), (('b-1',), ['a', 'ab'])):
            found = evaluator.evaluate(target, late)
            self.assertTrue(found.is_equivalent)
            self.assertEqual(pools, [
                ''.join(sorted(move.lease for move in pool))
                for pool in found.switch.pools])

    def test_price_of_the_best_switch_is_examined_first(self):
        current, sample = tight(12)
        prices = []

        def note(problem, start, price, *args, **kwargs):
            prices.append(price)
            return Solved(None, None, 0.0)

        with mock.patch.object(refinement, 'solve', note):
            found = optimise(current, sample, 'cost', Budget())
        first = next(filter(None, (
            max(map(local_cost, pool)) for pool in found.switch.pools)))
        self.assertEqual(2048, first)
        self.assertEqual([2048, 4096], prices)

    def test_answer_that_replay_refuses_is_dropped(self):
        current, sample = tight()

        def pile(problem, *args, **kwargs):
            return Solved([0] * len(problem.runners), 0, 0.0)

        with mock.patch.object(refinement, 'solve', pile):
            found = optimise(current, sample, 'cost', Budget())
        self.assertTrue(found.target.is_viable())
        self.assertEqual('within', found.status)

    @NEEDS_SOLVER
    def test_solver_proves_what_the_decomposition_cannot(self):
        current, sample = tight()
        found = optimise(current, sample, 'cost', Budget())
        self.assertEqual('optimal', found.status)
        self.assertFalse(found.solver_missing)
