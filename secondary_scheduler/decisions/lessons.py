# SPDX-License-Identifier: Apache-2.0

"""Lessons from failed attempts to sequence a switch."""

import dataclasses

from secondary_scheduler.decisions.tasks import Order


@dataclasses.dataclass
class Lessons:
    """Results of failed attempts, for the next one.

    :param stays: members that cannot follow the target
    :param members: members that no bypass migrates
    :param leases: leases that no bypass suspends
    :param scripts: orders of tasks that need no bypass
    """

    stays: set[str] = dataclasses.field(default_factory=set)
    members: set[str] = dataclasses.field(default_factory=set)
    leases: set[str] = dataclasses.field(default_factory=set)
    scripts: list[list[Order]] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.stays or self.members or self.leases or self.scripts)

    def add(self, more: 'Lessons') -> None:
        """Add the lessons of a later attempt.

        New scripts alone count, since they may make the others needless.
        Otherwise scripts are found again, since their tasks may be dropped.
        """
        if more.scripts:
            self.scripts += more.scripts
        else:
            self.stays |= more.stays
            self.members |= more.members
            self.leases |= more.leases
            self.scripts = []
