# SPDX-License-Identifier: Apache-2.0

"""Disks and network ports of a host, chosen so that each byte counts once.

Linux stacks devices: partitions, RAID, multipath, LVM and encryption over
disks, bonds over ports, virtual functions beside the port that they share.
Each layer counts the bytes that pass through it.  Therefore the sum over all
devices would count them several times.
"""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import os
import re
import typing

from secondary_scheduler.agent import kernel_files

#: A path to an NVMe namespace.  Programs use its multipath head, nvmeXnZ.
_NVME_PATH = re.compile(r'nvme(\d+)c\d+n(\d+)')
#: Names that the kernel and systemd give to USB ports.  Management
#: controllers offer a network of their own as such a port.
_USB_NAME = re.compile(r'usb\d+|en(P\d+)?p\d+s\d+(f\d+)?(u\d+)+(c\d+)?(i\d+)?')
_USB_BUS = re.compile(r'usb\d+')
#: Names of representor ports, of virtual and scalable functions of a card.
_REPRESENTOR = re.compile(r'(c\d+)?pf\d+(vf|sf)\d+')

#: Highest plausible speed in Mbit/s.  While a speed is unknown, drivers report
#: 65535 or 4294967295 (-1 in 16 or 32 bits).
_FASTEST = 10**7
_UNKNOWN_SPEEDS = frozenset({0xffff, 0xffffffff})


class BlockDevice(typing.NamedTuple):
    """A disk, and the files that count its bytes.

    Each member of ``counters`` is a group of files with a sum that counts all
    bytes; the largest sum is correct.  Before Linux 6.15, the head of an NVMe
    multipath disk does not count, only its paths do.
    """

    name: str
    counters: tuple[tuple[str, ...], ...]


def _names(path: str) -> list[str]:
    """Return the names in a directory; none if it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


# -- disks -----------------------------------------------------------------
def disks(root: str, named: Iterable[str] = ()) -> list[BlockDevice]:
    """Return the disks to count, by default of all with hardware behind them.

    Disks of which another one is made are left out.  If another disk is made
    of some partitions of a disk, the remaining partitions are returned.

    :param root: /sys/block.
    :param named: disks to choose from instead, if any.
    :raises OSError: if ``root`` cannot be read.
    """
    below = _below(root, sorted(os.listdir(root)))
    chosen = list(dict.fromkeys(map(_head, named))) or list(dict.fromkeys(
        _head(name) for name in below if _is_hardware(root, name, below)))
    parts: set[str] = set()
    for name in chosen:
        parts |= _closure(name, below)
    found = []
    for name in chosen:
        if name in parts:
            continue
        partitions = _partitions(root, name)
        if parts.isdisjoint(partitions):
            found.append(BlockDevice(
                name, tuple(_counters(root, name, below))))
        else:
            found += [BlockDevice(one, ((f'{root}/{name}/{one}/stat',),))
                      for one in partitions if one not in parts]
    return found


def _head(name: str) -> str:
    """Return the head of an NVMe path; any other disk unchanged."""
    match = _NVME_PATH.fullmatch(name)
    return f'nvme{match[1]}n{match[2]}' if match else name


def _partitions(root: str, name: str) -> list[str]:
    return [one for one in _names(f'{root}/{name}')
            if one.startswith(name) and one != name
            and os.path.exists(f'{root}/{name}/{one}/stat')]


def _below(root: str, names: Iterable[str]) -> dict[str, set[str]]:
    """Return the disks and partitions of which each disk is made."""
    below: dict[str, set[str]] = {name: set() for name in names}
    for name in list(below):
        below[name].update(map(_head, _names(f'{root}/{name}/slaves')))
        for part, path in ((_head(name), name), *(
                (one, f'{name}/{one}') for one in _partitions(root, name))):
            for holder in _names(f'{root}/{path}/holders'):
                below.setdefault(holder, set()).add(part)
    for name in below:
        below[name].discard(name)
    return below


def _closure(name: str, below: Mapping[str, Iterable[str]]) -> set[str]:
    """Return all devices of which one is made, directly or indirectly."""
    found: set[str] = set()
    due = list(below.get(name, ()))
    while due:
        one = due.pop()
        if one not in found and one != name:
            found.add(one)
            due += below.get(one, ())
    return found


def _is_hardware(root: str, name: str, below: Mapping[str, Iterable[str]]
                 ) -> bool:
    """Return whether a disk, or a part of it, has hardware behind it."""
    owner = {one: disk for disk in below for one in _partitions(root, disk)}
    return any(os.path.exists(f'{root}/{owner.get(one, one)}/device')
               for one in (name, *_closure(name, below)))


def _counters(root: str, name: str, names: Iterable[str]
              ) -> Iterator[tuple[str, ...]]:
    paths = tuple(f'{root}/{one}/stat' for one in names
                  if one != name and _head(one) == name)
    if not paths or os.path.exists(f'{root}/{name}'):
        yield (f'{root}/{name}/stat',)
    if paths:
        yield paths


# -- ports -----------------------------------------------------------------
def ports(root: str, named: Iterable[str] = ()) -> list[str]:
    """Return the ports of the host's link.

    By default these are all physical functions with hardware behind them,
    except USB ports.  A bond replaces its ports.  Ports of which another one
    is made are left out.

    :param root: /sys/class/net.
    :param named: ports to choose from instead, if any.
    :raises OSError: if ``root`` cannot be read.
    """
    chosen = list(dict.fromkeys(named)) or list(dict.fromkeys(
        _bond(root, name) for name in sorted(os.listdir(root))
        if os.path.exists(f'{root}/{name}/device')
        and not _is_shared(root, name) and not _is_usb(root, name)))
    lower = {name: _lower(root, name) for name in chosen}
    parts = set().union(*(_closure(name, lower) for name in chosen))
    return [name for name in chosen if name not in parts]


def _bond(root: str, name: str) -> str:
    """Return the bond of a port if the bond's speed is known, else the port.
    """
    master = os.path.basename(os.path.realpath(f'{root}/{name}/master'))
    bonded = (os.path.exists(f'{root}/{master}/bonding')
              and speed(root, master) is not None)
    return master if bonded else name


def _lower(root: str, name: str) -> set[str]:
    """Return the ports of which a port is made."""
    lower = {one.removeprefix('lower_') for one in _names(f'{root}/{name}')
             if one.startswith('lower_')}
    with contextlib.suppress(OSError, ValueError):
        lower.update(kernel_files.read_text(
            f'{root}/{name}/bonding/slaves').split())
    return lower


def _is_shared(root: str, name: str) -> bool:
    """Return whether a port is a virtual function or a representor of one."""
    device = f'{root}/{name}/device'
    if os.path.lexists(f'{device}/physfn') or os.path.exists(
            f'{device}/sfnum'):
        return True
    try:
        label = kernel_files.read_text(f'{root}/{name}/phys_port_name').strip()
    except (OSError, ValueError):
        return False
    return _REPRESENTOR.fullmatch(label) is not None


def _is_usb(root: str, name: str) -> bool:
    device = f'{root}/{name}/device'
    return (_USB_NAME.fullmatch(name) is not None
            or os.path.exists(f'{device}/bInterfaceNumber')
            or os.path.basename(os.path.realpath(f'{device}/subsystem'))
            == 'usb'
            or any(map(_USB_BUS.fullmatch,
                       os.path.realpath(device).split('/'))))


def speed(root: str, name: str) -> int | None:
    """Return the speed of a port in Mbit/s, None if unknown."""
    try:
        found = kernel_files.read_count(f'{root}/{name}/speed')
    except (OSError, ValueError):
        return None     # the port is down or virtual
    return found if (0 < found <= _FASTEST
                     and found not in _UNKNOWN_SPEEDS) else None
