# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import time
import unittest
from unittest import mock

from oslo_config import cfg, fixture

from secondary_scheduler.agent import domain_xml, rates, wiring
from secondary_scheduler.agent.actuator import Actuator
from secondary_scheduler.agent.controller import Controller
from secondary_scheduler.agent.device_limits import NOTHING, IoLimits
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.floors import Floors
from secondary_scheduler.agent.policy_source import HostPolicies
from secondary_scheduler.agent.sensors.base import Reading
from secondary_scheduler.cmd import agent as command
from secondary_scheduler.conf import agent as agent_conf
from secondary_scheduler.conf import policy as policy_conf
from secondary_scheduler.policies import language
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase

MB = 1000000


def secondary(n, disks=('vda',), taps=('tap',)):
    return Secondary(f'u{n}', f'i{n}', 5, 1, n, 100 + n, 7, disks=disks,
                     taps=taps)


class RatesTestCase(unittest.TestCase):
    def setUp(self):
        options = self.useFixture(fixture.Config(cfg.ConfigOpts()))
        agent_conf.register_opts(options.conf)
        policy_conf.register_opts(options.conf)
        options.conf([])
        options.config(group='secondary_agent', disk_write_iops=1000)
        self.policies('disk_in <= 61% for 10s')
        self.guests = [secondary(1), secondary(2)]
        self.readings = {}
        self.gauges = mock.Mock(latest=self.readings.get)
        self.set = {}
        self.throttles = mock.Mock(
            request_limits=lambda guest, limits: self.set.update(
                {guest.uuid: limits}))
        self.floors = Floors()
        self.made = rates.RateControl(
            lambda: self.resolved, lambda: self.guests, self.gauges,
            self.throttles, self.floors, lambda: Controller(1.0, 2.0, 0.0),
            lambda: rates.RateOptions.read(options.conf))

    def useFixture(self, made):
        made.setUp()
        self.addCleanup(made.cleanUp)
        return made

    def policies(self, *texts):
        self.resolved = HostPolicies(language.parse_all(texts), '')

    def step(self, total, resource='disk_in', **used):
        self.readings[resource] = Reading(total, used, 100 * MB)
        self.made.step()

    def settle(self):
        """Let both secondaries reach their full shares."""
        for _ in range(4):
            self.step(20.0, u1=10.0, u2=10.0)

    def part(self, uuid):
        return self.made.caps[uuid]['disk_in']


class RateControlTest(RatesTestCase):
    def test_shares_follow_the_use_by_the_primary(self):
        self.settle()
        self.assertAlmostEqual(30.0, self.part('u1'))
        # A primary uses half of the disk.
        self.step(100.0, u1=25.0, u2=25.0)
        self.assertLessEqual(self.part('u1') + self.part('u2'), 20.001)
        # It needs more than was measured, since the disk was saturated.
        self.step(70.0, u1=5.0, u2=5.0)
        self.assertAlmostEqual(1.0, self.part('u1'))
        # The primary has gone.
        self.step(2.0, u1=1.0, u2=1.0)
        self.assertAlmostEqual(30.0, self.part('u1'))

    def test_sum_of_shares_never_exceeds_the_room(self):
        self.settle()
        self.step(50.0, u1=5.0, u2=5.0)
        self.assertLessEqual(self.part('u1') + self.part('u2'), 20.001)

    def test_guest_without_disk_gets_no_share_of_disks(self):
        self.guests[1] = secondary(2, disks=())
        for used in (0.0, 10.0, 0.0, 10.0):
            self.step(used, u1=used)
        # The other guest gets all of it, even while idle.
        self.assertAlmostEqual(60.0, self.part('u1'))
        self.assertEqual(NOTHING, self.set['u2'])
        self.assertNotIn('u2', self.made.caps)

    def test_share_becomes_bytes_and_operations(self):
        self.settle()
        self.assertAlmostEqual(30 * MB, self.set['u1'].disk_in)
        self.assertAlmostEqual(300, self.set['u1'].disk_in_iops)
        self.assertEqual((None, None, None), (
            self.set['u1'].disk_out, self.set['u1'].net_in,
            self.set['u1'].disk_out_iops))

    def test_new_guest_starts_with_the_minimum(self):
        for _ in range(3):
            self.step(20.0, u1=10.0, u2=10.0)
        self.guests.append(secondary(3))
        self.made.step()    # before the next reading
        self.assertAlmostEqual(1 * MB, self.set['u3'].disk_in)
        self.step(20.0, u1=10.0, u2=10.0)
        self.assertAlmostEqual(1 * MB, self.set['u3'].disk_in)
        self.step(20.0, u1=10.0, u2=10.0)
        self.assertGreater(self.set['u3'].disk_in, 1 * MB)

    def test_reading_is_applied_once(self):
        self.settle()
        self.step(80.0, u1=30.0, u2=30.0)
        before = dict(self.set)
        for _ in range(5):
            self.made.step()
        self.assertEqual(before, self.set)

    def test_unknown_use_reduces_all_to_the_minimum(self):
        self.settle()
        for reading in (None, Reading(None)):
            with self.subTest(reading):
                self.readings['disk_in'] = reading
                self.made.step()
                self.assertAlmostEqual(1 * MB, self.set['u1'].disk_in)

    def test_unknown_capacity_limits_operations_only(self):
        self.made.step()
        # The minimum in bytes is unknown without a capacity.
        self.assertEqual(IoLimits(disk_in_iops=10.0), self.set['u1'])

    def test_limits_are_removed_without_a_policy(self):
        self.step(60.0, u1=30.0, u2=30.0)
        self.policies('cpu <= 90% for 10s')
        self.made.step()
        self.assertEqual(NOTHING, self.set['u1'])
        self.assertEqual({}, self.made.caps)

    def test_lowest_of_several_thresholds_applies(self):
        self.policies('disk_in <= 61% for 10s', 'disk_in <= 31% for 60s',
                      'net_out <= 91% for 10s')
        for _ in range(4):
            self.step(0.0, 'net_out')
            self.step(10.0, u1=5.0, u2=5.0)
        self.assertAlmostEqual(30 * MB, sum(
            one.disk_in for one in self.set.values()))
        self.assertAlmostEqual(90 * MB, sum(
            one.net_out for one in self.set.values()))

    def test_limits_are_not_changed_during_an_operation_of_nova(self):
        self.floors.operate('u1', 10.0)
        self.step(60.0, u1=30.0, u2=30.0)
        self.assertEqual({'u2'}, set(self.set))
        self.floors.end_operation('u1')
        self.made.step()
        self.assertEqual({'u1', 'u2'}, set(self.set))

    def test_guest_that_has_gone_is_forgotten(self):
        self.step(60.0, u1=30.0, u2=30.0)
        del self.guests[0]
        self.step(60.0, u2=30.0)
        self.assertEqual({'u2'}, set(self.made.caps))
        self.throttles.forget.assert_called_with({'u2'})


class RatesOfAgentTest(AgentTestCase):
    """Limits in libvirt that follow readings of the disks."""

    def setUp(self):
        super().setUp()
        self.configure('disk_in <= 60% for 10s')
        self.conf.reload_config_files()
        self.host.libvirt = fakes.Hypervisor()
        self.uuid = self.host.guest(0)
        self.domain = fakes.Devices(self.uuid, 1)
        self.domain.name = 'instance-00000000'
        self.domain.xml = self.host.libvirt.domains[0].xml.replace(
            '</domain>', '<devices><disk type="file"><target dev="vda"/>'
            '</disk></devices></domain>')
        self.domain.XMLDesc = self.describe
        self.host.libvirt.domains[:] = [self.domain]

    def describe(self, flags):
        noted = self.domain.noted or ''
        return self.domain.xml.replace('</metadata>', noted.replace(
            '<limits', f'<limits xmlns="{domain_xml.LIMITS}"')
            + '</metadata>')

    def measured(self, agent, total, capacity=100e6):
        agent.parts.gauges._readings['disk_in'].append(
            (time.monotonic(), Reading(total, {}, capacity)))

    def step(self, agent):
        """Do one step of each thread in turn."""
        agent.parts.rates.step()
        for state in agent.parts.throttles._guests.values():
            while state.busy:
                time.sleep(0.001)
        agent.parts.domains.refresh()

    def limited(self):
        agent = self.make()
        for _ in range(4):
            self.measured(agent, 10.0)
            self.step(agent)
        return agent

    def test_reading_sets_a_limit_that_status_shows(self):
        agent = self.limited()
        self.assertAlmostEqual(
            0.49 * 100e6 / 1.1, self.domain.tunes['vda']['write_bytes_sec'],
            delta=10)
        # After a crash the next agent reads it from the cache.
        self.assertTrue(self.make().parts.domains.secondaries()[0].limited)
        status = agent.calls.get_status()
        self.assertEqual({self.uuid: {'disk_in': 49.0}}, status['rates'])
        agent.write_status()
        with mock.patch('builtins.print') as said:
            command.status(self.conf)
        self.assertIn('disk_in at most 49.0%', said.call_args[0][0])

    def test_reload_without_the_policy_lifts_the_limit(self):
        agent = self.limited()
        self.configure('cpu <= 90% for 10s')
        self.conf.reload_config_files()
        agent.parts.policies.reload()
        self.step(agent)
        self.assertEqual(({}, None),
                         (self.domain.tunes['vda'], self.domain.noted))
        self.assertFalse(agent.parts.domains.secondaries()[0].limited)

    def test_release_removes_limits_unless_libvirt_fails(self):
        self.limited()
        hierarchy = self.host.hierarchy()

        def release():
            with mock.patch('secondary_scheduler.agent.cgroups.Hierarchy',
                            lambda: hierarchy), \
                    mock.patch.object(wiring, 'libvirt_opener', lambda uri:
                                      self.host.libvirt.connect), \
                    contextlib.redirect_stderr(io.StringIO()) as err, \
                    contextlib.redirect_stdout(io.StringIO()):
                return command.release(self.conf), err.getvalue()

        self.host.libvirt.error = OSError('dead')
        code, err = release()
        self.assertEqual(1, code)
        self.assertIn(f'{self.uuid} keep their limits: dead', err)
        self.host.libvirt.error = None
        # The devices are released although the control groups are not.
        with mock.patch.object(Actuator, 'release', return_value=False):
            self.assertEqual(1, release()[0])
        self.assertEqual(({}, None),
                         (self.domain.tunes['vda'], self.domain.noted))
        self.assertEqual((0, ''), release())
