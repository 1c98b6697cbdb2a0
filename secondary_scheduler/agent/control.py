# SPDX-License-Identifier: Apache-2.0

"""Control loop of CPU use: measure, decide, write.

The order within a step matters.  First, a new primary guest gets its priority.
Then each new secondary goes to the floor, before any share is computed.
"""

from collections.abc import Callable, Sequence
import dataclasses

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.agent.actuator import Actuator
from secondary_scheduler.agent.controller import Controller, Load
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.floors import Floors, Reason
from secondary_scheduler.agent.policy_source import HostPolicies
from secondary_scheduler.agent.restraint import Restraint
from secondary_scheduler.agent.sensors.cpu import CpuMeter, CpuUsage

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ControlOptions:
    """Options of a step, in percent of the host."""

    set_point_margin: float
    minimum_share: float
    operation_share: float

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> 'ControlOptions':
        """Read the current options."""
        shared = conf.secondary_scheduler
        return cls(shared.set_point_margin, shared.minimum_share,
                   conf.secondary_agent.operation_share)


class Control:
    """State of the control loop; ``step`` is called every period."""

    def __init__(self, policies: Callable[[], HostPolicies],
                 guests: Callable[[], Sequence[Secondary]], meter: CpuMeter,
                 actuator: Actuator, controller: Controller, floors: Floors,
                 options: Callable[[], ControlOptions],
                 most_cpus: Callable[[Secondary], float]) -> None:
        self._policies = policies
        self._guests = guests
        self._meter = meter
        self._actuator = actuator
        self._controller = controller
        self._floors = floors
        self._options = options
        #: Returns how many CPUs a guest can use at once.
        self._most_cpus = most_cpus
        self._seen: set[tuple[str, int, int]] = set()
        self._present: Sequence[Secondary] = ()
        #: Use of secondaries on trial before the trial, in percent of the
        #: host.
        self._use_before: dict[str, float | None] = {}
        #: Measurements and limits of the last step, for reports.
        self.usage = CpuUsage(None)
        self.caps: dict[str, float] = {}
        #: Share of all secondaries, in percent of the host.
        self.share = 0.0
        self.failures = 0
        self.restraint = Restraint()

    def step(self) -> None:
        """Do one step; any error takes every secondary to the floor."""
        try:
            self._present = self._guests()
            self._step(self._present)
        except Exception:
            self.failures += 1
            LOG.exception('A step of control failed; taking all secondaries '
                          'to the floor')
            self.usage = CpuUsage(None, capacity=self.usage.capacity)
            self.floor_all()

    def floor_all(self) -> None:
        """Take every known secondary to the floor, and go on after errors."""
        for guest in self._present:
            try:
                self._floors.add(guest.uuid, Reason.SAFETY)
                self._actuator.floor(guest)
            except Exception:
                LOG.exception('Cannot take %s to the floor', guest.uuid)

    def _step(self, guests: Sequence[Secondary]) -> None:
        self._actuator.prioritise(guests)
        options = self._options()
        # Concurrent operations of Nova share the limit that the operator has
        # set for one.
        operated = sum(self._floors.operated(one.uuid) for one in guests)
        self._actuator.emulator_cpus = (
            options.operation_share / 100 * self.usage.capacity
            / max(1, operated))
        self._enter(guests)
        # Without a policy there is no limit to derive shares from.
        set_point = (self._policies().set_point(options.set_point_margin)
                     or 0.0)
        usage = self._meter.sample(guests)
        set_point = self.restraint.bound(set_point, usage.primary)
        self._admit(guests, usage, set_point, options.minimum_share)
        # A secondary keeps its share during a trial, because it has to be as
        # active as before once it is released.
        free = [guest for guest in guests
                if self._floors.reasons(guest.uuid) <= {Reason.TRIAL}]
        caps = self._controller.step(
            usage.total,
            [Load(guest.uuid, guest.priority,
                  self._use_of(guest, usage),
                  100.0 * self._most_cpus(guest) / usage.capacity)
             for guest in free],
            set_point, options.minimum_share)
        for guest in guests:
            self._apply(guest, caps, usage.capacity)
        self.usage, self.caps = usage, caps
        self.share = self._controller.share
        self._actuator.forget(guests)
        self._floors.expire({guest.uuid for guest in guests})

    def _use_of(self, guest: Secondary, usage: CpuUsage) -> float | None:
        """Return the use of a guest that its share follows.

        During a trial, and in the step after it, that is its use before.
        """
        now = usage.instances.get(guest.uuid)
        if Reason.TRIAL not in self._floors.reasons(guest.uuid):
            return self._use_before.pop(guest.uuid, now)
        return self._use_before.setdefault(
            guest.uuid, self.usage.instances.get(guest.uuid))

    def _apply(self, guest: Secondary, caps: dict[str, float],
               capacity: float) -> None:
        """Write a guest's limits, unless the last resort has acted since."""
        reasons = self._floors.reasons(guest.uuid)
        if reasons or guest.uuid not in caps:
            # A guest that waits for entry may be an incoming migration, which
            # runs in the emulator thread.
            emulator = bool(reasons & {Reason.POLICY, Reason.SURPLUS,
                                       Reason.SAFETY, Reason.MEMORY,
                                       Reason.CPUS, Reason.TRIAL,
                                       Reason.SUSPECT})
            self._actuator.floor(guest, emulator=emulator
                                 and not self._floors.operated(guest.uuid))
            caps.pop(guest.uuid, None)
            return
        if not self._actuator.set_share(guest, caps[guest.uuid], capacity):
            caps.pop(guest.uuid)    # report no cap that is not in force
        if self._floors.floored(guest.uuid):
            self._actuator.floor(guest)     # the trigger acted meanwhile

    def _enter(self, guests: Sequence[Secondary]) -> None:
        """Take guests that were not here in the last step to the floor.

        When the agent starts, all guests are new.  If there is room, they are
        admitted by the second step.
        """
        seen = {(guest.uuid, guest.pid, guest.started): guest
                for guest in guests}
        for key in seen.keys() - self._seen:
            self._floors.add(seen[key].uuid, Reason.ENTRY)
            self._actuator.floor(seen[key], emulator=False)
        self._seen = set(seen)

    def _admit(self, guests: Sequence[Secondary], usage: CpuUsage,
               set_point: float, minimum: float) -> None:
        """Admit waiting guests, as many as there are minimum shares for."""
        waiting = []
        inside = 0
        for guest in guests:
            if Reason.SAFETY in self._floors.reasons(guest.uuid):
                # Control works again; the guest is admitted like a new one.
                self._floors.add(guest.uuid, Reason.ENTRY)
                self._floors.drop(guest.uuid, Reason.SAFETY)
            reasons = self._floors.reasons(guest.uuid)
            if Reason.ENTRY in reasons:
                waiting.append(guest)
            elif reasons <= {Reason.TRIAL, Reason.SUSPECT}:
                inside += 1     # it needs its room again
        if usage.primary is None:
            return
        room = int((set_point - usage.primary) // max(minimum, 0.1)) - inside
        waiting.sort(key=lambda guest: (-guest.priority, guest.uuid))
        for guest in waiting[:max(0, room)]:
            self._floors.drop(guest.uuid, Reason.ENTRY)
