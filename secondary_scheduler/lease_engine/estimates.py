"""How long operations take here, from those that have been seen."""

from collections.abc import Sequence
import dataclasses
import statistics

from secondary_scheduler.lease_engine.values import Kind, Took
from secondary_scheduler.leases.durations import Durations

#: Operations of a kind from which on they count, and the last ones that do.
FEWEST, LATEST = 5, 60


@dataclasses.dataclass(frozen=True)
class Estimates:
    """Durations of single operations, in seconds.

    Until enough was seen they are those that ``planned`` and ``boot_s``, the
    options, say.
    """

    planned: Durations
    boot_s: float
    took: Sequence[Took] = ()

    def of(self, kind: Kind, memory_mb: int) -> float:
        """Return how long an operation on one server is expected to take."""
        seen = self._seen(kind)
        if len(seen) < FEWEST:
            return self._planned(kind, memory_mb)
        if kind in (Kind.SUSPEND, Kind.RESUME):
            # What copies memory takes the longer the more there is of it.
            sizes = [one.memory_mb for one in seen]
            typical = statistics.median(sizes) or 1
            seconds = statistics.median(
                one.seconds * typical / (one.memory_mb or typical)
                for one in seen)
            return seconds * (memory_mb or typical) / typical
        return statistics.median(one.seconds for one in seen)

    def fitted(self) -> Durations:
        """Return durations for planning, with the rates that were seen."""
        planned = self.planned
        return dataclasses.replace(
            planned,
            suspend_rate=self._rate(Kind.SUSPEND, planned.suspend_rate),
            resume_rate=self._rate(Kind.RESUME, planned.resume_rate))

    def _rate(self, kind: Kind, otherwise: float) -> float:
        """Return MB/s beyond what a command takes."""
        seen = [one for one in self._seen(kind) if one.memory_mb]
        if len(seen) < FEWEST:
            return otherwise
        return statistics.median(
            one.memory_mb / max(0.1, one.seconds - self.planned.command)
            for one in seen)

    def _seen(self, kind: Kind) -> list[Took]:
        return [one for one in self.took if one.kind is kind][-LATEST:]

    def _planned(self, kind: Kind, memory_mb: int) -> float:
        if kind is Kind.BOOT:
            return self.boot_s
        if kind is Kind.DELETE:
            return float(self.planned.shutdown)
        rate = (self.planned.suspend_rate if kind is Kind.SUSPEND
                else self.planned.resume_rate)
        return self.planned.command + memory_mb / rate
