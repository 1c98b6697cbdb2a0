# SPDX-License-Identifier: Apache-2.0

"""Public traces, and errors in them."""

import gzip
import pathlib
import tempfile
import unittest

import numpy as np

from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation import traces
from secondary_scheduler.simulation.workloads import swf

DATA = pathlib.Path(__file__).parents[4] / 'shared/data'
PODS = 'name,cpu_milli,memory_mib,qos,creation_time,deletion_time\n'


class TestTraces(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, 'trace')

    def fails(self, read, text, words):
        self.path.write_text(text)
        with self.assertRaisesRegex(InputError, words) as caught:
            read(self.path)
        self.assertIn(str(self.path), str(caught.exception))

    def test_planetlab_errors_name_the_line(self):
        row = ','.join(['some_node'] + ['12.5'] * 287)
        self.path.write_text(f'{row},0\n{row},100\n')
        use = traces.read_planetlab(self.path)
        self.assertEqual((2, 288), use.shape)
        self.assertEqual([12.5, 0.0], use[0, -2:].tolist())
        for line, words in ((row, '289 columns'), (row + ',1,2', '289'),
                            (row + ',much', 'much'), (row + ',101', '101'),
                            (row + ',-1', '-1'), (row + ',nan', 'nan'),
                            ('', 'no rows')):
            with self.subTest(words):
                self.fails(traces.read_planetlab, line, words)

    def test_openb_errors_name_the_line(self):
        self.path.write_text(PODS + 'a,4152,1024,BE,5,65.5\n')
        (pod,) = traces.read_openb(self.path)
        self.assertEqual((4152.0, 1024.0, 'BE', 5.0, 65.5), pod.item())
        for text, words in (
                (PODS.replace('qos', 'class'), 'column qos'),
                (PODS + 'a,4152,1024,BE,5,', 'line 2: field 6, deletion_time'),
                (PODS + 'a,4152,1024,BE,5', 'expected 6 columns, not 5'),
                (PODS + 'a,4152,1024,BE,5,4', 'line 2: .* no earlier'),
                (PODS + 'a,-1,1024,BE,5,6', 'cpu_milli'),
                (PODS, 'no rows'), ('', 'cpu_milli')):
            with self.subTest(words):
                self.fails(traces.read_openb, text, words)

    def test_pods_of_other_phases_and_quoted_columns(self):
        header = ('name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,'
                  'pod_phase,creation_time,deletion_time,scheduled_time\n')
        good = ('p2,12000,16384,1,1000,V100M16|V100M32,BE,Running,0,5,1\n'
                'p3,12000,16384,1,1000,"a,b",BE,Running,0,5,1\n')
        self.path.write_text(header + good)
        self.assertEqual([(12000.0, 16384.0, 'BE', 0.0, 5.0)] * 2,
                         traces.read_openb(self.path).tolist())
        for row, words in (
                ('p0,12000,16384,1,1000,,BE,Pending,0,,',
                 'line 2: field 10, deletion_time'),
                ('p1,12000,16384,1,1000,,BE,Failed,10,5,7',
                 'line 2: .* no earlier')):
            with self.subTest(row):
                self.fails(traces.read_openb, f'{header}{row}\n{good}', words)

    def test_use_of_a_machine_is_within_0_and_100_percent(self):
        for first in ('101', '-1'):
            with self.subTest(first):
                self.fails(traces.read_planetlab, ','.join(
                    ['a', first] + ['5'] * 287), f'line 1: .*{first}')
        self.fails(traces.read_planetlab, ','.join(['a'] + ['5'] * 287),
                   '289 columns, not 288')

    def test_missing_or_broken_file_is_named(self):
        for read in (traces.read_planetlab, traces.read_openb):
            with self.subTest(read), self.assertRaisesRegex(
                    InputError, 'trace'):
                read(self.path)
        broken = self.path.with_suffix('.gz')
        broken.write_bytes(gzip.compress(b'1,2\n' * 99)[:-9])
        for read in (traces.read_planetlab, traces.read_openb):
            with self.subTest(read), self.assertRaisesRegex(
                    InputError, 'trace.gz'):
                read(broken)


@unittest.skipUnless(DATA.is_dir(), f'needs the public traces in {DATA}')
class TestPublished(unittest.TestCase):
    """Published sizes of the traces."""

    def test_planetlab_has_the_published_machines(self):
        for day, machines in (('20110303', 1052), ('20110309', 1061),
                              ('20110322', 1516)):
            use = traces.read_planetlab(DATA / f'planetlab/{day}.csv.gz')
            self.assertEqual((machines, 288), use.shape)

    def test_openb_has_the_published_pods(self):
        pods = traces.read_openb(
            DATA / 'alibaba-openb/openb_pod_list_default.csv.gz')
        self.assertEqual(8152, len(pods))
        self.assertEqual(3398, np.count_nonzero(pods['qos'] == 'BE'))

    def test_swf_traces_have_the_published_jobs(self):
        for name, jobs in (('swf/LCG.swf.gz', 188_041),
                           ('haizea/traces/blue/30days.swf', 5108)):
            trace = swf.read_trace(DATA / name, (100, 1024))
            self.assertEqual(jobs, len(trace.requests))
