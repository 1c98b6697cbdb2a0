"""Durations learned from operations that were carried out.

As in Boettger's regressions (Eq. 4.3-4.8) each kind has a line ``base + each
* n`` in the number of operations that go on at the same time and share what
it needs (``durations.rivals``).  His were fitted once, on his testbed, by
hand; these are fitted again and again to what the cloud at hand did.  What
copies an instance's memory takes the longer the more there is of it: there n
is in instances of typical memory.  The lines are Theil and Sen's, made of
medians: an operation that took minutes because something was down moves
nothing.

A live migration takes longer than its line says by what the instance writes
to its memory meanwhile (``precopy``), where that and the bandwidth of
migrations have been measured.
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

#: Operations of a kind below which the prior stands.
FEWEST = 8
#: Part of the operations that are to end within the bound.
BOUND = 0.9
#: Rivals by which two operations must differ to tell of a slope.
_APART = 0.5
#: What copies the memory of an instance.
_COPIES = frozenset({'migrate', 'suspend', 'resume'})
#: Part of its time that a migration keeps if it is said to be all writing.
_LEAST = 0.1
_PRIOR = Durations()


class Observed(typing.NamedTuple):
    """An operation that has succeeded; times in seconds of one clock."""

    job: DurationInput
    begin: float
    end: float


class Point(typing.NamedTuple):
    """What a line is fitted to: how long it took among how many.

    ``memory_mb`` is the instance's, 0 if it is not known, and ``dirty`` what
    it wrote to of it.
    """

    kind: str
    rivals: float
    seconds: float
    memory_mb: int = 0
    dirty: DirtyMemory = CLEAN


class Line(typing.NamedTuple):
    """A kind's duration in seconds; the bound is a factor above it.

    ``each`` is for an instance of ``typical_mb``, 0 where memory plays no
    part or is not known.
    """

    base: float
    each: float
    bound: float
    operations: int
    typical_mb: float = 0.0

    def at(self, crowd: float, memory_mb: int = 0) -> float:
        """Return the expected duration among so many, itself included."""
        return self.base + self.each * _load(crowd, memory_mb,
                                             self.typical_mb)


class Score(typing.NamedTuple):
    """How far held-out operations were from the fit to the others.

    ``error`` is the median of ``|estimate / true - 1|``, ``coverage`` the
    part that ended within the bound.
    """

    operations: int
    error: float
    coverage: float


@dataclasses.dataclass(frozen=True)
class LearnedDurations:
    """A ``DurationModel``: lines where enough was seen, else the prior.

    ``bandwidth_mb_s`` is how fast one live migration copies memory, in MiB/s,
    None if it is not known.
    """

    lines: Mapping[str, Line] = dataclasses.field(default_factory=dict)
    prior: DurationModel = _PRIOR
    bandwidth_mb_s: float | None = None

    def of(self, kind: str) -> float:
        """Return the expected duration of an operation that is alone."""
        return self.of_all([DurationInput(kind)])[0]

    def of_all(self, proposed: Sequence[DurationInput],
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
                proposed, crowds, self.prior.of_all(proposed, ongoing),
                strict=True)]


def points(observed: Iterable[Observed]) -> list[Point]:
    """Count for each operation its rivals, as the mean over its time."""
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
    """Fit a line to each kind of which at least ``FEWEST`` were seen."""
    rows = defaultdict(list)
    for point in seen:
        longer = _longer(point, point.rivals, bandwidth_mb_s)
        rows[point.kind].append(point._replace(
            seconds=max(point.seconds - longer, _LEAST * point.seconds)))
    return LearnedDurations({kind: _line(points)
                             for kind, points in sorted(rows.items())
                             if len(points) >= FEWEST}, prior, bandwidth_mb_s)


def _longer(one: DurationInput | Point, crowd: float,
            bandwidth_mb_s: float | None) -> float:
    """Return what writing adds to a migration among so many, in s.

    They share the bandwidth, and hosts do not begin all of them at a time:
    each goes on as if it was alone, for longer.
    """
    if one.kind != 'migrate' or not bandwidth_mb_s:
        return 0.0
    return crowd * precopy.longer_s(one.memory_mb, one.dirty, bandwidth_mb_s)


def _load(crowd: float, memory_mb: int, typical_mb: float) -> float:
    """Return a crowd in instances of typical memory."""
    return crowd * (memory_mb / typical_mb if memory_mb and typical_mb
                    else 1.0)


def _line(points: Sequence[Point]) -> Line:
    sizes = [point.memory_mb for point in points
             if point.memory_mb and point.kind in _COPIES]
    typical_mb = float(statistics.median(sizes)) if sizes else 0.0
    pairs = [(_load(point.rivals, point.memory_mb, typical_mb), point.seconds)
             for point in points]
    slopes = [(y2 - y1) / (x2 - x1)
              for (x1, y1), (x2, y2) in itertools.combinations(pairs, 2)
              if abs(x2 - x1) >= _APART]
    # More of them at a time never makes one faster.
    each = max(0.0, statistics.median(slopes)) if slopes else 0.0
    base = statistics.median(y - each * x for x, y in pairs)
    if base < 0:    # as many as were seen at a time cannot tell the two apart
        base, each = 0.0, statistics.median(y / x for x, y in pairs)
    ratios = sorted(y / (base + each * x) for x, y in pairs)
    rank = min(len(ratios), math.ceil(BOUND * (len(ratios) + 1)))
    return Line(base, each, ratios[rank - 1], len(ratios), typical_mb)


def held_out(seen: Sequence[Point], folds: int = 3,
             bandwidth_mb_s: float | None = None) -> dict[str, Score]:
    """Fit to all folds but one, look at that one, and so on; by kind.

    Neighbours in time are in different folds.
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
