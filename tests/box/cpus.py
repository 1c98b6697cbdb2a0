# SPDX-License-Identifier: Apache-2.0

"""CPUs of hosts, and those that the threads of guests may run on."""

from collections.abc import Collection, Iterator
import contextlib
import pathlib
import re
import typing

import cgroups
from secondary_scheduler.agent import kernel_files

Cpus = frozenset[int]

_NAME = re.compile(r'(?m)^Name:\t(.*)$')
_MASK = re.compile(r'(?m)^Cpus_allowed_list:\s*(\S+)$')
#: QEMU's name of the thread of a vCPU.
_VCPU = re.compile(r'CPU \d+/')


class Thread(typing.NamedTuple):
    """A thread of a guest: its process, its number, and its name."""

    process: int
    number: int
    name: str

    @property
    def is_vcpu(self) -> bool:
        """Whether it is the thread of a vCPU."""
        return bool(_VCPU.match(self.name))


def read_masks(host: str, name: str) -> dict[Thread, Cpus]:
    """Return the CPUs that each thread of a domain on a host may run on."""
    found = {}
    for scope in scopes(host, name, 'cpu'):
        for process in cgroups.processes(f'hosts/{host}/machine/{scope.name}'):
            for path in pathlib.Path(f'/proc/{process}/task').glob('*/status'):
                # A thread may end meanwhile.
                with contextlib.suppress(OSError, ValueError):
                    text = kernel_files.read_text(str(path))
                    known, mask = _NAME.search(text), _MASK.search(text)
                    if known and mask:
                        found[Thread(process, int(path.parent.name),
                                     known[1])] = kernel_files.parse_cpus(
                                         mask[1], str(path))
    return found


def scopes(host: str, name: str, controller: str = 'cpuset'
           ) -> Iterator[pathlib.Path]:
    """Yield the control groups of a domain on a host.

    One that libvirtd has made before it was restarted may be left behind.
    """
    return cgroups.path(controller, f'hosts/{host}/machine').glob(
        f'qemu-*-{name}.libvirt-qemu')


def give_cpus(host: str, cpus: Collection[int]) -> None:
    """Let a host have these CPUs of the machine.

    What libvirt makes for a guest has those of the group above.  A guest that
    runs loses those that its host loses, and gets no others.
    """
    top = cgroups.path('cpuset', f'hosts/{host}')
    groups = [top, top / 'system.slice', top / 'machine']
    if not _read(top) <= set(cpus):
        # With what ended guests have left behind.
        groups = sorted((file.parent for file in top.rglob('cpuset.cpus')),
                        key=lambda path: len(path.parts))
        # A set has all CPUs of those below it, on the way too.
        for group in groups:
            set_cpus(group, _read(group) | set(cpus), group == top)
        groups.reverse()
    for group in groups:
        set_cpus(group, cpus, group == top)


def _read(group: pathlib.Path) -> Cpus:
    file = group / 'cpuset.cpus'
    return kernel_files.parse_cpus(
        file.read_text() if file.exists() else '', str(file))


def set_cpus(group: pathlib.Path, cpus: Collection[int],
             is_bound: bool = False) -> None:
    """Set a group's CPUs; one with those of the group above keeps these."""
    file = group / 'cpuset.cpus'
    if is_bound or file.exists() and file.read_text().strip():
        file.write_text(kernel_files.format_cpus(cpus))


def confine(host: str, name: str, cpus: Collection[int]) -> None:
    """Let a guest have these CPUs only, as an operator may."""
    scope, = scopes(host, name)
    for group in sorted(scope.glob('*/')):
        set_cpus(group, cpus)
    set_cpus(scope, cpus, is_bound=True)
