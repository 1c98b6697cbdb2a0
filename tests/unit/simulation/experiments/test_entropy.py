# SPDX-License-Identifier: Apache-2.0

"""Experiments with context switches."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from secondary_scheduler.cmd import manage
from secondary_scheduler.model.configuration import Configuration, Move, Switch
from secondary_scheduler.model.operation_kinds import OperationKind
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation import experiments
from secondary_scheduler.simulation.experiments import (
    base,
    entropy_cluster,
    entropy_cost,
)
from secondary_scheduler.simulation.switches.profiles import OURS, THESIS
from secondary_scheduler.simulation.switches.world import JobWorld


def simulate(*arguments):
    """Return the measured figures of an experiment."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = manage.main(['simulate', 'run', *arguments, '--format',
                            'json'])
    if code:
        raise AssertionError(f'exit code {code}')
    return {name: one['measured'] for name, one
            in json.loads(printed.getvalue())['figures'].items()}


class TestEntropyCost(unittest.TestCase):

    def test_optimiser_is_never_dearer_than_packing(self):
        for profile in (THESIS, OURS):
            point = entropy_cost.CostPoint('small', 54)
            for seed in range(1, 4):
                with self.subTest(profile=profile.name, seed=seed):
                    found = entropy_cost.CostSample(point, seed,
                                                profile).measure()
                    first, sticky, best = (
                        found[one]['cost'] for one in entropy_cost.ALGORITHMS)
                    self.assertLessEqual(best, sticky)
                    self.assertLessEqual(best, first)
                    self.assertLessEqual(found['optimised']['bound'], best)
                    for row in found.values():
                        self.assertLessEqual(row['graph_s'], row['pools_s'])

    def test_quick_run_has_all_figures(self):
        found = simulate('entropy-cost', '--quick')
        for figure in ('cost', 'span', 'memory', 'reduction', 'migrations',
                       'suspends', 'local', 'relocated', 'bypasses', 'pools',
                       'pools_s', 'graph_s', 'cpu_s'):
            for algorithm in entropy_cost.ALGORITHMS:
                self.assertIn(f'{figure}_{algorithm}_162', found)
        for figure in ('bound', 'attainable', 'proved'):
            self.assertIn(f'{figure}_optimised_162', found)
        self.assertEqual(100, found['ordered_pct_162'])
        self.assertLessEqual(found['reduction_optimised_162'],
                             found['attainable_optimised_162'] + 1e-9)

    def test_resume_before_a_migration_is_a_relocated_one(self):
        resume = Move(OperationKind.RESUME, 'a', 'lease', 'x', 'x', 512)
        move = Move(OperationKind.MIGRATE, 'a', 'lease', 'x', 'y', 512)
        other = Move(OperationKind.RESUME, 'b', 'lease', 'x', 'x', 256)
        away = Move(OperationKind.RESUME, 'c', 'lease', 'x', 'y', 256)
        switch = Switch(((resume, other, away), (move,)), Configuration(
            (), {}, {}))
        found = entropy_cost.count_moves(switch)
        self.assertEqual((1, 2, 1), (found['local'], found['relocated'],
                                     found['migrations']))
        # Waits and the copies of relocations: 512 + 512 and 256.
        self.assertEqual(1280, entropy_cost.avoidable_cost(switch))

    def test_resume_of_a_bypass_is_neither_local_nor_relocated(self):
        moves = [Move(OperationKind.RESUME, 'a', 'lease', 'x', host, 512,
                      bypass=True) for host in 'xy']
        found = entropy_cost.count_moves(Switch((tuple(moves),),
                                                Configuration((), {}, {})))
        self.assertEqual((0, 0, 2), (found['local'], found['relocated'],
                                     found['bypasses']))


class TestEntropyCluster(unittest.TestCase):

    def test_seed_loop_is_faster_than_static_allocation(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'events'
            found = simulate('entropy-cluster', '--quick', '--set',
                             'profile=thesis', '--events', str(path))
            events = [json.loads(line)
                      for line in path.read_text().splitlines()]
        self.assertEqual(3089, found['makespan_s_fcfs'])
        self.assertTrue(25 <= found['reduction_pct'] <= 55)
        self.assertLess(found['bound_s'], found['makespan_s_switch'])
        self.assertEqual(0, found['work_lost_core_s'])
        self.assertEqual(0, found['half_up'])
        self.assertLessEqual(found['viable_again_s'],
                             found['viable_bound_s'])
        self.assertEqual(72, sum(one['kind'] == 'boot' for one in events))

    def test_seed_profile_boots_where_first_fit_does(self):
        for profile, most in ((THESIS, 2), (OURS, 9)):
            run = entropy_cluster.ClusterRun('small', 1, True, profile)
            world = JobWorld(run.jobs(), profile.claims,
                             profile.resumes_in_place)
            switch = run.decide(world.observe(), world.queue, {})
            hosts = {one.target for one in switch.moves
                     if one.lease == 'VP.A'}
            self.assertEqual(most, len(hosts), profile.name)

    def test_share_of_local_resumes_needs_a_resume(self):
        run = entropy_cluster.ClusterRun('small', 1, True, THESIS)
        loop = run.simulate()
        found = entropy_cluster._of_switches(loop)
        self.assertEqual(18, found['resumes'])
        self.assertTrue(0 < found['local_pct'] < 100)
        loop.rounds = loop.rounds[:2]
        found = entropy_cluster._of_switches(loop)
        self.assertEqual(0, found['resumes'])
        self.assertNotIn('local_pct', found)

    def test_oracle_is_between_the_bound_and_static_allocation(self):
        found = simulate('entropy-cluster', '--quick', '--set',
                         'profile=oracle')
        self.assertLess(found['bound_s'], found['makespan_s_switch'])
        self.assertLess(found['makespan_s_switch'], found['makespan_s_fcfs'])


class TestOptions(unittest.TestCase):

    def run_with(self, changes=(), **options):
        """Run an experiment with options."""
        return experiments.EXPERIMENTS['entropy-cluster'].run(
            base.ExperimentOptions(changes, (1,), quick=True, **options))

    def test_wrong_options_are_named(self):
        for changes, options, text in (
                ((('profile', 'best'),), {}, 'thesis, ours, oracle'),
                ((('periods', '3'),), {}, 'there is no parameter periods'),
                ((('period_s', '-3'),), {}, 'period_s is a number from 0'),
                ((('graph', '3'),), {}, 'graph is on or off'),
                ((), {'leases': 'x.csv'}, 'no table of leases')):
            with self.subTest(changes=changes), self.assertRaisesRegex(
                    InputError, text):
                self.run_with(changes, **options)

    def test_units_of_figures(self):
        for name, unit in (('pools_sticky_54', 'count'),
                           ('pools_s_sticky_54', 's'),
                           ('cpu_s_sticky_54', 's CPU'),
                           ('cost_optimised_54', 'MB'),
                           ('reduction_optimised_54', '%')):
            self.assertEqual(unit, entropy_cost._unit(name))
        for name, unit in (('makespan_s_fcfs', 's'), ('local_pct', '%'),
                           ('switches', 'count'), ('wanted_max', 'units')):
            self.assertEqual(unit, entropy_cluster._unit(name))
