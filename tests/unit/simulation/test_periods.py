# SPDX-License-Identifier: Apache-2.0

"""Sharing, use and caps of a period."""

import dataclasses
import unittest

import numpy as np

from secondary_scheduler.simulation import (
    control,
    periods,
    profiles,
)


class TestPeriod(unittest.TestCase):
    """Two hosts with a guest each, a booting guest, and one without a host."""

    def pass_period(self, profile, times=1, watched=(True, True),
                    wanted=(30.0, 20.0), agents=None):
        agents = agents or control.Agents.fresh(2, 4)
        guests = periods.Guests(
            np.array([True, True, True, False]), np.array([0, 1, 1, -1]),
            np.array([False, False, True, False]), np.full(4, 20.0),
            np.full(4, 50.0), np.array([50.0, 7.0, 50.0, 50.0]), np.zeros(4))
        for _one in range(times):
            use, now = periods.CpuUse.none(2, 4), np.zeros(4)
            periods.period(
                periods.Rules.of_profile(profile, 2), np.array(wanted),
                np.array([0.0, 5.0]), np.array([89.0, 89.0]),
                np.array(watched), guests, agents, use, now)
            np.testing.assert_array_equal(use.guests, now)
        return use, agents

    def test_caps_rise_from_the_minimum_to_the_set_point(self):
        use, agents = self.pass_period(profiles.OURS)
        self.assertEqual([0] * 4, use.guests.tolist())
        self.assertEqual([2, 2, 2, 0], agents.caps.tolist())
        use, agents = self.pass_period(profiles.OURS, times=30)
        # CPU that the second guest's traffic cap leaves is not given away.
        np.testing.assert_allclose([50, 7, 20, 0], use.guests, atol=0.1)
        np.testing.assert_allclose([30, 20], use.main)
        np.testing.assert_allclose([0, 25], use.ops, atol=0.1)
        np.testing.assert_allclose([50, 7], use.vm, atol=0.1)

    def test_guests_without_control_use_all_they_can(self):
        use, agents = self.pass_period(dataclasses.replace(
            profiles.OURS, local_control=False), wanted=(80.0, 20.0))
        # By weight, 2 for the primary and 0.01 for the guest.
        np.testing.assert_allclose([20, 50, 20, 0], use.guests)
        np.testing.assert_allclose([80, 20], use.main)
        self.assertEqual([0] * 4, agents.caps.tolist())

    def test_oracle_uses_all_cpu_up_to_the_set_point(self):
        use, _agents = self.pass_period(profiles.ORACLE,
                                        wanted=(60.0, 20.0))
        np.testing.assert_allclose([29, 44, 20, 0], use.guests)

    def test_limits_stay_without_an_agent_and_restart_with_it(self):
        _use, agents = self.pass_period(profiles.OURS, times=30)
        caps = agents.caps.copy()
        _use, agents = self.pass_period(
            profiles.OURS, watched=(False, True), wanted=(80.0, 20.0),
            agents=agents)
        self.assertEqual((caps[0], 0.0, -1), (
            agents.caps[0], agents.shares[0], agents.member[0]))
        _use, agents = self.pass_period(profiles.OURS, agents=agents)
        self.assertEqual(2, agents.caps[0])

    def test_presence_sums_up_guests_by_host(self):
        guests = periods.Guests(
            np.array([True, True, True, False, False]),
            np.array([0, 1, 1, 1, -1]),
            np.array([False, False, True, False, False]), np.full(5, 20.0),
            np.full(5, 50.0), np.full(5, 50.0), np.zeros(5))
        floored = np.array([False] * 3 + [True, False])
        caps = np.array([0.0, 30.0, 10.0, 0.0, 0.0])
        for foresees, controlled, nothing in ((False, [0, 3], [0, 1]),
                                              (True, [1, 3], [1, 1])):
            found = periods.presence(guests, floored, caps, foresees, 2)
            np.testing.assert_array_equal(
                [[50, 70], [0, 50], controlled, nothing], found)
