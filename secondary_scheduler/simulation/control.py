"""The usage controllers of all hosts at once.

The same law as ``agent.controller``, which may not need NumPy; a test holds
the two together.
"""

import numpy as np

from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.world import Floats, Ints

_EPSILON = 1e-9


class Controllers:
    """One integral loop for a resource on each of H hosts (Boettger 3.9)."""

    def __init__(self, profile: Profile, hosts: int, instances: int) -> None:
        self._profile = profile
        self._hosts = hosts
        self._members = np.full(instances, -1)
        self.share = np.zeros(hosts)

    def step(self, total: Floats, use: Floats, set_point: Floats,
             guests: Ints, on: Ints, most: Floats) -> Floats:
        """Return the caps of guests after one period, (guests,).

        ``guests`` are the numbers of those that take part, ``on`` their
        hosts, ``most`` what they can use.  ``total`` (H,) and ``use``
        (guests,) were measured in the period.
        """
        least = np.minimum(self._profile.minimum_share, most)
        floor = self._sum(least, on)
        vms = self._sum(use, on)
        self._integrate(total, vms, set_point, floor)
        if self._profile.proportional:
            caps = self._proportional(use, vms, on, least)
        else:
            caps = least + fill(
                self.share - floor, use + self._profile.probe, most - least,
                on, np.flatnonzero(self._members[guests] == on))
        self._members[:] = -1
        self._members[guests] = on
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
         hungry: Ints) -> Floats:
    """Split each host's amount by weight, up to what each can use.

    ``amount`` is (H,), ``weight``, ``most`` and ``on`` are (parties,), and
    ``hungry`` has the numbers of those that take part; what one cannot use
    goes to the others.
    """
    given = np.zeros(len(weight))
    rest = amount.copy()
    while len(hungry):
        at, part, top = on[hungry], weight[hungry], most[hungry]
        weights = np.bincount(at, part, minlength=len(rest))
        unit = np.maximum(0.0, rest) / np.where(weights > 0, weights, 1.0)
        wish = unit[at] * part
        full = (wish >= top) & (rest > _EPSILON)[at]
        spent = np.bincount(at[full], top[full], minlength=len(rest))
        given[hungry] = np.where(full, top, wish)
        # Where somebody was given all, the others share what is left.
        again = np.zeros(len(rest), dtype=bool)
        again[at[full]] = True
        hungry = hungry[again[at] & ~full]
        rest -= spent
    return given
