# SPDX-License-Identifier: Apache-2.0

"""Properties of the schedule that hold for every mix of leases."""

import dataclasses
import os
import unittest

import hypothesis
from hypothesis import strategies as st
import numpy as np

from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.images import Preparation
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import NodeSet, Terms
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.policies import (
    LeastRun,
    MostSlack,
    NoPreemption,
    Youngest,
)
from secondary_scheduler.leases.scheduling.pricing import Constant
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.model.lease_states import FINAL, LeaseState
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.workloads.requests import TraceRequest

MEMORY = 4
#: MB by image; a transfer takes as many seconds, or twice as many.
IMAGES = {'': 0, 'a': 3, 'b': 7}
settings = st.builds(
    Settings,
    reservations=st.sampled_from((0, 1, 2, None)),
    suspension=st.booleans(),
    minimum_run_factor=st.sampled_from((0.0, 1.0)),
    slack=st.sampled_from((1.0, 2.0)),
    preemption=st.sampled_from(
        (NoPreemption(), LeastRun(), Youngest(), MostSlack())
    ),
    preparation=st.sampled_from(
        (
            None,
            Preparation(1.0, joins=False),
            Preparation(0.5),
            Preparation(1.0, pool_mb=7),
        )
    ),
    durations=st.builds(
        OperationTimes,
        suspend_rate=st.sampled_from((0.7, 4.0)),
        resume_rate=st.sampled_from((0.9, 4.0)),
        shared=st.booleans(),
        command=st.sampled_from((0.0, 1.0)),
        shutdown=st.integers(0, 3),
        migration_rate=st.sampled_from((None, 0.0, 1.0)),
    ),
)


@st.composite
def sites(draw):
    """Draw hosts; in some sites they have several CPUs as units."""
    hosts = draw(st.integers(1, 4))
    several = draw(st.sampled_from((1, 3)))
    cpus = np.array(
        draw(
            st.lists(
                st.tuples(
                    st.integers(1, 3), *[st.integers(0, 2)] * (several - 1)
                ),
                min_size=hosts,
                max_size=hosts,
            )
        )
    )
    memory = draw(st.lists(st.integers(4, 12), min_size=hosts, max_size=hosts))
    return Site(
        ('CPU', 'Memory'),
        np.column_stack((cpus.sum(axis=1), memory)),
        units={0: cpus} if several > 1 else {},
    )


@st.composite
def node_sets(draw):
    parts = draw(st.sampled_from(((1,), (1,), (1, 1), (2, 1), (2,))))
    return NodeSet(
        draw(st.integers(1, 3)),
        (sum(parts), draw(st.integers(1, MEMORY))),
        units={0: parts} if len(parts) > 1 else {},
    )


@st.composite
def requests(draw, name):
    arrival = draw(st.integers(0, 60))
    duration = draw(st.integers(1, 60))
    nodes = tuple(draw(st.lists(node_sets(), min_size=1, max_size=2)))
    kind = draw(st.sampled_from(list(LeaseKind)))
    start = deadline = None
    if kind is LeaseKind.RESERVATION or (
        kind is LeaseKind.DEADLINE and draw(st.booleans())
    ):
        start = arrival + draw(st.integers(0, 60))
    if kind is LeaseKind.DEADLINE:
        deadline = (
            (arrival if start is None else start)
            + duration
            + draw(st.integers(1, 120))
        )
    image = draw(st.sampled_from(list(IMAGES)))
    return TraceRequest(
        name,
        arrival,
        Terms(
            nodes,
            duration,
            start=start,
            deadline=deadline,
            image=image or None,
            image_mb=IMAGES[image],
            immediate=kind is LeaseKind.IMMEDIATE,
            preemptible=draw(st.booleans()),
        ),
        draw(st.integers(1, duration)),
    )


workloads = st.integers(1, 12).flatmap(
    lambda number: st.tuples(
        *(requests(str(index)) for index in range(number))
    )
)


class RecordedSimulation(LeaseSimulation):
    """Records the capacity that each lease holds, and the disk operations."""

    def __init__(self, site, chosen, asked):
        self.held, self.saving = [], []
        super().__init__(site, chosen, asked)
        self._current = {}

    def _hear(self, lease, before):
        super()._hear(lease, before)
        now = self.scheduler.now
        begun, was = self._current.pop(lease.id, (now, None))
        if was is not None:
            if was[0] in HOLDS and now > begun:
                self.held.append((begun, now, was[1], lease))
            if was[0] is LeaseState.SUSPENDING and now > begun:
                self.saving.append((begun, now, was[1], lease))
            if was[0] is LeaseState.RESUMING and was[1].operations:
                # It may have waited for the disk before.
                self.saving.append(
                    (was[1].operations[0].start, now, was[1], lease)
                )
        booking = lease.booking
        self._current[lease.id] = (now, (lease.state, booking))


HOLDS = (LeaseState.ACTIVE, LeaseState.SUSPENDING, LeaseState.RESUMING)
MIXES = int(os.environ.get('LEASE_MIXES', '300'))
#: Hypothesis keeps all examples of a run in memory: one run of 100,000 takes
#: eight times as long as ten of 10,000, and a gigabyte.
AT_ONCE = 10_000


def mixes(number):
    """Draw so many examples for a test of a class ``in_parts``."""
    parts = -(-number // AT_ONCE)

    def decorate(test):
        test.parts = parts
        return hypothesis.settings(
            max_examples=-(-number // parts), deadline=None
        )(test)

    return decorate


def in_parts(case):
    """Repeat each test of many examples as often as it has parts."""
    for name, test in list(vars(case).items()):
        if getattr(test, 'parts', 1) > 1:
            delattr(case, name)
            for part in range(test.parts):
                setattr(case, f'{name}_{part}', test)
    return case


def assert_capacity_holds(site, held):
    for time in {begun for begun, *_ in held}:
        used = np.zeros_like(site.capacity)
        counted = np.zeros_like(site.columns)
        for begun, ended, booking, lease in held:
            if begun <= time < ended:
                for nodes, vms in zip(
                    lease.terms.nodes, booking.vms, strict=True
                ):
                    used += np.outer(vms, nodes.need)
                counted[booking.slot.hosts] += booking.slot.amounts.T
        assert (counted <= site.columns).all(), (time, held)
        assert (used == counted[:, :2]).all(), (time, held)
        if site.units:
            assert (used[:, 0] == counted[:, 2:].sum(axis=1)).all()


def assert_exclusive(shared, saving):
    for index, (begun, ended, booking, _) in enumerate(saving):
        for other_begun, other_ended, other, _ in saving[:index]:
            if begun < other_ended and other_begun < ended:
                assert not shared
                assert not (booking.on * other.on).any()


def outcomes(site, chosen, asked):
    """Return the final attributes of all leases."""
    return [
        vars(one.lease)
        | {'booking': None, 'terms': None, 'hosts': one.lease.hosts.tolist()}
        for one in LeaseSimulation(site, chosen, asked).run()
    ]


@st.composite
def patient(draw, name):
    duration = draw(st.integers(1, 40))
    return TraceRequest(
        name,
        draw(st.integers(0, 10)),
        Terms((NodeSet(draw(st.integers(1, 4)), (1, 1)),), duration),
        draw(st.integers(1, duration)),
    )


class PlannedStartSimulation(LeaseSimulation):
    """Asserts that no planned start moves later."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.starts = {}

    def _hear(self, lease, before):
        super()._hear(lease, before)
        for one in self.scheduler._state.planned.values():
            assert one.booking.begin <= self.starts.get(one, one.booking.begin)
            self.starts[one] = one.booking.begin
        if lease.state is LeaseState.ACTIVE:
            assert lease.started <= self.starts.get(lease, lease.started)


@st.composite
def urgent(draw, name):
    arrival = draw(st.integers(0, 40))
    start = arrival + draw(st.integers(0, 20))
    duration = draw(st.integers(1, 40))
    return TraceRequest(
        name,
        arrival,
        Terms(
            (NodeSet(draw(st.integers(1, 3)), (1, 1)),),
            duration,
            start=start,
            deadline=start + duration + draw(st.integers(1, 80)),
        ),
        duration,
    )


def earliest_deadline_first(hosts, now, running, asked):
    """Return whether all deadlines are met, the earliest first.

    ``running`` are (host, time at which it is free).  No lease is preempted;
    each begins as early as possible on the first free hosts.
    """
    busy = np.zeros((hosts, 400), dtype=bool)
    for host, until in running:
        busy[host, :until] = True
    busy[:, :now] = True
    for terms in sorted(asked, key=lambda one: one.deadline):
        for start in range(max(terms.start, now), 400 - terms.duration):
            free = np.flatnonzero(
                ~busy[:, start : start + terms.duration].any(axis=1)
            )
            if len(free) >= terms.numbers[0]:
                busy[
                    free[: terms.numbers[0]], start : start + terms.duration
                ] = True
                break
        if start + terms.duration > terms.deadline:
            return False
    return True


class ComparedSimulation(LeaseSimulation):
    """Asserts that leases feasible by earliest deadline first are accepted."""

    def _arrive(self, request):
        scheduler = self.scheduler
        booked = scheduler._state.booked.values()
        running = [
            (host, one.booking.end)
            for one in booked
            if not one.ahead
            for host in one.booking.slot.hosts
        ]
        ahead = [one.terms for one in booked if one.ahead]
        could = earliest_deadline_first(
            scheduler.table.hosts,
            scheduler.now,
            running,
            [*ahead, request.terms],
        )
        super()._arrive(request)
        lease = [one for one in self._requests if one.id == request.id][0]
        if could:
            assert lease.state is not LeaseState.REJECTED


@in_parts
class SchedulePropertiesTest(unittest.TestCase):
    @mixes(MIXES)
    @hypothesis.given(sites(), settings, workloads)
    def test_terms_are_met_and_capacity_is_never_exceeded(
        self, site, chosen, asked
    ):
        simulation = RecordedSimulation(site, chosen, asked)
        outcomes = simulation.run()
        for one in outcomes:
            lease = one.lease
            terms = lease.terms
            self.assertIn(lease.state, FINAL, lease)
            if lease.state is LeaseState.REJECTED:
                continue
            # Lost work has been repeated.
            self.assertEqual(one.request.runs, lease.served)
            if terms.kind is LeaseKind.RESERVATION:
                self.assertEqual(terms.start, lease.started)
            if terms.kind is LeaseKind.IMMEDIATE:
                sent = (
                    0
                    if chosen.preparation is None
                    else chosen.preparation.seconds(terms)
                )
                self.assertLessEqual(0, lease.started - lease.submitted)
                self.assertLessEqual(lease.started - lease.submitted, sent)
            if terms.kind is LeaseKind.DEADLINE:
                self.assertLessEqual(lease.ended, terms.deadline)
            if terms.start is not None:
                self.assertGreaterEqual(lease.started, terms.start)
            if not terms.preemptible or not chosen.suspension:
                self.assertFalse(lease.suspends)
            if terms.kind in (LeaseKind.RESERVATION, LeaseKind.IMMEDIATE):
                self.assertFalse(lease.suspends)
                self.assertFalse(lease.requeues)
        assert_capacity_holds(site, simulation.held)
        assert_exclusive(chosen.durations.shared, simulation.saving)
        # The table is empty again.
        table = simulation.scheduler.table
        tenants, free, _ = table.state_at(simulation.scheduler.now + 10_000)
        self.assertFalse(tenants.any())
        self.assertTrue((free == site.columns.T).all())

    @hypothesis.given(sites(), requests('a'))
    def test_lease_that_fits_an_empty_site_is_accepted(self, site, request):
        (outcome,) = LeaseSimulation(site, Settings(), [request]).run()
        fits = LeaseSimulation(
            site,
            Settings(),
            [
                TraceRequest(
                    'b',
                    0,
                    Terms(request.terms.nodes, request.terms.duration),
                    1,
                )
            ],
        ).run()
        rejected = outcome.lease.state is LeaseState.REJECTED
        self.assertEqual(fits[0].lease.state is LeaseState.REJECTED, rejected)

    @mixes(MIXES // 3)
    @hypothesis.given(
        sites(), settings, workloads, st.sets(st.integers(0, 11))
    )
    def test_rejected_attempts_leave_no_trace(
        self, site, chosen, asked, tried
    ):
        """A lease refused for its rate has no effect, as an infeasible one."""
        chosen = dataclasses.replace(chosen, pricing=Constant(1.0))

        def left(**refused):
            return [
                one
                for one in outcomes(
                    site,
                    chosen,
                    [
                        dataclasses.replace(
                            one,
                            terms=dataclasses.replace(one.terms, **refused),
                        )
                        if index in tried
                        else one
                        for index, one in enumerate(asked)
                    ],
                )
                if int(one['id']) not in tried
            ]

        self.assertEqual(
            left(nodes=(NodeSet(99, (1, 1)),)), left(max_rate=0.5)
        )

    @mixes(MIXES // 3)
    @hypothesis.given(sites(), settings, workloads)
    def test_two_units_used_alike_equal_one_resource(
        self, site, chosen, asked
    ):
        one = Site(site.resources, site.capacity * (2, 1))
        two = dataclasses.replace(
            one, units={0: np.repeat(site.capacity[:, :1], 2, axis=1)}
        )

        def twice(nodes, several):
            cpu, memory = nodes.need
            return dataclasses.replace(
                nodes,
                need=(2 * cpu, memory),
                units={0: (cpu, cpu)} if several else {},
            )

        def left(site):
            return [
                each | {'reason': None}
                for each in outcomes(
                    site,
                    chosen,
                    [
                        dataclasses.replace(
                            each,
                            terms=dataclasses.replace(
                                each.terms,
                                nodes=tuple(
                                    twice(nodes, bool(site.units))
                                    for nodes in each.terms.nodes
                                ),
                            ),
                        )
                        for each in asked
                    ],
                )
            ]

        self.assertEqual(left(two), left(one))

    @mixes(MIXES)
    @hypothesis.given(
        st.sampled_from((2, None)),
        st.tuples(*(patient(str(index)) for index in range(10))),
    )
    def test_planned_starts_never_move_later(self, reservations, asked):
        PlannedStartSimulation(
            Site(('CPU', 'Memory'), np.ones((4, 2), dtype=int)),
            Settings(reservations=reservations, suspension=False),
            asked,
        ).run()

    @mixes(MIXES)
    @hypothesis.given(
        st.integers(1, 4),
        st.integers(2, 10).flatmap(
            lambda number: st.tuples(
                *(urgent(str(index)) for index in range(number))
            )
        ),
    )
    def test_leases_feasible_by_earliest_deadline_first_are_accepted(
        self, hosts, asked
    ):
        asked = [one for one in asked if one.terms.numbers[0] <= hosts]
        ComparedSimulation(
            Site(('CPU', 'Memory'), np.ones((hosts, 2), dtype=int)),
            Settings(),
            asked,
        ).run()
