# SPDX-License-Identifier: Apache-2.0

"""Costs of a cluster-wide context switch (Hermenier 2009, section 4.2).

A local cost is memory in MiB that an operation copies.  The total cost of an
operation adds the costs of all preceding pools, and the cost of a pool is the
largest local cost in it.  The cost of a plan is the sum of the total costs of
its operations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from secondary_scheduler.estimation.switch_times import pools_s
from secondary_scheduler.model.configuration import Move, Pool
from secondary_scheduler.model.operation_kinds import OperationKind

#: How often an operation copies the memory of its member.  Other kinds do
#: not copy it (Hermenier 2009, section 4.2, table 1).
_COPIES = {
    OperationKind.MIGRATE: 1,
    OperationKind.SUSPEND: 1,
    OperationKind.RESUME: 1,
}


def local_cost(move: Move) -> int:
    """Return the memory in MiB that an operation copies.

    A resume on another host copies the memory twice.
    """
    return move.memory_mb * (2 if move.is_remote
                             else _COPIES.get(move.kind, 0))


def plan_cost(pools: Iterable[Pool]) -> int:
    """Return the sum of the total costs of all operations."""
    total = before = 0
    for pool in pools:
        costs = [local_cost(move) for move in pool]
        total += before * len(costs) + sum(costs)
        before += max(costs, default=0)
    return total


def plan_span(pools: Iterable[Pool]) -> int:
    """Return the sum of the costs of all pools."""
    return sum(max(map(local_cost, pool), default=0) for pool in pools)


def memory_moved(pools: Iterable[Pool]) -> int:
    """Return the sum of the local costs of all operations."""
    return sum(local_cost(move) for pool in pools for move in pool)


#: Objectives of an optimisation by name: costs of pools.  The time is in
#: seconds, by published durations.
OBJECTIVES: Mapping[str, Callable[[Sequence[Pool]], float]] = {
    'cost': plan_cost,
    'span': plan_span,
    'memory': memory_moved,
    'time': pools_s,
}
