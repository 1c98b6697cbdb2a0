# SPDX-License-Identifier: Apache-2.0

"""Durations learned from completed operations.

As in the regressions of Boettger 2012, eq. 4.3 to 4.8, each kind of operation
has a line ``base + each * n``.  Here n is the number of concurrent operations
that compete with it (``durations.rivals``).  The lines are fitted again and
again to the operations of this cloud.  The duration of operations that copy
memory depends on its size, so n is in instances of typical memory there.  The
lines are Theil-Sen estimates, which are made of medians.  A single operation
that took minutes because of a failure so has no effect.

A live migration takes longer than its line by the time for copying the memory
that the instance writes to meanwhile (``precopy``).  This requires measured
values of these writes and of the bandwidth of migrations.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import itertools
import math
import statistics
import typing

from secondary_scheduler.estimation import precopy
from secondary_scheduler.estimation.durations import (
    Concurrency,
    DurationInput,
    DurationModel,
    Durations,
    rivals,
)
from secondary_scheduler.model.cluster import CLEAN, DirtyMemory

#: Fewest operations of a kind for a fit; below, the prior is used.
FEWEST = 8
#: Fraction of the operations that end within the bound.
BOUND = 0.9
#: Least difference in rivals of two operations that define a slope.
_APART = 0.5
#: Kinds of operation that copy the memory of an instance.
_COPIES = frozenset({'migrate', 'suspend', 'resume'})
#: Least fraction of a migration's time that is not attributed to writes.
_LEAST = 0.1
#: Shortest time of copying from which a rate is computed.
_LEAST_COPYING_S = 0.1
_PRIOR = Durations()


class Observed(typing.NamedTuple):
    """A successful operation; times in seconds of one clock."""

    job: DurationInput
    begin: float
    end: float


class Point(typing.NamedTuple):
    """A sample for the fit: duration and rivals of one operation.

    ``memory_mb`` is the memory of the instance, 0 if it is not known, and
    ``dirty`` the memory that it wrote to.
    """

    kind: str
    rivals: float
    seconds: float
    memory_mb: int = 0
    dirty: DirtyMemory = CLEAN


class FitMethod(typing.NamedTuple):
    """Parameters of a fit.

    :param fewest: operations of a kind below which there is no line.
    :param latest: newest operations of a kind that count; None: all.
    :param proportional: the duration of an operation that copies memory is
        proportional to the memory, with a base of 0.
    """

    fewest: int
    latest: int | None = None
    proportional: bool = False

    def newest(self, points: Sequence[Point]) -> Sequence[Point]:
        """Return the newest points, which count for the fit."""
        return points if self.latest is None else points[-self.latest:]


#: Method for plans, which know the number of concurrent operations.
PLANS = FitMethod(FEWEST)
#: Method for leases: their bookings serialize the operations on a host.
LEASES = FitMethod(5, latest=60, proportional=True)


class Line(typing.NamedTuple):
    """Line of durations of a kind, in seconds.

    :param each: slope, for an instance of ``typical_mb``
    :param bound: factor above the line within which most operations end
    :param operations: number of samples
    :param typical_mb: 0 if memory plays no part or is not known
    """

    base: float
    each: float
    bound: float
    operations: int
    typical_mb: float = 0.0

    def at(self, crowd: float, memory_mb: int = 0) -> float:
        """Return the expected duration among ``crowd`` rivals."""
        return self.base + self.each * _load(crowd, memory_mb,
                                             self.typical_mb)


class Score(typing.NamedTuple):
    """Quality of a fit, measured on held-out operations.

    ``error`` is the median of ``|estimate / true - 1|``, ``coverage`` the
    fraction that ended within the bound.
    """

    operations: int
    error: float
    coverage: float


@dataclasses.dataclass(frozen=True)
class LearnedDurations:
    """A ``DurationModel`` of fitted lines, and of the prior otherwise.

    ``bandwidth_mb_s`` is the rate at which one live migration copies memory,
    in MiB/s, None if it is not known.
    """

    lines: Mapping[str, Line] = dataclasses.field(default_factory=dict)
    prior: DurationModel = _PRIOR
    bandwidth_mb_s: float | None = None

    def predict(self, kind: str) -> float:
        """Return the expected duration of a single operation."""
        return self.predict_all([DurationInput(kind)])[0]

    def predict_all(self, proposed: Sequence[DurationInput],
               ongoing: Iterable[DurationInput] = ()) -> list[float]:
        """Return the duration of each proposed operation."""
        ongoing = list(ongoing)
        counts = Concurrency.of([*proposed, *ongoing])
        crowds = [rivals(job, counts) for job in proposed]
        return [
            (self.lines[job.kind].at(crowd, job.memory_mb)
             if job.kind in self.lines else otherwise)
            + _longer(job, crowd, self.bandwidth_mb_s)
            for job, crowd, otherwise in zip(
                proposed, crowds, self.prior.predict_all(proposed, ongoing),
                strict=True)]


def points(observed: Iterable[Observed]) -> list[Point]:
    """Return samples, with the mean number of rivals over each duration."""
    ordered = sorted(observed, key=lambda one: one.begin)
    found = []
    for one in ordered:
        if one.end <= one.begin:
            continue    # a clock was set
        among = [other for other in ordered
                 if other.begin < one.end and other.end > one.begin]
        borders = sorted({one.begin, one.end}.union(
            moment for other in among for moment in (other.begin, other.end)
            if one.begin < moment < one.end))
        crowd = sum(
            (end - begin) * rivals(one.job, Concurrency.of(
                other.job for other in among
                if other.begin < end and other.end > begin))
            for begin, end in itertools.pairwise(borders))
        seconds = one.end - one.begin
        found.append(Point(one.job.kind, crowd / seconds, seconds,
                           one.job.memory_mb, one.job.dirty))
    return found


def fit(seen: Iterable[Point], prior: DurationModel = _PRIOR,
        bandwidth_mb_s: float | None = None) -> LearnedDurations:
    """Fit the durations of plans: a line for each kind seen often enough."""
    return LearnedDurations(fit_lines(seen, PLANS, bandwidth_mb_s), prior,
                            bandwidth_mb_s)


def fit_lines(seen: Iterable[Point], method: FitMethod,
              bandwidth_mb_s: float | None = None) -> dict[str, Line]:
    """Fit a line to each kind of which ``method.fewest`` were seen.

    :param seen: operations, the oldest first.
    """
    rows = defaultdict(list)
    for point in seen:
        longer = _longer(point, point.rivals, bandwidth_mb_s)
        rows[point.kind].append(point._replace(
            seconds=max(point.seconds - longer, _LEAST * point.seconds)))
    return {kind: _line(method.newest(points), method.proportional)
            for kind, points in sorted(rows.items())
            if len(points) >= method.fewest}


def fit_copy_rate(seen: Sequence[Point], method: FitMethod,
                  overhead_s: float) -> float | None:
    """Return the median rate at which memory was copied, in MiB/s.

    :param seen: operations of one kind, the oldest first.
    :param overhead_s: part of each duration in which nothing is copied.
    :returns: None if the memory of too few operations is known.
    """
    sized = [point for point in method.newest(seen) if point.memory_mb]
    if len(sized) < method.fewest:
        return None
    return statistics.median(
        point.memory_mb / max(_LEAST_COPYING_S, point.seconds - overhead_s)
        for point in sized)


def _longer(one: DurationInput | Point, crowd: float,
            bandwidth_mb_s: float | None) -> float:
    """Return the seconds that writes add to a migration.

    Concurrent migrations share the bandwidth, and hosts queue some of them.
    So the time of a single migration is multiplied by the number of rivals.
    """
    if one.kind != 'migrate' or not bandwidth_mb_s:
        return 0.0
    return crowd * precopy.longer_s(one.memory_mb, one.dirty, bandwidth_mb_s)


def _load(crowd: float, memory_mb: int, typical_mb: float) -> float:
    """Return a number of rivals in instances of typical memory."""
    return crowd * (memory_mb / typical_mb if memory_mb and typical_mb
                    else 1.0)


def _line(points: Sequence[Point], proportional: bool) -> Line:
    sizes = [point.memory_mb for point in points
             if point.memory_mb and point.kind in _COPIES]
    typical_mb = float(statistics.median(sizes)) if sizes else 0.0
    pairs = [(_load(point.rivals, point.memory_mb, typical_mb), point.seconds)
             for point in points]
    if proportional and typical_mb:
        base, each = 0.0, statistics.median(y / x for x, y in pairs)
    else:
        base, each = _theil_sen(pairs)
    ratios = sorted(y / (base + each * x) for x, y in pairs
                    if base + each * x > 0) or [1.0]
    rank = min(len(ratios), math.ceil(BOUND * (len(ratios) + 1)))
    return Line(base, each, ratios[rank - 1], len(pairs), typical_mb)


def _theil_sen(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return base and slope, neither below 0, of a line of medians."""
    slopes = [(y2 - y1) / (x2 - x1)
              for (x1, y1), (x2, y2) in itertools.combinations(pairs, 2)
              if abs(x2 - x1) >= _APART]
    # More operations at a time never make one faster.
    each = max(0.0, statistics.median(slopes)) if slopes else 0.0
    base = statistics.median(y - each * x for x, y in pairs)
    if base < 0:    # the loads seen are too much alike for base and slope
        base, each = 0.0, statistics.median(y / x for x, y in pairs)
    return base, each


def held_out(seen: Sequence[Point], folds: int = 3,
             bandwidth_mb_s: float | None = None) -> dict[str, Score]:
    """Return the quality of fits by cross-validation, by kind.

    Consecutive operations are in different folds.
    """
    errors: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for fold in range(folds):
        lines = fit((point for number, point in enumerate(seen)
                     if number % folds != fold),
                    bandwidth_mb_s=bandwidth_mb_s).lines
        for one in seen[fold::folds]:
            if one.kind in lines:
                longer = _longer(one, one.rivals, bandwidth_mb_s)
                calm = lines[one.kind].at(one.rivals, one.memory_mb)
                errors[one.kind].append((
                    abs((calm + longer) / one.seconds - 1),
                    one.seconds <= calm * lines[one.kind].bound + longer))
    return {kind: Score(len(rows),
                        statistics.median(error for error, _ in rows),
                        statistics.fmean(within for _, within in rows))
            for kind, rows in sorted(errors.items())}
