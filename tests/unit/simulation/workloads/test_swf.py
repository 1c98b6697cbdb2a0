# SPDX-License-Identifier: Apache-2.0

"""Traces in the Standard Workload Format."""

import gzip
import pathlib
import tempfile
import unittest

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.workloads import swf
from tests.unit.simulation.workloads.samples import JOBS

NEED = (100, 1024)


class SwfTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check_jobs(self, trace):
        self.assertEqual(
            ['14', '16', '17', '18'], [one.id for one in trace.requests]
        )
        first, empty, long, untimed = trace.requests
        self.assertEqual((900, 900), (untimed.runs, untimed.terms.duration))
        self.assertIsNone(trace.nodes)
        self.assertEqual(
            (
                '1 of 5 jobs have no requested time: they ask for as long as '
                'they ran',
                'left out, since it was cancelled before it ran: job 15',
            ),
            trace.notes,
        )
        self.assertEqual(
            (32, 44, 64800), (first.arrival, first.runs, first.terms.duration)
        )
        self.assertEqual(4, first.terms.nodes[0].number)
        self.assertEqual(NEED, first.terms.nodes[0].need)
        self.assertIs(LeaseKind.BEST_EFFORT, first.terms.kind)
        self.assertEqual(('96', ''), (first.terms.user, empty.terms.user))
        self.assertEqual(1, empty.runs)
        # It ran for longer than it asked for, and asked for no processors.
        self.assertEqual((600, 8), (long.runs, long.terms.nodes[0].number))

    def test_jobs_are_read(self):
        path = self.folder / 'jobs.swf'
        path.write_text(JOBS)
        self.check_jobs(swf.read_trace(path, NEED))

    def test_compressed_trace_is_read(self):
        path = self.folder / 'jobs.swf.gz'
        path.write_bytes(gzip.compress(JOBS.encode()))
        self.check_jobs(swf.read_trace(path, NEED))

    def test_invalid_trace_names_the_line(self):
        for text, says in (
            ('1 2 3', r'line 1: no job: expected at least 12 fields, not 3'),
            (
                JOBS + '1 x' + ' 1' * 12,
                'line 9: field 2, submit time: expected a '
                'number from .*, not "x"',
            ),
            ('; nothing', 'no jobs'),
        ):
            with self.subTest(text=text, says=says):
                path = self.folder / 'jobs.swf'
                path.write_text(text)
                with self.assertRaisesRegex(InputError, says):
                    swf.read_trace(path, NEED)

    def test_missing_trace_is_named(self):
        with self.assertRaisesRegex(InputError, 'No such file'):
            swf.read_trace(self.folder / 'jobs.swf', NEED)
