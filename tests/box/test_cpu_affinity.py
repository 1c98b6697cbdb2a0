# SPDX-License-Identifier: Apache-2.0

"""CPU sets of secondaries (option ``cpu_affinity``), observed from outside.

The first host of the box has one CPU, the second one has all CPUs of the
machine meanwhile, as by ``up --wide``.  An observer reads the CPU masks of the
threads of a secondary some twenty times a second.  The wanted sets are those
of the agent's status.
"""

from collections.abc import Callable
import contextlib
import os
import random
import threading
import time
import typing
from xml.etree import ElementTree

import pytest

import guest
import hosts as box_hosts
import layout
from secondary_scheduler.agent import kernel_files
import shell
from tests.box import cpus, machine, services
from tests.box import fleet as fleets
from tests.box.boots import migrate, wait_status
from tests.box.primaries import (
    BY_HAND,
    ControlFiles,
    boot_primary,
    connect,
    delete,
    domain_by_hand,
    wait_active,
)
from tests.box.services import agent_status, wait_until

NAME, SEED = 'test-affinity', 40
POOL = 'cpu_affinity = pool'
#: Seconds between two looks, and in which a wanted set is there.
LOOK_S, WITHIN_S = 0.05, 1.0
#: Seconds of two control periods.
PERIODS_S = 1.0
#: Seconds in which an agent says something new of itself, and in which sets
#: that nothing wants in a hurry are there.
SAYS_S, SOON_S = 5.0, 30.0
#: Migrations in each direction, and kills of the agent.
MIGRATIONS, KILLS = 10, 20
OPERATIONS: dict[str, tuple[tuple[str, tuple, str], ...]] = {
    'hard reboot': (('reboot_server', ('HARD',), 'ACTIVE'),),
    'soft reboot': (('reboot_server', ('SOFT',), 'ACTIVE'),),
    'suspend and resume': (('suspend_server', (), 'SUSPENDED'),
                           ('resume_server', (), 'ACTIVE')),
    'stop and start': (('stop_server', (), 'SHUTOFF'),
                       ('start_server', (), 'ACTIVE'))}


class Wide(typing.NamedTuple):
    """A host of one CPU and one of several, and the CPUs of the latter."""

    small: str
    large: str
    cpus: cpus.Cpus


class Secondary(threading.Thread):
    """Observer of the vCPUs of one secondary; notes when their masks change.
    """

    def __init__(self, wide: Wide, uuid: str, name: str) -> None:
        super().__init__(daemon=True, name='secondary')
        self.wide, self.uuid, self.domain = wide, uuid, name
        self._ended = threading.Event()
        self._masks: dict[tuple[str, cpus.Thread],
                          list[tuple[float, cpus.Cpus]]] = {}

    def run(self) -> None:
        """Look until stopped."""
        while not self._ended.wait(LOOK_S):
            now = machine.clock()
            for host in (self.wide.small, self.wide.large):
                for thread, mask in self.vcpus(host).items():
                    seen = self._masks.setdefault((host, thread), [])
                    if not seen or seen[-1][1] != mask:
                        seen.append((now, mask))

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()

    def vcpus(self, host: str) -> dict[cpus.Thread, cpus.Cpus]:
        """Return the masks of its vCPUs on a host."""
        return {thread: mask for thread, mask
                in cpus.read_masks(host, self.domain).items()
                if thread.is_vcpu}

    def others(self) -> set[cpus.Cpus]:
        """Return the masks of its other threads on the large host."""
        return {mask for thread, mask in cpus.read_masks(
            self.wide.large, self.domain).items() if not thread.is_vcpu}

    def pool(self) -> cpus.Cpus:
        """Return the pool that the agent of the large host tells."""
        return kernel_files.parse_cpus(
            agent_status(self.wide.large)['affinity']['pool'], 'pool')

    def late(self, host: str, since: float,
             is_right: Callable[[cpus.Cpus], bool]) -> float:
        """Return the seconds until the masks were right for good.

        :param since: an instant of ``machine.clock``.
        """
        threads, now = self.vcpus(host), machine.clock()
        seen = [masks for (where, thread), masks in list(self._masks.items())
                if where == host and thread in threads]
        assert seen, f'no vCPU of {self.domain} was seen on {host}'
        return max(end - since if not is_right(mask) else 0.0
                   for masks in seen for (_, mask), end in zip(
                       masks, [*(begin for begin, _ in masks[1:]), now],
                       strict=True))

    def wanted(self, host: str) -> cpus.Cpus:
        """Return the set that the agent wants, none if it has not said any.
        """
        one = agent_status(host).get('affinity', {}).get('guests', {}).get(
            self.uuid, {'cpus': ()})
        return frozenset[int]().union(*(
            kernel_files.parse_cpus(text, host) for text in one['cpus']))

    def check(self, host: str, since: float | None = None) -> cpus.Cpus:
        """Check that the wanted set is there in time, and stays; return it.

        :param since: an instant of ``machine.clock``, by default this one.
        """
        since, due = since or machine.clock(), time.time() + WITHIN_S
        wait_until(
            lambda: agent_status(host).get('time', 0) > due
            and self.wanted(host), WITHIN_S + SAYS_S,
            lambda: f'the agent wants a set: {agent_status(host)}', LOOK_S)
        wanted = self.wanted(host)
        late = self.late(host, since, lambda mask: mask == wanted)
        print(f'{host}: {kernel_files.format_cpus(wanted)} after {late:.2f} s')
        assert late <= WITHIN_S, (wanted, late, self.vcpus(host))
        if host == self.wide.large:
            assert wanted < self.wide.cpus, 'it is not confined'
        return wanted

    def widen(self) -> None:
        """Give its vCPUs all CPUs of the large host, as a stranger may."""
        for scope in cpus.scopes(self.wide.large, self.domain):
            for group in (scope, *scope.rglob('vcpu*')):
                if group.is_dir():
                    cpus.set_cpus(group, self.wide.cpus, is_bound=True)


def files_of(host: str, name: str) -> dict[str, str]:
    """Return the content of each file of CPU sets of a domain."""
    found = {}
    for scope in cpus.scopes(host, name):
        for path in (scope, *scope.rglob('*')):
            file = path / 'cpuset.cpus'
            if file.exists():
                found[str(path.relative_to(scope))] = file.read_text()
    return found


def pins_of(*hosts: str) -> dict[tuple[str, str], list[str]]:
    """Return the elements of each domain's XML that pin threads."""
    found = {}
    for host in hosts:
        with contextlib.closing(connect(host)) as connection:
            for domain in connection.listAllDomains():
                root = ElementTree.fromstring(domain.XMLDesc())
                found[host, domain.name()] = [
                    ElementTree.tostring(pin, 'unicode')
                    for kind in ('vcpupin', 'emulatorpin', 'iothreadpin')
                    for pin in root.findall(f'cputune/{kind}')]
    return {key: pins for key, pins in found.items() if pins}


@pytest.fixture(scope='module')
def wide(cloud, hosts, empty_cloud):
    """Let the second host have all CPUs, and hosts no guests."""
    own, _ = layout.cpus()
    every = frozenset(layout.machine_cpus())
    siblings = kernel_files.parse_cpus(kernel_files.read_text(
        f'/sys/devices/system/cpu/cpu{own[0]}/topology/thread_siblings_list'),
        'siblings')
    if len(hosts) < 2 or every <= siblings:
        pytest.skip('this takes two hosts, and a machine with two cores')
    fleets.remove_leftovers(cloud)
    small, large = hosts[:2]
    cpus.give_cpus(large, every)
    yield Wide(small, large, every)
    fleets.remove_leftovers(cloud)
    cpus.give_cpus(large, layout.host_cpus(layout.load_settings())[large])


@contextlib.contextmanager
def by_hand(wide):
    """Start a secondary that Nova does not know; yield it and its domain."""
    xml = guest.domain(NAME, 'cpu', '<serial type="null"/>')
    with domain_by_hand(wide.large, NAME, xml) as domain:
        one = Secondary(wide, domain.UUIDString(), NAME)
        one.start()
        try:
            yield one, domain
        finally:
            one.stop()


def start_without_agent(wide, domain) -> dict[str, str]:
    """Start a domain anew beside no agent; return its files."""
    services.stop(f'secondary-agent-{wide.large}')
    domain.destroy()
    domain.create()
    return files_of(wide.large, NAME)


def test_a_guest_gets_its_set_and_release_takes_it_back(wide):
    with services.agent_options(wide.large, POOL):
        with by_hand(wide) as (secondary, domain):
            secondary.check(wide.large)
            assert not pins_of(wide.large)
            services.stop(f'secondary-agent-{wide.large}')
            shell.run(box_hosts.agent(wide.large, 'release'))
            left = files_of(wide.large, NAME)
            assert left
            assert left == start_without_agent(wide, domain)


@pytest.fixture
def primary(wide):
    """A primary on the large host; it is paused, so it takes no CPU."""
    name = next(iter(BY_HAND))
    with domain_by_hand(wide.large, name) as domain:
        domain.suspend()
        yield name


@pytest.fixture
def untouched(wide, primary):
    """Check that no file of a primary is written, and no thread pinned."""
    pins = pins_of(wide.small, wide.large)
    with contextlib.closing(ControlFiles(wide.large, primary)) as files:
        before = files.values()
        assert any('cpuset.cpus' in path for path in before), before
        yield
        assert files.values() == before
    assert pins_of(wide.small, wide.large) == pins


# -- without a driver: before there is another secondary ----------------------

@pytest.mark.soak
@pytest.mark.parametrize('options', [
    ('cpu_affinity = none',), (POOL, 'cpu_affinity_advice = true')],
    ids=['none', 'advice'])
def test_restart_without_sets_leaves_every_file_as_it_was(wide, untouched,
                                                          options):
    large = wide.large
    with by_hand(wide) as (secondary, domain):
        first = start_without_agent(wide, domain)
        with services.agent_options(large, POOL):
            secondary.check(large)
            assert files_of(large, NAME) != first
        with services.agent_options(large, *options):
            wait_until(lambda: files_of(large, NAME) == first, SOON_S,
                       lambda: f'{files_of(large, NAME)} are {first}')
            time.sleep(SAYS_S)
            assert files_of(large, NAME) == first
            assert bool(secondary.wanted(large)) == (POOL in options)


@pytest.mark.soak
@pytest.mark.parametrize('driver', ['none', 'pool'])
def test_secondary_leaves_the_cpu_of_a_confined_primary(wide, primary,
                                                        driver):
    """Its vCPU is confined by hand, as by taskset."""
    large = wide.large

    def confine(mask):
        for thread in cpus.read_masks(large, primary):
            if thread.is_vcpu:
                os.sched_setaffinity(thread.number, mask)

    with (services.agent_options(large, f'cpu_affinity = {driver}'),
          by_hand(wide) as (secondary, _)):
        wait_until(lambda: secondary.uuid in {
            one['uuid'] for one in agent_status(large)['instances']},
            SOON_S, 'the agent knows it')
        time.sleep(SAYS_S)
        before, = secondary.vcpus(large).values()
        own = min(before)
        try:
            confine({own})
            since = machine.clock()
            time.sleep(SAYS_S)
            late = secondary.late(large, since, lambda mask: own not in mask)
            print(f'separated after {late:.2f} s')
            assert late <= PERIODS_S, secondary.vcpus(large)
        finally:
            confine(wide.cpus)
        if driver == 'none':
            wait_until(lambda: before in secondary.vcpus(large).values(),
                       SOON_S, lambda: f'it has {before} again: '
                       f'{secondary.vcpus(large)}')


# -- a secondary of Nova's ----------------------------------------------------

@pytest.fixture(scope='module')
def confined(wide):
    """Let the agents of both hosts confine their secondaries."""
    with (services.agent_options(wide.small, POOL),
          services.agent_options(wide.large, POOL)):
        yield wide


@pytest.fixture(scope='module')
def secondary(cloud, confined):
    """A secondary that works, booted on the large host."""
    large = confined.large
    wait_until(lambda: agent_status(large).get('admission'), 120,
               lambda: f'{large} is open: {agent_status(large)}')
    uuid = boot_primary(cloud, NAME, large, image='worker-cpu',
                        flavor='secondary')
    try:
        one = Secondary(confined, uuid, wait_active(cloud, uuid).instance_name)
        one.start()
        one.check(large)
        yield one
        one.stop()
    finally:
        delete(cloud, uuid)


@pytest.mark.soak
@pytest.mark.parametrize('operation', OPERATIONS)
def test_set_is_there_after_an_operation(secondary, untouched, cloud,
                                         operation):
    for call, arguments, status in OPERATIONS[operation]:
        getattr(cloud.compute, call)(secondary.uuid, *arguments)
        time.sleep(1)       # it has begun
        wait_status(cloud, secondary.uuid, status, period=0.1)
    secondary.check(secondary.wide.large)
    # QEMU's other threads are not confined while Nova operates.
    wait_until(lambda: secondary.others() == {secondary.pool()}, SOON_S,
               lambda: f'{secondary.others()} are {secondary.pool()}')


@pytest.mark.soak
def test_set_is_there_after_each_migration(secondary, untouched, cloud):
    wide = secondary.wide
    for _ in range(MIGRATIONS):
        migrate(cloud, secondary.uuid, wide.small, period=0.1)
        assert secondary.check(wide.small) <= set(layout.cpus()[0])
        migrate(cloud, secondary.uuid, wide.large, period=0.1)
        secondary.check(wide.large)


@pytest.mark.soak
def test_set_is_there_again_after_libvirtd_was_killed(secondary, untouched):
    large = secondary.wide.large
    services.kill_libvirtd(large)
    secondary.check(large)
    secondary.widen()
    secondary.check(large)


@pytest.mark.soak
def test_set_is_there_again_while_libvirtd_hangs(secondary, untouched):
    large = secondary.wide.large
    with services.hung_libvirtd(large):
        secondary.widen()
        secondary.check(large)
    secondary.check(large)


@pytest.mark.soak
def test_set_is_there_again_after_the_agent_was_killed(secondary, untouched):
    wide, rng = secondary.wide, random.Random(SEED)
    agent = f'secondary-agent-{wide.large}'
    began = time.monotonic()
    services.restart_agent(wide.large)
    life = 2 * (time.monotonic() - began)
    for _ in range(KILLS):
        services.kill(agent)
        # So that it has something to write when it is killed again.
        secondary.widen()
        services.start(agent)
        time.sleep(rng.uniform(0, life))
        services.kill(agent)
        services.restart_agent(wide.large)
        secondary.check(wide.large)


@pytest.mark.soak
def test_set_follows_when_the_host_loses_a_cpu(secondary, cloud):
    wide = secondary.wide
    left = wide.cpus - secondary.check(wide.large)

    def taken():
        # The agent may write between two of our writes.
        with contextlib.suppress(OSError):
            cpus.give_cpus(wide.large, left)
            return True

    try:
        wait_until(taken, 10, f'{wide.large} has {left} only')
        assert secondary.check(wide.large) <= left
    finally:
        cpus.give_cpus(wide.large, wide.cpus)
    # A guest that has lost a CPU gets it back when it starts anew.
    cloud.compute.reboot_server(secondary.uuid, 'HARD')
    time.sleep(1)
    wait_status(cloud, secondary.uuid, 'ACTIVE', period=0.1)
    secondary.check(wide.large)
