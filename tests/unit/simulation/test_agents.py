"""The arrays do what the agent's own code does, host by host."""

import random
import unittest

import numpy as np

from secondary_scheduler.agent import controller
from secondary_scheduler.policies import language, triggers
from secondary_scheduler.simulation import checks, control, profiles


class TestControl(unittest.TestCase):

    def test_same_as_the_agents(self):
        """Random use of three hosts, with guests that come and go."""
        draw = random.Random(5)
        profile = profiles.OURS
        many = control.Controllers(profile, 3, 6)
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
            there = np.flatnonzero(inside)
            caps = np.zeros(len(host))
            caps[there] = many.step(total, use[there], point, there,
                                    host[there], most[there])
            for number, one in enumerate(each):
                guests = np.flatnonzero(inside & (host == number))
                expected = one.step(total[number], [
                    controller.Load(str(guest), 1, use[guest], most[guest])
                    for guest in guests], point[number],
                    profile.minimum_share)
                np.testing.assert_allclose(
                    [expected[str(guest)] for guest in guests],
                    caps[guests], atol=1e-6)

    def test_thesis_splits_by_use_above_a_floor(self):
        one = control.Controllers(profiles.THESIS, 1, 2)
        caps = one.step(np.array([50.0]), np.array([40.0, 0.0]),
                        np.array([90.0]), np.array([0, 1]),
                        np.array([0, 0]), np.array([50.0, 50.0]))
        np.testing.assert_allclose([40, 5], caps)


class TestChecks(unittest.TestCase):

    TEXTS = ('cpu <= 90% for 6s', 'cpu <= 70% for 10s', 'slots <= 1 for 10s')

    def test_same_as_the_agents(self):
        draw = random.Random(5)
        policies = language.parse_all(self.TEXTS)
        many = checks.Checks(policies, 2)
        each = [[triggers.Trigger(policy, triggers.sensitivity_for(
            policy.timelimit, checks.SENSITIVITY)) for _host in range(2)]
            for policy in policies]
        level = 0.0
        for _second in range(500):
            level = draw.choice([level] * 9 + [draw.uniform(60, 100)])
            use = {'cpu': np.array([level, 80.0]),
                   'slots': np.array([draw.randint(0, 2), 2.0])}
            busy = {'cpu': np.array([draw.random() < 0.98, True]),
                    'slots': use['slots'] > 0}
            many.count(use, busy)
            for row, policy in enumerate(policies):
                for host in range(2):
                    one = each[row][host]
                    one.check(float(use[policy.resource][host]),
                              bool(busy[policy.resource][host]))
                    self.assertEqual(
                        (one.failed, one.violated, one.local_due),
                        (many.failed[row, host], many.violated[row, host],
                         many.local[row, host]))
                    self.assertEqual(one.failed == policy.timelimit + 1,
                                     many.broken[row, host])
