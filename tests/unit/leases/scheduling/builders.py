# SPDX-License-Identifier: Apache-2.0

"""Builders of sites, leases and scheduler runs for tests."""

import numpy as np

from secondary_scheduler.leases.scheduling.lease import Lease, NodeSet, Terms
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.scheduler import Scheduler
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.table import CapacityEntry

RESOURCES = ('CPU', 'Memory')
NEED = (100, 1024)
#: Seconds to save the memory of one VM, or to load it.
SUSPENDS = 21


def site(hosts, vms=1):
    """Return identical hosts with room for ``vms`` VMs each."""
    return Site(RESOURCES, np.tile(np.array(NEED) * vms, (hosts, 1)))


def terms(nodes, duration, **other):
    return Terms((NodeSet(nodes, NEED),), duration, **other)


def lease(name, nodes, duration, submitted=0, **other):
    return Lease(name, terms(nodes, duration, **other), submitted)


def run_times(one):
    """Return the start and the end of a lease."""
    return one.started, one.ended


def withheld(start, end, *hosts, vms=1):
    """Return capacity for ``vms`` VMs on each host, without a tenant."""
    amounts = np.tile(np.array(NEED)[:, None] * vms, (1, len(hosts)))
    return CapacityEntry(start, end, np.array(hosts), amounts, tenants=0)


class Run:
    """A scheduler, with the states that its leases have entered."""

    def __init__(self, hosts, settings=None, vms=1):
        self.story = {}
        self.scheduler = Scheduler(
            hosts if isinstance(hosts, Site) else site(hosts, vms),
            settings or Settings(), notify=self._on_change)

    def _on_change(self, one, before):
        self.story.setdefault(one.id, []).append(str(one.state))

    def submit(self, *leases, at=0):
        self.scheduler.advance(at)
        for one in leases:
            one.submitted = at
            self.scheduler.submit(one)
        self.scheduler.fill()
        self.scheduler.advance(at)
        return leases[0]

    def finish(self, one, at):
        self.until(at - 1)
        self.scheduler.finish(one, at)
        self.scheduler.fill()

    def until(self, time):
        """Process all events up to a time."""
        while (due := self.scheduler.next_time()) is not None and due <= time:
            self.scheduler.advance(due)
            self.scheduler.fill()
        self.scheduler.advance(time)
