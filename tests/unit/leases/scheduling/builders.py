"""Sites and leases for tests, in one line."""

import numpy as np

from secondary_scheduler.leases.scheduling.lease import Lease, NodeSet, Terms
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.scheduler import Scheduler
from secondary_scheduler.leases.scheduling.site import Site

RESOURCES = ('CPU', 'Memory')
NEED = (100, 1024)


def site(hosts, vms=1):
    """Return hosts that are alike and hold so many VMs each."""
    return Site(RESOURCES, np.tile(np.array(NEED) * vms, (hosts, 1)))


def terms(nodes, duration, **other):
    return Terms((NodeSet(nodes, NEED),), duration, **other)


def lease(name, nodes, duration, submitted=0, **other):
    return Lease(name, terms(nodes, duration, **other), submitted)


class Run:
    """A scheduler, and the states its leases went through."""

    def __init__(self, hosts, settings=None, vms=1):
        self.story = {}
        self.scheduler = Scheduler(
            hosts if isinstance(hosts, Site) else site(hosts, vms),
            settings or Settings(), notify=self._hear)

    def _hear(self, one, before):
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
        """Let time pass."""
        while (due := self.scheduler.next_time()) is not None and due <= time:
            self.scheduler.advance(due)
            self.scheduler.fill()
        self.scheduler.advance(time)
