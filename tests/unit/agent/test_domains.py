# SPDX-License-Identifier: Apache-2.0

import json
import os
import threading
import unittest
from unittest import mock

from secondary_scheduler.agent import domains, problems
from tests.unit.agent import fakes


class Listing(unittest.TestCase):
    def setUp(self):
        self.host = fakes.Host(self)
        self.domains = self.make()

    def make(self):
        return domains.Domains(self.host.libvirt.connect, self.host.store,
                               self.host.run_dir, proc=self.host.proc)

    def start(self, period):
        """Start listing; return the event set after each listing."""
        listed = threading.Event()
        self.domains = domains.Domains(
            self.host.libvirt.connect, self.host.store, self.host.run_dir,
            period, self.host.proc, listed.set)
        self.domains.start()
        self.addCleanup(self.domains.stop)
        self.assertTrue(listed.wait(5))
        return listed

    def uuids(self):
        return [guest.uuid for guest in self.domains.secondaries()]

    def test_listing_separates_secondaries_and_primaries(self):
        uuid = self.host.guest(0)
        self.host.guest(1, specs={})
        self.host.guest(2, metadata='')
        self.domains.refresh()
        self.assertEqual([uuid], self.uuids())
        self.assertEqual(2, self.domains.primaries)
        self.assertEqual('node1.example', self.domains.hostname)

    def test_memory_of_primaries(self):
        self.host.guest(0)
        memory = '<memory unit="KiB">2048</memory>'
        xml = '<domain>{}<name>{}</name>{}</domain>'
        for n, text in enumerate((
                '', memory, memory.replace('KiB', 'GiB'), memory + memory,
                memory + '<memoryBacking><hugepages/></memoryBacking>',
                '<memory>x</memory>', memory), 1):
            self.host.guest(n, specs={})
            self.host.libvirt.domains[n].xml = xml.format(
                text, f'instance-{n:08x}', '')
        os.remove(self.host.path('run', 'instance-00000007.pid'))
        self.domains.refresh()
        self.assertEqual(
            [(1001, 0), (1002, 2 << 20), (1003, 0), (1004, 0), (1005, 0),
             (1006, 0)],
            [(one.pid, one.memory) for one in self.domains.others()])
        self.host.guest(7, specs={}, listed=False)
        self.domains.refresh()
        self.assertIn((1007, 2 << 20), [
            (one.pid, one.memory) for one in self.domains.others()])
        os.remove(self.host.path('proc', '1002', 'stat'))
        self.host.guest(2, specs={}, listed=False, pid=2002, started=5)
        self.domains.refresh()
        found = {one.pid for one in self.domains.others()}
        self.assertEqual((True, False), (2002 in found, 1002 in found))

    def test_pins_of_primaries(self):
        """Most guests with dedicated CPUs have huge pages."""
        self.host.guest(1, specs={})
        self.host.libvirt.domains[0].xml = (
            '<domain><name>instance-00000001</name>'
            '<memoryBacking><hugepages/></memoryBacking>'
            '<vcpu>2</vcpu><cputune><vcpupin vcpu="0" cpuset="2"/>'
            '<vcpupin vcpu="1" cpuset="3"/></cputune></domain>')
        self.domains.refresh()
        one, = self.domains.others()
        self.assertEqual(({2}, {3}), one.pins.vcpus)
        # The latest XML counts.
        self.host.libvirt.domains[0].xml = (
            '<domain><name>instance-00000001</name><vcpu cpuset="5">1</vcpu>'
            '</domain>')
        self.domains.reread()
        self.domains.refresh()
        one, = self.domains.others()
        self.assertEqual(({5},), one.pins.vcpus)

    def test_cpus_over_which_a_secondary_floats(self):
        self.host.guest(0)
        domain = self.host.libvirt.domains[0]
        for text, cpus in (('0-1,4', '0-1,4'), ('x', ''), ('5-', '')):
            domain.xml = fakes.domain_xml(
                fakes.UUIDS[0], 'instance-00000000', fakes.nova_metadata(
                    fakes.MARKED)).replace('<vcpu>',
                                           f'<vcpu cpuset="{text}">')
            self.domains.reread()
            self.domains.refresh()
            guest, = self.domains.secondaries()
            self.assertEqual(cpus, guest.cpus)

    def test_xml_is_parsed_once_per_start_and_metadata_change(self):
        self.host.guest(0)
        domain = self.host.libvirt.domains[0]
        self.domains.refresh()
        self.domains.refresh()
        self.assertEqual(1, domain.described)
        domain.xml = fakes.domain_xml(domain.uuid, domain.name)
        self.host.libvirt.callbacks[23](None, domain, 0)
        self.domains.refresh()
        self.assertEqual([], self.uuids())

    def test_unreadable_domain_counts_as_a_primary(self):
        self.host.guest(0)
        self.host.libvirt.domains[0].xml = '<domain'
        self.host.guest(1)
        self.host.libvirt.domains[1].xml = RuntimeError('gone')
        for _ in range(2):
            self.domains.refresh()
        self.assertEqual([], self.uuids())
        self.assertEqual(2, self.domains.unreadable)
        self.assertEqual(2, self.domains.primaries)

    def test_recycled_pid_is_no_secondary(self):
        self.host.guest(0)
        self.domains.refresh()
        self.host.process(1000, 5000, fakes.UUIDS[5], 'other')
        self.assertEqual([], self.uuids())

    def test_saved_secondaries_are_known_without_libvirt(self):
        uuid = self.host.guest(0)
        self.domains.refresh()
        self.host.libvirt.error = OSError('dead')
        self.domains = self.make()
        with self.assertRaises(OSError):
            self.domains.refresh()
        self.assertEqual([uuid], self.uuids())
        self.assertEqual((), self.domains.secondaries()[0].devices)

    def test_secondaries_saved_by_another_version_are_known(self):
        uuid = self.host.guest(0)
        self.domains.refresh()
        data = self.host.store.load('domains.json')
        data['secondaries'][0]['unheard_of'] = 1
        for name in ('taps', 'workload_class', 'image', 'flavor'):
            del data['secondaries'][0][name]
        self.host.store.save('domains.json', data)
        self.domains = self.make()
        self.assertEqual([uuid], self.uuids())

    def test_saved_pid_is_verified(self):
        self.host.guest(0)
        self.domains.refresh()
        self.host.process(1000, 77, fakes.UUIDS[5], 'other')
        self.domains = self.make()
        self.assertEqual([], self.uuids())

    def test_damaged_cache_is_ignored(self):
        for text in ('{', '[]', json.dumps({'secondaries': [{'a': 1}]})):
            self.host.write('state/domains.json', text)
            self.domains = self.make()
            self.assertEqual([], self.uuids())

    def test_paused_secondary(self):
        self.host.guest(0)
        self.host.libvirt.domains[0]._state = 3
        self.domains.refresh()
        self.assertTrue(self.domains.secondaries()[0].paused)

    def test_listing_survives_errors_of_libvirt(self):
        uuid = self.host.guest(0)
        changed = self.start(0.01)
        self.host.libvirt.error = OSError('restarting')
        for _ in range(500):
            if self.host.libvirt.closed:
                break
            changed.clear()
            changed.wait(1)
        self.assertEqual([uuid], self.uuids())
        self.assertGreater(self.host.libvirt.closed, 0)
        self.host.libvirt.error = None
        for _ in range(500):
            changed.clear()
            changed.wait(1)
            if self.domains.listed:
                break
        self.assertTrue(self.domains.listed)

    def test_new_process_triggers_a_listing(self):
        listed = self.start(60)
        self.assertEqual([], self.uuids())
        listed.clear()
        self.host.guest(0)
        self.assertTrue(listed.wait(5))

    def test_process_that_is_not_qemu_yet_is_verified_later(self):
        self.host.guest(0)
        name = 'proc/1000/cmdline'
        cmdline = self.host.read(name)
        self.host.write(name, 'libvirtd')
        with mock.patch.object(problems, 'LOG_DELAY_S', 0.0), (
                self.assertLogs('secondary_scheduler.agent.domains')) as logs:
            listed = self.start(60)
            for _ in range(3):
                listed.clear()
                self.assertTrue(listed.wait(5))
        self.assertEqual(1, len(logs.records))
        self.assertEqual([], self.uuids())
        self.host.write(name, cmdline)
        for _ in range(3):
            listed.clear()
            listed.wait(5)
        self.assertEqual([fakes.UUIDS[0]], self.uuids())

    def test_unverified_process_does_not_cause_endless_listings(self):
        self.host.guest(0)
        self.host.write('proc/1000/cmdline', 'another')
        with mock.patch.object(domains, '_SETTLES_S', 0.0):
            listed = self.start(60)
            listed.clear()
            self.assertFalse(listed.wait(0.5))

    def test_event_triggers_a_listing(self):
        self.domains.refresh()
        self.domains._again.clear()
        self.host.libvirt.callbacks[0](None, None, 0, 0)
        self.assertTrue(self.domains._again.is_set())
