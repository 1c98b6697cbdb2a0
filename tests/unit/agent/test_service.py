# SPDX-License-Identifier: Apache-2.0

import os
import signal
import socket
import sys
import threading
import time
from unittest import mock
import urllib.request

from secondary_scheduler.agent import service
from secondary_scheduler.agent.floors import Reason
from secondary_scheduler.model import vocabulary
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase

#: Name of the release before.
Base = AgentTestCase


class AgentTest(AgentTestCase):
    def test_agent_runs_reloads_and_stops(self):
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
        self.assertEqual(70.0, agent.parts.policies.current.limit('cpu'))
        rpc.AgentServer.return_value.start.assert_called_once()
        rpc.ReportSender.return_value.send.assert_called()
        # The limits stay in force.
        self.assertNotEqual('-1 100000', self.host.quota(0))

    def test_agent_runs_without_metrics(self):
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

    def test_watchdog_of_systemd_is_fed(self):
        path = self.host.path('notify')
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind(path)
            with mock.patch.dict(os.environ, {'NOTIFY_SOCKET': path}):
                self.make().write_status()
            self.assertEqual(b'WATCHDOG=1', sock.recv(100))
        with mock.patch.dict(os.environ, {'NOTIFY_SOCKET': path + 'x'}):
            service._notify('READY=1')

    def test_failed_check_floors_all(self):
        self.host.guest(0)
        agent = self.make()
        agent.step()
        self.steps(agent, 5, 20.0, g0=5.0)
        with mock.patch.object(agent.parts.trigger, 'check',
                               side_effect=RuntimeError):
            agent.check()
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_rates_are_adapted_after_each_reading(self):
        agent = self.make()
        agent.parts.rates = mock.Mock()
        agent._measured = mock.Mock(wait=mock.Mock(
            side_effect=[True, True, SystemExit]))
        with self.assertRaises(SystemExit):
            agent._keep_rates()
        self.assertEqual(2, agent.parts.rates.step.call_count)
        agent._measure('disk')
        agent._measured.set.assert_called_once_with()

    def test_change_of_a_floor_or_of_domains_is_news(self):
        agent = self.make()
        for change in (agent.parts.floors.add, agent.parts.floors.drop):
            agent.parts.news.clear()
            change(fakes.UUIDS[0], Reason.POLICY)
            self.assertTrue(agent.parts.news.is_set())
            agent.parts.news.clear()
            change(fakes.UUIDS[0], Reason.POLICY)
            self.assertFalse(agent.parts.news.is_set())
        agent._domains_changed()
        self.assertTrue(agent.parts.news.is_set())

    def test_priority_is_set_although_cpus_of_primaries_cannot_be_read(self):
        agent = self.make()
        with mock.patch.object(agent.parts.dedicated_cpus, 'find_dedicated',
                               side_effect=ValueError('damaged')), (
                mock.patch.object(agent.parts.actuator,
                                  'prioritise')) as set_, (
                self.assertLogs('secondary_scheduler.agent.service',
                                'ERROR')):
            agent._domains_changed()
        set_.assert_called_once()

    def test_inventory_follows_the_room_and_forgets_deleted_instances(self):
        primary = self.host.guest(1, specs={})
        agent = self.make()
        agent.step()
        self.steps(agent, 3, 20.0)
        inventory, window = mock.Mock(), mock.Mock()
        inventory.slots.return_value = 12
        inventory.memory_mb.return_value = 10000
        inventory.consumers = None
        self.host.guest(0)
        agent.parts.domains.refresh()
        agent.parts.killed.note(agent.parts.domains.secondaries()[0], 'memory')
        del self.host.libvirt.domains[1:]
        agent.parts.domains.refresh()
        agent.keep_inventory(inventory, window)
        # Its memory is not known yet.
        self.assertEqual({vocabulary.SLOT: 0.5, vocabulary.MEMORY_MB: 0.0},
                         window.push.call_args[0][1])
        agent.guard_memory()
        agent.keep_inventory(inventory, window)
        # All but the headroom: 8000000 kB - 5 % of 8388608 kB, in steps.
        self.assertEqual(0.7360, window.push.call_args[0][1][
            vocabulary.MEMORY_MB])
        inventory.update.assert_called_with(
            window.push.return_value, [], {primary})
        self.assertEqual({fakes.UUIDS[0]}, set(agent.parts.killed.reasons))
        # An unchanged set of consumers is ignored.
        inventory.consumers = frozenset()
        agent.parts.domains._listed_at -= 60
        agent.keep_inventory(inventory, window)
        self.assertEqual({fakes.UUIDS[0]}, set(agent.parts.killed.reasons))
        inventory.update.side_effect = lambda *_: setattr(
            inventory, 'consumers', frozenset({'another'}))
        agent.keep_inventory(inventory, window)
        self.assertEqual({}, agent.parts.killed.reasons)
        self.assertEqual({vocabulary.SLOT: 0.0, vocabulary.MEMORY_MB: 0.0},
                         window.push.call_args[0][1])
