"""The hosts' outgoing links, in percent of a link.

The thesis could not shape traffic and lowered a guest's CPU until its traffic
fitted (3.9).
"""

import numpy as np

from secondary_scheduler.simulation.control import Controllers
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.sharing import max_min
from secondary_scheduler.simulation.world import Bools, Floats, World


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
        world, shape = self._world, self._world.shape
        hosts = np.arange(len(primary))
        on = np.flatnonzero(world.running & (cpu > 0))
        demand = shape.net * cpu[on] / shape.most
        if self._profile.shapes_traffic:
            demand = np.minimum(demand, self._caps[on])
        got = max_min(
            np.concatenate((primary, burden, demand)),
            np.ones(2 * len(hosts) + len(on)),
            np.concatenate((hosts, hosts, world.host[on])), len(hosts))
        sent = np.zeros(len(cpu))
        sent[on] = got[2 * len(hosts):]
        return got[:len(hosts)], sent

    def adapt(self, total: Floats, sent: Floats, set_point: Floats,
              inside: Bools) -> None:
        """Control for a second."""
        if self._world.shape.net and self._profile.local_control:
            most = np.full(len(sent), self._world.shape.net)
            caps = self._control.step(
                total, sent, set_point, self._world.host, inside, most)
            self._caps = np.where(inside, caps, most)

    @property
    def cpu_caps(self) -> Floats:
        """Up to which CPU an instance may send what it is allowed to, (N,).
        """
        shape = self._world.shape
        if not shape.net or self._profile.shapes_traffic:
            return np.full(len(self._caps), shape.most)
        return shape.most * np.minimum(1.0, self._caps / shape.net)
