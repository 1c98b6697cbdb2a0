# SPDX-License-Identifier: Apache-2.0

"""Experiments with the CPUs of secondaries."""

import contextlib
import dataclasses
import io
import json
import pathlib
import tempfile
import unittest

from secondary_scheduler.cmd import manage
from secondary_scheduler.cpu_affinity import base as affinity
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation import experiments
from secondary_scheduler.simulation.affinity import profiles
from secondary_scheduler.simulation.experiments import base, kaffes
from secondary_scheduler.simulation.experiments.kaffes_snapshots import (
    Snapshot,
)
from tests.unit.simulation.affinity import drivers


class TestKaffes(unittest.TestCase):

    def setUp(self):
        patch = drivers.of_setup()
        patch.start()
        self.addCleanup(patch.stop)

    def simulate(self, *arguments):
        """Return the measured figures of an experiment."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = manage.main(['simulate', 'run', *arguments, '--format',
                                'json'])
        self.assertEqual(0, code)
        return {name: one['measured'] for name, one
                in json.loads(printed.getvalue())['figures'].items()}

    def run_with(self, changes, **options):
        """Run an experiment with options."""
        return experiments.EXPERIMENTS['kaffes-under'].run(
            base.ExperimentOptions(changes, (1,), quick=True, **options))

    def test_published_drivers_beat_round_robin(self):
        # Five seeds instead of the 40 of the documentation.
        found = self.simulate('kaffes-over', '--runs', '5', '--quick')
        for scenario in ('random', 'latency'):
            of = {name: found[f'm_{name}_{scenario}_15']
                  for name in ('rrs_release', 'rbs', 'ibs')}
            self.assertLess(of['rrs_release'], of['rbs'])
            self.assertLess(of['rbs'], of['ibs'])
            self.assertLess(0, found[f'perf_pct_ibs_{scenario}_15'])
            self.assertGreater(-25, found[f'core_minutes_pct_ibs_{scenario}'
                                          '_15'])

    def test_kaf_25_figures_are_those_of_the_definition(self):
        sample = kaffes.HostSample('random', 'random_1', 1.0, 7, 't1',
                                   profiles.THESIS)
        outcomes = sample.run()
        rows = kaffes.compare(outcomes)
        gain = (outcomes['ibs'].performance / outcomes['rrs'].performance - 1)
        saved = 1 - outcomes['ibs'].core_s / outcomes['rrs'].kept_core_s
        self.assertAlmostEqual(gain + saved, rows['ibs']['m'])
        self.assertAlmostEqual(100 * gain, rows['ibs']['perf_pct'])
        self.assertAlmostEqual(-100 * saved, rows['ibs']['core_minutes_pct'])
        # Example 8.8: a loss of 8.5 % and a saving of 34.5 % are 0.26.
        self.assertAlmostEqual(0.26, -0.085 + 0.345)
        self.assertAlmostEqual(
            rows['rrs_release']['m'],
            1 - outcomes['rrs'].core_s / outcomes['rrs'].kept_core_s)
        self.assertEqual({one.guest.name for one in outcomes['ibs'].guests},
                         {one.guest.name for one in outcomes['rrs'].guests})

    def test_tie_break_of_the_thesis_starves_a_guest(self):
        slowest = {}
        for tie_break in affinity.TIE_BREAKS:
            profile = dataclasses.replace(
                profiles.THESIS, resource_tie_break=tie_break)
            slowest[tie_break] = [
                kaffes.HostSample('random', 'random_3', 3.0, seed, 't1',
                                  profile).run()['rbs'].slowest
                for seed in range(1, 6)]
        self.assertGreater(0.05, sum(slowest['thesis']) / 5)
        self.assertLess(0.15, sum(slowest['least-loaded']) / 5)

    def test_dynamic_quick_run_has_all_figures(self):
        found = self.simulate('kaffes-dynamic', '--quick', '--runs', '3')
        for name in ('cfs', 'rbs', 'ibs'):
            for figure in ('perf_pct', 'cores', 'slowest'):
                self.assertIn(f'{figure}_{name}_12', found)
        self.assertGreater(found['perf_pct_rbs_12'],
                           found['perf_pct_ibs_12'])
        self.assertLess(found['cores_ibs_12'], found['cores_rbs_12'])
        self.assertEqual(12, found['cores_cfs_12'])

    def test_events_have_each_guest(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'events'
            self.simulate('kaffes-under', '--quick', '--runs', '1',
                          '--events', str(path))
            events = [json.loads(line)
                      for line in path.read_text().splitlines()]
        self.assertIn('12 cores', events[0]['topology'])
        # Six guests, four algorithms, two scenarios.
        self.assertEqual(48, len(events[1:]))
        self.assertTrue(all(0 < one['performance'] <= 1
                            for one in events[1:]))

    def test_host_of_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / 'online').write_text('0-3\n')
            found = self.run_with((('host', folder),)).figures
            self.assertIn('m_ibs_random_05', found)
            self.assertEqual(2, len(self.run_with((
                ('host', folder), ('profile', 'ours'),
                ('truths', 't2'))).charts))
            sample = kaffes.HostSample(
                'random', 'x', 0.5, 1, 't1',
                profiles.AffinityProfile(name='x', host=folder))
            self.assertEqual(2, len(sample.run()['ibs'].guests))

    def test_pool_is_between_interference_and_the_oracle(self):
        found = self.simulate('kaffes-under', '--quick', '--runs', '5',
                              '--set', 'profile=ours', '--set', 'truths=t2')
        of = {name: found[f'snapshot_{name}_05_t2'] for name in (
            'ibs', 'ours', 'oracle', 'ours_all', 'oracle_all')}
        self.assertLess(of['ibs'], of['ours'])
        self.assertLessEqual(of['ours'], of['oracle'] + 1e-9)
        self.assertLessEqual(of['ours_all'], of['oracle_all'] + 1e-9)
        self.assertAlmostEqual(
            (of['ours'] - of['ibs']) / (of['oracle'] - of['ibs']),
            found['snapshot_way_05_t2'])
        self.assertLess(0.6, found['snapshot_way_05_t2'])
        # There is nothing to learn on its own model.
        self.assertEqual(found['snapshot_way_05_t2'],
                         found['snapshot_way_learned_05_t2'])
        self.assertLess(found['m_ibs_random_05_t2'],
                        found['m_ours_random_05_t2'])

    def test_pool_learns_from_observed_slowdowns(self):
        rows = [Snapshot('1', 1.0, seed, 't3', dataclasses.replace(
            profiles.OURS, keeps_node=False)).measure()
            for seed in range(1, 7)]
        first, learned, best = (
            sum(row[f'snapshot_{name}'] for row in rows) / 6
            for name in ('ours', 'learned', 'oracle'))
        self.assertLess(first + 0.02, learned)
        self.assertLess(learned, best)

    def test_pool_harms_a_primary_less_than_no_driver(self):
        found = self.simulate('kaffes-primary', '--quick', '--runs', '4')
        for ratio in ('1', '2'):
            self.assertGreater(0.5, found[f'loss_ratio_pool_40_{ratio}'])
            self.assertLess(0.9, found[f'work_ratio_pool_40_{ratio}'])
            self.assertLess(0, found[f'loss_pct_pool_40_{ratio}'])

    def test_oracle_is_a_profile(self):
        found = self.simulate(
            'kaffes-dynamic', '--quick', '--runs', '1', '--set',
            'profile=oracle', '--set', 'truths=t2', '--set',
            'annealing_steps=200')
        self.assertLess(found['perf_pct_ibs_12_t2'],
                        found['perf_pct_ours_12_t2'])

    def test_dedicated_cpus_are_not_used(self):
        profile = profiles.AffinityProfile(name='x', dedicated='0-5,7')
        self.assertEqual({6, *range(8, 12)}, profile.topology().cpus)
        outcome = kaffes.HostSample('random', 'x', 2.0, 1, 't1',
                                    profile).run()['cfs']
        self.assertEqual(10, len(outcome.guests))

    def test_workloads_of_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'profiles.json'
            path.write_text(json.dumps({
                'classes': ['web', 'batch'],
                'uses': {'web': {'cpu': 59}, 'batch': {'cpu': 100}},
                'time_sharing': [[1.25, 1.2], [1.84, 2.0]]}))
            found = self.simulate('kaffes-under', '--quick', '--runs', '1',
                                  '--set', f'workloads={path}')
            self.assertIn('m_ibs_random_05', found)
            self.assertNotIn('m_ibs_latency_05', found)
            with self.assertRaisesRegex(InputError, 'classes HL and MS'):
                experiments.EXPERIMENTS['kaffes-primary'].run(
                    base.ExperimentOptions((('workloads', str(path)),),
                                           (1,)))
            for text, problem in (
                    ('{', 'Expecting'), ('[1]', 'expected profiles'),
                    ('[' * 100_000, 'recursion'),
                    ('{"classes": ["a"], "uses": {"a": {"cpu": 1}}, '
                     '"time_sharing": [[NaN]]}',
                     r'time_sharing\[a\]\[a\]: expected a number')):
                path.write_text(text)
                with self.subTest(problem), self.assertRaisesRegex(
                        InputError, f'profiles.json: .*{problem}'):
                    self.run_with((('workloads', str(path)),))

    def test_wrong_options_are_named(self):
        for changes, options, text in (
                ((('profile', 'best'),), {}, 'thesis, ours, oracle'),
                ((('periods', '3'),), {}, 'there is no parameter periods'),
                ((('truths', 't9'),), {}, 'truths are some of t1,t2,t3'),
                ((('truths', ','),), {}, 'truths are some of t1,t2,t3'),
                ((('host', '/nonexistent'),), {},
                 'host: /nonexistent/online: No such file or directory$'),
                ((('driver', 'pin'),), {}, 'there is no driver pin'),
                ((('rounds', '0'),), {}, 'rounds is a number from 1'),
                ((('dedicated', '0-11'),), {}, 'leaves no CPU'),
                ((('dedicated', 'x'),), {}, 'dedicated says .x., where'),
                ((('workloads', '/nonexistent'),), {}, '/nonexistent'),
                ((('shortest_s', '5'),), {}, 'times from 60'),
                ((('interference_threshold', '0.5'),), {},
                 'interference_threshold: expected a number from 1'),
                ((('resource_tie_break', 'x'),), {}, 'least-loaded or'),
                ((), {'leases': 'x.csv'}, 'no table of leases')):
            with self.subTest(changes=changes), self.assertRaisesRegex(
                    InputError, text):
                self.run_with(changes, **options)

    def test_unknown_driver_is_named_with_the_known_ones(self):
        with self.assertRaisesRegex(
                InputError, 'no driver pin .*: .*interference, pool, res'):
            profiles.OURS.load_driver('pin')

    def test_units_of_figures(self):
        for name, unit in (('m_ibs_random_1', 'part'),
                           ('perf_pct_ibs_12', '%'), ('cores_rbs_6', 'CPUs')):
            self.assertEqual(unit, kaffes._unit(name))
