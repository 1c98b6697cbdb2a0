import contextlib
import os
import shutil
import unittest
from unittest import mock

from secondary_scheduler.agent import (
    actuator,
    cgroup_handles,
    controllers,
    dedicated_cpus,
    domains,
    kernel_files,
)
from secondary_scheduler.agent.floors import Reason
from tests.unit.agent import fakes, test_service

UUID = fakes.UUIDS[0]
NAME = 'instance-00000000'


class Sets:
    """The CPU sets of a host of CPUs 0 to 3, beside ``fakes.Host``."""

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
        """Write what libvirt does for a guest without a set of its own."""
        cpus = cpus or ('0-3' if self.version == 1 else '')
        paths = [f'{self.inner(n)}/{name}' for name in (
            'vcpu0', 'vcpu1', 'emulator', 'iothread1')]
        for path in (self.scope(n), *paths):
            self.host.write(f'{path}/cpuset.cpus',
                            cpus if self.version == 1 or path
                            == self.scope(n) else '')

    def sets(self, n=0):
        """Return what the groups of a guest say, each set once."""
        paths = ([self.scope(n)] if self.version == 2 else [
            self.scope(n), *(f'{self.inner(n)}/{name}' for name in (
                'vcpu0', 'vcpu1', 'emulator', 'iothread1'))])
        return {self.host.read(f'{path}/cpuset.cpus').strip()
                for path in paths}

    def primary(self, cpus, n=5):
        """Let a primary have its vCPUs pinned to these, one to one."""
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
        """List, look and keep once, when masks are due again."""
        self.now += 11.0
        self.known.refresh()
        guests = self.known.secondaries()
        self.dedicated.look(self.known.others(), guests, self.now)
        self.dedicated.keep(guests)
        self.dedicated.forget(guests)
        return guests

    def leave(self, n=5):
        """Let a primary end."""
        self.host.libvirt.domains = [
            one for one in self.host.libvirt.domains
            if one.uuid != fakes.UUIDS[n]]
        os.remove(self.host.path(f'proc/{1000 + n}/stat'))


class Narrowing(Base):
    def test_without_dedicated_cpus_nothing_is_read_or_written(self):
        before = self.host.fingerprint()
        with mock.patch.object(dedicated_cpus, '_Sets',
                               side_effect=AssertionError):
            self.keep()
        self.assertEqual(before, self.host.fingerprint())
        self.assertEqual({}, self.dedicated.problems)

    def test_it_comes_and_goes_with_the_primary(self):
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
            dedicated_cpus.STATE)['guests'])

    def test_only_secondaries_are_written(self):
        self.primary([2])
        self.host.guest(6, specs={})
        self.make_sets(5)
        self.make_sets(6)
        before = [self.sets(5), self.sets(6)]
        self.keep()
        self.assertEqual(before, [self.sets(5), self.sets(6)])

    def test_always_a_part_of_what_it_was(self):
        self.make_sets(cpus='1-2')
        self.primary([2])
        self.keep()
        self.assertEqual({'1'}, self.sets())
        self.leave()
        self.primary([0], 6)
        self.keep()
        self.assertEqual({'1-2'}, self.sets())

    def test_one_cpu_for_another(self):
        """Between the writes the upper group has what the lower ones have."""
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

    def test_what_others_write_is_narrowed_again(self):
        self.primary([2])
        self.keep()
        self.make_sets()
        self.keep()
        self.assertEqual({'0-1,3'}, self.sets())
        # Less than it had is where it goes back to.
        self.make_sets(cpus='0,2')
        self.keep()
        self.assertEqual({'0'}, self.sets())
        self.leave()
        self.keep()
        self.assertEqual({'0,2'}, self.sets())

    def test_groups_that_libvirt_makes_anew(self):
        """A guest that reboots, resumes or comes has another process."""
        self.primary([2])
        self.keep()
        shutil.rmtree(self.host.path(self.scope()))
        self.host.libvirt.domains = self.host.libvirt.domains[1:]
        self.host.guest(0, started=500)
        self.make_sets()
        self.keep()
        self.assertEqual({'0-1,3'}, self.sets())
        self.assertEqual([f'{UUID} 1000 500'], list(self.host.store.load(
            dedicated_cpus.STATE)['guests']))

    def test_groups_made_anew_for_the_same_process(self):
        self.primary([2])
        self.keep()
        os.rename(self.host.path(self.scope()), self.host.path('old'))
        shutil.copytree(self.host.path('old'), self.host.path(self.scope()))
        shutil.rmtree(self.host.path('old'))
        self.make_sets()
        # The files that are held open say on what they said.
        self.dedicated._sets.popitem()[1].close()
        self.keep()
        self.assertEqual({'0-1,3'}, self.sets())

    def test_a_vcpu_that_is_taken_away(self):
        self.primary([2])
        self.keep()
        shutil.rmtree(self.host.path(f'{self.inner()}/vcpu1'))
        self.dedicated._sets.popitem()[1].close()
        self.keep()
        self.assertEqual({}, self.dedicated.problems)

    def late_group(self):
        """Let libvirt make a group after the one above it was narrowed."""
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

    def test_a_group_that_copies_a_narrowed_set_is_widened_again(self):
        before = self.sets()
        self.late_group()
        self.assertEqual(before, self.sets())

    def test_a_set_that_the_domain_names_is_no_copy(self):
        if self.version == 1:
            xml = self.host.libvirt.domains[0].xml
            self.host.libvirt.domains[0].xml = xml.replace(
                '<vcpu>', '<vcpu cpuset="0-1,3">').replace(
                '<vcpu placement=', '<vcpu cpuset="0-1,3" placement=')
            self.assertNotEqual(xml, self.host.libvirt.domains[0].xml)
            self.late_group()
            self.assertEqual('0-1,3', self.host.read(
                f'{self.inner()}/vcpu1/cpuset.cpus').strip())

    def test_masks_of_threads(self):
        """Pinned by hand, after the start: libvirt does not say so."""
        self.host.guest(5, specs={})
        for number, (name, cpus) in enumerate((
                ('qemu', '0-3'), ('CPU 0/KVM', '1'), ('CPU 1/KVM', '3'))):
            self.host.write(f'proc/1005/task/{number}/status',
                            f'Name:\t{name}\nCpus_allowed_list:\t{cpus}\n')
        self.keep()
        self.assertEqual({'0,2'}, self.sets())

    def test_threads_that_float_over_all_there_is(self):
        self.host.guest(5, specs={})
        for number in range(4):
            self.host.write(f'proc/1005/task/{number}/status',
                            f'Name:\tCPU {number}/KVM\n'
                            'Cpus_allowed_list:\t0-3\n')
        before = self.sets()
        self.keep()
        self.assertEqual(frozenset(), self.dedicated.own)
        self.assertEqual(before, self.sets())

    def test_threads_that_float_beside_isolated_cpus(self):
        for pid, name in ((1, 'systemd'), (1005, 'CPU 0/KVM')):
            self.host.write(f'proc/{pid}/task/{pid}/status',
                            f'Name:\t{name}\nCpus_allowed_list:\t0\n')
        self.host.guest(5, specs={})
        self.keep()
        self.assertEqual(frozenset(), self.dedicated.own)

    def test_threads_that_float_over_what_the_slice_has(self):
        """As many vCPUs as CPUs, and still the secondaries' as well."""
        self.make_sets(cpus='1-3')
        self.host.guest(5, specs={})
        for number in range(3):
            self.host.write(f'proc/1005/task/{number}/status',
                            f'Name:\tCPU {number}/KVM\n'
                            'Cpus_allowed_list:\t1-3\n')
        self.keep()
        self.assertEqual(frozenset(), self.dedicated.own)


class NarrowingV2(Narrowing):
    version = 2

    def test_a_thread_with_a_set_of_its_own_keeps_a_part_of_it(self):
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

    def test_the_controller_is_asked_for(self):
        os.remove(self.host.path(f'{self.scope()}/cpuset.cpus'))
        groups = [self.top + one for one in (
            '', self.host.slice, self.host.scope(NAME, 1))]
        for group in (*groups, self.inner()):
            self.host.write(f'{group}/{controllers.HANDED_ON}', 'cpu')
        self.primary([2])

        def kernel(group, name, value, put=cgroup_handles.put):
            put(group, name, value)
            if name == controllers.HANDED_ON:
                self.host.write(f'{self.scope()}/cpuset.cpus', '')

        with mock.patch.object(cgroup_handles, 'put', kernel):
            self.keep()
        self.assertEqual('+cpuset', self.host.read(
            f'{groups[1]}/{controllers.HANDED_ON}'))
        self.assertEqual({'0-1,3'}, self.sets())


class Problems(Base):
    def test_nothing_is_left(self):
        self.primary([0, 1, 2, 3])
        before = self.sets()
        self.keep()
        self.assertIn('primaries have all of the CPUs 0-3',
                      self.dedicated.problems[UUID])
        self.assertEqual(before, self.sets())
        self.leave()
        self.keep()
        self.assertEqual({}, self.dedicated.problems)

    def test_a_missing_file_is_named(self):
        path = f'{self.scope()}/cpuset.cpus'
        os.remove(self.host.path(path))
        self.primary([2])
        self.keep()
        self.assertIn(path, self.dedicated.problems[UUID])

    def test_a_write_that_has_no_effect(self):
        self.primary([2])
        with mock.patch.object(cgroup_handles, 'put'):
            self.keep()
        self.assertIn("after '", self.dedicated.problems[UUID])
        self.keep()
        self.assertEqual({}, self.dedicated.problems)

    def test_a_damaged_file_is_named(self):
        self.primary([2])
        for text in ('x', '3-1', '99999999', '9' * 5000):
            self.host.write(f'{self.scope()}/cpuset.cpus', text)
            self.keep()
            self.assertIn('cpuset.cpus says', self.dedicated.problems[UUID])

    def test_a_group_that_is_not_the_guests(self):
        self.primary([2])
        self.host.write('proc/1000/cgroup', '\n'.join(
            f'{number}:{name}:/machine/qemu-9-other/emulator'
            for number, name in ((3, 'cpu'), (1, 'cpuset'), (0, ''))))
        before = self.host.fingerprint()
        self.keep()
        self.assertIn('not named after', self.dedicated.problems[UUID])
        self.assertEqual(before, self.host.fingerprint())

    def test_a_problem_goes_with_its_guest(self):
        self.primary([0, 1, 2, 3])
        self.keep()
        self.host.libvirt.domains = self.host.libvirt.domains[1:]
        os.remove(self.host.path('proc/1000/stat'))
        self.keep()
        self.assertEqual({}, self.dedicated.problems)

    def test_dry_run(self):
        self.dedicated = self.make(dry_run=True)
        self.primary([2])
        before = self.host.fingerprint()
        self.keep()
        self.assertEqual(before, self.host.fingerprint())


class ProblemsV2(Problems):
    version = 2


class Restarts(Base):
    """An agent that dies, wherever it is."""

    def test_another_one_goes_on_and_releases(self):
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

    def test_death_between_the_record_and_the_writes(self):
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

    def test_until_the_first_listing_nothing_is_widened(self):
        self.primary([2])
        guests = self.keep()
        self.dedicated = self.make()
        self.dedicated.keep(guests)
        self.assertEqual({'0-1,3'}, self.sets())
        self.assertIsNone(self.dedicated.own)

    def test_death_on_the_way_from_one_set_to_another(self):
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

    def test_a_lost_record_widens_nothing(self):
        self.primary([2])
        self.keep()
        os.remove(self.host.store.path(dedicated_cpus.STATE))
        self.dedicated = self.make()
        self.leave()
        self.keep()
        self.assertEqual({'0-1,3'}, self.sets())

    def test_a_spoilt_record(self):
        key = f'{UUID} 1000 77'
        self.primary([2])
        for guests in (7, {key: 7}, {key: {'': 7}}, {key: {'': ['0-9']}},
                       {key: {'': ['x', ['y']]}}, {key: {'': [1, 2]}}):
            self.host.store.save(dedicated_cpus.STATE, {'guests': guests})
            self.make_sets()
            self.dedicated = self.make()
            self.keep()
            self.assertEqual({'0-1,3'}, self.sets(), guests)


class RestartsV2(Restarts):
    version = 2


class TheAgent(Sets, test_service.Base):
    """The whole agent on a host where no CPU is left."""

    version = 2

    def setUp(self):
        super().setUp()
        self.prepare_sets()
        self.host.guest(0)
        self.make_sets()

    def test_the_floor_an_alarm_and_a_closed_host(self):
        agent = self.make()
        agent._domains_changed()
        agent.step()
        self.steps(agent, 8, 30.0, g0=10.0)
        self.assertFalse(agent.floors.floored(UUID))
        self.primary([0, 1, 2, 3])
        agent.domains.refresh()
        agent._domains_changed()
        self.assertIn(Reason.CPUS, agent.floors.reasons(UUID))
        self.assertEqual('1000 100000', self.host.quota(0))
        status = agent.reporter.status()
        self.assertFalse(status['admission'])
        self.assertIn('primaries have all of the CPUs 0-3', status['reason'])
        self.assertTrue(status['instances'][0]['floored'])
        self.assertEqual([0, 1, 2, 3], status['dedicated_cpus'])
        self.steps(agent, 5, 30.0)
        self.assertEqual('1000 100000', self.host.quota(0))
        # A CPU that is free again ends all that.
        self.host.libvirt.domains.pop()
        self.primary([0, 1, 2], 6)
        agent.domains.refresh()
        agent._domains_changed()
        self.assertEqual({'3'}, self.sets())
        self.steps(agent, 8, 30.0, g0=10.0)
        self.assertFalse(agent.floors.floored(UUID))
        self.assertEqual({}, agent.reporter.status()['problems'])

    def test_each_step_looks_at_the_sets(self):
        agent = self.make()
        self.primary([2])
        agent.domains.refresh()
        agent._domains_changed()
        self.make_sets()
        agent.step()
        self.assertEqual({'0-1,3'}, self.sets())

    def test_another_agent_while_libvirt_is_away(self):
        agent = self.make()
        self.primary([2])
        agent.domains.refresh()
        agent._domains_changed()
        self.assertEqual({'0-1,3'}, self.sets())
        self.host.libvirt.error = OSError('libvirtd is dead')
        again = self.make()
        again._domains_changed()
        again.step()
        self.assertEqual([UUID], [
            one.uuid for one in again.domains.secondaries()])
        self.assertEqual({'0-1,3'}, self.sets())
        self.assertEqual([], again.reporter.status()['dedicated_cpus'])

    def test_an_error_means_the_floor(self):
        agent = self.make()
        agent.step()
        self.steps(agent, 8, 30.0, g0=10.0)
        with mock.patch.object(agent.dedicated, 'keep',
                               side_effect=RuntimeError):
            self.steps(agent, 1, 30.0, g0=10.0)
        self.assertNotEqual('', agent.floors.reasons(UUID))

    def test_release(self):
        agent = self.make()
        self.primary([2])
        agent.domains.refresh()
        agent._domains_changed()
        acting = actuator.Actuator(self.host.hierarchy(), self.host.store)
        again = dedicated_cpus.DedicatedCpus(
            self.host.hierarchy(), self.host.store, acting.controllers)
        for guest in agent.domains.secondaries():
            self.assertTrue(again.release(guest))
        self.assertEqual({''}, self.sets())
