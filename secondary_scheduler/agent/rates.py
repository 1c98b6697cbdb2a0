# SPDX-License-Identifier: Apache-2.0

"""Control of links and disks: the share for each secondary.

Each resource is controlled like the CPU, by the same law, in percent of its
capacity.  A step follows each reading of its sensor.  These limits are exact,
so there is no slack: together they never exceed the room beside the primary.
The limits are passed to ``Throttles``, which sets them through libvirt.

Control of the CPU and the last resort do not need this module.  The floor also
limits the traffic of a guest.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses

from oslo_config import cfg

from secondary_scheduler.agent.controller import Controller, Load
from secondary_scheduler.agent.device_limits import IoLimits
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.floors import Floors
from secondary_scheduler.agent.gauges import Gauges
from secondary_scheduler.agent.policy_source import HostPolicies
from secondary_scheduler.agent.sensors.base import Reading
from secondary_scheduler.agent.throttles import Throttles
from secondary_scheduler.model import resources


@dataclasses.dataclass(frozen=True)
class RateOptions:
    """Options of a step, in percent of the resource.

    ``iops`` is 100 % of ``disk_in`` or ``disk_out`` in operations a second; 0
    if only bytes count.
    """

    set_point_margin: float
    minimum: float
    iops: Mapping[str, int]

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> 'RateOptions':
        """Read the current options."""
        own = conf.secondary_agent
        return cls(conf.secondary_scheduler.set_point_margin,
                   own.minimum_rate, {'disk_in': own.disk_write_iops,
                                      'disk_out': own.disk_read_iops})


class _Loop:
    """Control loop of one resource."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._reading: Reading | None = None
        self.caps: dict[str, float] = {}
        self.capacity: float | None = None

    def step(self, reading: Reading | None, guests: Sequence[Secondary],
             set_point: float, minimum: float) -> None:
        """Apply a reading once; None reduces all guests to the minimum."""
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
    """Control loops of this host; ``step`` is called after each reading."""

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
        """Share of each secondary in percent, by UUID and resource."""
        caps: dict[str, dict[str, float]] = {}
        for resource, loop in self._loops.copy().items():
            for uuid, cap in loop.caps.copy().items():
                caps.setdefault(uuid, {})[resource] = cap
        return caps

    def step(self) -> None:
        """Apply the latest readings, and pass the limits to ``Throttles``."""
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
            # During an operation of Nova, libvirt would block until its end.
            if not self._floors.operated(guest.uuid):
                self._throttles.request_limits(
                    guest, self._limits(guest.uuid, options))
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
    """Return whether a guest has a device for a resource.

    A guest without one gets no share.  The unused share would vary with the
    others, and each change of an interface's limit starts some processes.
    """
    return bool(guest.taps if resource.startswith('net_') else guest.disks)
