# SPDX-License-Identifier: Apache-2.0

"""Shares of a host, and the slowdown of its primary."""

import numpy as np

from secondary_scheduler.simulation.world import Floats, compiled, inlined

#: CPU use of a host, as a share of 1, from which guests slow the primary.
KNEE = 0.686


def speed(total: Floats, primary: Floats, contention: float) -> Floats:
    """Return the speed of primaries; 1 is undisturbed.

    The speed is ``1 - k (max(0, U - 0.686) - max(0, p - 0.686))``, with U the
    use of the whole host and p that of the primary (here in percent).
    """
    over = np.maximum(0.0, total / 100 - KNEE)
    own = np.maximum(0.0, primary / 100 - KNEE)
    return np.asarray(1.0 - contention * np.maximum(0.0, over - own))


@compiled
def max_min(demand: Floats, weight: Floats, capacity: float = 100.0
            ) -> Floats:
    """Share a capacity among parties; all (parties,).

    Weighted max-min fairness: no party gets more than its demand.  A party
    with less has at least as much for its weight as any other.
    """
    wanted = 0.0
    for one in demand:
        wanted += one
    share = demand.copy()
    if wanted <= capacity:
        return share
    level, before = 0.0, -1.0
    while level > before:   # a small demand leaves more for the others
        left, weights, before = capacity, 0.0, level
        for one in range(len(demand)):
            if demand[one] > level * weight[one]:
                weights += weight[one]
            else:
                left -= demand[one]
        if weights > 0.0:
            level = max(level, left / weights)
    for one in range(len(demand)):
        share[one] = min(demand[one], level * weight[one])
    return share


@inlined
def share_host(primary: float, burden: float, guests: Floats,
               weights: tuple[float, float, float]) -> tuple[float, float]:
    """Share a host among its primary, operations and guests, in percent.

    Arguments are demands.  ``guests`` is overwritten with their shares; the
    shares of the other two are returned.  ``weights`` has one of each kind.
    """
    total = primary + burden
    for one in guests:
        total += one
    if total <= 100.0:
        return primary, burden
    return _ration(primary, burden, guests, weights)


@compiled
def _ration(primary: float, burden: float, guests: Floats,
            weights: tuple[float, float, float]) -> tuple[float, float]:
    demand, weight = np.empty(len(guests) + 2), np.empty(len(guests) + 2)
    demand[0], weight[0] = primary, weights[0]
    demand[1], weight[1] = burden, weights[1]
    for one in range(len(guests)):
        demand[one + 2], weight[one + 2] = guests[one], weights[2]
    share = max_min(demand, weight)
    for one in range(len(guests)):
        guests[one] = share[one + 2]
    return share[0], share[1]
