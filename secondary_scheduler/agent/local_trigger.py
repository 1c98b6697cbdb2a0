"""The last resort: one second before a policy would become invalid.

It needs nothing but this host (Boettger 3.10, R18 to R20): its own thread,
its own sensor, policies from memory, and writes to cgroup files.

A guest at the floor gets at most 1 ms in ``floor_period_ms`` for each vCPU.
It no longer contributes to a policy on cpu, as a guest that the seeds' trigger
has killed: the policy holds again, and the guest is reported as floored until
the host has room for it or the cloud takes it elsewhere.  In the same way a
guest that is at the floor as one too many does not count for a policy on slots
or cores.  What a guest holds of the memory it holds at the floor as well: it
asks for no more there, and only an operation of the cloud's, or the end of a
guest, gives any back.  A signal of interference is held by the floor as CPU
is; nobody is lifted while it tells of harm, even if no secondary can be the
cause.
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
from secondary_scheduler.agent.sensors.cpu import CpuMeter
from secondary_scheduler.model.reports import PolicyReport, PolicyState
from secondary_scheduler.policies import language, triggers

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TriggerOptions:
    """What a check reads from the configuration.

    ``set_point_margin`` and ``useful_share`` in percent of the host,
    ``floor_lift_delay`` in seconds, ``sensitivity`` in checks by timelimit; it
    ``adapts`` to how long failures last.
    """

    set_point_margin: float
    useful_share: float
    floor_lift_delay: float
    kill: bool
    sensitivity: Mapping[str, str]
    adapts: bool

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> 'TriggerOptions':
        """Return the options as they are now."""
        shared, own = conf.secondary_scheduler, conf.secondary_agent
        return cls(shared.set_point_margin, shared.useful_share,
                   own.floor_lift_delay, own.last_resort == 'kill',
                   shared.trigger_sensitivity,
                   shared.trigger_sensitivity_adapts)


def earlier_runs(status: Mapping[str, typing.Any], now: float
                 ) -> dict[str, int]:
    """Return how many checks have failed by policy, before this agent began.

    ``status`` is what the agent before said last, ``now`` the monotonic
    clock.  Nobody checked meanwhile, so a policy that failed then counts as
    failing since: an agent that is killed again and again, each time before
    the local trigger, would else let a policy become invalid.
    """
    try:
        passed = int(now - float(status['monotonic']))
        runs = {str(one['policy']): int(one['failed'])
                for one in status['policies']}
    except (KeyError, TypeError, ValueError, OverflowError):
        return {}
    if passed < 0:
        return {}       # the clock began anew with the machine
    return {policy: failed + passed for policy, failed in runs.items()
            if failed > 0}


class LocalTrigger:
    """Run counters of this host's policies, and what follows from them.

    ``gauges`` measure what is not CPU.  ``floor`` writes the floor of a
    guest now; ``kill`` ends it, saying why, and tells whether it did.
    ``runs`` are failed checks by policy, with which counting begins.
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
        #: How each policy stood after the last check.
        self.reports: tuple[PolicyReport, ...] = ()

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
        usage = self._meter.sample(guests)
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
                # Nobody is killed for what was not measured, nor for what is
                # only to be expected.
                self._last_resort(
                    policy, guests, options.kill and value is not None
                    and value - self._gauges.coming(policy.resource)
                    > policy.threshold)
        self.reports = tuple(reports)
        self._lift(resolved, guests, usage.primary, options)

    def _sync(self, resolved: HostPolicies, options: TriggerOptions) -> None:
        """Have one trigger a policy; those that stay keep their count."""
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
                # One more, and it is due.
                trigger.failed = min(self._runs.pop(policy.text),
                                     policy.timelimit - 2)
            kept[policy.text] = trigger
        self._triggers = kept

    def _usage(self, policy: language.Policy, guests: Sequence[Secondary],
               total: float | None) -> tuple[float | None, bool]:
        """Return a policy's usage, and whether a secondary contributes."""
        if policy.static:
            count = sum(
                _holds(guest, policy.resource) for guest in guests
                if not self._is_at_floor(guest, {Reason.SURPLUS}))
            return float(count), count > 0
        if policy.resource != language.CPU:
            total = self._gauges.total(policy.resource)
        return total, any(
            policy.resource == language.MEMORY
            or not self._floors.reached(guest.uuid) for guest in guests)

    def _is_at_floor(self, guest: Secondary, reasons: set[Reason]) -> bool:
        """Tell whether a guest is at the floor, for one of some reasons."""
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
        # The memory that one gives back may be enough.
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
            # One that cannot be limited is not there, and tried again.
            if self._is_at_floor(guest, {reason}) and not before:
                self.counters['floors'] += 1

    def _lift(self, resolved: HostPolicies, guests: Sequence[Secondary],
              primary: float | None, options: TriggerOptions) -> None:
        """Lift the floors for which there has been room long enough."""
        self._lift_surplus(resolved, guests)
        floored = [guest for guest in guests
                   if Reason.POLICY in self._floors.reasons(guest.uuid)]
        set_point = resolved.set_point(options.set_point_margin)
        room = 0
        # Who is lifted takes up again what is short, or not known to be there,
        # and harms again a primary that is harmed already.
        short = any(report.usage is None or report.usage > report.threshold
                    for report in self.reports
                    if report.resource not in language.STATIC)
        if primary is not None and set_point is not None and not short:
            room = int((set_point - primary)
                       // max(options.useful_share, 0.1))
        now = self._clock()
        self._room.append((now, room - (len(guests) - len(floored))))
        start = now - options.floor_lift_delay
        # Keep one entry from before: the window must be covered.
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


def _holds(guest: Secondary, resource: str) -> int:
    """Return what a guest counts for a policy that counts."""
    return 1 if resource == language.SLOTS else guest.vcpus


def _surplus(policy: language.Policy, guests: Sequence[Secondary]
             ) -> list[Secondary]:
    """Return those that a policy that counts has no place for."""
    ranked = sorted(guests, key=_rank)
    held = itertools.accumulate(
        _holds(guest, policy.resource) for guest in ranked)
    return [guest for guest, count in zip(ranked, held, strict=True)
            if count > policy.threshold]


def _rank(guest: Secondary) -> tuple[int, str]:
    """Order guests by who stays first: the highest priority."""
    return -guest.priority, guest.uuid
