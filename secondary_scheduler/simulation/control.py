"""The usage controllers of all hosts at once.

The same law as ``agent.controller``, which may not need NumPy; a test holds
the two together.
"""

import numpy as np

from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.world import Bools, Floats, Ints

_EPSILON = 1e-9


class Controllers:
    """One integral loop for a resource on each of H hosts (Boettger 3.9)."""

    def __init__(self, profile: Profile, hosts: int, instances: int) -> None:
        self._profile = profile
        self._hosts = hosts
        self._members = np.full(instances, -1)
        self.share = np.zeros(hosts)

    def step(self, total: Floats, usage: Floats, set_point: Floats,
             host: Ints, inside: Bools, most: Floats) -> Floats:
        """Return the caps of instances after one period, shape (N,).

        ``total`` (H,) and ``usage`` (N,) were measured in the period;
        ``inside`` tells who takes part.  Others get 0.
        """
        caps = np.zeros(len(usage))
        where, on = np.flatnonzero(inside), host[inside]
        use, most = usage[where], most[where]
        least = np.minimum(self._profile.minimum_share, most)
        floor = self._sum(least, on)
        vms = self._sum(use, on)
        self._integrate(total, vms, set_point, floor)
        if self._profile.proportional:
            caps[where] = self._proportional(use, vms, on, least)
        else:
            hungry = self._members[where] == on
            weight = np.maximum(0.0, use) + self._profile.probe
            caps[where] = least + fill(
                self.share - floor, weight, most - least, on, hungry)
        self._members = np.where(inside, host, -1)
        return caps

    def _integrate(self, total: Floats, vms: Floats, set_point: Floats,
                   floor: Floats) -> None:
        share = self.share + self._profile.gain * (set_point - total)
        if not self._profile.proportional:
            room = set_point - np.maximum(0.0, total - vms)
            share = np.minimum(share, room + self._profile.slack)
        self.share = np.maximum(np.minimum(share, set_point), floor)

    def _proportional(self, use: Floats, vms: Floats, on: Ints,
                      least: Floats) -> Floats:
        """Split by present use, with a floor (Boettger 3.9).

        Without any use the shares are equal.
        """
        count = np.bincount(on, minlength=self._hosts)
        part = np.where(vms[on] > 0, use / np.where(vms > 0, vms, 1.0)[on],
                        1.0 / count[on])
        return np.maximum(least, self.share[on] * part)

    def _sum(self, values: Floats, on: Ints) -> Floats:
        return np.bincount(on, values, minlength=self._hosts)


def fill(amount: Floats, weight: Floats, most: Floats, on: Ints,
         hungry: Bools) -> Floats:
    """Split each host's amount by weight, up to what each can use.

    ``amount`` is (H,), the others (parties,); what one cannot use goes to
    the others that are hungry.
    """
    given = np.zeros(len(weight))
    rest, hungry = amount.copy(), hungry.copy()
    while hungry.any():
        weights = np.bincount(on, np.where(hungry, weight, 0.0),
                              minlength=len(rest))
        unit = np.where(weights > 0, np.maximum(0.0, rest)
                        / np.where(weights > 0, weights, 1.0), 0.0)
        wish = unit[on] * weight
        full = hungry & (wish >= most) & (rest[on] > _EPSILON)
        last = hungry & ~(np.bincount(on[full], minlength=len(rest)) > 0)[on]
        given = np.where(last, wish, np.where(full, most, given))
        rest -= np.bincount(on, np.where(full, most, 0.0),
                            minlength=len(rest))
        hungry &= ~full & ~last
    return given
