# SPDX-License-Identifier: Apache-2.0

import os
from unittest import mock

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.arrivals import Arrival
from secondary_scheduler.model.reports import HostReport
from tests.unit.agent.base import AgentTestCase

PAGE = os.sysconf('SC_PAGE_SIZE')


class ReporterTest(AgentTestCase):
    def test_host_is_open_when_libvirt_and_use_are_known(self):
        self.host.guest(0)
        agent = self.make()
        self.assertIn('not known', agent.reporter.build_report().reason)
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        report = agent.reporter.build_report()
        self.assertTrue(report.admission, report.reason)
        self.assertEqual(4.0, report.cpus)
        self.assertAlmostEqual(15.0, report.cpu_primary, delta=0.1)
        self.assertEqual(HostReport.from_dict(report.to_dict()), report)
        self.assertGreater(agent.reporter.build_report().seq, report.seq)
        self.assertEqual(7, agent.reporter.room())
        agent.parts.domains._listed_at -= 60
        self.assertIn('libvirt', agent.reporter.build_report().reason)

    def test_report_has_predictions_only_with_cpu_affinity(self):
        agent = self.make()
        agent.step()
        self.assertEqual({}, agent.reporter.build_report().arrivals)
        agent.parts.affinity = mock.Mock(arrivals=lambda: {
            'web': Arrival(1.2345, 0.0)})
        self.assertEqual({'web': (1.23, 0.0)},
                         agent.reporter.build_report().arrivals)

    def test_host_is_closed_until_placement_knows_the_room(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        for allowed, admission in (({}, False), ({vocabulary.SLOT: 1}, False),
                                   ({vocabulary.SLOT: 2}, True)):
            agent.parts.inventory = mock.Mock(
                alarm=(), allowed=allowed,
                **{'slots.return_value': 0})
            self.assertEqual(admission,
                             agent.reporter.build_report().admission)
            self.assertEqual('', agent.reporter.closed_reason())

    def memory(self, available_mb):
        self.host.write('proc/meminfo', 'MemTotal: 1048576 kB\n'
                        f'MemAvailable: {available_mb * 1024} kB\n')

    def test_memory_room_excludes_headroom_and_untouched_memory(self):
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
            # Its own memory and the free memory, without the headroom of 5 %
            # and the 100 MiB that it has not touched yet.
            return agent.reporter.memory_room()
        step = 1024 // 128
        self.assertEqual(128 + (1000 - 52 - 100) // step * step, room(1000))
        # A new primary uses 300 MiB.
        room(700)
        self.assertEqual(128 + (700 - 52 - 100) // step * step, room(700))
        self.now += 5
        # It has gone, but its use stays in the window for a minute.
        self.assertEqual(128 + (700 - 52 - 100) // step * step, room(1000))
        self.now += 70
        room(1000)
        self.assertEqual(128 + (1000 - 52 - 100) // step * step, room(1000))
        # Without free memory there is less than the secondary has.
        self.assertLess(room(20), 128)

    def test_host_short_of_memory_is_closed(self):
        self.memory(1000)
        agent = self.make()
        agent.step()
        self.steps(agent, 3, 20.0)
        agent.guard_memory()
        self.assertEqual('', agent.reporter.closed_reason())
        agent.parts.news.clear()
        agent.guard_memory()
        self.assertFalse(agent.parts.news.is_set())
        self.memory(40)
        agent.guard_memory()
        self.assertEqual('memory is short', agent.reporter.closed_reason())
        self.assertTrue(agent.parts.news.is_set())

    def test_host_without_memory_for_another_secondary_is_closed(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        for memory, admission in ((128, False), (129, True)):
            agent.parts.inventory = mock.Mock(
                alarm=(), allowed={vocabulary.SLOT: 5,
                                   vocabulary.MEMORY_MB: memory},
                **{'slots.return_value': 0})
            self.assertEqual(admission,
                             agent.reporter.build_report().admission)

    def test_memory_a_new_primary_has_not_touched_counts_as_used(self):
        self.memory(1000)
        self.host.guest(1, specs={}, metadata='', started=100)
        xml = self.host.libvirt.domains[0]
        xml.xml = ('<domain><uuid>x</uuid><name>instance-00000001</name>'
                   '<memory unit="KiB">524288</memory></domain>')
        self.host.write('proc/1001/statm', f'9 {(12 << 20) // PAGE} 1 0 1 0')
        self.host.write('proc/uptime', '30.0 0.0')
        agent = self.make()
        agent.parts.gauges.measure('memory')
        self.assertAlmostEqual(100 * (24 + 500) / 1024,
                               agent.parts.gauges.total('mem'))
        self.host.write('proc/uptime', '3000.0 0.0')
        agent.parts.gauges.measure('memory')
        self.assertAlmostEqual(100 * 24 / 1024,
                               agent.parts.gauges.total('mem'))

    def test_inventory_limits_the_room(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        agent.parts.inventory = mock.Mock(
            alarm=(), allowed={vocabulary.SLOT: 1},
            **{'slots.return_value': 1})
        self.assertEqual(1, agent.reporter.room())
        self.assertIn('no room', agent.reporter.build_report().reason)

    def test_used_cores_limit_the_room(self):
        for cores, room in ((2, 1), (3, 2)):    # the guest has two
            self.configure('cpu <= 90% for 10s\n'
                           f'policy = cores <= {cores}')
            self.conf.reload_config_files()
            self.host.guest(0, listed=not self.host.libvirt.domains)
            agent = self.make()
            agent.step()
            self.steps(agent, 5, 20.0, g0=5.0)
            self.assertEqual(room, agent.reporter.room())

    def test_host_is_closed_after_two_failed_checks(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        for failed, reason in ((1, ''), (2, 'policies fail: p')):
            agent.parts.trigger = mock.Mock(
                reports=[mock.Mock(failed=failed, policy='p')])
            self.assertEqual(reason, agent.reporter.closed_reason())

    def test_host_at_its_set_point_has_no_room(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 75.0, g0=5.0)
        self.assertIn('no room', agent.reporter.build_report().reason)

    def test_policy_on_slots_limits_the_room(self):
        self.configure('cpu <= 80% for 10s\npolicy = slots <= 2')
        self.conf.reload_config_files()
        agent = self.make()
        agent.step()
        self.steps(agent, 3, 0.0)
        self.assertEqual(2, agent.reporter.room())

    def test_failed_step_adds_no_sample_of_primary_use(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 2, 20.0)
        self.now += 4
        with mock.patch.object(agent.parts.control._controller, 'step',
                               side_effect=ZeroDivisionError):
            agent.step()
        self.assertIsNone(agent.parts.primary_cpu.recent)

    def test_report_contains_the_mean_of_primary_use(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        for total in (20.0, 60.0, 40.0):
            self.steps(agent, 1, total, g0=5.0)
        self.assertAlmostEqual(
            35.0, agent.reporter.build_report().cpu_primary, delta=0.1)
