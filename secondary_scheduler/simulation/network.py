# SPDX-License-Identifier: Apache-2.0

"""Outgoing links of hosts, in percent of a link.

The thesis does not shape traffic; it lowers the CPU of a guest until its
traffic fits (Boettger 2012, section 4.4.4.1).
"""

import numpy as np

from secondary_scheduler.simulation.control import (
    Agents,
    Law,
    by_host,
    control_hosts,
)
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.sharing import share_host
from secondary_scheduler.simulation.world import (
    Bools,
    Floats,
    Ints,
    World,
    compiled,
)


class Links:
    """Sharing and control of the links, once a second."""

    def __init__(self, world: World, profile: Profile) -> None:
        self._world = world
        self._profile = profile
        hosts, instances = len(world.block_until), len(world.status)
        self._agents = Agents.fresh(hosts, instances)
        self._agents.caps[:] = 100.0

    @property
    def controlled(self) -> bool:
        """Whether guests send, and agents limit their traffic."""
        return self._profile.local_control and self._world.shape.net > 0

    def share(self, primary: Floats, burden: Floats, cpu: Floats
              ) -> tuple[Floats, Floats, Floats]:
        """Share the links of all hosts.

        An instance sends in proportion to its ``cpu``, (N,).

        :returns: traffic of primaries (H,), of instances (N,), and of all
            instances of a host (H,).
        """
        world = self._world
        got, sent = primary.copy(), np.zeros(len(cpu))
        if not world.shape.net and (primary + burden <= 100.0).all():
            return got, sent, np.zeros(len(primary))
        sends = world.running & (world.shape.net > 0)
        np.divide(world.shape.net * cpu, world.most, out=sent, where=sends)
        if self._profile.shapes_traffic:
            np.minimum(sent, self._agents.caps, out=sent)
        return got, sent, _share_links(got, burden, sent, world.host, sends)

    def adapt(self, total: Floats, sent: Floats, set_point: Floats,
              guests: Bools) -> None:
        """Adapt the caps of ``guests`` after a second."""
        net = self._world.shape.net
        self._agents.caps[:] = net
        control_hosts(self._agents, total, set_point,
                      Law.of_profile(self._profile), sent,
                      np.full(len(sent), net), self._world.host, guests)

    @property
    def cpu_caps(self) -> Floats:
        """CPU at which each instance sends its share of traffic, (N,)."""
        most, net = self._world.most, self._world.shape.net
        if not net or self._profile.shapes_traffic:
            return most
        return most * np.minimum(1.0, self._agents.caps / net)


@compiled
def _share_links(primary: Floats, burden: Floats, sent: Floats, host: Ints,
                 sends: Bools) -> Floats:
    """Replace the demand of primaries and instances by their traffic.

    :returns: the traffic of the instances of each host, (H,).
    """
    sums = np.zeros(len(primary))
    first, order = by_host(host, sends, len(primary))
    parts = sent[order]
    for number in range(len(primary)):
        part = parts[first[number]:first[number + 1]]
        primary[number], _burden = share_host(
            primary[number], burden[number], part, (1.0, 1.0, 1.0))
        sums[number] = part.sum()
    sent[order] = parts
    return sums
