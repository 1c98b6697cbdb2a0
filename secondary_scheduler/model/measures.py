# SPDX-License-Identifier: Apache-2.0

"""Counts and durations of a process, for its metrics."""

import bisect
import collections
import dataclasses
import itertools

#: Upper bounds of the classes of durations, in seconds.
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
           300.0)


@dataclasses.dataclass
class Histogram:
    """Distribution of durations; ``total`` is their sum in seconds."""

    counts: list[int] = dataclasses.field(
        default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def note(self, seconds: float) -> None:
        """Add a duration."""
        self.counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.counts)

    def cumulated(self) -> list[int]:
        """Return the number of durations up to each bound."""
        return list(itertools.accumulate(self.counts[:-1]))


Histograms = collections.defaultdict[tuple[str, ...], Histogram]


def make_histograms() -> Histograms:
    """Return histograms by the values of their labels; none at first."""
    return collections.defaultdict(Histogram)
