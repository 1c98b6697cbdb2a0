# SPDX-License-Identifier: Apache-2.0

"""Instances and hosts that decisions must not touch, and why."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Begun:
    """An unfinished operation of a launched plan.

    ``age`` is the time since the operation was planned, in seconds.
    """

    kind: str
    instance: str
    source: str | None
    target: str | None
    age: float


@dataclasses.dataclass(frozen=True)
class Locks:
    """Instances and hosts that decisions must not touch, or only in part.

    Instances:

    * ``busy_instances``: an operation of a plan is unfinished.
    * ``cooling_down_instances``: an operation succeeded within the last
      ``backoff`` seconds.  Only operations for static policies touch them.
    * ``just_failed_instances``: a preemption failed within the last
      ``backoff`` seconds.
    * ``migration_failed_instances``: a live migration failed within the last
      ``backoff`` seconds.  They may be suspended but not migrated.
    * ``return_failed_instances``: a return failed.  Not retried until the end
      of an exponential back-off.
    * ``preempt_failed_instances``: a preemption failed.  Until the end of an
      exponential back-off, no operation that can wait touches them.

    Hosts:

    * ``busy_hosts``: source or target of an unfinished operation.
    * ``cooling_down_hosts``: source or target of an operation that succeeded
      within the last ``backoff`` seconds.

    Neither kind of host is a target.  Violations of dynamic policies there
    are left to the agent; those of static policies are not.

    ``begun`` are the unfinished operations of launched plans.
    """

    busy_instances: frozenset[str] = frozenset()
    busy_hosts: frozenset[str] = frozenset()
    cooling_down_instances: frozenset[str] = frozenset()
    cooling_down_hosts: frozenset[str] = frozenset()
    just_failed_instances: frozenset[str] = frozenset()
    migration_failed_instances: frozenset[str] = frozenset()
    return_failed_instances: frozenset[str] = frozenset()
    preempt_failed_instances: frozenset[str] = frozenset()
    begun: tuple[Begun, ...] = ()

    @property
    def instances(self) -> frozenset[str]:
        """Instances that are busy, cooling down, or failed to preempt."""
        return (self.busy_instances | self.cooling_down_instances
                | self.just_failed_instances)

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts that are busy or cooling down."""
        return self.busy_hosts | self.cooling_down_hosts
