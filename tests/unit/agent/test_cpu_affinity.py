# SPDX-License-Identifier: Apache-2.0

import json
import os
from unittest import mock

from secondary_scheduler.agent import (
    cpu_sets,
    cpu_topology,
    dedicated_cpus,
    kernel_files,
)
from secondary_scheduler.agent.affinity_views import AffinityViews, HostUse
from secondary_scheduler.agent.cpu_affinity import CpuAffinity
from secondary_scheduler.cmd import agent as command
from secondary_scheduler.cpu_affinity import pool
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase
from tests.unit.agent.test_dedicated_cpus import Sets
from tests.unit.agent.test_vcpu_times import Times


class Base(Sets, Times, AgentTestCase):
    """An agent with a driver, on a host of four cores without SMT."""

    driver = 'pool'

    def setUp(self):
        super().setUp()
        self.prepare_sets()
        for cpu in range(4):
            folder = f'sys/cpu/cpu{cpu}'
            for name, cpus in (('core_cpus_list', cpu), ('die_cpus_list',
                                                         '0-3'),
                               ('package_cpus_list', '0-3')):
                self.host.write(f'{folder}/topology/{name}', str(cpus))
            for name, text in (('type', 'Unified'), ('level', '3'),
                               ('shared_cpu_list', '0-3')):
                self.host.write(f'{folder}/cache/index0/{name}', text)
        self.host.write('sys/node/node0/cpulist', '0-3')
        self.host.guest(0)
        self.make_sets()
        self.set_times(0.0, 0.0, 0.0)
        self.set_masks('0-3', '0-3')

    def set_masks(self, *masks, n=0):
        """Set the CPUs on which the threads of a guest's vCPUs run."""
        for name in ('emulator', 'iothread1'):
            self.host.write(f'{self.inner(n)}/{name}/{self.tasks}', '')
        for number, cpus in enumerate(masks):
            thread = 2000 + 10 * n + number
            self.host.write(f'{self.inner(n)}/vcpu{number}/{self.tasks}',
                            f'{thread}\n')
            self.host.write(f'proc/{thread}/status',
                            f'Name:\tx\nCpus_allowed_list:\t{cpus}\n')

    @property
    def tasks(self):
        return 'tasks' if self.version == 1 else 'cgroup.threads'

    def made(self, **options):
        for name, value in {'cpu_affinity': self.driver, **options}.items():
            self.conf.set_override(name, value, 'secondary_agent')
            self.addCleanup(self.conf.clear_override, name, 'secondary_agent')
        with mock.patch.object(CpuAffinity.__init__, '__defaults__', (
                lambda: self.now, self.host.path('sys/cpu'))):
            agent = self.make()
        agent._domains_changed()
        return agent

    def choose(self, agent, share=0.8, primary=0.2):
        """Let the driver choose, as a kernel that applies what is written."""
        self.now += 1.0
        guests = agent.parts.domains.secondaries()
        agent.parts.affinity.step(guests, HostUse(primary, share))
        self.follow(agent)
        agent._keep_cpus(lambda: guests)
        return agent.parts.affinity

    def follow(self, agent):
        """Give threads the masks that their groups are about to get."""
        for guest in agent.parts.domains.secondaries():
            assigned = agent.parts.affinity.assigned(guest)
            if assigned:
                self.set_masks(*map(kernel_files.format_cpus, assigned.vcpus),
                               n=fakes.UUIDS.index(guest.uuid))

    def cpus(self, name):
        return self.host.read(f'{self.inner()}/{name}/cpuset.cpus').strip()


class PoolTest(Base):
    def test_guests_share_the_fewest_cores_that_hold_their_share(self):
        before = self.host.fingerprint()
        agent = self.made()
        affinity = self.choose(agent)
        self.assertEqual('0', affinity.status(())['pool'])
        self.assertEqual(['0', '0', '0', '0'], [self.cpus(name) for name in (
            'vcpu0', 'vcpu1', 'emulator', 'iothread1')])
        # The wider share asks for a second core, in the next period.
        self.set_times(9.0, 0.0, 0.0)
        self.now += 11.0
        self.choose(agent, share=1.6)
        self.assertEqual(2, len(affinity.status(())['pool'].split('-')))
        guest, = agent.parts.domains.secondaries()
        self.assertEqual(2, affinity.most_cpus(guest))
        self.assertTrue(agent.parts.dedicated_cpus.release(guest))
        agent.parts.actuator.release(guest)
        agent.parts.actuator.free_slice()
        self.assertEqual(self.changed(before), {})

    def changed(self, before):
        """Return files of sets whose value is not the one before."""
        now = self.host.fingerprint()
        return {path: now[path] for path in before
                if path.endswith('cpuset.cpus')
                and before[path].strip() != now[path].strip()}

    def test_pool_of_an_agent_that_starts_does_not_wait_for_a_period(self):
        agent = self.made()
        affinity = agent.parts.affinity
        self.assertTrue(affinity.step(agent.parts.domains.secondaries(),
                                      None))
        self.assertEqual('0-1', affinity.status(())['pool'])
        self.choose(agent)
        self.assertEqual('0', affinity.status(())['pool'])

    def test_pool_bounds_what_a_guest_can_use(self):
        agent = self.made()
        agent.step()
        self.steps(agent, 8, 20.0, g0=10.0)
        self.assertGreater(agent.parts.control.caps[fakes.UUIDS[0]], 25.1)
        self.choose(agent)
        self.steps(agent, 3, 30.0, g0=20.0)
        self.assertAlmostEqual(
            25.0, agent.parts.control.caps[fakes.UUIDS[0]])

    def test_unchanged_host_is_not_written(self):
        agent = self.made()
        self.choose(agent)
        with mock.patch.object(
                agent.parts.dedicated_cpus, '_write',
                side_effect=AssertionError), mock.patch.object(
                agent.parts.store, 'save', side_effect=AssertionError):
            for _ in range(30):
                self.choose(agent)
        self.assertEqual({}, agent.parts.dedicated_cpus.problems)

    def test_unchanged_sets_are_only_compared(self):
        agent = self.made()
        for _ in range(3):
            self.choose(agent)
        with mock.patch.object(dedicated_cpus, 'update_record',
                               side_effect=AssertionError):
            self.choose(agent)
        self.assertEqual({}, agent.parts.dedicated_cpus.refusals)
        self.host.write(f'{self.inner()}/vcpu0/cpuset.cpus', '0-3')
        self.choose(agent)
        self.assertEqual('0', self.cpus('vcpu0'))

    def test_control_step_writes_the_decision_of_a_thread_that_hangs(self):
        agent = self.made()
        agent.parts.affinity.step(agent.parts.domains.secondaries(),
                                  HostUse(0.2, 0.8))
        self.follow(agent)
        self.assertEqual('0-3' if self.version == 1 else '',
                         self.cpus('vcpu0'))
        agent.step()
        self.assertEqual('0', self.cpus('vcpu0'))

    def test_failed_decision_is_a_reason_to_write(self):
        agent = self.made()
        agent.choose_cpus()
        self.now += 11.0
        with mock.patch.object(pool.PoolAffinity, 'decide',
                               side_effect=ZeroDivisionError('oops')
                               ), mock.patch.object(
                                   agent, '_keep_cpus') as kept:
            agent.choose_cpus()
        kept.assert_called_once()

    def test_sets_are_written_when_there_is_another_decision(self):
        agent = self.made()
        agent.choose_cpus()
        self.follow(agent)
        with mock.patch.object(agent, '_keep_cpus') as kept:
            agent.choose_cpus()
            kept.assert_not_called()
            self.host.guest(1)
            self.make_sets(1)
            agent.parts.domains.refresh()
            agent.choose_cpus()
            kept.assert_called_once()

    def test_none_restores_the_sets_of_an_agent_before(self):
        before = self.host.fingerprint()
        self.choose(self.made())
        self.assertNotEqual({}, self.changed(before))
        agent = self.made(cpu_affinity='none')
        self.assertEqual({}, self.changed(before))
        self.assertEqual({}, self.host.store.load(cpu_sets.STATE)['guests'])
        self.assertEqual({}, agent.reporter.status()['affinity']['guests'])

    def test_advice_writes_nothing(self):
        before = self.host.fingerprint()
        agent = self.made(cpu_affinity_advice=True)
        affinity = self.choose(agent)
        self.assertEqual({}, self.changed(before))
        guest, = agent.parts.domains.secondaries()
        self.assertEqual(['0', '0'], affinity.status([guest])[
            'guests'][guest.uuid]['cpus'])
        self.assertEqual(2, affinity.most_cpus(guest))

    def test_set_is_there_again_after_a_restart_of_the_guest(self):
        agent = self.made()
        self.choose(agent)
        self.make_sets()
        agent._keep_cpus(agent.parts.domains.secondaries)
        self.assertEqual('0', self.cpus('vcpu0'))

    def test_threads_of_qemu_have_their_first_set_during_an_operation(self):
        agent = self.made()
        self.choose(agent)
        agent.parts.floors.operate(fakes.UUIDS[0], 60.0)
        agent._keep_cpus(agent.parts.domains.secondaries)
        self.assertEqual(('0', {1: '0-3', 2: ''}[self.version]),
                         (self.cpus('vcpu0'), self.cpus('emulator')))

    def test_dedicated_cpus_are_not_in_the_pool(self):
        agent = self.made()
        self.choose(agent)
        self.primary([0])
        agent.parts.domains.refresh()
        self.follow(agent)
        agent._domains_changed()
        # Until the driver has chosen again, the guest has all other CPUs.
        self.assertNotIn('0', self.cpus('vcpu0').split('-'))
        self.choose(agent)
        self.assertEqual('1', self.cpus('vcpu0'))
        self.assertEqual({}, agent.parts.dedicated_cpus.problems)
        self.assertEqual(3, agent.parts.affinity.count_usable())

    def test_topology_is_read_anew_when_a_cpu_is_taken_away(self):
        agent = self.made()
        self.choose(agent)
        name = ('cpuset/cpuset.effective_cpus' if self.version == 1
                else 'all/cpuset.cpus.effective')
        self.host.write(f'cgroup/{name}', '1-3')
        self.choose(agent)
        self.assertEqual('1', self.cpus('vcpu0'))
        self.assertIn('3 CPUs', agent.parts.affinity.status(())['topology'])

    def test_idle_guest_gets_cpus_at_once_when_it_wakes(self):
        """It does not wait for the end of a period of 60 s."""
        agent = self.made(cpu_affinity_period=60.0)
        for _ in range(70):
            self.choose(agent)
        self.assertEqual({fakes.UUIDS[0]}, agent.parts.affinity._decision.idle)
        self.set_times(1.0, 0.0, 0.0)
        self.choose(agent)
        self.assertEqual(frozenset(), agent.parts.affinity._decision.idle)

    def test_refused_set_leaves_the_first_one(self):
        agent = self.made()
        self.follow = lambda one: None      # a kernel that accepts silently
        self.choose(agent)
        guest, = agent.parts.domains.secondaries()
        status = agent.parts.affinity.status([guest])['guests'][guest.uuid]
        self.assertIn('may run on CPUs 0-3', status['reason'])
        self.assertEqual({'0-3' if self.version == 1 else ''}, {
            self.cpus(name) for name in ('vcpu0', 'vcpu1', 'emulator')})
        self.assertEqual({}, agent.parts.dedicated_cpus.problems)
        # It is tried again after some seconds, and less and less often.
        agent.parts.dedicated_cpus._clock = lambda: 1e6
        del self.follow
        self.choose(agent)
        self.assertEqual('0', self.cpus('vcpu0'))
        self.assertEqual({}, agent.parts.dedicated_cpus.refusals)

    def test_nothing_is_written_that_cannot_be_undone(self):
        before = self.host.fingerprint()
        agent = self.made()
        with mock.patch.object(agent.parts.store, 'save',
                               return_value=False):
            self.choose(agent)
            self.assertEqual({}, self.changed(before))
            self.assertIn('the first sets cannot be recorded', str(
                agent.parts.dedicated_cpus.refusals))
            # A primary is protected all the same.
            self.primary([0])
            agent.parts.domains.refresh()
            agent._domains_changed()
        self.assertNotEqual({}, self.changed(before))
        self.assertEqual({}, agent.parts.dedicated_cpus.problems)

    def test_error_of_the_driver_ends_the_sets(self):
        before = self.host.fingerprint()
        agent = self.made()
        self.choose(agent)
        self.now += 11.0
        with mock.patch.object(pool.PoolAffinity, 'decide',
                               side_effect=ZeroDivisionError('oops')):
            self.choose(agent)
        self.assertEqual({}, self.changed(before))
        self.assertEqual(['oops'],
                         agent.parts.affinity.status(())['problems'])
        self.choose(agent)
        self.assertEqual([], agent.parts.affinity.status(())['problems'])

    def test_screen_names_pool_and_cpus(self):
        agent = self.made()
        self.choose(agent)
        self.set_times(1.0, 1.0, 0.0)
        self.choose(agent)
        lines = '\n'.join(command._affinity_lines(
            agent.reporter.status()['affinity']))
        self.assertIn('4 CPUs on 4 cores, 1 shared L3', lines)
        self.assertIn('pool, secondaries share CPUs 0, ', lines)
        self.assertIn(f'secondary {fakes.UUIDS[0]}: vCPUs on CPUs 0 0, '
                      'slow-down by sharing of time 2.00', lines)

    def test_incomplete_sysfs_is_said(self):
        os.remove(self.host.path('sys/cpu/cpu3/cache/index0/level'))
        affinity = self.choose(self.made())
        self.assertIn('unknown: caches', affinity.status(())['topology'])


    def test_sets_are_within_those_of_the_vcpus(self):
        """libvirt gives ``cpu_shared_set`` to vCPUs, and not to their guest.
        """
        for name in ('vcpu0', 'vcpu1'):
            self.host.write(f'{self.inner()}/{name}/cpuset.cpus', '2-3')
        self.set_masks('2-3', '2-3')
        agent = self.made()
        affinity = self.choose(agent)
        self.assertEqual('2', affinity.status(())['pool'])
        self.assertEqual('2', self.cpus('vcpu0'))
        self.assertEqual(2, affinity.count_usable())


class PoolV2Test(PoolTest):
    version = 2


class DriversTest(Base):
    driver = 'round-robin'

    def test_each_vcpu_has_one_cpu(self):
        agent = self.made()
        self.choose(agent)
        self.assertEqual({'0', '1'}, {self.cpus('vcpu0'), self.cpus('vcpu1')})

    def test_unknown_driver_stops_the_agent_and_lists_the_known_ones(self):
        with self.assertRaisesRegex(
                ValueError, 'cpu_affinity = roundrobin: expected one of '
                'interference, none, pool, resource, round-robin'):
            self.made(cpu_affinity='roundrobin')

    def test_unreadable_profiles_are_named_and_not_used(self):
        document = {'classes': ['a'], 'uses': {'a': {'cpu': 50}},
                    'time_sharing': [[0.5]]}
        self.host.write('profiles.json', json.dumps(document))
        path = self.host.path('profiles.json')
        agent = self.made(cpu_affinity_profiles=path)
        problem, = agent.reporter.status()['affinity']['problems']
        self.assertIn(f'{path}: time_sharing[a][a]: expected a number from 1',
                      problem)
        self.choose(agent)
        self.assertEqual({'0', '1'}, {self.cpus('vcpu0'), self.cpus('vcpu1')})

    def profiles(self):
        """Write profiles of two classes; return the path."""
        self.host.write('profiles.json', json.dumps({
            'classes': ['a', 'b'],
            'uses': {'a': {'cpu': 100}, 'b': {'cpu': 100}},
            'time_sharing': [[2.0, 2.5], [2.0, 3.0]]}))
        return self.host.path('profiles.json')

    def test_profiles_of_another_cpu_model_are_used_and_named(self):
        self.host.write('proc/cpuinfo', 'model name : Xeon\n')
        path = self.profiles()
        with open(path) as file:
            document = json.load(file)
        for model, problems in (('Xeon', 0), ('EPYC', 1)):
            document['measurement'] = {
                'cpu_model': model, 'kernel': '6.1', 'metric': 'units',
                'seconds': 10, 'slowdowns': []}
            self.host.write('profiles.json', json.dumps(document))
            agent = self.made(cpu_affinity_profiles=path)
            found = agent.reporter.status()['affinity']['problems']
            self.assertEqual(problems, len(found))
            self.assertEqual(2.5, agent.parts.affinity._classes.profiles
                             .time_sharing.slowdown('a', 'b'))
        self.assertIn('measured on EPYC', found[0])

    def test_report_predicts_one_more_of_each_known_class(self):
        agent = self.made(cpu_affinity_profiles=self.profiles())
        self.assertEqual({}, agent.reporter.build_report().arrivals)
        self.choose(agent)
        found = agent.reporter.build_report().arrivals
        self.assertEqual({'a', 'b'}, found.keys())
        self.assertEqual(1.0, found['a'].slowdown)
        for options in ({'cpu_affinity_profiles': None},
                        {'cpu_affinity_advice': True},
                        {'cpu_affinity': 'none'}):
            agent = self.made(**options)
            self.choose(agent)
            self.assertEqual({}, agent.reporter.build_report().arrivals)

    def pair(self):
        """Have one guest of each class, and one CPU for both."""
        for n, name in enumerate('ab'):
            self.host.guest(n, specs={
                **fakes.MARKED, 'lifecycle:workload_class': name}, vcpus=1)
            self.make_sets(n)
        self.primary([1, 2, 3])
        for one in self.host.libvirt.domains[1:3]:
            one.xml = one.xml.replace('<vcpu>2', '<vcpu>1').replace(
                'vcpus>2', 'vcpus>1')
        del self.host.libvirt.domains[0]

    def test_nothing_is_learned_while_sets_are_not_in_force(self):
        """As with advice, and as for guests that have just moved."""
        self.pair()
        for options, learns in (({'cpu_affinity_advice': True}, False),
                                ({'cpu_affinity_advice': False}, True)):
            agent = self.made(cpu_affinity_profiles=self.profiles(),
                              **options)
            classes = agent.parts.affinity._classes
            with mock.patch.object(AffinityViews, 'slowdown',
                                   return_value=4.0):
                self.choose(agent, primary=0.01)
                for _ in range(2):
                    self.now += 600.0
                    self.choose(agent, primary=0.01)
            self.assertIs(learns, 2.5 < classes.profiles.time_sharing.slowdown(
                'a', 'b'))
            self.assertEqual(0, agent.parts.affinity.moves)
        self.now += 600.0
        agent.parts.affinity._since = dict.fromkeys(fakes.UUIDS[:2], self.now)
        with mock.patch.object(classes, 'observe') as observe:
            self.choose(agent, primary=0.01)
        observe.assert_called_once_with([])

    def test_newcomer_is_predicted_on_cpus_that_secondaries_get(self):
        """And not on the free CPUs of ``cpu_dedicated_set``."""
        self.pair()
        del self.host.libvirt.domains[-1]       # the primary
        for n in range(2):
            self.make_sets(n, '0')
        agent = self.made(cpu_affinity_profiles=self.profiles())
        self.assertEqual(1, self.choose(agent).count_usable())
        found = agent.reporter.build_report().arrivals
        self.assertLess(2.5, found['a'].slowdown)

    def test_empty_host_has_all_cpus_again(self):
        self.pair()
        agent = self.made()
        affinity = self.choose(agent)
        self.assertEqual(1, affinity.count_usable())
        self.host.libvirt.domains.clear()
        agent.parts.domains.refresh()
        agent._domains_changed()
        self.assertEqual(4, self.choose(agent).count_usable())

    def test_advice_says_what_the_sets_would_gain(self):
        self.pair()
        agent = self.made(cpu_affinity_profiles=self.profiles(),
                          cpu_affinity_advice=True)
        self.choose(agent)
        found = agent.reporter.status()['affinity']
        self.assertEqual({fakes.UUIDS[0]: 2.5, fakes.UUIDS[1]: 2.0}, {
            uuid: one['predicted'] for uuid, one in found['guests'].items()})
        self.assertIn('2.50 predicted by profiles',
                      '\n'.join(command._affinity_lines(found)))

    def test_classes_are_learned_from_guests_on_one_cpu(self):
        self.pair()
        agent = self.made(cpu_affinity_profiles=self.profiles())
        classes = agent.parts.affinity._classes
        with mock.patch.object(AffinityViews, 'slowdown',
                               return_value=4.0):
            for primary in (0.2, 0.2):
                self.choose(agent, primary=primary)
                self.assertEqual(2.5, classes.profiles.time_sharing.slowdown(
                    'a', 'b'))
                self.now += 600.0
            self.choose(agent, primary=0.01)
        self.assertLess(2.5, classes.profiles.time_sharing.slowdown('a', 'b'))
        driver = agent.parts.affinity._driver
        self.choose(agent)
        self.assertIsNot(driver, agent.parts.affinity._driver)
        self.assertIs(classes.profiles,
                      agent.parts.affinity._driver.profiles)

    def test_default_folder_is_that_of_the_kernel(self):
        self.assertEqual(cpu_topology.SYSFS,
                         CpuAffinity.__init__.__defaults__[1])
