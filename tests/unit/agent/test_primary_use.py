# SPDX-License-Identifier: Apache-2.0

from secondary_scheduler.agent import forecasts, primary_use
from secondary_scheduler.agent.sensors import cpu
from tests.unit.agent.base import AgentTestCase


class RecentPrimaryUseTest(AgentTestCase):
    def use(self, outlook, *values):
        for value in values:
            outlook.push(value)
            self.now += 0.5

    def make_use(self):
        return primary_use.RecentPrimaryUse(forecasts.Percentile(self.conf),
                                         lambda: self.now)

    def test_peak_of_half_a_second_does_not_raise_the_forecast(self):
        primary = self.make_use()
        self.assertIsNone(primary.forecast)
        self.use(primary, *([20.0] * 6 + [90.0]) * 17, None)
        self.assertEqual(30.0, primary.forecast)

    def test_forecast_is_the_use_exceeded_one_time_in_twenty(self):
        primary = self.make_use()
        self.use(primary, *[20.0] * 100, *[90.0] * 18)
        self.assertEqual(90.0, primary.forecast)
        self.use(primary, *[20.0] * 126)
        self.assertEqual(20.0, primary.forecast)
        self.now += 61
        primary.push(None)
        self.assertIsNone(primary.forecast)

    def test_recent_use_is_the_mean_of_three_seconds(self):
        primary = self.make_use()
        self.assertIsNone(primary.recent)
        primary.push(90.0)
        self.now += 2
        primary.push(30.0)
        primary.push(None)
        self.now += 1
        self.assertEqual(60.0, primary.recent)
        primary.push(15.0)
        self.assertEqual(45.0, primary.recent)
        self.now += 1
        self.assertEqual(22.5, primary.recent)
        self.now += 3
        self.assertIsNone(primary.recent)
        self.assertEqual(60.0, primary.forecast)     # still in the window

    def test_use_by_a_new_secondary_is_subtracted(self):
        primary = self.make_use()
        self.use(primary, *[20.0] * 100, *[90.0] * 8)
        primary.push(90.0, [cpu.Arrival(4.5, 70.0)])
        self.assertEqual(20.0, primary.forecast)
        self.assertEqual(20.0, primary.recent)

    def test_only_the_overlapping_part_of_a_sample_is_subtracted(self):
        primary = self.make_use()
        self.use(primary, *[20.0] * 8)
        # 100 % of the host for 0.1 s is a fifth of the sample of 0.5 s.
        primary.push(40.0, [cpu.Arrival(0.1, 100.0)])
        self.assertAlmostEqual(20.0, primary.recent)
        self.now += 3.5
        primary.push(40.0, [cpu.Arrival(3600.0, 500.0)])
        self.assertEqual(0.0, primary.recent)

    def test_nothing_is_subtracted_from_the_first_sample(self):
        primary = self.make_use()
        primary.push(40.0, [cpu.Arrival(1.0, 10.0)])
        self.assertEqual(40.0, primary.recent)

    def test_starting_guest_does_not_close_its_host(self):
        agent = self.make()
        self.steps(agent, 20, 10.0)
        # Until it is listed, the use by QEMU counts as the primary's.
        self.host.guest(0, started=int(self.now * 100))
        self.steps(agent, 8, 100.0, g0=90.0)
        self.assertGreater(agent.parts.primary_cpu.forecast, 30.0)
        agent.parts.domains.refresh()
        self.steps(agent, 1, 100.0, g0=90.0)
        self.assertAlmostEqual(10.0, agent.parts.primary_cpu.forecast)
        self.assertGreater(agent.reporter.room(), 1)
        # From then on its use is measured.
        self.steps(agent, 12, 40.0, g0=30.0)
        self.assertAlmostEqual(10.0, agent.parts.primary_cpu.forecast)
        self.assertAlmostEqual(10.0, agent.parts.primary_cpu.recent)
