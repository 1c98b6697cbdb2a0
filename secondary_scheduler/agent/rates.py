"""Links and disks: the share of them that each secondary may use.

Each is controlled as the CPU is, by the same law, in percent of what the link
or the disks can do; a step follows each reading of its sensor.  Such limits
hold what they say, so there is no slack: together they are never more than
what the primary leaves, and a step of its is made up for by one of ours.
What comes out is handed to who tells libvirt.

Nothing here is needed by the control of the CPU, nor by the last resort, whose
floor bounds what a guest can move.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses

from oslo_config import cfg

from secondary_scheduler.agent.controller import Controller, Load
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.floors import Floors
from secondary_scheduler.agent.gauges import Gauges
from secondary_scheduler.agent.policy_source import HostPolicies
from secondary_scheduler.agent.sensors.base import Reading
from secondary_scheduler.agent.throttles import IoLimits, Throttles
from secondary_scheduler.model import resources


@dataclasses.dataclass(frozen=True)
class RateOptions:
    """What a step reads from the configuration, percent of the resource.

    ``iops`` is what 100 % of ``disk_in`` or ``disk_out`` is in operations a
    second; 0 if only bytes count.
    """

    set_point_margin: float
    minimum: float
    iops: Mapping[str, int]

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> 'RateOptions':
        """Return the options as they are now."""
        own = conf.secondary_agent
        return cls(conf.secondary_scheduler.set_point_margin,
                   own.minimum_rate, {'disk_in': own.disk_write_iops,
                                      'disk_out': own.disk_read_iops})


class _Loop:
    """The control of one resource."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._reading: Reading | None = None
        self.caps: dict[str, float] = {}
        self.capacity: float | None = None

    def step(self, reading: Reading | None, guests: Sequence[Secondary],
             set_point: float, minimum: float) -> None:
        """Take in a reading, once; None takes everybody to the minimum."""
        if reading is None or reading is not self._reading:
            self._reading = reading
            seen = reading or Reading(None)
            self.capacity = seen.capacity or self.capacity
            self.caps = self._controller.step(
                seen.total, [Load(guest.uuid, guest.priority,
                                  seen.instances.get(guest.uuid))
                             for guest in guests], set_point, minimum)
        for guest in guests:
            self.caps.setdefault(guest.uuid, minimum)


class RateControl:
    """The loops of this host; ``step`` is called after each reading."""

    def __init__(self, policies: Callable[[], HostPolicies],
                 guests: Callable[[], Sequence[Secondary]], gauges: Gauges,
                 throttles: Throttles, floors: Floors,
                 controller: Callable[[], Controller],
                 options: Callable[[], RateOptions]) -> None:
        self._policies = policies
        self._guests = guests
        self._gauges = gauges
        self._throttles = throttles
        self._floors = floors
        self._controller = controller
        self._options = options
        self._loops: dict[str, _Loop] = {}

    @property
    def caps(self) -> dict[str, dict[str, float]]:
        """What each secondary may use, in percent, by UUID and resource."""
        caps: dict[str, dict[str, float]] = {}
        for resource, loop in self._loops.copy().items():
            for uuid, cap in loop.caps.copy().items():
                caps.setdefault(uuid, {})[resource] = cap
        return caps

    def step(self) -> None:
        """Let each loop look at its reading, and hand on what is new."""
        options, policies, guests = (
            self._options(), self._policies(), self._guests())
        for resource in resources.RATES:
            set_point = policies.set_point(options.set_point_margin, resource)
            if set_point is None:
                self._loops.pop(resource, None)
                continue
            if resource not in self._loops:
                self._loops[resource] = _Loop(self._controller())
            self._loops[resource].step(
                self._gauges.latest(resource),
                [guest for guest in guests if _can_use(guest, resource)],
                set_point, options.minimum)
        for guest in guests:
            # libvirt would wait for Nova's operation to end.
            if not self._floors.operated(guest.uuid):
                self._throttles.want(guest, self._limits(guest.uuid, options))
        self._throttles.forget({guest.uuid for guest in guests})

    def _limits(self, uuid: str, options: RateOptions) -> IoLimits:
        limits = {}
        for resource, loop in self._loops.items():
            if uuid not in loop.caps:
                continue
            part = loop.caps[uuid] / 100
            if loop.capacity is not None:
                limits[resource] = part * loop.capacity
            if options.iops.get(resource):
                limits[f'{resource}_iops'] = part * options.iops[resource]
        return IoLimits(**limits)


def _can_use(guest: Secondary, resource: str) -> bool:
    """Tell whether a guest takes part: others' shares are of no use to it.

    Nor to them: a share that one never uses grows and shrinks with what the
    others do, and each change of an interface's limit costs some processes.
    """
    return bool(guest.taps if resource.startswith('net_') else guest.disks)
