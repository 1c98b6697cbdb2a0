# SPDX-License-Identifier: Apache-2.0

"""Dedicated CPUs of primaries, by their XML and by their threads."""

from collections.abc import Callable, Collection, Iterable, Iterator
import contextlib
import enum
import math
import os
import typing

from secondary_scheduler.agent import cgroups, kernel_files, pins
from secondary_scheduler.agent.domains import Primary, Secondary
from secondary_scheduler.agent.pins import Cpus

#: Seconds between two readings of the CPU masks of primaries' threads.  New
#: primaries are read at once.
_MASKS_S = 10.0


class Evidence(enum.StrEnum):
    """Source of the knowledge that CPUs are dedicated."""

    FLAVOR = 'flavor or image'
    PINS = 'pins in its XML'
    MASKS = 'masks of its threads'


class Claim(typing.NamedTuple):
    """Dedicated CPUs of a primary.

    :param name: the primary's name in libvirt
    """

    name: str
    cpus: Cpus
    evidence: Evidence


class PrimaryPins:
    """CPU masks of the threads of primaries; ``find_own`` is for one thread.

    :param mask_of: returns the CPUs of a thread by its number
    """

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 mask_of: Callable[[int], Collection[int]]
                 = os.sched_getaffinity) -> None:
        self._hierarchy = hierarchy
        self._mask_of = mask_of
        #: Masks by process.
        self._masks: dict[tuple[int, int], pins.Pins] = {}
        self._masks_at = 0.0
        #: Masks of the threads of vCPUs, by number.
        self._vcpus: dict[int, Cpus | None] = {}

    def find_own(self, primaries: Iterable[Primary],
                 guests: Iterable[Secondary], now: float) -> list[Claim]:
        """Find the CPUs that primaries have for themselves.

        :param guests: the secondaries
        :param now: time in seconds on any clock
        """
        known = {(one.pid, one.started): one for one in primaries}
        if (known.keys() != self._masks.keys()
                or now - self._masks_at > _MASKS_S):
            self._masks_at = now
            # The masks that changes are told by come first, so that no change
            # between both readings is lost.
            self._vcpus = {thread: self._mask(thread)
                           for one in known.values()
                           for thread in self._read_threads(one)[1]}
            self._masks = {key: self._read_threads(one)[0]
                           for key, one in known.items()}
        shared = {*(kernel_files.parse_cpus(guest.cpus, guest.uuid)
                    for guest in guests),
                  *(one.pins.shared for one in known.values())}
        return [claim for one in known.values()
                for claim in self._claims(one, shared) if claim.cpus]

    def changed(self) -> bool:
        """Return whether a vCPU of a primary was pinned to other CPUs.

        The next ``find_own`` then reads all masks again.
        """
        found = any(self._mask(thread) != cpus
                    for thread, cpus in self._vcpus.items())
        if found:
            self._masks_at = -math.inf
        return found

    def confined_to(self, primary: Primary) -> Cpus:
        """Return the CPUs of the vCPUs of a primary; none if not known."""
        return frozenset[int]().union(*self._masks.get(
            (primary.pid, primary.started), pins.NO_PINS).vcpus)

    def _read_threads(self, primary: Primary
                      ) -> tuple[pins.Pins, tuple[int, ...]]:
        return pins.read_threads(primary.pid, self._hierarchy.proc)

    def _mask(self, thread: int) -> Cpus | None:
        """Return the CPUs of a thread, None if it has ended.

        The system call takes a hundredth of the time of reading a file.
        """
        try:
            return frozenset(self._mask_of(thread))
        except OSError:
            return None

    def _claims(self, primary: Primary, shared: Collection[Cpus]
                ) -> Iterator[Claim]:
        """Yield the dedicated CPUs of a primary, by evidence.

        :param shared: sets over which Nova lets guests float
        """
        known = pins.own_cpus(primary.pins, shared)
        yield Claim(primary.name, known, Evidence.PINS if
                    primary.pins.by_flavor is None else Evidence.FLAVOR)
        masks = self._masks[primary.pid, primary.started]
        named = {*primary.pins.vcpus, *primary.pins.others,
                 primary.pins.shared}
        if pins.own_cpus(masks, named.union(shared)):
            # Threads may also be pinned by hand, without the XML.
            yield Claim(primary.name, pins.own_cpus(masks, named.union(
                shared, self._masks_of(primary, named))) - known,
                Evidence.MASKS)

    def _masks_of(self, primary: Primary, named: Collection[Cpus]
                  ) -> Iterator[Cpus]:
        """Yield the possible masks of threads that are not pinned by hand.

        A mask is the set that the XML names, or the part of it that the
        groups above leave.

        :param named: the sets in the XML; no CPUs for none
        """
        # Unless they are in a group of CPUs, threads have the mask of the
        # first process, which isolcpus of the kernel and CPUAffinity of
        # systemd narrow.
        for most in (*pins.read_threads(1, self._hierarchy.proc)[0].others,
                     self._inherited(primary)):
            yield most
            yield from (most & cpus or most for cpus in named)

    def _inherited(self, primary: Primary) -> Cpus:
        """Return the CPUs of the group above a primary's, if known."""
        with contextlib.suppress(OSError, ValueError, cgroups.CgroupError):
            root = path = self._hierarchy.root('cpuset')
            with contextlib.suppress(cgroups.CgroupError):
                path = self._hierarchy.scope(primary.pid, 'cpuset')
            for above in (*cgroups.groups_above(path, root), root):
                with contextlib.closing(cgroups.Group(above)) as group:
                    if cpus := cgroups.effective_cpus(group):
                        return cpus
        return frozenset()
