import dataclasses
import os
import shutil
import subprocess
import unittest
from unittest import mock

from secondary_scheduler.agent import actuator, cgroups, domains
from tests.unit.agent import fakes


class Base(unittest.TestCase):
    version = 1

    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.actuator = self.make()

    def make(self, **kwargs):
        return actuator.Actuator(self.host.hierarchy(), self.host.store,
                                 **kwargs)

    def secondaries(self):
        known = domains.Domains(self.host.libvirt.connect, self.host.store,
                                self.host.run_dir, proc=self.host.proc)
        known.refresh()
        return known.secondaries()

    def control(self, path, name):
        return self.host.read(self.host.cpu(path) + '/' + name)

    def idle(self, n):
        return self.control(
            self.host.scope(f'instance-{n:08x}', n + 1), 'cpu.idle')


class Limits(Base):
    def test_share(self):
        self.host.guest(0)
        guest, = self.secondaries()
        # 20 % of 4 CPUs on 2 vCPUs.
        self.assertTrue(self.actuator.set_share(guest, 20.0, 4.0))
        self.assertEqual('8000 20000', self.host.quota(0, 'vcpu0'))
        self.assertEqual('8000 20000', self.host.quota(0, 'vcpu1'))
        # 1 % of 4 CPUs: below 1 ms in 20 ms a longer period is needed.
        self.actuator.set_share(guest, 1.0, 4.0)
        self.assertEqual('1000 50000', self.host.quota(0))
        self.actuator.set_share(guest, 0.001, 4.0)
        self.assertEqual('1000 100000', self.host.quota(0))
        self.actuator.set_share(guest, 100.0, 4.0)
        self.assertEqual('20000 20000', self.host.quota(0))
        # A host of half a CPU cannot give a thread more than that.
        self.actuator.set_share(guest, 100.0, 0.5)
        self.assertEqual('5000 20000', self.host.quota(0))

    def test_floor_and_lift(self):
        self.host.guest(0)
        guest, = self.secondaries()
        before = self.host.quota(0, 'emulator')
        self.assertTrue(self.actuator.floor(guest))
        for thread, quota in (('vcpu1', '1000'), ('emulator', '10000'),
                              ('iothread1', '10000')):
            self.assertEqual(quota + ' 100000', self.host.quota(0, thread))
        self.assertTrue(self.actuator.lift_emulator(guest))
        self.assertEqual(before, self.host.quota(0, 'emulator'))
        self.assertEqual('1000 100000', self.host.quota(0))
        self.actuator.floor(guest)
        self.actuator.floor(guest, service=False)
        self.assertEqual(before, self.host.quota(0, 'iothread1'))
        self.actuator.floor(guest)
        self.actuator.set_share(guest, 20.0, 4.0)
        self.assertEqual(before, self.host.quota(0, 'emulator'))

    def test_a_deeper_floor_and_back(self):
        self.host.guest(0)
        guest, = self.secondaries()
        before = self.host.quota(0)
        deep = actuator.Actuator(self.host.hierarchy(), self.host.store,
                                 floor_us=1_000_000)
        self.assertTrue(deep.floor(guest))
        self.assertEqual('1000 1000000', self.host.quota(0))
        self.assertEqual('10000 100000', self.host.quota(0, 'emulator'))
        deep.set_share(guest, 20.0, 4.0)
        self.assertEqual('8000 20000', self.host.quota(0))
        deep.floor(guest)
        self.assertTrue(deep.release(guest))
        self.assertEqual(before, self.host.quota(0))

    def test_an_operation_gets_no_more_than_its_share(self):
        self.host.guest(0)
        guest, = self.secondaries()
        before = self.host.quota(0, 'emulator')
        self.actuator.service_cpus = 0.25
        self.actuator.set_share(guest, 20.0, 4.0)
        self.assertEqual('5000 20000', self.host.quota(0, 'emulator'))
        self.actuator.floor(guest)
        self.assertEqual('10000 100000', self.host.quota(0, 'iothread1'))
        self.actuator.lift_emulator(guest)
        self.assertEqual('5000 20000', self.host.quota(0, 'iothread1'))
        self.actuator.release(guest)
        self.assertEqual(before, self.host.quota(0, 'emulator'))

    def test_what_others_write_is_written_again(self):
        self.host.guest(0)
        guest, = self.secondaries()
        self.actuator.floor(guest)
        path = self.host.cpu(self.host.scope('instance-00000000', 1))
        if self.version == 1:
            self.host.write(path + '/vcpu0/cpu.cfs_quota_us', '-1')
        else:
            self.host.write(path + '/libvirt/vcpu0/cpu.max', 'max 100000')
        self.actuator.floor(guest)
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_a_flavors_own_limit_is_never_exceeded(self):
        self.host.guest(0)
        path = self.host.cpu(self.host.scope('instance-00000000', 1))
        if self.version == 1:
            self.host.write(path + '/vcpu0/cpu.cfs_quota_us', '25000')
        else:
            self.host.write(path + '/libvirt/vcpu0/cpu.max', '25000 100000')
        guest, = self.secondaries()
        self.actuator.set_share(guest, 100.0, 4.0)
        self.assertEqual('25000 100000', self.host.quota(0, 'vcpu0'))
        self.assertEqual('20000 20000', self.host.quota(0, 'vcpu1'))

    def test_release_restores_everything_after_a_restart(self):
        self.host.guest(0)
        before = self.host.fingerprint()
        guests = self.secondaries()
        self.actuator.prioritise(guests)
        self.actuator.floor(guests[0])
        self.assertNotEqual(before, self.host.fingerprint())
        again = self.make()
        self.assertTrue(again.release(guests[0]))
        again.free_slice()
        self.assertEqual(before, self.host.fingerprint())
        self.assertEqual('-10', self.host.read('proc/1000/oom_score_adj'))

    def test_the_kernel_takes_secondaries_first(self):
        def score(pid):
            return self.host.read(f'proc/{pid}/oom_score_adj').strip()

        self.host.guest(0)
        self.host.guest(1, specs={})
        guest, = self.secondaries()
        self.make(dry_run=True).prioritise([guest])
        self.assertEqual('-10', score(1000))
        self.actuator.prioritise([guest])
        self.assertEqual(['1000', '-10'], [score(1000), score(1001)])
        # Its number is somebody else's before the agent has noticed.
        self.host.process(1000, 99, fakes.UUIDS[5], 'other')
        self.make().prioritise([guest])
        self.assertEqual('-10', score(1000))

    def test_forget(self):
        self.host.guest(0)
        guest, = self.secondaries()
        self.actuator.floor(guest)
        self.assertTrue(self.host.store.load('limits.json')['guests'])
        self.host.process(1000, 78, fakes.UUIDS[0], 'instance-00000000')
        self.actuator.forget([])
        self.assertEqual({}, self.host.store.load('limits.json')['guests'])
        self.assertEqual({}, self.actuator._open_handles)

    def test_who_came_in_between_is_not_forgotten(self):
        """The trigger's thread may know a guest before control does."""
        self.host.guest(0)
        before = self.host.fingerprint()
        guests = self.secondaries()
        self.actuator.prioritise(guests)
        self.actuator.floor(guests[0])
        self.actuator.forget([])
        self.actuator.prioritise(guests)
        self.actuator.floor(guests[0])
        self.assertTrue(self.actuator.release(guests[0]))
        self.actuator.free_slice()
        self.assertEqual(before, self.host.fingerprint())

    def test_a_lost_record_leaves_nobody_at_the_floor(self):
        """A full disk took no record, and the agent was started again."""
        self.host.guest(0)
        guest, = self.secondaries()
        self.actuator.prioritise([guest])
        self.actuator.floor(guest)
        os.unlink(self.host.store.path('limits.json'))
        self.actuator = self.make()
        self.actuator.prioritise([guest])
        self.actuator.set_share(guest, 20.0, 4.0)
        self.assertEqual('8000 20000', self.host.quota(0))
        self.assertTrue(self.actuator.release(guest))
        self.assertEqual(None, cgroups.parse_limit(
            self.host.quota(0, 'emulator'))[0])
        self.assertEqual('0', self.host.read('proc/1000/oom_score_adj'))
        self.assertEqual('0', self.idle(0))

    def test_a_spoilt_state_file(self):
        self.host.store.save('limits.json', {'guests': {'x': {}, 'a b c': {}}})
        self.actuator = self.make()
        self.actuator.forget([])
        self.assertEqual({}, self.host.store.load('limits.json')['guests'])

    def test_usage(self):
        self.host.guest(0)
        guest, = self.secondaries()
        self.host.spend(0, 2)
        self.assertEqual(2_000_000_000, self.actuator.usage_ns(guest))

    def test_dry_run(self):
        self.host.guest(0)
        guests = self.secondaries()
        before = self.host.fingerprint()
        dry = self.make(dry_run=True)
        dry.prioritise(guests)
        dry.floor(guests[0])
        dry.set_share(guests[0], 5.0, 4.0)
        self.assertFalse(dry.kill(guests[0]))
        self.assertEqual(before, self.host.fingerprint())


class LimitsV2(Limits):
    version = 2


class Memory(Base):
    pressed = '0'

    def setUp(self):
        super().setUp()
        self.host.guest(0)
        self.file = self.host.memory_limit(0)
        self.first = self.host.read(self.file)
        self.guest, = self.secondaries()

    def test_pressed_and_let_go(self):
        before = self.host.fingerprint()
        self.assertTrue(self.actuator.press_memory(self.guest))
        self.assertEqual(self.pressed, self.host.read(self.file))
        again = self.make()
        self.assertTrue(again.press_memory(self.guest))
        self.assertEqual(self.pressed, self.host.read(self.file))
        self.assertTrue(again.relax_memory(self.guest))
        self.assertEqual(self.first, self.host.read(self.file))
        self.assertEqual(before, self.host.fingerprint())

    def test_release_lets_go(self):
        self.actuator.press_memory(self.guest)
        self.assertTrue(self.make().release(self.guest))
        self.assertEqual(self.first, self.host.read(self.file))

    def test_who_was_not_pressed_is_left_alone(self):
        self.host.write(self.file, '77')
        self.assertTrue(self.actuator.relax_memory(self.guest))
        self.assertEqual('77', self.host.read(self.file))

    def test_a_host_that_has_no_such_file(self):
        os.remove(self.host.path(self.file))
        self.assertFalse(self.actuator.press_memory(self.guest))
        self.assertTrue(self.actuator.floor(self.guest))

    def test_a_primary_is_never_pressed(self):
        """Whatever a list says, the group must be the guest's own."""
        self.host.guest(1, specs={})
        before = self.host.fingerprint()
        wrong = dataclasses.replace(self.guest, pid=1001, started=78)
        self.assertFalse(self.actuator.press_memory(wrong))
        self.assertEqual(before, self.host.fingerprint())


class MemoryV2(Memory):
    version = 2
    pressed = str(fakes.HELD + (32 << 20))

    def test_it_does_not_creep(self):
        self.actuator.press_memory(self.guest)
        self.host.write(self.file.replace('high', 'current'), str(1 << 30))
        self.actuator.press_memory(self.guest)
        self.assertEqual(self.pressed, self.host.read(self.file))

    def test_a_lower_limit_stays(self):
        self.host.write(self.file, '1000')
        self.actuator.press_memory(self.guest)
        self.assertEqual('1000', self.host.read(self.file))


class Priority(Base):
    def prioritised(self):
        """Return the secondaries, by UUID, all of which have been put last.
        """
        guests = sorted(self.secondaries(), key=lambda one: one.uuid)
        self.actuator.prioritise(guests)
        return guests

    def test_guests_and_slice(self):
        self.host.guest(0)
        self.host.guest(1)
        self.actuator.prioritise(self.secondaries())
        self.assertEqual(['1', '1'], [self.idle(0), self.idle(1)])
        self.assertEqual('1', self.control(self.host.slice, 'cpu.idle'))
        self.assertEqual({'vm': True, 'service': True},
                         self.actuator.effective)

    def test_a_primary_guest_frees_the_slice(self):
        self.host.guest(0)
        guests = self.secondaries()
        self.actuator.prioritise(guests)
        # libvirt has not told of it yet: its group is enough.
        self.host.guest(1, specs={}, listed=False)
        self.actuator.prioritise(guests)
        self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))
        self.assertEqual({'vm': True, 'service': False},
                         self.actuator.effective)
        self.assertEqual(('1', '0'), (self.idle(0), self.idle(1)))

    def test_a_secondary_that_is_ending_is_no_primary(self):
        """Its leader is a zombie for as long as its threads take."""
        self.host.guest(0)
        self.host.guest(1)
        staying = self.prioritised()[:1]
        self.host.zombie(1001, 78, 3)
        for _ in range(2):
            self.actuator.prioritise(staying)
            self.assertEqual('1', self.control(self.host.slice, 'cpu.idle'))
            self.assertTrue(self.actuator.effective['service'])
            self.actuator.forget(staying)
        # Whoever comes where nobody was left is somebody else.
        other = self.host.scope('instance-00000001', 2)
        for people, expected in (((), '1'), ((1002,), '0')):
            self.host.people(other, *people)
            self.actuator.prioritise(staying)
            self.assertEqual(expected, self.control(self.host.slice,
                                                    'cpu.idle'))

    def test_a_secondary_that_is_none_any_more_frees_the_slice(self):
        self.host.guest(0)
        self.host.guest(1)
        staying = self.prioritised()[:1]
        for _ in range(2):
            self.actuator.prioritise(staying)
            self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))
            self.actuator.forget(staying)

    def test_a_deserted_group_keeps_nobody_from_priority(self):
        """A libvirtd that was restarted has left it behind."""
        self.host.guest(0)
        self.host.guest(1, specs={}, listed=False)
        other = self.host.scope('instance-00000001', 2)
        guests = self.secondaries()
        self.actuator.prioritise(guests)
        self.assertFalse(self.actuator.effective['service'])
        self.host.people(other)
        self.actuator.prioritise(guests)
        self.assertEqual('1', self.control(self.host.slice, 'cpu.idle'))
        self.assertTrue(self.actuator.effective['service'])
        self.host.people(other, 1001)
        self.actuator.prioritise(guests)
        self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))

    def test_a_process_in_the_slice_keeps_it_ordinary(self):
        self.host.guest(0)
        self.host.write(self.host.cpu(self.host.slice) + '/cgroup.procs',
                        '4711')
        self.actuator.prioritise(self.secondaries())
        self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))

    def test_no_secondaries_free_the_slice(self):
        self.host.guest(0)
        self.actuator.prioritise(self.secondaries())
        self.make().prioritise(())
        self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))

    def slice_gone(self):
        """Let the slice be removed, as systemd does with its last guest."""
        shutil.rmtree(self.host.path(self.host.cpu(self.host.slice)))
        self.host.libvirt.domains.clear()

    def test_slice_that_is_gone_needs_no_restoring(self):
        self.host.guest(0)
        self.actuator.prioritise(self.secondaries())
        self.slice_gone()
        with self.assertNoLogs(actuator.LOG.logger, 'WARNING'):
            self.actuator.prioritise(())

    def test_slice_made_anew_gets_the_lowest_priority(self):
        for asked_in_between in (True, False):
            self.host.guest(0)
            self.actuator.prioritise(self.secondaries())
            self.slice_gone()
            if asked_in_between:
                self.actuator.prioritise(())
            self.host.limits(self.host.slice)
            self.host.guest(1)
            with self.subTest(asked_in_between=asked_in_between), \
                    self.assertNoLogs(actuator.LOG.logger, 'WARNING'):
                self.actuator.prioritise(self.secondaries())
                self.assertEqual('1', self.control(self.host.slice,
                                                   'cpu.idle'))
                self.assertTrue(self.actuator.effective['service'])
            self.slice_gone()
            self.host.limits(self.host.slice)

    def test_a_slice_that_cannot_be_raised_is_tried_again(self):
        self.host.guest(0)
        usual = self.control(self.host.slice, 'cpu.idle')
        guests = self.secondaries()
        self.actuator.prioritise(guests)
        self.host.guest(1, specs={})
        with mock.patch.object(actuator, 'set_file', side_effect=OSError):
            self.actuator.free_slice()
        self.assertNotEqual(usual, self.control(self.host.slice, 'cpu.idle'))
        self.actuator.prioritise(guests)
        self.assertEqual(usual, self.control(self.host.slice, 'cpu.idle'))

    def test_what_the_operator_set_stays(self):
        self.host.guest(0)
        self.host.write(self.host.cpu(self.host.slice) + '/cpu.idle', '1')
        self.actuator.prioritise(self.secondaries())
        self.actuator.prioritise(())
        self.assertEqual('1', self.control(self.host.slice, 'cpu.idle'))

    def test_switched_off(self):
        self.host.guest(0)
        before = self.host.fingerprint()
        off = self.make(cpu_idle=False)
        off.prioritise(self.secondaries())
        self.assertEqual(before, self.host.fingerprint())
        self.assertEqual({'vm': False, 'service': False}, off.effective)

    def test_guests_in_two_slices(self):
        self.host.guest(0)
        self.host.slice += '/custom.partition'
        self.host.guest(1)
        self.host.slice = self.host.slice.rpartition('/')[0]
        self.actuator.prioritise(self.secondaries())
        self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))


class PriorityV2(Priority):
    version = 2


class OldKernel(Base):
    def test_weights_for_guests_none_for_the_slice(self):
        for version, file, least, usual in (
                (1, 'cpu.shares', '2', '1024'), (2, 'cpu.weight', '1', '100')):
            self.host = fakes.Host(self, version, idle=False)
            self.host.guest(0)
            guests = self.secondaries()
            self.actuator = self.make()
            self.actuator.prioritise(guests)
            scope = self.host.scope('instance-00000000', 1)
            self.assertEqual(least, self.control(scope, file))
            self.assertEqual(usual, self.control(self.host.slice, file))
            self.assertEqual({'vm': True, 'service': False},
                             self.actuator.effective)
            self.actuator.release(guests[0])
            self.assertEqual(usual, self.control(scope, file))


class OnlySecondaries(Base):
    """No file outside of verified secondaries is ever written."""

    def everything(self, guests):
        self.actuator.prioritise(guests)
        for guest in guests:
            self.actuator.set_share(guest, 10.0, 4.0)
            self.actuator.floor(guest)
            self.actuator.lift_emulator(guest)
            self.actuator.release(guest)
            self.actuator.usage_ns(guest)
            self.actuator.kill(guest)
        self.actuator.forget(guests)
        self.actuator.free_slice()

    def test_primaries_of_every_kind(self):
        secondary = self.host.guest(0)
        good = fakes.nova_metadata(fakes.MARKED)
        self.host.guest(1, metadata='')                 # made by hand
        self.host.guest(2, specs={})                    # a primary flavor
        self.host.guest(3)                              # malformed
        self.host.libvirt.domains[-1].xml = '<domain><uuid>'
        self.host.guest(4)                              # huge
        self.host.libvirt.domains[-1].xml += ' ' * (1 << 20)
        self.host.guest(5)                              # another UUID
        self.host.libvirt.domains[-1].xml = fakes.domain_xml(
            fakes.UUIDS[9], 'instance-00000005', good)
        self.host.guest(6)                              # recycled pid
        self.host.process(1006, 1, fakes.UUIDS[9], 'other')
        self.host.guest(7, listed=False)                # unknown to libvirt
        before = self.host.fingerprint(skip=['instance-00000000'])
        guests = self.secondaries()
        self.assertEqual([secondary], [guest.uuid for guest in guests])
        self.actuator.prioritise(guests)
        self.actuator.floor(guests[0])
        self.assertEqual('1000 100000', self.host.quota(0))
        self.assertEqual(before, self.host.fingerprint(
            skip=['instance-00000000']))
        self.everything(guests)
        self.assertEqual(before, self.host.fingerprint(
            skip=['instance-00000000']))

    def test_a_group_that_is_not_the_guests_own(self):
        before = None
        for path in ('/system/libvirtd', '/', '/machine/emulator',
                     '/machine/qemu-9-x.libvirt-qemu/emulator'):
            self.host = fakes.Host(self)
            self.host.guest(0)
            for folder in ('cpu', 'cpuacct'):
                os.makedirs(self.host.path('cgroup', folder, path[1:]),
                            exist_ok=True)
            self.host.write('proc/1000/cgroup',
                            f'3:cpu:{path}\n2:cpuacct:{path}')
            self.actuator = self.make()
            before = self.host.fingerprint()
            guests = self.secondaries()
            self.everything(guests)
            self.assertEqual(before, self.host.fingerprint(), path)
            self.assertFalse(self.actuator.floor(guests[0]))
            self.assertIn(guests[0].uuid, self.actuator.problems)

    def test_a_guest_that_has_ended(self):
        self.host.guest(0)
        guests = self.secondaries()
        before = self.host.fingerprint()
        self.host.process(1000, 78, fakes.UUIDS[0], 'instance-00000000')
        self.everything(guests)
        self.assertEqual(before, self.host.fingerprint())
        self.assertIsNone(self.actuator.usage_ns(guests[0]))

    def test_the_choke_point_refuses(self):
        self.host.guest(0)
        self.host.guest(1, specs={})
        guest, = self.secondaries()
        self.actuator.floor(guest)
        before = self.host.fingerprint()
        primary = cgroups.Group(self.host.path(self.host.cpu(
            self.host.scope('instance-00000001', 2))))
        self.addCleanup(primary.close)
        # The path of a secondary does not suffice: it may be another's now.
        same = cgroups.Group(self.host.path(self.host.cpu(
            self.host.scope('instance-00000000', 1))))
        self.addCleanup(same.close)
        for group in (primary, same):
            with self.assertRaises(actuator.NotSecondary):
                self.actuator._write(group, 'cpu.idle', '1')
        mine = next(iter(self.actuator._open_handles.values())).base
        for name in ('../cpu.idle', 'vcpu0/../../cpu.idle', 'cgroup.procs'):
            with self.assertRaises(actuator.NotSecondary):
                self.actuator._write(mine, name, '1')
        self.assertEqual(before, self.host.fingerprint())

    def test_a_slice_from_a_spoilt_state_file(self):
        self.host.limits('/system')
        path = self.host.path(self.host.cpu('/system'))
        self.host.store.save('limits.json', {
            'slice': {'path': path, 'weight': '2'}})
        before = self.host.fingerprint()
        self.make().free_slice()
        self.assertEqual(before, self.host.fingerprint())


class Refusals(Base):
    def test_more_than_the_parent_has(self):
        self.host.guest(0)
        scope = self.host.cpu(self.host.scope('instance-00000000', 1))
        guest, = self.secondaries()
        self.actuator.floor(guest)
        self.host.write(scope + '/cpu.cfs_quota_us', '30000')
        write = self.actuator._write

        def kernel(group, name, value):
            if name == 'vcpu0/cpu.cfs_quota_us' and int(value) > 6000:
                raise OSError(22, 'Invalid argument')
            write(group, name, value)

        self.actuator._write = kernel
        self.assertTrue(self.actuator.set_share(guest, 50.0, 4.0))
        self.assertEqual('6000 20000', self.host.quota(0))

    def test_other_errors_are_told(self):
        self.host.guest(0)
        guest, = self.secondaries()

        def broken(group, name, value):
            raise OSError(19, 'No such device')

        self.actuator._write = broken
        self.assertFalse(self.actuator.floor(guest))
        self.actuator.prioritise([guest])
        self.assertFalse(self.actuator.effective['vm'])

    def test_order_of_the_two_writes(self):
        """Between them the limit never exceeds the old and the new one."""
        self.host.guest(0)
        guest, = self.secondaries()
        self.actuator.set_share(guest, 10.0, 4.0)
        write, seen = self.actuator._write, []

        def record(group, name, value):
            write(group, name, value)
            if name.startswith('vcpu0'):
                quota, period = self.host.quota(0).split()
                seen.append(int(quota) / int(period))

        self.actuator._write = record
        for percent, bound in ((0.5, 0.2), (10.0, 0.2), (2.0, 0.2)):
            seen.clear()
            self.actuator.set_share(guest, percent, 4.0)
            self.assertTrue(seen)
            self.assertLessEqual(max(seen), bound + 1e-9)


class Killing(Base):
    def test_only_the_verified_process(self):
        victim = subprocess.Popen(['sleep', '60'])
        self.addCleanup(victim.wait)
        self.addCleanup(victim.kill)
        self.host.guest(0, pid=victim.pid)
        guest, = self.secondaries()
        self.host.process(victim.pid, 1, fakes.UUIDS[0], 'x')
        self.assertFalse(self.actuator.kill(guest))
        self.host.process(victim.pid, 77, fakes.UUIDS[1], 'x')
        self.assertFalse(self.actuator.kill(guest))
        self.assertIsNone(victim.poll())
        self.host.process(victim.pid, 77, fakes.UUIDS[0],
                          'instance-00000000')
        self.assertTrue(self.actuator.kill(guest))
        self.assertEqual(-9, victim.wait(5))
        self.assertFalse(self.actuator.kill(guest))

    def test_who_is_ended_gets_the_cpu_that_it_takes_to_end(self):
        victim = subprocess.Popen(['sleep', '60'])
        self.addCleanup(victim.wait)
        self.addCleanup(victim.kill)
        self.host.guest(0, pid=victim.pid)
        self.host.process(victim.pid, 77, fakes.UUIDS[0],
                          'instance-00000000')
        guest, = self.secondaries()
        threads = ('vcpu0', 'emulator')
        before = [self.host.quota(0, one) for one in threads]
        self.actuator.floor(guest)
        self.assertNotEqual(before, [self.host.quota(0, one)
                                     for one in threads])
        self.assertTrue(self.actuator.kill(guest))
        # Whoever does not know yet does not hold it back again.
        self.assertTrue(self.actuator.floor(guest))
        self.assertEqual(before, [self.host.quota(0, one)
                                  for one in threads])
