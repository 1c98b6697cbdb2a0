"""The hosts' outgoing links, in percent of a link.

The thesis could not shape traffic and lowered a guest's CPU until its traffic
fitted (3.9).
"""

import numpy as np

from secondary_scheduler.simulation.control import Controllers
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.sharing import share_hosts
from secondary_scheduler.simulation.world import Floats, Ints, World


class Links:
    """Shares links for a second, and controls them once a second."""

    def __init__(self, world: World, profile: Profile) -> None:
        self._world = world
        self._profile = profile
        hosts, instances = len(world.block_until), len(world.status)
        self._control = Controllers(profile, hosts, instances)
        self._caps = np.full(instances, 100.0)

    def share(self, primary: Floats, burden: Floats, cpu: Floats
              ) -> tuple[Floats, Floats]:
        """Return what primaries and instances send, (H,) and (N,).

        ``cpu`` is what instances use: who gets less CPU sends less.
        """
        world, net = self._world, self._world.shape.net
        on = np.flatnonzero(world.running & (net * cpu > 0))
        demand = net * cpu[on] / world.most[on]
        if self._profile.shapes_traffic:
            demand = np.minimum(demand, self._caps[on])
        got, _burden, part = share_hosts(primary, burden, demand,
                                         world.host[on], (1.0, 1.0, 1.0))
        sent = np.zeros(len(cpu))
        sent[on] = part
        return got, sent

    def adapt(self, total: Floats, sent: Floats, set_point: Floats,
              guests: Ints) -> None:
        """Control for a second, those that are running and not frozen."""
        net = self._world.shape.net
        if net and self._profile.local_control:
            caps = self._control.step(
                total, sent[guests], set_point, guests,
                self._world.host[guests], np.full(len(guests), net))
            self._caps[:] = net
            self._caps[guests] = caps

    @property
    def cpu_caps(self) -> Floats:
        """Up to which CPU an instance may send what it is allowed to, (N,).
        """
        most, net = self._world.most, self._world.shape.net
        if not net or self._profile.shapes_traffic:
            return most
        return most * np.minimum(1.0, self._caps / net)
