# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import threading
import time
import unittest
from xml.sax import saxutils

from secondary_scheduler.agent import device_limits, throttles
from secondary_scheduler.agent.device_limits import NOTHING, IoLimits
from secondary_scheduler.agent.domains import Secondary
from tests.unit.agent import fakes

MB = 1000000


def allowed(**values):
    """Return the wanted limits that lead to these settings."""
    return IoLimits(**{name: 1.1 * value for name, value in values.items()})


def record(devices):
    return ('<limits>' + saxutils.escape(json.dumps(devices))
            + '</limits>')


class Case(unittest.TestCase):
    def setUp(self):
        self.libvirt = fakes.Hypervisor()
        self.now = 1000.0
        self.rereads = 0
        self.made = self.make()

    def make(self, **kwargs):
        return throttles.Throttles(self.libvirt.connect, self.reread,
                                   clock=lambda: self.now, **kwargs)

    def reread(self):
        self.rereads += 1

    def guest(self, n=1, **devices):
        """Make a domain; return it and its secondary."""
        devices = {'disks': ('vda',), 'taps': ('tap1',), **devices}
        domain = fakes.Devices(fakes.UUIDS[n], n, **devices)
        self.libvirt.domains.append(domain)
        return domain, Secondary(fakes.UUIDS[n], f'i{n}', 5, 1, n, 100 + n, 7,
                                 **devices)

    def want(self, guest, limits, timeout=5.0):
        """Set limits, and wait until all threads are idle."""
        self.made.request_limits(guest, limits)
        self.settle(timeout)

    def settle(self, timeout=5.0):
        end = time.monotonic() + timeout
        while any(state.busy for state in self.made._guests.values()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.001)

    def limited(self, domain, guest, limits):
        """Set limits as the agent does: record, list the record, set."""
        self.want(guest, limits)
        guest = dataclasses.replace(guest, limited=domain.noted is not None)
        self.want(guest, limits)
        return guest


class Setting(Case):
    def test_libvirt_is_not_called_without_limits(self):
        self.libvirt.error = AssertionError
        _, guest = self.guest()
        self.want(guest, NOTHING)
        self.assertEqual({}, self.made.problems)

    def test_limits_of_disk_and_interface(self):
        domain, guest = self.guest()
        self.limited(domain, guest, allowed(
            net_in=2 * MB, net_out=MB, disk_in=5 * MB, disk_out=6 * MB,
            disk_in_iops=70))
        self.assertEqual({'write_bytes_sec': 5 * MB, 'read_bytes_sec': 6 * MB,
                          'write_iops_sec': 70}, domain.tunes['vda'])
        # Traffic that the host receives enters the guest.
        self.assertEqual({'inbound.average': 2000, 'outbound.average': 1000,
                          'outbound.burst': 128}, domain.bandwidths['tap1'])

    def test_devices_share_the_limit(self):
        domain, guest = self.guest(disks=('vda', 'vdb'), taps=('t1', 't2'))
        self.limited(domain, guest, allowed(disk_in=MB, net_out=MB))
        self.assertEqual([{'write_bytes_sec': MB // 2}] * 2,
                         list(domain.tunes.values()))
        self.assertEqual([{'outbound.average': 500,
                           'outbound.burst': 128}] * 2,
                         list(domain.bandwidths.values()))

    def test_no_limit_is_set_before_the_record_is_listed(self):
        domain, guest = self.guest()
        domain.tunes['vda'] = {'read_iops_sec': 9}
        self.want(guest, allowed(disk_in=MB))
        self.assertEqual(['setMetadata'], [one[0] for one in domain.calls])
        self.assertEqual(1, self.rereads)
        noted = device_limits.parse_record(domain.noted)
        self.assertEqual(9, noted['disk vda']['read_iops_sec'])
        # Neither in the next step, while the record is not listed.
        self.want(guest, allowed(disk_in=MB))
        self.assertEqual(1, len(domain.calls))
        self.want(dataclasses.replace(guest, limited=True),
                  allowed(disk_in=MB))
        self.assertEqual({'read_iops_sec': 9, 'write_bytes_sec': MB},
                         domain.tunes['vda'])

    def test_guest_without_devices_is_left_alone(self):
        # A new listing would set limits again, without end.
        domain, guest = self.guest(disks=(), taps=())
        for _ in range(3):
            self.want(guest, allowed(disk_in=MB, net_in=MB))
        self.assertEqual([], domain.calls)
        self.assertEqual(0, self.rereads)
        self.assertEqual({}, self.made.problems)

    def test_unreadable_devices_are_reported(self):
        domain, guest = self.guest()
        domain.tunes, domain.bandwidths = {}, {}
        self.want(guest, allowed(disk_in=MB))
        self.assertEqual(0, self.rereads)
        self.assertIn(guest.uuid, self.made.problems)

    def test_small_changes_are_not_set(self):
        domain, guest = self.guest()
        guest = self.limited(domain, guest, allowed(disk_in=MB))
        writes = len(domain.calls)
        for factor in (1.02, 1.04, 0.97):
            self.want(guest, allowed(disk_in=factor * MB))
        self.assertEqual(writes, len(domain.calls))
        # Small changes add up.
        self.want(guest, allowed(disk_in=1.06 * MB))
        self.assertEqual(1.06 * MB, domain.tunes['vda']['write_bytes_sec'])

    def test_interface_is_raised_in_large_steps_only(self):
        domain, guest = self.guest()
        guest = self.limited(domain, guest, allowed(net_in=MB))
        for factor, average in ((1.15, 1000), (1.25, 1250), (1.15, 1150)):
            self.want(guest, allowed(net_in=factor * MB))
            self.assertEqual({'inbound.average': average},
                             domain.bandwidths['tap1'])

    def test_limit_changed_by_another_program_is_set_again(self):
        domain, guest = self.guest()
        guest = self.limited(domain, guest, allowed(disk_in=MB, net_in=MB))
        domain.tunes['vda'].clear()
        domain.bandwidths['tap1'].clear()
        self.now += 59
        self.want(guest, allowed(disk_in=MB, net_in=MB))
        self.assertEqual({}, domain.tunes['vda'])
        self.now += 2
        self.want(guest, allowed(disk_in=MB, net_in=MB))
        self.assertEqual({'write_bytes_sec': MB}, domain.tunes['vda'])
        self.assertEqual({'inbound.average': 1000},
                         domain.bandwidths['tap1'])

    def test_attached_device_is_recorded_and_limited(self):
        domain, guest = self.guest()
        guest = self.limited(domain, guest, allowed(disk_in=MB))
        domain.tunes['vdb'] = {'write_bytes_sec': 7}
        guest = dataclasses.replace(guest, disks=('vda', 'vdb'))
        self.want(guest, allowed(disk_in=MB))
        self.assertEqual({'write_bytes_sec': MB // 2}, domain.tunes['vda'])
        self.assertEqual({'write_bytes_sec': 7}, domain.tunes['vdb'])
        noted = device_limits.parse_record(domain.noted)
        self.assertEqual((0, 7), tuple(
            noted[f'disk {name}']['write_bytes_sec']
            for name in ('vda', 'vdb')))

    def test_dry_run_sets_nothing(self):
        self.made = self.make(dry_run=True)
        self.libvirt.error = AssertionError
        _, guest = self.guest()
        with self.assertLogs(throttles.LOG.logger, 'INFO') as logged:
            for limit in (MB, 1.01 * MB, 2 * MB):
                self.made.request_limits(guest, allowed(disk_in=limit))
        self.assertEqual(2, len(logged.output))
        self.assertIn('disk_in=2200000', logged.output[-1])


class FlavorLimits(Case):
    """Limits that Nova sets from a flavor are never exceeded."""

    def tune(self, was, **limits):
        domain, guest = self.guest()
        domain.tunes['vda'] = dict(was)
        guest = self.limited(domain, guest, allowed(**limits))
        found = dict(domain.tunes['vda'])
        self.want(guest, NOTHING)
        self.assertEqual(was, domain.tunes['vda'])
        return found

    def test_lower_limit_of_the_flavor_stays(self):
        self.assertEqual({'write_bytes_sec': 5, 'read_bytes_sec': 10},
                         self.tune({'write_bytes_sec': 5}, disk_in=10,
                                   disk_out=10))

    def test_burst_of_the_flavor_is_lowered(self):
        self.assertEqual(
            {'write_bytes_sec': 10, 'write_bytes_sec_max': 10},
            self.tune({'write_bytes_sec': 50, 'write_bytes_sec_max': 90},
                      disk_in=10))

    def test_flavor_that_limits_reads_and_writes_together(self):
        self.assertEqual({'total_bytes_sec': 10, 'read_iops_sec': 3},
                         self.tune({'total_bytes_sec': 50}, disk_in=10,
                                   disk_out=20, disk_out_iops=3))

    def test_lower_limit_of_an_interface_stays(self):
        domain, guest = self.guest()
        was = {'inbound.average': 50, 'inbound.peak': 90,
               'inbound.burst': 30, 'outbound.average': 5}
        domain.bandwidths['tap1'] = dict(was)
        guest = self.limited(domain, guest, allowed(net_in=10000,
                                                    net_out=10000))
        self.assertEqual({'inbound.average': 10, 'outbound.average': 5},
                         domain.bandwidths['tap1'])
        self.want(guest, allowed(net_in=60000))
        self.assertEqual(was, domain.bandwidths['tap1'])


class Restoring(Case):
    def test_originals_are_restored_when_no_limit_is_wanted(self):
        domain, guest = self.guest()
        guest = self.limited(domain, guest, allowed(disk_in=MB, net_out=MB))
        self.want(guest, NOTHING)
        self.assertEqual(({}, {}, None), (
            domain.tunes['vda'], domain.bandwidths['tap1'], domain.noted))
        calls = len(domain.calls)
        self.want(dataclasses.replace(guest, limited=False), NOTHING)
        self.assertEqual(calls, len(domain.calls))

    def test_originals_are_restored_exactly(self):
        domain, guest = self.guest()
        domain.tunes['vda'] = {'write_bytes_sec': 1000}
        guest = self.limited(domain, guest, allowed(disk_in=990))
        self.want(guest, NOTHING)
        self.assertEqual({'write_bytes_sec': 1000}, domain.tunes['vda'])

    def test_record_of_another_agent_is_restored(self):
        """The guest has arrived by a migration or a resume."""
        domain, guest = self.guest()
        domain.noted = record({'disk vda': {'write_bytes_sec': 9},
                               'interface tap1': {}})
        domain.tunes['vda'] = {'write_bytes_sec': 3}
        domain.bandwidths['tap1'] = {'inbound.average': 4}
        self.want(dataclasses.replace(guest, limited=True), NOTHING)
        self.assertEqual(({'write_bytes_sec': 9}, {}, None), (
            domain.tunes['vda'], domain.bandwidths['tap1'], domain.noted))

    def test_own_limit_is_not_taken_for_the_original(self):
        domain, guest = self.guest()
        domain.noted = record({'disk vda': {}, 'interface tap1': {}})
        domain.tunes['vda'] = {'write_bytes_sec': 3}
        guest = dataclasses.replace(guest, limited=True)
        self.want(guest, allowed(disk_in=MB))
        self.assertEqual({'write_bytes_sec': MB}, domain.tunes['vda'])

    def test_next_agent_restores_after_a_crash_at_any_call(self):
        """The next agent restores all, whichever call was the last."""
        was = {'write_bytes_sec': 5 * MB}
        for last in range(8):
            self.setUp()
            domain, guest = self.guest()
            domain.tunes['vda'] = dict(was)
            left = [last]

            def die(name, left=left):
                left[0] -= 1
                if left[0] < 0:
                    raise SystemError('killed')

            domain.before = die
            guest = self.limited(domain, guest, allowed(disk_in=MB,
                                                        net_in=MB))
            self.now += 100
            self.want(guest, NOTHING)
            domain.before = lambda name: None
            self.made = self.make()
            self.want(dataclasses.replace(
                guest, limited=domain.noted is not None), NOTHING)
            with self.subTest(last):
                self.assertEqual((was, {}, None), (
                    domain.tunes['vda'], domain.bandwidths['tap1'],
                    domain.noted))

    def test_release_restores_and_waits(self):
        domain, guest = self.guest()
        guest = self.limited(domain, guest, allowed(disk_in=MB))
        self.make().release(guest)
        self.assertEqual(({}, None), (domain.tunes['vda'], domain.noted))
        self.make().release(guest)
        self.libvirt.error = OSError('dead')
        with self.assertRaises(OSError):
            self.make().release(guest)

    def test_detached_device_needs_no_restoring(self):
        domain, guest = self.guest()
        guest = self.limited(domain, guest, allowed(disk_in=MB, net_in=MB))
        del domain.bandwidths['tap1']
        self.want(dataclasses.replace(guest, taps=()), NOTHING)
        self.assertEqual(({}, None), (domain.tunes['vda'], domain.noted))


class ForeignDomains(Case):
    def test_other_domain_with_the_uuid_is_left_alone(self):
        domain, guest = self.guest()
        domain.number = 9
        self.want(dataclasses.replace(guest, limited=True),
                  allowed(disk_in=MB))
        self.assertEqual([], domain.calls)

    def test_domain_restarted_meanwhile_is_left_alone(self):
        domain, guest = self.guest()

        def restart(name):
            domain.number = 9

        domain.before = restart
        self.limited(domain, guest, allowed(disk_in=MB))
        self.assertEqual(['setMetadata'], [one[0] for one in domain.calls])

    def test_foreign_metadata_prevents_limits(self):
        for text in ('<limits>{"disk vda": 3}</limits>', '<limits>[]</limits>',
                     '<limits/>', '<limits', '<!DOCTYPE a><limits>{}</limits>',
                     '<limits>{"disk vda": {"read_bytes_sec": "x"}}</limits>'):
            with self.subTest(text):
                self.setUp()
                domain, guest = self.guest()
                domain.noted = text
                guest = dataclasses.replace(guest, limited=True)
                self.want(guest, allowed(disk_in=MB))
                self.assertEqual([], domain.calls)
                self.assertIn('cannot be read',
                              self.made.problems[guest.uuid])


class Failing(Case):
    def test_failure_of_one_device_does_not_stop_another(self):
        domain, guest = self.guest()
        domain.fail['setInterfaceParameters'] = OSError('no sch_htb')
        guest = self.limited(domain, guest, allowed(disk_in=MB, net_in=MB))
        self.assertEqual({'write_bytes_sec': MB}, domain.tunes['vda'])
        self.assertIn('no sch_htb', self.made.problems[guest.uuid])
        # It is retried later.
        domain.fail.clear()
        self.want(guest, allowed(disk_in=MB, net_in=MB))
        self.assertEqual({}, domain.bandwidths['tap1'])
        self.now += 6
        self.want(guest, allowed(disk_in=MB, net_in=MB))
        self.assertEqual({'inbound.average': 1000},
                         domain.bandwidths['tap1'])
        self.assertEqual({}, self.made.problems)

    def test_limits_are_set_when_libvirt_is_back(self):
        domain, guest = self.guest()
        self.libvirt.error = OSError('dead')
        guest = self.limited(domain, guest, allowed(disk_in=MB))
        self.assertEqual({guest.uuid: 'dead'}, self.made.problems)
        self.libvirt.error = None
        self.now += 6
        self.limited(domain, guest, allowed(disk_in=MB))
        self.assertEqual({'write_bytes_sec': MB}, domain.tunes['vda'])

    def test_hanging_guest_delays_no_other(self):
        hang = threading.Event()
        self.addCleanup(hang.set)
        slow, first = self.guest(1)
        slow.before = lambda name: hang.wait()
        self.made.request_limits(first, allowed(disk_in=MB))
        self.made.request_limits(first, allowed(disk_in=2 * MB))
        for n in range(2, 5):
            domain, guest = self.guest(n)
            self.made.request_limits(
                dataclasses.replace(guest, limited=True),
                allowed(disk_in=MB))
            end = time.monotonic() + 5
            while domain.tunes['vda'] != {'write_bytes_sec': MB}:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.001)
        self.assertEqual([], slow.calls)
        # The limits wanted last are set as soon as possible.
        hang.set()
        self.settle()
        self.limited(slow, first, allowed(disk_in=2 * MB))
        self.assertEqual({'write_bytes_sec': 2 * MB}, slow.tunes['vda'])

    def test_limits_wanted_meanwhile_are_set_afterwards(self):
        domain, guest = self.guest()
        guest = self.limited(domain, guest, allowed(disk_in=MB))
        began, go = threading.Event(), threading.Event()

        def wait(name):
            began.set()
            go.wait()

        domain.before = wait
        self.made.request_limits(guest, allowed(disk_in=2 * MB))
        began.wait()
        self.made.request_limits(guest, allowed(disk_in=3 * MB))
        go.set()
        self.settle()
        self.assertEqual({'write_bytes_sec': 3 * MB}, domain.tunes['vda'])

    def test_ended_guest_is_no_problem(self):
        domain, guest = self.guest()
        domain.fail['setMetadata'] = OSError('it ends')
        self.want(guest, allowed(disk_in=MB))
        self.assertEqual({guest.uuid}, set(self.made.problems))
        self.made.forget(())
        self.assertEqual({}, self.made.problems)
        self.libvirt.domains.clear()
        self.want(guest, allowed(disk_in=MB))
        self.assertEqual({}, self.made.problems)
