# SPDX-License-Identifier: Apache-2.0

"""``secondary-agent characterise`` on a host of files."""

import contextlib
import io
import json
import os
import signal
import time
import unittest
from unittest import mock

from oslo_config import cfg

from secondary_scheduler.agent import (
    domain_xml,
    generators,
    host_lock,
    speeds,
    wiring,
)
from secondary_scheduler.agent.characterisation import Characterisation
from secondary_scheduler.agent.domains import Domains
from secondary_scheduler.agent.profile_files import read_profiles
from secondary_scheduler.cmd import agent, characterise
from secondary_scheduler.model.topology import SharedCache, Topology
from tests.unit.agent import fakes
from tests.unit.agent.measured_host import MeasuredHost

ONE, OTHER = fakes.UUIDS[:2]
_PARTS = (frozenset({0}), frozenset({1}))
_ALL = (frozenset({0, 1}),)
TWO_CORES = Topology(_PARTS, (SharedCache(3, _ALL[0]),), _ALL, _ALL, _ALL)


class CharacteriseTest(MeasuredHost, unittest.TestCase):
    version = 1

    def setUp(self):
        super().setUp()
        self.host.write('agent.conf', f"""
[secondary_agent]
host = node1
state_path = {self.host.state}
libvirt_run_dir = {self.host.run_dir}
""")
        self.output = self.host.path('profiles.json')
        self.host.write('proc/cpuinfo', 'model name : EPYC\n')
        hierarchy = self.host.hierarchy()
        for place, value in (
                ('agent.cgroups.Hierarchy', lambda *_: hierarchy),
                ('agent.cpu_topology.read_topology', lambda cpus: TWO_CORES),
                ('cmd.characterise.load_sensors', lambda *_: {}),
                ('agent.generators.find_program', lambda: 'stress-ng'),
                ('cmd.characterise.libvirt_opener',
                 lambda uri, read_only: self.host.libvirt.connect),
                ('cmd.characterise.threading',
                 mock.Mock(Event=lambda: self.kernel))):
            self.enterContext(mock.patch(f'secondary_scheduler.{place}',
                                         value))
        for made, defaults in (
                (speeds.SpeedMeter, (None, lambda: self.kernel.now)),
                (Characterisation, (lambda: self.kernel.now,))):
            self.enterContext(mock.patch.object(
                made.__init__, '__defaults__', defaults))
        self.before = self.fingerprint()

    def fingerprint(self):
        return {path: text.strip()
                for path, text in self.host.fingerprint().items()}

    def call(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with (mock.patch.object(cfg, 'CONF', cfg.ConfigOpts()),
              contextlib.redirect_stdout(out),
              contextlib.redirect_stderr(err)):
            code = agent.main([
                'characterise', *words, '--output', self.output,
                '--config-file', self.host.path('agent.conf')])
        self.assertEqual(self.before, self.fingerprint())
        self.assertEqual([], [name for name in os.listdir(self.host.root)
                              if name.endswith('.new')])
        return code, out.getvalue(), err.getvalue()

    def refused(self, *words):
        """Return why a call is refused; nothing is measured or written."""
        code, out, err = self.call(*words)
        self.assertEqual((1, '', 0), (code, out, self.kernel.waits))
        self.assertFalse(os.path.exists(self.output))
        return err

    def test_pairs_are_measured_with_medians_and_the_host(self):
        code, out, err = self.call(f'{ONE}=web', f'{OTHER}=batch', '--pairs',
                                   '--units', 'count {uuid}')
        self.assertEqual(0, code, err)
        self.assertIn('profiles of 2 classes', out)
        found = read_profiles(self.output)
        self.assertAlmostEqual(2, found.time_sharing.entry('web', 'batch'))
        self.assertAlmostEqual(1.25, found.space_sharing.entry('batch',
                                                               'web'))
        self.assertIsNone(found.time_sharing.entry('web', 'web'))
        measured = found.measurement
        self.assertEqual(('EPYC', os.uname().release, 'units', 10.0), (
            measured.cpu_model, measured.kernel, measured.metric,
            measured.seconds))
        self.assertEqual({3}, {len(one.values)
                               for one in measured.slowdowns})
        self.assertIn('SMT sibling: one thread per core', measured.unknown)
        lines = err.splitlines()
        self.assertEqual('12 runs of 12 s: about 2.4 minutes in all',
                         lines[0])
        self.assertEqual('[3/12] web and batch, same CPU, slow-down 2.00, '
                         'slow-down 2.00; about 1.8 minutes left', lines[3])
        self.assertEqual(13, len(lines))

    def test_one_guest_is_measured_beside_generators(self):
        code, _, err = self.call(f'{ONE}=web', '--repeats', '1',
                                 '--seconds', '5')
        self.assertEqual(0, code, err)
        with open(self.output) as file:
            found = json.load(file)
        self.assertEqual('web', found['classes'][0])
        self.assertIn('stress-ng:cpu-100', found['classes'])
        self.assertEqual([2.0], sorted({
            value for value in found['time_sharing'][0][1:]}))
        self.assertIsNone(found['space_sharing'])
        for text in ('work: no counters of instructions here',
                     'network: no sensor measures'):
            self.assertIn(text, '; '.join(found['measurement']['unknown']))
        self.assertEqual(50.0, found['uses']['stress-ng:cpu-50']['cpu'])
        self.assertEqual({'cpu': 100.0}, found['uses']['web'])
        self.assertEqual('run delay', found['measurement']['metric'])

    def test_class_is_that_of_the_flavor_or_of_image_and_flavor(self):
        self.assertIn(f'say {ONE}=CLASS', self.refused(ONE))
        self.host.libvirt.domains[0].xml = fakes.domain_xml(
            ONE, 'instance-00000000', fakes.nova_metadata(
                fakes.MARKED | {'lifecycle:workload_class': 'batch'}))
        self.assertEqual(0, self.call(ONE, '--repeats', '1')[0])
        self.assertIn('batch', read_profiles(self.output).uses)

    def test_host_with_primaries_is_refused(self):
        uuid = self.host.guest(5, specs={})
        self.before = self.fingerprint()
        self.assertRegex(self.refused(f'{ONE}=web'),
                         f'primaries run here.*{uuid}')

    def test_host_with_open_admission_is_refused_while_reports_count(self):
        status = {'time': 1000.0, 'admission': True}
        with self.assertRaisesRegex(
                characterise.CharacterisationError,
                'host disable.*counts for 5 s more'):
            characterise.check_closed(status, 15.0, lambda: 1010.0)
        for closed, now in ((status, 1015.0), ({}, 1000.0), (
                status | {'admission': False}, 1000.0),
                ({'admission': True}, 1000.0)):
            characterise.check_closed(closed, 15.0, lambda now=now: now)
        self.host.store.save(wiring.STATUS, status | {'time': time.time()})
        self.assertIn('admission of secondaries is open',
                      self.refused(f'{ONE}=web'))

    def test_guest_with_limits_of_devices_is_refused(self):
        limits = (f'<metadata><x:limits xmlns:x="{domain_xml.LIMITS}"/>'
                  '</metadata>')
        one = self.host.libvirt.domains[0]
        self.assertIn('<metadata>', one.xml)
        one.xml = one.xml.replace('<metadata>', limits[:-len('</metadata>')])
        self.assertRegex(self.refused(f'{ONE}=a', f'{OTHER}=b', '--pairs'),
                         f'links of {ONE} have limits.*agent release')

    def test_running_agent_is_refused(self):
        with contextlib.closing(host_lock.acquire_host_lock(self.host.store)):
            self.assertIn('another secondary-agent',
                          self.refused(f'{ONE}=web'))

    def test_missing_generators_are_refused_unless_pairs_are_measured(self):
        with mock.patch.object(
                generators, 'find_program',
                side_effect=generators.GeneratorError('install it')):
            self.assertIn('install it', self.refused(f'{ONE}=web'))
            self.assertEqual(0, self.call(
                f'{ONE}=a', f'{OTHER}=b', '--pairs', '--repeats', '1')[0])

    def test_wrong_requests_are_refused(self):
        for words, text in (
                ((f'{ONE}=a', '--pairs'), 'needs at least two'),
                ((f'{ONE}=a', f'{ONE}=b', '--pairs'), 'named once'),
                ((f'{fakes.UUIDS[7]}=a',), 'is no running secondary')):
            with self.subTest(words):
                self.assertIn(text, self.refused(*words))
        self.output = self.host.path('none', 'profiles.json')
        self.assertIn('No such file or directory', self.refused(f'{ONE}=a'))

    def test_signal_ends_the_runs_and_restores_the_host(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.kernel.interrupt_at = None
            handler = signal.getsignal(number)

            def note(*_, number=number):
                signal.raise_signal(number)

            with self.subTest(number), mock.patch.object(
                    characterise._Progress, 'note', note):
                code, out, err = self.call(f'{ONE}=a', f'{OTHER}=b',
                                           '--pairs')
                self.assertEqual((130, ''), (code, out))
                self.assertIn('interrupted', err)
                self.assertFalse(os.path.exists(self.output))
                self.assertEqual(handler, signal.getsignal(number))

    def leave_changes(self):
        """Change the host as a command does that is killed in a run."""
        runner = self.make()
        guests = runner.present_guests((ONE, OTHER))
        runner._actuator.floor(guests[1])
        runner._pins.pin(guests[0], frozenset({2}))
        self.assertNotEqual(self.before, self.fingerprint())

    def test_what_a_killed_command_left_is_restored_first(self):
        self.leave_changes()
        code, _, err = self.call(f'{ONE}=a', f'{OTHER}=b', '--pairs',
                                 '--repeats', '1')
        self.assertEqual(0, code, err)

    def test_release_restores_what_a_killed_command_left(self):
        self.leave_changes()
        with (mock.patch.object(cfg, 'CONF', cfg.ConfigOpts()),
              mock.patch.object(wiring, 'libvirt_opener',
                                return_value=self.host.libvirt.connect),
              contextlib.redirect_stdout(io.StringIO()) as out):
            self.assertEqual(0, agent.main([
                'release', '--config-file', self.host.path('agent.conf')]))
        self.assertEqual('2 of 2 secondaries have their limits back\n',
                         out.getvalue())
        self.assertEqual(self.before, self.fingerprint())

    def test_agent_restores_what_a_killed_command_left(self):
        self.leave_changes()
        self.assertEqual({'0-3', '2'}, self.sets(0))
        hierarchy = self.host.hierarchy()
        dedicated = wiring.make_dedicated_cpus(
            mock.Mock(), hierarchy, self.host.store)
        known = Domains(self.host.libvirt.connect, self.host.store,
                        self.host.run_dir, proc=self.host.proc)
        known.refresh()
        dedicated.find_dedicated(known.others(), known.secondaries())
        dedicated.narrow_sets(known.secondaries())
        self.assertEqual({'0-3'}, self.sets(0))


if __name__ == '__main__':
    unittest.main()
