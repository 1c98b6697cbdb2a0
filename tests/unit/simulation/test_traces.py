"""Traces are read as they are, and what is wrong with one is said."""

import gzip
import pathlib
import tempfile
import unittest

import numpy as np

from secondary_scheduler.simulation import traces

DATA = pathlib.Path(__file__).parents[4] / 'shared/data'
PODS = 'name,cpu_milli,memory_mib,qos,creation_time,deletion_time\n'
JOB = '7 10 5 {} 4 -1 -1 4 60 -1 1 96 -1 -1 3 -1 -1 -1\n'


class TestTraces(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, 'trace')

    def fails(self, read, text, words):
        self.path.write_text(text)
        with self.assertRaisesRegex(traces.TraceError, words) as caught:
            read(self.path)
        self.assertIn(str(self.path), str(caught.exception))

    def test_planetlab(self):
        row = ','.join(['some_node'] + ['12.5'] * 287)
        self.path.write_text(f'{row},0\n{row},100\n')
        use = traces.planetlab(self.path)
        self.assertEqual((2, 288), use.shape)
        self.assertEqual([12.5, 0.0], use[0, -2:].tolist())
        for line, words in ((row, '289 columns'), (row + ',1,2', '289'),
                            (row + ',much', 'much'), (row + ',101', '101'),
                            (row + ',nan', 'nan'), ('', 'no rows')):
            with self.subTest(words):
                self.fails(traces.planetlab, line, words)

    def test_openb(self):
        self.path.write_text(PODS + 'a,4152,1024,BE,5,65.5\n')
        (pod,) = traces.openb(self.path)
        self.assertEqual((4152.0, 1024.0, 'BE', 5.0, 65.5), pod.item())
        for text, words in (
                (PODS.replace('qos', 'class'), 'column qos'),
                (PODS + 'a,4152,1024,BE,5,', 'column'),
                (PODS + 'a,4152,1024,BE,5,4', 'between creation'),
                (PODS + 'a,-1,1024,BE,5,6', 'cpu_milli'),
                (PODS, 'no rows'), ('', 'cpu_milli')):
            with self.subTest(words):
                self.fails(traces.openb, text, words)

    def test_swf(self):
        with gzip.open(self.path.with_suffix('.gz'), 'wt') as out:
            out.write('; Version: 2.2\n' + JOB.format('43.5') * 2)
        jobs = traces.swf(self.path.with_suffix('.gz'))
        self.assertEqual(2, len(jobs))
        self.assertEqual((7, 10, 5, 43.5, 4, 60, 96), tuple(
            jobs[0][['job', 'submitted', 'waited', 'ran', 'processors',
                     'requested', 'user']].item()))
        self.fails(traces.swf, JOB.format('x'), 'x')
        self.fails(traces.swf, JOB.format('-2'), 'ran')
        self.fails(traces.swf, JOB.format('1 1'), '18')
        self.fails(traces.swf, ';\n', 'no rows')

    def test_a_file_that_is_not_there_or_broken(self):
        for read in (traces.planetlab, traces.openb, traces.swf):
            with self.subTest(read), self.assertRaisesRegex(
                    traces.TraceError, 'trace'):
                read(self.path)
        broken = self.path.with_suffix('.gz')
        broken.write_bytes(gzip.compress(b'1,2\n' * 99)[:-9])
        for read in (traces.planetlab, traces.openb, traces.swf):
            with self.subTest(read), self.assertRaisesRegex(
                    traces.TraceError, 'trace.gz'):
                read(broken)


@unittest.skipUnless(DATA.is_dir(), f'needs the public traces in {DATA}')
class TestPublished(unittest.TestCase):
    """What the sources say of the traces themselves."""

    def test_planetlab(self):
        for day, machines in (('20110303', 1052), ('20110309', 1061),
                              ('20110322', 1516)):
            use = traces.planetlab(DATA / f'planetlab/{day}.csv.gz')
            self.assertEqual((machines, 288), use.shape)

    def test_openb(self):
        pods = traces.openb(
            DATA / 'alibaba-openb/openb_pod_list_default.csv.gz')
        self.assertEqual(8152, len(pods))
        self.assertEqual(3398, np.count_nonzero(pods['qos'] == 'BE'))

    def test_swf(self):
        self.assertEqual(188_041, len(traces.swf(DATA / 'swf/LCG.swf.gz')))
        blue = DATA / 'haizea/traces/blue/30days.swf'
        self.assertEqual(5545, len(traces.swf(blue)))
