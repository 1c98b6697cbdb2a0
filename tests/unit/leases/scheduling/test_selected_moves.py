# SPDX-License-Identifier: Apache-2.0

"""Properties of a schedule whose leases a context switch moves meanwhile."""

import random
import unittest

from hypothesis import given
from hypothesis import strategies as st
import numpy as np

from secondary_scheduler.decisions.selection import QueuedLease, select
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import NodeSet, Terms
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.policies import (
    LeastRun,
    NoPreemption,
)
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.types import NEVER
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
)
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.workloads.requests import TraceRequest

#: Seconds for which a context switch leaves room for the schedule, as it does
#: for holds: long enough to suspend all leases of a host.
SOON = 30


class SwitchedSimulation(LeaseSimulation):
    """A context switch moves best-effort leases whenever a lease arrives."""

    def __init__(self, site, chosen, asked, seed):
        super().__init__(site, chosen, asked)
        self.moves = 0
        self._draw = random.Random(seed)

    def _arrive(self, request):
        super()._arrive(request)
        scheduler = self.scheduler
        leases = {
            one.id: one for one in self._requests
            if one.state is LeaseState.ACTIVE and one.terms.preemptible
            and one.terms.kind is LeaseKind.BEST_EFFORT}
        sample = self._select(leases)
        for name, vms in self._placements(leases, sample):
            if any((old != new).any() for old, new in zip(
                    leases[name].booking.vms, vms, strict=True)):
                scheduler.record_move(leases[name], vms, scheduler.now)
                self.moves += 1
        assert (scheduler.table.least_free(scheduler.now, NEVER) >= 0).all()

    def _select(self, leases):
        """Return the configuration that a context switch selects."""
        table, now = self.scheduler.table, self.scheduler.now
        for one in leases.values():
            table.give(one.booking.slot)
        room = table.least_free(now, now + SOON)
        for one in leases.values():
            table.take(one.booking.slot)
        members = {}
        for name, one in leases.items():
            for index, (nodes, vms) in enumerate(zip(
                    one.terms.nodes, one.booking.vms, strict=True)):
                for number, host in enumerate(np.repeat(
                        np.arange(len(vms)), vms)):
                    member = f'{name}.{index}.{number}'
                    members[member] = Member(
                        member, name, MemberState.RUNNING, f'h{host}',
                        nodes.need, nodes.need, nodes.need[1])
        current = Configuration(
            ('cpu', 'memory'), {f'h{host}': tuple(amounts) for host, amounts
                                in enumerate(room.tolist())}, members)
        return select(current, [QueuedLease(name, self._draw.random())
                                for name in leases]).sample

    def _placements(self, leases, sample):
        """Yield the hosts of each lease in a configuration."""
        for name, one in leases.items():
            vms = tuple(np.zeros_like(each) for each in one.booking.vms)
            for member in sample.leases[name]:
                vms[int(member.name.split('.')[1])][int(member.host[1:])] += 1
            yield name, vms


settings = st.builds(
    Settings, reservations=st.sampled_from((0, 1, None)),
    preemption=st.sampled_from((LeastRun(), NoPreemption())),
    durations=st.builds(
        OperationTimes, suspend_rate=st.just(1.0), resume_rate=st.just(1.0),
        shared=st.booleans(), migration_rate=st.sampled_from((None, 1.0))))


@st.composite
def requests(draw):
    """Draw best-effort leases, and leases with a guaranteed start."""
    found = []
    for number in range(draw(st.integers(2, 12))):
        arrival = draw(st.integers(0, 200))
        kind = draw(st.sampled_from((
            LeaseKind.BEST_EFFORT, LeaseKind.BEST_EFFORT,
            LeaseKind.RESERVATION, LeaseKind.DEADLINE)))
        best_effort = kind is LeaseKind.BEST_EFFORT
        duration = draw(st.integers(*((100, 400) if best_effort
                                      else (20, 60))))
        start = None if best_effort else arrival + draw(
            st.integers(SOON + 1, 150))
        deadline = (start + 2 * duration if kind is LeaseKind.DEADLINE
                    else None)
        found.append(TraceRequest(str(number), arrival, Terms(
            (NodeSet(draw(st.integers(1, 2)),
                     (1, draw(st.integers(1, 2)))),), duration, start=start,
            deadline=deadline, preemptible=best_effort), duration))
    return found


class SelectedMovesTest(unittest.TestCase):

    @given(st.lists(st.integers(1, 2), min_size=2, max_size=4), settings,
           requests(), st.integers(0, 99))
    def test_guaranteed_starts_are_kept(self, cpus, chosen, asked, seed):
        site = Site(('CPU', 'Memory'), np.array([(one, 4) for one in cpus]))
        for one in SwitchedSimulation(site, chosen, asked, seed).run():
            lease, terms = one.lease, one.lease.terms
            if lease.state is LeaseState.REJECTED:
                continue
            self.assertIs(LeaseState.DONE, lease.state)
            self.assertEqual(terms.duration, lease.served)
            if terms.kind is LeaseKind.RESERVATION:
                self.assertEqual(terms.start, lease.started)
            elif terms.kind is LeaseKind.DEADLINE:
                self.assertLessEqual(lease.ended, terms.deadline)
