# SPDX-License-Identifier: Apache-2.0

"""Models of the durations of operations, behind one interface.

``Durations`` is a profile of constants, in the order of magnitude of small
guests on shared storage.  ``ConcurrentDurations`` has the regressions of
Boettger 2012, eq. 4.3 to 4.8.  Shared storage serialises concurrent
operations there, so each operation of a set takes longer.  ``learning`` has
the third, which is fitted to observed operations.

These are durations of single operations on instances.  The time for all VMs of
a lease, which copy memory one after another, is computed by
``leases.scheduling.durations``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
import dataclasses
import math
import typing

from secondary_scheduler.model.cluster import CLEAN, DirtyMemory

_WRITES = frozenset({'suspend', 'shelve'})
_READS = frozenset({'resume', 'start', 'unshelve'})


class DurationInput(typing.NamedTuple):
    """Properties of an operation on which its duration depends.

    :param source: host that an instance leaves (suspend, stop, shelve,
        migrate), which bears the load of the operation
    :param target: host on which an instance arrives
    :param memory_mb: memory of the instance, 0 if it is not known
    :param dirty: memory that the instance writes to while it runs
    """

    kind: str
    source: str | None = None
    target: str | None = None
    memory_mb: int = 0
    dirty: DirtyMemory = CLEAN


class DurationModel(typing.Protocol):
    """Predicts durations of operations, in seconds."""

    def predict(self, kind: str) -> float:
        """Return the duration of a single operation."""

    def predict_all(self, proposed: Sequence[DurationInput],
               ongoing: Iterable[DurationInput] = ()) -> list[float]:
        """Return the duration of each proposed operation.

        All of them start now; ``ongoing`` operations are under way.
        """


@dataclasses.dataclass(frozen=True)
class Durations:
    """Constant seconds by kind of operation."""

    migrate: float = 5.0
    suspend: float = 3.0
    resume: float = 3.0
    stop: float = 2.0
    start: float = 5.0
    shelve: float = 10.0
    unshelve: float = 15.0

    def predict(self, kind: str) -> float:
        """Return the expected duration of an operation."""
        return float(getattr(self, kind))

    def predict_all(self, proposed: Sequence[DurationInput],
               ongoing: Iterable[DurationInput] = ()) -> list[float]:
        """Return the duration of each operation, independent of others."""
        return [self.predict(job.kind) for job in proposed]


@dataclasses.dataclass(frozen=True)
class Concurrency:
    """Numbers of concurrent operations, ongoing and proposed ones.

    ``writes`` (suspends and shelves), ``stops`` and ``reads`` (starts,
    resumes and unshelves) are cluster-wide.  By host, ``leaving`` counts
    suspends, shelves and outgoing migrations, ``stopping`` stops, and
    ``arriving`` starts, resumes, unshelves and incoming migrations.
    """

    writes: int = 0
    stops: int = 0
    reads: int = 0
    leaving: Counter[str | None] = dataclasses.field(default_factory=Counter)
    stopping: Counter[str | None] = dataclasses.field(default_factory=Counter)
    arriving: Counter[str | None] = dataclasses.field(default_factory=Counter)

    @classmethod
    def of(cls, jobs: Iterable[DurationInput]) -> 'Concurrency':
        """Count the operations of a set."""
        kinds: Counter[str] = Counter()
        leaving: Counter[str | None] = Counter()
        stopping: Counter[str | None] = Counter()
        arriving: Counter[str | None] = Counter()
        for job in jobs:
            kinds[job.kind] += 1
            if job.kind == 'stop':
                stopping[job.source] += 1
            elif job.kind in _WRITES or job.kind == 'migrate':
                leaving[job.source] += 1
            if job.kind in _READS or job.kind == 'migrate':
                arriving[job.target] += 1
        return cls(sum(kinds[kind] for kind in _WRITES), kinds['stop'],
                   sum(kinds[kind] for kind in _READS), leaving, stopping,
                   arriving)


def rivals(job: DurationInput, counts: Concurrency,
           count_stops: bool = False) -> int:
    """Return the number of operations that compete, itself included.

    ``count_stops`` is as in ``ConcurrentDurations``.
    """
    if job.kind == 'stop':
        return counts.writes + counts.stops
    if job.kind in _WRITES:
        return counts.writes + (counts.stops if count_stops else 0)
    if job.kind in _READS:
        return counts.reads
    return max(counts.leaving[job.source]
               + (counts.stopping[job.source] if count_stops else 0),
               counts.arriving[job.target])


@dataclasses.dataclass(frozen=True)
class ConcurrentDurations:
    """Regressions in whole seconds (Boettger 2012, eq. 4.3 to 4.8).

    A duration is ``base + each * n`` for n operations at the same time.  The
    coefficients of migrations are those of the equations, not of section A.5
    (see reference/errata, Boettger, duration of migrations).  Shelving is not
    in the thesis.  It writes and reads like a suspend and a resume, after a
    stop and before a boot.

    With ``count_stops``, stops count for suspends and migrations, as the
    equations literally say.  By default they do not, since a stop ends within
    two seconds and writes nothing (see reference/errata, Boettger, stops in
    parallel operations).  The duration of a stop always counts both.
    """

    suspend_base: float = 5.3
    suspend_each: float = 1.0
    stop_base: float = 0.35
    stop_each: float = 1 / 12.5
    resume_base: float = 9.2
    resume_each: float = 1.0
    start_base: float = 21.0
    start_each: float = 1.0
    migrate_base: float = 0.85
    migrate_each: float = 3.75
    shelve_base: float = 5.65
    shelve_each: float = 1.0
    unshelve_base: float = 21.0
    unshelve_each: float = 1.0
    count_stops: bool = False

    def predict(self, kind: str) -> float:
        """Return the expected duration of a single operation."""
        return self.predict_all([DurationInput(kind)])[0]

    def predict_all(self, proposed: Sequence[DurationInput],
               ongoing: Iterable[DurationInput] = ()) -> list[float]:
        """Return the duration of each proposed operation.

        All start now, and ongoing ones count as if they also did, since
        staged starts are not in the model.
        """
        counts = Concurrency.of([*proposed, *ongoing])
        return [self.among(job, counts) for job in proposed]

    def among(self, job: DurationInput, counts: Concurrency) -> float:
        """Return the duration of one of the counted operations."""
        base = float(getattr(self, job.kind + '_base'))
        each = float(getattr(self, job.kind + '_each'))
        # Rounding up must not turn 8.000000000000002 into 9.
        return float(math.ceil(
            base + each * rivals(job, counts, self.count_stops) - 1e-9))
