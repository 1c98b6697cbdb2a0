"""Groups of verified secondaries, and the one way to write a file of theirs.

A group is a secondary's only if its QEMU process is in it, if it is named
after the domain, and if that process has outlived its opening.
"""

import dataclasses
import errno
import os
import re

from secondary_scheduler.agent import cgroups, processes
from secondary_scheduler.agent.domains import Secondary

#: libvirt's groups of threads that are no vCPUs, and of vCPUs.
SERVICE = re.compile(r'emulator|iothread\d+')
VCPU = re.compile(r'vcpu\d+')


class NotSecondary(Exception):
    """Attempt to write where only primaries may be."""


@dataclasses.dataclass
class CgroupHandles:
    """The groups of one secondary, and its process, held open.

    ``scope`` is the group among whose siblings priority acts, ``base`` the
    one that holds vcpuN, emulator and iothreadN; they differ under systemd.
    ``memory`` is the one that its memory is charged to, if there is one.
    """

    guest: Secondary
    scope: cgroups.Group
    base: cgroups.Group
    accounting: cgroups.Group
    process: cgroups.Group
    memory: cgroups.Group | None

    def close(self) -> None:
        """Let go of all of them."""
        for group in (self.scope, self.base, self.accounting, self.process,
                      self.memory):
            if group is not None:
                group.close()


def process_key(uuid: str, pid: int, started: int) -> str:
    """Return the name of a guest's process in state files."""
    return f'{uuid} {pid} {started}'


def key_of(guest: Secondary) -> str:
    """Return the name of a guest's process in state files."""
    return process_key(guest.uuid, guest.pid, guest.started)


def lives(name: str, proc: str) -> bool:
    """Tell whether the process of a ``process_key`` is still there."""
    try:
        _, pid, started = name.split()
        return processes.start_time(int(pid), proc) == int(started)
    except ValueError:      # the file was spoilt
        return False


def open_handles(hierarchy: cgroups.Hierarchy,
                 guest: Secondary) -> CgroupHandles:
    """Open the groups of a guest.

    :raises CgroupError: if they are not surely this guest's alone.
    """
    base = base_of(hierarchy, guest, 'cpu')
    scope = scope_of(base)
    opened: list[cgroups.Group] = []
    try:
        for path in (scope, base, base_of(hierarchy, guest, 'cpuacct'),
                     f'{hierarchy.proc}/{guest.pid}'):
            opened.append(cgroups.Group(path))
        memory = _memory_group(hierarchy, guest, scope)
        if memory is not None:
            opened.append(memory)
        check_own(hierarchy, guest, 'cpu', base)
    except cgroups.CgroupError:
        for group in opened:
            group.close()
        raise
    return CgroupHandles(guest, *opened[:4], memory=memory)


def base_of(hierarchy: cgroups.Hierarchy, guest: Secondary,
            controller: str) -> str:
    """Return the directory that holds a guest's vcpuN and emulator.

    :raises CgroupError: if it is not surely this guest's alone: without
        cgroups of its own, a guest is in libvirtd's.
    """
    path = hierarchy.directory(guest.pid, controller)
    if not SERVICE.fullmatch(os.path.basename(path)):
        raise cgroups.CgroupError(f'{path} is no guest\'s own group')
    base = os.path.dirname(path)
    _check_name(guest, base)
    return base


def check_own(hierarchy: cgroups.Hierarchy, guest: Secondary,
              controller: str, base: str) -> None:
    """Make sure that groups that were opened are a guest's.

    :raises CgroupError: if its process has not outlived that.
    """
    if (processes.start_time(guest.pid, hierarchy.proc) != guest.started
            or base_of(hierarchy, guest, controller) != base):
        raise cgroups.CgroupError('its process has just ended')


def scope_of(base: str) -> str:
    """Return the topmost of a guest's groups."""
    return (os.path.dirname(base) if os.path.basename(base) == 'libvirt'
            else base)


def _memory_group(hierarchy: cgroups.Hierarchy, guest: Secondary,
                  scope: str) -> cgroups.Group | None:
    """Return the group that a guest's memory is charged to, if known.

    Version 1 has none for the threads of a guest.
    """
    try:
        if hierarchy.version_of('memory') == hierarchy.version == 2:
            return cgroups.Group(scope)
        path = hierarchy.directory(guest.pid, 'memory')
        if SERVICE.fullmatch(os.path.basename(path)):
            path = scope_of(os.path.dirname(path))
        _check_name(guest, path)
        return cgroups.Group(path)
    except cgroups.CgroupError:
        return None


def _check_name(guest: Secondary, base: str) -> None:
    """Make sure that a group is named after a guest.

    :raises CgroupError: if it is not.
    """
    name = os.path.basename(scope_of(base))
    dash = r'(?:-|\\x2d)'
    if not re.match(rf'(?:machine-)?qemu{dash}{guest.id}{dash}', name):
        raise cgroups.CgroupError(
            f'{base} is not named after domain {guest.id}')


def put(group: cgroups.Group, name: str, value: str) -> None:
    """Write a file of a group.

    :raises OSError: if the kernel refuses; it names the file.
    """
    try:
        fd = os.open(name, os.O_WRONLY | os.O_TRUNC, dir_fd=group.fd)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror,
                      f'{group.path}/{name}') from exc


def set_file(group: cgroups.Group, name: str, value: str) -> None:
    """Write a file of a group, and make sure that it has taken effect.

    A list that is to be empty is written as an empty line.

    :raises OSError: if the kernel refuses, or says something else afterwards;
        it names the file.
    """
    put(group, name, value or '\n')
    now = group.read(name)
    if now != value:
        raise OSError(errno.EIO, f'says {now!r} after {value!r} was written',
                      f'{group.path}/{name}')
