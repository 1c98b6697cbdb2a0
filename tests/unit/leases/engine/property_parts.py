# SPDX-License-Identifier: Apache-2.0

"""Division of a long property test into parts that run in parallel."""

import hypothesis

_EXAMPLES = max(300, hypothesis.settings().max_examples)
_PARTS = -(-_EXAMPLES // 1000)

#: Settings of one part.
settings = hypothesis.settings(max_examples=_EXAMPLES // _PARTS, deadline=None)


def add_parts(case, name, make_check):
    """Add a test for each part to a test case.

    :param name: name of the tests, without their numbers.
    :param make_check: makes a property test without arguments.  Each part
        needs one of its own, since hypothesis keeps the state of a run in it.
    """
    for part in range(_PARTS):
        check = make_check()
        setattr(case, f'{name}_{part}', lambda self, check=check: check())
