# SPDX-License-Identifier: Apache-2.0

"""Operations under way, and their true durations.

The k-th of n parallel operations of a kind takes a + b k seconds, since
storage serves one after the other, times lognormal noise.  The estimate of a
decision is that all take as long as the last.

With ``congestion`` another model holds: an operation slows down while others
share its resource, whenever they began.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from secondary_scheduler.estimation.durations import ConcurrentDurations
from secondary_scheduler.plans.operations import OperationKind
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.world import NOWHERE

#: Direction in which a kind of operation uses the shared storage.
_DIRECTIONS = {
    OperationKind.SUSPEND: 'write',
    OperationKind.STOP: 'write',
    OperationKind.START: 'read',
    OperationKind.RESUME: 'read',
}


@dataclasses.dataclass(frozen=True)
class Flight:
    """An operation on an instance, with numbers of hosts; times in seconds.

    ``estimate_s`` is the duration that the decision expects.
    """

    id: int
    kind: OperationKind
    instance: int
    source: int
    target: int
    issued: float
    started: float
    estimate_s: float
    by: str
    after: frozenset[int] = frozenset()

    def remaining_s(self, now: float) -> float:
        """Return the estimated rest of the duration."""
        return max(1.0, self.estimate_s - (now - self.started))

    @property
    def hosts(self) -> set[int]:
        """Source and target, as far as there are any."""
        return {self.source, self.target} - {NOWHERE}


class TrueDurations:
    """Durations of operations in the simulated cluster."""

    def __init__(self, model: ConcurrentDurations, profile: Profile) -> None:
        self._model = model
        self._profile = profile

    def draw_s(self, flight: Flight, others: Sequence[Flight],
               random: np.random.Generator) -> float:
        """Return the duration of an operation that begins beside others."""
        place = self._count_sharing(flight, others)
        if self._profile.congestion:
            place = 1   # others slow it down while they are under way
        noise = random.normal(0.0, self._profile.noise)
        return self._lasts_s(flight.kind, place) * math.exp(noise)

    def rate(self, flight: Flight, flights: Sequence[Flight]) -> float:
        """Return the speed of one of the operations under way, 1 if alone."""
        place = self._count_sharing(flight, [
            other for other in flights if other is not flight])
        return (self._lasts_s(flight.kind, 1)
                / self._lasts_s(flight.kind, place))

    def _lasts_s(self, kind: OperationKind, place: int) -> float:
        """Return the duration of the k-th of parallel operations."""
        base: float = getattr(self._model, f'{kind}_base')
        each: float = getattr(self._model, f'{kind}_each')
        return base + each * place

    def _count_sharing(self, flight: Flight, others: Sequence[Flight]) -> int:
        """Return the number of operations on its resource, itself included."""
        if flight.kind is OperationKind.MIGRATE:
            return 1 + max(sum(host in one.hosts for one in others)
                           for host in flight.hosts)
        return 1 + sum(_DIRECTIONS.get(one.kind) == _DIRECTIONS[flight.kind]
                       for one in others)
