# SPDX-License-Identifier: Apache-2.0

"""A disk and a link for guests that Nova does not know, and their speeds.

Both are slow by declaration only: the agent is told what 100 % is.  A slow
disk is one indeed.
"""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import subprocess
import sys

import cgroups
import hosts
import layout
from shell import run, wait_for

#: What 100 % is, in bytes a second.
DISK = 20 << 20
LINK = 40 * 1_000_000 // 8
#: Address of a sink: all that is sent to its port 9 is discarded.
SINK = '10.78.0.77'

_OPTIONS = (
    'disks = {disk}', 'disk_write_speed = 20',
    'network_interfaces = test-up', 'link_speed = 40')

#: libvirt's XML of each, for one guest of a host.
DISK_XML = '''\
<disk type="block" device="disk">
  <driver name="qemu" type="raw" cache="none"/>
  <source dev="{disk}"/>
  <target dev="vda" bus="virtio"/>
</disk>
'''

LINK_XML = '''\
<interface type="bridge">
  <source bridge="test-br"/>
  <target dev="test-tap"/>
  <model type="virtio"/>
</interface>
'''

_SWALLOW = f'''\
import socket, threading
server = socket.create_server(('{SINK}', 9))
def swallow(connection):
    while connection.recv(1 << 16):
        pass
while True:
    threading.Thread(target=swallow, args=server.accept()[:1],
                     daemon=True).start()
'''


def options(disk: str) -> list[str]:
    """Return the agent's options that name them and their speeds."""
    return [one.format(disk=disk.removeprefix('/dev/')) for one in _OPTIONS]


@contextlib.contextmanager
def disk() -> Iterator[str]:
    """Make a disk without any other user."""
    with _image() as image, _loop(image, '--direct-io=on') as device:
        yield device


@contextlib.contextmanager
def slow_disk() -> Iterator[str]:
    """Make a disk that writes ``DISK`` bytes a second, and no more."""
    with _image() as image:
        slow = image.parent / 'slow'
        # The mount of a killed run may still exist.
        run(['umount', '--lazy', slow], check=False)
        slow.mkdir(exist_ok=True)
        # A disk's work is nothing that the host's CPU does.
        run(cgroups.inside('control', [
            'bindfs', f'--write-rate={DISK}', image.parent, slow]))
        try:
            with _loop(slow / image.name) as device:
                yield device
        finally:
            # Guests may not have ended yet.
            run(['umount', '--lazy', slow])


@contextlib.contextmanager
def _image() -> Iterator[pathlib.Path]:
    directory = layout.STATE / 'devices'
    directory.mkdir(exist_ok=True)
    image = directory / 'disk.raw'
    run(['truncate', '-s', '128M', image])
    try:
        yield image
    finally:
        image.unlink()


@contextlib.contextmanager
def _loop(image: pathlib.Path, *options: str) -> Iterator[str]:
    device = run(['losetup', *options, '-f', '--show', image]).stdout.strip()
    try:
        yield device
    finally:
        run(['losetup', '-d', device])


@contextlib.contextmanager
def link(host: str) -> Iterator[None]:
    """Make a bridge on a host, and behind its port the sink."""
    inside = [*hosts.enter(host), 'sh', '-c']
    run([*inside, 'ip link add test-br type bridge && '
         'ip link set test-br up && ip addr add 10.78.0.1/24 dev test-br'])
    sink = subprocess.Popen(['unshare', '-n', sys.executable, '-c',
                             'import time; time.sleep(1e6)'])
    swallow = None
    try:
        wait_for('a network of its own', lambda: os.readlink(
            f'/proc/{sink.pid}/ns/net') != os.readlink('/proc/self/ns/net'))
        run(['nsenter', '-t', str(hosts.outer_pid(host)), '-n',
             'ip', 'link', 'add', 'test-up', 'master', 'test-br', 'up',
             'type', 'veth', 'peer', 'name', 'test-peer', 'netns',
             str(sink.pid)])
        there = ['nsenter', '-t', str(sink.pid), '-n']
        run([*there, 'sh', '-c', 'ip link set test-peer up && '
             f'ip addr add {SINK}/24 dev test-peer'])
        swallow = subprocess.Popen([*there, sys.executable, '-c', _SWALLOW])
        # What an aborted run has left must not be taken for the real one.
        run([*inside, '[ -e /run/tc.real ] || '
             'cp /usr/sbin/tc /run/tc.real && '
             f'mount --bind {layout.HERE}/tc.sh /usr/sbin/tc'])
        try:
            yield
        finally:
            run([*inside, 'umount /usr/sbin/tc'])
    finally:
        for process in filter(None, (swallow, sink)):
            process.kill()
            process.wait()
        run([*inside, 'ip link del test-br'])
