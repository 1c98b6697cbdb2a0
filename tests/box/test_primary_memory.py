# SPDX-License-Identifier: Apache-2.0

"""A primary has its memory at once on a host that secondaries fill.

What is measured is the time from the call that creates it until its guest has
written to all of its memory, which its console tells.  That there is memory
is all that must make a difference, so the host has all of the machine's CPUs
meanwhile, the secondaries do nothing but hold their memory, and no other host
takes any: what makes room is a suspend, or the end of a secondary.  The boot
of an emulated guest takes longer at one time than at another, whoever else is
there; so the time from its first word on, in which it takes its memory, is
looked at for itself.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import os
import statistics

import pytest

import cgroups
import guest
import secondaries
from secondary_scheduler.agent import processes
from secondary_scheduler.model import vocabulary
from tests.box import fleet as fleets
from tests.box import machine, primaries
from tests.box.services import agent_status, wait_until

FLAVOR, MEMORY_MB = 'test-primary', 256
HOLDER, HELD_MB = 'test-holder', 240
MEMBERS = [(f'test-holder-{n}', HOLDER, None) for n in range(4)]
EMPTY_RUNS, FULL_RUNS = 5, 10
#: How much later a primary may have touched all of its memory, in seconds.
LATER_S = 2.0
#: With fewer a host is filled anew.
FEWEST = 2
#: What is left beside the headroom when the host counts as full, in percent.
SLACK = 1.0
#: Who has run for so long is no passing child of somebody's, in seconds.
LASTING_S = 30.0


@dataclasses.dataclass(frozen=True)
class Run:
    """One primary: seconds until its guest's first word, and from there."""

    boot: float
    touch: float

    @property
    def whole(self) -> float:
        """Seconds from the call until all is touched."""
        return self.boot + self.touch

    def __str__(self) -> str:
        return f'{self.boot:.2f} + {self.touch:.2f} s'


def make_flavors(cloud) -> None:
    """Make the primaries' flavor and the secondaries', if they are not there.
    """
    for name, memory_mb in ((FLAVOR, MEMORY_MB), (HOLDER, HELD_MB)):
        if cloud.compute.find_flavor(name):
            continue
        flavor = cloud.compute.create_flavor(name=name, vcpus=1,
                                             ram=memory_mb, disk=1)
        if name == HOLDER:
            cloud.compute.create_flavor_extra_specs(
                flavor, vocabulary.secondary_extra_specs(
                    1, memory_mb, 1, vocabulary.SecondaryMark(priority=5)))


@pytest.fixture
def host(cloud, empty_cloud, switch, hosts):
    """A host without secondaries that has all the CPU, and the only one."""
    fleets.remove_leftovers(cloud)
    name, *others = hosts
    services = {one.host: one.id for one in cloud.compute.services(
        binary='nova-compute')}
    make_flavors(cloud)
    for other in others:
        cloud.compute.disable_service(services[other])
    group = cgroups.path('cpu', f'hosts/{name}')
    v2 = (group / 'cgroup.controllers').exists()
    limit = group / ('cpu.max' if v2 else 'cpu.cfs_quota_us')
    before = limit.read_text()
    limit.write_text('max' if v2 else '-1')
    try:
        yield name
    finally:
        for other in others:
            cloud.compute.enable_service(services[other])
        # No group may have more than the one above it, theirs included.
        fleets.remove_leftovers(cloud)
        limit.write_text(before)


def boot_and_touch(cloud, host: str) -> Run:
    """Boot a primary that touches all its memory, and delete it again."""
    begin = machine.clock()
    uuid = primaries.boot_primary(cloud, 'test-toucher', host,
                                  'worker-touch', FLAVOR)
    try:
        times = [wait_until(
            lambda word=word: word in guest.said(uuid) and machine.clock(),
            120,
            lambda: f'{uuid} says so: {guest.said(uuid)!r}', 0.02)
            for word in (b'TOUCHING ', b'TOUCHED ')]
        primaries.wait_active(cloud, uuid)
    finally:
        primaries.delete(cloud, uuid)
    return Run(times[0] - begin, times[1] - times[0])


def lasting(host: str, seconds: float = LASTING_S) -> dict[int, bytes]:
    """Return the processes of a host that have run for so long, by number.

    The values are their command lines.
    """
    found = {}
    for group, _, _ in os.walk(cgroups.path('memory', f'hosts/{host}')):
        with contextlib.suppress(OSError):
            with open(f'{group}/cgroup.procs') as file:
                pids = [int(line) for line in file]
            for pid in pids:
                started = processes.start_time(pid)
                if started and (processes.age(started) or 0.0) >= seconds:
                    with open(f'/proc/{pid}/cmdline', 'rb') as file:
                        found[pid] = file.read()
    return found


def running(cloud, members) -> set[str]:
    """Return the members that run, as Nova has it."""
    return {server.id for server in cloud.compute.servers(all_projects=True)
            if server.id in members and server.status == 'ACTIVE'
            and server.task_state is None}


def holding(host, members) -> int:
    """Return how many members hold their memory there, as the kernel has it.

    Nova may take some time to see that one was ended, and a guest that was
    started again to take its memory.
    """
    commands = lasting(host, 0.0).values()
    return sum(any(uuid.encode() in command for command in commands)
               and b'TOUCHED ' in guest.said(uuid) for uuid in members)


@contextlib.contextmanager
def filled(host: str) -> Iterator[None]:
    """Give a host no more memory than it uses, but for the headroom."""
    group = cgroups.path('memory', f'hosts/{host}')
    v2 = (group / 'cgroup.controllers').exists()
    limit, used, cache = (
        ('memory.max', 'memory.current', 'inactive_file') if v2 else
        ('memory.limit_in_bytes', 'memory.usage_in_bytes',
         'total_inactive_file'))
    stat = dict(line.split() for line in
                (group / 'memory.stat').read_text().splitlines())
    needed = int((group / used).read_text()) - int(stat[cache])
    (group / limit).write_text(str(int(needed / (0.95 - SLACK / 100))))
    try:
        wait_until(lambda: 0 < (agent_status(host).get('memory', {}).get(
            'available_mb') or 0) < MEMORY_MB / 2, 30,
            lambda: f'{host} is full: {agent_status(host)}')
        yield
    finally:
        (group / limit).write_text('max' if v2 else '-1')


def kernel_kills() -> int:
    """Return how many processes the kernel has ended for memory."""
    with open('/proc/vmstat') as file:
        return next(int(line.split()[1]) for line in file
                    if line.startswith('oom_kill '))


@pytest.mark.soak
def test_a_primary_has_its_memory_at_once(cloud, owner, host):
    empty = [boot_and_touch(cloud, host) for _ in range(EMPTY_RUNS)]
    print(f'\nempty: {", ".join(map(str, empty))}')
    members = secondaries.boot(owner, MEMBERS, image='worker-touch')
    wait_until(
        lambda: all(b'TOUCHED ' in guest.said(uuid) for uuid in members), 300,
        'the secondaries hold their memory')
    full, failures = [], []
    kills = agent_status(host)['counters']['kills']
    before = kernel_kills()
    for _ in range(FULL_RUNS):
        if holding(host, members) < FEWEST:
            wait_until(lambda: len(running(cloud, members)) == len(members),
                       300, lambda: str(agent_status(host)), 1)
            # Who was suspended and resumed touches nothing by itself.
            for uuid in members:
                if b'TOUCHED ' not in guest.said(uuid):
                    owner.compute.reboot_server(uuid, 'HARD')
            wait_until(lambda: holding(host, members) == len(members), 300,
                       lambda: str(agent_status(host)), 1)
        there = lasting(host)
        with filled(host):
            print(f'{holding(host, members)} secondaries, '
                  f'{agent_status(host)["memory"]}')
            full.append(boot_and_touch(cloud, host))
            status = agent_status(host)
            print(f'full: {full[-1]}; {status["counters"]["kills"] - kills} '
                  f'killed so far, {kernel_kills() - before} by the kernel; '
                  f'{status["memory"]}')
        gone = [command for pid, command in there.items()
                if pid not in lasting(host)]
        failures += [command for command in gone
                     if not any(uuid.encode() in command for uuid in members)]
    assert not failures, failures
    # What was ended is stopped for Nova, which takes it for active for some
    # seconds, and comes back; the others too.
    wait_until(lambda: len(running(cloud, members)) == len(members)
               and not agent_status(host)['killed'].keys() & members, 300,
               lambda: str(agent_status(host)), 1)
    # An empty host takes up to so long for a boot, whoever else is there.
    for what, choose in (('touch', statistics.median), ('whole', max)):
        usual = choose(getattr(one, what) for one in empty)
        later = [getattr(one, what) - usual for one in full]
        print(f'{what}: {usual:.2f} s on the empty host; later by '
              + ', '.join(f'{one:.2f}' for one in later))
        assert max(later) <= LATER_S, (what, usual, later)
