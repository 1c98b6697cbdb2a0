# SPDX-License-Identifier: Apache-2.0

"""Requests for leases of jobs in VMs."""

import pathlib
import tempfile
import unittest

from secondary_scheduler.simulation.workloads import swf
from tests.unit.simulation.workloads.samples import JOBS

NEED = (100, 1024)


class RequestTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_vms_slow_jobs(self):
        path = self.folder / 'jobs.swf'
        path.write_text(JOBS)
        request = swf.read_trace(path, NEED).requests[0]
        slowed = request.in_vms(0.05, 20)
        self.assertEqual((67, 68060), (slowed.runs, slowed.terms.duration))
        # Haizea slows the request, made of the run time, and not the job.
        slipped = request.in_vms(0.05, 20, haizea=True)
        self.assertEqual((64, 67), (slipped.runs, slipped.terms.duration))
        self.assertEqual(slipped.bare, slowed.bare)
        self.assertEqual(request.runs, slipped.bare)
        # Without slowdown there is no difference.
        self.assertEqual(
            request.in_vms(0.0, 20), request.in_vms(0.0, 20, haizea=True)
        )
