# SPDX-License-Identifier: Apache-2.0

"""Memory kept free for primaries: the headroom, and steps to protect it.

Throttling a secondary does not free its memory.  Therefore a part of the
host's memory is kept free, the headroom.  Placement admits no secondary into
it.  A policy added by the agent makes the cloud move or suspend secondaries
when it is used.  Memory that a new primary has yet to touch counts as used for
that (``Demand``).

Such operations take seconds, but a starting primary can fill gigabytes in one.
The steps below are faster.  They depend on the memory available now:

=======================  ====================================================
below the headroom       the kernel reclaims pages of secondaries first, and
                         balloons take memory that guests do not need
below half of it         secondaries go to the floor, where they take no more
below a quarter of it    the secondary of the lowest priority is killed; the
                         next one only if its memory is free and not enough
=======================  ====================================================

The OOM killer of the kernel would choose a secondary, too
(``Actuator.prioritise``), but only after the primary had waited for pages.  A
secondary that it kills first is reported like one killed by the agent.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
import dataclasses
import enum
import time

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.agent import kernel_files, processes
from secondary_scheduler.agent.actuator import Actuator
from secondary_scheduler.agent.domains import Primary, Secondary
from secondary_scheduler.agent.floors import Floors, Reason
from secondary_scheduler.policies import language

LOG = logging.getLogger(__name__)

#: Age in seconds at which a guest has touched all memory that it will use.
_YOUNG_S = 60.0
#: Seconds between two steps: normally, when memory may run out quickly, and
#: while it does.
POLL_S, _QUICK_POLL_S, _RUSH_POLL_S = 1.0, 0.1, 0.02
#: Seconds to wait for the memory of a killed secondary.
_RETURNS_S = 0.5
#: Seconds that a process killed by the kernel may take to exit.
_EXIT_S = 2.0
#: Default headroom, as part of the host's memory.
_HEADROOM = 0.05
#: Seconds that the cloud has to restore the headroom.
_TIMELIMIT_S = 60


class Level(enum.IntEnum):
    """Degree of memory shortage on the host."""

    CALM = 0
    SHORT = 1       # a part of the headroom is used
    SCARCE = 2      # half of it
    CRITICAL = 3    # three quarters of it


def headroom(conf: cfg.ConfigOpts, total: int) -> int:
    """Return the part of a host's memory to keep free, in bytes."""
    own = conf.secondary_agent.memory_headroom_mb
    return int(_HEADROOM * total) if own is None else min(own << 20, total)


def policy(conf: cfg.ConfigOpts, host: str, total: int
           ) -> tuple[language.Policy, ...]:
    """Return the policy that protects the headroom; none without headroom."""
    share = 100.0 * headroom(conf, total) / total
    if not share:
        return ()
    return (language.parse(f'mem <= {100 - share:.1f}% for {_TIMELIMIT_S}s '
                           f'on host:{host}'),)


def kernel_kills(proc: str) -> int | None:
    """Return the number of processes killed by the kernel's OOM killer."""
    try:
        return kernel_files.read_table(f'{proc}/vmstat', 'oom_kill')[0]
    except (OSError, ValueError):
        return None


class Demand:
    """Memory that new primaries have yet to touch.

    A guest touches its memory while it boots, and some guests touch all of it.
    """

    def __init__(self, primaries: Callable[[], Iterable[Primary]],
                 proc: str) -> None:
        self._primaries = primaries
        self._proc = proc

    def read(self) -> int:
        """Return the bytes that young primaries have not touched yet.

        A primary is young for ``_YOUNG_S`` seconds; unreadable ones count 0.
        """
        return sum(max(0, one.memory - used) for one in self._primaries()
                   if (age := processes.age(one.started, self._proc))
                   is not None and age < _YOUNG_S
                   and (used := processes.resident(one.pid, self._proc))
                   is not None)


@dataclasses.dataclass(frozen=True)
class MemoryState:
    """Memory of the host at one moment, in bytes.

    ``coming`` is the memory that new primaries have yet to touch.
    """

    total: int
    available: int
    headroom: int
    coming: int

    @property
    def level(self) -> Level:
        """Degree of memory shortage."""
        for level, part in ((Level.CRITICAL, self.headroom // 4),
                            (Level.SCARCE, self.headroom // 2),
                            (Level.SHORT, self.headroom)):
            if self.available < part:
                return level
        return Level.CALM


@dataclasses.dataclass(frozen=True)
class GuardOptions:
    """Options of the guard.

    ``floor_lift_delay`` is in seconds.  ``headroom`` returns, of a host's
    memory, the part to keep free, both in bytes.
    """

    floor_lift_delay: float
    kill: bool
    headroom: Callable[[int], int]

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> 'GuardOptions':
        """Return the present options of the configuration."""
        own = conf.secondary_agent
        return cls(own.floor_lift_delay, own.memory_last_resort == 'kill',
                   lambda total: headroom(conf, total))


class MemoryGuard:
    """Watches the host's memory, and takes it from secondaries.

    :param memory: returns the size and the available part, in bytes; may
        raise OSError or ValueError.
    :param floor: takes a guest to the floor.
    :param kill: kills a guest for the reason given; returns whether it did.
    :param lost: called for each guest killed by the kernel, with the reason.
    """

    def __init__(self, memory: Callable[[], tuple[int, int]], demand: Demand,
                 guests: Callable[[], Sequence[Secondary]],
                 actuator: Actuator, floors: Floors,
                 floor: Callable[[Secondary], object],
                 kill: Callable[[Secondary, str], bool],
                 lost: Callable[[Secondary, str], object],
                 options: Callable[[], GuardOptions], proc: str = '/proc',
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._memory = memory
        self._demand = demand
        self._guests = guests
        self._actuator = actuator
        self._floors = floors
        self._floor = floor
        self._kill = kill
        self._lost = lost
        self._options = options
        self._proc = proc
        self._clock = clock
        self._calm_since: float | None = None
        #: The last guest killed by this guard, and the time.
        self._last_kill: tuple[Secondary, float] | None = None
        #: Processes that were killed, or that could not be.
        self._doomed: set[tuple[int, int]] = set()
        self._present: Sequence[Secondary] = ()
        #: Numbers of processes killed by the kernel, with their times.
        self._kernel: deque[tuple[float, int]] = deque()
        #: Time of the last kill by the kernel.
        self._kernel_at: float | None = None
        #: The last reading of memory, None if it failed.
        self.seen: MemoryState | None = None
        self.kills = 0
        #: Processes with reclaim limits on their memory.
        self._pressed: set[tuple[int, int]] = set()

    @property
    def level(self) -> Level | None:
        """Degree of memory shortage, None if unknown."""
        return None if self.seen is None else self.seen.level

    @property
    def pressing(self) -> bool:
        """Whether secondaries are limited because of memory."""
        return bool(self._pressed)

    def used_memory(self, guest: Secondary) -> int:
        """Return the memory that a secondary uses now, in bytes."""
        return processes.resident(guest.pid, self._proc) or 0

    def step(self) -> float:
        """Read the memory once, and act on it.

        :returns: the seconds until the next step.
        """
        options, guests = self._options(), self._guests()
        seen = self._read(options)
        self._find_lost(guests)
        if seen is None:
            return POLL_S
        if seen.level is Level.CALM:
            self._relax(guests, options.floor_lift_delay)
        else:
            self._calm_since = None
            self._press(guests, seen.level)
            if seen.level is Level.CRITICAL and options.kill:
                self._kill_one(guests, seen.available)
        growing = bool(seen.headroom and seen.coming)
        if seen.level is Level.CRITICAL or (seen.level and growing):
            return _RUSH_POLL_S
        return (_QUICK_POLL_S if growing or seen.available < 2 * seen.headroom
                else POLL_S)

    def _read(self, options: GuardOptions) -> MemoryState | None:
        before = self.seen
        try:
            total, available = self._memory()
        except (OSError, ValueError) as exc:
            if before is not None:
                LOG.warning('Cannot read the available memory: %s', exc)
            self.seen = None
            return None
        seen = self.seen = MemoryState(
            total, available, options.headroom(total), self._demand.read())
        if seen.level > (Level.CALM if before is None else before.level):
            LOG.warning('Memory is %(level)s: %(available)d of %(total)d MiB '
                        'are available, and %(headroom)d should be kept '
                        'free', {'level': seen.level.name.lower(),
                                 'available': available >> 20,
                                 'total': total >> 20,
                                 'headroom': seen.headroom >> 20})
        return seen

    def _find_lost(self, guests: Sequence[Secondary]) -> None:
        """Find secondaries that the kernel's OOM killer has killed.

        Those are the guests that have vanished within a short time of a kill.
        """
        now = self._clock()
        present = {(guest.pid, guest.started) for guest in guests}
        gone = [guest for guest in self._present
                if (guest.pid, guest.started) not in present | self._doomed]
        self._present = tuple(guests)
        if (not gone and self._kernel and self.level is not Level.CRITICAL
                and now - self._kernel[-1][0] < POLL_S):
            return
        count = kernel_kills(self._proc)
        if count is None:
            self._kernel.clear()
            return
        if self._kernel and count > self._kernel[-1][1]:
            self._kernel_at = now
        self._kernel.append((now, count))
        while (len(self._kernel) > 1
               and self._kernel[1][0] <= now - _EXIT_S):
            self._kernel.popleft()
        if count > self._kernel[0][1]:
            for guest in gone:
                LOG.warning('The OOM killer has killed %s', guest.uuid)
                self.kills += 1
                self._lost(guest, 'memory: killed by the kernel')

    def _press(self, guests: Sequence[Secondary], level: Level) -> None:
        for guest in guests:
            if (guest.pid, guest.started) not in self._pressed:
                self._pressed.add((guest.pid, guest.started))
                self._actuator.press_memory(guest)
            if level >= Level.SCARCE and Reason.MEMORY not in (
                    self._floors.reasons(guest.uuid)):
                LOG.warning('Taking %s to the floor, since memory is short',
                            guest.uuid)
                self._floors.add(guest.uuid, Reason.MEMORY)
                self._floor(guest)

    def _relax(self, guests: Sequence[Secondary], delay: float) -> None:
        """Undo the limits set because of memory, after enough calm.

        Floors for other reasons stay.
        """
        now = self._clock()
        if self._calm_since is None:
            self._calm_since = now
        if now - self._calm_since < delay:
            return
        self._pressed.clear()
        for guest in guests:
            self._actuator.relax_memory(guest)
            self._floors.drop(guest.uuid, Reason.MEMORY)

    def _kill_one(self, guests: Sequence[Secondary], available: int) -> None:
        """Kill the secondary of the lowest priority.

        Guests with an operation of Nova come last, since it will free their
        memory.  Of equal priority, the largest is killed.  Nothing is killed
        while the memory of the last one killed is not free yet.
        """
        now = self._clock()
        if self._kernel_at is not None and now - self._kernel_at < _RETURNS_S:
            return      # the memory of a process killed by the kernel
        if self._last_kill is not None:
            last, at = self._last_kill
            if now - at < _RETURNS_S and not processes.is_over(
                    last.pid, last.started, self._proc):
                return
        self._doomed &= {(guest.pid, guest.started) for guest in guests}
        order = sorted(
            ((self._floors.operated(guest.uuid), guest.priority,
              -self.used_memory(guest), guest.uuid), guest)
            for guest in guests
            if (guest.pid, guest.started) not in self._doomed)
        for _, guest in order:
            self._doomed.add((guest.pid, guest.started))
            if self._kill(guest, f'memory: {available >> 20} MiB left'):
                self.kills += 1
                self._last_kill = guest, now
                return
