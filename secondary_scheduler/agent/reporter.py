# SPDX-License-Identifier: Apache-2.0

"""Reports of the agent to the cloud, and its status for this host."""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import math
import os
import threading
import time
import typing
import uuid

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.floors import Reason
from secondary_scheduler.agent.memory_guard import MemoryState
from secondary_scheduler.agent.wiring import Parts
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.arrivals import limit_arrivals
from secondary_scheduler.model.reports import HostReport, InstanceReport
from secondary_scheduler.policies import language

#: Number of secondaries that cannot be limited which a reason names; the
#: report of each instance has its own problem.
_NAMED = 3
#: Number of steps in which the host's memory is admitted.
_STEPS = 128


class Reporter:
    """Builds reports from the state of the other parts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._incarnation = uuid.uuid4().hex
        self._seq = 0
        #: MiB that suspended instances may fill, None if that is not known.
        self.save_free_mb: int | None = None

    @property
    def set_point(self) -> float | None:
        """Set point of the host's CPU use, None without a policy."""
        return self._parts.policies.current.set_point(
            self._parts.conf.secondary_scheduler.set_point_margin)

    def problems(self) -> dict[str, str]:
        """Return, by UUID, why secondaries cannot be limited."""
        found = self._parts.actuator.problems
        for one, why in self._parts.dedicated_cpus.problems.items():
            found[one] = '; '.join(filter(None, (found.get(one), why)))
        return found

    def closed_reason(self) -> str:
        """Return why the host is closed, apart from room; '' if it is open."""
        parts = self._parts
        resolved, inventory = parts.policies.current, parts.inventory
        # One failed check is noise: a host at its set point has them, and the
        # controller corrects it before the next.
        failing = [report.policy for report in parts.trigger.reports
                   if report.failed > 1]
        floored = [guest.uuid for guest in parts.domains.secondaries()
                   if parts.floors.reasons(guest.uuid)
                   & {Reason.POLICY, Reason.SURPLUS, Reason.SAFETY,
                      Reason.MEMORY, Reason.CPUS}]
        problems = sorted(self.problems().items())
        reasons = (
            # Harm to primaries is named before mere obstacles to admission.
            (problems, 'secondaries cannot be limited: ' + '; '.join(
                [f'{one}: {problem}' for one, problem in problems[:_NAMED]]
                + [f'{len(problems) - _NAMED} more'] * (
                    len(problems) > _NAMED))),
            (resolved.problem, resolved.problem),
            (resolved.limit(language.CPU) is None,
             'no policy on cpu applies to this host'),
            (not parts.domains.listed, 'libvirt does not answer'),
            (inventory and inventory.alarm,
             'secondaries without an allocation in Placement, or without '
             'limits, run here'),
            (parts.primary_cpu.forecast is None,
             'the use of CPU is not known'),
            (parts.memory_guard.level, 'memory is short'),
            (failing, 'policies fail: ' + '; '.join(failing)),
            (floored, f'{len(floored)} secondaries are at the floor'))
        return next((text for bad, text in reasons if bad), '')

    def room(self) -> int:
        """Return the number of secondaries that fit, running ones included."""
        parts = self._parts
        primary, set_point = parts.primary_cpu.forecast, self.set_point
        if primary is None or set_point is None:
            return 0
        useful = max(parts.conf.secondary_scheduler.useful_share, 0.1)
        # After harm to the primary the host admits fewer secondaries.
        bound = parts.control.restraint.bound(set_point, primary)
        limits = [int((bound - primary) // useful)]
        if (usable := parts.affinity.count_usable()) is not None:
            # Primaries use their dedicated CPUs first.
            capacity = max(usable, parts.control.usage.capacity)
            usable_pct = 100.0 * usable / capacity
            limits.append(int((usable_pct - max(
                0.0, primary - (100.0 - usable_pct))) // useful))
        policies, inventory = parts.policies.current, parts.inventory
        if (slots := policies.limit(language.SLOTS)) is not None:
            limits.append(int(slots))
        if (cores := policies.limit(language.CORES)) is not None:
            guests = parts.domains.secondaries()
            # The smallest new secondary has one vCPU.
            limits.append(int(cores) + sum(
                1 - guest.vcpus for guest in guests))
        if inventory and inventory.slots():
            limits.append(inventory.slots())
        return max(0, min(limits))

    def memory_room(self) -> int:
        """Return the memory for secondaries in MiB, running ones included.

        Memory that secondaries and new primaries have not touched yet counts
        as used.  So does the growth that is expected of the primary.
        """
        parts = self._parts
        seen = parts.memory_guard.seen
        if seen is None:
            return 0
        guests = parts.domains.secondaries()
        granted = sum(guest.memory_mb for guest in guests) << 20
        held = {guest.uuid: parts.memory_guard.used_memory(guest)
                for guest in guests}
        untouched = sum(max(0, (guest.memory_mb << 20) - held[guest.uuid])
                        for guest in guests)
        primary = (seen.total - seen.available + seen.coming
                   - sum(held.values()))
        parts.primary_memory.push(100.0 * primary / seen.total)
        forecast = parts.primary_memory.forecast or 0.0
        growth = max(0, int(forecast / 100 * seen.total) - primary)
        free = (seen.available - seen.headroom - seen.coming - untouched
                - growth)
        # In steps, so that Placement is not updated for each MiB.
        step = max(1, seen.total // _STEPS)
        return max(0, granted + free // step * step) >> 20

    def full_reason(self, guests: Sequence[Secondary]) -> str:
        """Return why no further secondary is admitted; '' if one is."""
        inventory = self._parts.inventory
        if reason := self.closed_reason():
            return reason
        if self.room() <= len(guests):
            return 'no room for another secondary'
        # Placement rejects an instance until it has been told of the room.
        if inventory and inventory.allowed.get(
                vocabulary.SLOT, 0) <= len(guests):
            return 'Placement has not been told of room for another'
        if inventory and inventory.allowed.get(
                vocabulary.MEMORY_MB, math.inf) <= sum(
                    guest.memory_mb for guest in guests):
            return 'no memory for another secondary'
        return ''

    def news(self) -> object:
        """Return a value whose change is reported at once."""
        parts = self._parts
        guests = parts.domains.secondaries()
        return (not self.full_reason(guests),
                parts.policies.current.fingerprint,
                [(one.policy, one.state) for one in parts.trigger.reports],
                [(one.uuid, parts.floors.reached(one.uuid), one.paused,
                  self._is_suspect(one.uuid)) for one in guests],
                parts.killed.reasons, self.problems())

    def build_report(self) -> HostReport:
        """Build the next report."""
        parts = self._parts
        guests = parts.domains.secondaries()
        usage, caps = parts.control.usage, parts.control.caps
        reason = self.full_reason(guests)
        primary, uses = parts.gauges.recent()
        problems = self.problems()
        with self._lock:
            self._seq += 1
            seq = self._seq
        return HostReport(
            host=parts.host, incarnation=self._incarnation, seq=seq,
            time=time.time(),
            policies_hash=parts.policies.current.fingerprint,
            admission=not reason, reason=reason, cpus=usage.capacity,
            memory_mb=self._memory_mb(), cpu_total=_round(usage.total),
            cpu_primary=_round(parts.primary_cpu.recent),
            migration_mb_s=_round(parts.memory_meter.copied),
            usage=_rounded(primary), capacities=parts.gauges.capacities(),
            policies=parts.trigger.reports,
            instances=tuple(InstanceReport(
                uuid=guest.uuid, priority=guest.priority,
                cpu=_round(usage.instances.get(guest.uuid)),
                cap=_round(caps.get(guest.uuid)),
                floored=parts.floors.reached(guest.uuid),
                problem=problems.get(guest.uuid, ''),
                paused=guest.paused,
                suspect=self._is_suspect(guest.uuid),
                usage=_rounded(uses.get(guest.uuid, {})),
                **self._dirty(guest.uuid))
                for guest in guests),
            save_free_mb=self.save_free_mb,
            killed=parts.killed.reasons,
            arrivals=limit_arrivals(parts.affinity.arrivals()),
            counters={**parts.trigger.counters,
                      'kills': parts.trigger.counters['kills']
                      + parts.memory_guard.kills,
                      'control_failures': parts.control.failures,
                      'unreadable_domains': parts.domains.unreadable})

    def _memory_mb(self) -> int:
        """Return the host's memory in MiB, the machine's until it is known."""
        seen = self._parts.memory_guard.seen
        pages = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
        return (pages if seen is None else seen.total) >> 20

    def measure_disk(self) -> None:
        """Measure the disk to which instances are saved; it may hang."""
        self.save_free_mb = None
        with contextlib.suppress(OSError):
            disk = os.statvfs(self._parts.conf.secondary_agent.save_dir)
            self.save_free_mb = disk.f_bavail * disk.f_frsize >> 20

    def _is_suspect(self, uuid: str) -> bool:
        suspects = self._parts.suspects
        return suspects is not None and suspects.is_confirmed(uuid)

    def _dirty(self, uuid: str) -> dict[str, float]:
        dirty = self._parts.memory_meter.dirty(uuid)
        return {} if dirty is None else {'dirty_1s_mb': dirty.in_1s,
                                         'dirty_5s_mb': dirty.in_5s}

    def status(self) -> dict[str, typing.Any]:
        """Return a report, and the details that only this host needs."""
        parts = self._parts
        guests = parts.domains.secondaries()
        return {
            **dataclasses.asdict(self.build_report()),
            'pid': os.getpid(),
            'set_point': self.set_point,
            'restraint': round(parts.control.restraint.share, 2),
            'room': self.room(),
            'priority_effective': dict(parts.actuator.effective),
            'problems': self.problems(),
            'dedicated_cpus': sorted(parts.dedicated_cpus.own or ()),
            'dedicated_to': [
                {'primary': one.name, 'cpus': sorted(one.cpus),
                 'evidence': one.evidence}
                for one in parts.dedicated_cpus.claims],
            'affinity': parts.affinity.status(guests),
            'sensors': parts.gauges.problems,
            'memory': _memory(parts.memory_guard.seen),
            'sensor_costs': {
                name: {'percent': round(cost.percent, 3), 'over': cost.over}
                for name, cost in parts.gauges.costs.items()},
            'rates': {uuid: _rounded(caps)
                      for uuid, caps in parts.rates.caps.items()},
            'rate_problems': parts.throttles.problems,
            'suspects': {} if parts.suspects is None else {
                uuid: one._asdict()
                for uuid, one in parts.suspects.verdicts.items()},
            'libvirt': parts.domains.listed,
            'primaries': parts.domains.primaries,
            'floors': {guest.uuid: sorted(parts.floors.reasons(guest.uuid))
                       for guest in guests
                       if parts.floors.reached(guest.uuid)}}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}


def _memory(seen: MemoryState | None) -> dict[str, typing.Any]:
    if seen is None:
        return dict.fromkeys(('available_mb', 'headroom_mb', 'coming_mb',
                              'level'))
    return {'available_mb': seen.available >> 20,
            'headroom_mb': seen.headroom >> 20,
            'coming_mb': seen.coming >> 20, 'level': seen.level.name.lower()}
