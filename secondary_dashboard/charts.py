# SPDX-License-Identifier: Apache-2.0

"""Geometry of timelines, for templates that draw them as SVG.

All positions and lengths are percentages of the chart's width, so that a
chart fits any screen and its texts keep their size.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import datetime
import typing

from secondary_scheduler.leases.client import times

#: Distances between two marks of the axis that are round, in seconds.
_ROUND = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
          10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 14 * 86400,
          28 * 86400, 91 * 86400, 364 * 86400, 3640 * 86400)
#: Largest number of marks on an axis.
_MARKS = 8
#: Least width of a bar, so that a short one is still seen.
_LEAST = 0.3
_DAY = 86400
#: Seconds that are drawn of a bar without an end.
_OPEN = 3600


class Span(typing.NamedTuple):
    """A bar to draw: a stretch of time with a kind and a description.

    Times are seconds since 1970; an ``end`` of None is unlimited.
    """

    begin: int
    end: int | None
    kind: str
    text: str


class TimelineBar(typing.NamedTuple):
    """A drawn bar; ``x`` and ``width`` are percentages."""

    x: float
    width: float
    kind: str
    text: str


class Mark(typing.NamedTuple):
    """A mark of the axis at ``x`` percent."""

    x: float
    text: str


@dataclasses.dataclass(frozen=True)
class TimelineRow:
    """Bars of one lease or operation."""

    label: str
    link: str
    bars: Sequence[TimelineBar]


@dataclasses.dataclass(frozen=True)
class TimelineChart:
    """A chart; ``now`` is the present time in percent, None: not in it."""

    rows: Sequence[TimelineRow]
    marks: Sequence[Mark]
    kinds: Sequence[str]
    begin: datetime.datetime
    end: datetime.datetime
    now: float | None


def draw_timeline(rows: Iterable[tuple[str, str, Sequence[Span]]], now: int,
                  zone: datetime.tzinfo = datetime.UTC, *,
                  begin: int | None = None, end: int | None = None
                  ) -> TimelineChart | None:
    """Return the chart of some rows; None if nothing is to be drawn.

    :param rows: for each row its label, its link and its bars.
    :param now: present time in seconds since 1970.
    :param zone: time zone of the texts.
    :param begin: begin of the chart; by default that of the first bar.
    :param end: end of the chart; by default that of the last bar.
    """
    given = [(label, link, list(spans)) for label, link, spans in rows]
    spans = [one for _, _, some in given for one in some]
    if not spans:
        return None
    if begin is None:
        begin = min(one.begin for one in spans)
    if end is None:
        end = max(_end(one, now) for one in spans)
    end = max(end, begin + 1)

    def place(time: int) -> float:
        return round(100 * (min(max(time, begin), end) - begin)
                     / (end - begin), 3)

    drawn = []
    for label, link, some in given:
        bars = []
        for one in some:
            last = _end(one, now)
            if last >= begin and one.begin <= end:
                x = min(place(one.begin), 100 - _LEAST)
                bars.append(TimelineBar(
                    x, max(place(last) - x, _LEAST), one.kind, one.text))
        drawn.append(TimelineRow(label, link, bars))
    return TimelineChart(
        drawn, _marks(begin, end, place, zone),
        list(dict.fromkeys(bar.kind for row in drawn for bar in row.bars)),
        _moment(begin, zone), _moment(end, zone),
        place(now) if begin <= now <= end else None)


def _end(span: Span, now: int) -> int:
    return max(span.begin, now) + _OPEN if span.end is None else span.end


def _marks(begin: int, end: int, place: typing.Callable[[int], float],
           zone: datetime.tzinfo) -> list[Mark]:
    step = next((one for one in _ROUND if (end - begin) / one <= _MARKS),
                _ROUND[-1])
    # Marks are round in local time.
    offset = _moment(begin, zone).utcoffset() or datetime.timedelta()
    shift = int(offset.total_seconds())
    first = -(-(begin + shift) // step) * step - shift
    return [Mark(place(time), _text(time, step, zone))
            for time in range(first, end + 1, step)]


def _text(time: int, step: int, zone: datetime.tzinfo) -> str:
    moment = _moment(time, zone)
    if step >= _DAY or (moment.hour, moment.minute, moment.second) == (
            0, 0, 0):
        return f'{moment:%Y-%m-%d}'
    return f'{moment:%H:%M:%S}' if step < 60 else f'{moment:%H:%M}'


def _moment(time: int, zone: datetime.tzinfo) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time, zone)


def slot_span(slot: typing.Any) -> Span:
    """Return the bar of a slot of the service's timeline."""
    nodes = slot['nodes']
    return Span(times.to_seconds(slot['begin']),
                None if slot['end'] is None else times.to_seconds(
                    slot['end']),
                slot['what'],
                f'{slot["what"]}, {nodes} node{"" if nodes == 1 else "s"}')
