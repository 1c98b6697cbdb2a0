# SPDX-License-Identifier: Apache-2.0

"""One bare host with guests and an agent: what benchmarks of the agent share.

The host is that of ``tools/box bare``: its own CPUs and libvirtd, and no
cloud.  Guests are defined in its libvirt with the metadata that Nova gives a
secondary, so the agent takes them for what they stand for.
"""

import bisect
from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
import typing
import uuid

import libvirt

import cgroups
import guest
import hosts
import layout
import shell

HOST = 'box1'
SERVICE = f'secondary-agent-{HOST}'
MACHINE = f'hosts/{HOST}/machine'
PRIMARY = f'hosts/{HOST}/system.slice/primary'

_BOOTS_S = 300

_AGENT = '''\
[DEFAULT]
host = {host}
transport_url = {broker}
log_file = {log}/agent-{host}.log
[secondary_scheduler]
{shared}
[secondary_agent]
state_path = {state}
manage_inventory = false
{own}
'''


class Rig:
    """The host, and the guests on it."""

    def __init__(self) -> None:
        self.state = hosts.directory(HOST) / 'rig'
        self.state.mkdir(exist_ok=True)
        self._libvirt = libvirt.open(
            'qemu+unix:///system?socket=/proc/'
            f'{hosts.outer_pid(HOST)}/root/run/libvirt/libvirt-sock')

    # -- guests ------------------------------------------------------------
    def boot(self, count: int, work: str, secondary: bool = True,
             devices: str = '') -> list['Guest']:
        """Boot guests and wait until all of them do their work."""
        booted = [self._define(work, secondary, devices)
                  for _ in range(count)]
        for one in booted:
            one.domain.create()
        shell.wait_for('a guest', lambda: all(
            'UNITS' in one.console.read_text(errors='replace')
            for one in booted), timeout=_BOOTS_S)
        return booted

    def _define(self, work: str, secondary: bool, devices: str) -> 'Guest':
        kind = 'secondary' if secondary else 'primary'
        name = f'{kind}-{uuid.uuid4().hex[:8]}'
        console = self.state / f'{name}.console'
        console.touch()
        return Guest(self._libvirt.defineXML(guest.domain(
            name, work, f'<serial type="file"><source path="{console}"/>'
            f'</serial>{devices}', secondary)), console)

    def clear(self) -> None:
        """End all guests."""
        for domain in self._libvirt.listAllDomains():
            with contextlib.suppress(libvirt.libvirtError):
                domain.destroy()
            domain.undefine()
        for console in self.state.glob('*.console'):
            console.unlink()

    # -- the agent ---------------------------------------------------------
    def configure(self, *policies: str, shared: Sequence[str] = (),
                  own: Sequence[str] = (), broker: str = 'fake://'
                  ) -> pathlib.Path:
        """Write the configuration of the agent; return its path."""
        config = self.state / 'agent.conf'
        config.write_text(_AGENT.format(
            host=HOST, log=layout.LOG, state=self.state, broker=broker,
            shared='\n'.join([*(f'policy = {one}' for one in policies),
                              *shared]), own='\n'.join(own)))
        return config

    @contextlib.contextmanager
    def agent(self, *policies: str, shared: Sequence[str] = (),
              own: Sequence[str] = (), broker: str = 'fake://'
              ) -> Iterator['Agent']:
        """Run the agent, and undo what it has done to the guests."""
        config = self.configure(*policies, shared=shared, own=own,
                                broker=broker)
        hosts.start_agent(HOST, configs=(config,))
        try:
            yield Agent(self.state)
        finally:
            shell.stop(SERVICE, timeout=5)
            self.release(config)

    def release(self, config: pathlib.Path) -> None:
        """Undo what an agent that has ended has done to the guests."""
        shell.run([*hosts.enter(HOST), layout.BIN / 'secondary-agent',
                   'release', '--config-file', config])


@dataclasses.dataclass
class Guest:
    """A guest of the host."""

    domain: libvirt.virDomain
    console: pathlib.Path

    def group(self, controller: str = 'cpu') -> pathlib.Path:
        """Return its control group."""
        (found,) = cgroups.path(controller, MACHINE).glob(
            f'qemu-*-{self.domain.name()}.libvirt-qemu')
        return found

    @property
    def group_name(self) -> str:
        """Its control group, as a group of the box."""
        return f'{MACHINE}/{self.group().name}'

    def units(self) -> int:
        """Return how many units of work it has finished."""
        found = guest.last_units(self.console)
        return found[1] if found else 0

    def vcpu(self) -> int:
        """Return the thread of its vCPU, as the machine counts."""
        (thread,) = cgroups.threads(self.group() / 'vcpu0')
        return thread

    def times(self) -> 'Times':
        """Return what the kernel has counted for its vCPU so far."""
        run, delay, _ = map(int, pathlib.Path(
            f'/proc/{self.vcpu()}/schedstat').read_text().split())
        return Times(run, delay, cgroups.throttled_ns(self.group() / 'vcpu0'))


class Times(typing.NamedTuple):
    """Times of a vCPU in ns: it ran, waited while runnable, was throttled."""

    run: int
    delay: int
    throttled: int


class Agent:
    """The agent that runs."""

    def __init__(self, state: pathlib.Path) -> None:
        self._state = state
        self.began = time.time()

    def status(self) -> dict:
        """Return what it says of itself; empty before it has said any."""
        path = self._state / 'status.json'
        with contextlib.suppress(OSError, ValueError):
            if path.stat().st_mtime > self.began:
                return dict(json.loads(path.read_text()))
        return {}

    @property
    def pid(self) -> int:
        """Return its process, as the machine counts."""
        return inside_pid('secondary-agent')

    def wait_control(self, guests: int) -> None:
        """Wait until it has so many guests under control, with a cap."""
        shell.wait_for('the agent', lambda: sum(
            one['cap'] is not None for one
            in self.status().get('instances', ())) == guests, timeout=60,
            service=SERVICE)


def inside_pid(name: str) -> int:
    """Return the process of this name on the host, as the machine counts."""
    own = os.readlink(f'/proc/{hosts.outer_pid(HOST)}/ns/pid_for_children')
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            if ((path / 'comm').read_text().strip() == name
                    and os.readlink(path / 'ns/pid') == own):
                found.append(int(path.name))
    (pid,) = found
    return pid


# -- a primary that is a service of the host ----------------------------------

#: Takes the part of a CPU that the last line of its input says, in slices of
#: 5 ms, and makes up for nothing that it was denied.
_SERVICE = '''
import os, select, sys, time
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
duty, slice_s = 0.0, 0.005
while True:
    due = time.monotonic() + slice_s
    until = time.thread_time() + duty * slice_s
    while time.thread_time() < until and (
            duty >= 1.0 or time.monotonic() < due):
        pass
    wait = 0.0 if duty >= 1.0 else max(0.0, due - time.monotonic())
    if select.select([0], [], [], wait)[0]:
        line = sys.stdin.readline()
        if not line:
            break
        duty = float(line)
'''


@contextlib.contextmanager
def service() -> Iterator['Service']:
    """Run a primary process in a group of its own among the services."""
    cgroups.make(PRIMARY)
    process = subprocess.Popen(
        cgroups.inside(PRIMARY, [sys.executable, '-u', '-c', _SERVICE]),
        stdin=subprocess.PIPE, text=True, bufsize=1)
    try:
        yield Service(process)
    finally:
        process.kill()
        process.wait()


class Service:
    """A primary that asks for a part of the host's CPU."""

    group = PRIMARY

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, percent: float) -> None:
        """Ask for so many percent of the host from now on."""
        assert self._process.stdin
        self._process.stdin.write(f'{percent / 100}\n')


class Machine:
    """A primary guest, which asks for what its vCPU is allowed to take."""

    def __init__(self, one: Guest) -> None:
        self._guest = one
        self.group = one.group_name

    def ask(self, percent: float) -> None:
        """Ask for so many percent of the host from now on."""
        period = 10_000
        cgroups.limit(self._guest.group() / 'vcpu0',
                      None if percent >= 100 else int(percent / 100 * period),
                      period)


# -- watching ----------------------------------------------------------------

class Watch(threading.Thread):
    """Samples the CPU time of control groups until stopped.

    ``samples`` are (monotonic seconds, CPU seconds of each group so far).
    """

    def __init__(self, groups: Sequence[str], period: float = 0.01) -> None:
        super().__init__(daemon=True)
        self._files = [os.open(_usage_file(group), os.O_RDONLY)
                       for group in groups]
        self._period = period
        self._ended = threading.Event()
        self.samples: list[tuple[float, tuple[float, ...]]] = []

    def run(self) -> None:
        """Sample until the end."""
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            self.samples.append((time.monotonic(), tuple(
                _usage_s(os.pread(fd, 4096, 0)) for fd in self._files)))
            due = max(due + self._period, time.monotonic())

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()
        for fd in self._files:
            os.close(fd)

    def percent(self, begin: float, end: float) -> tuple[float, ...]:
        """Return the mean use of each group over an interval, in percent."""
        return tuple(100 * (after - before) / (end - begin)
                     for before, after in zip(self._at(begin), self._at(end),
                                              strict=True))

    def _at(self, t: float) -> tuple[float, ...]:
        """Return what each group had used at an instant, interpolated."""
        place = bisect.bisect_left(self.samples, t, key=lambda one: one[0])
        (t0, before), (t1, after) = self.samples[
            max(0, place - 1)], self.samples[min(place, len(self.samples) - 1)]
        part = (t - t0) / (t1 - t0) if t1 > t0 else 0.0
        return tuple(a + part * (b - a)
                     for a, b in zip(before, after, strict=True))


def _usage_file(group: str) -> pathlib.Path:
    directory = cgroups.path('cpuacct', group)
    one = directory / 'cpuacct.usage'
    return one if one.exists() else directory / 'cpu.stat'


def _usage_s(text: bytes) -> float:
    if text.startswith(b'usage_usec'):
        return int(text.split()[1]) / 1e6
    return int(text) / 1e9


@contextlib.contextmanager
def watch(*groups: str, period: float = 0.01) -> Iterator[Watch]:
    """Sample while a block runs."""
    made = Watch(groups, period)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@contextlib.contextmanager
def quiet(cpus: int = 1) -> Iterator[Rig]:
    """Yield the rig; the caller watches from other CPUs than the host's.

    :param cpus: CPUs that the host must have.  A host of several may have all
        of the machine's; then the caller watches from these.
    """
    own = os.sched_getaffinity(hosts.outer_pid(HOST))
    if len(own) != cpus:
        raise SystemExit(f'the host has {len(own)} CPUs: "python3 tools/box '
                         f'bare --cpus {cpus} ..." gives it {cpus}')
    if others := os.sched_getaffinity(0) - own:
        os.sched_setaffinity(0, others)
    elif cpus == 1:
        raise SystemExit('this machine has one CPU; two are needed')
    rig = Rig()
    rig.clear()
    try:
        yield rig
    finally:
        rig.clear()


def cpu_model() -> str:
    """Return the name of the machine's CPUs."""
    return next(line.partition(':')[2].strip() for line in open(
        '/proc/cpuinfo') if line.startswith('model name'))


def spread(values: Sequence[float], digits: int = 1) -> dict[str, float]:
    """Return median and largest of some values."""
    return {'median': round(statistics.median(values), digits),
            'max': round(max(values), digits), 'n': len(values)}
