"""The hosts' outgoing links, in percent of a link.

The thesis could not shape traffic and lowered a guest's CPU until its traffic
fitted (3.9).
"""

import numpy as np

from secondary_scheduler.simulation.control import (
    Agents,
    Law,
    by_host,
    compiled,
    control_hosts,
)
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.sharing import share_host
from secondary_scheduler.simulation.world import Bools, Floats, Ints, World


class Links:
    """Shares links for a second, and controls them once a second."""

    def __init__(self, world: World, profile: Profile) -> None:
        self._world = world
        self._profile = profile
        hosts, instances = len(world.block_until), len(world.status)
        self._agents = Agents.fresh(hosts, instances)
        self._agents.caps[:] = 100.0

    def share(self, primary: Floats, burden: Floats, cpu: Floats
              ) -> tuple[Floats, Floats]:
        """Return what primaries and instances send, (H,) and (N,).

        ``cpu`` is what instances use: who gets less CPU sends less.
        """
        world = self._world
        sent = np.where(world.running, world.shape.net * cpu / world.most,
                        0.0)
        if self._profile.shapes_traffic:
            sent = np.minimum(sent, self._agents.caps)
        got = primary.copy()
        _share_links(got, burden, sent, world.host, sent > 0)
        return got, sent

    def adapt(self, total: Floats, sent: Floats, set_point: Floats,
              guests: Bools) -> None:
        """Control for a second, those that are running and not frozen."""
        net = self._world.shape.net
        if net and self._profile.local_control:
            self._agents.caps[:] = net
            control_hosts(self._agents, total, set_point,
                          Law.of(self._profile), sent,
                          np.full(len(sent), net), self._world.host, guests)

    @property
    def cpu_caps(self) -> Floats:
        """Up to which CPU an instance may send what it is allowed to, (N,).
        """
        most, net = self._world.most, self._world.shape.net
        if not net or self._profile.shapes_traffic:
            return most
        return most * np.minimum(1.0, self._agents.caps / net)


@compiled
def _share_links(primary: Floats, burden: Floats, sent: Floats, host: Ints,
                 sends: Bools) -> None:
    """Put what primaries and instances send in place of what they want."""
    first, order = by_host(host, sends, len(primary))
    for number in range(len(primary)):
        here = order[first[number]:first[number + 1]]
        part = sent[here]
        primary[number], _burden = share_host(
            primary[number], burden[number], part, (1.0, 1.0, 1.0))
        sent[here] = part
