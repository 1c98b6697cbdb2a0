# SPDX-License-Identifier: Apache-2.0

"""Expected durations of the operations on servers of leases.

They are learned from past operations (``estimation.learning``).  Until enough
operations of a kind were seen, the options count.
"""

from collections.abc import Sequence
import dataclasses
import functools

from secondary_scheduler.estimation import learning
from secondary_scheduler.leases.engine.values import LeaseOperation
from secondary_scheduler.leases.scheduling.durations import OperationTimes


@dataclasses.dataclass(frozen=True)
class Estimates:
    """Expected durations of operations on single servers.

    :param planned: durations by the options.
    :param boot_s: time of a boot by the options, in seconds.
    :param took: durations of past operations, the oldest first.
    """

    planned: OperationTimes
    boot_s: float
    took: Sequence[learning.Point] = ()

    @functools.cached_property
    def _lines(self) -> dict[str, learning.Line]:
        return learning.fit_lines(self.took, learning.LEASES)

    def expected_seconds(self, kind: LeaseOperation, memory_mb: int) -> float:
        """Return the expected duration of an operation on one server."""
        line = self._lines.get(kind)
        if line is None:
            return self._planned_seconds(kind, memory_mb)
        return line.at(1, memory_mb)

    def fitted_times(self) -> OperationTimes:
        """Return durations for the scheduler, with the rates measured."""
        return dataclasses.replace(
            self.planned,
            suspend_rate=self._copy_rate(
                LeaseOperation.SUSPEND, self.planned.suspend_rate),
            resume_rate=self._copy_rate(
                LeaseOperation.RESUME, self.planned.resume_rate))

    def _copy_rate(self, kind: LeaseOperation, planned: float) -> float:
        found = learning.fit_copy_rate(
            [one for one in self.took if one.kind == kind], learning.LEASES,
            self.planned.command)
        return planned if found is None else found

    def _planned_seconds(self, kind: LeaseOperation, memory_mb: int) -> float:
        if kind is LeaseOperation.BOOT:
            return self.boot_s
        if kind is LeaseOperation.DELETE:
            return float(self.planned.shutdown)
        rate = (self.planned.suspend_rate if kind is LeaseOperation.SUSPEND
                else self.planned.resume_rate)
        return self.planned.command + memory_mb / rate
