# SPDX-License-Identifier: Apache-2.0

"""Data that a live migration copies beyond the guest's memory (pre-copy).

While the first round copies all memory, the guest writes to some of it.  The
next round copies the pages written meanwhile, and so on.  The guest is paused
when the rest is small enough (Sliwko 2019, section 2.1).  This never happens
if the guest writes faster than memory is copied.  Its agent, if
it knows of the migration, then takes it to the floor, where it hardly writes.
"""

from collections.abc import Iterator
import functools
import math

from secondary_scheduler.model.cluster import DirtyMemory

#: Rounds after which a guest counts as not converging.
ROUNDS = 30
#: Seconds for which a guest may be paused.  Nova begins with one eleventh of
#: live_migration_downtime, and reaches the rest within tens of minutes.
DOWNTIME_S = 0.5 / 11


def longer_s(memory_mb: float, dirty: DirtyMemory,
             bandwidth_mb_s: float) -> float:
    """Return the extra seconds of a migration due to the guest's writes.

    ``bandwidth_mb_s`` is the rate of copying memory, in MiB/s.
    """
    rounds = list(_rounds(memory_mb, dirty, bandwidth_mb_s))
    if not _fits(rounds[-1], bandwidth_mb_s):
        return 0.0
    return sum(rounds[1:]) / bandwidth_mb_s


def converges(memory_mb: float, dirty: DirtyMemory,
              bandwidth_mb_s: float) -> bool:
    """Return whether the rest becomes small enough to pause the guest."""
    *_before, last = _rounds(memory_mb, dirty, bandwidth_mb_s)
    return _fits(last, bandwidth_mb_s)


def written_mb(dirty: DirtyMemory, seconds: float) -> float:
    """Return the memory written to in a time, each page counted once.

    The guest is assumed to write at random in a working set of W MiB.  With a
    fraction q still unwritten after a second, it has written to W (1 - q^t)
    after t seconds.
    """
    if dirty.in_1s <= 0:
        return seconds * dirty.in_5s / 5
    left = _left_after_a_second(dirty.in_5s / dirty.in_1s)
    if left == 1:
        return seconds * dirty.in_1s
    return dirty.in_1s * (1 - math.pow(left, seconds)) / (1 - left)


def _fits(left_mb: float, bandwidth_mb_s: float) -> bool:
    return left_mb <= DOWNTIME_S * bandwidth_mb_s


def _rounds(memory_mb: float, dirty: DirtyMemory, bandwidth_mb_s: float
            ) -> Iterator[float]:
    """Yield the MiB that each round copies; the last one is in the pause."""
    left = float(memory_mb)
    yield left
    for _round in range(ROUNDS):
        if _fits(left, bandwidth_mb_s):
            return
        left = min(memory_mb, written_mb(dirty, left / bandwidth_mb_s))
        yield left


@functools.lru_cache
def _left_after_a_second(growth: float) -> float:
    """Return q, given the ratio of memory written to in 5 s and in 1 s.

    The ratio is (1 - q^5) / (1 - q) = 1 + q + q^2 + q^3 + q^4.
    """
    if growth >= 5:
        return 1.0
    low, high = 0.0, 1.0
    for _half in range(40):
        middle = (low + high) / 2
        if sum(middle**power for power in range(5)) < growth:
            low = middle
        else:
            high = middle
    return low
