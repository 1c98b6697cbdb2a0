"""The arrays do what the agent's own code does, host by host."""

import dataclasses
import random
import unittest

import numpy as np

from secondary_scheduler.agent import controller
from secondary_scheduler.policies import language, triggers
from secondary_scheduler.simulation import (
    checks,
    control,
    periods,
    profiles,
)


class TestControl(unittest.TestCase):

    def test_same_as_the_agents(self):
        """Random use of three hosts, with guests that come and go."""
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
            control.control_hosts(many, total, point, control.Law.of(profile),
                                  use, most, host, inside)
            for number, one in enumerate(each):
                guests = np.flatnonzero(inside & (host == number))
                expected = one.step(total[number], [
                    controller.Load(str(guest), 1, use[guest], most[guest])
                    for guest in guests], point[number],
                    profile.minimum_share)
                np.testing.assert_allclose(
                    [expected[str(guest)] for guest in guests],
                    many.caps[guests], atol=1e-9)

    def test_thesis_splits_by_use_above_a_floor(self):
        one = control.Agents.fresh(1, 2)
        control.control_hosts(
            one, np.array([50.0]), np.array([90.0]),
            control.Law.of(profiles.THESIS), np.array([40.0, 0.0]),
            np.array([50.0, 50.0]), np.array([0, 0]), np.array([True, True]))
        np.testing.assert_allclose([40, 5], one.caps)


class TestPeriod(unittest.TestCase):
    """Two hosts: a guest on each, one that boots, and one outside."""

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
                periods.Rules.of(profile, 2), np.array(wanted),
                np.array([0.0, 5.0]), np.array([89.0, 89.0]),
                np.array(watched), guests, agents, use, now)
            np.testing.assert_array_equal(use.guests, now)
        return use, agents

    def test_from_the_minimum_to_the_set_point(self):
        use, agents = self.pass_period(profiles.OURS)
        self.assertEqual([0] * 4, use.guests.tolist())
        self.assertEqual([2, 2, 2, 0], agents.caps.tolist())
        use, agents = self.pass_period(profiles.OURS, times=30)
        # What the second one's traffic leaves goes to nobody else.
        np.testing.assert_allclose([50, 7, 20, 0], use.guests, atol=0.1)
        np.testing.assert_allclose([30, 20], use.main)
        np.testing.assert_allclose([0, 25], use.ops, atol=0.1)
        np.testing.assert_allclose([50, 7], use.vm, atol=0.1)

    def test_without_control_they_take_what_they_can(self):
        use, agents = self.pass_period(dataclasses.replace(
            profiles.OURS, local_control=False), wanted=(80.0, 20.0))
        # By weight, 2 for the primary and 0.01 for the guest.
        np.testing.assert_allclose([20, 50, 20, 0], use.guests)
        np.testing.assert_allclose([80, 20], use.main)
        self.assertEqual([0] * 4, agents.caps.tolist())

    def test_who_foresees_leaves_nothing_free(self):
        use, _agents = self.pass_period(profiles.ORACLE,
                                        wanted=(60.0, 20.0))
        np.testing.assert_allclose([29, 44, 20, 0], use.guests)

    def test_without_an_agent_limits_stay_and_then_begin_anew(self):
        _use, agents = self.pass_period(profiles.OURS, times=30)
        caps = agents.caps.copy()
        _use, agents = self.pass_period(
            profiles.OURS, watched=(False, True), wanted=(80.0, 20.0),
            agents=agents)
        self.assertEqual((caps[0], 0.0, -1), (
            agents.caps[0], agents.shares[0], agents.member[0]))
        _use, agents = self.pass_period(profiles.OURS, agents=agents)
        self.assertEqual(2, agents.caps[0])

    def test_who_is_there(self):
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


class TestChecks(unittest.TestCase):

    TEXTS = ('cpu <= 90% for 6s', 'cpu <= 70% for 10s', 'slots <= 1 for 10s')

    def test_same_as_the_agents(self):
        for adapts in (False, True):
            with self.subTest(adapts=adapts):
                self.compare(adapts)

    def compare(self, adapts):
        draw = random.Random(5)
        policies = language.parse_all(self.TEXTS)
        many = checks.PolicyChecks(policies, 2, adapts=adapts)
        each = [[triggers.Trigger(policy, triggers.sensitivity_for(
            policy.timelimit, checks.SENSITIVITY),
            triggers.FailureRuns() if adapts else None) for _host in range(2)]
            for policy in policies]
        level = 0.0
        for _second in range(3000):
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
                    self.assertEqual(one.sensitivity,
                                     many.sensitivity[row, host])
        self.assertEqual(adapts, bool((
            many.sensitivity != many.sensitivity[:, 1:]).any()))
