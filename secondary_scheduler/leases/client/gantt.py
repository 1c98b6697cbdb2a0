# SPDX-License-Identifier: Apache-2.0

"""Timeline as text: a row for each lease, a column for a time interval.

                08:00       10:00       12:00
                |           |           |
    nightly (4) ..########<<          >>########
    exam (30)               ##########
                         ^ now
    2027-01-31 08:00 to 13:20 UTC, 10 min a column; (n): n nodes
    # run, . prepare, > resume, < suspend, x shut-down
"""

from collections.abc import Mapping, Sequence
import datetime
import typing
import unicodedata

from secondary_scheduler.leases.client import times
from secondary_scheduler.reading.values import InputError

#: Sign for each purpose of a slot. If several fall into one column, the last
#: of these is shown.
SIGNS = {'run': '#', 'prepare': '.', 'resume': '>', 'suspend': '<',
         'shut-down': 'x'}
LEGEND = ', '.join(f'{sign} {purpose}' for purpose, sign in SIGNS.items())
#: Sign for purposes of newer services, unknown to this client.
_UNKNOWN = '?'
_ORDER = list(SIGNS)
_LEAST = 20
#: Columns of the widest screen.
_WIDEST = 10_000
#: The last time that is accepted, so that later sums are still dates.
_LAST = int(datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC).timestamp())
#: Round time intervals in seconds, with their names.
_ROUND = [
    (number * seconds, f'{number} {unit}') for unit, seconds, numbers in (
        ('s', 1, (1, 2, 5, 10, 15, 30)),
        ('min', 60, (1, 2, 3, 5, 10, 15, 30)),
        ('h', 3600, (1, 2, 3, 4, 6, 12)),
        ('d', 86400, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)))
    for number in numbers]
_DAY = 86400
#: Seconds that are drawn of a slot without an end.
_OPEN_S = 3600
#: Least number of columns between two marks of the axis.
_APART = 10


def draw_chart(slots: Sequence[Mapping[str, typing.Any]],
               names: Mapping[str, str], width: int = 80, *,
               begin: int | None = None, end: int | None = None,
               now: int | None = None) -> list[str]:
    """Return the lines of a chart.

    :param slots: slots of the service's response, the earliest first.
    :param names: labels of leases by id; the default label is the id.
    :param width: columns of the screen.
    :param begin: begin of the chart in seconds since 1970; None is the begin
        of the first slot.
    :param end: end of the chart in seconds since 1970; None is the end of
        the last slot.
    :param now: present time in seconds since 1970, which is marked.
    :raises InputError: if width, begin or end is out of bounds.
    """
    if not 1 <= width <= _WIDEST:
        raise InputError(f'width: expected 1 to {_WIDEST} columns, not '
                         f'{width}')
    for name, time in (('begin', begin), ('end', end)):
        if time is not None and not 0 <= time <= _LAST:
            raise InputError(f'{name}: expected a time of the years 1970 to '
                             '9998')
    if begin is not None and end is not None and end <= begin:
        raise InputError('end: expected a time after the begin')
    if not slots:
        return ['Nothing is planned.']
    rows: dict[str, list[Mapping[str, typing.Any]]] = {}
    for one in slots:
        rows.setdefault(one['lease_id'], []).append(one)
    labels = [f'{names.get(lease, lease)} '
              f'({max(one["nodes"] for one in held)})'
              for lease, held in rows.items()]
    margin = min(max(map(_width, labels)), max(width // 2, 1)) + 1
    chart = _Chart(
        begin if begin is not None else min(
            times.to_seconds(one['begin']) for one in slots),
        end if end is not None else min(_LAST, max(
            _end(one, now) for one in slots)),
        max(width - margin, _LEAST))
    lines = [*chart.axis(), *map(chart.row, rows.values()), *chart.mark(now)]
    beside = ['', '', *(_cut(label, margin - 1) for label in labels), '']
    return [*(f'{left}{" " * (margin - _width(left))}{line}'.rstrip()
              for left, line in zip(beside, lines, strict=False)),
            f'{chart.about}; (n): n nodes', LEGEND]


def _width(text: str) -> int:
    """Return the number of columns of a text on a screen."""
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ('Mn', 'Me', 'Cf', 'Cc'):
        return 0
    return 1 + (unicodedata.east_asian_width(character) in 'WF')


def _cut(text: str, width: int) -> str:
    """Cut a text to at most ``width`` columns."""
    while _width(text) > width:
        text = text[:-1]
    return text


def _end(slot: Mapping[str, typing.Any], now: int | None) -> int:
    """Return the time up to which a slot is drawn."""
    if slot['end'] is not None:
        return times.to_seconds(slot['end'])
    return max(times.to_seconds(slot['begin']), now or 0) + _OPEN_S


class _Chart:
    """A chart whose columns are equal intervals, from a round time on."""

    def __init__(self, begin: int, end: int, columns: int) -> None:
        self._end = max(end, begin + 1)
        self._step, self._named = next(
            (step, name) for step, name in (*_ROUND, _longest(
                (self._end - begin) // columns + 1))
            if begin // step * step + columns * step >= self._end)
        self._begin = begin // self._step * self._step
        self._columns = -((self._begin - self._end) // self._step)

    @property
    def about(self) -> str:
        """Caption: begin, end and the interval of a column."""
        begin, end = _utc(self._begin), _utc(self._end)
        time = _clock(self._step)
        day = '' if begin.date() == end.date() else '%Y-%m-%d '
        return (f'{begin:%Y-%m-%d {time}} to {end:{day}{time}} UTC, '
                f'{self._named} a column')

    def row(self, slots: Sequence[Mapping[str, typing.Any]]) -> str:
        """Return the row of a lease."""
        row = [' '] * self._columns
        for one in sorted(slots, key=_turn):
            first = self._column(times.to_seconds(one['begin']))
            # A slot shorter than a column still takes one.
            last = (self._columns if one['end'] is None else max(
                self._column(times.to_seconds(one['end'])), first + 1))
            for column in range(max(first, 0), min(last, self._columns)):
                row[column] = SIGNS.get(one['what'], _UNKNOWN)
        return ''.join(row)

    def axis(self) -> list[str]:
        """Return the lines of the axis: round times, and marks below."""
        apart = next((step for step, _ in _ROUND if step % self._step == 0
                      and step >= _APART * self._step), _ROUND[-1][0])
        texts = ticks = ''
        for time in range(-(-self._begin // apart) * apart, self._end, apart):
            column = self._column(time)
            # Midnight is shown as a date.
            form = _clock(apart) if time % _DAY else '%m-%d'
            text = f'{_utc(time):{form}}'
            if column + len(text) <= self._columns:
                texts = f'{texts:{column}}{text}'
            ticks = f'{ticks:{column}}|'
        return [texts, ticks]

    def mark(self, now: int | None) -> list[str]:
        """Return a line that marks the present time, if the chart has it."""
        if now is None or not self._begin <= now < self._end:
            return []
        column = self._column(now)
        return [f'{"":{column}}^ now' if column + 5 <= self._columns or (
            column < 4) else f'{"now ^":>{column + 1}}']

    def _column(self, time: int) -> int:
        return (time - self._begin) // self._step


def _longest(least: int) -> tuple[int, str]:
    """Return an interval longer than the round ones, for many years."""
    days = -(-2 * least // _DAY)
    return days * _DAY, f'{days} d'


def _turn(slot: Mapping[str, typing.Any]) -> int:
    """Return the rank of a slot in the order of drawing; unknown first."""
    return _ORDER.index(slot['what']) if slot['what'] in SIGNS else -1


def _clock(step: int) -> str:
    """Return the format of times that are ``step`` seconds apart."""
    return '%H:%M' if step >= 60 else '%H:%M:%S'


def _utc(time: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time, datetime.UTC)
