import contextlib
import dataclasses
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock
import urllib.request

from oslo_config import cfg

from secondary_scheduler.agent import domains, forecasts, reporter, service
from secondary_scheduler.agent.actuator import Actuator
from secondary_scheduler.agent.floors import Reason
from secondary_scheduler.agent.sensors import cpu
from secondary_scheduler.cmd import agent as command
from secondary_scheduler.conf import agent as agent_conf
from secondary_scheduler.conf import policy as policy_conf
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import DirtyMemory
from secondary_scheduler.model.reports import HostReport, InstanceReport
from secondary_scheduler.policies import language
from tests.unit.agent import fakes

PAGE = os.sysconf('SC_PAGE_SIZE')


class Base(unittest.TestCase):
    version = 1

    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.conf = cfg.ConfigOpts()
        agent_conf.register_opts(self.conf)
        policy_conf.register_opts(self.conf)
        self.file = self.host.path('agent.conf')
        self.configure('cpu <= 90% for 10s')
        self.conf(['--config-file', self.file])
        self.now = 100.0
        self.used = {}

    def configure(self, policy):
        self.host.write('agent.conf', f"""
[secondary_scheduler]
policy = {policy}
[secondary_agent]
host = node1
state_path = {self.host.state}
save_dir = {self.host.root}/save
libvirt_run_dir = {self.host.run_dir}
""")

    def make(self, **kwargs):
        with contextlib.ExitStack() as clocks:
            for one in (cpu.Meter, reporter.RecentPrimaryUse):
                clocks.enter_context(mock.patch.object(
                    one.__init__, '__defaults__', (lambda: self.now,)))
            clocks.enter_context(mock.patch.object(
                cpu.Meter.__init__, '__kwdefaults__',
                {'own_time': lambda: 0.0}))
            agent = service.Agent(
                self.conf, service.open_store(self.conf),
                self.host.hierarchy(), self.host.libvirt.connect, **kwargs)
        with contextlib.suppress(OSError):
            agent.domains.refresh()
        return agent

    def spend(self, percent, **guests):
        """Let 0.5 s pass in which host and guests used so many percent."""
        self.now += 0.5
        self.host.write('proc/uptime', f'{self.now:.2f} 0.00')
        for name, value in {'host': percent, **guests}.items():
            self.used[name] = self.used.get(name, 0.0) + (
                value / 100 * 4 * 0.5)
            self.host.spend(None if name == 'host' else int(name[1:]),
                            self.used[name])

    def steps(self, agent, count, percent, **guests):
        for _ in range(count):
            self.spend(percent, **guests)
            agent.step()


class Control(Base):
    def test_guests_enter_at_the_floor_and_get_room(self):
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

    def test_no_room_no_entry(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 10, 86.0)
        self.assertEqual({Reason.ENTRY},
                         agent.floors.reasons(fakes.UUIDS[0]))
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_without_policy_nobody_gets_more_than_the_floor(self):
        self.configure('cpu <= 90% for 10s on host:other')
        self.conf.reload_config_files()
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 0.0)
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_a_primary_that_is_harmed_is_given_way_to(self):
        self.configure('cpu <= 90% for 10s\n'
                       'policy = probe:p99_ms <= 20 for 15s')
        self.conf.reload_config_files()
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 20, 40.0, g0=20.0)
        cap = agent.control.caps[fakes.UUIDS[0]]
        self.assertGreater(cap, 40.0)
        for latency, share, room in ((12.0, 1.0, 6), (25.0, 0.5, 3),
                                     (25.0, 0.25, 1), (12.0, 0.27, 1)):
            with mock.patch.object(agent.gauges, 'total',
                                   return_value=latency):
                agent.check()
            self.assertAlmostEqual(share, agent.control.restraint.share)
            self.assertEqual(room, agent.reporter.room())
            # The primary uses 20 % of the host, and the set point is 89 %.
            self.steps(agent, 2, 40.0, g0=20.0)
            if latency > 20:
                self.assertLess(agent.control.caps[fakes.UUIDS[0]],
                                share * 69.0 + 10.1)
        self.assertFalse(agent.floors.floored(fakes.UUIDS[0]))
        self.steps(agent, 4, 25.0, g0=5.0)
        self.assertLess(agent.control.caps[fakes.UUIDS[0]], 40.0)

    def test_an_exception_means_the_floor_and_on_it_goes(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        with mock.patch.object(agent.control._controller, 'step',
                               side_effect=ZeroDivisionError):
            self.steps(agent, 1, 20.0, g0=5.0)
        self.assertEqual(1, agent.control.failures)
        self.assertEqual('1000 100000', self.host.quota(0))
        self.assertEqual('10000 100000', self.host.quota(0, 'emulator'))
        self.steps(agent, 3, 20.0, g0=5.0)
        self.assertNotEqual('1000 100000', self.host.quota(0))
        self.assertEqual(frozenset(), agent.floors.reasons(fakes.UUIDS[0]))

    def test_even_a_failing_list_of_guests(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        with mock.patch.object(agent.control, '_guests',
                               side_effect=RuntimeError):
            self.steps(agent, 1, 20.0)
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_a_rebooted_guest_starts_at_the_floor_again(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        self.host.libvirt.domains.clear()
        self.host.guest(0, pid=2000, started=5)
        agent.domains.refresh()
        self.spend(99.0)
        agent.step()
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_the_floor_of_the_trigger_stays(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        for _ in range(11):
            self.steps(agent, 2, 99.0, g0=5.0)
            agent.check()
        self.assertEqual('1000 100000', self.host.quota(0))
        self.assertEqual('10000 100000', self.host.quota(0, 'emulator'))
        report = agent.reporter.build()
        self.assertTrue(report.instances[0].floored)
        self.assertIsNone(report.instances[0].cap)
        self.assertFalse(report.admission)
        self.assertEqual(0, report.counters['invalidations'])

    def test_everything_else_dead(self):
        """The cache alone is enough for control and last resort."""
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

    def test_a_failing_check_means_the_floor(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        with mock.patch.object(agent.trigger, 'check',
                               side_effect=RuntimeError):
            agent.check()
        self.assertEqual('1000 100000', self.host.quota(0))


class ControlV2(Control):
    version = 2


class HandOver(Base):
    def setUp(self):
        super().setUp()
        self.uuid = self.host.guest(0)
        self.agent = self.make()
        self.agent.step()
        self.steps(self.agent, 3, 20.0, g0=5.0)

    def test_calm(self):
        self.assertEqual({'ok': True, 'floored': False, 'reason': '',
                          'dirty_mb': None, 'save_free_mb': None},
                         self.agent.hand_over(self.uuid))
        self.conf.set_override('save_dir', self.host.root, 'secondary_agent')
        disk = os.statvfs(self.host.root)
        with mock.patch.object(os, 'statvfs', return_value=disk):
            self.agent.reporter.measure_disk()
        free = self.agent.hand_over(self.uuid)['save_free_mb']
        self.assertEqual(free, self.agent.reporter.build().save_free_mb)
        # A disk that hangs, or is not there, says nothing.
        with mock.patch.object(os, 'statvfs', side_effect=OSError):
            self.agent.reporter.measure_disk()
        self.assertIsNone(self.agent.hand_over(self.uuid)['save_free_mb'])
        self.assertEqual(disk.f_bavail * disk.f_frsize >> 20, free)

    def test_what_memory_does_is_told(self):
        self.agent.memory.copied = 123.456
        dirty = DirtyMemory(12.0, 30.0)
        with mock.patch.object(self.agent.memory, 'dirty',
                               {self.uuid: dirty}.get):
            report = self.agent.reporter.build()
            answer = self.agent.hand_over(self.uuid)
        self.assertEqual(123.46, report.migration_mb_s)
        self.assertEqual([dirty], [(i.dirty_1s_mb, i.dirty_5s_mb)
                                   for i in report.instances])
        self.assertEqual(dirty, answer['dirty_mb'])

    def test_one_that_was_ended_is_said_to_be(self):
        guest, = (one for one in self.agent.domains.secondaries()
                  if one.uuid == self.uuid)
        self.agent.killed.note(guest, 'memory: 6 MiB left')
        before = self.host.fingerprint()
        answer = self.agent.hand_over(self.uuid)
        self.assertTrue(answer['killed'])
        self.assertFalse(answer['ok'])
        self.assertEqual('memory: 6 MiB left', answer['reason'])
        self.assertEqual(before, self.host.fingerprint())

    def test_unknown(self):
        answer = self.agent.hand_over('nobody')
        self.assertFalse(answer['ok'])
        self.assertIn('nobody', answer['reason'])
        self.agent.thaw_hint('nobody')

    def test_primaries_are_unknown(self):
        uuid = self.host.guest(1, specs={})
        self.agent.domains.refresh()
        before = self.host.fingerprint()
        self.assertFalse(self.agent.hand_over(uuid)['ok'])
        self.assertEqual(before, self.host.fingerprint())

    def test_a_failing_policy_floors_until_the_hint(self):
        self.spend(99.0)
        self.agent.check()
        self.spend(99.0)
        self.agent.check()
        answer = self.agent.hand_over(self.uuid)
        self.assertTrue(answer['ok'] and answer['floored'])
        self.assertEqual('1000 100000', self.host.quota(0))
        self.agent.thaw_hint(self.uuid)
        self.assertFalse(self.agent.floors.floored(self.uuid))

    def test_only_secondaries_that_do_what_they_want_are_measured(self):
        def measured():
            return [guest.uuid for guest in self.agent.memory._secondaries()]

        self.host.guest(1, specs={})
        self.agent.domains.refresh()
        self.assertEqual([self.uuid], measured())
        self.agent.hand_over(self.uuid)
        self.assertEqual([], measured())
        self.agent.thaw_hint(self.uuid)
        self.assertEqual([self.uuid], measured())
        self.agent.floors.add(self.uuid, Reason.ENTRY)
        self.assertEqual([], measured())

    def test_a_migration_that_would_not_end_floors_until_the_hint(self):
        with mock.patch.object(self.agent.memory, 'floor_s',
                               {self.uuid: 500.0}.get):
            # Who is stopped has to hear of it, and who is suspended ends.
            self.assertFalse(self.agent.hand_over(self.uuid)['floored'])
            answer = self.agent.hand_over(self.uuid, migrates=True)
        self.assertEqual((True, True, (0, 0)), (
            answer['ok'], answer['floored'], answer['dirty_mb']))
        self.assertEqual('1000 100000', self.host.quota(0))
        self.agent.thaw_hint(self.uuid)
        self.assertFalse(self.agent.floors.floored(self.uuid))

    def test_the_emulator_is_free_at_the_floor(self):
        free = self.host.quota(0, 'emulator')
        for _ in range(11):
            self.spend(99.0)
            self.agent.check()
        self.assertEqual('10000 100000', self.host.quota(0, 'emulator'))
        self.assertTrue(self.agent.hand_over(self.uuid)['floored'])
        self.steps(self.agent, 1, 99.0)
        self.assertEqual(free, self.host.quota(0, 'emulator'))
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_status(self):
        found = json.loads(json.dumps(self.agent.get_status()))
        self.assertEqual('node1', found['host'])
        HostReport.from_dict({name: found[name] for name in (
            *HostReport.__dataclass_fields__,)} | {'version': 1})


class Rates(Base):
    """From a reading of the disks to libvirt, and back."""

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
            '<limits', f'<limits xmlns="{domains.LIMITS}"')
            + '</metadata>')

    def measured(self, agent, total, capacity=100e6):
        agent.gauges._readings['disk_in'].append(
            (time.monotonic(), cpu.Reading(total, {}, capacity)))

    def step(self, agent):
        """Do what the threads do one after the other."""
        agent.rates.step()
        for held in agent.throttles._held.values():
            while held.busy:
                time.sleep(0.001)
        agent.domains.refresh()

    def limited(self):
        agent = self.make()
        for _ in range(4):
            self.measured(agent, 10.0)
            self.step(agent)
        return agent

    def test_from_the_reading_to_the_limit(self):
        agent = self.limited()
        self.assertAlmostEqual(
            0.49 * 100e6 / 1.1, self.domain.tunes['vda']['write_bytes_sec'],
            delta=10)
        # The cache tells whoever comes after a crash.
        self.assertTrue(self.make().domains.secondaries()[0].limited)
        status = agent.get_status()
        self.assertEqual({self.uuid: {'disk_in': 49.0}}, status['rates'])
        agent.write_status()
        with mock.patch('builtins.print') as said:
            command.status(self.conf)
        self.assertIn('disk_in at most 49.0%', said.call_args[0][0])

    def test_a_reload_without_the_policy_lifts_it(self):
        agent = self.limited()
        self.configure('cpu <= 90% for 10s')
        self.conf.reload_config_files()
        agent.policies.reload()
        self.step(agent)
        self.assertEqual(({}, None),
                         (self.domain.tunes['vda'], self.domain.noted))
        self.assertFalse(agent.domains.secondaries()[0].limited)

    def test_release(self):
        self.limited()
        hierarchy = self.host.hierarchy()

        def release():
            with mock.patch('secondary_scheduler.agent.cgroups.Hierarchy',
                            lambda: hierarchy), \
                    mock.patch.object(service, 'libvirt_opener', lambda uri:
                                      self.host.libvirt.connect), \
                    contextlib.redirect_stderr(io.StringIO()) as err, \
                    contextlib.redirect_stdout(io.StringIO()):
                return command.release(self.conf), err.getvalue()

        self.host.libvirt.error = OSError('dead')
        code, err = release()
        self.assertEqual(1, code)
        self.assertIn(f'{self.uuid} keep their limits: dead', err)
        self.host.libvirt.error = None
        # Whatever becomes of its control groups.
        with mock.patch.object(Actuator, 'release', return_value=False):
            self.assertEqual(1, release()[0])
        self.assertEqual(({}, None),
                         (self.domain.tunes['vda'], self.domain.noted))
        self.assertEqual((0, ''), release())

    def test_a_thread_follows_the_sensors(self):
        agent = self.make()
        agent.rates = mock.Mock()
        agent._measured = mock.Mock(wait=mock.Mock(
            side_effect=[True, True, SystemExit]))
        with self.assertRaises(SystemExit):
            agent._keep_rates()
        self.assertEqual(2, agent.rates.step.call_count)
        agent._measure('disk')
        agent._measured.set.assert_called_once_with()


class Reports(Base):
    def test_admission(self):
        self.host.guest(0)
        agent = self.make()
        self.assertIn('not known', agent.reporter.build().reason)
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        report = agent.reporter.build()
        self.assertTrue(report.admission, report.reason)
        self.assertEqual(4.0, report.cpus)
        self.assertAlmostEqual(15.0, report.cpu_primary, delta=0.1)
        self.assertEqual(HostReport.from_dict(report.to_dict()), report)
        self.assertGreater(agent.reporter.build().seq, report.seq)
        self.assertEqual(7, agent.reporter.room())
        agent.domains._listed_at -= 60
        self.assertIn('libvirt', agent.reporter.build().reason)

    def test_closed_until_placement_knows_of_the_room(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        for allowed, admission in (({}, False), ({vocabulary.SLOT: 1}, False),
                                   ({vocabulary.SLOT: 2}, True)):
            agent._inventory = mock.Mock(
                alarm=(), allowed=allowed,
                **{'slots.return_value': 0})
            self.assertEqual(admission, agent.reporter.build().admission)
            self.assertEqual('', agent.reporter.closed())

    def memory(self, available_mb):
        self.host.write('proc/meminfo', 'MemTotal: 1048576 kB\n'
                        f'MemAvailable: {available_mb * 1024} kB\n')

    def test_the_room_that_memory_leaves(self):
        self.conf.set_override('forecast', 'peak', 'secondary_agent')
        self.memory(1000)
        self.host.guest(0)      # a secondary of 128 MiB
        self.host.write('proc/1000/statm', f'9 {(28 << 20) // PAGE} 1 0 1 0')
        agent = self.make()
        self.assertEqual(0, agent.reporter.memory_room())

        def room(available_mb):
            self.memory(available_mb)
            agent.guard_memory()
            self.now += 2
            # Its own, and what is free but for 5 %, and for the 100 MiB that
            # it has yet to touch.
            return agent.reporter.memory_room()
        step = 1024 // 128
        self.assertEqual(128 + (1000 - 52 - 100) // step * step, room(1000))
        # A primary has come that takes 300 MiB.
        room(700)
        self.assertEqual(128 + (700 - 52 - 100) // step * step, room(700))
        self.now += 5
        # It has gone, and may come back within a minute.
        self.assertEqual(128 + (700 - 52 - 100) // step * step, room(1000))
        self.now += 70
        room(1000)
        self.assertEqual(128 + (1000 - 52 - 100) // step * step, room(1000))
        # Less than what they have, where there is none.
        self.assertLess(room(20), 128)

    def test_a_host_that_is_short_of_memory_is_closed(self):
        self.memory(1000)
        agent = self.make()
        agent.step()
        self.steps(agent, 3, 20.0)
        agent.guard_memory()
        self.assertEqual('', agent.reporter.closed())
        agent._news.clear()
        agent.guard_memory()
        self.assertFalse(agent._news.is_set())
        self.memory(40)
        agent.guard_memory()
        self.assertEqual('memory is short', agent.reporter.closed())
        self.assertTrue(agent._news.is_set())

    def test_closed_while_there_is_no_memory_for_another(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        for memory, admission in ((128, False), (129, True)):
            agent._inventory = mock.Mock(
                alarm=(), allowed={vocabulary.SLOT: 5,
                                   vocabulary.MEMORY_MB: memory},
                **{'slots.return_value': 0})
            self.assertEqual(admission, agent.reporter.build().admission)

    def test_who_was_killed_is_told_until_it_runs_again(self):
        uuid = self.host.guest(0)
        agent = self.make()
        guest, = agent.domains.secondaries()
        with mock.patch.object(agent.actuator, 'kill', return_value=True):
            self.assertTrue(agent._kill(guest, 'memory'))
        report = agent.reporter.build()
        self.assertEqual({uuid: 'memory'}, report.killed)
        self.assertEqual(HostReport.from_dict(report.to_dict()), report)
        self.assertTrue(agent._news.is_set())
        agent._domains_changed()
        self.assertEqual({uuid: 'memory'},
                         self.make().reporter.build().killed)
        self.host.libvirt.domains.clear()
        self.host.guest(0, pid=2000, started=5)
        agent.domains.refresh()
        agent._domains_changed()
        self.assertEqual({}, agent.reporter.build().killed)

    def test_what_a_new_primary_has_yet_to_touch_counts_as_used(self):
        self.memory(1000)
        self.host.guest(1, specs={}, metadata='', started=100)
        xml = self.host.libvirt.domains[0]
        xml.xml = ('<domain><uuid>x</uuid><name>instance-00000001</name>'
                   '<memory unit="KiB">524288</memory></domain>')
        self.host.write('proc/1001/statm', f'9 {(12 << 20) // PAGE} 1 0 1 0')
        self.host.write('proc/uptime', '30.0 0.0')
        agent = self.make()
        agent.gauges.measure('memory')
        self.assertAlmostEqual(100 * (24 + 500) / 1024,
                               agent.gauges.total('mem'))
        self.host.write('proc/uptime', '3000.0 0.0')
        agent.gauges.measure('memory')
        self.assertAlmostEqual(100 * 24 / 1024, agent.gauges.total('mem'))

    def test_the_inventory_bounds_the_room(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        agent._inventory = mock.Mock(
            alarm=(), allowed={vocabulary.SLOT: 1},
            **{'slots.return_value': 1})
        self.assertEqual(1, agent.reporter.room())
        self.assertIn('no room', agent.reporter.build().reason)

    def test_cores_that_are_taken_leave_no_room(self):
        for cores, room in ((2, 1), (3, 2)):    # it has two of them
            self.configure('cpu <= 90% for 10s\n'
                           f'policy = cores <= {cores}')
            self.conf.reload_config_files()
            self.host.guest(0, listed=not self.host.libvirt.domains)
            agent = self.make()
            agent.step()
            self.steps(agent, 5, 20.0, g0=5.0)
            self.assertEqual(room, agent.reporter.room())

    def test_one_failed_check_closes_nothing(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        for failed, reason in ((1, ''), (2, 'policies fail: p')):
            agent.reporter._trigger = mock.Mock(
                reports=[mock.Mock(failed=failed, policy='p')])
            self.assertEqual(reason, agent.reporter.closed())

    def test_no_room(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 75.0, g0=5.0)
        self.assertIn('no room', agent.reporter.build().reason)

    def test_reload(self):
        agent = self.make()
        before = agent.policies.current
        self.configure('cpu =< 90%')
        agent.reload()
        self.assertEqual(before.policies, agent.policies.current.policies)
        self.assertIn('column', agent.reporter.closed())
        self.configure('cpu <= 50% for 10s')
        agent.reload()
        self.assertEqual(50.0, agent.policies.current.limit('cpu'))
        self.assertEqual(49.0, agent.reporter.set_point)

    def test_aggregates_are_remembered(self):
        self.configure('cpu <= 80% for 10s on aggregate:x')
        self.conf.reload_config_files()
        agent = self.make()
        own = agent.policies.current.policies[-1:]
        self.assertEqual(2, len(agent.policies.current.policies))
        agent._describe(mock.Mock(describe_host=mock.Mock(
            return_value={'aggregates': ['y']})))
        self.assertEqual(own, agent.policies.current.policies)
        again = self.make()
        self.assertEqual(own, again.policies.current.policies)
        self.assertIsNone(again.reporter.set_point)
        self.assertEqual(0, again.reporter.room())

    def test_slots_bound_the_room(self):
        self.configure('cpu <= 80% for 10s\npolicy = slots <= 2')
        self.conf.reload_config_files()
        agent = self.make()
        agent.step()
        self.steps(agent, 3, 0.0)
        self.assertEqual(2, agent.reporter.room())

    def test_what_binds_several_hosts_is_not_this_ones(self):
        texts = ['cpu <= 80% for 10s', 'slots <= 0 in aggregate:x']
        self.configure('\npolicy = '.join(texts))
        self.conf.reload_config_files()
        agent = self.make()
        self.assertIsNone(agent.policies.current.limit('slots'))
        # All the same it is told to whom it concerns.
        self.assertEqual(language.fingerprint(language.parse_all(texts)),
                         agent.policies.current.fingerprint)

    def test_a_bad_policy_at_the_start(self):
        self.configure('cpu')
        self.conf.reload_config_files()
        with self.assertRaises(language.PolicyError):
            self.make()

    def test_inventory(self):
        primary = self.host.guest(1, specs={})
        agent = self.make()
        agent.step()
        self.steps(agent, 3, 20.0)
        inventory, window = mock.Mock(), mock.Mock()
        inventory.slots.return_value = 12
        inventory.memory_mb.return_value = 10000
        inventory.consumers = None
        self.host.guest(0)
        agent.domains.refresh()
        agent.killed.note(agent.domains.secondaries()[0], 'memory')
        del self.host.libvirt.domains[1:]
        agent.domains.refresh()
        agent.keep_inventory(inventory, window)
        # Nothing is known of its memory yet.
        self.assertEqual({vocabulary.SLOT: 0.5, vocabulary.MEMORY_MB: 0.0},
                         window.push.call_args[0][1])
        agent.guard_memory()
        agent.keep_inventory(inventory, window)
        # All but the headroom: 8000000 kB - 5 % of 8388608 kB, in steps.
        self.assertEqual(0.7360, window.push.call_args[0][1][
            vocabulary.MEMORY_MB])
        inventory.update.assert_called_with(
            window.push.return_value, [], {primary})
        self.assertEqual({fakes.UUIDS[0]}, set(agent.killed.reasons))
        # Read before it came: says nothing of it.
        inventory.consumers = frozenset()
        agent.domains._listed_at -= 60
        agent.keep_inventory(inventory, window)
        self.assertEqual({fakes.UUIDS[0]}, set(agent.killed.reasons))
        inventory.update.side_effect = lambda *_: setattr(
            inventory, 'consumers', frozenset({'another'}))
        agent.keep_inventory(inventory, window)
        self.assertEqual({}, agent.killed.reasons)
        self.assertEqual({vocabulary.SLOT: 0.0, vocabulary.MEMORY_MB: 0.0},
                         window.push.call_args[0][1])

    def test_reports_at_once_on_news(self):
        agent = self.make()
        sender, told = mock.Mock(), threading.Event()
        reports = []

        def send(report):
            reports.append(report)
            told.set()

        sender.send.side_effect = send
        thread = threading.Thread(target=agent._report, args=(sender,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(agent.stop)
        self.assertTrue(told.wait(5))
        told.clear()
        self.host.guest(0)
        agent.domains.refresh()
        self.assertTrue(told.wait(3))
        self.assertEqual(1, len(reports[-1].instances))

    def test_what_happens_to_a_guest_is_news_at_once(self):
        agent = self.make()
        for change in (agent.floors.add, agent.floors.drop):
            agent._news.clear()
            change(fakes.UUIDS[0], Reason.POLICY)
            self.assertTrue(agent._news.is_set())
            agent._news.clear()
            change(fakes.UUIDS[0], Reason.POLICY)
            self.assertFalse(agent._news.is_set())
        agent._domains_changed()
        self.assertTrue(agent._news.is_set())

    def test_priority_is_set_where_cpus_of_primaries_cannot_be_read(self):
        agent = self.make()
        with mock.patch.object(agent.dedicated, 'look',
                               side_effect=ValueError('damaged')), (
                mock.patch.object(agent.actuator, 'prioritise')) as set_, (
                self.assertLogs('secondary_scheduler.agent.service',
                                'ERROR')):
            agent._domains_changed()
        set_.assert_called_once()

    def test_long_reports_are_repeated_later(self):
        agent = self.make()
        for guests, seconds in ((0, 5.0), (40, 7.5)):
            report = dataclasses.replace(agent.reporter.build(), instances=(
                InstanceReport(fakes.UUIDS[0], 5, 1.0, 2.0),) * guests)
            self.assertEqual(seconds, agent._pause(report))
        self.conf.set_override('report_stale_after', 60.0,
                               'secondary_scheduler')
        self.assertEqual(len(json.dumps(report.to_dict())) / 500,
                         agent._pause(report))

    def test_an_error_does_not_end_the_reports(self):
        agent, sender, sent = self.make(), mock.Mock(), threading.Event()
        sender.send.side_effect = lambda report: sent.set()
        build = mock.Mock(side_effect=[ValueError('a bad option'),
                                       agent.reporter.build()])
        with mock.patch.object(agent.reporter, 'build', build), \
                mock.patch.object(agent.reporter, 'news', object):
            thread = threading.Thread(target=agent._keep_reporting,
                                      args=(sender,))
            thread.start()
            self.assertTrue(sent.wait(5))
            agent.stop()
            thread.join()

    def send_for(self, seconds, news):
        """Return when reports were sent while news came all the time."""
        agent, sender, sent = self.make(), mock.Mock(), []
        sender.send.side_effect = lambda report: sent.append(
            time.monotonic())
        thread = threading.Thread(target=agent._report, args=(sender,))
        report = agent.reporter.build()
        with mock.patch.object(agent.reporter, 'build', lambda: report), \
                mock.patch.object(agent.reporter, 'news', news):
            thread.start()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                agent._news.set()
                time.sleep(0.01)
            agent.stop()
            thread.join()
        return sent

    def test_fluttering_news_is_not_sent_more_than_five_times_a_second(self):
        sent = self.send_for(1.1, object)
        gaps = [after - before for before, after
                in itertools.pairwise(sent)]
        self.assertGreaterEqual(len(sent), 2)
        self.assertGreaterEqual(min(gaps), 0.19)

    def test_without_news_only_the_heartbeat(self):
        self.conf.set_override('report_interval', 0.5, 'secondary_scheduler')
        sent = self.send_for(1.2, lambda: 'the same')
        self.assertIn(len(sent), (2, 3))

    def use(self, outlook, *values):
        for value in values:
            outlook.push(value)
            self.now += 0.5

    def outlook(self):
        return reporter.RecentPrimaryUse(forecasts.Percentile(self.conf),
                                         lambda: self.now)

    def test_a_peak_of_half_a_second_closes_nothing(self):
        outlook = self.outlook()
        self.assertIsNone(outlook.forecast)
        self.use(outlook, *([20.0] * 6 + [90.0]) * 17, None)
        self.assertEqual(30.0, outlook.forecast)

    def test_the_forecast_is_what_lasts_longer_than_one_time_in_twenty(self):
        outlook = self.outlook()
        self.use(outlook, *[20.0] * 100, *[90.0] * 18)
        self.assertEqual(90.0, outlook.forecast)
        self.use(outlook, *[20.0] * 126)
        self.assertEqual(20.0, outlook.forecast)
        self.now += 61
        outlook.push(None)
        self.assertIsNone(outlook.forecast)

    def test_recent(self):
        outlook = self.outlook()
        self.assertIsNone(outlook.recent)
        outlook.push(90.0)
        self.now += 2
        outlook.push(30.0)
        outlook.push(None)
        self.now += 1
        self.assertEqual(60.0, outlook.recent)
        outlook.push(15.0)
        self.assertEqual(45.0, outlook.recent)
        self.now += 1
        self.assertEqual(22.5, outlook.recent)
        self.now += 3
        self.assertIsNone(outlook.recent)
        self.assertEqual(60.0, outlook.forecast)     # still remembered

    def test_an_arrival_was_never_the_primary(self):
        outlook = self.outlook()
        self.use(outlook, *[20.0] * 100, *[90.0] * 8)
        outlook.push(90.0, [cpu.Arrival(4.5, 70.0)])
        self.assertEqual(20.0, outlook.forecast)
        self.assertEqual(20.0, outlook.recent)

    def test_only_its_part_of_a_sample_is_taken_off(self):
        outlook = self.outlook()
        self.use(outlook, *[20.0] * 8)
        # A tenth of a second with all of the host is a fifth of a sample.
        outlook.push(40.0, [cpu.Arrival(0.1, 100.0)])
        self.assertAlmostEqual(20.0, outlook.recent)
        self.now += 3.5
        outlook.push(40.0, [cpu.Arrival(3600.0, 500.0)])
        self.assertEqual(0.0, outlook.recent)

    def test_nothing_is_taken_off_the_first(self):
        outlook = self.outlook()
        outlook.push(40.0, [cpu.Arrival(1.0, 10.0)])
        self.assertEqual(40.0, outlook.recent)

    def test_a_guest_that_starts_does_not_close_its_host(self):
        agent = self.make()
        self.steps(agent, 20, 10.0)
        # QEMU starts, and takes what it can until it is listed.
        self.host.guest(0, started=int(self.now * 100))
        self.steps(agent, 8, 100.0, g0=90.0)
        self.assertGreater(agent.outlook.forecast, 30.0)
        agent.domains.refresh()
        self.steps(agent, 1, 100.0, g0=90.0)
        self.assertAlmostEqual(10.0, agent.outlook.forecast)
        self.assertGreater(agent.reporter.room(), 1)
        # What it uses from then on is measured.
        self.steps(agent, 12, 40.0, g0=30.0)
        self.assertAlmostEqual(10.0, agent.outlook.forecast)
        self.assertAlmostEqual(10.0, agent.outlook.recent)

    def test_it_arrives_once_however_it_is_listed(self):
        agent = self.make()
        self.steps(agent, 2, 10.0)
        self.host.guest(0, started=int(self.now * 100))
        agent.domains.refresh()
        self.steps(agent, 1, 100.0, g0=90.0)
        self.assertEqual(1, len(agent.control.usage.arrivals))
        domains, self.host.libvirt.domains = self.host.libvirt.domains, []
        agent.domains.refresh()
        self.steps(agent, 2, 100.0, g0=90.0)
        self.host.libvirt.domains = domains
        agent.domains.refresh()
        self.steps(agent, 1, 100.0, g0=90.0)
        self.assertEqual([], agent.control.usage.arrivals)
        # The same guest in another process is another arrival.
        self.host.guest(0, started=int(self.now * 100), listed=False)
        agent.domains.refresh()
        self.steps(agent, 1, 100.0, g0=90.0)
        self.assertEqual(1, len(agent.control.usage.arrivals))

    def test_an_unknown_age_takes_nothing_off(self):
        agent = self.make()
        self.steps(agent, 4, 10.0)
        self.host.guest(0, started=int(self.now * 100))
        agent.domains.refresh()
        self.spend(100.0, g0=90.0)
        self.host.write('proc/uptime', '')
        agent.step()
        self.assertEqual([], agent.control.usage.arrivals)

    def test_nor_does_one_that_has_run_for_long(self):
        # Nobody knows when in its life it used what.
        agent = self.make()
        self.steps(agent, 4, 10.0)
        self.host.guest(0, started=int((self.now - 60) * 100))
        agent.domains.refresh()
        self.steps(agent, 1, 10.0, g0=90.0)
        self.assertEqual([], agent.control.usage.arrivals)

    def test_a_failed_step_is_no_sample(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 2, 20.0)
        self.now += 4
        with mock.patch.object(agent.control._controller, 'step',
                               side_effect=ZeroDivisionError):
            agent.step()
        self.assertIsNone(agent.outlook.recent)

    def test_the_cloud_is_told_the_mean(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        for total in (20.0, 60.0, 40.0):
            self.steps(agent, 1, total, g0=5.0)
        self.assertAlmostEqual(
            35.0, agent.reporter.build().cpu_primary, delta=0.1)


class Commands(Base):
    def call(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        hierarchy = self.host.hierarchy()
        # Nova, if a test has imported it, has its own [placement] in CONF.
        with mock.patch('secondary_scheduler.agent.cgroups.Hierarchy',
                        lambda: hierarchy), \
                mock.patch.object(cfg, 'CONF', cfg.ConfigOpts()), \
                contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            code = command.main([*arguments, '--config-file', self.file])
        return code, out.getvalue(), err.getvalue()

    def test_floor_and_release(self):
        self.host.guest(0)
        self.host.guest(1, specs={})
        before = self.host.fingerprint()
        agent = self.make()
        agent.step()
        self.host.libvirt.error = OSError('dead')
        self.assertEqual((0, '1 of 1 secondaries are at the floor\n', ''),
                         self.call('floor'))
        self.assertEqual('1000 100000', self.host.quota(0))
        self.assertEqual('10000 100000', self.host.quota(0, 'emulator'))
        self.assertEqual(0, self.call('release')[0])
        self.assertEqual(before, self.host.fingerprint())

    def test_release_empties_balloons_that_were_ours(self):
        self.host.guest(0)
        self.make()
        domain = mock.Mock(info=lambda: [1, 1000, 600, 1, 0])
        connection = mock.Mock(lookupByUUIDString=lambda uuid: domain)
        with mock.patch.object(service, 'libvirt_opener',
                               return_value=lambda: connection):
            self.call('release')
            domain.setMemoryFlags.assert_not_called()
            with open(self.file, 'a') as file:
                file.write('balloon_least = 60\n')
            self.call('release')
        domain.setMemoryFlags.assert_called_once_with(1000, 1)

    def test_release_needs_a_stopped_agent(self):
        held = service.lock(self.host.store)
        self.addCleanup(held.close)
        code, _, err = self.call('release')
        self.assertEqual(2, code)
        self.assertIn(str(os.getpid()), err)

    def test_release_without_libvirt_says_what_is_missing(self):
        with mock.patch.dict(sys.modules, libvirt=None):
            code, out, err = self.call('release')
        self.assertEqual((2, ''), (code, out))
        self.assertRegex(err, '^secondary-agent: .*libvirt')

    def test_a_second_agent_refuses(self):
        held = service.lock(self.host.store)
        self.addCleanup(held.close)
        code, _, err = self.call('run')
        self.assertEqual(2, code)
        self.assertIn('another secondary-agent', err)

    def test_a_full_disk_keeps_no_agent_from_its_start(self):
        with mock.patch.object(self.host.store, 'path',
                               return_value='/dev/full'):
            service.lock(self.host.store).close()

    def test_a_bad_policy_stops_the_start(self):
        self.configure('cpu <= 90 for 10s')
        code, _, err = self.call('run')
        self.assertEqual(2, code)
        self.assertIn('column 8', err)
        self.assertIn('A correct example', err)

    def test_the_floor_works_with_a_broken_file(self):
        self.host.write('agent.conf', '[secondary_agent\n')
        self.assertEqual(2, self.call('run')[0])
        with mock.patch.object(
                agent_conf.OPTS[[o.name for o in agent_conf.OPTS].index(
                    'state_path')], 'default', self.host.state):
            self.assertEqual(0, self.call('floor')[0])

    def test_status(self):
        self.assertEqual(1, self.call('status')[0])
        self.host.guest(0)
        self.host.guest(1)
        agent = self.make()
        agent.step()
        self.steps(agent, 2, 20.0)
        agent.check()
        agent.floors.add(fakes.UUIDS[1], Reason.POLICY)
        agent.write_status()
        code, out, _ = self.call('status')
        self.assertEqual(0, code)
        for text in ('host node1', 'admission: closed', 'cpu <= 90%',
                     'at the floor (policy)', 'cap ', 'set point 89.0%'):
            self.assertIn(text, out)
        code, out, _ = self.call('status', '--json')
        self.assertEqual('node1', json.loads(out)['host'])

    def test_status_of_signals_and_what_sensors_cost(self):
        self.configure('probe:p99_ms <= 20 for 5s\n'
                       'policy = steal <= 5% for 5s')
        self.conf.reload_config_files()
        self.host.guest(0)
        agent = self.make()
        agent.step()
        agent.gauges.costs['steal'].note(0.002)
        with mock.patch.object(agent.gauges, 'total', side_effect={
                'probe:p99_ms': 31.25}.get):
            agent.floors.drop(fakes.UUIDS[0], Reason.ENTRY)
            agent.check()
        agent.gauges.total('probe:p99_ms')
        agent.write_status()
        _, out, _ = self.call('status')
        for text in ('for 5s: failing, is at 31.25, failed 1 of 5 s',
                     'for 5s: unknown, is at unknown, failed 1 of 5 s',
                     '; 50% of the room may be used',
                     'sensors take of one CPU: steal 0.20%\n',
                     'sensor probe:p99_ms: there is no such probe'):
            self.assertIn(text, out)

    def test_help(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stdout(
                io.StringIO()) as out:
            command.main(['--help'])
        self.assertIn('floor', out.getvalue())

    def test_a_stale_status(self):
        agent = self.make()
        agent.write_status()
        data = self.host.store.load('status.json')
        # The second one is what a clock makes of it that was set back.
        for seen in 0, data['time'] + 3600:
            self.host.store.save('status.json', {**data, 'time': seen})
            code, out, _ = self.call('status')
            self.assertEqual(1, code)
            self.assertIn('STALE', out)


class Running(Base):
    def test_a_whole_life(self):
        self.host.guest(0)
        agent = self.make()
        before = {number: signal.getsignal(number) for number in (
            signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        self.addCleanup(lambda: [signal.signal(*one)
                                 for one in before.items()])
        rpc = mock.Mock()
        rpc.ReportSender.return_value.describe_host.return_value = None

        def life():
            for _ in range(100):
                if os.path.exists(self.host.path('state/status.json')):
                    break
                time.sleep(0.05)
            self.configure('cpu <= 70% for 10s')
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(1.2)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=life).start()
        with mock.patch.dict('sys.modules', {
                'secondary_scheduler.reports': mock.Mock(
                    agent_rpc=rpc, report_messages=rpc)}), \
                mock.patch('secondary_scheduler.agent.inventory.'
                           'placement_adapter', side_effect=OSError):
            agent.run()
        self.assertEqual(70.0, agent.policies.current.limit('cpu'))
        rpc.AgentServer.return_value.start.assert_called_once()
        rpc.ReportSender.return_value.send.assert_called()
        # The limits stay in force.
        self.assertNotEqual('-1 100000', self.host.quota(0))

    def test_metrics_are_what_the_agent_goes_on_without(self):
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            taken.listen()
            port = taken.getsockname()[1]
            with self.assertLogs('secondary_scheduler.agent', 'ERROR') as log:
                self.make()._start_metrics('127.0.0.1', port)
                with mock.patch.dict('sys.modules',
                                     prometheus_client=None):
                    sys.modules.pop('secondary_scheduler.agent.metrics', None)
                    self.make()._start_metrics('127.0.0.1', port)
        self.assertEqual(2, len(log.output))
        self.make()._start_metrics('127.0.0.1', port)
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics',
                                    timeout=10) as answer:
            self.assertIn('secondary_agent_admission_open 0.0',
                          answer.read().decode())

    def test_systemd_is_told(self):
        path = self.host.path('notify')
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind(path)
            with mock.patch.dict(os.environ, {'NOTIFY_SOCKET': path}):
                self.make().write_status()
            self.assertEqual(b'WATCHDOG=1', sock.recv(100))
        with mock.patch.dict(os.environ, {'NOTIFY_SOCKET': path + 'x'}):
            service._notify('READY=1')


class Size(unittest.TestCase):
    def test_the_floor_loads_nothing_heavy(self):
        code = ('import sys; import secondary_scheduler.cmd.agent; '
                'print([m for m in ("numpy", "requests", "keystoneauth1", '
                '"oslo_messaging", "libvirt") if m in sys.modules])')
        done = subprocess.run([sys.executable, '-c', code], text=True,
                              capture_output=True, check=True)
        self.assertEqual('[]', done.stdout.strip())
