# SPDX-License-Identifier: Apache-2.0

"""Verification of a secondary's control groups, and verified writes.

A group belongs to a secondary only if three conditions hold: its QEMU process
is in the group, the group is named after the domain, and the process is still
alive after the group was opened.
"""

import dataclasses
import errno
import os
import re

from secondary_scheduler.agent import cgroups, processes
from secondary_scheduler.agent.domains import Secondary

#: libvirt's groups of emulator and I/O threads, and of vCPUs.
EMULATOR = re.compile(r'emulator|iothread\d+')
VCPU = re.compile(r'vcpu\d+')


class NotSecondary(Exception):
    """Attempt to write to a group that is not a verified secondary's."""


@dataclasses.dataclass
class CgroupHandles:
    """Open groups of one secondary, and its open directory in /proc.

    ``scope`` is its topmost group; priority acts among siblings of that.
    ``base`` is the parent of vcpuN, emulator and iothreadN.  Under systemd
    the two differ.  ``accounting`` counts its CPU time.  Its memory is
    charged to ``memory``, None if there is no such group.
    """

    guest: Secondary
    scope: cgroups.Group
    base: cgroups.Group
    accounting: cgroups.Group
    process: cgroups.Group
    memory: cgroups.Group | None

    def close(self) -> None:
        """Close all of them."""
        for group in (self.scope, self.base, self.accounting, self.process,
                      self.memory):
            if group is not None:
                group.close()


def process_key(uuid: str, pid: int, started: int) -> str:
    """Return the key of a process in state files."""
    return f'{uuid} {pid} {started}'


def key_of(guest: Secondary) -> str:
    """Return the key of a guest's process in state files."""
    return process_key(guest.uuid, guest.pid, guest.started)


def lives(name: str, proc: str) -> bool:
    """Return whether the process of a ``process_key`` is alive."""
    try:
        _, pid, started = name.split()
        return processes.start_time(int(pid), proc) == int(started)
    except ValueError:      # the state file was damaged
        return False


def open_handles(hierarchy: cgroups.Hierarchy,
                 guest: Secondary) -> CgroupHandles:
    """Open the groups of a guest.

    :raises CgroupError: if they cannot be verified as the guest's own.
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
    top, parent, accounting, process = opened[:4]
    return CgroupHandles(guest, top, parent, accounting, process, memory)


def base_of(hierarchy: cgroups.Hierarchy, guest: Secondary,
            controller: str) -> str:
    """Return the parent directory of a guest's vcpuN and emulator groups.

    :raises CgroupError: if it cannot be verified as the guest's own.  A guest
        without groups of its own is in the group of libvirtd.
    """
    path = hierarchy.directory(guest.pid, controller)
    if not EMULATOR.fullmatch(os.path.basename(path)):
        raise cgroups.CgroupError(f'{path} is no guest\'s own group')
    base = os.path.dirname(path)
    _check_name(guest, base)
    return base


def check_own(hierarchy: cgroups.Hierarchy, guest: Secondary,
              controller: str, base: str) -> None:
    """Verify, after groups were opened, that they belong to a guest.

    :raises CgroupError: if its process has ended or moved to another group.
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
    """Return the group to which a guest's memory is charged, if known.

    In version 1, thread groups are not in the memory hierarchy.
    """
    try:
        if hierarchy.version_of('memory') == hierarchy.version == 2:
            return cgroups.Group(scope)
        path = hierarchy.directory(guest.pid, 'memory')
        if EMULATOR.fullmatch(os.path.basename(path)):
            path = scope_of(os.path.dirname(path))
        _check_name(guest, path)
        return cgroups.Group(path)
    except cgroups.CgroupError:
        return None


def _check_name(guest: Secondary, base: str) -> None:
    """Verify that a group is named after a guest's domain.

    :raises CgroupError: if it is not.
    """
    name = os.path.basename(scope_of(base))
    dash = r'(?:-|\\x2d)'
    if not re.match(rf'(?:machine-)?qemu{dash}{guest.id}{dash}', name):
        raise cgroups.CgroupError(
            f'{base} is not named after domain {guest.id}')


def put(group: cgroups.Group, name: str, value: str) -> None:
    """Write a file of a group.

    :raises OSError: if the kernel refuses; the error names the file.
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
    """Write a file of a group, and verify the value by reading it back.

    An empty value is written as an empty line.

    :raises OSError: if the kernel refuses, or if the file has another value
        afterwards; the error names the file.
    """
    put(group, name, value or '\n')
    now = group.read(name)
    if now != value:
        raise OSError(errno.EIO, f'says {now!r} after {value!r} was written',
                      f'{group.path}/{name}')
