# SPDX-License-Identifier: Apache-2.0

import dataclasses
import unittest

from secondary_scheduler.agent import local_trigger
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.floors import Floors, Reason
from secondary_scheduler.agent.policy_source import HostPolicies
from secondary_scheduler.agent.sensors import cpu
from secondary_scheduler.model.reports import PolicyState
from secondary_scheduler.policies import language


def secondary(n, priority=5):
    return Secondary(f'u{n}', f'i{n}', priority, 1, n, n, n)


def make_options(**changes):
    return local_trigger.TriggerOptions(**{
        'set_point_margin': 1.0, 'useful_share': 10.0, 'floor_lift_delay': 5.0,
        'kill': False, 'sensitivity': {'10': '4'}, 'adapts': False,
        **changes})


class FakeMeter:
    def __init__(self):
        self.total, self.instances = 50.0, {}

    def sample(self, guests):
        return cpu.CpuUsage(self.total, self.instances, 4.0)


class FakeGauges:
    def __init__(self):
        self.totals, self.expected = {}, {}

    def total(self, resource):
        return self.totals.get(resource)

    def coming(self, resource):
        return self.expected.get(resource, 0.0)


class LocalTriggerTestCase(unittest.TestCase):
    policies = ('cpu <= 90% for 10s',)
    options = make_options()
    kills = True
    runs = {}

    def setUp(self):
        self.now = 0.0
        self.guests = [secondary(1, 3), secondary(2, 7)]
        self.meter = FakeMeter()
        self.gauges = FakeGauges()
        self.floors = Floors(lambda: self.now)
        self.floored, self.killed = [], []
        policies = language.parse_all(self.policies)
        self.resolved = HostPolicies(policies, 'x')
        self.trigger = local_trigger.LocalTrigger(
            lambda: self.resolved, lambda: self.guests, self.meter,
            self.gauges, self.floors,
            lambda guest: self.floored.append(guest.uuid), self.kill,
            lambda: self.options, self.runs, lambda: self.now)

    def kill(self, guest, reason):
        self.killed.append(guest.uuid)
        return self.kills

    def seconds(self, count):
        for _ in range(count):
            self.now += 1
            self.trigger.check()

    @property
    def state(self):
        return self.trigger.reports[0].state


class EarlierRunTest(LocalTriggerTestCase):
    """An agent continues the counts of the previous one."""

    runs = {'cpu <= 90% for 10s': 5, 'cpu <= 80% for 9s': 3}

    def test_failed_checks_of_the_previous_agent_count(self):
        self.meter.total = 95.0
        self.seconds(3)
        self.assertEqual([], self.floored)
        self.seconds(1)
        self.assertEqual(['u1', 'u2'], sorted(self.floored))

    def test_passed_check_ends_the_earlier_run(self):
        self.meter.total = 85.0
        self.seconds(1)
        self.assertIs(PolicyState.HELD, self.state)
        self.meter.total = 95.0
        self.seconds(8)
        self.assertEqual([], self.floored)


class LongEarlierRunTest(LocalTriggerTestCase):
    runs = {'cpu <= 90% for 10s': 300}

    def test_long_earlier_run_triggers_at_once_and_is_not_invalid(self):
        self.meter.total = 95.0
        self.seconds(1)
        self.assertEqual(['u1', 'u2'], sorted(self.floored))
        self.assertEqual(0, self.trigger.counters['invalidations'])


class EarlierRunsTest(unittest.TestCase):

    @staticmethod
    def said(**changes):
        return {'monotonic': 100.0, 'policies': [
            {'policy': 'a', 'failed': 0}, {'policy': 'b', 'failed': 4}],
            **changes}

    def test_seconds_without_an_agent_count_as_failed_checks(self):
        self.assertEqual({'b': 7}, local_trigger.earlier_runs(
            self.said(), 103.9))

    def test_status_before_a_reboot_is_ignored(self):
        self.assertEqual({}, local_trigger.earlier_runs(self.said(), 99.0))

    def test_damaged_status_is_ignored(self):
        for status in ({}, self.said(monotonic='x'), self.said(policies=3),
                       self.said(policies=[{'policy': 'b'}]),
                       self.said(monotonic=float('nan')),
                       self.said(monotonic=float('inf')),
                       self.said(monotonic=float('-inf')),
                       self.said(policies=[3]),
                       self.said(policies=[{'policy': 'b',
                                            'failed': float('inf')}])):
            self.assertEqual({}, local_trigger.earlier_runs(status, 103.0))


class LastResortTest(LocalTriggerTestCase):
    def test_guests_go_to_the_floor_one_second_before_invalidation(self):
        self.meter.total = 95.0
        self.seconds(3)
        self.assertIs(PolicyState.FAILING, self.state)
        self.assertTrue(self.trigger.failing)
        self.seconds(1)
        self.assertIs(PolicyState.VIOLATED, self.state)
        self.seconds(4)
        self.assertEqual([], self.floored)
        self.seconds(1)
        self.assertEqual(['u1', 'u2'], sorted(self.floored))
        self.assertTrue(self.floors.floored('u1'))
        self.seconds(60)
        # The primary alone exceeds it: no guest contributes any more.
        self.assertIs(PolicyState.HELD, self.state)
        self.assertEqual(1, self.trigger.counters['violations'])
        self.assertEqual(0, self.trigger.counters['invalidations'])
        self.assertEqual(2, self.trigger.counters['floors'])
        self.assertAlmostEqual(118, self.trigger.counters['floored_s'],
                               delta=3)
        self.assertEqual([], self.killed)

    def test_policy_holds_without_secondaries(self):
        self.guests = []
        self.meter.total = 100.0
        self.seconds(20)
        self.assertIs(PolicyState.HELD, self.state)

    def test_unknown_use_leads_to_the_floor_in_time(self):
        self.meter.total = None
        self.seconds(9)
        self.assertTrue(self.floors.floored('u2'))
        self.seconds(60)
        self.assertTrue(self.floors.floored('u2'))
        self.assertEqual(0, self.trigger.counters['violations'])

    def test_invalidation_is_counted_once(self):
        self.trigger._floors = Floors(lambda: self.now)
        self.trigger._floors.add = lambda *_: None   # the floor fails
        self.meter.total = 95.0
        self.seconds(20)
        self.assertIs(PolicyState.INVALID, self.state)
        self.assertEqual(1, self.trigger.counters['invalidations'])

    def test_number_of_failed_checks_survives_a_reload(self):
        self.meter.total = 95.0
        self.seconds(5)
        self.options = make_options(sensitivity={'10': '2'})
        self.seconds(1)
        self.assertEqual(6, self.trigger.reports[0].failed)
        self.resolved = HostPolicies((), 'x')
        self.seconds(1)
        self.assertEqual((), self.trigger.reports)

    def test_learned_sensitivity_survives_a_reload(self):
        self.options = make_options(adapts=True)
        for _run in range(8):
            self.meter.total = 95.0
            self.seconds(1)
            self.meter.total = 50.0
            self.seconds(1)
        self.meter.total = 95.0
        self.seconds(2)
        self.assertIs(PolicyState.VIOLATED, self.state)
        self.options = make_options()
        self.seconds(1)
        self.assertIs(PolicyState.FAILING, self.state)

    def test_invalid_sensitivity_asks_for_help_at_the_first_failure(self):
        self.options = make_options(sensitivity={'a': 'b'})
        self.meter.total = 95.0
        self.seconds(1)
        self.assertIs(PolicyState.VIOLATED, self.state)


class KillTest(LocalTriggerTestCase):
    options = make_options(kill=True)

    def test_last_resort_kills_all_secondaries_if_configured(self):
        self.meter.total = 95.0
        self.seconds(9)
        self.assertEqual(['u1', 'u2'], sorted(self.killed))
        self.assertEqual(['u1', 'u2'], sorted(self.floored))
        self.assertEqual(2, self.trigger.counters['kills'])

    def test_guest_that_was_not_killed_goes_to_the_floor(self):
        self.kills = False
        self.meter.total = 95.0
        self.seconds(9)
        self.assertEqual(['u1', 'u2'], sorted(self.floored))
        self.assertEqual(0, self.trigger.counters['kills'])


class LiftTest(LocalTriggerTestCase):
    def setUp(self):
        super().setUp()
        self.meter.total = 95.0
        self.seconds(9)
        self.assertTrue(self.floors.floored('u1'))

    def lifted(self):
        return [u for u in ('u1', 'u2') if not self.floors.floored(u)]

    def test_floor_is_lifted_after_the_delay(self):
        self.meter.total = 20.0
        self.seconds(5)
        self.assertEqual([], self.lifted())
        self.seconds(2)
        self.assertEqual(['u1', 'u2'], self.lifted())

    def test_interrupted_calm_does_not_lift_the_floor(self):
        for _ in range(5):
            self.meter.total = 20.0
            self.seconds(4)
            self.meter.total = 85.0
            self.seconds(1)
        self.assertEqual([], self.lifted())

    def test_guests_are_lifted_by_priority_as_room_permits(self):
        self.meter.total = 75.0      # 14 % for a useful share of 10 %
        self.seconds(20)
        self.assertEqual(['u2'], self.lifted())
        self.meter.total = 60.0
        self.seconds(20)
        self.assertEqual(['u1', 'u2'], self.lifted())


class CoresTest(LocalTriggerTestCase):
    policies = ('cores <= 3 for 5s', 'slots <= 2 for 5s',
                'cpu <= 90% for 10s')

    def test_lowest_priorities_above_a_limit_go_to_the_floor(self):
        self.guests = [dataclasses.replace(secondary(n, n), vcpus=2)
                       for n in (1, 2, 3)]
        self.seconds(5)
        # Only one fits, since two of them have four cores.
        self.assertEqual([True, True, False], [
            self.floors.floored(f'u{n}') for n in (1, 2, 3)])
        self.assertEqual([2.0, 1.0], [
            report.usage for report in self.trigger.reports[:2]])
        self.guests[1] = dataclasses.replace(self.guests[1], vcpus=1)
        self.seconds(1)
        self.assertEqual([True, False, False], [
            self.floors.floored(f'u{n}') for n in (1, 2, 3)])


class MemoryTest(LocalTriggerTestCase):
    policies = ('mem <= 80% for 5s', 'cpu <= 90% for 10s')

    def test_floor_does_not_free_memory(self):
        self.gauges.totals['mem'] = 85.0
        self.seconds(4)
        self.assertEqual(['u1', 'u2'], sorted(self.floored))
        self.assertIs(PolicyState.VIOLATED, self.state)
        self.seconds(60)
        # Guests contribute at the floor too, and stay there.
        self.assertIs(PolicyState.INVALID, self.state)
        self.assertTrue(self.floors.floored('u2'))
        self.gauges.totals['mem'] = 60.0
        self.seconds(7)
        self.assertIs(PolicyState.HELD, self.state)
        self.assertFalse(self.floors.floored('u2'))

    def test_expected_use_alone_kills_no_guest(self):
        self.options = make_options(kill=True)
        resource = self.resolved.policies[0].resource
        limit = self.resolved.policies[0].threshold
        self.gauges.totals[resource] = limit + 5.0
        self.gauges.expected[resource] = 5.0
        self.seconds(self.resolved.policies[0].timelimit)
        self.assertEqual([], self.killed)
        self.assertTrue(self.floored)
        self.gauges.expected[resource] = 4.0
        self.seconds(1)
        self.assertEqual(['u1'], self.killed)

    def test_guests_are_killed_one_at_a_time_lowest_priority_first(self):
        self.options = make_options(kill=True)
        self.gauges.totals['mem'] = 85.0
        self.seconds(4)
        self.assertEqual(['u1'], self.killed)
        self.guests = self.guests[1:]
        self.seconds(1)
        self.assertEqual(['u1', 'u2'], self.killed)
        self.assertEqual(2, self.trigger.counters['kills'])

    def test_unknown_use_floors_guests_and_kills_none(self):
        self.options = make_options(kill=True)
        self.seconds(30)
        self.assertEqual([], self.killed)
        self.assertIs(PolicyState.UNKNOWN, self.state)
        self.assertEqual(0, self.trigger.counters['invalidations'])
        self.assertTrue(self.floors.floored('u2'))


class TrafficTest(LocalTriggerTestCase):
    policies = ('net_out <= 50% for 5s', 'cpu <= 90% for 10s')

    def test_floor_ends_a_violation_of_traffic(self):
        self.gauges.totals['net_out'] = 60.0
        self.seconds(4)
        self.assertTrue(self.floors.floored('u2'))
        self.seconds(30)
        self.assertEqual(0, self.trigger.counters['invalidations'])
        self.gauges.totals['net_out'] = 10.0
        self.seconds(7)
        self.assertFalse(self.floors.floored('u2'))

    def test_floor_stays_while_traffic_is_unknown(self):
        self.seconds(4)
        self.assertTrue(self.floors.floored('u2'))
        self.floored.clear()
        self.seconds(60)
        self.assertTrue(self.floors.floored('u2'))
        self.assertEqual([], self.floored)


class HarmTest(LocalTriggerTestCase):
    policies = ('probe:p99_ms <= 20 for 5s', 'cpu <= 90% for 10s')

    def test_floor_stays_while_the_primary_is_harmed(self):
        self.gauges.totals['probe:p99_ms'] = 20.0
        self.seconds(9)
        self.assertIs(PolicyState.HELD, self.state)
        self.gauges.totals['probe:p99_ms'] = 20.5
        self.seconds(3)
        self.assertIs(PolicyState.FAILING, self.state)
        self.assertEqual([], self.floored)
        self.seconds(1)
        self.assertEqual({'u1', 'u2'}, set(self.floored))
        # The primary may be slow by itself, but the floor stays.
        self.floored.clear()
        self.seconds(60)
        self.assertIs(PolicyState.HELD, self.state)
        self.assertTrue(self.floors.floored('u1'))
        self.assertEqual([], self.floored)
        self.assertEqual(0, self.trigger.counters['invalidations'])
        self.gauges.totals['probe:p99_ms'] = 12.0
        self.seconds(7)
        self.assertFalse(self.floors.floored('u1'))
        self.assertFalse(self.floors.floored('u2'))


class SlotsTest(LocalTriggerTestCase):
    policies = ('slots <= 1 for 5s', 'cpu <= 90% for 10s')

    def test_guests_above_a_limit_on_slots_go_to_the_floor(self):
        self.seconds(1)
        self.assertIs(PolicyState.VIOLATED, self.state)
        self.seconds(3)
        self.assertEqual(frozenset({Reason.SURPLUS}),
                         self.floors.reasons('u1'))
        self.assertFalse(self.floors.floored('u2'))
        self.seconds(10)
        self.assertIs(PolicyState.HELD, self.state)
        self.guests.pop()
        self.seconds(1)
        self.assertFalse(self.floors.floored('u1'))
