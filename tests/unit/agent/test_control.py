# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from secondary_scheduler.agent.floors import Reason
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase


class ControlTest(AgentTestCase):
    def test_new_guest_enters_at_the_floor_and_then_gets_room(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.assertEqual('1000 100000', self.host.quota(0))
        self.assertNotIn('10000 ', self.host.quota(0, 'emulator'))
        self.steps(agent, 1, 20.0)
        # The minimum: 5 % of 4 CPUs on 2 vCPUs.
        self.assertEqual('2000 20000', self.host.quota(0))
        self.steps(agent, 10, 30.0, g0=10.0)
        quota, period = map(int, self.host.quota(0).split())
        self.assertGreater(quota / period, 0.5)

    def test_new_guest_stays_at_the_floor_without_room(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 10, 86.0)
        self.assertEqual({Reason.ENTRY},
                         agent.parts.floors.reasons(fakes.UUIDS[0]))
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_without_policy_guests_stay_at_the_floor(self):
        self.configure('cpu <= 90% for 10s on host:other')
        self.conf.reload_config_files()
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 0.0)
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_harm_to_the_primary_reduces_the_share_of_secondaries(self):
        self.configure('cpu <= 90% for 10s\n'
                       'policy = probe:p99_ms <= 20 for 15s')
        self.conf.reload_config_files()
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 20, 40.0, g0=20.0)
        cap = agent.parts.control.caps[fakes.UUIDS[0]]
        self.assertGreater(cap, 40.0)
        for latency, share, room in ((12.0, 1.0, 6), (25.0, 0.5, 3),
                                     (25.0, 0.25, 1), (12.0, 0.27, 1)):
            with mock.patch.object(agent.parts.gauges, 'total',
                                   return_value=latency):
                agent.check()
            self.assertAlmostEqual(share, agent.parts.control.restraint.share)
            self.assertEqual(room, agent.reporter.room())
            # The primary uses 20 % of the host, and the set point is 89 %.
            self.steps(agent, 2, 40.0, g0=20.0)
            if latency > 20:
                self.assertLess(agent.parts.control.caps[fakes.UUIDS[0]],
                                share * 69.0 + 10.1)
        self.assertFalse(agent.parts.floors.floored(fakes.UUIDS[0]))
        self.steps(agent, 4, 25.0, g0=5.0)
        self.assertLess(agent.parts.control.caps[fakes.UUIDS[0]], 40.0)

    def test_failed_step_floors_all_and_the_next_one_lifts_them(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        with mock.patch.object(agent.parts.control._controller, 'step',
                               side_effect=ZeroDivisionError):
            self.steps(agent, 1, 20.0, g0=5.0)
        self.assertEqual(1, agent.parts.control.failures)
        self.assertEqual('1000 100000', self.host.quota(0))
        self.assertEqual('10000 100000', self.host.quota(0, 'emulator'))
        self.steps(agent, 3, 20.0, g0=5.0)
        self.assertNotEqual('1000 100000', self.host.quota(0))
        self.assertEqual(frozenset(),
                         agent.parts.floors.reasons(fakes.UUIDS[0]))

    def test_failed_list_of_guests_floors_the_known_ones(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        with mock.patch.object(agent.parts.control, '_guests',
                               side_effect=RuntimeError):
            self.steps(agent, 1, 20.0)
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_rebooted_guest_starts_at_the_floor_again(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        self.host.libvirt.domains.clear()
        self.host.guest(0, pid=2000, started=5)
        agent.parts.domains.refresh()
        self.spend(99.0)
        agent.step()
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_control_keeps_the_floor_of_the_local_trigger(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        for _ in range(11):
            self.steps(agent, 2, 99.0, g0=5.0)
            agent.check()
        self.assertEqual('1000 100000', self.host.quota(0))
        self.assertEqual('10000 100000', self.host.quota(0, 'emulator'))
        report = agent.reporter.build_report()
        self.assertTrue(report.instances[0].floored)
        self.assertIsNone(report.instances[0].cap)
        self.assertFalse(report.admission)
        self.assertEqual(0, report.counters['invalidations'])

    def test_cached_guests_are_controlled_without_libvirt(self):
        """The cache suffices for control and for the last resort."""
        self.host.guest(0)
        self.make()
        self.host.libvirt.error = OSError('dead')
        agent = self.make()
        agent.step()
        self.steps(agent, 3, 20.0, g0=5.0)
        self.assertIn(' 20000', self.host.quota(0))
        for _ in range(11):
            self.spend(99.0, g0=5.0)
            agent.check()
        self.assertEqual('1000 100000', self.host.quota(0))


class ControlV2Test(ControlTest):
    version = 2
