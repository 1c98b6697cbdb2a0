# SPDX-License-Identifier: Apache-2.0

"""Test cases that several test modules share."""

import os
import unittest

from secondary_scheduler.agent import actuator, domains
from tests.unit.agent import fakes


class ActuatorCase(unittest.TestCase):
    """An actuator on a host of files, of version 1 or 2."""

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


class UnlimitedCase(ActuatorCase):
    """A guest with limits that cannot be set, on a host of version 2."""

    version = 2

    def setUp(self):
        super().setUp()
        self.host.guest(0)
        self.scope = self.host.scope('instance-00000000', 1)
        self.inner = self.host.cpu(self.scope) + '/libvirt' * (
            self.version == 2)
        self.guest, = self.secondaries()

    def make(self, **kwargs):
        made = super().make(**kwargs)
        made.emulator_cpus = 0.5
        return made

    def take(self, path):
        os.remove(self.host.path(path))

    def take_controller(self):
        for thread in ('vcpu0', 'vcpu1', 'emulator', 'iothread1'):
            self.take(f'{self.inner}/{thread}/cpu.max')

    def check_unlimited(self, file):
        for limit in (lambda: self.actuator.set_share(self.guest, 10.0, 4.0),
                      lambda: self.actuator.floor(self.guest),
                      lambda: self.actuator.floor(self.guest,
                                                  emulator=False)):
            self.assertFalse(limit())
            self.assertIn(file, self.actuator.problems[fakes.UUIDS[0]])
            self.assertFalse(self.actuator.is_limited(fakes.UUIDS[0]))
