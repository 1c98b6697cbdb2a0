# SPDX-License-Identifier: Apache-2.0

"""Durations of operations of which not all run at the same time.

A duration model knows the durations of a set of operations that all start at
once.  Here an operation competes with those only that overlap with it.
"""

from collections import defaultdict
from collections.abc import Sequence

from secondary_scheduler.estimation.durations import (
    DurationInput,
    DurationModel,
)

#: Most sets of operations that are predicted for one plan.
_MOST_BATCHES = 64


def predict_overlapping(
        jobs: Sequence[DurationInput], starts: Sequence[float],
        alone: Sequence[float], durations: DurationModel,
        ongoing: Sequence[DurationInput] = ()) -> list[float]:
    """Return the duration of each operation beside those that overlap it.

    Operations with about the same start are predicted together.

    :param starts: start of each operation in seconds, by a schedule with the
        durations ``alone``
    :param alone: duration of each operation without any other
    :param ongoing: operations that are under way at second 0
    """
    ends = [start + lasting for start, lasting in zip(starts, alone,
                                                      strict=True)]
    found = [0.0] * len(jobs)
    remaining = max(durations.predict_all(ongoing), default=0.0)
    for batch in _batches(starts, max(ends, default=0.0)):
        begin = min(starts[one] for one in batch)
        end = max(ends[one] for one in batch)
        inside = set(batch)
        beside = [jobs[one] for one in range(len(jobs))
                  if one not in inside
                  and starts[one] < end and begin < ends[one]]
        if begin < remaining:
            beside += ongoing
        for one, lasting in zip(batch, durations.predict_all(
                [jobs[one] for one in batch], beside), strict=True):
            found[one] = lasting
    return found


def _batches(starts: Sequence[float], makespan: float) -> list[list[int]]:
    """Return the numbers of operations by start, in at most 64 sets."""
    grid = (makespan / _MOST_BATCHES
            if len(set(starts)) > _MOST_BATCHES else 0.0)
    found: dict[float, list[int]] = defaultdict(list)
    for number, start in enumerate(starts):
        found[start // grid if grid else start].append(number)
    return list(found.values())
