"""What the agent tells: the report to the cloud, and its status."""

from collections import deque
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
import contextlib
import dataclasses
import math
import os
import threading
import time
import typing
import uuid

from oslo_config import cfg

from secondary_scheduler.agent.actuator import Actuator
from secondary_scheduler.agent.control import Control
from secondary_scheduler.agent.dedicated_cpus import DedicatedCpus
from secondary_scheduler.agent.domains import Domains, Secondary
from secondary_scheduler.agent.floors import Floors, Reason
from secondary_scheduler.agent.forecasts import Forecast
from secondary_scheduler.agent.killed_instances import Killed
from secondary_scheduler.agent.local_trigger import LocalTrigger
from secondary_scheduler.agent.memory import MemoryMeter
from secondary_scheduler.agent.memory_guard import Look, MemoryGuard
from secondary_scheduler.agent.policy_source import PolicySource
from secondary_scheduler.agent.rates import RateControl
from secondary_scheduler.agent.sensors.base import Gauges
from secondary_scheduler.agent.sensors.cpu import Arrival
from secondary_scheduler.agent.throttles import Throttles
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.reports import HostReport, InstanceReport
from secondary_scheduler.policies import language

#: Over how many seconds its use is averaged: no longer than the shortest wait
#: of a trigger, so that the calm before a burst is not in it.
RECENT_S = 3.0
#: So many secondaries that cannot be limited are named in a reason; each one
#: says it of itself.
_NAMED = 3
#: In how many steps the host's memory is admitted.
_STEPS = 128


class RecentPrimaryUse:
    """What the primary has used lately, in percent of the host.

    One sample of a busy host says little: a decision on it would keep too
    many secondaries one time and too few the next, and the peak of half a
    second violates no policy, since policies hold means of seconds.  So both
    answers are about means over ``RECENT_S`` (Boettger 4.3.2 takes five
    seconds): the last one says who has to leave, and what a forecast makes
    of those in its window whom to let in.

    What a secondary used before it was known, from the start of its QEMU to
    the next listing of domains, was taken for the primary's; it is taken off
    again, or else every start would close the host for a minute.
    """

    def __init__(self, forecast: Forecast,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._predict = forecast
        self._clock = clock
        self._samples: deque[tuple[float, float]] = deque()
        self._forecast: float | None = None
        self._lock = threading.Lock()

    def push(self, primary: float | None,
             arrivals: Iterable[Arrival] = ()) -> None:
        """Take in the primary's use, in percent of the host.

        ``arrivals`` are the secondaries that are new since the last time.
        """
        now = self._clock()
        with self._lock:
            if primary is not None:
                self._samples.append((now, primary))
            for one in arrivals:
                self._samples = deque(
                    _without(self._samples, now - one.age, one.percent))
            window = self._predict.window
            _forget(self._samples, now - window - RECENT_S)
            self._forecast = self._predict([
                mean for at, mean in _means(self._samples)
                if at >= now - window])

    @property
    def recent(self) -> float | None:
        """The mean of the last seconds, None if nothing is known of them."""
        with self._lock:
            since = self._clock() - RECENT_S
            values = [value for at, value in self._samples if at >= since]
        return sum(values) / len(values) if values else None

    @property
    def forecast(self) -> float | None:
        """What the primary is expected to use, None if nothing is known."""
        return self._forecast


def _without(samples: Iterable[tuple[float, float]], since: float,
             percent: float) -> Iterator[tuple[float, float]]:
    """Take a use since a time off samples.

    Each sample is a mean since the one before, so nothing is known of when
    the first began, and nothing is taken off it.
    """
    before = math.inf
    for at, value in samples:
        if at > max(before, since):
            share = (at - max(before, since)) / (at - before)
            value = max(0.0, value - percent * share)
        yield at, value
        before = at


def _means(samples: Iterable[tuple[float, float]]
           ) -> Iterator[tuple[float, float]]:
    """Yield, with its time, the mean of the seconds before each sample."""
    recent: deque[tuple[float, float]] = deque()
    for at, value in samples:
        recent.append((at, value))
        _forget(recent, at - RECENT_S)
        yield at, sum(one for _, one in recent) / len(recent)


def _forget(seen: deque[tuple[float, float]], before: float) -> None:
    while seen and seen[0][0] < before:
        seen.popleft()


class Reporter:
    """Builds reports from what the other parts know."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        host: str,
        domains: Domains,
        policies: PolicySource,
        actuator: Actuator,
        control: Control,
        trigger: LocalTrigger,
        floors: Floors,
        outlook: RecentPrimaryUse,
        memory: MemoryMeter,
        gauges: Gauges,
        guard: MemoryGuard,
        memory_outlook: RecentPrimaryUse,
        killed: Killed,
        inventory: Callable[[], typing.Any],
        rates: RateControl,
        throttles: Throttles,
        dedicated: DedicatedCpus,
    ) -> None:
        self._conf = conf
        self._host = host
        self._domains = domains
        self._policies = policies
        self._actuator = actuator
        self._control = control
        self._trigger = trigger
        self._floors = floors
        self._outlook = outlook
        self._memory = memory
        self._gauges = gauges
        self._guard = guard
        self._memory_outlook = memory_outlook
        self._killed = killed
        self._inventory = inventory
        self._rates = rates
        self._throttles = throttles
        self._dedicated = dedicated
        self._lock = threading.Lock()
        self._incarnation = uuid.uuid4().hex
        self._seq = 0
        #: MiB that suspended instances may fill, None if that is not known.
        self.save_free_mb: int | None = None

    @property
    def set_point(self) -> float | None:
        """Where the host's CPU use is kept, None without a policy."""
        return self._policies.current.set_point(
            self._conf.secondary_scheduler.set_point_margin)

    def problems(self) -> dict[str, str]:
        """Return why secondaries harm primaries all the same, by UUID."""
        found = self._actuator.problems
        for one, why in self._dedicated.problems.items():
            found[one] = '; '.join(filter(None, (found.get(one), why)))
        return found

    def closed(self) -> str:
        """Say why no secondary may come, apart from room; '' if it may."""
        resolved, inventory = self._policies.current, self._inventory()
        # One failed check is noise: a host at its set point has them, and the
        # controller corrects it before the next.
        failing = [report.policy for report in self._trigger.reports
                   if report.failed > 1]
        floored = [guest.uuid for guest in self._domains.secondaries()
                   if self._floors.reasons(guest.uuid)
                   & {Reason.POLICY, Reason.SURPLUS, Reason.SAFETY,
                      Reason.MEMORY, Reason.CPUS}]
        problems = sorted(self.problems().items())
        reasons = (
            # What harms primaries goes before what only keeps others out.
            (problems, 'secondaries cannot be limited: ' + '; '.join(
                [f'{one}: {problem}' for one, problem in problems[:_NAMED]]
                + [f'{len(problems) - _NAMED} more'] * (
                    len(problems) > _NAMED))),
            (resolved.problem, resolved.problem),
            (resolved.limit(language.CPU) is None,
             'no policy on cpu applies to this host'),
            (not self._domains.listed, 'libvirt does not answer'),
            (inventory and inventory.alarm,
             'secondaries without an allocation in Placement, or without '
             'limits, run here'),
            (self._outlook.forecast is None, 'the use of CPU is not known'),
            (self._guard.level, 'memory is short'),
            (failing, 'policies fail: ' + '; '.join(failing)),
            (floored, f'{len(floored)} secondaries are at the floor'))
        return next((text for bad, text in reasons if bad), '')

    def room(self) -> int:
        """Return for how many secondaries there is room, running included."""
        primary, set_point = self._outlook.forecast, self.set_point
        if primary is None or set_point is None:
            return 0
        useful = max(self._conf.secondary_scheduler.useful_share, 0.1)
        # Where a primary was harmed a moment ago nobody more is welcome.
        bound = self._control.restraint.bound(set_point, primary)
        limits = [int((bound - primary) // useful)]
        policies, inventory = self._policies.current, self._inventory()
        if (slots := policies.limit(language.SLOTS)) is not None:
            limits.append(int(slots))
        if (cores := policies.limit(language.CORES)) is not None:
            guests = self._domains.secondaries()
            # The smallest that may come has one.
            limits.append(int(cores) + sum(
                1 - guest.vcpus for guest in guests))
        if inventory and inventory.slots():
            limits.append(inventory.slots())
        return max(0, min(limits))

    def memory_room(self) -> int:
        """Return the MiB that secondaries may have, running ones included.

        What they and new primaries have yet to touch is counted as used, and
        so is what the primary is expected to use beside what it does.
        """
        seen = self._guard.seen
        if seen is None:
            return 0
        guests = self._domains.secondaries()
        theirs = sum(guest.memory_mb for guest in guests) << 20
        held = {guest.uuid: self._guard.held(guest) for guest in guests}
        untouched = sum(max(0, (guest.memory_mb << 20) - held[guest.uuid])
                        for guest in guests)
        primary = (seen.total - seen.available + seen.coming
                   - sum(held.values()))
        self._memory_outlook.push(100.0 * primary / seen.total)
        forecast = self._memory_outlook.forecast or 0.0
        growth = max(0, int(forecast / 100 * seen.total) - primary)
        free = (seen.available - seen.headroom - seen.coming - untouched
                - growth)
        # In steps: Placement need not be told of each MiB.
        step = max(1, seen.total // _STEPS)
        return max(0, theirs + free // step * step) >> 20

    def full(self, guests: Sequence[Secondary]) -> str:
        """Say why no further secondary may come now; '' if one may."""
        inventory = self._inventory()
        if reason := self.closed():
            return reason
        if self.room() <= len(guests):
            return 'no room for another secondary'
        # Who is sent here before Placement knows of the room is refused.
        if inventory and inventory.allowed.get(
                vocabulary.SLOT, 0) <= len(guests):
            return 'Placement has not been told of room for another'
        if inventory and inventory.allowed.get(
                vocabulary.MEMORY_MB, math.inf) <= sum(
                    guest.memory_mb for guest in guests):
            return 'no memory for another secondary'
        return ''

    def news(self) -> object:
        """Return what is worth telling at once when it changes."""
        guests = self._domains.secondaries()
        return (not self.full(guests), self._policies.current.fingerprint,
                [(one.policy, one.state) for one in self._trigger.reports],
                [(one.uuid, self._floors.reached(one.uuid), one.paused)
                 for one in guests], self._killed.reasons,
                self.problems())

    def build(self) -> HostReport:
        """Return the next report."""
        guests = self._domains.secondaries()
        usage, caps = self._control.usage, self._control.caps
        reason = self.full(guests)
        primary, uses = self._gauges.recent()
        problems = self.problems()
        with self._lock:
            self._seq += 1
            seq = self._seq
        return HostReport(
            host=self._host, incarnation=self._incarnation, seq=seq,
            time=time.time(),
            policies_hash=self._policies.current.fingerprint,
            admission=not reason, reason=reason, cpus=usage.capacity,
            memory_mb=self._memory_mb(), cpu_total=_round(usage.total),
            cpu_primary=_round(self._outlook.recent),
            migration_mb_s=_round(self._memory.copied),
            usage=_rounded(primary), capacities=self._gauges.capacities(),
            policies=self._trigger.reports,
            instances=tuple(InstanceReport(
                uuid=guest.uuid, priority=guest.priority,
                cpu=_round(usage.instances.get(guest.uuid)),
                cap=_round(caps.get(guest.uuid)),
                floored=self._floors.reached(guest.uuid),
                problem=problems.get(guest.uuid, ''),
                paused=guest.paused,
                usage=_rounded(uses.get(guest.uuid, {})),
                **self._dirty(guest.uuid))
                for guest in guests),
            save_free_mb=self.save_free_mb,
            killed=self._killed.reasons,
            counters={**self._trigger.counters,
                      'kills': self._trigger.counters['kills']
                      + self._guard.kills,
                      'control_failures': self._control.failures,
                      'unreadable_domains': self._domains.unreadable})

    def _memory_mb(self) -> int:
        """Return the host's memory in MiB, the machine's until it is known."""
        seen = self._guard.seen
        pages = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
        return (pages if seen is None else seen.total) >> 20

    def measure_disk(self) -> None:
        """Look at the disk to which instances are saved; it may hang."""
        self.save_free_mb = None
        with contextlib.suppress(OSError):
            disk = os.statvfs(self._conf.secondary_agent.save_dir)
            self.save_free_mb = disk.f_bavail * disk.f_frsize >> 20

    def _dirty(self, uuid: str) -> dict[str, float]:
        dirty = self._memory.dirty(uuid)
        return {} if dirty is None else {'dirty_1s_mb': dirty.in_1s,
                                         'dirty_5s_mb': dirty.in_5s}

    def status(self) -> dict[str, typing.Any]:
        """Return a report and what only this host cares about."""
        guests = self._domains.secondaries()
        return {
            **dataclasses.asdict(self.build()),
            'pid': os.getpid(),
            'set_point': self.set_point,
            'restraint': round(self._control.restraint.share, 2),
            'room': self.room(),
            'priority_effective': dict(self._actuator.effective),
            'problems': self.problems(),
            'dedicated_cpus': sorted(self._dedicated.own or ()),
            'sensors': self._gauges.problems,
            'memory': _memory(self._guard.seen),
            'sensor_costs': {
                name: {'percent': round(cost.percent, 3), 'over': cost.over}
                for name, cost in self._gauges.costs.items()},
            'rates': {uuid: _rounded(caps)
                      for uuid, caps in self._rates.caps.items()},
            'rate_problems': self._throttles.problems,
            'libvirt': self._domains.listed,
            'primaries': self._domains.primaries,
            'floors': {guest.uuid: sorted(self._floors.reasons(guest.uuid))
                       for guest in guests
                       if self._floors.reached(guest.uuid)}}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}


def _memory(seen: Look | None) -> dict[str, typing.Any]:
    if seen is None:
        return dict.fromkeys(('available_mb', 'headroom_mb', 'coming_mb',
                              'level'))
    return {'available_mb': seen.available >> 20,
            'headroom_mb': seen.headroom >> 20,
            'coming_mb': seen.coming >> 20, 'level': seen.level.name.lower()}
