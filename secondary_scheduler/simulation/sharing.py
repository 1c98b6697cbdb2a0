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


def share_hosts(primary: Floats, burden: Floats, guests: Floats,
                owner: Ints, weights: tuple[float, float, float]
                ) -> tuple[Floats, Floats, Floats]:
    """Return what primaries, operations and guests get, in percent.

    What primaries and operations demand is (H,), what guests do (guests,)
    with the number of their host in ``owner``; ``weights`` has one for each
    of the three.
    """
    hosts = len(primary)
    total = primary + burden + np.bincount(owner, guests, minlength=hosts)
    full = np.flatnonzero(total > 100.0)
    if not len(full):
        return primary, burden, guests
    row = np.full(hosts, -1)
    row[full] = every = np.arange(len(full))
    there = np.flatnonzero(row[owner] >= 0)
    demand = (primary[full], burden[full], guests[there])
    got = np.split(max_min(
        np.concatenate(demand),
        np.repeat(weights, [len(one) for one in demand]),
        np.concatenate((every, every, row[owner[there]])), len(full)),
        (len(full), 2 * len(full)))
    shares = primary.copy(), burden.copy(), guests.copy()
    for share, where, part in zip(shares, (full, full, there), got,
                                  strict=True):
        share[where] = part
    return shares


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
