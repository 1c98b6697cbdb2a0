# SPDX-License-Identifier: Apache-2.0

"""Nonsense for the tests that feed it to whatever reads what others wrote.

A thousand inputs for each test in CI, five thousand with ``tox -e properties``
and in ``tools/box soak``: more than 100,000 for all of them, in minutes.
"""

import copy
import datetime
import logging

import hypothesis
from hypothesis import strategies as st

fuzzed = hypothesis.settings(
    max_examples=max(1000, hypothesis.settings().max_examples // 2))

#: Numbers at which readers stumble, as text.
NUMBERS = ('', '0', '-1', '-0', '1e309', 'nan', '-inf', '0x10', '1_0', '٣',
           ' 7 ', '9' * 30, '9' * 5000, str(1 << 64), '1.5', 'max')

#: What JSON can hold, and Python's reader of it (NaN).
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats()
    | st.text(max_size=12) | st.sampled_from(NUMBERS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.text(max_size=8), inner, max_size=3), max_leaves=6)


@st.composite
def spoilt(draw, text, tokens=()):
    """A text in which a few things were replaced, cut out or put in."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        to = min(len(text), at + draw(st.integers(0, 30)))
        more = draw(st.sampled_from((*tokens, *NUMBERS))
                    | st.text(max_size=10))
        text = text[:at] + more + text[to:]
    return text


@st.composite
def changed(draw, data):
    """A value made of lists and dictionaries, of which a part is another."""
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        place, inner = None, data
        while isinstance(inner, dict | list) and inner and (
                place is None or draw(st.booleans())):
            keys = list(inner) if isinstance(inner, dict) else range(
                len(inner))
            place = inner, draw(st.sampled_from(keys))
            inner = inner[place[1]]
        if place is None:
            return draw(values)
        if draw(st.booleans()):
            place[0][place[1]] = draw(values)
        else:
            del place[0][place[1]]
    return data


class Log(logging.Handler):
    """What is logged, as text; a line that cannot be made is an error."""

    def __init__(self, test, level=logging.WARNING):
        super().__init__(level)
        self.lines = []
        ours = logging.getLogger('secondary_scheduler')
        before = ours.level, ours.propagate
        ours.setLevel(level)
        ours.propagate = False
        ours.addHandler(self)
        test.addCleanup(ours.removeHandler, self)
        test.addCleanup(ours.setLevel, before[0])
        test.addCleanup(setattr, ours, 'propagate', before[1])

    def emit(self, record):
        self.lines.append(record.getMessage())


@st.composite
def times(draw):
    """A time from year 1 to 9999 in any zone, in any spelling; as text."""
    zone = draw(st.sampled_from(('Z', 'z', '+00:00', '-00:00', '+12:00',
                                 '-12:00', '+14:00', '+23:59', '-23:59',
                                 '+24:00', '+99:99', '', ' UTC'))
                | st.integers(-1439, 1439).map(
                    lambda minutes: '{}{:02}:{:02}'.format(
                        '-' if minutes < 0 else '+',
                        *divmod(abs(minutes), 60))))
    moment = draw(st.datetimes() | st.sampled_from((
        datetime.datetime.min, datetime.datetime.max,
        datetime.datetime(1999, 12, 31, 23, 59, 59),
        datetime.datetime(2000, 1, 1),
        datetime.datetime(2099, 12, 31, 23, 59, 59),
        datetime.datetime(2100, 1, 1))) | st.datetimes(
            datetime.datetime(2099, 12, 30), datetime.datetime(2100, 1, 2)))
    text = moment.isoformat(timespec=draw(st.sampled_from(
        ('seconds', 'seconds', 'seconds', 'microseconds', 'minutes'))))
    return draw(st.sampled_from((str, str, str, str, lambda text: text.replace(
        text[14:16], '٠٠'), lambda text: f'{text}:60', lambda text: (
            f'{text}.{"9" * 5000}'), lambda text: text.replace(
                'T', ' '))))(text) + zone


#: A day from year 1 to 9999, as text.
days = (st.dates() | st.sampled_from((
    datetime.date.min, datetime.date.max, datetime.date(2099, 12, 31),
    datetime.date(2100, 1, 1), datetime.date(1999, 12, 31)))).map(str)
