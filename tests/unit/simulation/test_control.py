# SPDX-License-Identifier: Apache-2.0

"""Compiled controllers give the caps of the agent's own."""

import random
import unittest

import numpy as np

from secondary_scheduler.agent import controller
from secondary_scheduler.simulation import (
    control,
    profiles,
)


class TestControl(unittest.TestCase):

    def test_caps_equal_those_of_the_agent(self):
        """Three hosts with random use; guests leave and return."""
        draw = random.Random(5)
        profile = profiles.OURS
        many = control.Agents.fresh(3, 6)
        each = [controller.Controller(profile.gain, profile.probe)
                for _host in range(3)]
        host = np.array([0, 0, 1, 1, 1, 2])
        most = np.array([50.0, 50, 30, 60, 50, 50])
        for _period in range(200):
            inside = np.array([draw.random() < 0.9 for _one in host])
            use = np.array([draw.choice([0.0, draw.uniform(0, 50)])
                            for _one in host]) * inside
            primary = np.array([draw.uniform(0, 100) for _host in range(3)])
            total = primary + np.bincount(host, use, minlength=3)
            point = np.array([94.0, 89.0, 69.0])
            control.control_hosts(
                many, total, point, control.Law.of_profile(profile), use,
                most, host, inside)
            for number, one in enumerate(each):
                guests = np.flatnonzero(inside & (host == number))
                expected = one.step(total[number], [
                    controller.Load(str(guest), 1, use[guest], most[guest])
                    for guest in guests], point[number],
                    profile.minimum_share)
                np.testing.assert_allclose(
                    [expected[str(guest)] for guest in guests],
                    many.caps[guests], atol=1e-9)

    def test_thesis_splits_by_use_above_a_minimum(self):
        one = control.Agents.fresh(1, 2)
        control.control_hosts(
            one, np.array([50.0]), np.array([90.0]),
            control.Law.of_profile(profiles.THESIS), np.array([40.0, 0.0]),
            np.array([50.0, 50.0]), np.array([0, 0]), np.array([True, True]))
        np.testing.assert_allclose([40, 5], one.caps)
