# SPDX-License-Identifier: Apache-2.0

import dataclasses
import os

from tests.unit.agent import cases, fakes


class Memory(cases.ActuatorCase):
    pressed = '0'

    def setUp(self):
        super().setUp()
        self.host.guest(0)
        self.file = self.host.memory_limit(0)
        self.first = self.host.read(self.file)
        self.guest, = self.secondaries()

    def test_press_and_relax(self):
        before = self.host.fingerprint()
        self.assertTrue(self.actuator.press_memory(self.guest))
        self.assertEqual(self.pressed, self.host.read(self.file))
        again = self.make()
        self.assertTrue(again.press_memory(self.guest))
        self.assertEqual(self.pressed, self.host.read(self.file))
        self.assertTrue(again.relax_memory(self.guest))
        self.assertEqual(self.first, self.host.read(self.file))
        self.assertEqual(before, self.host.fingerprint())

    def test_release_restores_the_limit(self):
        self.actuator.press_memory(self.guest)
        self.assertTrue(self.make().release(self.guest))
        self.assertEqual(self.first, self.host.read(self.file))

    def test_guest_that_was_not_pressed_is_left_alone(self):
        self.host.write(self.file, '77')
        self.assertTrue(self.actuator.relax_memory(self.guest))
        self.assertEqual('77', self.host.read(self.file))

    def test_missing_file_is_a_failure(self):
        os.remove(self.host.path(self.file))
        self.assertFalse(self.actuator.press_memory(self.guest))
        self.assertTrue(self.actuator.floor(self.guest))

    def test_primary_is_never_pressed(self):
        """The group must be the guest's own, even if the list is wrong."""
        self.host.guest(1, specs={})
        before = self.host.fingerprint()
        wrong = dataclasses.replace(self.guest, pid=1001, started=78)
        self.assertFalse(self.actuator.press_memory(wrong))
        self.assertEqual(before, self.host.fingerprint())


class MemoryV2(Memory):
    version = 2
    pressed = str(fakes.HELD + (32 << 20))

    def test_limit_does_not_creep_up(self):
        self.actuator.press_memory(self.guest)
        self.host.write(self.file.replace('high', 'current'), str(1 << 30))
        self.actuator.press_memory(self.guest)
        self.assertEqual(self.pressed, self.host.read(self.file))

    def test_lower_limit_stays(self):
        self.host.write(self.file, '1000')
        self.actuator.press_memory(self.guest)
        self.assertEqual('1000', self.host.read(self.file))
