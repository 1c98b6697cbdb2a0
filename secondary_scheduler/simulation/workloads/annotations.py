# SPDX-License-Identifier: Apache-2.0

"""Drawn terms that traces of jobs lack: starts, deadlines, rates, images.

See Sotomayor 2010, sections 5.4 and 5.5, chapters 6 and 8, and its appendix.
Each kind of value has a generator of its own with the seed, so that starts do
not depend on the distribution of deadlines.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math

import numpy as np

from secondary_scheduler.leases.scheduling.lease import NodeSet, Terms
from secondary_scheduler.simulation.workloads.requests import TraceRequest
from secondary_scheduler.simulation.world import Floats

#: Draws numbers between 0 and 1.
Draw = Callable[[np.random.Generator, int], Floats]

DAY = 24 * 3600
#: Latest start after the request, and most spare time before the deadline, in
#: seconds.
START, DEADLINE = DAY, 7 * DAY
#: Bounds of the highest acceptable rates: money for a node and a second.
RATES = (0.1, 10.0)
#: End of a truncated Pareto distribution.
_CUT = 10.0


def low(random: np.random.Generator, number: int) -> Floats:
    """Draw from a truncated Pareto distribution of shape 1, scaled.

    73.3 % of all lie in the lowest fifth.
    """
    u = random.uniform(1 / (1 + _CUT), 1.0, number)
    return (1 / u - 1) / _CUT


def high(random: np.random.Generator, number: int) -> Floats:
    """Draw from the mirror image of ``low``: 2.2 % in the lowest fifth."""
    return 1 - low(random, number)


def even(random: np.random.Generator, number: int) -> Floats:
    """Draw from a uniform distribution."""
    return random.random(number)


def constant(value: float) -> Draw:
    """Return a distribution with one value."""
    return lambda random, number: np.full(number, value)


#: Distributions by the thesis's names for them.
STARTS = {'early': low, 'uniform': even, 'late': high}
DEADLINES = {'tight': low, 'uniform': even, 'loose': high}
USERS = {'cheap': low,
         'constant': constant((1.0 - RATES[0]) / (RATES[1] - RATES[0])),
         'uniform': even, 'rich': high}


@dataclasses.dataclass(frozen=True)
class Annotation:
    """Starts, deadlines and acceptable rates, by the distributions' names."""

    start: str
    deadline: str
    users: str
    seed: int

    def annotate(self, requests: Sequence[TraceRequest]
                 ) -> list[TraceRequest]:
        """Return the requests with drawn starts, deadlines and rates.

        Each user has a highest acceptable rate, rounded to cents.  A request
        without a user has a rate of its own.
        """
        delays = self._draw(1, STARTS[self.start], len(requests)) * START
        spare = self._draw(2, DEADLINES[self.deadline],
                           len(requests)) * DEADLINE
        names = [one.terms.user or f'\0{index}'
                 for index, one in enumerate(requests)]
        rates = self._rates(names)
        found = []
        for one, delay, more, name in zip(
                requests, delays.astype(int).tolist(),
                spare.astype(int).tolist(), names, strict=True):
            begin = one.arrival + delay
            found.append(dataclasses.replace(one, terms=dataclasses.replace(
                one.terms, start=begin, max_rate=rates[name],
                deadline=begin + more + one.terms.duration)))
        return found

    def _rates(self, names: Sequence[str]) -> dict[str, float]:
        known = list(dict.fromkeys(names))
        least, most = RATES
        drawn = least + (most - least) * self._draw(
            3, USERS[self.users], len(known))
        return dict(zip(known, np.round(drawn, 2).tolist(), strict=True))

    def _draw(self, what: int, distribution: Draw, number: int) -> Floats:
        return distribution(np.random.default_rng((self.seed, what)), number)


@dataclasses.dataclass(frozen=True)
class Reservations:
    """Reservations to inject into a trace (Sotomayor 2010, section 5.4).

    They take a ``share`` of the site, each for ``hours`` plus or minus half an
    hour, on a number of ``nodes`` between two bounds.  They begin at even
    intervals, extended by a value between the bounds of ``jitter`` (s; see
    reference/errata, Sotomayor, intervals of reservations).
    """

    share: float
    hours: int
    nodes: tuple[int, int]
    jitter: tuple[int, int] = (0, 60)

    def draw(self, hosts: int, seconds: int, need: tuple[int, ...],
             seed: int, prefix: str = '') -> list[TraceRequest]:
        """Draw reservations for a site, each requested a day ahead.

        ``seconds`` is the time from the first to the last job, ``need`` the
        need of a node.
        """
        random = np.random.default_rng((seed, 4))
        wanted = self.share * hosts * seconds
        half = 1800
        lasting: list[tuple[int, int]] = []
        while wanted > 0:
            lasting.append((
                int(random.integers(self.hours * 3600 - half,
                                    self.hours * 3600 + half, endpoint=True)),
                int(random.integers(*self.nodes, endpoint=True))))
            wanted -= math.prod(lasting[-1])
        every = seconds // max(1, len(lasting))
        starts = np.cumsum(every + random.integers(
            *self.jitter, len(lasting), endpoint=True)).tolist()
        return [TraceRequest(
            f'{prefix}{number}', max(0, start - DAY), Terms(
                (NodeSet(nodes, need),), duration, start=max(0, start),
                preemptible=False), duration)
                for number, (start, (duration, nodes)) in enumerate(
                zip(starts, lasting, strict=True), 1)]


#: Bounds of the number of nodes of a reservation, by name of the size.
SIZES = {'small': (1, 24), 'medium': (25, 48), 'large': (49, 72)}


@dataclasses.dataclass(frozen=True)
class ImageMix:
    """Images of leases (Sotomayor 2010, chapter 6).

    ``common`` of the ``number`` images are in a ``share`` of the leases.
    Within the two groups images are drawn alike.
    """

    number: int = 40
    megabytes: int = 4096
    common: int = 8
    share: float = 0.2

    def add_images(self, requests: Sequence[TraceRequest],
                   seed: int) -> list[TraceRequest]:
        """Return the requests with drawn images."""
        random = np.random.default_rng((seed, 5))
        usual = random.random(len(requests)) < self.share
        drawn = np.where(
            usual, random.integers(self.common, size=len(requests)),
            random.integers(self.common, self.number, size=len(requests)))
        return [dataclasses.replace(one, terms=dataclasses.replace(
            one.terms, image=f'image-{image}', image_mb=self.megabytes))
            for one, image in zip(requests, drawn.tolist(), strict=True)]


#: A fifth of the images is in a fifth of the leases, or in four fifths.
UNIFORM_IMAGES, SKEWED_IMAGES = ImageMix(), ImageMix(share=0.8)
