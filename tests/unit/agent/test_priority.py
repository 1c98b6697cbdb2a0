# SPDX-License-Identifier: Apache-2.0

import shutil
from unittest import mock

from secondary_scheduler.agent import guest_cgroups, priority
from tests.unit.agent import cases, fakes


class Priority(cases.ActuatorCase):
    def prioritised(self):
        """Lower the priority of all secondaries; return them by UUID."""
        guests = sorted(self.secondaries(), key=lambda one: one.uuid)
        self.actuator.prioritise(guests)
        return guests

    def test_guests_and_slice_get_the_lowest_priority(self):
        self.host.guest(0)
        self.host.guest(1)
        self.actuator.prioritise(self.secondaries())
        self.assertEqual(['1', '1'], [self.idle(0), self.idle(1)])
        self.assertEqual('1', self.control(self.host.slice, 'cpu.idle'))
        self.assertEqual({'vm': True, 'service': True},
                         self.actuator.effective)

    def test_new_primary_restores_the_slice(self):
        self.host.guest(0)
        guests = self.secondaries()
        self.actuator.prioritise(guests)
        # Its group is enough, even before libvirt lists it.
        self.host.guest(1, specs={}, listed=False)
        self.actuator.prioritise(guests)
        self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))
        self.assertEqual({'vm': True, 'service': False},
                         self.actuator.effective)
        self.assertEqual(('1', '0'), (self.idle(0), self.idle(1)))

    def test_exiting_secondary_does_not_count_as_a_primary(self):
        """Its leader is a zombie until its threads have exited."""
        self.host.guest(0)
        self.host.guest(1)
        staying = self.prioritised()[:1]
        self.host.zombie(1001, 78, 3)
        for _ in range(2):
            self.actuator.prioritise(staying)
            self.assertEqual('1', self.control(self.host.slice, 'cpu.idle'))
            self.assertTrue(self.actuator.effective['service'])
            self.actuator.forget(staying)
        # A process that appears in the empty group is another guest's.
        other = self.host.scope('instance-00000001', 2)
        for process, expected in (((), '1'), ((1002,), '0')):
            self.host.populate(other, *process)
            self.actuator.prioritise(staying)
            self.assertEqual(expected, self.control(self.host.slice,
                                                    'cpu.idle'))

    def test_former_secondary_restores_the_slice(self):
        self.host.guest(0)
        self.host.guest(1)
        staying = self.prioritised()[:1]
        for _ in range(2):
            self.actuator.prioritise(staying)
            self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))
            self.actuator.forget(staying)

    def test_empty_group_does_not_restore_the_slice(self):
        """A libvirtd that was restarted leaves such groups behind."""
        self.host.guest(0)
        self.host.guest(1, specs={}, listed=False)
        other = self.host.scope('instance-00000001', 2)
        guests = self.secondaries()
        self.actuator.prioritise(guests)
        self.assertFalse(self.actuator.effective['service'])
        self.host.populate(other)
        self.actuator.prioritise(guests)
        self.assertEqual('1', self.control(self.host.slice, 'cpu.idle'))
        self.assertTrue(self.actuator.effective['service'])
        self.host.populate(other, 1001)
        self.actuator.prioritise(guests)
        self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))

    def test_process_in_the_slice_prevents_the_lowest_priority(self):
        self.host.guest(0)
        self.host.write(self.host.cpu(self.host.slice) + '/cgroup.procs',
                        '4711')
        self.actuator.prioritise(self.secondaries())
        self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))

    def test_slice_is_restored_without_secondaries(self):
        self.host.guest(0)
        self.actuator.prioritise(self.secondaries())
        self.make().prioritise(())
        self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))

    def remove_slice(self):
        """Remove the slice, as systemd does after its last guest."""
        shutil.rmtree(self.host.path(self.host.cpu(self.host.slice)))
        self.host.libvirt.domains.clear()

    def test_removed_slice_needs_no_restoring(self):
        self.host.guest(0)
        self.actuator.prioritise(self.secondaries())
        self.remove_slice()
        with self.assertNoLogs(priority.LOG.logger, 'WARNING'):
            self.actuator.prioritise(())

    def test_new_slice_gets_the_lowest_priority(self):
        for asked_in_between in (True, False):
            self.host.guest(0)
            self.actuator.prioritise(self.secondaries())
            self.remove_slice()
            if asked_in_between:
                self.actuator.prioritise(())
            self.host.limits(self.host.slice)
            self.host.guest(1)
            with self.subTest(asked_in_between=asked_in_between), \
                    self.assertNoLogs(priority.LOG.logger, 'WARNING'):
                self.actuator.prioritise(self.secondaries())
                self.assertEqual('1', self.control(self.host.slice,
                                                   'cpu.idle'))
                self.assertTrue(self.actuator.effective['service'])
            self.remove_slice()
            self.host.limits(self.host.slice)

    def test_failed_restoring_of_the_slice_is_retried(self):
        self.host.guest(0)
        usual = self.control(self.host.slice, 'cpu.idle')
        guests = self.secondaries()
        self.actuator.prioritise(guests)
        self.host.guest(1, specs={})
        with mock.patch.object(
                guest_cgroups, 'set_file', side_effect=OSError), (
                    self.assertLogs(priority.LOG.logger, 'WARNING')) as logs:
            for _ in range(3):
                self.actuator.free_slice()
        self.assertEqual(1, len(logs.records))
        self.assertNotEqual(usual, self.control(self.host.slice, 'cpu.idle'))
        self.actuator.prioritise(guests)
        self.assertEqual(usual, self.control(self.host.slice, 'cpu.idle'))

    def test_priority_set_by_the_operator_stays(self):
        self.host.guest(0)
        self.host.write(self.host.cpu(self.host.slice) + '/cpu.idle', '1')
        self.actuator.prioritise(self.secondaries())
        self.actuator.prioritise(())
        self.assertEqual('1', self.control(self.host.slice, 'cpu.idle'))

    def test_nothing_is_written_without_cpu_idle(self):
        self.host.guest(0)
        before = self.host.fingerprint()
        off = self.make(cpu_idle=False)
        off.prioritise(self.secondaries())
        self.assertEqual(before, self.host.fingerprint())
        self.assertEqual({'vm': False, 'service': False}, off.effective)

    def test_guests_in_two_slices_leave_both_alone(self):
        self.host.guest(0)
        self.host.slice += '/custom.partition'
        self.host.guest(1)
        self.host.slice = self.host.slice.rpartition('/')[0]
        self.actuator.prioritise(self.secondaries())
        self.assertEqual('0', self.control(self.host.slice, 'cpu.idle'))


class PriorityV2(Priority):
    version = 2


class OldKernel(cases.ActuatorCase):
    def test_without_cpu_idle_file_only_guests_get_a_weight(self):
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


class OutOfMemory(cases.ActuatorCase):
    def test_oom_killer_prefers_secondaries(self):
        def score(pid):
            return self.host.read(f'proc/{pid}/oom_score_adj').strip()

        self.host.guest(0)
        self.host.guest(1, specs={})
        guest, = self.secondaries()
        self.make(dry_run=True).prioritise([guest])
        self.assertEqual('-10', score(1000))
        self.actuator.prioritise([guest])
        self.assertEqual(['1000', '-10'], [score(1000), score(1001)])
        # Another process has the PID, and the agent has not noticed yet.
        self.host.process(1000, 99, fakes.UUIDS[5], 'other')
        self.make().prioritise([guest])
        self.assertEqual('-10', score(1000))


class OutOfMemoryV2(OutOfMemory):
    version = 2
