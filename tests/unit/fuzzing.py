# SPDX-License-Identifier: Apache-2.0

"""Nonsense for the tests that feed it to whatever reads what others wrote.

A thousand inputs for each test in CI, five thousand with ``tox -e properties``
and in ``tools/box soak``: more than 100,000 for all of them, in minutes.
"""

import copy
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
