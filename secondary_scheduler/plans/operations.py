"""Operations and plans as plain values.

A plan is a dependency graph, not layers (DESIGN.md decision 11): each
operation names those that must have ended before it may start.
"""

import dataclasses
import enum


class OperationKind(enum.StrEnum):
    """What can be done to an instance (Boettger 3.2; EXPERIMENTS 1.3)."""

    MIGRATE = 'migrate'
    SUSPEND = 'suspend'
    RESUME = 'resume'
    STOP = 'stop'
    START = 'start'
    SHELVE = 'shelve'
    UNSHELVE = 'unshelve'


#: What takes an instance off its host's CPU, and what brings it back.
PREEMPTIONS = (OperationKind.SUSPEND, OperationKind.SHELVE, OperationKind.STOP)
RETURNS = (OperationKind.RESUME, OperationKind.START, OperationKind.UNSHELVE)


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation on one instance.

    ``source`` is the host it leaves (or None), ``target`` the host on which
    it runs afterwards (or None); a suspend has no target, a resume the same
    host in both.  ``start_s`` and ``duration_s`` are estimates in seconds
    from the plan's beginning.  ``deadline_s`` is the time by which the plan
    promises it to have ended for the sake of a violated policy, None if it
    promises nothing.
    """

    id: int
    kind: OperationKind
    instance: str
    lease: str
    source: str | None
    target: str | None
    start_s: float = 0.0
    duration_s: float = 0.0
    after: tuple[int, ...] = ()
    deadline_s: float | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """Operations in the order in which they were decided.

    ``unresolved`` names the hosts whose violation the plan does not end, or
    not in time;
    ``truncated`` tells that the budget ended the search.
    """

    operations: tuple[Operation, ...] = ()
    unresolved: tuple[str, ...] = ()
    truncated: bool = False

    def __bool__(self) -> bool:
        return bool(self.operations)
