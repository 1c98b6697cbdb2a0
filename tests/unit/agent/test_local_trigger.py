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


class Meter:
    def __init__(self):
        self.total, self.instances = 50.0, {}

    def sample(self, guests):
        return cpu.CpuUsage(self.total, self.instances, 4.0)


class Gauges:
    def __init__(self):
        self.totals, self.expected = {}, {}

    def total(self, resource):
        return self.totals.get(resource)

    def coming(self, resource):
        return self.expected.get(resource, 0.0)


class Base(unittest.TestCase):
    policies = ('cpu <= 90% for 10s',)
    options = make_options()
    kills = True
    runs = {}

    def setUp(self):
        self.now = 0.0
        self.guests = [secondary(1, 3), secondary(2, 7)]
        self.meter = Meter()
        self.gauges = Gauges()
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


class AfterAnother(Base):
    """An agent goes on counting where the one before has ended."""

    runs = {'cpu <= 90% for 10s': 5, 'cpu <= 80% for 9s': 3}

    def test_the_run_goes_on(self):
        self.meter.total = 95.0
        self.seconds(3)
        self.assertEqual([], self.floored)
        self.seconds(1)
        self.assertEqual(['u1', 'u2'], sorted(self.floored))

    def test_a_check_that_holds_ends_it(self):
        self.meter.total = 85.0
        self.seconds(1)
        self.assertIs(PolicyState.HELD, self.state)
        self.meter.total = 95.0
        self.seconds(8)
        self.assertEqual([], self.floored)


class LongAfterAnother(Base):
    runs = {'cpu <= 90% for 10s': 300}

    def test_it_is_due_at_once_and_not_invalid(self):
        self.meter.total = 95.0
        self.seconds(1)
        self.assertEqual(['u1', 'u2'], sorted(self.floored))
        self.assertEqual(0, self.trigger.counters['invalidations'])


class EarlierRuns(unittest.TestCase):

    @staticmethod
    def said(**changes):
        return {'monotonic': 100.0, 'policies': [
            {'policy': 'a', 'failed': 0}, {'policy': 'b', 'failed': 4}],
            **changes}

    def test_nobody_checked_meanwhile(self):
        self.assertEqual({'b': 7}, local_trigger.earlier_runs(
            self.said(), 103.9))

    def test_the_machine_began_anew(self):
        self.assertEqual({}, local_trigger.earlier_runs(self.said(), 99.0))

    def test_garbage_is_nothing(self):
        for status in ({}, self.said(monotonic='x'), self.said(policies=3),
                       self.said(policies=[{'policy': 'b'}]),
                       self.said(monotonic=float('nan')),
                       self.said(monotonic=float('inf')),
                       self.said(monotonic=float('-inf')),
                       self.said(policies=[3]),
                       self.said(policies=[{'policy': 'b',
                                            'failed': float('inf')}])):
            self.assertEqual({}, local_trigger.earlier_runs(status, 103.0))


class LastResort(Base):
    def test_the_way_to_the_floor(self):
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
        # The primary alone exceeds it: nobody contributes any more.
        self.assertIs(PolicyState.HELD, self.state)
        self.assertEqual(1, self.trigger.counters['violations'])
        self.assertEqual(0, self.trigger.counters['invalidations'])
        self.assertEqual(2, self.trigger.counters['floors'])
        self.assertAlmostEqual(118, self.trigger.counters['floored_s'],
                               delta=3)
        self.assertEqual([], self.killed)

    def test_no_secondary_no_failure(self):
        self.guests = []
        self.meter.total = 100.0
        self.seconds(20)
        self.assertIs(PolicyState.HELD, self.state)

    def test_a_dead_sensor_leads_to_the_floor_in_time(self):
        self.meter.total = None
        self.seconds(9)
        self.assertTrue(self.floors.floored('u2'))
        self.seconds(60)
        self.assertTrue(self.floors.floored('u2'))
        self.assertEqual(0, self.trigger.counters['violations'])

    def test_invalid_is_counted_once(self):
        self.trigger._floors = Floors(lambda: self.now)
        self.trigger._floors.add = lambda *_: None   # the floor fails
        self.meter.total = 95.0
        self.seconds(20)
        self.assertIs(PolicyState.INVALID, self.state)
        self.assertEqual(1, self.trigger.counters['invalidations'])

    def test_the_count_survives_a_reload(self):
        self.meter.total = 95.0
        self.seconds(5)
        self.options = make_options(sensitivity={'10': '2'})
        self.seconds(1)
        self.assertEqual(6, self.trigger.reports[0].failed)
        self.resolved = HostPolicies((), 'x')
        self.seconds(1)
        self.assertEqual((), self.trigger.reports)

    def test_what_was_learned_survives_a_reload(self):
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

    def test_a_bad_table_asks_early(self):
        self.options = make_options(sensitivity={'a': 'b'})
        self.meter.total = 95.0
        self.seconds(1)
        self.assertIs(PolicyState.VIOLATED, self.state)


class Kill(Base):
    options = make_options(kill=True)

    def test_kill(self):
        self.meter.total = 95.0
        self.seconds(9)
        self.assertEqual(['u1', 'u2'], sorted(self.killed))
        self.assertEqual(['u1', 'u2'], sorted(self.floored))
        self.assertEqual(2, self.trigger.counters['kills'])

    def test_what_could_not_be_killed_is_at_the_floor(self):
        self.kills = False
        self.meter.total = 95.0
        self.seconds(9)
        self.assertEqual(['u1', 'u2'], sorted(self.floored))
        self.assertEqual(0, self.trigger.counters['kills'])


class Lift(Base):
    def setUp(self):
        super().setUp()
        self.meter.total = 95.0
        self.seconds(9)
        self.assertTrue(self.floors.floored('u1'))

    def lifted(self):
        return [u for u in ('u1', 'u2') if not self.floors.floored(u)]

    def test_calm_long_enough(self):
        self.meter.total = 20.0
        self.seconds(5)
        self.assertEqual([], self.lifted())
        self.seconds(2)
        self.assertEqual(['u1', 'u2'], self.lifted())

    def test_calm_interrupted(self):
        for _ in range(5):
            self.meter.total = 20.0
            self.seconds(4)
            self.meter.total = 85.0
            self.seconds(1)
        self.assertEqual([], self.lifted())

    def test_as_many_as_there_is_room_for_best_first(self):
        self.meter.total = 75.0      # 14 % for a useful share of 10 %
        self.seconds(20)
        self.assertEqual(['u2'], self.lifted())
        self.meter.total = 60.0
        self.seconds(20)
        self.assertEqual(['u1', 'u2'], self.lifted())


class Cores(Base):
    policies = ('cores <= 3 for 5s', 'slots <= 2 for 5s',
                'cpu <= 90% for 10s')

    def test_who_is_one_too_many(self):
        self.guests = [dataclasses.replace(secondary(n, n), vcpus=2)
                       for n in (1, 2, 3)]
        self.seconds(5)
        # One has room beside nobody: two of them hold four.
        self.assertEqual([True, True, False], [
            self.floors.floored(f'u{n}') for n in (1, 2, 3)])
        self.assertEqual([2.0, 1.0], [
            report.usage for report in self.trigger.reports[:2]])
        self.guests[1] = dataclasses.replace(self.guests[1], vcpus=1)
        self.seconds(1)
        self.assertEqual([True, False, False], [
            self.floors.floored(f'u{n}') for n in (1, 2, 3)])


class Memory(Base):
    policies = ('mem <= 80% for 5s', 'cpu <= 90% for 10s')

    def test_the_floor_frees_none(self):
        self.gauges.totals['mem'] = 85.0
        self.seconds(4)
        self.assertEqual(['u1', 'u2'], sorted(self.floored))
        self.assertIs(PolicyState.VIOLATED, self.state)
        self.seconds(60)
        # Who is there contributes, and stays at the floor: it asks for more.
        self.assertIs(PolicyState.INVALID, self.state)
        self.assertTrue(self.floors.floored('u2'))
        self.gauges.totals['mem'] = 60.0
        self.seconds(7)
        self.assertIs(PolicyState.HELD, self.state)
        self.assertFalse(self.floors.floored('u2'))

    def test_nobody_is_killed_for_what_is_only_expected(self):
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

    def test_one_at_a_time_is_killed_and_who_is_worth_least_first(self):
        self.options = make_options(kill=True)
        self.gauges.totals['mem'] = 85.0
        self.seconds(4)
        self.assertEqual(['u1'], self.killed)
        self.guests = self.guests[1:]
        self.seconds(1)
        self.assertEqual(['u1', 'u2'], self.killed)
        self.assertEqual(2, self.trigger.counters['kills'])

    def test_what_is_not_known_fails_and_kills_nobody_for_it(self):
        self.options = make_options(kill=True)
        self.seconds(30)
        self.assertEqual([], self.killed)
        self.assertIs(PolicyState.UNKNOWN, self.state)
        self.assertEqual(0, self.trigger.counters['invalidations'])
        self.assertTrue(self.floors.floored('u2'))


class Traffic(Base):
    policies = ('net_out <= 50% for 5s', 'cpu <= 90% for 10s')

    def test_at_the_floor_nobody_sends(self):
        self.gauges.totals['net_out'] = 60.0
        self.seconds(4)
        self.assertTrue(self.floors.floored('u2'))
        self.seconds(30)
        self.assertEqual(0, self.trigger.counters['invalidations'])
        self.gauges.totals['net_out'] = 10.0
        self.seconds(7)
        self.assertFalse(self.floors.floored('u2'))

    def test_nobody_is_lifted_while_it_is_not_known(self):
        self.seconds(4)
        self.assertTrue(self.floors.floored('u2'))
        self.floored.clear()
        self.seconds(60)
        self.assertTrue(self.floors.floored('u2'))
        self.assertEqual([], self.floored)


class Harm(Base):
    policies = ('probe:p99_ms <= 20 for 5s', 'cpu <= 90% for 10s')

    def test_the_floor_for_as_long_as_the_primary_is_harmed(self):
        self.gauges.totals['probe:p99_ms'] = 20.0
        self.seconds(9)
        self.assertIs(PolicyState.HELD, self.state)
        self.gauges.totals['probe:p99_ms'] = 20.5
        self.seconds(3)
        self.assertIs(PolicyState.FAILING, self.state)
        self.assertEqual([], self.floored)
        self.seconds(1)
        self.assertEqual({'u1', 'u2'}, set(self.floored))
        # It may be slow by itself: nobody harms it, but nobody is let loose.
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


class Slots(Base):
    policies = ('slots <= 1 for 5s', 'cpu <= 90% for 10s')

    def test_the_surplus_goes_to_the_floor(self):
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
