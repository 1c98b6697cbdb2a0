"""Who gets how much of a host, and what that does to its primary."""

import numpy as np

from secondary_scheduler.simulation.world import Floats, Ints

#: Use of a host's CPU (share of 1) from which neighbours slow each other.
KNEE = 0.686


def speed(total: Floats, primary: Floats, contention: float) -> Floats:
    """Return the speed of primaries, 1 being undisturbed (EXPERIMENTS 2).

    ``1 - k (max(0, U - 0.686) - max(0, p - 0.686))``, with U the use of the
    whole host and p the primary's own, here in percent; alone it loses
    nothing.
    """
    over = np.maximum(0.0, total / 100 - KNEE)
    own = np.maximum(0.0, primary / 100 - KNEE)
    return np.asarray(1.0 - contention * np.maximum(0.0, over - own))


def max_min(demand: Floats, weight: Floats, owner: Ints, count: int,
            capacity: float = 100.0) -> Floats:
    """Share the capacity of each of ``count`` hosts among parties.

    ``demand``, ``weight`` and ``owner`` (the number of a host) are of shape
    (parties,).  Weighted max-min fairness: nobody gets more than it demands,
    and who gets less has at least as much for its weight as any other.
    """
    wanted = np.bincount(owner, demand, minlength=count)
    crowded = (wanted > capacity)[owner]
    if not crowded.any():
        return demand
    share = demand.copy()
    open_ = crowded.copy()
    while True:
        spent = np.bincount(owner, np.where(open_, 0.0, share),
                            minlength=count)
        weights = np.bincount(owner, np.where(open_, weight, 0.0),
                              minlength=count)
        with np.errstate(divide='ignore', invalid='ignore'):
            level = ((capacity - spent) / weights)[owner] * weight
        full = open_ & (demand <= level)
        if not full.any():
            return np.where(open_, level, share)
        open_ &= ~full
        if not open_.any():
            return share
