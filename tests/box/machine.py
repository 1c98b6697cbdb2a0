# SPDX-License-Identifier: Apache-2.0

"""The time in which this machine ran.

A virtual machine that is held up for seconds (see ``tools/box/pauses.py``)
runs no test and none of what is tested: nothing can be late by those.
"""

import functools
import time

import pauses

#: The one watch of these tests; made when it is first asked for.
watch = functools.cache(pauses.Pauses)


def clock() -> float:
    """Return seconds, which stand still while the machine does."""
    return time.monotonic() - held_up()


def held_up(begin: float = 0.0) -> float:
    """Return for how many seconds the machine was held up since an instant.
    """
    return pauses.held_up(watch().read(), begin)
