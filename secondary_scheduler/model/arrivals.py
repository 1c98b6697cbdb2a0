# SPDX-License-Identifier: Apache-2.0

"""Predictions for one more secondary on a host, by workload class.

Agents make them, reports carry them, and schedulers compare them.
"""

from collections.abc import Mapping, Sequence
import itertools
import math
import typing

#: Classes of a report at most, and characters of their names, so that reports
#: stay within 0.5 kB/s.  A name may be the UUID of an image with a flavor.
MOST_CLASSES = 16
LONGEST_NAME = 100
#: Bound of both values of a prediction.
_MOST = 1e6


class Arrival(typing.NamedTuple):
    """Prediction for one more vCPU of a workload class on a host.

    :param slowdown: its slow-down on the best CPU for it, at least 1
    :param harm: sum of the logarithms of the slow-downs that it adds to
        others, at least 0: 0.1 is one vCPU that becomes a tenth slower.  A
        CPU of primaries counts with its weight
    """

    slowdown: float
    harm: float

    @property
    def performance(self) -> float:
        """Its performance times that which it leaves to others, from 0 to 1.
        """
        return math.exp(-self.harm) / self.slowdown


def limit_arrivals(arrivals: Mapping[str, Arrival]) -> dict[str, Arrival]:
    """Return what a report may carry of predictions, rounded and bounded.

    It is the first ``MOST_CLASSES`` classes with names that are not too long.
    """
    return dict(itertools.islice((
        (name, Arrival(round(min(one.slowdown, _MOST), 2),
                       round(min(one.harm, _MOST), 3)))
        for name, one in arrivals.items() if _is_name(name)), MOST_CLASSES))


def read_arrivals(value: object) -> dict[str, Arrival]:
    """Read the predictions of a message.

    :param value: slow-down and harm, by class
    :raises ValueError: if it is anything else, or too large
    """
    if not isinstance(value, Mapping) or len(value) > MOST_CLASSES:
        raise ValueError('arrivals of a report are not predictions for at '
                         f'most {MOST_CLASSES} classes')
    for name, pair in value.items():
        if not (_is_name(name) and isinstance(pair, list | tuple)
                and len(pair) == len(Arrival._fields)
                and _is_number(pair[0], 1.0) and _is_number(pair[1], 0.0)):
            raise ValueError(f'arrivals of a report are {pair!r} for {name!r}')
    return {name: Arrival(*map(float, pair)) for name, pair in value.items()}


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME


def _is_number(value: object, least: float) -> bool:
    return type(value) in {int, float} and (
        least <= typing.cast('float', value) <= _MOST)


def fill_unknown(values: Sequence[float | None]) -> list[float]:
    """Return values of hosts with the mean of the known ones for unknown ones.

    So a host of which nothing is known is neither preferred nor avoided.

    :returns: nothing if no value is known
    """
    known = [value for value in values if value is not None]
    if not known:
        return []
    mean = math.fsum(known) / len(known)
    return [mean if value is None else value for value in values]

