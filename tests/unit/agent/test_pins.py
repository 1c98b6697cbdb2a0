# SPDX-License-Identifier: Apache-2.0

import os
import shutil
import tempfile
import unittest
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.agent import pins
from tests.unit import fuzzing

#: An instance of two dedicated CPUs and two that float, as Nova writes it.
MIXED = '''<domain><vcpu placement='static'>4</vcpu><cputune>
<shares>4096</shares>
<vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' cpuset='3'/>
<vcpupin vcpu='2' cpuset='0-1,8-11'/><vcpupin vcpu='3' cpuset='0-1,8-11'/>
<emulatorpin cpuset='2-3'/><iothreadpin iothread='1' cpuset='5'/>
</cputune></domain>'''


def domain(vcpus, emulator, specs=None, properties=None):
    """Return the XML of a domain; ``specs`` None are of an older release."""
    lines = ''.join(f'<nova:extraSpec name="{name}">{value}</nova:extraSpec>'
                    for name, value in (specs or {}).items())
    image = ''.join(f'<nova:property name="{name}">{value}</nova:property>'
                    for name, value in (properties or {}).items())
    return (
        '<domain><metadata><nova:instance '
        'xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">'
        '<nova:flavor name="f">'
        + f'<nova:extraSpecs>{lines}</nova:extraSpecs>' * (specs is not None)
        + f'</nova:flavor><nova:image uuid=""><nova:properties>{image}'
        '</nova:properties></nova:image></nova:instance></metadata>'
        f'<vcpu placement="static">{len(vcpus)}</vcpu><cputune>' + ''.join(
            f'<vcpupin vcpu="{number}" cpuset="{cpus}"/>'
            for number, cpus in enumerate(vcpus))
        + f'<emulatorpin cpuset="{emulator}"/>'
        f'<iothreadpin iothread="1" cpuset="{emulator}"/></cputune></domain>')


def read(xml):
    return pins.read_pins(ElementTree.fromstring(xml))


def own(xml, *shared):
    return pins.own_cpus(read(xml), {frozenset(one) for one in shared})


class Xml(unittest.TestCase):
    def test_shared_cpus_are_not_dedicated(self):
        self.assertEqual({2, 3, 5}, own(MIXED))

    def test_isolated_emulator_threads_have_a_dedicated_cpu(self):
        self.assertEqual({2, 7}, own(
            '<domain><vcpu>1</vcpu><cputune><vcpupin vcpu="0" cpuset="2"/>'
            '<emulatorpin cpuset="7"/></cputune></domain>'))

    def test_floating_guest_has_no_dedicated_cpu(self):
        for xml in ('<domain><vcpu>2</vcpu></domain>',
                    '<domain><vcpu cpuset="0-3">2</vcpu></domain>',
                    '<domain/>', '<domain><vcpu/><cputune/></domain>'):
            self.assertEqual(frozenset(), own(xml), xml)

    def test_floating_guest_as_wide_as_its_set_has_no_dedicated_cpu(self):
        for vcpus, cpus in ((1, '4'), (2, '4'), (2, '4-5'), (4, '0-3')):
            self.assertEqual(frozenset(), own(
                f'<domain><vcpu cpuset="{cpus}">{vcpus}</vcpu></domain>'))

    def test_vcpus_that_float_over_a_cell_have_no_dedicated_cpu(self):
        """Nova lets those of instances with huge pages or NUMA nodes."""
        for vcpus in (2, 3, 4, 5):
            self.assertEqual(frozenset(), own(domain(vcpus * ['0-3'], '0-3')))
        self.assertEqual(frozenset(), own(domain(
            ['0-3', '0-3', '4-7', '4-7'], '0-7')))

    def test_one_cpu_for_each_vcpu_is_dedicated(self):
        self.assertEqual({2, 3}, own(domain(['2', '3'], '2-3')))
        self.assertEqual({2}, own(domain(['2'], '2')))
        # They cannot get out of the way of a secondary.
        self.assertEqual({2}, own(domain(['2', '2'], '2')))

    def test_pin_to_a_set_over_which_guests_float_is_not_dedicated(self):
        self.assertEqual({3}, own(domain(['2', '3'], '2-3'), {2}))
        self.assertEqual({2, 3}, own(domain(['2', '3'], '2-3'), {2, 3}))

    def test_single_pinned_vcpu_has_a_dedicated_cpu(self):
        self.assertEqual({2}, own(
            '<domain><vcpu cpuset="0-7">2</vcpu><cputune>'
            '<vcpupin vcpu="1" cpuset="2"/></cputune></domain>'))

    def test_numbers_of_pinned_vcpus_may_have_gaps(self):
        for count in ('', '8'):
            self.assertEqual({2, 3}, own(
                f'<domain><vcpu>{count}</vcpu><cputune>'
                '<vcpupin vcpu="5" cpuset="2"/><vcpupin vcpu="7" cpuset="3"/>'
                '</cputune></domain>'))

    def test_flavor_outranks_pins_and_sets_over_which_guests_float(self):
        large = {'hw:mem_page_size': 'large'}
        for specs, expected in (
                ({'hw:cpu_policy': 'dedicated'}, {0, 2}),
                ({'hw:cpu_policy': 'shared', 'hw:numa_nodes': '2'}, set()),
                ({'hw:numa_nodes': '2'}, set()), (large, set()),
                ({'resources:PCPU': '2'}, {0, 2}),
                ({**large, 'resources:PCPU': '0'}, set()),
                ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '1'},
                 {2}),
                ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^1'},
                 {0}),
                ({'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': 'yes',
                  'hw:cpu_realtime_mask': '^0'}, {2}),
                ({'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': 'yes',
                  'hw:emulator_threads_policy': 'isolate'}, {0, 2, 5})):
            self.assertEqual(expected, own(domain(
                ['0', '2'], '5', specs), {0}), specs)

    def test_dedicated_vcpus_keep_a_wide_set(self):
        """The flavor promises them CPUs: which of these is not known."""
        self.assertEqual({2, 3}, own(domain(
            ['2-3', '2-3'], '2-3', {'hw:cpu_policy': 'dedicated'})))

    def test_image_says_what_the_flavor_does_not(self):
        for specs, expected in (({}, {0, 2}),
                                ({'hw:mem_page_size': 'large'}, {0, 2}),
                                ({'hw:cpu_policy': 'shared',
                                  'hw:numa_nodes': '2'}, set())):
            self.assertEqual(expected, own(domain(
                ['0', '2'], '0,2', specs, {'hw_cpu_policy': 'dedicated'})))
        self.assertEqual({2}, own(domain(
            ['0', '2'], '0,2', {'hw:cpu_policy': 'mixed',
                                'hw:cpu_realtime': 'true',
                                'hw:cpu_realtime_mask': '0'},
            {'hw_cpu_realtime_mask': '^0'})))
        self.assertEqual(frozenset(), own(domain(
            ['0', '2'], '0,2', {}, {'hw_numa_nodes': '2'})))

    def test_only_isolated_emulator_threads_have_a_dedicated_cpu(self):
        for policy, expected in (('isolate', {2, 5}), ('share', {2})):
            self.assertEqual(expected, own(domain(['2'], '5', {
                'hw:cpu_policy': 'dedicated',
                'hw:emulator_threads_policy': policy})), policy)

    def test_pins_by_hand_outrank_a_flavor_for_which_nova_pins_nothing(self):
        for specs in ({}, {'hw:cpu_policy': 'shared'}):
            self.assertEqual({2}, own(domain(['2', '0-3'], '0-3', specs)))

    def test_pins_count_where_the_flavor_cannot_be_understood(self):
        for specs in ({'hw:cpu_policy': 'of tomorrow'},
                      {'hw:cpu_policy': 'mixed'},
                      {'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': 'no'},
                      {'hw:cpu_policy': 'mixed',
                       'hw:cpu_dedicated_mask': 'x'},
                      {'hw:cpu_policy': 'mixed',
                       'hw:cpu_dedicated_mask': '7'}):
            self.assertEqual({2}, own(domain(['2', '0-3'], '0-3', specs)),
                             specs)
        shared = domain(['2', '0-3'], '0-3', {'hw:mem_page_size': 'large'})
        self.assertEqual(frozenset(), own(shared))
        metadata = shared[shared.index('<metadata>') + 10:
                          shared.index('</metadata>')]
        for text, other in (
                (metadata, 2 * metadata),       # two instances
                ('extraSpec', 'other'), ('hw:mem_page_size', 'other'),
                ('</nova:extraSpecs>', '<nova:extraSpec '
                 'name="hw:mem_page_size"/></nova:extraSpecs>')):
            self.assertEqual({2}, own(shared.replace(text, other)), other)
        # A domain of a release that does not write extra specs.
        self.assertEqual({2}, own(domain(['2', '0-3'], '0-3', None)))

    @fuzzing.fuzzed
    @given(fuzzing.spoilt(MIXED, ('cpuset=', '<vcpupin', '99999999', '-'))
           | fuzzing.spoilt(domain(['2', '0-3'], '5', {
               'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^1',
               'hw:emulator_threads_policy': 'isolate'}), (
                   '^', ',', '-', 'mixed', 'resources:PCPU', 'hw:')))
    def test_anything(self, text):
        try:
            root = ElementTree.fromstring(text)
        except (ElementTree.ParseError, ValueError):
            return
        for cpu in pins.own_cpus(pins.read_pins(root), ()):
            self.assertTrue(0 <= cpu < 1 << 16)


class Threads(unittest.TestCase):
    def setUp(self):
        self.proc = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.proc)

    def thread(self, number, name, cpus):
        path = f'{self.proc}/7/task/{number}'
        os.makedirs(path, exist_ok=True)
        with open(path + '/status', 'w') as file:
            file.write(f'Name:\t{name}\nState:\tS (sleeping)\n'
                       f'Cpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n')

    def test_masks_of_threads(self):
        self.thread(7, 'qemu-system-x86', '0-7')
        self.thread(8, 'CPU 0/KVM', '2')
        self.thread(9, 'CPU 1/TCG', '3')
        self.thread(10, 'IO iothread1', '5')
        self.thread(11, 'worker', 'nonsense')
        found, threads = pins.read_threads(7, self.proc)
        self.assertEqual([{2}, {3}], sorted(found.vcpus, key=min))
        self.assertEqual({2, 3, 5}, pins.own_cpus(found, ()))
        self.assertEqual({2, 3}, pins.own_cpus(
            found, {frozenset({5}), frozenset(range(8))}))
        self.assertEqual((pins.NO_PINS, ()), pins.read_threads(8, self.proc))

    @fuzzing.fuzzed
    @given(st.text(max_size=40))
    def test_anything(self, text):
        os.makedirs(f'{self.proc}/7/task/7', exist_ok=True)
        with open(f'{self.proc}/7/task/7/status', 'wb') as file:
            file.write(text.encode(errors='surrogatepass'))
        self.assertIsInstance(pins.read_threads(7, self.proc)[0], pins.Pins)
