# SPDX-License-Identifier: Apache-2.0

"""Speed of guests: what cannot be read is unknown, not 0."""

import os
import unittest
from unittest import mock

from secondary_scheduler.agent import cpu_model, domains, speeds
from secondary_scheduler.agent.device_use import DeviceMeter
from secondary_scheduler.agent.sensors.base import Reading, Sensor
from secondary_scheduler.agent.speeds import Counts
from secondary_scheduler.cpu_affinity.characterisation import Speed
from secondary_scheduler.cpu_affinity.workload_profiles import ResourceUse
from tests.unit.agent import fakes


class RunTimesTest(unittest.TestCase):

    def setUp(self):
        self.host = fakes.Host(self)
        for thread, name, times in (
                (1, 'CPU 0/KVM', '3000 500 7'), (2, 'CPU 1/TCG', '40 8 7'),
                (3, 'qemu-system-x86', '9 9 9'), (4, 'worker', '1 1 1')):
            self.host.write(f'proc/1/task/{thread}/comm', name + '\n')
            self.host.write(f'proc/1/task/{thread}/schedstat', times)

    def test_kaf_2_3_times_of_vcpus_are_summed(self):
        self.assertEqual((3040, 508),
                         speeds.read_run_times(1, self.host.proc))

    def test_missing_and_damaged_times_are_unknown(self):
        self.host.write('proc/1/task/2/schedstat', '40 -8 7')
        self.assertIsNone(speeds.read_run_times(1, self.host.proc))
        os.remove(self.host.path('proc/1/task/2/schedstat'))
        self.assertIsNone(speeds.read_run_times(1, self.host.proc))
        self.assertIsNone(speeds.read_run_times(2, self.host.proc))
        self.host.write('proc/3/task/3/comm', 'qemu-system-x86\n')
        self.assertIsNone(speeds.read_run_times(3, self.host.proc))


class SpeedTest(unittest.TestCase):

    use = ResourceUse(None, network=3.0)

    def test_speed_is_by_second(self):
        self.assertEqual(
            Speed(ResourceUse(50.0, network=3.0), 3.0, 20.0),
            speeds.speed_between(
                Counts(1.0, 0, 10 ** 9, 100.0),
                Counts(3.0, 10 ** 9, 3 * 10 ** 9, 140.0), self.use))

    def test_unknown_and_reset_counters_are_unknown(self):
        whole = Counts(3.0, 10 ** 9, 10 ** 9, 140.0)
        for before in (Counts(1.0, None, None, None),
                       Counts(1.0, 10 ** 10, 10 ** 10, 10 ** 10)):
            self.assertEqual(Speed(self.use, None, None),
                             speeds.speed_between(before, whole, self.use))
        # A guest that did not run is no slow one.
        self.assertEqual(
            Speed(ResourceUse(0.0), None, None), speeds.speed_between(
                Counts(1.0, 7, 7, 7.0), Counts(3.0, 7, 7, 7.0),
                ResourceUse(None)))


class FixedSensor(Sensor):
    """Sensor with the readings that it is made with."""

    def __init__(self, readings, resources=None):
        self.readings = readings
        self.resources = resources or tuple(readings)

    def read(self, guests):
        if isinstance(self.readings, Exception):
            raise self.readings
        return self.readings


class DeviceTest(unittest.TestCase):

    def setUp(self):
        self.guests = [domains.Secondary(uuid, 'name', 4, 1, id=1, pid=1,
                                         started=3)
                       for uuid in fakes.UUIDS[:2]]
        one, other = fakes.UUIDS[:2]
        self.meter = DeviceMeter([
            FixedSensor({'net_in': Reading(9.0, {one: 2.0, other: 1.0}),
                         'net_out': Reading(9.0, {one: 3.0})}),
            FixedSensor(OSError('no disk'), ('disk_in', 'disk_out')),
            FixedSensor({'membw': Reading(40.0), 'llc': Reading(50.0)}),
            FixedSensor(AssertionError('it is not read'), ('memory',))])

    def test_kaf_1_7_use_of_devices_or_unknown(self):
        found = self.meter.read(self.guests)
        self.assertEqual({fakes.UUIDS[0]: ResourceUse(None, network=5.0),
                          fakes.UUIDS[1]: ResourceUse(None)}, found)

    def test_memory_bandwidth_of_the_host_is_that_of_a_single_guest(self):
        self.assertEqual(
            [ResourceUse(None, 40.0, 5.0)],
            list(self.meter.read(self.guests[:1]).values()))


class PerfTest(unittest.TestCase):

    def test_count_is_read(self):
        self.assertEqual(4711.0, speeds.parse_perf(
            '\n4711,,instructions:HG,1003,100.00,,\n'))

    def test_what_is_not_counted_is_unknown(self):
        for value in ('<not supported>', '<not counted>', '', '1.5e3'):
            self.assertIsNone(speeds.parse_perf(
                f'{value},,instructions:HG,0,100.00,,'))
        self.assertIsNone(speeds.parse_perf('Error: no permission'))

    def test_missing_perf_is_no_error(self):
        with mock.patch.object(speeds.subprocess, 'Popen',
                               side_effect=FileNotFoundError):
            self.assertFalse(speeds.has_instructions())
            meter = speeds.SpeedMeter('/proc', DeviceMeter(()))
        self.assertEqual('run delay', meter.metric)
        self.assertIn('no counters of instructions', meter.unknown[0])

    def test_kaf_7_counter_that_is_not_supported_is_unknown(self):
        """A program that behaves as perf does without counters."""
        folder = fakes.Host(self)
        folder.write('perf', '#!/bin/sh\n'
                     'trap "echo \'<not supported>,,instructions:HG,,,,\' >&2;'
                     ' exit 0" INT\nwhile :; do sleep 0.01; done\n')
        os.chmod(folder.path('perf'), 0o700)
        with mock.patch.dict(os.environ, PATH=folder.root + os.pathsep
                             + os.environ['PATH']):
            self.assertFalse(speeds.has_instructions())


class UnitsTest(unittest.TestCase):

    def setUp(self):
        self.guest = domains.Secondary(
            fakes.UUIDS[0], 'name', 4, 1, id=1, pid=1, started=3)
        self.now = iter((10.0, 14.0))

    def meter(self, units):
        return speeds.SpeedMeter('/nonexistent', DeviceMeter(()), units,
                                 lambda: next(self.now))

    def test_kaf_24_command_counts_for_each_guest(self):
        counts = iter((b'7\n', b'27\n'))
        with mock.patch('secondary_scheduler.agent.sensors.probes._run',
                        side_effect=lambda *_: next(counts)) as run:
            found = self.meter('count --of {uuid}').measure(
                [self.guest], 4.0, lambda seconds: None)
        self.assertEqual({self.guest.uuid: Speed(
            ResourceUse(None), None, 5.0)}, found)
        self.assertEqual(['count', '--of', self.guest.uuid],
                         run.call_args.args[0])

    def test_command_without_a_number_is_unknown_with_the_reason(self):
        meter = self.meter('echo {uuid}')
        found = meter.measure([self.guest], 4.0, lambda seconds: None)
        self.assertIsNone(found[self.guest.uuid].work)
        self.assertRegex(meter.problem,
                         f'echo {self.guest.uuid}: .*not a number')

    def test_command_is_tried_again(self):
        answers = iter((b'oops', b'7', b'', b'27'))
        with mock.patch('secondary_scheduler.agent.sensors.probes._run',
                        side_effect=lambda *_: next(answers)):
            found = self.meter('count').measure([self.guest], 4.0,
                                                lambda seconds: None)
        self.assertEqual(5.0, found[self.guest.uuid].work)


class CpuModelTest(unittest.TestCase):

    def test_name_is_read_on_each_architecture(self):
        host = fakes.Host(self)
        self.assertIsNone(cpu_model.read_cpu_model(host.proc))
        for text, name in (
                ('processor\t: 0\nmodel name\t: AMD EPYC\n\nmodel name\t: X',
                 'AMD EPYC'),
                ('CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n', '0x41 0xd0c'),
                ('processor : 0\nmodel name :\n', None)):
            host.write('proc/cpuinfo', text)
            self.assertEqual(name, cpu_model.read_cpu_model(host.proc))


if __name__ == '__main__':
    unittest.main()
