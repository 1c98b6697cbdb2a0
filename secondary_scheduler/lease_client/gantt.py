"""A timeline as text: a row for each lease, a column for a stretch of time.

    2027-01-31 08:00          2027-01-31 12:00
    |                         |
    nightly (4)  ..######<<          >>####xx
    batch (2)                 ########
"""

from collections.abc import Mapping, Sequence
import datetime
import typing

from secondary_scheduler.lease_client import times

#: How each thing that hosts are held for is drawn.  Where several fall into
#: one column the last of these is seen.
SIGNS = {'run': '#', 'prepare': '.', 'resume': '>', 'suspend': '<',
         'shut-down': 'x'}
LEGEND = ', '.join(f'{sign} {what}' for what, sign in SIGNS.items())
_ORDER = list(SIGNS)
_LEAST = 20


def draw(slots: Sequence[Mapping[str, typing.Any]],
         names: Mapping[str, str], width: int = 80) -> list[str]:
    """Return the lines of a chart.

    :param slots: as the service gives them, the earliest first.
    :param names: what to call leases, by id; others are called by their id.
    :param width: columns of the screen.
    """
    if not slots:
        return ['Nothing is planned.']
    begin = min(times.seconds(one['begin']) for one in slots)
    end = max(times.seconds(one['end']) for one in slots)
    rows: dict[str, list[Mapping[str, typing.Any]]] = {}
    for one in slots:
        rows.setdefault(one['lease_id'], []).append(one)
    labels = {
        lease: f'{names.get(lease, lease)} '
               f'({max(one["nodes"] for one in held)})'
        for lease, held in rows.items()}
    margin = min(max(map(len, labels.values())), width // 2) + 1
    columns = max(width - margin, _LEAST)
    chart = [_row(held, begin, end, columns) for held in rows.values()]
    return [*_axis(begin, end, margin, columns), *(
        f'{label[:margin - 1]:{margin}}{row}'.rstrip()
        for label, row in zip(labels.values(), chart, strict=True)),
        f'(nodes)  {LEGEND}']


def _row(slots: Sequence[Mapping[str, typing.Any]], begin: int, end: int,
         columns: int) -> str:
    row = [' '] * columns
    scale = columns / max(end - begin, 1)
    for one in sorted(slots, key=lambda one: _ORDER.index(one['what'])):
        first = int((times.seconds(one['begin']) - begin) * scale)
        # What is too short for a column is seen all the same.
        last = max(int((times.seconds(one['end']) - begin) * scale),
                   first + 1)
        for column in range(first, min(last, columns)):
            row[column] = SIGNS[one['what']]
    return ''.join(row)


def _axis(begin: int, end: int, margin: int, columns: int) -> list[str]:
    marks = [0, columns // 2]
    texts = ''
    ticks = ''
    for mark in marks:
        when = datetime.datetime.fromtimestamp(
            begin + (end - begin) * mark / columns, datetime.UTC)
        texts = f'{texts:{margin + mark}}{when:%Y-%m-%d %H:%M}'
        ticks = f'{ticks:{margin + mark}}|'
    return [f'{texts} UTC', ticks]
