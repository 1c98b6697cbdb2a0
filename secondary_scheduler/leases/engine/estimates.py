"""How long operations take here, from those that have been seen."""

from collections.abc import Sequence
import dataclasses
import statistics

from secondary_scheduler.leases.engine.values import LeaseOperation, Took
from secondary_scheduler.leases.scheduling.durations import OperationTimes

#: Operations of a kind from which on they count, and the last ones that do.
FEWEST, LATEST = 5, 60


@dataclasses.dataclass(frozen=True)
class Estimates:
    """Durations of single operations, in seconds.

    Until enough was seen they are those that ``planned`` and ``boot_s``, the
    options, say.
    """

    planned: OperationTimes
    boot_s: float
    took: Sequence[Took] = ()

    def of(self, kind: LeaseOperation, memory_mb: int) -> float:
        """Return how long an operation on one server is expected to take."""
        seen = self._seen(kind)
        if len(seen) < FEWEST:
            return self._planned(kind, memory_mb)
        if kind in (LeaseOperation.SUSPEND, LeaseOperation.RESUME):
            # What copies memory takes the longer the more there is of it.
            sizes = [one.memory_mb for one in seen]
            typical = statistics.median(sizes) or 1
            seconds = statistics.median(
                one.seconds * typical / (one.memory_mb or typical)
                for one in seen)
            return seconds * (memory_mb or typical) / typical
        return statistics.median(one.seconds for one in seen)

    def fitted(self) -> OperationTimes:
        """Return durations for planning, with the rates that were seen."""
        planned = self.planned
        return dataclasses.replace(
            planned,
            suspend_rate=self._rate(
                LeaseOperation.SUSPEND, planned.suspend_rate),
            resume_rate=self._rate(LeaseOperation.RESUME, planned.resume_rate))

    def _rate(self, kind: LeaseOperation, otherwise: float) -> float:
        """Return MB/s beyond what a command takes."""
        seen = [one for one in self._seen(kind) if one.memory_mb]
        if len(seen) < FEWEST:
            return otherwise
        return statistics.median(
            one.memory_mb / max(0.1, one.seconds - self.planned.command)
            for one in seen)

    def _seen(self, kind: LeaseOperation) -> list[Took]:
        return [one for one in self.took if one.kind is kind][-LATEST:]

    def _planned(self, kind: LeaseOperation, memory_mb: int) -> float:
        if kind is LeaseOperation.BOOT:
            return self.boot_s
        if kind is LeaseOperation.DELETE:
            return float(self.planned.shutdown)
        rate = (self.planned.suspend_rate if kind is LeaseOperation.SUSPEND
                else self.planned.resume_rate)
        return self.planned.command + memory_mb / rate
