# SPDX-License-Identifier: Apache-2.0

"""Comparison of two samples.

Welch's test, and equivalence by two one-sided tests (TOST).
"""

from collections.abc import Sequence
import dataclasses
import math
import statistics

import numpy as np


def t_cdf(value: float, freedom: float) -> float:
    """Return the distribution function of Student's t.

    With ``t = sqrt(n) tan(a)`` its density is that of ``cos(a) ** (n - 1)``,
    which is smooth on a finite interval.
    """
    angle = math.atan(value / math.sqrt(freedom))
    grid = np.linspace(0.0, angle, 2001)
    area = float(np.trapezoid(np.cos(grid) ** (freedom - 1), grid))
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(
        freedom / 2)) / math.sqrt(math.pi)
    return 0.5 + area * scale


def t_quantile(share: float, freedom: float) -> float:
    """Return the value below which a share of Student's t lies."""
    low, high = -1e3, 1e3
    for _step in range(80):
        middle = (low + high) / 2
        if t_cdf(middle, freedom) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The difference of two means, its 90 % interval, and Welch's p."""

    difference: float
    low: float
    high: float
    p: float

    def equivalent(self, margin: float) -> bool:
        """Return whether TOST at 5 % finds the difference within a margin."""
        return -margin < self.low and self.high < margin


def compare(one: Sequence[float], other: Sequence[float]) -> Comparison:
    """Compare the mean of one sample with that of another."""
    parts = [statistics.variance(values) / len(values)
             for values in (one, other)]
    error = math.sqrt(sum(parts))
    freedom = sum(parts)**2 / sum(
        part**2 / (len(values) - 1)
        for part, values in zip(parts, (one, other), strict=True))
    difference = statistics.fmean(one) - statistics.fmean(other)
    reach = t_quantile(0.95, freedom) * error
    return Comparison(
        difference, difference - reach, difference + reach,
        2 * t_cdf(-abs(difference) / error, freedom))
