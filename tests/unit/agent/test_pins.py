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

    def test_as_many_cpus_as_vcpus_are_dedicated(self):
        xml = '<domain><vcpu cpuset="4-5">2</vcpu></domain>'
        self.assertEqual({4, 5}, own(xml))
        # But not if Nova lets other guests float over the same set.
        self.assertEqual(frozenset(), own(xml, {4, 5}))
        self.assertEqual({4, 5}, own(xml, {4, 5, 6}))

    def test_single_pinned_vcpu_has_a_dedicated_cpu(self):
        self.assertEqual({2}, own(
            '<domain><vcpu cpuset="0-7">2</vcpu><cputune>'
            '<vcpupin vcpu="1" cpuset="2"/></cputune></domain>'))

    @fuzzing.fuzzed
    @given(fuzzing.spoilt(MIXED, ('cpuset=', '<vcpupin', '99999999', '-')))
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
