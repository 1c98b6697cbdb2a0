# SPDX-License-Identifier: Apache-2.0

"""A host of files whose guests get CPU time by their sets and limits."""

import contextlib
from unittest import mock

from secondary_scheduler.agent import (
    actuator,
    characterisation,
    cpu_pins,
    device_use,
    domains,
    kernel_files,
    pins,
    speeds,
)
from secondary_scheduler.agent.wiring import make_dedicated_cpus
from tests.unit.agent import fakes
from tests.unit.agent.test_dedicated_cpus import Sets

#: Part of its speed that a guest keeps beside another one on its cache.
BESIDE = 0.8


class Killed(BaseException):
    """Death of the command: nothing of it happens any more."""


class Kernel:
    """Gives CPU time to guests and to a generator, and counts their work.

    It stands for the event that ends the runs, too: time passes while that is
    waited for.

    :param interrupt_at: number of the wait that is interrupted
    """

    def __init__(self, test, guests):
        self.test, self.host, self.guests = test, test.host, guests
        self.generator = None
        self.now = 1000.0
        self.work = dict.fromkeys(guests, 0.0)
        self.times = {n: [0, 0] for n in guests}
        self.waits = 0
        self.interrupt_at = None
        for n in guests:
            for thread in (0, 1):
                self.host.write(self.thread(n, thread) + '/comm',
                                f'CPU {thread}/KVM\n')
            self.host.write(f'proc/{1000 + n}/task/{10 * n + 9}/comm', 'qemu')
        self.write_times()

    def thread(self, n, thread):
        return f'proc/{1000 + n}/task/{10 * n + thread}'

    def write_times(self):
        for n, (run, waited) in self.times.items():
            for thread in (0, 1):
                self.host.write(self.thread(n, thread) + '/schedstat',
                                f'{int(run / 2)} {int(waited / 2)} 7\n')

    def cpus(self, n):
        """Return the CPUs on which a guest's vCPUs may run."""
        found = frozenset(range(4))
        for group in (self.test.scope(n), f'{self.test.inner(n)}/vcpu0'):
            named = self.host.read(f'{group}/cpuset.cpus')
            found &= kernel_files.parse_cpus(named, '') or found
        return found

    def is_floored(self, n):
        return self.host.quota(n).startswith('1000 ')

    def read_threads(self, pid, proc):
        return pins.Pins((self.cpus(pid - 1000),) * 2), ()

    def read_mask(self, path):
        """Return the mask of the thread that stands for all of a group."""
        return self.cpus(int(path.split('/')[-2]) - 5000)

    @contextlib.contextmanager
    def running(self, generator, cpu, seconds):
        self.generator = cpu
        try:
            yield
        finally:
            self.generator = None

    def set(self):
        self.interrupt_at = self.waits

    def wait(self, seconds):
        """Let time pass; return whether the runs are to end."""
        self.waits += 1
        if self.interrupt_at is not None and self.waits > self.interrupt_at:
            return True
        self.now += seconds
        busy = {n: self.cpus(n) for n in self.guests
                if not self.is_floored(n)}
        for n, cpus in busy.items():
            others = [some for m, some in busy.items() if m != n]
            if self.generator is not None:
                others.append(frozenset({self.generator}))
            share = 1 / (1 + others.count(cpus))
            speed = BESIDE if any(not some & cpus for some in others) else 1
            self.work[n] += 100 * share * speed * seconds
            self.times[n][0] += int(share * seconds * 1e9)
            self.times[n][1] += int((2 - share) * seconds * 1e9)
        self.write_times()
        return False

    def ask_probe(self, asked, deadline):
        uuid = asked.split()[-1]
        return self.work[fakes.UUIDS.index(uuid)]


class MeasuredHost(Sets):
    """Base of tests on a closed host with two secondaries, 0 and 1."""

    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.prepare_sets()
        for n in (0, 1):
            self.host.guest(n)
            self.make_sets(n)
            for name in ('emulator', 'iothread1', 'vcpu0', 'vcpu1'):
                self.host.write(f'{self.inner(n)}/{name}/'
                                + ('tasks' if self.version == 1
                                   else 'cgroup.threads'), f'{5000 + n}\n')
        self.kernel = Kernel(self, (0, 1))
        for target, value in (
                ('agent.characterisation.generators.running',
                 self.kernel.running),
                ('agent.pins.read_threads', self.kernel.read_threads),
                ('agent.pins.read_mask', self.kernel.read_mask),
                ('agent.speeds.ask_probe', self.kernel.ask_probe),
                ('agent.speeds.has_instructions', lambda: False)):
            self.enterContext(mock.patch(f'secondary_scheduler.{target}',
                                         value))

    def make(self, units=None):
        """Make the parts of a command; return its runs and its meter."""
        hierarchy = self.host.hierarchy()
        limits = actuator.Actuator(hierarchy, self.host.store)
        known = domains.Domains(
            self.host.libvirt.connect, self.host.store, self.host.run_dir,
            proc=self.host.proc)
        meter = speeds.SpeedMeter(
            self.host.proc, device_use.DeviceMeter(()), units,
            lambda: self.kernel.now)
        return characterisation.Characterisation(
            known, cpu_pins.CpuPins(make_dedicated_cpus(
                limits, hierarchy, self.host.store)), limits, meter,
            characterisation.Timing(1.0, 10.0), self.kernel,
            lambda: self.kernel.now)
