"""What primaries want: traces of CPU load in percent of a host.

Each is, or may be indexed like, an array of shape (steps, hosts), two steps a
second.
"""

import typing

import numpy as np

from secondary_scheduler.simulation.world import Floats

#: Steps of load and control in a second.
STEPS = 2

Random = np.random.Generator


class Course(typing.Protocol):
    """The load of each step, in the order of time."""

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


class Squares:
    """A square process whose mean follows a series (EXPERIMENTS 6).

    ``means`` is (windows, hosts) in percent, and what each host has in each
    window of ``window_s`` seconds; for U[5, 30] s at a time its load is
    ``spread`` (hosts,) above the mean, or as much below.  Where the one or the
    other is beyond 0 or 100 %, or does not last as long, both are moved so
    that the mean is kept.

    Windows are drawn when they are asked for, the same whenever that is.
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

    The higher one has a ``share`` of the time; they are twice the spread apart
    where that is possible.
    """
    above = mean + 2 * spread * (1 - share)
    below = mean - 2 * spread * share
    # Where one has all the time, the other has no say.
    some, rest = np.maximum(share, 1e-12), np.maximum(1 - share, 1e-12)
    above = np.where(below < 0, mean / some, above)
    below = np.maximum(0.0, below)
    below = np.where(above > 100, (mean - 100 * share) / rest, below)
    return np.minimum(100.0, above), np.clip(below, 0.0, 100.0)
