# SPDX-License-Identifier: Apache-2.0

"""Records of runs: figures, log and seeds."""

import io
import json
import unittest

from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.experiments import (
    efficiency,
)
from secondary_scheduler.simulation.experiments.base import Context
from secondary_scheduler.simulation.record import UNUSED, replay
from tests.unit.simulation.experiments.busy import run_busy


class TestRecord(unittest.TestCase):

    def test_reasons_add_up_to_all_unused_cpu(self):
        for profile in profiles.PROFILES.values():
            sums = run_busy(profile)[1].sums
            self.assertAlmostEqual(
                sums['exploitable'].sum(),
                sums['used'].sum() + sum(sums[cause].sum()
                                         for cause in UNUSED))
            self.assertEqual(profile.freeze and not profile.clairvoyant,
                             bool(sums['frozen'].sum() > 0), profile.name)

    def test_replayed_log_gives_the_same_figures(self):
        for profile in profiles.PROFILES.values():
            log = io.StringIO()
            workload, tally = run_busy(profile, log)
            log.seek(0)
            again = replay(log, workload.shape)
            self.assertEqual(['a', 'b'], sorted(again))
            for row, run in enumerate('ab'):
                with self.subTest(profile=profile.name, run=run):
                    other = again[run]
                    self.assertEqual(tally.counts[row], other.counts[0])
                    self.assertEqual(tally.lost[row], other.lost[0])
                    self.assertEqual(tally.frozen[row], other.frozen[0])
                    for name, values in tally.sums.items():
                        self.assertAlmostEqual(values[row],
                                               other.sums[name][0])
                    self.assertEqual(
                        efficiency.figures(tally, slice(row, row + 1)).keys(),
                        efficiency.figures(other, slice(0, 1)).keys())

    def test_use_is_within_capacity_and_work_adds_up(self):
        log = io.StringIO()
        workload, tally = run_busy(profiles.THESIS, log)
        done = lost = 0.0
        for line in log.getvalue().splitlines():
            event = json.loads(line)
            if event['event'] == 'sample':
                self.assertLessEqual(event['main'] + event['ops']
                                     + event['work'], 100 + 1e-6)
                self.assertLessEqual(len(event['vm']), 4)
                done += event['work'] * 2 / 100
            lost += event.get('core_s', 0.0)
        self.assertAlmostEqual(done - lost, tally.kept.sum())

    def test_run_has_starts_stops_and_triggers(self):
        _workload, tally = run_busy(profiles.THESIS)
        for kind in ('start', 'stop', 'global'):
            self.assertTrue(any(one[kind] for one in tally.counts), kind)

    def test_same_seed_gives_same_figures(self):
        _workload, one = run_busy(profiles.THESIS)
        _workload, other = run_busy(profiles.THESIS)
        self.assertEqual(one.counts, other.counts)
        for name, values in one.sums.items():
            self.assertEqual(values.tolist(), other.sums[name].tolist())

    def test_clusters_side_by_side_are_independent(self):
        both = run_busy(profiles.THESIS)[1]
        alone = Context(profiles.THESIS, (1,)).simulate(
            efficiency.workload('square', 80, 6, (70,), (1,), seconds=120),
            ['b'])
        self.assertEqual(both.counts[1], alone.counts[0])
        self.assertAlmostEqual(both.sums['vm'][1], alone.sums['vm'][0])
