import os
import unittest
from unittest import mock

from oslo_config import cfg, fixture

from secondary_scheduler.agent import forecasts, killed_instances, memory_guard
from secondary_scheduler.agent.domains import Primary, Secondary
from secondary_scheduler.agent.floors import Floors, Reason
from secondary_scheduler.agent.memory_guard import Level
from secondary_scheduler.conf import agent as agent_conf
from tests.unit.agent import fakes

MIB = 1 << 20
PAGE = os.sysconf('SC_PAGE_SIZE')


def secondary(n, priority=5):
    return Secondary(f'u{n}', f'i{n}', priority, 1, n, 100 + n, n)


class Base(unittest.TestCase):

    def setUp(self):
        self.host = fakes.Host(self)
        self.now = 100.0

    def process(self, pid, started, held):
        """Let a process hold so many bytes; ``started`` in ticks."""
        self.host.process(pid, started, 'u', 'i')
        self.host.write(f'proc/{pid}/statm', f'9 {held // PAGE} 1 1 0 1 0')

    def end(self, pid):
        os.remove(self.host.path('proc', str(pid), 'stat'))


class TestDemand(Base):

    def read(self, *primaries):
        self.host.write('proc/uptime', '1000.0 0.0')
        return memory_guard.Demand(lambda: primaries, self.host.proc).read()

    def test_what_a_young_one_has_not_touched_yet(self):
        tick = os.sysconf('SC_CLK_TCK')
        self.process(1, 950 * tick, 100 * MIB)
        self.process(2, 930 * tick, 100 * MIB)
        self.process(3, 990 * tick, 300 * MIB)
        young = Primary('i', 256 * MIB, 1, 950 * tick)
        old = Primary('i', 256 * MIB, 2, 930 * tick)
        full = Primary('i', 256 * MIB, 3, 990 * tick)
        gone = Primary('i', 256 * MIB, 4, 990 * tick)
        self.assertEqual(156 * MIB, self.read(young, old, full, gone))

    def test_an_unknown_age_is_no_demand(self):
        self.assertEqual(0, self.read(Primary('i', MIB, 9, 9)))


class TestPolicy(unittest.TestCase):

    def policy(self, value):
        config = fixture.Config(cfg.ConfigOpts())
        config.setUp()
        self.addCleanup(config.cleanUp)
        agent_conf.register_opts(config.conf)
        config.conf([])
        config.config(group='secondary_agent', memory_headroom_mb=value)
        return [one.text for one in
                memory_guard.policy(config.conf, 'h1', 1000 * MIB)]

    def test_it_is_what_is_not_kept_free(self):
        self.assertEqual(['mem <= 95% for 60s on host:h1'], self.policy(None))
        self.assertEqual(['mem <= 87.5% for 60s on host:h1'],
                         self.policy(125))
        self.assertEqual(['mem <= 0% for 60s on host:h1'], self.policy(2000))
        self.assertEqual([], self.policy(0))


class TestGuard(Base):

    def setUp(self):
        super().setUp()
        self.available = 500
        self.coming = 0
        self.guests = [secondary(1), secondary(2, 3), secondary(3, 3)]
        for guest, held in zip(self.guests, (50, 60, 90), strict=True):
            self.process(guest.pid, guest.started, held * MIB)
        self.actuator = mock.Mock()
        self.floors = Floors(lambda: self.now)
        self.floored, self.killed, self.lost = [], [], []
        self.kills = True
        self.options = memory_guard.GuardOptions(
            5.0, True, lambda total: total // 10)
        self.guard = memory_guard.MemoryGuard(
            self.memory, mock.Mock(read=lambda: self.coming * MIB),
            lambda: self.guests, self.actuator, self.floors,
            lambda guest: self.floored.append(guest.uuid), self.kill,
            lambda guest, reason: self.lost.append(guest.uuid),
            lambda: self.options, self.host.proc, lambda: self.now)

    def memory(self):
        if self.available is None:
            raise OSError('no')
        return 1000 * MIB, self.available * MIB

    def kill(self, guest, reason):
        self.killed.append(guest.uuid)
        return self.kills

    def step(self, available, seconds=0.1):
        self.available = available
        self.now += seconds
        return self.guard.step()

    def pressed(self):
        return [call.args[0].uuid
                for call in self.actuator.press_memory.call_args_list]

    def test_it_looks_more_often_where_memory_may_go(self):
        self.assertEqual(1.0, self.step(200))
        self.assertEqual(0.1, self.step(199))
        self.assertEqual(0.1, self.step(30))
        self.assertEqual(0.02, self.step(20))
        self.coming = 1
        self.assertEqual(0.1, self.step(900))
        self.assertEqual(0.02, self.step(99))

    def test_one_thing_after_the_other(self):
        self.step(100)
        self.assertIs(Level.CALM, self.guard.level)
        self.assertEqual(([], [], []),
                         (self.pressed(), self.floored, self.killed))
        self.step(99)
        self.assertIs(Level.SHORT, self.guard.level)
        self.assertEqual((['u1', 'u2', 'u3'], [], []),
                         (self.pressed(), self.floored, self.killed))
        self.step(49)
        self.step(49)
        self.assertIs(Level.SCARCE, self.guard.level)
        self.assertEqual((['u1', 'u2', 'u3'], []),
                         (self.floored, self.killed))
        self.assertEqual({Reason.MEMORY}, self.floors.reasons('u1'))
        self.step(24)
        self.assertIs(Level.CRITICAL, self.guard.level)
        # Of the two lowest the one whose memory is most.
        self.assertEqual(['u3'], self.killed)
        self.assertEqual(1, self.guard.kills)

    def test_the_next_one_only_if_one_did_not_suffice(self):
        self.step(20)
        self.step(20)
        self.assertEqual(['u3'], self.killed)
        self.step(20, 0.2)
        self.assertEqual(['u3'], self.killed)
        self.host.zombie(103, 3, threads=2)
        self.guests.pop()
        self.step(20, 0.02)
        self.assertEqual(['u3'], self.killed)
        # Its memory is back, and others have taken it.
        self.host.zombie(103, 3, threads=1)
        self.step(20, 0.02)
        self.assertEqual(['u3', 'u2'], self.killed)
        self.step(20, 0.4)
        self.assertEqual(['u3', 'u2'], self.killed)
        self.step(20, 0.2)  # it does not end
        self.assertEqual(['u3', 'u2', 'u1'], self.killed)

    def test_who_does_not_end_is_not_ended_again(self):
        for _ in range(4):
            self.step(10, 0.6)
        self.assertEqual(['u3', 'u2', 'u1'], self.killed)

    def test_who_cannot_be_ended_is_passed_over(self):
        self.kills = False
        self.step(10)
        self.assertEqual(['u3', 'u2', 'u1'], self.killed)
        self.assertEqual(0, self.guard.kills)

    def test_who_gives_its_memory_back_anyway_goes_last(self):
        self.floors.operate('u3', 60.0)
        self.step(10)
        self.assertEqual(['u2'], self.killed)

    def test_an_operator_may_leave_it_to_the_kernel(self):
        self.options = memory_guard.GuardOptions(
            5.0, False, lambda total: total // 10)
        self.step(0)
        self.assertEqual([], self.killed)
        self.assertEqual(3, len(self.floored))

    def test_nobody_is_harmed_for_what_is_not_known(self):
        self.step(10)
        self.assertEqual(1.0, self.step(None))
        self.assertIsNone(self.guard.level)
        self.assertIsNone(self.guard.seen)
        self.assertEqual(['u3'], self.killed)
        # Nor is anything undone.
        for _ in range(10):
            self.step(None, 1.0)
        self.assertEqual({Reason.MEMORY}, self.floors.reasons('u1'))

    def kernel(self, count):
        self.host.write('proc/vmstat',
                        f'nr_free_pages 3\noom_kill {count}\nswap_ra 0')

    def test_whom_the_kernel_was_faster_with(self):
        self.kernel(5)
        self.step(500)
        self.guests.remove(self.guests[2])  # its owner has stopped it
        self.step(500)
        self.assertEqual([], self.lost)
        self.kernel(6)
        self.step(500, 1.0)
        self.guests.remove(self.guests[1])  # its memory took a second to go
        self.step(500, 0.9)
        self.assertEqual(['u2'], self.lost)
        self.assertEqual(1, self.guard.kills)
        self.guests.clear()
        self.step(500, 3.0)
        self.assertEqual(['u2'], self.lost)

    def test_whom_we_have_ended_the_kernel_has_not(self):
        self.kernel(5)
        self.step(10)
        self.kernel(6)
        self.guests.pop()
        self.step(500)
        self.assertEqual((['u3'], []), (self.killed, self.lost))

    def test_the_kernel_and_we_do_not_end_two_for_one(self):
        self.kernel(5)
        self.step(500)
        self.kernel(6)
        self.step(10)
        self.step(10, 0.4)
        self.assertEqual([], self.killed)
        self.step(10, 0.6)
        self.assertEqual(['u3'], self.killed)

    def test_a_kernel_that_does_not_count(self):
        self.host.write('proc/vmstat', 'nr_free_pages 3')
        for _ in range(3):
            self.step(500, 2.0)
            self.guests.pop()
        self.assertEqual([], self.lost)

    def test_no_headroom_no_guard(self):
        self.options = memory_guard.GuardOptions(5.0, True, lambda total: 0)
        self.coming = 5
        self.assertEqual(1.0, self.step(0))
        self.assertIs(Level.CALM, self.guard.level)
        self.assertEqual([], self.killed)

    def test_it_is_undone_when_it_has_been_calm(self):
        self.step(40)
        self.assertTrue(self.guard.pressing)
        self.step(100)
        self.step(300, 4.0)
        self.assertTrue(self.guard.pressing)
        self.step(99)
        self.step(300)
        self.step(300, 4.9)
        self.assertEqual({Reason.MEMORY}, self.floors.reasons('u2'))
        self.actuator.relax_memory.assert_not_called()
        self.step(300)
        self.assertFalse(self.guard.pressing)
        self.assertEqual(frozenset(), self.floors.reasons('u2'))
        self.assertEqual(3, self.actuator.relax_memory.call_count)


class TestForecast(unittest.TestCase):

    def setUp(self):
        config = fixture.Config(cfg.ConfigOpts())
        config.setUp()
        self.addCleanup(config.cleanUp)
        self.conf, self.config = config.conf, config.config
        agent_conf.register_opts(self.conf)
        self.conf([])

    def test_percentile_and_margin(self):
        forecast = forecasts.Percentile(self.conf)
        self.assertEqual(60.0, forecast.window)
        self.assertIsNone(forecast([]))
        uses = [float(n) for n in range(101)]
        uses.reverse()
        self.assertEqual(95.0, forecast(uses))
        self.config(group='secondary_agent', forecast_percentile=50.0,
                    forecast_margin=7.5)
        self.assertEqual(57.5, forecast(uses))

    def test_peak(self):
        self.config(group='secondary_agent', forecast_window=300.0)
        forecast = forecasts.Peak(self.conf)
        self.assertEqual(300.0, forecast.window)
        self.assertEqual(9.0, forecast([1.0, 9.0, 3.0]))

    def test_by_name(self):
        for name, kind in (('peak', forecasts.Peak),
                           ('percentile', forecasts.Percentile)):
            self.config(group='secondary_agent', forecast=name)
            self.assertIs(kind, type(forecasts.load(self.conf)))
        self.config(group='secondary_agent', forecast='crystal')
        with self.assertRaisesRegex(ValueError, 'forecast = crystal'):
            forecasts.load(self.conf)


class TestKilled(Base):

    def make(self):
        return killed_instances.Killed(self.host.store)

    def test_until_they_run_again(self):
        book = self.make()
        guest = secondary(1)
        book.note(guest, 'memory')
        book.note(secondary(2), 'cpu')
        book.run_again([guest])     # its process has not ended yet
        self.assertEqual({'u1': 'memory', 'u2': 'cpu'}, book.reasons)
        again = Secondary('u1', 'i1', 5, 1, 7, 207, 99)
        other = self.make()
        other.run_again([again])
        self.assertEqual({'u2': 'cpu'}, other.reasons)
        self.assertEqual({'u2': 'cpu'}, self.make().reasons)

    def test_who_was_deleted_is_forgotten(self):
        book = self.make()
        book.note(secondary(1), 'memory')
        book.note(secondary(2), 'memory')
        book.forget({'u1', 'u3'})
        self.assertEqual({'u2'}, set(book.reasons))
        self.assertEqual({'u2'}, set(self.make().reasons))

    def test_the_last_ones(self):
        book = self.make()
        for n in range(70):
            book.note(secondary(n), 'memory')
        self.assertEqual(64, len(book.reasons))
        self.assertIn('u69', book.reasons)

    def test_a_spoilt_file(self):
        self.host.store.save(killed_instances.STATE, {'u1': ['x'], 'u2': 5,
                                                      'u3': ['memory', 1, 2]})
        self.assertEqual({'u3': 'memory'}, self.make().reasons)


class TestBalloon(Base):

    def setUp(self):
        super().setUp()
        self.memory = {'u1': 1000, 'u2': 800}
        self.error = None
        self.orders = []
        self.pressing = False
        self.guests = [secondary(1)]
        self.balloon = memory_guard.Balloon(
            lambda: self, lambda: self.guests, lambda: self.pressing, 60.0)

    def close(self):
        self.orders.append('close')

    def lookupByUUIDString(self, uuid):
        if self.error:
            raise self.error

        def give(target, flags):
            self.assertEqual(1, flags)
            self.memory[uuid] = target
            self.orders.append((uuid, target))
        return mock.Mock(info=lambda: [1, 1000, self.memory[uuid], 1, 0],
                         setMemoryFlags=give)

    def steps(self, count=2):
        for _ in range(count):
            self.balloon.step()
        orders, self.orders = self.orders, []
        return orders

    def test_pressed_and_given_back(self):
        self.assertEqual([], self.steps())
        self.pressing = True
        self.assertEqual([('u1', 600)], self.steps())
        self.pressing = False
        self.assertEqual([('u1', 1000)], self.steps())

    def test_by_default_they_are_nobodys_business(self):
        self.balloon = memory_guard.Balloon(
            lambda: self, lambda: self.guests, lambda: True, 100.0)
        self.memory['u1'] = 500
        self.assertEqual([], self.steps())

    def test_who_comes_small_is_given_all(self):
        self.guests.append(secondary(2))
        self.assertEqual([('u2', 1000)], self.steps())

    def test_who_has_less_keeps_it_while_memory_is_short(self):
        self.memory['u1'] = 500
        self.pressing = True
        self.assertEqual([], self.steps())

    def test_a_failure_is_tried_again_with_another_connection(self):
        self.pressing, self.error = True, OSError('away')
        with self.assertLogs(memory_guard.LOG.logger, 'WARNING') as logs:
            self.steps()
        self.assertEqual(1, len(logs.output))
        self.error = None
        self.assertEqual([('u1', 600)], self.steps())
