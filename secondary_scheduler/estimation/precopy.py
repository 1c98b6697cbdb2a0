"""What a live migration copies beyond the memory there is (pre-copy).

While a first round copies all memory the guest writes to some of it; the next
round copies what was written meanwhile, and so on, until the rest is so little
that the guest can be paused for it (Sliwko 2.1; ``PrecopyCostModel`` of the
specification, 9.5).  A guest that writes faster than memory is copied never
gets there: its agent takes it to the floor for the migration, where it hardly
writes, if it knows.
"""

from collections.abc import Iterator
import functools
import math

from secondary_scheduler.model.cluster import DirtyMemory

#: Rounds after which no guest is expected to be there any more.
ROUNDS = 30
#: Seconds for which a guest may be paused: where Nova begins, the eleventh
#: part of live_migration_downtime; the rest comes within tens of minutes.
DOWNTIME_S = 0.5 / 11


def longer_s(memory_mb: float, dirty: DirtyMemory,
             bandwidth_mb_s: float) -> float:
    """Return how much longer it takes than if nothing was written to.

    ``bandwidth_mb_s`` is how fast memory is copied, in MiB/s.
    """
    rounds = list(_rounds(memory_mb, dirty, bandwidth_mb_s))
    if not _fits(rounds[-1], bandwidth_mb_s):
        return 0.0
    return sum(rounds[1:]) / bandwidth_mb_s


def converges(memory_mb: float, dirty: DirtyMemory,
              bandwidth_mb_s: float) -> bool:
    """Tell whether so little is left at last that the guest can be paused."""
    *_before, last = _rounds(memory_mb, dirty, bandwidth_mb_s)
    return _fits(last, bandwidth_mb_s)


def written_mb(dirty: DirtyMemory, seconds: float) -> float:
    """Return how much is written to in a time, each page counted once.

    A guest that writes here and there in a working set of W MiB, of which q
    is left after a second, has written to W (1 - q^t) after t seconds.
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
    """Yield what each round copies, in MiB; the last one in the pause."""
    left = float(memory_mb)
    yield left
    for _round in range(ROUNDS):
        if _fits(left, bandwidth_mb_s):
            return
        left = min(memory_mb, written_mb(dirty, left / bandwidth_mb_s))
        yield left


@functools.lru_cache
def _left_after_a_second(growth: float) -> float:
    """Return q from how much more is written to in 5 s than in 1 s.

    That is (1 - q^5) / (1 - q) = 1 + q + q^2 + q^3 + q^4.
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
