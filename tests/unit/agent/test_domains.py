import json
import os
import threading
import unittest
from unittest import mock

from secondary_scheduler.agent import domains, problems, processes
from tests.unit.agent import fakes


def read(xml, uuid=fakes.UUIDS[0]):
    return domains.read_guest(xml, uuid)


class ReadGuest(unittest.TestCase):
    def test_a_secondary(self):
        guest = read(fakes.domain_xml(
            fakes.UUIDS[0], 'i', fakes.nova_metadata(fakes.MARKED)))
        self.assertEqual(
            domains.DomainGuest(fakes.UUIDS[0], 'i', 4, 2, memory_mb=128),
            guest,
        )

    def test_the_ends_of_its_links(self):
        xml = fakes.domain_xml(
            fakes.UUIDS[0], 'i', fakes.nova_metadata(fakes.MARKED))
        taps = ''.join(
            f'<interface type="bridge"><target dev="{name}"/></interface>'
            for name in ('tap1-a', '../../etc', '..', '', 'x' * 16, 'vnet0'))
        guest = read(xml.replace('</domain>', '<devices><disk><target '
                                 f'dev="vda"/></disk>{taps}</devices>'
                                 '</domain>'))
        self.assertEqual(('tap1-a', 'vnet0'), guest.taps)

    def test_its_disks_that_are_on_the_host(self):
        xml = fakes.domain_xml(
            fakes.UUIDS[0], 'i', fakes.nova_metadata(fakes.MARKED))
        disks = ''.join(
            f'<disk type="{kind}"{device}><target dev="{name}"/></disk>'
            for kind, device, name in (
                ('file', '', 'vda'), ('block', ' device="lun"', 'sda'),
                ('network', ' device="disk"', 'vdb'),
                ('file', ' device="cdrom"', 'hda'), ('file', '', '../x'),
                ('volume', ' device="disk"', 'vdc')))
        guest = read(xml.replace(
            '</domain>', f'<devices>{disks}<disk type="file"/>'
            '<interface><target dev="t"/></interface></devices></domain>'))
        self.assertEqual(('disk vda', 'disk sda', 'disk vdc', 'interface t'),
                         guest.devices)

    def test_whether_an_agent_has_limited_it(self):
        metadata = fakes.nova_metadata(fakes.MARKED)
        for text, limited in (
                ('', False), (f'<a:limits xmlns:a="{domains.LIMITS}"/>', True),
                ('<a:limits xmlns:a="x"/>', False)):
            with self.subTest(text):
                self.assertEqual(limited, read(fakes.domain_xml(
                    fakes.UUIDS[0], 'i', metadata + text)).limited)

    def test_primaries(self):
        for metadata in ('', '<x/>', fakes.nova_metadata({}),
                         fakes.nova_metadata(
                             {'lifecycle:preemptable': 'false'})):
            self.assertIsNone(read(fakes.domain_xml(
                fakes.UUIDS[0], 'i', metadata)))

    def test_the_marker_elsewhere_does_not_count(self):
        spec = ('<nova:extraSpec xmlns:nova="http://openstack.org/xmlns/'
                'libvirt/nova/1.1" name="lifecycle:preemptable">true'
                '</nova:extraSpec>')
        self.assertIsNone(read(fakes.domain_xml(fakes.UUIDS[0], 'i', spec)))
        instance = fakes.nova_metadata({}).replace(
            '</nova:owner>', '<nova:extraSpec name="lifecycle:preemptable">'
            'true</nova:extraSpec></nova:owner>')
        self.assertIsNone(read(fakes.domain_xml(
            fakes.UUIDS[0], 'i', instance)))

    def test_what_is_not_clear_is_refused(self):
        good = fakes.nova_metadata(fakes.MARKED)
        xml = fakes.domain_xml(fakes.UUIDS[0], 'i', good)
        twice = good.replace(
            '<nova:extraSpecs>', '<nova:extraSpecs><nova:extraSpec '
            'name="lifecycle:preemptable">false</nova:extraSpec>')
        bad = (xml[:-5], '', '<domain/>', xml + ' ' * (1 << 20),
               '<!DOCTYPE d [<!ENTITY a "b">]>' + xml,
               fakes.domain_xml(fakes.UUIDS[1], 'i', good),
               fakes.domain_xml(fakes.UUIDS[0], 'i', good + good),
               fakes.domain_xml(fakes.UUIDS[0], 'i', twice))
        for text in bad:
            with self.subTest(text[:80]), self.assertRaises(
                    domains.UnreadableDomain):
                read(text)


class Processes(unittest.TestCase):
    def setUp(self):
        self.host = fakes.Host(self)
        self.uuid = self.host.guest(0)

    def find(self, name='instance-00000000'):
        return processes.find(self.host.run_dir, self.uuid, name,
                              self.host.proc)

    def test_found(self):
        self.assertEqual((1000, 77), self.find())

    def test_another_process_has_the_number(self):
        self.host.process(1000, 99, fakes.UUIDS[1], 'instance-00000000')
        self.assertIsNone(self.find())
        self.host.process(1000, 99, self.uuid, 'instance-000000001')
        self.assertIsNone(self.find())

    def test_bad_names_and_files(self):
        self.assertIsNone(self.find('../run/instance-00000000'))
        self.assertIsNone(self.find('nobody'))
        self.host.write('run/instance-00000000.pid', 'x')
        self.assertIsNone(self.find())

    def test_a_zombie_is_gone(self):
        text = self.host.read('proc/1000/stat').replace(') S', ') Z')
        self.host.write('proc/1000/stat', text)
        self.assertIsNone(processes.start_time(1000, self.host.proc))


class Listing(unittest.TestCase):
    def setUp(self):
        self.host = fakes.Host(self)
        self.domains = self.make()

    def make(self):
        return domains.Domains(self.host.libvirt.connect, self.host.store,
                               self.host.run_dir, proc=self.host.proc)

    def start(self, period):
        """Start listing; return what is set after each time."""
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

    def test_secondaries_and_primaries(self):
        uuid = self.host.guest(0)
        self.host.guest(1, specs={})
        self.host.guest(2, metadata='')
        self.domains.refresh()
        self.assertEqual([uuid], self.uuids())
        self.assertEqual(2, self.domains.primaries)
        self.assertEqual('node1.example', self.domains.hostname)

    def test_what_primaries_may_take(self):
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

    def test_which_cpus_primaries_are_pinned_to(self):
        """Those in huge pages as well, as most with dedicated CPUs are."""
        self.host.guest(1, specs={})
        self.host.libvirt.domains[0].xml = (
            '<domain><name>instance-00000001</name>'
            '<memoryBacking><hugepages/></memoryBacking>'
            '<vcpu>2</vcpu><cputune><vcpupin vcpu="0" cpuset="2"/>'
            '<vcpupin vcpu="1" cpuset="3"/></cputune></domain>')
        self.domains.refresh()
        one, = self.domains.others()
        self.assertEqual(({2}, {3}), one.pins.vcpus)
        # What is read anew counts.
        self.host.libvirt.domains[0].xml = (
            '<domain><name>instance-00000001</name><vcpu cpuset="5">1</vcpu>'
            '</domain>')
        self.domains.reread()
        self.domains.refresh()
        one, = self.domains.others()
        self.assertEqual(({5},), one.pins.vcpus)

    def test_the_cpus_that_nova_lets_a_secondary_float_over(self):
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

    def test_xml_is_read_once_a_start_and_after_metadata_changes(self):
        self.host.guest(0)
        domain = self.host.libvirt.domains[0]
        self.domains.refresh()
        self.domains.refresh()
        self.assertEqual(1, domain.described)
        domain.xml = fakes.domain_xml(domain.uuid, domain.name)
        self.host.libvirt.callbacks[23](None, domain, 0)
        self.domains.refresh()
        self.assertEqual([], self.uuids())

    def test_unreadable_is_primary_and_counted(self):
        self.host.guest(0)
        self.host.libvirt.domains[0].xml = '<domain'
        self.host.guest(1)
        self.host.libvirt.domains[1].xml = RuntimeError('gone')
        for _ in range(2):
            self.domains.refresh()
        self.assertEqual([], self.uuids())
        self.assertEqual(2, self.domains.unreadable)
        self.assertEqual(2, self.domains.primaries)

    def test_a_recycled_process_is_nobody(self):
        self.host.guest(0)
        self.domains.refresh()
        self.host.process(1000, 5000, fakes.UUIDS[5], 'other')
        self.assertEqual([], self.uuids())

    def test_the_cache_serves_without_libvirt(self):
        uuid = self.host.guest(0)
        self.domains.refresh()
        self.host.libvirt.error = OSError('dead')
        self.domains = self.make()
        with self.assertRaises(OSError):
            self.domains.refresh()
        self.assertEqual([uuid], self.uuids())
        self.assertEqual((), self.domains.secondaries()[0].devices)

    def test_a_cache_of_another_version_serves_too(self):
        uuid = self.host.guest(0)
        self.domains.refresh()
        data = self.host.store.load('domains.json')
        data['secondaries'][0]['unheard_of'] = 1
        del data['secondaries'][0]['taps']
        self.host.store.save('domains.json', data)
        self.domains = self.make()
        self.assertEqual([uuid], self.uuids())

    def test_the_cache_does_not_trust_numbers(self):
        self.host.guest(0)
        self.domains.refresh()
        self.host.process(1000, 77, fakes.UUIDS[5], 'other')
        self.domains = self.make()
        self.assertEqual([], self.uuids())

    def test_a_spoilt_cache_is_no_cache(self):
        for text in ('{', '[]', json.dumps({'secondaries': [{'a': 1}]})):
            self.host.write('state/domains.json', text)
            self.domains = self.make()
            self.assertEqual([], self.uuids())

    def test_paused(self):
        self.host.guest(0)
        self.host.libvirt.domains[0]._state = 3
        self.domains.refresh()
        self.assertTrue(self.domains.secondaries()[0].paused)

    def test_the_thread_survives_libvirt(self):
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

    def test_a_new_process_lists_at_once(self):
        listed = self.start(60)
        self.assertEqual([], self.uuids())
        listed.clear()
        self.host.guest(0)
        self.assertTrue(listed.wait(5))

    def test_a_process_that_is_not_qemu_yet_is_looked_for_again(self):
        self.host.guest(0)
        name = 'proc/1000/cmdline'
        cmdline = self.host.read(name)
        self.host.write(name, 'libvirtd')
        with mock.patch.object(problems, 'PATIENCE_S', 0.0), (
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

    def test_one_that_stays_unknown_is_not_looked_for_all_the_time(self):
        self.host.guest(0)
        self.host.write('proc/1000/cmdline', 'another')
        with mock.patch.object(domains, '_SETTLES_S', 0.0):
            listed = self.start(60)
            listed.clear()
            self.assertFalse(listed.wait(0.5))

    def test_events_list_at_once(self):
        self.domains.refresh()
        self.domains._again.clear()
        self.host.libvirt.callbacks[0](None, None, 0, 0)
        self.assertTrue(self.domains._again.is_set())


class Storing(unittest.TestCase):
    def test_failures_are_told_not_raised(self):
        host = fakes.Host(self)
        self.assertFalse(host.store.save('x', {'a': object()}))
        host.store.directory = os.path.join(host.root, 'nowhere')
        self.assertFalse(host.store.save('x', {}))
        self.assertEqual({}, host.store.load('x'))

    def test_what_a_full_disk_refused_is_written_later(self):
        host = fakes.Host(self)
        host.store.directory = os.path.join(host.root, 'nowhere')
        with self.assertLogs('secondary_scheduler.agent.store') as logs:
            for count in range(3):
                host.store.save('x', {'a': count})
            self.assertFalse(host.store.catch_up())
            os.mkdir(host.store.directory)
            self.assertTrue(host.store.catch_up())
        self.assertEqual({'a': 2}, host.store.load('x'))
        self.assertEqual(['x'], os.listdir(host.store.directory))
        # It is told of once, and that it is over.
        self.assertEqual(['ERROR', 'WARNING'],
                         [record.levelname for record in logs.records])
