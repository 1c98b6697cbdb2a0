# SPDX-License-Identifier: Apache-2.0

"""Primaries of a test, booted through Nova or defined by hand.

The values and times of their control files show any write.
"""

from collections.abc import Iterator
import contextlib
import os
import re
import time
from typing import Any

import libvirt

import cgroups
import hosts as box_hosts
import layout
from tests.box.services import wait_until

#: Defined by hand: one without metadata, and one with metadata of Nova's
#: that does not say what it is.
BY_HAND = {
    'test-by-hand': '',
    'test-unreadable': (
        '<metadata><nova:instance xmlns:nova='
        '"http://openstack.org/xmlns/libvirt/nova/1.1">'
        '<nova:name>secondary</nova:name><nova:flavor name="secondary">'
        '<nova:extraSpecs/></nova:flavor></nova:instance></metadata>')}

DOMAIN = '''\
<domain type="qemu">
  <name>{name}</name>{metadata}
  <memory unit="MiB">128</memory>
  <vcpu>1</vcpu>
  <cputune><shares>777</shares><period>50000</period><quota>15000</quota>
  </cputune>
  <os>
    <type arch="x86_64" machine="pc">hvm</type>
    <kernel>{guest}/vmlinuz</kernel>
    <initrd>{guest}/initrd.gz</initrd>
    <cmdline>console=ttyS0 quiet panic=-1 work=idle</cmdline>
  </os>
  <features><acpi/></features>
  <devices><serial type="null"/></devices>
</domain>
'''

#: Files by which a control group is told something.
_CONTROLS = re.compile(
    r'cpu\.(cfs_\w+|shares|idle|rt_\w+_us|max|max\.burst|weight|weight\.nice)'
    r'|cpuset\.(cpus|mems)|freezer\.state|cgroup\.freeze'
    r'|(blk)?io\.(bfq\.)?(weight|max)'
    r'|memory\.(limit_in_bytes|soft_limit_in_bytes|max|high|low|min)')


def connect(host: str) -> libvirt.virConnect:
    """Return a connection to a host's libvirt."""
    socket = (f'/proc/{box_hosts.outer_pid(host)}/root/run/libvirt/'
              'libvirt-sock')
    return libvirt.open(f'qemu+unix:///system?socket={socket}')


@contextlib.contextmanager
def domain_by_hand(host: str, name: str, xml: str | None = None
                   ) -> Iterator[libvirt.virDomain]:
    """Define and start a domain in a host's libvirt; yield it.

    :param xml: by default that of a primary of ``BY_HAND``.
    """
    xml = xml or DOMAIN.format(name=name, metadata=BY_HAND[name],
                               guest=layout.GUEST)

    def remove() -> None:
        # libvirtd may be another one by then.
        with contextlib.closing(connect(host)) as connection:
            with contextlib.suppress(libvirt.libvirtError):
                old = connection.lookupByName(name)
                with contextlib.suppress(libvirt.libvirtError):
                    old.destroy()
                old.undefine()

    remove()
    with contextlib.closing(connect(host)) as connection:
        domain = connection.defineXML(xml)
        try:
            domain.create()
            yield domain
        finally:
            remove()


class ControlFiles:
    """All that may be written in a domain's control groups.

    The files are held open: their inodes stay, so a change of the time of
    modification is a write.
    """

    def __init__(self, host: str, name: str) -> None:
        self._open: dict[str, int] = {}
        for machine in cgroups.groups(f'hosts/{host}/machine'):
            for scope in machine.glob(f'qemu-*-{name}.libvirt-qemu'):
                for path in sorted(scope.rglob('*')):
                    if path.is_file() and _CONTROLS.fullmatch(path.name):
                        with contextlib.suppress(OSError):
                            self._open[str(path)] = os.open(path,
                                                            os.O_RDONLY)

    def values(self) -> dict[str, tuple[str, int]]:
        """Return the content and the time of modification of each file."""
        found = {}
        for path, fd in self._open.items():
            with contextlib.suppress(OSError):
                found[path] = (os.pread(fd, 4096, 0).decode(),
                               os.fstat(fd).st_mtime_ns)
        return found

    def close(self) -> None:
        """Let go of the files."""
        for fd in self._open.values():
            os.close(fd)


def boot_primary(cloud: Any, name: str, host: str | None = None,
                 image: str = 'worker-idle', flavor: str = 'primary') -> str:
    """Ask Nova for a primary, on a host if one is named; return its UUID."""
    more = {'availability_zone': f'nova:{host}'} if host else {}
    server = cloud.compute.create_server(
        name=name, networks='none',
        image_id=cloud.image.find_image(image).id,
        flavor_id=cloud.compute.find_flavor(flavor).id, **more)
    return str(server.id)


def wait_active(cloud: Any, uuid: str) -> Any:
    """Wait until a server is built; return it, which must be ACTIVE."""
    def built() -> Any:
        server = cloud.compute.get_server(uuid)
        return server if server.status != 'BUILD' else None
    server = wait_until(built, 240, f'primary {uuid} is built')
    assert server.status == 'ACTIVE', server.fault
    return server


def delete(cloud: Any, *uuids: str) -> None:
    """Delete servers and wait until they are gone.

    How long Nova takes is nothing that we promise: the limit is there to
    end a test that hangs, with what is needed to see why.  Where a scheduler
    has just been restarted Nova may have to be asked again: nova-compute
    cannot delete while none listens.
    """
    asked = 0.0

    def left() -> list[Any]:
        return [server for server in cloud.compute.servers(all_projects=True)
                if server.id in uuids]

    def gone() -> bool:
        nonlocal asked
        again = time.monotonic() > asked + 15
        found = left()
        for server in found if again else ():
            asked = time.monotonic()
            cloud.compute.delete_server(server.id, ignore_missing=True)
        return not found

    def story() -> str:
        lines = ['servers are deleted']
        for server in left():
            lines.append(f'{server.name}: {server.status}, task '
                         f'{server.task_state}, on {server.compute_host}')
            lines += [line for log in layout.LOG.glob('nova-*.log')
                      for line in log.read_text(errors='replace').splitlines()
                      if server.id in line][-20:]
        return '\n'.join(lines)
    wait_until(gone, 240, story)
