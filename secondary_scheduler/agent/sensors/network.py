# SPDX-License-Identifier: Apache-2.0

"""Sensor of the host's network link: ``net_in`` and ``net_out``."""

from collections.abc import Iterable, Sequence

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


class NetworkSensor(Sensor):
    """``net_in`` and ``net_out``: the host's link, all its ports together.

    Use by a secondary is the traffic of its taps: the guest receives what the
    host sends to a tap.
    """

    resources = ('net_in', 'net_out')

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy,
                 root: str = '/sys/class/net') -> None:
        super().__init__(conf, hierarchy)
        self._root = root
        self._rates = CounterRates()

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Measure the use of the link."""
        options = self.conf.secondary_agent
        ports = devices.ports(self._root, options.network_interfaces)
        # A port of unknown speed adds nothing to the link, so its traffic
        # counts as a larger part of the link than it is.
        link = options.link_speed or sum(
            devices.speed(self._root, port) or 0 for port in ports)
        if link <= 0:
            raise OSError('the speed of the link is not known: set '
                          '[secondary_agent] link_speed')
        found = {}
        with self._rates:
            for resource, host_file, guest_file in (
                    ('net_in', 'rx_bytes', 'tx_bytes'),
                    ('net_out', 'tx_bytes', 'rx_bytes')):
                found[resource] = Reading(
                    self._percent('host', ports, host_file, link),
                    {guest.uuid: rate for guest in guests
                     if (rate := self._of_guest(guest, guest_file, link))
                     is not None}, link * 1e6 / 8)
        return found

    def _of_guest(self, guest: Secondary, name: str, link: float
                  ) -> float | None:
        try:
            return self._percent((guest.uuid, guest.pid, guest.started),
                                 guest.taps, name, link)
        except (OSError, ValueError):
            return None     # it has just ended, or has lost a port

    def _percent(self, owner: object, ports: Iterable[str], name: str,
                 link: float) -> float | None:
        rates = [self._rates.per_second(
            (owner, port, name), kernel_files.read_count(
                f'{self._root}/{port}/statistics/{name}')) for port in ports]
        known = [rate for rate in rates if rate is not None]
        if not rates or len(known) < len(rates):
            return None
        return 100.0 * sum(known) * 8 / 1e6 / link
