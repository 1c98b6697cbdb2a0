# SPDX-License-Identifier: Apache-2.0

"""Measured slow-downs of workload classes, with the host and the spread.

A document with profiles may have them under ``measurement``.  Decisions use
the profiles only; measurements are for their readers, and for merging.
"""

import dataclasses
import enum
import statistics
import typing

from secondary_scheduler.reading.fields import Fields
from secondary_scheduler.reading.values import MOST

#: Prefix of the names of classes that are generators of load, not guests.
GENERATOR_PREFIX = 'stress-ng:'


class Place(enum.StrEnum):
    """Place of a neighbour, seen from its victim."""

    SAME_CPU = 'same CPU'
    SIBLING = 'SMT sibling'
    SAME_CACHE = 'same cache'
    OTHER_CACHE = 'other cache'


@dataclasses.dataclass(frozen=True)
class MeasuredSlowdown:
    """Slow-downs of one class beside another one, one for each repeat.

    :param values: performance alone by performance beside the neighbour.
        They may be below 1, since nothing is rounded
    :param cpu_values: CPU time for each unit of work beside the neighbour, by
        that alone; empty where work was not counted
    """

    victim: str
    neighbour: str
    place: Place
    values: tuple[float, ...]
    cpu_values: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[str, str, Place]:
        """Victim, neighbour and place."""
        return self.victim, self.neighbour, self.place

    @property
    def median(self) -> float:
        """Median of the repeats."""
        return statistics.median(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the repeats, None of a single one."""
        return (statistics.stdev(self.values) if len(self.values) > 1
                else None)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Origin of measured profiles.

    :param cpu_model: name of the CPU, None if it is not known
    :param kernel: release of the kernel
    :param metric: unit of work, such as ``instructions``
    :param seconds: length of each run
    :param unknown: facts that the host cannot show
    """

    cpu_model: str | None
    kernel: str
    metric: str
    seconds: float
    slowdowns: tuple[MeasuredSlowdown, ...]
    unknown: tuple[str, ...] = ()


def parse_measurement(document: object) -> Measurement:
    """Return the measurement of a document, as ``format_measurement`` does it.

    :raises InputError: with the place of the first fault
    """
    fields = Fields(document, 'measurement')
    found = Measurement(
        fields.text('cpu_model', None), fields.text('kernel'),
        fields.text('metric'), fields.number('seconds'),
        tuple(map(_parse_slowdown, fields.objects('slowdowns'))),
        tuple(fields.texts('unknown')))
    fields.done()
    return found


def _parse_slowdown(fields: Fields) -> MeasuredSlowdown:
    found = MeasuredSlowdown(
        fields.text('victim'), fields.text('neighbour'),
        Place(fields.choice('place', list(Place))),
        _positive(fields, 'values'),
        _positive(fields, 'cpu_values', optional=True))
    if not found.values:
        fields.wrong('values', 'at least one number', [])
    # They are for readers, and follow from the values.
    for name in ('median', 'deviation'):
        fields.number(name, None)
    fields.done()
    return found


def _positive(fields: Fields, name: str, optional: bool = False
              ) -> tuple[float, ...]:
    """Take a list of numbers above 0."""
    values = fields.items(name, optional)
    for number, value in enumerate(values):
        if (isinstance(value, bool) or not isinstance(value, int | float)
                or not 0 < value <= MOST):
            fields.wrong(f'{name}[{number}]', 'a number above 0', value)
    return tuple(map(float, typing.cast('list[float]', values)))


def format_measurement(measured: Measurement) -> dict[str, typing.Any]:
    """Return a measurement as a document of JSON."""
    return {
        'cpu_model': measured.cpu_model, 'kernel': measured.kernel,
        'metric': measured.metric, 'seconds': measured.seconds,
        'unknown': list(measured.unknown),
        'slowdowns': [{
            'victim': one.victim, 'neighbour': one.neighbour,
            'place': str(one.place), 'median': _rounded(one.median),
            'deviation': (None if one.deviation is None
                          else _rounded(one.deviation)),
            'values': list(map(_rounded, one.values)),
            'cpu_values': list(map(_rounded, one.cpu_values)),
        } for one in measured.slowdowns]}


def _rounded(value: float) -> float:
    """Return a value with the digits that a measurement has."""
    return float(f'{value:.4g}')
