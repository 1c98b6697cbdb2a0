# SPDX-License-Identifier: Apache-2.0

"""Profiles of runs."""

import contextlib
import dataclasses
import pathlib
import unittest

from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.experiments import (
    hlt,
)
from secondary_scheduler.simulation.experiments.base import Context
from tests.unit.simulation.experiments.busy import run_busy


class TestProfiles(unittest.TestCase):

    def test_all_fields_are_documented(self):
        text = (pathlib.Path(__file__).parents[3]
                / 'doc/source/contributor/simulator.rst').read_text()
        for field in dataclasses.fields(profiles.Profile)[1:]:
            self.assertIn(f'``{field.name}``', text)

    def test_all_profiles_run_the_same_workload(self):
        seen = []

        class Recorder(Context):
            def simulate(self, workload, runs, series=False):
                seen.append((workload.policies, workload.load.tobytes(),
                             workload.seeds))
                raise StopIteration

        for profile in profiles.PROFILES.values():
            with contextlib.suppress(StopIteration):
                hlt.run_hlt(Recorder(profile, (1,)))
        self.assertEqual(3, len(seen))
        self.assertEqual(1, len(set(seen)))

    def test_oracle_uses_more_than_ours_and_ours_more_than_thesis(self):
        used = {name: run_busy(profile)[1].sums['used'].sum()
                for name, profile in profiles.PROFILES.items()}
        self.assertGreater(used['oracle'], used['ours'])
        self.assertGreater(used['ours'], used['thesis'])
