# SPDX-License-Identifier: Apache-2.0

"""CPUs to which primaries are pinned, by their XML and by their threads."""

from collections.abc import Callable, Collection, Iterable, Mapping
import contextlib
import math
import os

from secondary_scheduler.agent import cgroups, kernel_files, pins
from secondary_scheduler.agent.domains import Primary, Secondary
from secondary_scheduler.agent.pins import Cpus

#: Seconds between two readings of the CPU masks of primaries' threads.  New
#: primaries are read at once.
_MASKS_S = 10.0

#: Returns the CPUs of a secondary before anything was written, none if they
#: are not known.
FirstCpus = Callable[[Secondary], Cpus]


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
                 guests: Iterable[Secondary], first_cpus: FirstCpus,
                 now: float) -> Cpus:
        """Return the CPUs that primaries have for themselves.

        :param guests: the secondaries.  A set over which one of them floats
            is not dedicated to any primary
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
        return self._own_cpus(known, list(guests), first_cpus)

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

    def _own_cpus(self, primaries: Mapping[tuple[int, int], Primary],
                  guests: Collection[Secondary], first_cpus: FirstCpus
                  ) -> Cpus:
        given = {kernel_files.parse_cpus(guest.cpus, guest.uuid)
                 for guest in guests}
        own = frozenset[int]().union(*(
            pins.own_cpus(one.pins, given) for one in primaries.values()))
        if any(pins.own_cpus(one, given) for one in self._masks.values()):
            # A thread that may run on all CPUs of the host, or of its group,
            # is not pinned.
            floated = given | self._floated()
            floated.update(map(first_cpus, guests))
            own = own.union(*(pins.own_cpus(one, floated)
                              for one in self._masks.values()))
        return own

    def _floated(self) -> set[Cpus]:
        """Return the CPU sets over which unpinned threads float."""
        # They have the mask of the first process, which isolcpus of the
        # kernel and CPUAffinity of systemd narrow.
        found = set(pins.read_threads(1, self._hierarchy.proc)[0].others)
        with contextlib.suppress(ValueError, cgroups.CgroupError), (
                contextlib.closing(cgroups.Group(
                    self._hierarchy.root('cpuset')))) as root:
            found.add(cgroups.effective_cpus(root))
        return found
