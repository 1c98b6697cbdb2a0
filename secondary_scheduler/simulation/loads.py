# SPDX-License-Identifier: Apache-2.0

"""CPU demand of primaries in percent of a host.

A load is an array of shape (steps, hosts), or is indexed like one; a second
has two steps.
"""

import typing

import numpy as np

from secondary_scheduler.simulation.world import Floats

#: Steps of load and control in a second.
STEPS = 2

Random = np.random.Generator


class Course(typing.Protocol):
    """Load of each step, in the order of time."""

    def __len__(self) -> int:
        """Return the number of steps."""

    def __getitem__(self, step: int) -> Floats:
        """Return the load of each host, (hosts,) in percent."""


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

    Such a density has means from 33 to 67 only.  For lower means it falls on
    [0, 3 mean], for higher ones it rises on the mirror image of that (see
    reference/errata, Boettger, load distributions).
    """
    if mean > 50:
        return np.asarray(100.0 - tilted(100.0 - mean, size, random))
    rising = max(0.0, 3 * mean / 100 - 1)
    top = min(100.0, 3 * mean)
    draw = np.sqrt(random.random(size))
    return np.where(random.random(size) < rising, draw, 1 - draw) * top


def wave(kind: str, mean: float, hosts: int, seconds: int, random: Random
         ) -> Floats:
    """Return loads of the generator of Boettger 2012, section 6.4.2.

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


class Squares:
    """A square process whose mean follows a series.

    ``means`` is (windows, hosts) in percent, the mean of each host in each
    window of ``window_s`` seconds.  For U[5, 30] s at a time the load is
    ``spread`` (hosts,) above the mean, or as much below.  If one of the two
    is beyond 0 or 100 %, or lasts longer, both are moved to keep the mean.

    Windows are drawn on demand, and do not depend on the order of access.
    """

    def __init__(self, means: Floats, spread: Floats, seed: tuple[int, ...],
                 window_s: int = 300) -> None:
        self._means = means
        self._spread = spread
        self._seed = seed
        self._steps = window_s * STEPS
        self._window = -1
        self._rows = np.empty(0)

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self._means) * self._steps

    def __getitem__(self, step: int) -> Floats:
        """Return the load of each host, (hosts,) in percent."""
        window, row = divmod(step, self._steps)
        if window != self._window:
            self._window, self._rows = window, self._draw(window)
        return np.asarray(self._rows[row])

    def _draw(self, window: int) -> Floats:
        """Return the load of each step of a window, (steps, hosts)."""
        random = np.random.default_rng((*self._seed, window))
        mean = self._means[window]
        most = self._steps // (5 * STEPS) + 1
        ends = np.rint(STEPS * np.cumsum(
            random.uniform(5, 30, (len(mean), most)), axis=1))
        held = np.diff(np.minimum(ends, self._steps), prepend=0, axis=1)
        high = random.random(held.shape) < 0.5
        share = (held * high).sum(axis=1) / self._steps
        above, below = _around(mean, self._spread, share)
        values = np.where(high, above[:, None], below[:, None])
        return np.ascontiguousarray(np.repeat(
            values.ravel(), held.ravel().astype(np.int64)).reshape(
                len(mean), self._steps).T)


def _around(mean: Floats, spread: Floats, share: Floats
            ) -> tuple[Floats, Floats]:
    """Return two values within 0 and 100 that have a mean.

    The higher one lasts for a ``share`` of the time.  The two are twice the
    spread apart if that is possible.
    """
    above = mean + 2 * spread * (1 - share)
    below = mean - 2 * spread * share
    # If one lasts all the time, the other does not count.
    some, rest = np.maximum(share, 1e-12), np.maximum(1 - share, 1e-12)
    above = np.where(below < 0, mean / some, above)
    below = np.maximum(0.0, below)
    below = np.where(above > 100, (mean - 100 * share) / rest, below)
    return np.minimum(100.0, above), np.clip(below, 0.0, 100.0)
