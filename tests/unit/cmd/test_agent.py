# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

from oslo_config import cfg

from secondary_scheduler.agent import host_lock, wiring
from secondary_scheduler.agent.floors import Reason
from secondary_scheduler.cmd import agent as command
from secondary_scheduler.conf import agent as agent_conf
from secondary_scheduler.cpu_affinity.suspects import Suspicion, Verdict
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase


class CommandsTest(AgentTestCase):
    def call(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        hierarchy = self.host.hierarchy()
        # If a test has imported Nova, CONF contains its group [placement].
        with mock.patch('secondary_scheduler.agent.cgroups.Hierarchy',
                        lambda: hierarchy), \
                mock.patch.object(cfg, 'CONF', cfg.ConfigOpts()), \
                contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            code = command.main([*arguments, '--config-file', self.file])
        return code, out.getvalue(), err.getvalue()

    def test_release_after_floor_restores_all_limits(self):
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
        with mock.patch.object(wiring, 'libvirt_opener',
                               return_value=self.host.libvirt.connect):
            self.assertEqual(0, self.call('release')[0])
        self.assertEqual(before, self.host.fingerprint())

    def test_release_empties_balloons_if_the_agent_fills_them(self):
        self.host.guest(0)
        self.make()
        domain = mock.Mock(info=lambda: [1, 1000, 600, 1, 0])
        connection = mock.Mock(lookupByUUIDString=lambda uuid: domain)
        with mock.patch.object(wiring, 'libvirt_opener',
                               return_value=lambda: connection):
            self.call('release')
            domain.setMemoryFlags.assert_not_called()
            with open(self.file, 'a') as file:
                file.write('balloon_minimum = 60\n')
            self.call('release')
        domain.setMemoryFlags.assert_called_once_with(1000, 1)

    def test_release_needs_a_stopped_agent(self):
        held = host_lock.acquire_host_lock(self.host.store)
        self.addCleanup(held.close)
        code, _, err = self.call('release')
        self.assertEqual(2, code)
        self.assertIn(str(os.getpid()), err)

    def test_release_without_libvirt_names_the_missing_module(self):
        with mock.patch.dict(sys.modules, libvirt=None):
            code, out, err = self.call('release')
        self.assertEqual((2, ''), (code, out))
        self.assertRegex(err, '^secondary-agent: .*libvirt')

    def test_second_agent_refuses_to_start(self):
        held = host_lock.acquire_host_lock(self.host.store)
        self.addCleanup(held.close)
        code, _, err = self.call('run')
        self.assertEqual(2, code)
        self.assertIn('another secondary-agent', err)

    def test_lock_is_acquired_on_a_full_disk(self):
        with mock.patch.object(self.host.store, 'path',
                               return_value='/dev/full'):
            host_lock.acquire_host_lock(self.host.store).close()

    def test_invalid_policy_prevents_the_start(self):
        self.configure('cpu <= 90 for 10s')
        code, _, err = self.call('run')
        self.assertEqual(2, code)
        self.assertIn('column 8', err)
        self.assertIn('A correct example', err)

    def test_floor_works_with_a_damaged_configuration(self):
        self.host.write('agent.conf', '[secondary_agent\n')
        self.assertEqual(2, self.call('run')[0])
        with mock.patch.object(
                agent_conf.OPTS[[o.name for o in agent_conf.OPTS].index(
                    'state_path')], 'default', self.host.state):
            self.assertEqual(0, self.call('floor')[0])

    def test_status_shows_host_policies_and_secondaries(self):
        self.assertEqual(1, self.call('status')[0])
        self.host.guest(0)
        self.host.guest(1)
        agent = self.make()
        agent.step()
        self.steps(agent, 2, 20.0)
        agent.check()
        agent.parts.floors.add(fakes.UUIDS[1], Reason.POLICY)
        agent.parts.suspects = mock.Mock(verdicts={
            fakes.UUIDS[0]: Suspicion(Verdict.CONFIRMED, 540, 'disk_in'),
            fakes.UUIDS[1]: Suspicion(Verdict.TRIAL, 0)})
        agent.parts.suspects.is_confirmed.return_value = False
        agent.write_status()
        code, out, _ = self.call('status')
        self.assertEqual(0, code)
        for text in ('host node1', 'admission: closed', 'cpu <= 90%',
                     'at the floor (policy)', 'cap ', 'set point 89.0%',
                     ', suspect: confirmed for 540 s more: its disk_in is '
                     'most like the signal\n', ', suspect: trial\n'):
            self.assertIn(text, out)
        code, out, _ = self.call('status', '--json')
        self.assertEqual('node1', json.loads(out)['host'])

    def test_status_shows_signals_and_the_cost_of_sensors(self):
        self.configure('probe:p99_ms <= 20 for 5s\n'
                       'policy = steal <= 5% for 5s')
        self.conf.reload_config_files()
        self.host.guest(0)
        agent = self.make()
        agent.step()
        agent.parts.gauges.costs['steal'].note(0.002)
        with mock.patch.object(agent.parts.gauges, 'total', side_effect={
                'probe:p99_ms': 31.25}.get):
            agent.parts.floors.drop(fakes.UUIDS[0], Reason.ENTRY)
            agent.check()
        agent.parts.gauges.total('probe:p99_ms')
        agent.write_status()
        _, out, _ = self.call('status')
        for text in ('for 5s: failing, is at 31.25, failed 1 of 5 s',
                     'for 5s: unknown, is at unknown, failed 1 of 5 s',
                     '; 50% of the room may be used',
                     'sensors take of one CPU: steal 0.20%\n',
                     'sensor probe:p99_ms: there is no such probe'):
            self.assertIn(text, out)

    def test_status_names_primaries_with_dedicated_cpus_and_evidence(self):
        self.host.guest(1, specs={})
        self.host.libvirt.domains[-1].xml = (
            '<domain><name>instance-00000001</name><vcpu>2</vcpu><cputune>'
            '<vcpupin vcpu="0" cpuset="2"/><vcpupin vcpu="1" cpuset="3"/>'
            '</cputune></domain>')
        agent = self.make()
        agent._domains_changed()
        agent.step()
        agent.write_status()
        _, out, _ = self.call('status')
        self.assertIn('CPUs that are dedicated to primaries: 2-3\n'
                      'primary instance-00000001: CPUs 2-3 are dedicated, by '
                      'pins in its XML\n', out)
        _, out, _ = self.call('status', '--json')
        self.assertEqual([{'primary': 'instance-00000001', 'cpus': [2, 3],
                           'evidence': 'pins in its XML'}],
                         json.loads(out)['dedicated_to'])

    def test_help_names_the_commands(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stdout(
                io.StringIO()) as out:
            command.main(['--help'])
        self.assertIn('floor', out.getvalue())

    def test_stale_status_is_marked(self):
        agent = self.make()
        agent.write_status()
        data = self.host.store.load('status.json')
        # The second time is in the future, after a clock was set back.
        for seen in 0, data['time'] + 3600:
            self.host.store.save('status.json', {**data, 'time': seen})
            code, out, _ = self.call('status')
            self.assertEqual(1, code)
            self.assertIn('STALE', out)


class ImportsTest(unittest.TestCase):
    def test_command_imports_no_large_library(self):
        code = ('import sys; import secondary_scheduler.cmd.agent; '
                'print([m for m in ("numpy", "requests", "keystoneauth1", '
                '"oslo_messaging", "libvirt") if m in sys.modules])')
        done = subprocess.run([sys.executable, '-c', code], text=True,
                              capture_output=True, check=True)
        self.assertEqual('[]', done.stdout.strip())
