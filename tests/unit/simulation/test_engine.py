# SPDX-License-Identifier: Apache-2.0

"""Input of the main loop."""

import unittest

from secondary_scheduler.policies import language
from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.engine import (
    SIMULATED,
)
from tests.unit.simulation.test_operations import simulation


class TestPolicies(unittest.TestCase):

    def test_policy_on_a_resource_without_a_model_is_refused(self):
        for resource in language.MODELLED:
            policy = language.EXAMPLES[resource].partition(' on ')[0]
            if resource in SIMULATED:
                simulation(profiles.OURS, (1,), 1, policy)
                continue
            with self.subTest(resource), self.assertRaisesRegex(
                    ValueError, f"'{resource} .*, net_out, slots or cores"):
                simulation(profiles.OURS, (1,), 1, policy)
