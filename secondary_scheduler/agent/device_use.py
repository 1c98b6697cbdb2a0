# SPDX-License-Identifier: Apache-2.0

"""Use of network, disks and memory bandwidth by guests over a time."""

from collections.abc import Collection, Mapping, Sequence

from oslo_log import log as logging

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors.base import Reading, Sensor
from secondary_scheduler.cpu_affinity.workload_profiles import ResourceUse

LOG = logging.getLogger(__name__)

#: Resources of sensors whose sum is the use of a resource in profiles.
_SUMS = {'network': ('net_in', 'net_out'), 'disk': ('disk_in', 'disk_out')}
#: Resource that is measured for the host only.
_BANDWIDTH = 'membw'


class DeviceMeter:
    """Measures with the sensors of policies, from one call to the next."""

    def __init__(self, sensors: Collection[Sensor]) -> None:
        known = {_BANDWIDTH, *(one for some in _SUMS.values() for one in some)}
        self._sensors = [sensor for sensor in sensors
                         if known.intersection(sensor.resources)]

    def read(self, guests: Sequence[Secondary]) -> dict[str, ResourceUse]:
        """Return the use of resources by each guest since the last call.

        What no sensor measures is unknown.

        :param guests: a single one is charged with the memory bandwidth of
            the host, which is unknown for each of several
        :returns: uses by UUID, in percent of the host; CPU is left unknown
        """
        readings = self._read(guests)
        bandwidth = readings.get(_BANDWIDTH) if len(guests) == 1 else None
        return {guest.uuid: ResourceUse(
            None, None if bandwidth is None else bandwidth.total,
            **{name: _sum(guest.uuid, readings, parts)
               for name, parts in _SUMS.items()}) for guest in guests}

    def _read(self, guests: Sequence[Secondary]) -> dict[str, Reading]:
        found: dict[str, Reading] = {}
        for sensor in self._sensors:
            try:
                found.update(sensor.read(guests))
            except Exception as exc:    # as in the agent: they are unknown
                LOG.info('%(resources)s cannot be measured: %(reason)s', {
                    'resources': ', '.join(sensor.resources), 'reason': exc})
        return found


def _sum(uuid: str, readings: Mapping[str, Reading],
         resources: Collection[str]) -> float | None:
    known = [readings[one].instances[uuid] for one in resources
             if one in readings and uuid in readings[one].instances]
    return sum(known) if len(known) == len(resources) else None
