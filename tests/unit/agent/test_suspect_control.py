# SPDX-License-Identifier: Apache-2.0

import unittest
from unittest import mock

from secondary_scheduler.agent import suspect_control
from secondary_scheduler.agent.floors import Reason
from secondary_scheduler.agent.sensors.base import Reading
from secondary_scheduler.model.reports import PolicyReport, PolicyState
from secondary_scheduler.policies import language
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase

PROBE = 'probe:p99_ms <= 20 for 15s'
FLOOR = '1000 100000'


class SuspectControlTest(AgentTestCase):
    """Three secondaries, and a probe that says that the primary is slow."""

    def setUp(self):
        super().setUp()
        self.configure(f'cpu <= 90% for 10s\npolicy = {PROBE}')
        self.conf.reload_config_files()
        for number in range(3):
            self.host.guest(number)

    def begin(self, **options):
        """Return an agent whose secondaries have run for a while."""
        for name, value in {'suspects': True, **options}.items():
            self.conf.set_override(name, value, 'secondary_agent')
        agent = self.make()
        agent.parts.gauges.latest = mock.Mock(return_value=None)
        agent.step()
        self.seconds(agent, 20, lambda: 12.0)
        return agent

    def seconds(self, agent, count, latency):
        for _ in range(count):
            agent.parts.gauges.total = mock.Mock(return_value=latency())
            agent.check()
            self.steps(agent, 2, 40.0, g0=5.0, g1=6.0, g2=5.0)

    def caused_by(self, number):
        """Return a probe that is bad while a secondary is not at its floor.
        """
        return lambda: 12.0 if self.host.quota(number) == FLOOR else 31.0

    def test_culprit_is_named_and_the_others_keep_their_share(self):
        agent = self.begin()
        for _second in range(30):
            self.seconds(agent, 1, self.caused_by(1))
            self.assertEqual(1.0, agent.parts.control.restraint.share)
        self.assertTrue(agent.parts.suspects.is_confirmed(fakes.UUIDS[1]))
        self.assertFalse(agent.parts.suspects.is_confirmed(fakes.UUIDS[0]))
        report = agent.reporter.build_report()
        self.assertEqual({fakes.UUIDS[1]: True, fakes.UUIDS[0]: False,
                          fakes.UUIDS[2]: False},
                         {one.uuid: one.suspect for one in report.instances})
        self.assertEqual('confirmed', agent.reporter.status()['suspects'][
            fakes.UUIDS[1]]['verdict'])
        # Its cgroup is at the floor, emulator included, until it is released.
        self.seconds(agent, 3, self.caused_by(1))
        self.assertEqual((FLOOR, '10000 100000'), (
            self.host.quota(1), self.host.quota(1, 'emulator')))
        self.seconds(agent, 20, lambda: 12.0)
        self.assertNotEqual(FLOOR, self.host.quota(1))

    def test_share_is_the_same_after_a_trial(self):
        agent = self.begin()
        before = dict(agent.parts.control.caps)
        self.seconds(agent, 3, lambda: 31.0)
        (tried,) = agent.parts.suspects.verdicts
        self.assertEqual({Reason.TRIAL},
                         agent.parts.floors.reasons(tried))
        self.assertNotIn(tried, agent.parts.control.caps)
        # Use falls at the floor.
        names = {f'g{number}': 0.1 if fakes.UUIDS[number] == tried else 5.0
                 for number in range(3)}
        agent.parts.gauges.total = mock.Mock(return_value=12.0)
        for steps in (2, 2, 1):
            agent.check()
            self.steps(agent, steps, 40.0, **names)
        self.assertFalse(agent.parts.floors.floored(tried))
        self.assertGreater(agent.parts.control.caps[tried],
                           0.8 * before[tried])

    def test_last_resort_is_not_delayed(self):
        agent = self.begin(suspect_trial=60)
        self.seconds(agent, 14, lambda: 31.0)
        for number in range(3):
            self.assertIn(Reason.POLICY, agent.parts.floors.reasons(
                fakes.UUIDS[number]))
        # Half of the time limit without restraint, then as usual.
        self.assertAlmostEqual(0.5 ** 7, agent.parts.control.restraint.share)

    def test_guest_under_an_operation_is_not_on_trial(self):
        agent = self.begin()
        for number in range(3):
            agent.parts.floors.operate(fakes.UUIDS[number], 100)
        self.seconds(agent, 3, lambda: 31.0)
        self.assertEqual({}, agent.parts.suspects.verdicts)
        self.assertAlmostEqual(0.125, agent.parts.control.restraint.share)

    def test_use_of_disks_names_the_first_to_be_tried(self):
        agent = self.begin()
        readings = {'disk_in': Reading(60.0, {fakes.UUIDS[2]: 55.0})}
        agent.parts.gauges.latest = readings.get
        self.seconds(agent, 3, lambda: 31.0)
        self.assertEqual('disk_in', agent.parts.suspects.verdicts[
            fakes.UUIDS[2]].resource)

    def test_without_the_option_nothing_is_tried_or_reported(self):
        agent = self.begin(suspects=False)
        self.seconds(agent, 3, lambda: 31.0)
        self.assertIsNone(agent.parts.suspects)
        self.assertAlmostEqual(0.125, agent.parts.control.restraint.share)
        report = agent.reporter.build_report().to_dict()
        self.assertNotIn('suspect', str(report))
        self.assertEqual({}, agent.reporter.status()['suspects'])

    def test_use_of_links_and_disks_is_measured_for_signals_only(self):
        def wanted(policy, suspects):
            return suspect_control.wanted_resources(mock.Mock(
                policies=[language.parse(policy)]), suspects)

        self.assertEqual({'probe:p99_ms'}, wanted(PROBE, False))
        self.assertEqual({'cpu'}, wanted('cpu <= 90% for 10s', True))
        self.assertEqual({'probe:p99_ms', 'net_in', 'net_out', 'disk_in',
                          'disk_out'}, wanted(PROBE, True))


class SignalStateTest(unittest.TestCase):

    def state(self, *values):
        return suspect_control.signal_state([
            PolicyReport(resource, resource, 20.0, 10, usage, failed,
                         PolicyState.FAILING)
            for resource, usage, failed in values])

    def test_value_counts_and_not_the_run_counter(self):
        # While all secondaries are at the floor no check fails.
        self.assertEqual((True, 5), self.state(('probe:a', 31.0, 0)))
        self.assertEqual((False, 0), self.state(('probe:a', 20.0, 0)))
        self.assertEqual((False, 0), self.state(('cpu', 95.0, 3)))

    def test_most_urgent_signal_decides(self):
        self.assertEqual((True, -2), self.state(
            ('probe:a', 31.0, 1), ('steal', 25.0, 7), ('llc', 1.0, 0)))

    def test_one_unknown_signal_makes_all_unknown(self):
        self.assertIsNone(self.state(('probe:a', 31.0, 1),
                                     ('steal', None, 1)).fails)
