# SPDX-License-Identifier: Apache-2.0

"""Day of a cloud, on small synthetic traces."""

import contextlib
import gzip
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import numpy as np

from secondary_scheduler.cmd import manage
from secondary_scheduler.simulation import profiles, traces
from secondary_scheduler.simulation.experiments import EXPERIMENTS, realday
from secondary_scheduler.simulation.experiments.base import Context

PODS = ('cpu_milli,memory_mib,qos,creation_time,deletion_time\n'
        '4000,16384,BE,0,600\n'
        '8000,20480,BE,100,2000\n'
        '1000,1024,BE,0,90\n'
        '1000,1024,BE,0,59\n'       # too short
        '17000,1024,BE,0,900\n'     # too large
        '2000,1024,LS,0,900\n')     # not best effort


class TestRealDay(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.data = pathlib.Path(folder.name)
        use = np.random.default_rng(1).uniform(2, 25, (7, traces.SAMPLES))
        for day in realday.DAYS:
            self.write(f'planetlab/{day}.csv.gz', '\n'.join(
                ','.join(('node', *(f'{one:.1f}' for one in row)))
                for row in use))
        self.write(realday.PODS, PODS)

    def write(self, name, text):
        path = self.data / name
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path, 'wt') as out:
            out.write(text)

    def test_guests_use_idle_cpu_without_losses(self):
        context = Context(profiles.OURS, (1,), quick=True, data=self.data)
        with mock.patch.object(realday, 'HOSTS', 8):
            found = {name.removesuffix('_120'): value for name, (value,) in
                     EXPERIMENTS['real-day'].measure(context).items()}
        self.assertGreater(found['cpu_with'], 0.85 * realday.THRESHOLD)
        self.assertLess(found['cpu_with'], realday.THRESHOLD)
        self.assertLess(found['cpu_without'], 20)
        self.assertLessEqual(found['operations_per_host_hour'], 2)
        for name in ('invalidations', 'work_lost_core_s', 'kills'):
            self.assertEqual(0, found[name])
        (chart,) = context.plots.values()
        self.assertEqual({12}, {len(up) for _across, up in chart.values()})

    def test_only_best_effort_pods_within_bounds_are_read(self):
        pods = realday.Pods.read_pods(self.data / realday.PODS)
        self.assertEqual([4, 8, 1], pods.cores.tolist())
        self.assertEqual([600, 1900, 90], pods.life_s.tolist())

    def test_arrivals_offer_constant_work_from_the_first_second(self):
        pods = realday.Pods.read_pods(self.data / realday.PODS)
        come = pods.draw_arrivals(5000, 4, 20_000, np.random.default_rng(1))
        gone_s = come.time_s + come.work / come.cores
        for begin in (0, 5000, 15_000):
            there = np.maximum(0, np.minimum(gone_s, begin + 5000)
                               - np.maximum(come.time_s, begin))
            self.assertAlmostEqual(
                5000, (there * come.cores).sum() / 5000, delta=250)
        self.assertEqual({0, 1, 2, 3}, set(come.cluster.tolist()))
        self.assertTrue((np.diff(come.time_s) >= 0).all())

    def test_missing_traces_name_the_data_option(self):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = manage.main(('simulate', 'run', 'real-day', '--data',
                                str(self.data / 'none')), connect=self.fail)
        self.assertEqual(2, code)
        self.assertIn('--data', err.getvalue())
