"""Secondaries that the kernel does not let us limit.

Nothing may be told of a limit that is not in force.
"""

import os
import unittest
from unittest import mock

from secondary_scheduler.agent import (
    actuator,
    cgroup_handles,
    controllers,
    domains,
    local_trigger,
    metrics,
)
from secondary_scheduler.agent.floors import Reason
from secondary_scheduler.model.reports import PolicyState
from tests.unit.agent import fakes, test_service

UUID = fakes.UUIDS[0]
NAME = 'instance-00000000'


class Base(unittest.TestCase):
    """A guest on a host of version 2."""

    version = 2

    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.host.guest(0)
        self.scope = self.host.scope(NAME, 1)
        self.inner = self.host.cpu(self.scope) + '/libvirt' * (
            self.version == 2)
        self.actuator = self.make()
        self.guest, = self.secondaries()

    def make(self, **kwargs):
        made = actuator.Actuator(self.host.hierarchy(), self.host.store,
                                 **kwargs)
        made.service_cpus = 0.5
        return made

    def secondaries(self):
        known = domains.Domains(self.host.libvirt.connect, self.host.store,
                                self.host.run_dir, proc=self.host.proc)
        known.refresh()
        return known.secondaries()

    def take(self, path):
        os.remove(self.host.path(path))

    def take_controller(self):
        for thread in ('vcpu0', 'vcpu1', 'emulator', 'iothread1'):
            self.take(f'{self.inner}/{thread}/cpu.max')

    def check_unlimited(self, file):
        for limit in (lambda: self.actuator.set_share(self.guest, 10.0, 4.0),
                      lambda: self.actuator.floor(self.guest),
                      lambda: self.actuator.floor(self.guest,
                                                  service=False)):
            self.assertFalse(limit())
            self.assertIn(file, self.actuator.problems[UUID])
            self.assertFalse(self.actuator.is_limited(UUID))


class NamedFiles(Base):
    def test_a_missing_file(self):
        for name in ('vcpu1/cpu.max', 'emulator/cpu.max'):
            path = f'{self.inner}/{name}'
            before = self.host.read(path)
            self.take(path)
            self.actuator = self.make()
            self.check_unlimited(path)
            self.host.write(path, before)
            self.assertTrue(self.actuator.floor(self.guest))
            self.assertEqual({}, self.actuator.problems)
            self.assertTrue(self.actuator.is_limited(UUID))

    def test_a_missing_controller(self):
        self.take_controller()
        self.check_unlimited('/cpu.max')

    def test_a_missing_group(self):
        path = self.host.path(f'{self.inner}/vcpu1')
        for name in os.listdir(path):
            os.remove(f'{path}/{name}')
        os.rmdir(path)
        self.check_unlimited('/vcpu1')

    def test_a_damaged_file(self):
        for text in ('', 'max', '5', 'x 100000', '1000 0', '-5 100000'):
            self.host.write(f'{self.inner}/vcpu0/cpu.max', text)
            self.check_unlimited('vcpu0/cpu.max says')

    def test_a_write_that_has_no_effect(self):
        before = self.host.quota(0)
        with mock.patch.object(cgroup_handles, 'put'):
            self.check_unlimited('vcpu')
            self.assertIn('after', self.actuator.problems[UUID])
        self.assertEqual(before, self.host.quota(0))

    def test_a_write_that_is_refused(self):
        with mock.patch.object(
            cgroup_handles,
            'put',
            side_effect=PermissionError(
                1, 'no', f'{self.inner}/vcpu0/cpu.max'
            ),
        ):
            self.check_unlimited('vcpu0/cpu.max')

    def test_one_that_has_ended_is_no_problem(self):
        self.actuator.set_share(self.guest, 50.0, 4.0)
        self.take_controller()
        self.host.process(1000, 99, UUID, NAME)
        self.assertFalse(self.actuator.floor(self.guest))
        self.assertEqual({}, self.actuator.problems)

    def test_memory_counts_once_it_is_read_back(self):
        with mock.patch.object(cgroup_handles, 'put'):
            self.assertFalse(self.actuator.press_memory(self.guest))


class NamedFilesV1(Base):
    version = 1

    def test_a_missing_file(self):
        self.take(f'{self.inner}/vcpu1/cpu.cfs_quota_us')
        self.check_unlimited('vcpu1/cpu.cfs_quota_us')

    def test_a_write_that_has_no_effect(self):
        with mock.patch.object(cgroup_handles, 'put'):
            self.check_unlimited('vcpu0/cpu.cfs_')


class Freezer(Base):
    def setUp(self):
        super().setUp()
        self.file = self.host.cpu(self.scope) + '/cgroup.freeze'
        self.host.write(self.file, '0')
        self.take_controller()

    def test_the_next_means_and_its_end(self):
        self.assertTrue(self.actuator.floor(self.guest))
        self.assertEqual('1', self.host.read(self.file))
        # It is held, but still named.
        self.assertIn('cpu.max', self.actuator.problems[UUID])
        self.assertTrue(self.actuator.is_limited(UUID))
        # An operation of Nova's, or room for it, ends that.
        for lift in (lambda: self.actuator.lift_emulator(self.guest),
                     lambda: self.actuator.floor(self.guest, service=False),
                     lambda: self.actuator.set_share(self.guest, 9.0, 4.0),
                     lambda: self.make().release(self.guest)):
            self.actuator.floor(self.guest)
            self.assertEqual('1', self.host.read(self.file))
            lift()
            self.assertEqual('0', self.host.read(self.file))

    def test_a_freezer_that_does_nothing_holds_nobody(self):
        with mock.patch.object(cgroup_handles, 'put'):
            self.assertFalse(self.actuator.floor(self.guest))
            self.assertFalse(self.actuator.is_limited(UUID))

    def test_it_thaws_when_the_floor_works_again(self):
        self.actuator.floor(self.guest)
        self.host.limits(self.scope + '/libvirt/vcpu0')
        for thread in ('vcpu0', 'vcpu1', 'emulator', 'iothread1'):
            self.host.write(f'{self.inner}/{thread}/cpu.max', 'max 100000')
        self.assertTrue(self.actuator.floor(self.guest))
        self.assertEqual('0', self.host.read(self.file))
        self.assertEqual({}, self.actuator.problems)

    def test_dry_run(self):
        self.assertFalse(self.make(dry_run=True).floor(self.guest))
        self.assertEqual('0', self.host.read(self.file))


class Kernel:
    """Writes as the kernel does: groups below get a controller's files."""

    def __init__(self, host):
        self.host = host
        self.put = cgroup_handles.put
        self.refused = ()

    def __call__(self, group, name, value):
        if name != controllers.HANDED_ON:
            return self.put(group, name, value)
        if group.path in self.refused:
            raise OSError(16, 'busy', f'{group.path}/{name}')
        names = set(group.read(name).split())
        (names.add if value[0] == '+' else names.discard)(value[1:])
        self.put(group, name, ' '.join(sorted(names)))
        for child in group.children():
            path = f'{group.path}/{child}/cpu.max'
            if 'cpu' in names:
                with open(path, 'a') as file:
                    if not file.tell():
                        file.write('max 100000')
            elif os.path.exists(path):
                os.remove(path)
        return None


class HandedOn(Base):
    def setUp(self):
        super().setUp()
        self.groups = [self.host.cpu(path) for path in (
            '', self.host.slice, self.scope, self.scope + '/libvirt')]
        for path in self.groups:
            self.host.write(f'{path}/{controllers.HANDED_ON}', 'cpu memory')
        self.kernel = Kernel(self.host)
        patch = mock.patch.object(cgroup_handles, 'put', self.kernel)
        patch.start()
        self.addCleanup(patch.stop)

    def lose(self, *paths):
        self.take_controller()
        for path in paths:
            self.host.write(f'{path}/{controllers.HANDED_ON}', 'memory')

    def handed_on(self):
        return ['cpu' in self.host.read(
            f'{path}/{controllers.HANDED_ON}').split()
            for path in self.groups]

    def test_it_is_asked_for_and_given_back(self):
        self.lose(*self.groups[2:])
        self.assertTrue(self.actuator.floor(self.guest))
        self.assertEqual([True] * 4, self.handed_on())
        self.assertEqual('1000 100000', self.host.quota(0, 'vcpu1'))
        self.assertEqual({}, self.actuator.problems)
        # Another agent undoes it.
        self.assertTrue(self.make().release(self.guest))
        self.assertEqual([True, True, False, False], self.handed_on())

    def test_where_others_need_it_it_stays(self):
        self.host.guest(1)
        guests = sorted(self.secondaries(), key=lambda one: one.uuid)
        self.lose(*self.groups[1:])
        self.assertTrue(self.actuator.floor(guests[0]))
        self.actuator.floor(guests[1])
        again = self.make()
        again.release(guests[0])
        self.assertEqual([True, True, False, False], self.handed_on())
        again.release(guests[1])
        self.assertEqual([True, False, False, False], self.handed_on())

    def test_what_was_there_is_never_taken_away(self):
        self.actuator.floor(self.guest)
        self.actuator.release(self.guest)
        self.assertEqual([True] * 4, self.handed_on())

    def test_a_refusal_is_told_and_tried_again_later(self):
        self.lose(self.groups[3])
        self.kernel.refused = [self.host.path(self.groups[3])]
        now = 0.0
        self.actuator.controllers._clock = lambda: now
        self.check_unlimited('cpu.max')
        self.kernel.refused = ()
        self.assertFalse(self.actuator.floor(self.guest))
        now = 10.0
        self.assertTrue(self.actuator.floor(self.guest))

    def test_dry_run(self):
        self.lose(self.groups[3])
        before = self.host.fingerprint()
        self.make(dry_run=True).floor(self.guest)
        self.assertEqual(before, self.host.fingerprint())

    def test_a_spoilt_record_reaches_nothing_else(self):
        self.host.write('elsewhere/' + controllers.HANDED_ON, 'cpu')
        for record in ('x', [7], [['a']], [[7, 'cpu']],
                       [[self.host.path('elsewhere'), 'cpu']],
                       [[self.host.path(self.groups[0]), 'memory']],
                       [[self.host.path(self.groups[0]) + '/../../elsewhere',
                         'cpu']]):
            self.host.store.save(controllers.STATE, {'handed_on': record})
            self.make().release(self.guest)
            self.assertEqual('cpu', self.host.read(
                'elsewhere/' + controllers.HANDED_ON))
            self.assertEqual([True] * 4, self.handed_on())

    def test_another_agents_group_is_left_alone(self):
        hand = controllers.Controllers(self.host.hierarchy(),
                                       self.host.store)
        before = self.host.fingerprint()
        for base in ('/tmp', self.host.path('cgroup')):
            self.assertFalse(hand.hand_on(base, 'cpu'))
        self.assertFalse(hand.hand_on(self.host.path(self.inner), 'memory'))
        self.assertEqual(before, self.host.fingerprint())


class TheAgent(test_service.Base):
    """The whole agent beside such a guest."""

    version = 2

    def setUp(self):
        super().setUp()
        self.host.guest(0)
        inner = self.host.cpu(self.host.scope(NAME, 1)) + '/libvirt'
        self.file = f'{inner}/vcpu1/cpu.max'
        os.remove(self.host.path(self.file))

    def agent(self, percent=30.0):
        agent = self.make()
        agent.step()
        self.steps(agent, 8, percent, g0=10.0)
        return agent

    def test_it_is_named_everywhere_and_closes_the_host(self):
        status = self.agent().reporter.status()
        self.assertFalse(status['admission'])
        for text in (status['reason'], status['problems'][UUID],
                     status['instances'][0]['problem']):
            self.assertIn(self.file, text)
        self.assertIn(UUID, status['reason'])
        self.assertIsNone(status['instances'][0]['cap'])
        self.assertFalse(status['instances'][0]['floored'])
        self.assertEqual({}, status['floors'])
        self.assertIn(self.file, [
            sample.labels['reason'] for family in metrics.families(status)
            for sample in family.samples
            if sample.name.endswith('instance_limit_failing')][0])

    def check(self, agent, times=12):
        with mock.patch.object(agent.trigger._meter, 'sample') as sample:
            sample.return_value = mock.Mock(total=99.0, primary=20.0)
            for _ in range(times):
                agent.check()

    def test_it_is_never_counted_as_floored(self):
        agent = self.agent()
        self.check(agent)
        self.assertEqual({Reason.POLICY},
                         agent.floors.reasons(UUID) & {Reason.POLICY})
        self.assertEqual((0, 0), (agent.trigger.counters['floors'],
                                  agent.trigger.counters['floored_s']))
        self.assertIs(PolicyState.INVALID, agent.trigger.reports[0].state)

    def test_the_local_trigger_goes_on_to_the_freezer(self):
        freezer = self.host.cpu(self.host.scope(NAME, 1)) + '/cgroup.freeze'
        self.host.write(freezer, '0')
        agent = self.agent()
        self.check(agent)
        self.assertEqual('1', self.host.read(freezer))
        self.assertEqual(1, agent.trigger.counters['floors'])
        self.assertIs(PolicyState.HELD, agent.trigger.reports[0].state)
        self.assertFalse(agent.reporter.status()['admission'])

    def test_the_local_trigger_kills_where_that_is_configured(self):
        agent = self.agent()
        with mock.patch.object(agent.actuator, 'kill',
                               return_value=True) as kill:
            agent.trigger._options = lambda: (
                local_trigger.TriggerOptions(1.0, 10.0, 5.0, True, {}, False))
            self.check(agent, 9)
            kill.assert_called_once()
        self.assertEqual(1, agent.trigger.counters['kills'])
        self.assertEqual(0, agent.trigger.counters['floors'])


