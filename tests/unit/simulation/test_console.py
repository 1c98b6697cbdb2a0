# SPDX-License-Identifier: Apache-2.0

"""Commands of ``secondary-scheduler simulate``."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest
from unittest import mock

from secondary_scheduler.cmd import manage
from secondary_scheduler.simulation import experiments
from secondary_scheduler.simulation.experiments import (
    EXPERIMENTS,
    base,
)
from tests.unit.simulation.experiments.busy import run_busy


class TestCommand(unittest.TestCase):

    def run_command(self, code, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            got = manage.main(('simulate', *arguments), connect=self.fail)
        self.assertEqual(code, got, err.getvalue())
        return err.getvalue() if code else out.getvalue()

    def setUp(self):
        def quick(context):
            _workload, tally = run_busy(context.profile, context.log, 60)
            context.plots['chart'] = {'line': ([0, 1], [2, 3])}
            return base.columns([base.operations(tally, 0)])

        known = dict(EXPERIMENTS)
        known['tiny'] = base.Experiment(
            'tiny', 'for a test', quick, {'kills': 3.0}, lambda name: 'count')
        patch = mock.patch.object(experiments, 'EXPERIMENTS', known)
        patch.start()
        self.addCleanup(patch.stop)

    def test_list_names_experiments(self):
        self.assertIn('hlt-sequence', self.run_command(0, 'list'))

    def test_json_has_seeds_and_figures(self):
        text = self.run_command(0, 'run', 'tiny', '--format', 'json', '--set',
                           'profile=thesis', '--seed', '4', '--runs', '2')
        found = json.loads(text)
        self.assertEqual(
            (1, 'tiny', 'thesis', 4, [4, 5], 2),
            tuple(found[key] for key in (
                'schema', 'experiment', 'profile', 'seed', 'seeds', 'runs')))
        self.assertEqual({'measured', 'sd', 'published', 'oracle', 'unit',
                          'per_run'}, set(found['figures']['kills']))
        self.assertEqual(3.0, found['figures']['kills']['published'])

    def test_repeated_run_has_the_same_figures(self):
        figures = [json.loads(self.run_command(
            0, 'run', 'tiny', '--format', 'json'))['figures']
            for _time in range(2)]
        self.assertEqual(*figures)

    def test_table_events_and_plots_are_written(self):
        with tempfile.TemporaryDirectory() as folder:
            out = self.run_command(0, 'run', 'tiny', '--events', f'{folder}/e',
                              '--plot', f'{folder}/p')
            self.assertIn('PUBLISHED', out)
            kinds = {json.loads(line)['event'] for line in (
                pathlib.Path(folder) / 'e').read_text().splitlines()}
            self.assertLess({'sample', 'operation', 'trigger'}, kinds)
            self.assertEqual(2, len(list(pathlib.Path(folder).glob('p/*'))))

    def test_invalid_input_names_the_valid_one(self):
        for arguments, words in (
                (('none',), 'hlt-step'),
                (('tiny', '--set', 'profile=mine'), 'thesis'),
                (('tiny', '--set', 'profile'), 'KEY=VALUE'),
                (('tiny', '--set', 'algorithm=x'), 'oracle'),
                (('tiny', '--set', 'speed=3'), 'useful_share'),
                (('tiny', '--set', 'freeze=3'), 'on or off'),
                (('tiny', '--set', 'margin=much'), 'a number'),
                (('tiny', '--events', '/none/e'), '/none/e'),
                (('interference', '--runs', '1'), '2 or more'),
                (('tiny', '--leases', 'l.csv'), '--leases')):
            with self.subTest(arguments):
                self.assertIn(words, self.run_command(2, 'run', *arguments))
