# SPDX-License-Identifier: Apache-2.0

"""Limits of disks and links: real guests, defined by hand in libvirt."""

import contextlib
import pathlib
import re
import subprocess
import sys
import time

import libvirt
import pytest

import devices
import guest
import hosts as box_hosts
import layout
import shell
from tests.box import fleet as fleets
from tests.box import services
from tests.box.services import agent_status, wait_until
from tests.box.trial import agent_is_fresh

NAME = 'test-rates'
THRESHOLD = 60.0
#: The primary: writes or sends so many bytes a second, from arguments.
PRIMARY = '''\
import mmap, os, socket, sys, time
kind, where, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
piece = 1 << 17 if kind == 'disk' else 1 << 14
data = mmap.mmap(-1, piece)
if kind == 'disk':
    fd = os.open(where, os.O_WRONLY | os.O_DIRECT)
else:
    connection = socket.create_connection((where, 9))
due = time.monotonic()
for count in range(1 << 60):
    if kind == 'disk':
        os.pwrite(fd, data, (64 << 20) + count % 100 * piece)
    else:
        connection.sendall(data)
    due += piece / rate
    time.sleep(max(0.0, due - time.monotonic()))
'''

pytestmark = pytest.mark.soak


@pytest.fixture(scope='module')
def host(cloud, hosts, empty_cloud):
    """A host without secondaries: the guest needs CPU to move bytes."""
    fleets.remove_leftovers(cloud)
    return hosts[0]


@pytest.fixture(scope='module')
def disk():
    """A disk without any other user."""
    with devices.disk() as device:
        yield device


@pytest.fixture(scope='module')
def link(host):
    """A bridge, and behind its port a sink."""
    with devices.link(host):
        yield


@pytest.fixture(scope='module')
def agent(host, disk, link):
    """The host's agent knows its disk and its link."""
    path = layout.ETC / f'hosts/{host}/agent.conf'
    original = path.read_text()
    path.write_text(re.sub(
        r'(?m)^\[secondary_agent\]\n', lambda found: '\n'.join(
            [found[0], *devices.options(disk), '']), original))
    name = f'secondary-agent-{host}'
    restart(host, name)
    yield name
    path.write_text(original)
    restart(host, name)


def restart(host, name):
    """Start an agent anew, and wait until it is the new one that says so."""
    killed = time.time()
    services.kill(name)
    services.start(name)
    wait_until(lambda: agent_is_fresh(host, killed), 30, 'the agent is back')


@contextlib.contextmanager
def secondary(host, disk, work):
    """Run a secondary that Nova does not know."""
    socket = (f'/proc/{box_hosts.outer_pid(host)}/root/run/libvirt/'
              'libvirt-sock')
    connection = libvirt.open(f'qemu+unix:///system?socket={socket}')
    with contextlib.closing(connection):
        domain = connection.defineXML(guest.domain(
            NAME, work, devices.DISK_XML.format(disk=disk)
            + devices.LINK_XML + '<serial type="null"/>'))
        try:
            domain.create()
            yield domain
        finally:
            with contextlib.suppress(libvirt.libvirtError):
                domain.destroy()
            domain.undefine()


@contextlib.contextmanager
def primary(host, kind, where, rate):
    """Have a service of the host move so many bytes a second."""
    process = subprocess.Popen(
        [*box_hosts.enter(host), sys.executable, '-c', PRIMARY, kind, where,
         str(rate)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Counter:
    """Meter of a disk or a port, in percent of its speed."""

    def __init__(self, read, full):
        self._read, self._full = read, full

    def over(self, seconds):
        before, began = self._read(), time.monotonic()
        time.sleep(seconds)
        return (100.0 * (self._read() - before) / self._full
                / (time.monotonic() - began))


def written(disk):
    path = pathlib.Path('/sys/block') / disk.removeprefix('/dev/') / 'stat'
    return lambda: int(path.read_text().split()[6]) * 512


def sent(host):
    path = pathlib.Path(f'/proc/{box_hosts.outer_pid(host)}/net/dev')
    return lambda: int(re.search(
        r'(?m)^ *test-up:\s*((?:\d+\s+)+)', path.read_text())[1].split()[8])


def check(host, agent, domain, resource, counter, make_primary):
    """Let a primary come and go beside a guest that takes all it may."""
    uuid = domain.UUIDString()

    def settled():
        return 35.0 < counter.over(3.0) < THRESHOLD

    with services.another_policy(
            f'{resource} <= {THRESHOLD:g}% for 30s on host:{host}', agent):
        wait_until(settled, 120, lambda: f'it takes all that it may: '
                   f'{agent_status(host)}')
        with make_primary():
            time.sleep(2.0)     # two periods of the sensor
            seen = [counter.over(1.0) for _ in range(8)]
            status = agent_status(host)
        print(f'{resource} after the step, % in each second: '
              + ' '.join(f'{one:.0f}' for one in seen))
        # Of single seconds one may be above; that fails no policy.
        assert sum(seen) / len(seen) < THRESHOLD, (seen, status)
        assert sum(one > THRESHOLD for one in seen) <= 2, (seen, status)
        assert status['rates'][uuid][resource] < 25.0, status
        assert not status['rate_problems'], status
        assert not status['counters']['floors'], status
        # It recovers as soon as there is room again.
        time.sleep(3.0)
        assert counter.over(3.0) > 35.0, agent_status(host)
    # Without the policy nothing is left of it.
    wait_until(lambda: limits(domain) == (0, 0, False), 20,
               lambda: f'the limits are gone: {limits(domain)}')


def limits(domain):
    return (domain.blockIoTune('vda')['write_bytes_sec'],
            domain.interfaceParameters('test-tap')['outbound.average'],
            'limits/1.0' in domain.XMLDesc())


def test_disk(host, agent, disk):
    with secondary(host, disk, 'disk') as domain:
        check(host, agent, domain, 'disk_in',
              Counter(written(disk), devices.DISK),
              lambda: primary(host, 'disk', disk, 0.4 * devices.DISK))


def test_link(host, agent, disk):
    with secondary(host, disk, f'net:{devices.SINK}') as domain:
        check(host, agent, domain, 'net_out',
              Counter(sent(host), devices.LINK),
              lambda: primary(host, 'net', devices.SINK, 0.4 * devices.LINK))


def test_release_without_an_agent(host, agent, disk):
    """After the release no limit is left, in libvirt either."""
    policy = f'disk_in <= {THRESHOLD:g}% for 30s on host:{host}'
    with (secondary(host, disk, 'disk') as domain,
          services.another_policy(policy, agent)):
        wait_until(lambda: limits(domain) != (0, 0, False), 120,
                   lambda: f'it is limited: {agent_status(host)}')
        services.stop(agent)
        assert limits(domain) != (0, 0, False)
        shell.run(box_hosts.agent(host, 'release'))
        assert limits(domain) == (0, 0, False)
        services.start(agent)
