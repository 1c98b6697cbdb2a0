# SPDX-License-Identifier: Apache-2.0

"""Measurement of memory that secondaries write to."""

import types
import unittest

from secondary_scheduler.agent import memory
from tests.unit.agent import fakes

ONE, TWO = fakes.UUIDS[:2]


class FakeDomain:
    """A domain to be measured; ``rate`` is None while unknown."""

    def __init__(self, uuid, rate, job=None):
        self.uuid, self.rate, self.job = uuid, rate, job or {}
        self.error = None
        self.looks = []

    def UUIDString(self):
        return self.uuid

    def jobStats(self, flags):
        return self.job

    def maxMemory(self):
        return 1024 << 10

    def startDirtyRateCalc(self, seconds, flags):
        if self.error:
            raise self.error
        self.looks.append(seconds)


class FakeConnection:
    def __init__(self, *domains):
        self.domains = {one.uuid: one for one in domains}
        self.closed = 0
        self.alive = True

    def isAlive(self):
        return self.alive

    def lookupByUUIDString(self, uuid):
        if uuid not in self.domains:
            raise LookupError('no domain with that UUID')
        return self.domains[uuid]

    def domainListGetStats(self, domains, stats, flags):
        return [(one, {} if one.rate is None else {
            'dirtyrate.calc_status': 2,
            'dirtyrate.megabytes_per_second': one.rate}) for one in domains]

    def close(self):
        self.closed += 1


class MemoryMeter(unittest.TestCase):
    def setUp(self):
        self.domains = [FakeDomain(ONE, 40), FakeDomain(TWO, 0)]
        self.connection = FakeConnection(*self.domains)
        self.guests = [ONE, TWO]
        self.waited = []
        self.opened = 0
        self.now = 1000.0
        self.meter = memory.MemoryMeter(
            self.connect, lambda: [types.SimpleNamespace(uuid=uuid)
                                   for uuid in self.guests],
            90.0, self.waited.append, lambda: self.now)

    def connect(self):
        self.opened += 1
        if isinstance(self.connection, Exception):
            raise self.connection
        return self.connection

    def seen(self):
        return [self.meter.dirty(uuid) for uuid in (ONE, TWO)]

    def test_all_guests_are_measured_at_once(self):
        self.assertEqual([None, None], self.seen())
        self.meter.measure()
        self.meter.measure()
        self.assertEqual([(40, 200), (0, 0)], self.seen())
        self.assertEqual([1.5, 5.5, 1.5, 5.5], self.waited)
        self.assertEqual([1, 5, 1, 5], self.domains[0].looks)
        self.assertEqual(1, self.opened)

    def test_no_guest_to_measure(self):
        self.meter.measure()
        self.guests = []
        self.meter.measure()
        self.assertEqual(2, len(self.waited))

    def test_failure_of_one_guest_hides_no_other(self):
        self.domains[0].error = OSError('cannot acquire state change lock')
        self.domains[1].rate = 7
        self.meter.measure()
        self.assertEqual([None, (7, 35)], self.seen())
        self.domains[0].error, self.domains[1].rate = None, None
        self.guests += ['gone']
        self.meter.measure()
        self.assertEqual([(40, 200), (7, 35)], self.seen())
        self.assertEqual(0, self.connection.closed)

    def test_guest_throttled_meanwhile_is_unknown(self):
        asked = iter(([ONE, TWO], [TWO]))
        meter = memory.MemoryMeter(
            self.connect, lambda: [types.SimpleNamespace(uuid=uuid)
                                   for uuid in next(asked)],
            90.0, self.waited.append, lambda: self.now)
        meter.measure()
        self.assertIsNone(meter.dirty(ONE))
        self.assertEqual((0, 0), meter.dirty(TWO))

    def test_old_measurement_is_unknown(self):
        self.meter.measure()
        self.now += 91
        self.assertEqual([None, None], self.seen())
        self.assertEqual(0, self.meter.floor_s(ONE))

    def test_floor_time_of_a_migration_that_does_not_converge(self):
        self.meter.measure()
        self.assertEqual(0, self.meter.floor_s(ONE), 'nothing has moved yet')
        for bandwidth, seconds in ((32.0, 64.0), (60.0, 0)):
            self.meter.copied = bandwidth
            self.assertEqual([seconds, 0], [
                self.meter.floor_s(uuid) for uuid in (ONE, TWO)])

    def test_missed_guest_keeps_its_last_measurement(self):
        self.meter.measure()
        self.now += 40
        self.guests = [TWO]
        self.meter.measure()
        self.assertEqual([(40, 200), (0, 0)], self.seen())
        self.now += 51
        self.assertEqual([None, (0, 0)], self.seen())

    def test_dead_connection_is_replaced(self):
        self.meter.measure()
        for one in self.domains:
            one.error = OSError('end of file while reading')
        self.connection.alive = False
        with self.assertLogs(memory.__name__, 'WARNING') as logs:
            self.meter.measure()
            self.meter.measure()
        self.assertEqual(1, len(logs.output), 'it is logged once')
        self.assertEqual(2, self.connection.closed)
        for one in self.domains:
            one.error = None
        self.connection.alive = True
        self.meter.measure()
        self.assertEqual([(40, 200), (0, 0)], self.seen())
        self.assertEqual(3, self.opened)

    def test_failed_connection_is_logged(self):
        self.connection = OSError('refused')
        with self.assertLogs(memory.__name__, 'WARNING'):
            self.meter.measure()
        self.assertEqual([None, None], self.seen())

    def test_copying_rate_of_migrations(self):
        def came(mb_s, operation=4, normal=900):
            return {'operation': operation, 'memory_bps': mb_s << 20,
                    'memory_normal_bytes': normal, 'memory_total': 1000}

        self.meter.measure()
        self.assertIsNone(self.meter.copied)
        for jobs, copied in (
                ((came(100), {}), 100), ((came(100), came(300)), 200),
                # Neither a restore from disk nor empty pages change the
                # rate of migrations.
                ((came(900, operation=3), came(900, normal=400)), 200)):
            for domain, job in zip(self.domains, jobs, strict=True):
                domain.job = job
            self.meter.measure()
            self.assertEqual(copied, self.meter.copied)
