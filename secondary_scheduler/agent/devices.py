"""Disks and network ports of a host, each of which counts its bytes once.

Linux stacks devices: partitions, RAID, multipath, LVM and encryption over
disks, bonds over ports, virtual functions beside the port that they share.
Each layer counts the bytes that go through it, so the sum of all counts them
several times.
"""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import os
import re
import typing

from secondary_scheduler.agent import kernel_files

#: A path to an NVMe namespace; its head is nvmeXnZ, which programs use.
_NVME_PATH = re.compile(r'nvme(\d+)c\d+n(\d+)')
#: USB ports as the kernel and systemd name them.  A management controller
#: shows its own network in this way.
_USB_NAME = re.compile(r'usb\d+|en(P\d+)?p\d+s\d+(f\d+)?(u\d+)+(c\d+)?(i\d+)?')
_USB_BUS = re.compile(r'usb\d+')
#: Ports that stand for a virtual or a scalable function of the card's.
_REPRESENTOR = re.compile(r'(c\d+)?pf\d+(vf|sf)\d+')

#: Mbit/s above which no port is; drivers say 65535 or 4294967295 (-1 in 16
#: or 32 bits) while they do not know.
_FASTEST = 10**7
_UNKNOWN_SPEEDS = frozenset({0xffff, 0xffffffff})


class BlockDevice(typing.NamedTuple):
    """A disk, and the files that count its bytes.

    Each member of ``counters`` counts all of them, as a sum of its files; the
    largest is right.  (Before Linux 6.15 the head of NVMe multipath stands
    still, and only its paths count.)
    """

    name: str
    counters: tuple[tuple[str, ...], ...]


def _names(path: str) -> list[str]:
    """Return the names in a directory; none if it is not there."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


# -- disks -----------------------------------------------------------------
def disks(root: str, named: Iterable[str] = ()) -> list[BlockDevice]:
    """Return the disks that count, by default all with hardware behind them.

    That is what no other of them is made of.  Of a disk with partitions some
    of which are part of others, it is the other partitions.

    :param root: /sys/block.
    :param named: the disks of which to choose instead, if any.
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
    """Return the disk to which an NVMe path leads; any other is itself."""
    match = _NVME_PATH.fullmatch(name)
    return f'nvme{match[1]}n{match[2]}' if match else name


def _partitions(root: str, name: str) -> list[str]:
    return [one for one in _names(f'{root}/{name}')
            if one.startswith(name) and one != name
            and os.path.exists(f'{root}/{name}/{one}/stat')]


def _below(root: str, names: Iterable[str]) -> dict[str, set[str]]:
    """Return what each disk is made of: disks and partitions."""
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
    """Return what a disk is made of, and what this is made of."""
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
    """Tell whether a disk, or a part of it, has hardware behind it."""
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

    By default all with hardware behind them that are physical functions and
    not on USB, with a bond in the place of its ports.  Of the named ones those
    are left out of which another one consists.

    :param root: /sys/class/net.
    :raises OSError: if it cannot be read.
    """
    chosen = list(dict.fromkeys(named)) or list(dict.fromkeys(
        _bond(root, name) for name in sorted(os.listdir(root))
        if os.path.exists(f'{root}/{name}/device')
        and not _is_shared(root, name) and not _is_usb(root, name)))
    lower = {name: _lower(root, name) for name in chosen}
    parts = set().union(*(_closure(name, lower) for name in chosen))
    return [name for name in chosen if name not in parts]


def _bond(root: str, name: str) -> str:
    """Return the bond of a port whose speed is known, or the port."""
    master = os.path.basename(os.path.realpath(f'{root}/{name}/master'))
    bonded = (os.path.exists(f'{root}/{master}/bonding')
              and speed(root, master) is not None)
    return master if bonded else name


def _lower(root: str, name: str) -> set[str]:
    """Return the ports of which a named one consists."""
    lower = {one.removeprefix('lower_') for one in _names(f'{root}/{name}')
             if one.startswith('lower_')}
    with contextlib.suppress(OSError, ValueError):
        lower.update(kernel_files.read(
            f'{root}/{name}/bonding/slaves').split())
    return lower


def _is_shared(root: str, name: str) -> bool:
    """Tell whether a port is a virtual function, or stands for one."""
    device = f'{root}/{name}/device'
    if os.path.lexists(f'{device}/physfn') or os.path.exists(
            f'{device}/sfnum'):
        return True
    try:
        label = kernel_files.read(f'{root}/{name}/phys_port_name').strip()
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
    """Return the speed of a port in Mbit/s, None if it does not say."""
    try:
        found = kernel_files.read_count(f'{root}/{name}/speed')
    except (OSError, ValueError):
        return None     # it is down, or a virtual one
    return found if (0 < found <= _FASTEST
                     and found not in _UNKNOWN_SPEEDS) else None
