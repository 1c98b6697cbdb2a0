# SPDX-License-Identifier: Apache-2.0

from secondary_scheduler.agent.sensors import cpu
from tests.unit.agent.base import AgentTestCase
from tests.unit.agent.sensors.cases import SensorTestCase, secondary


class ArrivalTest(AgentTestCase):
    def test_secondary_arrives_once_however_often_it_is_listed(self):
        agent = self.make()
        self.steps(agent, 2, 10.0)
        self.host.guest(0, started=int(self.now * 100))
        agent.parts.domains.refresh()
        self.steps(agent, 1, 100.0, g0=90.0)
        self.assertEqual(1, len(agent.parts.control.usage.arrivals))
        domains, self.host.libvirt.domains = self.host.libvirt.domains, []
        agent.parts.domains.refresh()
        self.steps(agent, 2, 100.0, g0=90.0)
        self.host.libvirt.domains = domains
        agent.parts.domains.refresh()
        self.steps(agent, 1, 100.0, g0=90.0)
        self.assertEqual([], agent.parts.control.usage.arrivals)
        # The same guest in another process is another arrival.
        self.host.guest(0, started=int(self.now * 100), listed=False)
        agent.parts.domains.refresh()
        self.steps(agent, 1, 100.0, g0=90.0)
        self.assertEqual(1, len(agent.parts.control.usage.arrivals))

    def test_secondary_of_unknown_age_is_no_arrival(self):
        agent = self.make()
        self.steps(agent, 4, 10.0)
        self.host.guest(0, started=int(self.now * 100))
        agent.parts.domains.refresh()
        self.spend(100.0, g0=90.0)
        self.host.write('proc/uptime', '')
        agent.step()
        self.assertEqual([], agent.parts.control.usage.arrivals)

    def test_secondary_that_has_run_for_long_is_no_arrival(self):
        # The times of its use are unknown.
        agent = self.make()
        self.steps(agent, 4, 10.0)
        self.host.guest(0, started=int((self.now - 60) * 100))
        agent.parts.domains.refresh()
        self.steps(agent, 1, 10.0, g0=90.0)
        self.assertEqual([], agent.parts.control.usage.arrivals)


class StuckCounterTest(SensorTestCase):
    """The host's counter of CPU time, compared with known use."""

    def setUp(self):
        super().setUp()
        self.host_s, self.guest_s, self.own = 0.0, 0.0, 0.0
        self.meter = cpu.CpuMeter(
            self, lambda guest: int(self.guest_s * 1e9), lambda guest: None,
            lambda: self.now, own_time=lambda: self.own)

    def usage_ns(self):
        return int(self.host_s * 1e9)

    def capacity(self):
        return 2.0

    def sample(self, host=0.0, guest=0.0, own=0.0):
        self.now += 0.5
        self.host_s += host
        self.guest_s += guest
        self.own += own
        return self.meter.sample([secondary(1)]).total

    def test_counter_of_an_idle_host_may_stand_still(self):
        self.sample()
        for _ in range(1000):
            self.assertEqual(0.0, self.sample(own=0.00009))

    def test_counter_is_stuck_if_secondaries_run(self):
        self.sample()
        self.assertAlmostEqual(50.0, self.sample(host=0.5, guest=0.3))
        self.assertIsNone(self.sample(guest=0.3))
        self.assertIsNone(self.sample())
        self.assertAlmostEqual(20.0, self.sample(host=0.2, guest=0.1))
        self.assertEqual(0.0, self.sample(guest=0.01))

    def test_counter_is_stuck_if_the_agent_runs(self):
        self.sample()
        found = [self.sample(own=0.003) for _ in range(40)]
        self.assertEqual(0.0, found[30])
        self.assertIsNone(found[-1])
