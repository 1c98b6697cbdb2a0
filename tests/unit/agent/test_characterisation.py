# SPDX-License-Identifier: Apache-2.0

"""Runs of a characterisation, and what they leave behind."""

import unittest
from unittest import mock

from secondary_scheduler.agent import (
    cgroup_handles,
    characterisation,
    cpu_pins,
    speeds,
    store,
)
from secondary_scheduler.agent.sensors.probes import ProbeError
from secondary_scheduler.cpu_affinity import characterisation as plan
from secondary_scheduler.cpu_affinity.measurements import Place
from tests.unit.agent import fakes
from tests.unit.agent.measured_host import Kernel, Killed, MeasuredHost

ONE, OTHER = fakes.UUIDS[:2]
CLASSES = {ONE: 'a', OTHER: 'b'}
SEATS = plan.Seats(0, {Place.SAME_CPU: 0, Place.SAME_CACHE: 1}, ())
#: Instants at which a characterisation is interrupted or killed, half of them
#: with each version of control groups.
INSTANTS = 20
#: Pauses of a run: one before it, and those between looks for primaries.
WAITS = 1 + 5


class RunsTest(MeasuredHost, unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.before = self.fingerprint()

    def fingerprint(self):
        """Return all control files; an empty line is an empty set."""
        return {path: text.strip()
                for path, text in self.host.fingerprint().items()}

    def execute(self, pairs, units=None):
        runs = plan.plan_runs((ONE, OTHER), SEATS, 2, pairs)
        results = self.make(units).execute(runs, lambda *_: None)
        return {one.key: one.values
                for one in plan.measured_slowdowns(results, CLASSES)}

    def test_pairs_show_sharing_of_time_and_of_a_cache(self):
        found = self.execute(True, 'count {uuid}')
        self.assertEqual(4, len(found))
        for (_, _, place), values in found.items():
            self.assertEqual(2, len(values))
            for value in values:
                self.assertAlmostEqual(
                    2 if place is Place.SAME_CPU else 1.25, value)
        self.assertEqual(self.before, self.fingerprint())

    def test_without_a_count_of_work_only_sharing_of_time_is_known(self):
        found = self.execute(False)
        self.assertEqual({Place.SAME_CPU}, {place for _, _, place in found})
        self.assertEqual(2 * len(plan.GENERATORS), len(found))
        for values in found.values():
            for value in values:
                self.assertAlmostEqual(2, value, 5)

    def test_other_secondaries_are_at_the_floor(self):
        seen = []
        self.make().execute(
            [plan.Run(0, {ONE: 3})], lambda *_: seen.extend(
                (self.kernel.cpus(0), self.kernel.is_floored(0),
                 self.kernel.is_floored(1))))
        self.assertEqual([{3}, False, True], seen)

    def test_interrupt_at_any_instant_restores_the_host(self):
        runs = plan.plan_runs((ONE, OTHER), SEATS, 3, True)
        self.assertGreater(2 * len(runs), INSTANTS)
        for instant in range(self.version - 1, INSTANTS, 2):
            self.kernel.waits, self.kernel.interrupt_at = 0, instant
            with self.subTest(instant), self.assertRaises(
                    characterisation.Interrupted):
                self.make().execute(runs, lambda *_: None)
            self.assertEqual(self.before, self.fingerprint())

    def test_release_restores_the_host_after_a_kill_at_any_write(self):
        runs = plan.plan_runs((ONE, OTHER), SEATS, 1, True)
        with mock.patch.object(cgroup_handles, 'put',
                               wraps=cgroup_handles.put) as put:
            self.make().execute(runs, lambda *_: None)
        self.assertGreater(put.call_count, INSTANTS)
        changed = 0
        for instant in range(0, put.call_count,
                             2 * put.call_count // INSTANTS):
            with self.subTest(instant):
                self.kill_at_write(runs, instant)
                changed += self.before != self.fingerprint()
                again = self.make()
                again.present_guests((ONE, OTHER))
                again.restore()
                self.assertEqual(self.before, self.fingerprint())
        self.assertGreater(changed, 0)

    def kill_at_write(self, runs, instant):
        """Execute runs up to a write; nothing is written after it."""
        writes = []

        def put(*arguments):
            writes.append(arguments)
            if len(writes) > instant:
                raise Killed
            real_put(*arguments)

        def save(*arguments):
            if len(writes) > instant:
                raise Killed
            return real_save(*arguments)

        real_put, real_save = cgroup_handles.put, store.StateStore.save
        with (mock.patch.object(cgroup_handles, 'put', put),
              mock.patch.object(store.StateStore, 'save', save),
              self.assertRaises(Killed)):
            self.make().execute(runs, lambda *_: None)

    def test_a_primary_that_starts_ends_the_runs(self):
        runs = plan.plan_runs((ONE, OTHER), SEATS, 1, True)

        before = self.sets(0)

        def start_primary(run, speeds):
            self.host.guest(5, specs={})

        with self.assertRaisesRegex(characterisation.CharacterisationError,
                                    f'primaries run here.*{fakes.UUIDS[5]}'):
            self.make().execute(runs, start_primary)
        self.assertEqual(before, self.sets(0))
        self.assertFalse(self.kernel.is_floored(1))

    def test_a_primary_that_starts_within_a_run_ends_it(self):
        """Also the last one."""
        run = plan.Run(0, {ONE: 0})
        for waits, seen in ((2, 3), (WAITS, WAITS)):
            self.kernel.waits = 0

            def wait(seconds, waits=waits, real=Kernel.wait):
                ended = real(self.kernel, seconds)
                if self.kernel.waits == waits:
                    self.host.guest(5, specs={})
                return ended

            with (self.subTest(waits), mock.patch.object(
                    self.kernel, 'wait', wait), self.assertRaisesRegex(
                        characterisation.CharacterisationError,
                        'primaries run here')):
                self.make().execute([run], lambda *_: None)
            self.assertLessEqual(self.kernel.waits, seen)
            self.host.libvirt.domains.pop()

    def test_a_guest_that_ends_is_named(self):
        self.host.libvirt.domains.pop()
        with self.assertRaisesRegex(characterisation.CharacterisationError,
                                    f'{OTHER} is no running secondary'):
            self.make().execute([plan.Run(0, {OTHER: 0})], lambda *_: None)

    def test_a_guest_without_a_known_speed_is_named_after_its_first_run(self):
        with (mock.patch.object(self.kernel, 'write_times'),
              self.assertRaisesRegex(characterisation.CharacterisationError,
                                     f'speed of {ONE} is not known.*idle')):
            self.execute(True)
        self.assertEqual(WAITS, self.kernel.waits)
        self.assertEqual(self.before, self.fingerprint())

    def test_work_that_cannot_be_counted_is_named_after_the_first_run(self):
        with (mock.patch.object(speeds, 'ask_probe',
                                side_effect=ProbeError('no number')),
              self.assertRaisesRegex(
                  characterisation.CharacterisationError,
                  f'speed of {ONE} is not known: count {ONE}: no number')):
            self.execute(True, 'count {uuid}')
        self.assertEqual(WAITS, self.kernel.waits)
        self.assertEqual(self.before, self.fingerprint())

    def test_libvirt_that_does_not_answer_ends_the_runs(self):
        self.host.libvirt.error = OSError('dead')
        with self.assertRaisesRegex(characterisation.CharacterisationError,
                                    'primaries are not known: dead'):
            self.make().present_guests((ONE,))

    def test_a_set_that_the_kernel_does_not_apply_is_named(self):
        with (mock.patch.object(self.kernel, 'cpus',
                                lambda n: frozenset({0, 1})),
              self.assertRaisesRegex(cpu_pins.PinError,
                                     f"{ONE} cannot be confined .* 0-1, not")):
            self.make().execute([plan.Run(0, {ONE: 3})], lambda *_: None)
        self.assertEqual(self.before, self.fingerprint())

    def test_guests_without_a_common_cpu_are_refused(self):
        make = self.make()
        guests = make.present_guests((ONE, OTHER))
        self.assertEqual(frozenset({1, 2}), characterisation.usable_cpus(
            guests, frozenset({1, 2, 9}), self.host.proc))
        self.make_sets(1, '3')
        with self.assertRaisesRegex(characterisation.CharacterisationError,
                                    'no CPU in common'):
            characterisation.usable_cpus(guests, frozenset({1, 2}),
                                         self.host.proc)


class RunsOfVersion2Test(RunsTest):
    version = 2
