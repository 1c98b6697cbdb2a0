# SPDX-License-Identifier: Apache-2.0

import os
from unittest import mock

from secondary_scheduler.agent import cgroup_handles, controllers
from tests.unit.agent import cases


class Kernel:
    """Imitates the kernel: child groups get the files of a controller."""

    def __init__(self, host):
        self.host = host
        self.put = cgroup_handles.put
        self.refused = ()

    def __call__(self, group, name, value):
        if name != controllers.SUBTREE_FILE:
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


class Enabling(cases.UnlimitedCase):
    def setUp(self):
        super().setUp()
        self.groups = [self.host.cpu(path) for path in (
            '', self.host.slice, self.scope, self.scope + '/libvirt')]
        for path in self.groups:
            self.host.write(f'{path}/{controllers.SUBTREE_FILE}', 'cpu memory')
        self.kernel = Kernel(self.host)
        patch = mock.patch.object(cgroup_handles, 'put', self.kernel)
        patch.start()
        self.addCleanup(patch.stop)

    def lose(self, *paths):
        self.take_controller()
        for path in paths:
            self.host.write(f'{path}/{controllers.SUBTREE_FILE}', 'memory')

    def enabled(self):
        return ['cpu' in self.host.read(
            f'{path}/{controllers.SUBTREE_FILE}').split()
            for path in self.groups]

    def test_missing_controller_is_enabled_and_disabled_again(self):
        self.lose(*self.groups[2:])
        self.assertTrue(self.actuator.floor(self.guest))
        self.assertEqual([True] * 4, self.enabled())
        self.assertEqual('1000 100000', self.host.quota(0, 'vcpu1'))
        self.assertEqual({}, self.actuator.problems)
        # Another agent disables it.
        self.assertTrue(self.make().release(self.guest))
        self.assertEqual([True, True, False, False], self.enabled())

    def test_controller_stays_enabled_where_other_guests_need_it(self):
        self.host.guest(1)
        guests = sorted(self.secondaries(), key=lambda one: one.uuid)
        self.lose(*self.groups[1:])
        self.assertTrue(self.actuator.floor(guests[0]))
        self.actuator.floor(guests[1])
        again = self.make()
        again.release(guests[0])
        self.assertEqual([True, True, False, False], self.enabled())
        again.release(guests[1])
        self.assertEqual([True, False, False, False], self.enabled())

    def test_controller_enabled_before_is_never_disabled(self):
        self.actuator.floor(self.guest)
        self.actuator.release(self.guest)
        self.assertEqual([True] * 4, self.enabled())

    def test_refused_controller_is_reported_and_retried(self):
        self.lose(self.groups[3])
        self.kernel.refused = [self.host.path(self.groups[3])]
        now = 0.0
        self.actuator.controllers._clock = lambda: now
        self.check_unlimited('cpu.max')
        self.kernel.refused = ()
        self.assertFalse(self.actuator.floor(self.guest))
        now = 10.0
        self.assertTrue(self.actuator.floor(self.guest))

    def test_dry_run_enables_nothing(self):
        self.lose(self.groups[3])
        before = self.host.fingerprint()
        self.make(dry_run=True).floor(self.guest)
        self.assertEqual(before, self.host.fingerprint())

    def test_damaged_record_reaches_no_other_group(self):
        self.host.write('elsewhere/' + controllers.SUBTREE_FILE, 'cpu')
        for record in ('x', [7], [['a']], [[7, 'cpu']],
                       [[self.host.path('elsewhere'), 'cpu']],
                       [[self.host.path(self.groups[0]), 'memory']],
                       [[self.host.path(self.groups[0]) + '/../../elsewhere',
                         'cpu']]):
            self.host.store.save(controllers.STATE, {'handed_on': record})
            self.make().release(self.guest)
            self.assertEqual('cpu', self.host.read(
                'elsewhere/' + controllers.SUBTREE_FILE))
            self.assertEqual([True] * 4, self.enabled())

    def test_other_groups_and_controllers_are_left_alone(self):
        made = controllers.Controllers(self.host.hierarchy(),
                                       self.host.store)
        before = self.host.fingerprint()
        for base in ('/tmp', self.host.path('cgroup')):
            self.assertFalse(made.enable_controller(base, 'cpu'))
        self.assertFalse(made.enable_controller(
            self.host.path(self.inner), 'memory'))
        self.assertEqual(before, self.host.fingerprint())
