"""The interface of every decision.

Drivers are stevedore entry points in ``secondary_scheduler.decisions``; they
are constructed with ``limits``, ``durations`` and ``order``, and hold no
state from one decision to the next.
"""

import abc
from collections.abc import Iterator
import contextlib
import dataclasses
import typing

from secondary_scheduler.estimation.durations import (
    DurationModel,
    Durations,
)
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import Cluster
from secondary_scheduler.model.lease_order import PRIORITY, QueueOrder
from secondary_scheduler.plans.operations import Plan

NAMESPACE = 'secondary_scheduler.decisions'

RequestKind = typing.Literal['preempt', 'return', 'drain']


@dataclasses.dataclass(frozen=True)
class DecisionRequest:
    """What is asked for.

    ``preempt``: end the violations of ``hosts`` (all violated ones if
    empty); ``return``: bring back on ``hosts`` (all if empty) what was
    preempted or moved away; ``drain``: clear ``hosts`` (none if empty) of
    running secondaries.
    """

    kind: RequestKind
    hosts: tuple[str, ...] = ()


class Budget:
    """Bounds the search in work units, so that it is the same everywhere.

    A unit is one placement examined, or one look for the best.  When the
    budget is spent a decision still protects the primary, by means that need
    no search (Boettger 3.13: the meta-check).
    """

    def __init__(self, units: int = 100_000) -> None:
        self.units = units
        self.truncated = False

    def spend(self) -> bool:
        """Take one unit; False, and ``truncated``, if none is left."""
        if self.units <= 0:
            self.truncated = True
            return False
        self.units -= 1
        return True

    @contextlib.contextmanager
    def half(self) -> Iterator['Budget']:
        """Lend half of what is left; what is not spent comes back.

        A borrower that wants more does not make the decision truncated.
        """
        lent = self.units // 2
        part = Budget(lent)
        yield part
        self.units -= lent - part.units


class Decision(abc.ABC):
    """Turns a cluster and a request into a plan.

    ``order`` is that in which leases that wait are served.
    """

    def __init__(self, limits: LoadLimits | None = None,
                 durations: DurationModel | None = None, *,
                 order: QueueOrder = PRIORITY) -> None:
        self.limits = limits or LoadLimits()
        self.durations: DurationModel = durations or Durations()
        self.order = order

    @abc.abstractmethod
    def decide(self, cluster: Cluster, request: DecisionRequest,
               budget: Budget) -> Plan:
        """Return a plan; the same cluster and request give the same one.

        Nothing is changed in ``cluster``; hosts that are asked for but not
        in it are ignored.  The budget is used up along the way.
        """
