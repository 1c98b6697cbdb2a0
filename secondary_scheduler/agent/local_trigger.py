# SPDX-License-Identifier: Apache-2.0

"""Local trigger: the last resort, one second before a policy gets invalid.

It needs nothing but this host (Boettger 2012, section 4.4.4.2): its own
thread, its own meter, policies from memory, and writes to cgroup files.

A guest at the floor gets at most 1 ms in ``floor_period_ms`` for each vCPU.
The effect on a policy depends on its resource:

* cpu: the guest no longer contributes, like a killed one in Boettger 2012, and
  the policy holds again.  The guest is reported as floored until the host has
  room for it, or until an operation of the cloud removes it.
* slots, cores: a guest that exceeds the threshold and is at the floor does not
  count.
* mem: a guest keeps its memory at the floor, and only stops to request more.
  An operation of the cloud, or a kill, frees it.
* signals of interference: as for cpu.  No guest is lifted while a signal shows
  harm, even if no secondary can be its cause.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import itertools
import time
import typing

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.floors import Floors, Reason
from secondary_scheduler.agent.gauges import Gauges
from secondary_scheduler.agent.policy_source import HostPolicies
from secondary_scheduler.agent.sensors.cpu import CpuMeter, CpuUsage
from secondary_scheduler.model.reports import PolicyReport, PolicyState
from secondary_scheduler.policies import language, triggers

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TriggerOptions:
    """Options of a check.

    ``set_point_margin`` and ``useful_share`` are in percent of the host,
    ``floor_lift_delay`` in seconds.  ``sensitivity`` is a number of checks by
    timelimit.  With ``adapts`` it follows the duration of earlier failures.
    """

    set_point_margin: float
    useful_share: float
    floor_lift_delay: float
    kill: bool
    sensitivity: Mapping[str, str]
    adapts: bool

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> 'TriggerOptions':
        """Read the current options."""
        shared, own = conf.secondary_scheduler, conf.secondary_agent
        return cls(shared.set_point_margin, shared.useful_share,
                   own.floor_lift_delay, own.last_resort == 'kill',
                   shared.trigger_sensitivity,
                   shared.trigger_sensitivity_adapts)


def earlier_runs(status: Mapping[str, typing.Any], now: float
                 ) -> dict[str, int]:
    """Return the numbers of failed checks before this agent started.

    A policy that failed in the last status counts as failing since then,
    because there were no checks meanwhile.  Otherwise an agent that is killed
    repeatedly, each time before the local trigger, would let a policy become
    invalid.

    :param status: the last status of the previous agent.
    :param now: the monotonic clock.
    :returns: numbers of checks by the text of the policy.
    """
    try:
        passed = int(now - float(status['monotonic']))
        runs = {str(one['policy']): int(one['failed'])
                for one in status['policies']}
    except (KeyError, TypeError, ValueError, OverflowError):
        return {}
    if passed < 0:
        return {}       # the clock was reset by a reboot
    return {policy: failed + passed for policy, failed in runs.items()
            if failed > 0}


class LocalTrigger:
    """Counts failed checks of this host's policies, and acts on them.

    ``meter`` measures CPU, ``gauges`` the other resources.  ``floor`` writes
    the floor of a guest at once.  ``kill`` kills a guest for a reason, and
    returns whether it did.  ``runs`` are the initial numbers of failed checks
    by policy.
    """

    def __init__(self, policies: Callable[[], HostPolicies],
                 guests: Callable[[], Sequence[Secondary]], meter: CpuMeter,
                 gauges: Gauges, floors: Floors,
                 floor: Callable[[Secondary], object],
                 kill: Callable[[Secondary, str], bool],
                 options: Callable[[], TriggerOptions],
                 runs: Mapping[str, int],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._policies = policies
        self._guests = guests
        self._meter = meter
        self._gauges = gauges
        self._floors = floors
        self._floor = floor
        self._kill = kill
        self._options = options
        self._clock = clock
        self._runs = dict(runs)
        self._triggers: dict[str, triggers.Trigger] = {}
        self._room: list[tuple[float, int]] = []
        self._last: float | None = None
        self._floored_at_last = 0
        self.counters: dict[str, float] = {
            'violations': 0, 'invalidations': 0, 'floored_s': 0, 'floors': 0,
            'kills': 0}
        #: State of each policy after the last check.
        self.reports: tuple[PolicyReport, ...] = ()
        #: Use of CPU in the last check.
        self.usage = CpuUsage(None)

    @property
    def failing(self) -> bool:
        """Whether any policy failed in the last check."""
        return any(report.state is not PolicyState.HELD
                   for report in self.reports)

    @property
    def harmed(self) -> bool:
        """Whether a signal of interference failed in the last check."""
        return any(report.failed and language.is_signal(report.resource)
                   for report in self.reports)

    def check(self) -> None:
        """Check every policy once; to be called once a second."""
        options, resolved = self._options(), self._policies()
        guests = self._guests()
        self.usage = usage = self._meter.sample(guests)
        self._count_floored(guests)
        self._sync(resolved, options)
        reports = []
        for trigger in self._triggers.values():
            value, contributing = self._usage(trigger.policy, guests,
                                              usage.total)
            before, waited = trigger.state, trigger.sensitivity
            state = trigger.check(value, contributing)
            self._count(before, state)
            policy = trigger.policy
            if trigger.sensitivity != waited:
                LOG.info('Learned from failures of %s: from now on the cloud '
                         'is asked for help after %d failed checks',
                         policy.text, trigger.sensitivity)
            reports.append(PolicyReport(
                policy.text, policy.resource, policy.threshold,
                policy.timelimit, value, trigger.failed, state))
            if trigger.local_due:
                # Kill only for measured use: neither for an unknown one nor
                # for the part that is merely expected.
                self._last_resort(
                    policy, guests, options.kill and value is not None
                    and value - self._gauges.coming(policy.resource)
                    > policy.threshold)
        self.reports = tuple(reports)
        self._lift(resolved, guests, usage.primary, options)

    def _sync(self, resolved: HostPolicies, options: TriggerOptions) -> None:
        """Keep one trigger for each policy.

        A trigger whose options changed is replaced; the new one inherits the
        count of failed checks.
        """
        kept = {}
        for policy in resolved.policies:
            trigger = triggers.Trigger(
                policy, _sensitivity(policy, options.sensitivity),
                triggers.FailureRuns() if options.adapts else None)
            old = self._triggers.get(policy.text)
            if old is not None and (old.given, old.history is None) == (
                    trigger.given, trigger.history is None):
                trigger = old
            elif old is not None:
                trigger.failed = old.failed
            elif policy.text in self._runs:
                # The trigger fires at the next failed check.
                trigger.failed = min(self._runs.pop(policy.text),
                                     policy.timelimit - 2)
            kept[policy.text] = trigger
        self._triggers = kept

    def _usage(self, policy: language.Policy, guests: Sequence[Secondary],
               total: float | None) -> tuple[float | None, bool]:
        """Return a policy's usage, and whether a secondary contributes."""
        if policy.static:
            count = sum(
                _amount_of(guest, policy.resource) for guest in guests
                if not self._is_at_floor(guest, {Reason.SURPLUS}))
            return float(count), count > 0
        if policy.resource != language.CPU:
            total = self._gauges.total(policy.resource)
        return total, any(
            policy.resource == language.MEMORY
            or not self._floors.reached(guest.uuid) for guest in guests)

    def _is_at_floor(self, guest: Secondary, reasons: set[Reason]) -> bool:
        """Return whether a guest is at the floor for one of some reasons."""
        return bool(reasons & self._floors.reasons(guest.uuid)) and (
            self._floors.reached(guest.uuid))

    def _count(self, before: PolicyState, state: PolicyState) -> None:
        if state is before:
            return
        if state is PolicyState.VIOLATED:
            self.counters['violations'] += 1
        elif state is PolicyState.INVALID:
            self.counters['invalidations'] += 1

    def _count_floored(self, guests: Sequence[Secondary]) -> None:
        """Add up the seconds that guests spent at a policy's floor."""
        now = self._clock()
        if self._last is not None:
            self.counters['floored_s'] += (
                self._floored_at_last * (now - self._last))
        self._last = now
        self._floored_at_last = sum(
            self._is_at_floor(guest, {Reason.POLICY, Reason.SURPLUS})
            for guest in guests)

    def _last_resort(self, policy: language.Policy,
                     guests: Sequence[Secondary], kill: bool) -> None:
        if policy.static:
            targets, reason = _surplus(policy, guests), Reason.SURPLUS
        else:
            targets, reason = sorted(guests, key=_rank), Reason.POLICY
            self._room.clear()
        # The memory of one guest may suffice.
        first = -1 if policy.resource == language.MEMORY else 0
        doomed = targets[first:]
        for guest in targets:
            if kill and guest in doomed and self._kill(guest, policy.text):
                self.counters['kills'] += 1
            before = self._is_at_floor(guest, {reason})
            if reason not in self._floors.reasons(guest.uuid):
                LOG.warning('Taking %(uuid)s to the floor: %(policy)s is '
                            'about to be invalid',
                            {'uuid': guest.uuid, 'policy': policy.text})
            self._floors.add(guest.uuid, reason)
            self._floor(guest)
            # A guest that could not be limited is tried again.
            if self._is_at_floor(guest, {reason}) and not before:
                self.counters['floors'] += 1

    def _lift(self, resolved: HostPolicies, guests: Sequence[Secondary],
              primary: float | None, options: TriggerOptions) -> None:
        """Lift as many guests as had room throughout ``floor_lift_delay``.

        The highest priority goes first.  Surplus floors are lifted at once.
        """
        self._lift_surplus(resolved, guests)
        floored = [guest for guest in guests
                   if Reason.POLICY in self._floors.reasons(guest.uuid)]
        set_point = resolved.set_point(options.set_point_margin)
        room = 0
        # A lifted guest would use more of a resource that is short or unknown,
        # and harm the primary again.
        short = any(report.usage is None or report.usage > report.threshold
                    for report in self.reports
                    if report.resource not in language.STATIC)
        if primary is not None and set_point is not None and not short:
            room = int((set_point - primary)
                       // max(options.useful_share, 0.1))
        now = self._clock()
        self._room.append((now, room - (len(guests) - len(floored))))
        start = now - options.floor_lift_delay
        # Keep one entry from before the window, so that all of it is covered.
        while len(self._room) > 1 and self._room[1][0] <= start:
            self._room.pop(0)
        if not floored or self._room[0][0] > start:
            return
        count = min(room for _, room in self._room)
        for guest in sorted(floored, key=_rank)[:max(0, count)]:
            LOG.info('Lifting %s from the floor', guest.uuid)
            self._floors.drop(guest.uuid, Reason.POLICY)

    def _lift_surplus(self, resolved: HostPolicies,
                      guests: Sequence[Secondary]) -> None:
        surplus = {guest.uuid for policy in resolved.policies
                   if policy.static for guest in _surplus(policy, guests)}
        for guest in guests:
            if guest.uuid not in surplus:
                self._floors.drop(guest.uuid, Reason.SURPLUS)


def _sensitivity(policy: language.Policy, table: Mapping[str, str]) -> int:
    try:
        return triggers.sensitivity_for(policy.timelimit, table)
    except ValueError as exc:
        LOG.error('Asking for help at the first failed check: %s', exc)
        return 1


def _amount_of(guest: Secondary, resource: str) -> int:
    """Return the amount of a guest for a policy on slots or cores."""
    return 1 if resource == language.SLOTS else guest.vcpus


def _surplus(policy: language.Policy, guests: Sequence[Secondary]
             ) -> list[Secondary]:
    """Return the guests that exceed a policy on slots or cores."""
    ranked = sorted(guests, key=_rank)
    held = itertools.accumulate(
        _amount_of(guest, policy.resource) for guest in ranked)
    return [guest for guest, count in zip(ranked, held, strict=True)
            if count > policy.threshold]


def _rank(guest: Secondary) -> tuple[int, str]:
    """Sort key: guests of the highest priority first."""
    return -guest.priority, guest.uuid
