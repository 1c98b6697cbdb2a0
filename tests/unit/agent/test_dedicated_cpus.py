# SPDX-License-Identifier: Apache-2.0

import contextlib
import os
import shutil
import unittest
from unittest import mock

from secondary_scheduler.agent import (
    actuator,
    cgroup_handles,
    controllers,
    cpu_sets,
    dedicated_cpus,
    domains,
    kernel_files,
)
from secondary_scheduler.agent.floors import Reason
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase

UUID = fakes.UUIDS[0]
NAME = 'instance-00000000'


class Sets:
    """CPU sets of a host with CPUs 0 to 3, in addition to ``fakes.Host``."""

    version = 1

    def prepare_sets(self):
        self.top = 'cgroup/' + ('cpuset' if self.version == 1 else 'all')
        if self.version == 1:
            self.host.write(f'{self.top}/cpuset.effective_cpus', '0-3')
            self.host.write(f'{self.top}{self.host.slice}/cpuset.cpus',
                            '0-3')

    def scope(self, n=0):
        return self.top + self.host.scope(f'instance-{n:08x}', n + 1)

    def inner(self, n=0):
        return self.scope(n) + '/libvirt' * (self.version == 2)

    def make_sets(self, n=0, cpus=None):
        """Write the sets of a guest without CPUs in its XML."""
        cpus = cpus or ('0-3' if self.version == 1 else '')
        paths = [f'{self.inner(n)}/{name}' for name in (
            'vcpu0', 'vcpu1', 'emulator', 'iothread1')]
        for path in (self.scope(n), *paths):
            self.host.write(f'{path}/cpuset.cpus',
                            cpus if self.version == 1 or path
                            == self.scope(n) else '')

    def sets(self, n=0):
        """Return the different sets of a guest's groups."""
        paths = ([self.scope(n)] if self.version == 2 else [
            self.scope(n), *(f'{self.inner(n)}/{name}' for name in (
                'vcpu0', 'vcpu1', 'emulator', 'iothread1'))])
        return {self.host.read(f'{path}/cpuset.cpus').strip()
                for path in paths}

    def primary(self, cpus, n=5):
        """Make a primary with one vCPU pinned to each of these CPUs."""
        self.host.guest(n, specs={})
        self.host.libvirt.domains[-1].xml = (
            f'<domain><name>instance-{n:08x}</name><vcpu>{len(cpus)}</vcpu>'
            '<cputune>' + ''.join(
                f'<vcpupin vcpu="{number}" cpuset="{cpu}"/>'
                for number, cpu in enumerate(cpus)) + '</cputune></domain>')


class Base(Sets, unittest.TestCase):
    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.prepare_sets()
        self.host.guest(0)
        self.make_sets()
        self.known = domains.Domains(
            self.host.libvirt.connect, self.host.store, self.host.run_dir,
            proc=self.host.proc)
        self.now = 0.0
        self.dedicated = self.make()

    def make(self, **kwargs):
        hierarchy = self.host.hierarchy()
        return dedicated_cpus.DedicatedCpus(
            hierarchy, self.host.store,
            controllers.Controllers(hierarchy, self.host.store), **kwargs)

    def keep(self):
        """List guests, find dedicated CPUs and narrow the sets, once."""
        self.now += 11.0
        self.known.refresh()
        guests = self.known.secondaries()
        self.dedicated.find_dedicated(self.known.others(), guests, self.now)
        for _ in range(3):      # of which the last compares files only
            self.dedicated.narrow_sets(guests)
        self.dedicated.forget(guests)
        return guests

    def leave(self, n=5):
        """Remove a primary."""
        self.host.libvirt.domains = [
            one for one in self.host.libvirt.domains
            if one.uuid != fakes.UUIDS[n]]
        os.remove(self.host.path(f'proc/{1000 + n}/stat'))


class Narrowing(Base):
    def test_without_dedicated_cpus_nothing_is_read_or_written(self):
        before = self.host.fingerprint()
        with mock.patch.object(dedicated_cpus, 'CpuSets',
                               side_effect=AssertionError):
            self.keep()
        self.assertEqual(before, self.host.fingerprint())
        self.assertEqual({}, self.dedicated.problems)

    def test_sets_are_narrowed_while_the_primary_runs(self):
        before = self.sets()
        self.primary([2])
        self.keep()
        self.assertEqual({2}, self.dedicated.own)
        self.assertEqual({'0-1,3'}, self.sets())
        self.leave()
        self.keep()
        self.assertEqual(frozenset(), self.dedicated.own)
        self.assertEqual(before, self.sets())
        self.assertEqual({}, self.host.store.load(
            cpu_sets.STATE)['guests'])

    def test_only_secondaries_are_written(self):
        self.primary([2])
        self.host.guest(6, specs={})
        self.make_sets(5)
        self.make_sets(6)
        before = [self.sets(5), self.sets(6)]
        self.keep()
        self.assertEqual(before, [self.sets(5), self.sets(6)])

    def test_set_is_always_a_part_of_the_original_one(self):
        self.make_sets(cpus='1-2')
        self.primary([2])
        self.keep()
        self.assertEqual({'1'}, self.sets())
        self.leave()
        self.primary([0], 6)
        self.keep()
        self.assertEqual({'1-2'}, self.sets())

    def test_exchange_of_a_dedicated_cpu(self):
        """The top group has all CPUs of the lower ones after each write."""
        self.primary([1])
        self.keep()
        self.assertEqual({'0,2-3'}, self.sets())
        self.leave()
        self.primary([3], 6)
        put = cgroup_handles.put
        if self.version == 1:
            def checked(group, name, value):
                put(group, name, value)
                top, = (self.dedicated._sets[key].groups['']
                        for key in self.dedicated._sets)
                cpus = [kernel_files.parse_cpus(one.read(name), '')
                        for one in (top, *next(iter(
                            self.dedicated._sets.values())).groups.values())]
                for one in cpus[1:]:
                    self.assertLessEqual(one, cpus[0])

            with mock.patch.object(cgroup_handles, 'put', checked):
                self.keep()
        else:
            self.keep()
        self.assertEqual({'0-2'}, self.sets())

    def test_set_changed_by_another_program_is_narrowed_again(self):
        self.primary([2])
        self.keep()
        self.make_sets()
        self.keep()
        self.assertEqual({'0-1,3'}, self.sets())
        # A smaller set of another program becomes the original one.
        self.make_sets(cpus='0,2')
        self.keep()
        self.assertEqual({'0'}, self.sets())
        self.leave()
        self.keep()
        self.assertEqual({'0,2'}, self.sets())

    def test_new_groups_of_a_restarted_guest_are_narrowed(self):
        """A reboot, a resume or a migration starts another process."""
        self.primary([2])
        self.keep()
        shutil.rmtree(self.host.path(self.scope()))
        self.host.libvirt.domains = self.host.libvirt.domains[1:]
        self.host.guest(0, started=500)
        self.make_sets()
        self.keep()
        self.assertEqual({'0-1,3'}, self.sets())
        self.assertEqual([f'{UUID} 1000 500'], list(self.host.store.load(
            cpu_sets.STATE)['guests']))

    def test_new_groups_of_the_same_process_are_narrowed(self):
        self.primary([2])
        self.keep()
        os.rename(self.host.path(self.scope()), self.host.path('old'))
        shutil.copytree(self.host.path('old'), self.host.path(self.scope()))
        shutil.rmtree(self.host.path('old'))
        self.make_sets()
        # Open files of a removed group still have their old content.
        self.dedicated._sets.popitem()[1].close()
        self.keep()
        self.assertEqual({'0-1,3'}, self.sets())

    def test_removed_vcpu_is_no_problem(self):
        self.primary([2])
        self.keep()
        shutil.rmtree(self.host.path(f'{self.inner()}/vcpu1'))
        self.dedicated._sets.popitem()[1].close()
        self.keep()
        self.assertEqual({}, self.dedicated.problems)

    def late_group(self):
        """Make a group after the one above it was narrowed."""
        path = f'{self.inner()}/vcpu1'
        shutil.rmtree(self.host.path(path))
        self.primary([2])
        self.keep()
        self.host.write(f'{path}/cpuset.cpus', self.host.read(
            f'{self.inner()}/cpuset.cpus') if self.version == 1 else '')
        self.keep()
        self.assertEqual({'0-1,3'}, self.sets())
        self.leave()
        self.keep()

    def test_group_with_a_copied_narrow_set_is_restored(self):
        before = self.sets()
        self.late_group()
        self.assertEqual(before, self.sets())

    def test_set_named_by_the_domain_is_not_restored_as_a_copy(self):
        if self.version == 1:
            xml = self.host.libvirt.domains[0].xml
            self.host.libvirt.domains[0].xml = xml.replace(
                '<vcpu>', '<vcpu cpuset="0-1,3">').replace(
                '<vcpu placement=', '<vcpu cpuset="0-1,3" placement=')
            self.assertNotEqual(xml, self.host.libvirt.domains[0].xml)
            self.late_group()
            self.assertEqual('0-1,3', self.host.read(
                f'{self.inner()}/vcpu1/cpuset.cpus').strip())

    def test_cpus_pinned_by_hand_are_dedicated(self):
        """The XML does not show pins set by hand after the start."""
        self.host.guest(5, specs={})
        for number, (name, cpus) in enumerate((
                ('qemu', '0-3'), ('CPU 0/KVM', '1'), ('CPU 1/KVM', '3'))):
            self.host.write(f'proc/1005/task/{number}/status',
                            f'Name:\t{name}\nCpus_allowed_list:\t{cpus}\n')
        self.keep()
        self.assertEqual({'0,2'}, self.sets())

    def test_pin_by_hand_is_noticed_without_reading_all_threads(self):
        masks = {1: range(4)}
        self.dedicated = self.make(mask_of=masks.__getitem__)
        self.host.guest(5, specs={})
        self.host.write('proc/1005/task/1/status',
                        'Name:\tCPU 0/KVM\nCpus_allowed_list:\t0-3\n')
        self.keep()
        self.assertFalse(self.dedicated.pins.changed())
        masks[1] = {3}
        self.assertTrue(self.dedicated.pins.changed())
        self.host.write('proc/1005/task/1/status',
                        'Name:\tCPU 0/KVM\nCpus_allowed_list:\t3\n')
        self.now -= 11.0    # the masks were read at this moment
        self.keep()
        self.assertEqual({'0-2'}, self.sets())
        self.assertFalse(self.dedicated.pins.changed())

    def test_threads_that_float_over_all_cpus_are_not_pinned(self):
        self.host.guest(5, specs={})
        for number in range(4):
            self.host.write(f'proc/1005/task/{number}/status',
                            f'Name:\tCPU {number}/KVM\n'
                            'Cpus_allowed_list:\t0-3\n')
        before = self.sets()
        self.keep()
        self.assertEqual(frozenset(), self.dedicated.own)
        self.assertEqual(before, self.sets())

    def test_threads_that_float_beside_isolated_cpus_are_not_pinned(self):
        for pid, name in ((1, 'systemd'), (1005, 'CPU 0/KVM')):
            self.host.write(f'proc/{pid}/task/{pid}/status',
                            f'Name:\t{name}\nCpus_allowed_list:\t0\n')
        self.host.guest(5, specs={})
        self.keep()
        self.assertEqual(frozenset(), self.dedicated.own)

    def test_threads_that_float_over_cpus_of_the_slice_are_not_pinned(self):
        """They have as many vCPUs as CPUs, but secondaries share these."""
        self.make_sets(cpus='1-3')
        self.host.guest(5, specs={})
        for number in range(3):
            self.host.write(f'proc/1005/task/{number}/status',
                            f'Name:\tCPU {number}/KVM\n'
                            'Cpus_allowed_list:\t1-3\n')
        self.keep()
        self.assertEqual(frozenset(), self.dedicated.own)

    def test_thread_on_the_only_cpu_of_the_slice_is_not_pinned(self):
        """It may run on one CPU, before the first secondary, too."""
        name = 'cpuset.cpus' + '.effective' * (self.version == 2)
        self.host.write(f'{self.top}{self.host.slice}/{name}', '1')
        self.make_sets(cpus='1')
        self.host.guest(5, specs={})
        self.host.write('proc/1005/task/1/status',
                        'Name:\tCPU 0/KVM\nCpus_allowed_list:\t1\n')
        secondary = self.host.libvirt.domains.pop(0)
        self.keep()
        self.assertEqual(frozenset(), self.dedicated.own)
        self.host.libvirt.domains.append(secondary)
        self.keep()
        self.assertEqual(frozenset(), self.dedicated.own)
        # But a pin to another CPU than that was made by hand.
        self.host.write('proc/1005/task/1/status',
                        'Name:\tCPU 0/KVM\nCpus_allowed_list:\t3\n')
        self.keep()
        self.assertEqual({3}, self.dedicated.own)


class NarrowingV2(Narrowing):
    version = 2

    def test_thread_with_only_dedicated_cpus_is_reported(self):
        self.host.write(f'{self.inner()}/vcpu0/cpuset.cpus', '2')
        self.primary([2])
        self.keep()
        self.assertIn('vcpu0/cpuset.cpus: primaries have all of the CPUs 2',
                      self.dedicated.problems[UUID])
        self.assertEqual({''}, self.sets())
        self.leave()
        self.primary([3], 6)
        self.keep()
        self.assertEqual({}, self.dedicated.problems)
        self.assertEqual({'0-2'}, self.sets())

    def test_missing_controller_is_enabled(self):
        os.remove(self.host.path(f'{self.scope()}/cpuset.cpus'))
        groups = [self.top + one for one in (
            '', self.host.slice, self.host.scope(NAME, 1))]
        for group in (*groups, self.inner()):
            self.host.write(f'{group}/{controllers.SUBTREE_FILE}', 'cpu')
        self.primary([2])

        def kernel(group, name, value, put=cgroup_handles.put):
            put(group, name, value)
            if name == controllers.SUBTREE_FILE:
                self.host.write(f'{self.scope()}/cpuset.cpus', '')

        with mock.patch.object(cgroup_handles, 'put', kernel):
            self.keep()
        self.assertEqual('+cpuset', self.host.read(
            f'{groups[1]}/{controllers.SUBTREE_FILE}'))
        self.assertEqual({'0-1,3'}, self.sets())


class Problems(Base):
    def test_secondary_without_any_cpu_left_is_reported(self):
        self.primary([0, 1, 2, 3])
        before = self.sets()
        self.keep()
        self.assertIn('primaries have all of the CPUs 0-3',
                      self.dedicated.problems[UUID])
        self.assertEqual(before, self.sets())
        self.leave()
        self.keep()
        self.assertEqual({}, self.dedicated.problems)

    def test_missing_file_is_named(self):
        path = f'{self.scope()}/cpuset.cpus'
        os.remove(self.host.path(path))
        self.primary([2])
        self.keep()
        self.assertIn(path, self.dedicated.problems[UUID])

    def test_write_without_effect_is_reported(self):
        self.primary([2])
        with mock.patch.object(cgroup_handles, 'put'):
            self.keep()
        self.assertIn("after '", self.dedicated.problems[UUID])
        self.keep()
        self.assertEqual({}, self.dedicated.problems)

    def test_damaged_file_is_named(self):
        self.primary([2])
        for text in ('x', '3-1', '99999999', '9' * 5000):
            self.host.write(f'{self.scope()}/cpuset.cpus', text)
            self.keep()
            self.assertIn('cpuset.cpus says', self.dedicated.problems[UUID])

    def test_group_of_another_guest_is_not_written(self):
        self.primary([2])
        self.host.write('proc/1000/cgroup', '\n'.join(
            f'{number}:{name}:/machine/qemu-9-other/emulator'
            for number, name in ((3, 'cpu'), (1, 'cpuset'), (0, ''))))
        before = self.host.fingerprint()
        self.keep()
        self.assertIn('not named after', self.dedicated.problems[UUID])
        self.assertEqual(before, self.host.fingerprint())

    def test_problem_ends_with_its_guest(self):
        self.primary([0, 1, 2, 3])
        self.keep()
        self.host.libvirt.domains = self.host.libvirt.domains[1:]
        os.remove(self.host.path('proc/1000/stat'))
        self.keep()
        self.assertEqual({}, self.dedicated.problems)

    def test_dry_run_writes_nothing(self):
        self.dedicated = self.make(dry_run=True)
        self.primary([2])
        before = self.host.fingerprint()
        self.keep()
        self.assertEqual(before, self.host.fingerprint())


class ProblemsV2(Problems):
    version = 2


class Restarts(Base):
    """An agent that dies at any point, and the next one."""

    def test_next_agent_goes_on_and_restores(self):
        before = self.sets()
        self.primary([2])
        self.keep()
        for primaries, expected in (([1], {'0,2-3'}), ([2, 3], {'0-1'})):
            self.leave()
            self.dedicated = self.make()
            self.primary(primaries)
            self.known.reread()
            self.keep()
            self.assertEqual(expected, self.sets())
        self.dedicated = self.make()
        guest, = self.known.secondaries()
        self.assertTrue(self.dedicated.release(guest))
        self.assertEqual(before, self.sets())

    def test_crash_between_the_record_and_the_writes(self):
        before = self.sets()
        self.primary([2])
        with mock.patch.object(
            cgroup_handles, 'put', side_effect=KeyboardInterrupt
        ):
            with self.assertRaises(KeyboardInterrupt):
                self.keep()
        self.dedicated = self.make()
        self.keep()
        self.assertEqual({'0-1,3'}, self.sets())
        self.make().release(*self.known.secondaries())
        self.assertEqual(before, self.sets())

    def test_nothing_is_widened_before_the_first_listing(self):
        self.primary([2])
        guests = self.keep()
        self.dedicated = self.make()
        self.dedicated.narrow_sets(guests)
        self.assertEqual({'0-1,3'}, self.sets())
        self.assertIsNone(self.dedicated.own)

    def test_crash_between_two_writes(self):
        before = self.sets()
        self.primary([1, 2])
        self.keep()
        self.leave()
        self.primary([2, 3], 6)
        put, writes = cgroup_handles.put, []

        def die(group, name, value):
            if writes:
                raise KeyboardInterrupt
            writes.append(value)
            put(group, name, value)

        with (mock.patch.object(cgroup_handles, 'put', die),
              contextlib.suppress(KeyboardInterrupt)):
            self.keep()
        self.dedicated = self.make()
        self.keep()
        self.assertEqual({'0-1'}, self.sets())
        self.make().release(*self.known.secondaries())
        self.assertEqual(before, self.sets())

    def test_lost_record_widens_nothing(self):
        self.primary([2])
        self.keep()
        os.remove(self.host.store.path(cpu_sets.STATE))
        self.dedicated = self.make()
        self.leave()
        self.keep()
        self.assertEqual({'0-1,3'}, self.sets())

    def test_damaged_record_is_ignored(self):
        key = f'{UUID} 1000 77'
        self.primary([2])
        for guests in (7, {key: 7}, {key: {'': 7}}, {key: {'': ['0-9']}},
                       {key: {'': ['x', ['y']]}}, {key: {'': [1, 2]}}):
            self.host.store.save(cpu_sets.STATE, {'guests': guests})
            self.make_sets()
            self.dedicated = self.make()
            self.keep()
            self.assertEqual({'0-1,3'}, self.sets(), guests)


class RestartsV2(Restarts):
    version = 2


class WholeAgent(Sets, AgentTestCase):
    """The whole agent on a host without a CPU left for secondaries."""

    version = 2

    def setUp(self):
        super().setUp()
        self.prepare_sets()
        self.host.guest(0)
        self.make_sets()

    def test_guest_without_any_cpu_left_is_floored_and_reported(self):
        agent = self.make()
        agent._domains_changed()
        agent.step()
        self.steps(agent, 8, 30.0, g0=10.0)
        self.assertFalse(agent.parts.floors.floored(UUID))
        self.primary([0, 1, 2, 3])
        agent.parts.domains.refresh()
        agent._domains_changed()
        self.assertIn(Reason.CPUS, agent.parts.floors.reasons(UUID))
        self.assertEqual('1000 100000', self.host.quota(0))
        status = agent.reporter.status()
        self.assertFalse(status['admission'])
        self.assertIn('primaries have all of the CPUs 0-3', status['reason'])
        self.assertTrue(status['instances'][0]['floored'])
        self.assertEqual([0, 1, 2, 3], status['dedicated_cpus'])
        self.steps(agent, 5, 30.0)
        self.assertEqual('1000 100000', self.host.quota(0))
        # One free CPU is enough to lift the floor.
        self.host.libvirt.domains.pop()
        self.primary([0, 1, 2], 6)
        agent.parts.domains.refresh()
        agent._domains_changed()
        self.assertEqual({'3'}, self.sets())
        self.steps(agent, 8, 30.0, g0=10.0)
        self.assertFalse(agent.parts.floors.floored(UUID))
        self.assertEqual({}, agent.reporter.status()['problems'])

    def test_each_control_step_checks_the_sets(self):
        agent = self.make()
        self.primary([2])
        agent.parts.domains.refresh()
        agent._domains_changed()
        self.make_sets()
        agent.step()
        self.assertEqual({'0-1,3'}, self.sets())

    def test_restarted_agent_narrows_while_libvirt_is_away(self):
        agent = self.make()
        self.primary([2])
        agent.parts.domains.refresh()
        agent._domains_changed()
        self.assertEqual({'0-1,3'}, self.sets())
        self.host.libvirt.error = OSError('libvirtd is dead')
        again = self.make()
        again._domains_changed()
        again.step()
        self.assertEqual([UUID], [
            one.uuid for one in again.parts.domains.secondaries()])
        self.assertEqual({'0-1,3'}, self.sets())
        self.assertEqual([], again.reporter.status()['dedicated_cpus'])

    def test_error_takes_all_guests_to_the_floor(self):
        agent = self.make()
        agent.step()
        self.steps(agent, 8, 30.0, g0=10.0)
        with mock.patch.object(agent.parts.dedicated_cpus, 'narrow_sets',
                               side_effect=RuntimeError):
            self.steps(agent, 1, 30.0, g0=10.0)
        self.assertNotEqual('', agent.parts.floors.reasons(UUID))

    def test_release_restores_the_sets(self):
        agent = self.make()
        self.primary([2])
        agent.parts.domains.refresh()
        agent._domains_changed()
        acting = actuator.Actuator(self.host.hierarchy(), self.host.store)
        again = dedicated_cpus.DedicatedCpus(
            self.host.hierarchy(), self.host.store, acting.controllers)
        for guest in agent.parts.domains.secondaries():
            self.assertTrue(again.release(guest))
        self.assertEqual({''}, self.sets())
