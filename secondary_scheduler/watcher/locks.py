"""What decisions must leave alone, and what goes on there."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Begun:
    """An operation of a plan that is not finished; ``age`` in seconds."""

    kind: str
    instance: str
    source: str | None
    target: str | None
    age: float


@dataclasses.dataclass(frozen=True)
class Locks:
    """What must be left alone: operated on now, or in its back-off.

    Who rests, after an operation that has succeeded, does so for dynamic
    policies only.  Pinned instances may be operated on, but not migrated.
    Stuck ones could not be brought up and stubborn ones not be taken down, so
    that nothing which can wait tries it again yet.  ``begun`` are the
    operations of plans that an applier carries out or will.
    """

    busy_instances: frozenset[str] = frozenset()
    busy_hosts: frozenset[str] = frozenset()
    cooling_down_instances: frozenset[str] = frozenset()
    cooling_down_hosts: frozenset[str] = frozenset()
    failed_instances: frozenset[str] = frozenset()
    migration_failed_instances: frozenset[str] = frozenset()
    return_failed_instances: frozenset[str] = frozenset()
    preempt_failed_instances: frozenset[str] = frozenset()
    begun: tuple[Begun, ...] = ()

    @property
    def instances(self) -> frozenset[str]:
        """Instances no decision may touch now."""
        return (self.busy_instances | self.cooling_down_instances
                | self.failed_instances)

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts no decision may touch now."""
        return self.busy_hosts | self.cooling_down_hosts
