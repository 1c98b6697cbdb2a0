# SPDX-License-Identifier: Apache-2.0

"""The interface of every decision.

Drivers are stevedore entry points in ``secondary_scheduler.decisions``.  They
are constructed with ``limits``, ``durations`` and ``order``, and keep no
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

RequestKind = typing.Literal['preempt', 'return', 'drain', 'select']


@dataclasses.dataclass(frozen=True)
class SwitchOptions:
    """Options of a cluster-wide context switch.

    :param objective: one of ``estimation.switch_costs.OBJECTIVES``
    :param minimum_run_s: seconds for which a lease runs before another lease
        may displace it
    :param displacement_margin: points of the queue that a lease needs above a
        running one to displace it (points are those of priority, or seconds
        in the order ``fcfs``)
    :param headroom: part of the CPU of a host, from 0 to 1, that must be free
        in addition for a lease to start.  Leases that run may use it, so that
        a small change of demand suspends none
    :param most_operations: operations of a plan, 0 for any number.  The rest
        waits for the next decision; a lease is never cut
    """

    objective: str = 'cost'
    minimum_run_s: float = 300.0
    displacement_margin: float = 0.0
    headroom: float = 0.1
    most_operations: int = 0


@dataclasses.dataclass(frozen=True)
class DecisionRequest:
    """Request for a decision.

    * ``preempt``: end the violations of ``hosts`` (all violated ones if
      empty).
    * ``return``: return preempted and migrated instances to ``hosts`` (all if
      empty).
    * ``drain``: clear ``hosts`` (none if empty) of running secondaries.
    * ``select``: decide for all leases whether they run, and where on
      ``hosts`` (all if empty), with the options ``switch``.
    """

    kind: RequestKind
    hosts: tuple[str, ...] = ()
    switch: SwitchOptions = SwitchOptions()


class Budget:
    """Bound of the search in work units, independent of the machine.

    A unit is one examined placement, or one look for the best host.  If the
    budget is spent, a decision still protects the primary, by means that need
    no search (Boettger 2012, section 4.4.5.2: the meta-check).
    """

    def __init__(self, units: int = 100_000) -> None:
        self.units = units
        self.truncated = False

    def spend(self) -> bool:
        """Take one unit, or set ``truncated`` and return False."""
        if self.units <= 0:
            self.truncated = True
            return False
        self.units -= 1
        return True

    @contextlib.contextmanager
    def half(self) -> Iterator['Budget']:
        """Lend half of the rest; unspent units come back.

        A borrower that needs more does not make the decision truncated.
        """
        lent = self.units // 2
        part = Budget(lent)
        yield part
        self.units -= lent - part.units


class Decision(abc.ABC):
    """Makes a plan from a cluster and a request.

    ``order`` is the order in which waiting leases are served.
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
        """Return a plan, the same one for the same cluster and request.

        :param cluster: remains unchanged
        :param request: hosts that are not in the cluster are ignored
        :param budget: is spent by the search
        """
