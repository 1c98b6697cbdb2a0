# SPDX-License-Identifier: Apache-2.0

"""Sensor of the host's disks: ``disk_in`` and ``disk_out``."""

from collections.abc import Sequence

from oslo_config import cfg

from secondary_scheduler.agent import cgroups, devices, kernel_files
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors.base import (
    CounterRates,
    Reading,
    Readings,
    Sensor,
    damaged_is_unknown,
)

_SECTOR = 512


class DiskSensor(Sensor):
    """``disk_in`` (written) and ``disk_out`` (read): all disks together.

    Use is counted in bytes, or in operations where these are the larger part
    of what the disks can do.  Use by a secondary is the bytes that its QEMU
    has moved.  Its operations are not known, and count as the primary's.
    """

    resources = ('disk_in', 'disk_out')

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy,
                 root: str = '/sys/block') -> None:
        super().__init__(conf, hierarchy)
        self._root = root
        self._rates = CounterRates()

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Measure the use of the disks."""
        options = self.conf.secondary_agent
        disks = devices.disks(self._root, options.disks)
        moved = [_moved(disk) for disk in disks]
        guests_moved = {
            (guest.uuid, guest.pid, guest.started): own for guest in guests
            if (own := self._moved_by(guest)) is not None}
        found = {}
        with self._rates:
            for place, (resource, speed, iops) in enumerate((
                    ('disk_out', options.disk_read_speed,
                     options.disk_read_iops),
                    ('disk_in', options.disk_write_speed,
                     options.disk_write_iops))):
                if not speed:
                    continue
                host = [[self._rates.per_second((disk.name, which), one[which])
                         for disk, one in zip(disks, moved, strict=True)]
                        for which in (place, place + 2)]
                parts = [100.0 * sum(known) / full
                         for rates, full in zip(host, (speed << 20, iops),
                                                strict=True)
                         if full and len(known := [
                             rate for rate in rates if rate is not None])
                         == len(rates) > 0]
                found[resource] = Reading(
                    max(parts) if len(parts) == 1 + bool(iops) else None,
                    {str(key[0]): 100.0 * rate / (speed << 20)
                     for key, one in guests_moved.items()
                     if (rate := self._rates.per_second(
                         (key, place), one[place])) is not None},
                    speed << 20)
        return found

    def _moved_by(self, guest: Secondary) -> tuple[int, int] | None:
        try:
            read, written = kernel_files.read_table(
                f'{self.hierarchy.proc}/{guest.pid}/io', 'read_bytes',
                'write_bytes')
        except (OSError, ValueError):
            return None     # it has just ended
        return read, written


def _moved(disk: devices.BlockDevice) -> tuple[int, ...]:
    """Return bytes read, bytes written, reads and writes of a disk so far.

    :raises OSError: if a file of counters is missing.
    :raises Damaged: if such a file cannot be understood.
    """
    counted = [[sum(column) for column in zip(*(
        _counters(path) for path in paths), strict=True)]
        for paths in disk.counters]
    return tuple(map(max, *counted)) if len(counted) > 1 else tuple(
        counted[0])


def _counters(path: str) -> tuple[int, int, int, int]:
    fields = kernel_files.read_counts(path, 7)
    return (fields[2] * _SECTOR, fields[6] * _SECTOR, fields[0], fields[4])
