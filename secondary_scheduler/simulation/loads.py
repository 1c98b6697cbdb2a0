"""What primaries want: traces of CPU load in percent of a host.

Each returns an array of shape (steps, hosts), two steps a second.
"""

import numpy as np

from secondary_scheduler.simulation.world import Floats

#: Steps of load and control in a second.
STEPS = 2

Random = np.random.Generator


def noisy(mean: Floats, seconds: int, random: Random, cv: float) -> Floats:
    """Return loads with lognormal noise, drawn each second.

    ``mean`` is (hosts,) or (seconds, hosts).
    """
    means = np.broadcast_to(mean, (seconds, np.shape(mean)[-1]))
    sigma = np.sqrt(np.log1p(cv**2))
    noise = random.lognormal(-sigma**2 / 2, sigma, means.shape)
    return np.repeat(np.minimum(100.0, means * noise), STEPS, axis=0)


def tilted(mean: float, size: int, random: Random) -> Floats:
    """Draw from a linear density on [0, 100] with a mean.

    Such a density reaches means from 33 to 67 only; for others it falls on
    [0, 3 mean], or rises on the mirror image of that (X20).
    """
    if mean > 50:
        return np.asarray(100.0 - tilted(100.0 - mean, size, random))
    rising = max(0.0, 3 * mean / 100 - 1)
    top = min(100.0, 3 * mean)
    draw = np.sqrt(random.random(size))
    return np.where(random.random(size) < rising, draw, 1 - draw) * top


def wave(kind: str, mean: float, hosts: int, seconds: int, random: Random
         ) -> Floats:
    """Return the load generator of Boettger 5.2.

    Targets follow each other after U[5, 30] s; a ``square`` jumps to the
    next one, a ``triangle`` goes there linearly.
    """
    times = np.arange(seconds * STEPS) / STEPS
    columns = []
    for _host in range(hosts):
        knots = np.cumsum(random.uniform(5, 30, seconds // 5 + 2))
        knots = np.concatenate(([0.0], knots))
        values = tilted(mean, len(knots), random)
        columns.append(
            values[np.searchsorted(knots, times, side='right') - 1]
            if kind == 'square' else np.interp(times, knots, values))
    return np.stack(columns, axis=1)
