"""How long operations are expected to take.

Models behind one interface.  ``Durations`` is a profile of constants, in the
order of magnitude of small guests on shared storage.  ``ConcurrentDurations``
is Boettger's (Eq. 4.3-4.8): shared storage serialises what goes on at the
same time, so each operation of a set takes longer.  ``learning`` has a third,
fitted to what was seen.
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
    """An operation as far as its duration depends on it.

    ``source`` is the host that it burdens while an instance leaves (suspend,
    stop, shelve, migrate), ``target`` the one on which an instance arrives;
    ``memory_mb`` is the instance's, 0 if it is not known, and ``dirty`` what
    it writes to of it while it runs.
    """

    kind: str
    source: str | None = None
    target: str | None = None
    memory_mb: int = 0
    dirty: DirtyMemory = CLEAN


class DurationModel(typing.Protocol):
    """Whatever tells how long operations take, in seconds."""

    def of(self, kind: str) -> float:
        """Return the duration of an operation that is alone."""

    def of_all(self, proposed: Sequence[DurationInput],
               ongoing: Iterable[DurationInput] = ()) -> list[float]:
        """Return the duration of each proposed operation.

        All of them start now; ``ongoing`` ones are under way already.
        """


@dataclasses.dataclass(frozen=True)
class Durations:
    """Seconds by kind of operation; the fields are the kinds' values."""

    migrate: float = 5.0
    suspend: float = 3.0
    resume: float = 3.0
    stop: float = 2.0
    start: float = 5.0
    shelve: float = 10.0
    unshelve: float = 15.0

    def of(self, kind: str) -> float:
        """Return the expected duration of one operation, in seconds."""
        return float(getattr(self, kind))

    def of_all(self, proposed: Sequence[DurationInput],
               ongoing: Iterable[DurationInput] = ()) -> list[float]:
        """Return the duration of each operation, whatever else goes on."""
        return [self.of(job.kind) for job in proposed]


@dataclasses.dataclass(frozen=True)
class Concurrency:
    """How many operations go on at a time, ongoing and proposed ones.

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
    """Return how many share what an operation needs, itself included.

    ``count_stops`` as in ``ConcurrentDurations``.
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
    """Boettger's regressions, in whole seconds (Eq. 4.3-4.8, spec 3.4).

    A duration is ``base + each * n`` for n operations at the same time.  The
    migration's coefficients are those of the equations; the text of A.5 has
    them the other way round (X6).  Shelving is not in the thesis: it writes
    and reads like a suspend and a resume, after a stop and before a boot.

    ``count_stops`` makes stops count for suspends and migrations as the
    equations say literally.  By default they do not: a stop ends within two
    seconds and writes nothing, and the thesis's own example has no solution
    if they do (X8).  A stop's duration counts both either way.
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

    def of(self, kind: str) -> float:
        """Return the expected duration of an operation that is alone."""
        return self.of_all([DurationInput(kind)])[0]

    def of_all(self, proposed: Sequence[DurationInput],
               ongoing: Iterable[DurationInput] = ()) -> list[float]:
        """Return the duration of each proposed operation.

        All start now, and ongoing ones count as if they did too: staged
        starts are not in the model (spec 3.4).
        """
        counts = Concurrency.of([*proposed, *ongoing])
        return [self.among(job, counts) for job in proposed]

    def among(self, job: DurationInput, counts: Concurrency) -> float:
        """Return the duration of one of the operations that are counted."""
        base = float(getattr(self, job.kind + '_base'))
        each = float(getattr(self, job.kind + '_each'))
        # Rounding up must not turn 8.000000000000002 into 9.
        return float(math.ceil(
            base + each * rivals(job, counts, self.count_stops) - 1e-9))
