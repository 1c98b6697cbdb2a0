# SPDX-License-Identifier: Apache-2.0

"""Profiles of lease simulations."""

import pathlib
import tempfile
import unittest

from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.leases import profiles
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.workloads.requests import TraceRequest
from tests.unit.leases.scheduling.builders import site, terms


class ProfileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_every_profile_is_valid(self):
        self.assertTrue(profiles.profile_names())
        for name in profiles.profile_names():
            self.assertEqual(name, profiles.read_profile(name).name)

    def test_file_is_read_as_a_profile(self):
        path = self.folder / 'mine.conf'
        path.write_text(
            '[secondary_leases]\nbackfilling = conservative\n'
            '[lease_simulation]\nruntime_overhead = 10\n'
        )
        profile = profiles.read_profile(str(path))
        self.assertIsNone(profile.settings.reservations)
        self.assertEqual(0.1, profile.runtime_overhead)
        path.write_text('[secondary_leases]\nbackfilling = maybe\n')
        with self.assertRaisesRegex(InputError, 'maybe'):
            profiles.read_profile(str(path))

    def test_haizea_migrations_move_vms_one_by_one(self):
        """A lease is preempted for one of 50 s, which ends after five."""

        def ended(*changes):
            profile = profiles.read_profile('novm-sr', changes)
            one, _ = LeaseSimulation(
                site(2),
                profile.settings,
                [
                    TraceRequest('a', 0, terms(2, 1000), 1000),
                    TraceRequest(
                        'b', 0, terms(2, 50, start=500, preemptible=False), 5
                    ),
                ],
            ).run()
            self.assertEqual(1, one.lease.suspends)
            return one.lease.ended

        self.assertEqual(1000 + 2 * 21 + 5, ended())
        # 1 GB of each of two VMs at 100 MB/s, though neither moves.
        self.assertEqual(ended() + 21, ended(('haizea_migrations', 'true')))
