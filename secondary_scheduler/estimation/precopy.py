"""What a live migration copies beyond the memory there is (pre-copy).

While a first round copies all memory the guest writes to some of it; the next
round copies what was written meanwhile, and so on, until the rest is so little
that the guest can be paused for it (Sliwko 2.1; ``PrecopyCostModel`` of the
specification, 9.5).  A guest that writes faster than memory is copied never
gets there; it is taken to give up after ``ROUNDS``.
"""

from collections.abc import Iterator

from secondary_scheduler.model.cluster import DirtyMemory

#: Rounds after which no guest is expected to be there any more.
ROUNDS = 30
#: Seconds for which a guest may be paused: Nova's live_migration_downtime.
DOWNTIME_S = 0.5


def copied_mb(memory_mb: float, dirty: DirtyMemory,
              bandwidth_mb_s: float) -> float:
    """Return what is copied in all, in MiB.

    What a round copies was written to in the time of the one before, and is
    at most all memory.  ``bandwidth_mb_s`` is in MiB/s.
    """
    return sum(_rounds(memory_mb, dirty, bandwidth_mb_s))


def converges(memory_mb: float, dirty: DirtyMemory,
              bandwidth_mb_s: float) -> bool:
    """Tell whether so little is left at last that the guest can be paused."""
    return any(_fits(left, bandwidth_mb_s)
               for left in _rounds(memory_mb, dirty, bandwidth_mb_s))


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
        left = min(memory_mb, dirty.within(left / bandwidth_mb_s))
        yield left


def longer_s(memory_mb: float, dirty: DirtyMemory,
             bandwidth_mb_s: float) -> float:
    """Return how much longer it takes than if nothing was written to."""
    return (copied_mb(memory_mb, dirty, bandwidth_mb_s) - memory_mb
            ) / bandwidth_mb_s
