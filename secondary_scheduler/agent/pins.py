# SPDX-License-Identifier: Apache-2.0

"""Dedicated CPUs of a guest, by its domain XML and by its threads.

Nova pins each vCPU of an instance with ``hw:cpu_policy=dedicated`` to a CPU of
``cpu_dedicated_set``.  It describes the CPUs over which vCPUs float with the
same elements: those of a NUMA node, which may be one CPU.  The policy of the
flavor and the image therefore outranks the pins.  Older domains lack it.
There, and in domains of other programs, each CPU to which a thread is pinned
alone is dedicated: this guest cannot get out of the way of a secondary.

Neither does the number of vCPUs say that a set is dedicated, nor a set in the
element ``vcpu``: it is ``cpu_shared_set``, be it a single CPU.
"""

from collections.abc import Collection, Iterator
import os
import re
import typing
from xml.etree import ElementTree  # nosec B405

from secondary_scheduler.agent import cpu_policies, kernel_files
from secondary_scheduler.agent.nova_metadata import (
    UnreadableDomain,
    read_instance,
)

Cpus = frozenset[int]

#: Names of QEMU's vCPU threads; libvirt makes QEMU name them.
_VCPU_THREAD = re.compile(r'CPU (\d+|ALL)/\w+')


class Pins(typing.NamedTuple):
    """CPUs to which threads of a guest are confined, one entry per thread.

    Threads that are not confined are left out.

    :param shared: the set of vCPUs without a pin; no CPUs if it is not named
    :param by_flavor: the dedicated CPUs by flavor and image; None if these are
        not known
    """

    vcpus: tuple[Cpus, ...] = ()
    others: tuple[Cpus, ...] = ()
    shared: Cpus = frozenset()
    by_flavor: Cpus | None = None


NO_PINS = Pins()


def read_pins(root: ElementTree.Element) -> Pins:
    """Return the pins in a domain XML; unreadable ones are left out."""
    vcpu = root.find('vcpu')
    shared = _cpus(vcpu)
    pinned = {_number(pin.get('vcpu')): _cpus(pin)
              for pin in root.findall('cputune/vcpupin')}
    count = max(_number(vcpu.text if vcpu is not None else None),
                max(pinned, default=-1) + 1)
    vcpus = [pinned.get(number) or shared for number in range(count)]
    others = [_cpus(pin) for path in ('cputune/emulatorpin',
                                      'cputune/iothreadpin')
              for pin in root.findall(path)]
    dedicated = _find_dedicated(root, count)
    return Pins(
        tuple(filter(None, vcpus)), tuple(filter(None, others)), shared,
        None if dedicated is None else frozenset[int]().union(
            *(pinned.get(number, ()) for number in dedicated.vcpus),
            *(others if dedicated.others else ())))


def _find_dedicated(root: ElementTree.Element, vcpus: int
                    ) -> cpu_policies.DedicatedThreads | None:
    """Return the threads with dedicated CPUs by the flavor, None if unknown.
    """
    try:
        instance = read_instance(root)
        if instance is None or instance.extra_specs is None:
            return None
        return cpu_policies.find_dedicated(
            instance.extra_specs, instance.read_properties(), vcpus)
    except UnreadableDomain:
        return None


def _number(text: str | None) -> int:
    """Return a number of an XML attribute, 0 if it is none."""
    try:
        return min(kernel_files.parse_count(text or '', ''),
                   kernel_files.MOST_CPUS)
    except ValueError:
        return 0


def _cpus(element: ElementTree.Element | None) -> Cpus:
    """Return the ``cpuset`` of an element, in the kernel's list format."""
    text = '' if element is None else element.get('cpuset', '')
    try:
        return kernel_files.parse_cpus(text, 'cpuset')
    except ValueError:
        return frozenset()


def read_threads(pid: int, proc: str) -> tuple[Pins, tuple[int, ...]]:
    """Return the CPUs that the threads of a QEMU process may use now.

    :returns: the pins, and the numbers of the threads of its vCPUs.
    """
    vcpus: dict[int, Cpus] = {}
    others: list[Cpus] = []
    for thread, name, cpus in _threads(f'{proc}/{pid}/task'):
        if _VCPU_THREAD.fullmatch(name):
            vcpus[thread] = cpus
        else:
            others.append(cpus)
    return Pins(tuple(vcpus.values()), tuple(others)), tuple(vcpus)


def _threads(path: str) -> Iterator[tuple[int, str, Cpus]]:
    """Yield number, name and CPUs of each thread that is still alive."""
    try:
        threads = os.listdir(path)
    except OSError:
        return
    for thread in threads:
        name, cpus = _read_status(f'{path}/{thread}/status')
        if cpus:
            yield int(thread), name, cpus


def read_mask(path: str) -> Cpus:
    """Return the CPUs of a file ``status`` of a thread.

    :returns: no CPUs if the thread has ended.
    """
    return _read_status(path)[1]


def _read_status(path: str) -> tuple[str, Cpus]:
    """Return name and CPUs of a thread; no CPUs if they cannot be read."""
    try:
        fields = {name: value.strip() for name, _, value in (
            line.partition(':')
            for line in kernel_files.read_text(path).split('\n'))}
        return fields.get('Name', ''), kernel_files.parse_cpus(
            fields.get('Cpus_allowed_list', ''), path)
    except (OSError, ValueError):
        return '', frozenset()


def own_cpus(pins: Pins, shared: Collection[Cpus]) -> Cpus:
    """Return the dedicated CPUs of a guest.

    :param shared: sets over which other guests float.  Without the word of a
        flavor a pin to one of them is not dedicated
    """
    if pins.by_flavor is not None:
        return pins.by_flavor
    return frozenset[int]().union(*(
        cpus for cpus in (*pins.vcpus, *pins.others)
        if len(cpus) == 1 and cpus != pins.shared and cpus not in shared))
