# SPDX-License-Identifier: Apache-2.0

"""Rounds of decisions without durations: each switch succeeds at once.

Rounds show whether decisions come to rest, and which leases run over time.
"""

from collections.abc import Callable, Mapping
import dataclasses

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser import optimise
from secondary_scheduler.decisions.selection import (
    QueuedLease,
    SelectionOptions,
)
from secondary_scheduler.decisions.steady_selection import select_steadily
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
    Move,
)

#: Returns the points of a lease in the queue.
Points = Callable[[str], float]


@dataclasses.dataclass
class RoundTrip:
    """Decisions one after another, a period apart.

    ``headroom`` is that of the selection.  ``runs_since`` has the second
    since which each lease runs.
    """

    configuration: Configuration
    points: Points
    options: SelectionOptions = SelectionOptions()
    headroom: float = 0.0
    period_s: float = 30.0
    now: float = 0.0
    runs_since: dict[str, float] = dataclasses.field(default_factory=dict)

    def decide(self) -> tuple[Move, ...]:
        """Carry out one decision, and return its moves."""
        current = self.configuration
        queue = [QueuedLease(
            lease, self.points(lease), self.now - self.runs_since[lease]
            if lease in self.runs_since else None)
                 for lease in sorted(current.leases, key=self._rank)]
        selected = select_steadily(current, queue, self.options,
                                   self.headroom)
        found = optimise(current, selected.sample, 'cost', Budget())
        self.configuration = found.switch.reached
        self._note()
        self.now += self.period_s
        return found.switch.moves

    def change(self, members: Mapping[str, Member]) -> None:
        """Add or replace members, by name."""
        self.configuration = dataclasses.replace(
            self.configuration,
            members={**self.configuration.members, **members})

    def remove(self, lease: str) -> None:
        """Remove a lease that has ended."""
        self.configuration = dataclasses.replace(
            self.configuration, members={
                name: one for name, one in self.configuration.members.items()
                if one.lease != lease})
        self.runs_since.pop(lease, None)

    def runs(self, lease: str) -> bool:
        """Return whether all members of a lease run."""
        return all(one.state is MemberState.RUNNING
                   for one in self.configuration.leases[lease])

    def _rank(self, lease: str) -> float:
        return -self.points(lease)

    def _note(self) -> None:
        for lease in self.configuration.leases:
            if not self.runs(lease):
                self.runs_since.pop(lease, None)
            else:
                self.runs_since.setdefault(lease, self.now)


