"""Keeping memory free for primaries, which cannot be had back at once.

A secondary that is throttled holds its memory on.  So some of the host's is
kept free, the headroom: Placement admits no secondary into it, and a policy
that the agent adds to the operator's asks the cloud to move or suspend some
when it is touched.  What a primary that has just started has yet to touch
counts as used for that (``Demand``).

Operations take seconds, and a primary that starts fills gigabytes in one.
What must happen faster happens here, by what is really available:

=====================  ======================================================
below the headroom     secondaries' pages are the first that the kernel takes
                       back, and what guests do not need is asked of them
below a half of it     they go to the floor, where they take no more
below a quarter of it  the one of the lowest priority is ended; the next one
                       only when its memory is back and did not suffice
=====================  ======================================================

The kernel would end the same one (``Actuator.prioritise``), after it had the
primary wait for pages that it could not find.  Where it is faster than we are,
its end is told like one of ours.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
import dataclasses
import enum
import time
import typing

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.agent import kernel_files, processes
from secondary_scheduler.agent.actuator import Actuator
from secondary_scheduler.agent.domains import Primary, Secondary, close
from secondary_scheduler.agent.floors import Floors, Reason
from secondary_scheduler.policies import language

LOG = logging.getLogger(__name__)

#: Who is older has touched what it is going to, in seconds.
YOUNG_S = 60.0
#: Seconds between two looks: mostly, where memory may go in no time, and
#: while it goes.
LOOK_S, QUICK_LOOK_S, RUSH_S = 1.0, 0.1, 0.02
#: For how many seconds it is waited for the memory of one that was ended.
_RETURNS_S = 0.5
#: For how many seconds a process may take to end that the kernel has ended.
_ENDING_S = 2.0
#: Part of the host that is kept free if the operator does not say.
_HEADROOM = 0.05
#: Seconds in which the cloud is to make the headroom whole again.
_TIMELIMIT_S = 60

_AFFECT_LIVE = 1    # libvirt's VIR_DOMAIN_AFFECT_LIVE


class Level(enum.IntEnum):
    """How short of memory the host is."""

    CALM = 0
    SHORT = 1       # the headroom is touched
    SCARCE = 2      # half of it is gone
    CRITICAL = 3    # three quarters are


def headroom(conf: cfg.ConfigOpts, total: int) -> int:
    """Return what of a host's memory is to be kept free, in bytes."""
    own = conf.secondary_agent.memory_headroom_mb
    return int(_HEADROOM * total) if own is None else min(own << 20, total)


def policy(conf: cfg.ConfigOpts, host: str, total: int
           ) -> tuple[language.Policy, ...]:
    """Return the policy that keeps the headroom, if there is to be one."""
    share = 100.0 * headroom(conf, total) / total
    if not share:
        return ()
    return (language.parse(f'mem <= {100 - share:.1f}% for {_TIMELIMIT_S}s '
                           f'on host:{host}'),)


def kernel_kills(proc: str) -> int | None:
    """Return how many processes the kernel has ended for their memory."""
    try:
        return kernel_files.read_table(f'{proc}/vmstat', 'oom_kill')[0]
    except (OSError, ValueError):
        return None


class Demand:
    """What primaries that have just started have yet to touch.

    A guest touches memory as its system boots, and some take all they have.
    """

    def __init__(self, primaries: Callable[[], Iterable[Primary]],
                 proc: str) -> None:
        self._primaries = primaries
        self._proc = proc

    def read(self) -> int:
        """Return how much that is at most, in bytes."""
        return sum(max(0, one.memory - held) for one in self._primaries()
                   if (age := processes.age(one.started, self._proc))
                   is not None and age < YOUNG_S
                   and (held := processes.resident(one.pid, self._proc))
                   is not None)


@dataclasses.dataclass(frozen=True)
class Look:
    """How memory stands, in bytes.

    ``coming`` is what new primaries have yet to touch.
    """

    total: int
    available: int
    headroom: int
    coming: int

    @property
    def level(self) -> Level:
        """How short of memory the host is."""
        for level, part in ((Level.CRITICAL, self.headroom // 4),
                            (Level.SCARCE, self.headroom // 2),
                            (Level.SHORT, self.headroom)):
            if self.available < part:
                return level
        return Level.CALM


@dataclasses.dataclass(frozen=True)
class GuardOptions:
    """What the guard reads from the configuration.

    ``floor_lift_delay`` is in seconds.  ``headroom`` returns, of a host's
    memory, the part to keep free, both in bytes.
    """

    floor_lift_delay: float
    kill: bool
    headroom: Callable[[int], int]

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> 'GuardOptions':
        """Return the options as they are now."""
        own = conf.secondary_agent
        return cls(own.floor_lift_delay, own.memory_last_resort == 'kill',
                   lambda total: headroom(conf, total))


class MemoryGuard:
    """Looks at the host's memory; ``step`` says when to look again.

    ``memory`` returns size and availability in bytes and may raise;
    ``floor`` writes the floor of a guest now; ``kill`` ends one, saying why,
    and tells whether it did; ``lost`` is told whom the kernel has ended.
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
        #: Who was ended last, and when.
        self._ended: tuple[Secondary, float] | None = None
        self._doomed: set[tuple[int, int]] = set()
        self._present: Sequence[Secondary] = ()
        #: When the kernel had ended how many.
        self._kernel: deque[tuple[float, int]] = deque()
        self._kernel_at: float | None = None
        #: What the last look has found, None if it did not succeed.
        self.seen: Look | None = None
        self.kills = 0
        self._pressed: set[tuple[int, int]] = set()

    @property
    def level(self) -> Level | None:
        """How short of memory the host is, None if that is not known."""
        return self.seen and self.seen.level

    @property
    def pressing(self) -> bool:
        """Whether anything has been done that is to be undone."""
        return bool(self._pressed)

    def held(self, guest: Secondary) -> int:
        """Return the memory that a secondary holds now, in bytes."""
        return processes.resident(guest.pid, self._proc) or 0

    def step(self) -> float:
        """Look once, and do what it asks for; return the seconds to wait."""
        options, guests = self._options(), self._guests()
        seen = self._look(options)
        self._look_for_lost(guests)
        if seen is None:
            return LOOK_S
        if seen.level is Level.CALM:
            self._relax(guests, options.floor_lift_delay)
        else:
            self._calm_since = None
            self._press(guests, seen.level)
            if seen.level is Level.CRITICAL and options.kill:
                self._end_one(guests, seen.available)
        growing = bool(seen.headroom and seen.coming)
        if seen.level is Level.CRITICAL or (seen.level and growing):
            return RUSH_S
        return (QUICK_LOOK_S if growing or seen.available < 2 * seen.headroom
                else LOOK_S)

    def _look(self, options: GuardOptions) -> Look | None:
        before = self.seen
        try:
            total, available = self._memory()
        except (OSError, ValueError) as exc:
            if before is not None:
                LOG.warning('It is not known how much memory is free: %s',
                            exc)
            self.seen = None
            return None
        seen = self.seen = Look(total, available, options.headroom(total),
                                self._demand.read())
        if seen.level > (Level.CALM if before is None else before.level):
            LOG.warning('Memory is %(level)s: %(available)d of %(total)d MiB '
                        'are available, of which %(headroom)d are to be kept '
                        'free', {'level': seen.level.name.lower(),
                                 'available': available >> 20,
                                 'total': total >> 20,
                                 'headroom': seen.headroom >> 20})
        return seen

    def _look_for_lost(self, guests: Sequence[Secondary]) -> None:
        """Find out which secondaries the kernel has ended for their memory.
        """
        now = self._clock()
        present = {(guest.pid, guest.started) for guest in guests}
        gone = [guest for guest in self._present
                if (guest.pid, guest.started) not in present | self._doomed]
        self._present = tuple(guests)
        if (not gone and self._kernel and self.level is not Level.CRITICAL
                and now - self._kernel[-1][0] < LOOK_S):
            return
        count = kernel_kills(self._proc)
        if count is None:
            self._kernel.clear()
            return
        if self._kernel and count > self._kernel[-1][1]:
            self._kernel_at = now
        self._kernel.append((now, count))
        while (len(self._kernel) > 1
               and self._kernel[1][0] <= now - _ENDING_S):
            self._kernel.popleft()
        if count > self._kernel[0][1]:
            for guest in gone:
                LOG.warning('The kernel has ended %s for its memory',
                            guest.uuid)
                self.kills += 1
                self._lost(guest, 'memory: ended by the kernel')

    def _press(self, guests: Sequence[Secondary], level: Level) -> None:
        for guest in guests:
            if (guest.pid, guest.started) not in self._pressed:
                self._pressed.add((guest.pid, guest.started))
                self._actuator.press_memory(guest)
            if level >= Level.SCARCE and Reason.MEMORY not in (
                    self._floors.reasons(guest.uuid)):
                LOG.warning('Taking %s to the floor, where it takes no more '
                            'memory', guest.uuid)
                self._floors.add(guest.uuid, Reason.MEMORY)
                self._floor(guest)

    def _relax(self, guests: Sequence[Secondary], delay: float) -> None:
        """Undo what was done, when it has been calm for long enough."""
        now = self._clock()
        if self._calm_since is None:
            self._calm_since = now
        if now - self._calm_since < delay:
            return
        self._pressed.clear()
        for guest in guests:
            self._actuator.relax_memory(guest)
            self._floors.drop(guest.uuid, Reason.MEMORY)

    def _end_one(self, guests: Sequence[Secondary], available: int) -> None:
        """End the lowest, unless one is ending whose memory may suffice."""
        now = self._clock()
        if self._kernel_at is not None and now - self._kernel_at < _RETURNS_S:
            return      # what the kernel has ended comes back in no time
        if self._ended is not None:
            last, at = self._ended
            if now - at < _RETURNS_S and not processes.is_over(
                    last.pid, last.started, self._proc):
                return
        self._doomed &= {(guest.pid, guest.started) for guest in guests}
        order = sorted(
            ((self._floors.operated(guest.uuid), guest.priority,
              -self.held(guest), guest.uuid), guest)
            for guest in guests
            if (guest.pid, guest.started) not in self._doomed)
        for _, guest in order:
            self._doomed.add((guest.pid, guest.started))
            if self._kill(guest, f'memory: {available >> 20} MiB left'):
                self.kills += 1
                self._ended = guest, now
                return


class Balloon:
    """Asks secondaries for memory that they do not need, through libvirt.

    That may hang, so it has a thread of its own.  A guest without a driver
    for it keeps what it has.  ``least`` is what it is left with, in percent
    of its memory; 100 leaves all balloons alone.  Otherwise they are ours: a
    guest that is found smaller when nothing presses (it has moved here, or
    the agent was started anew) gets all of its memory back.
    """

    def __init__(self, connect: Callable[[], typing.Any],
                 guests: Callable[[], Iterable[Secondary]],
                 pressing: Callable[[], bool], least: float) -> None:
        self._connect = connect
        self._guests = guests
        self._pressing = pressing
        self._least = least
        self._connection: typing.Any = None
        self._failure = ''
        #: What each process was last given, in percent of its memory.
        self._given: dict[tuple[str, int, int], float] = {}

    def step(self) -> None:
        """Give each guest what it is to have now, unless it has it."""
        if self._least >= 100.0:
            return
        wanted = self._least if self._pressing() else 100.0
        guests = {(guest.uuid, guest.pid, guest.started): guest
                  for guest in self._guests()}
        self._given = {key: given for key, given in self._given.items()
                       if key in guests}
        for key in guests.keys() - {key for key, given in self._given.items()
                                    if given == wanted}:
            try:
                self._give(guests[key].uuid, wanted)
                self._given[key] = wanted
                self._failure = ''
            except Exception as exc:
                if self._failure != str(exc):
                    LOG.warning('The balloon of %(uuid)s: %(reason)s', {
                        'uuid': guests[key].uuid, 'reason': exc})
                self._failure = str(exc)
                connection, self._connection = self._connection, None
                close(connection)

    def _give(self, uuid: str, percent: float) -> None:
        """Let a guest have a part of its memory.

        :raises Exception: whatever libvirt raises.
        """
        if self._connection is None:
            self._connection = self._connect()
        domain = self._connection.lookupByUUIDString(uuid)
        most, now = domain.info()[1:3]      # KiB
        target = int(most * percent / 100)
        if now > target or (now < target and percent == 100.0):
            domain.setMemoryFlags(target, _AFFECT_LIVE)
