"""What holds for every mix of leases, whatever it is."""

import dataclasses
import os

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.images import Preparation
from secondary_scheduler.leases.scheduling.lease import Kind, NodeSet, Terms
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
#: In MB; one is sent in as many seconds, or in twice as many.
IMAGES = {'': 0, 'a': 3, 'b': 7}
settings = st.builds(
    Settings, reservations=st.sampled_from((0, 1, 2, None)),
    suspension=st.booleans(), worthwhile=st.sampled_from((0.0, 1.0)),
    slack=st.sampled_from((1.0, 2.0)),
    preemption=st.sampled_from((NoPreemption(), LeastRun(), Youngest(),
                                MostSlack())),
    preparation=st.sampled_from((
        None, Preparation(1.0, joins=False), Preparation(0.5),
        Preparation(1.0, pool_mb=7))),
    durations=st.builds(
        OperationTimes, suspend_rate=st.sampled_from((0.7, 4.0)),
        resume_rate=st.sampled_from((0.9, 4.0)), shared=st.booleans(),
        command=st.sampled_from((0.0, 1.0)), shutdown=st.integers(0, 3),
        migration_rate=st.sampled_from((None, 0.0, 1.0))))


@st.composite
def sites(draw):
    """Return some hosts; the CPUs of some sites are several instances."""
    hosts = draw(st.integers(1, 4))
    several = draw(st.sampled_from((1, 3)))
    cpus = np.array(draw(st.lists(
        st.tuples(st.integers(1, 3), *[st.integers(0, 2)] * (several - 1)),
        min_size=hosts, max_size=hosts)))
    memory = draw(st.lists(st.integers(4, 12), min_size=hosts,
                           max_size=hosts))
    return Site(('CPU', 'Memory'), np.column_stack((cpus.sum(axis=1),
                                                    memory)),
                instances={0: cpus} if several > 1 else {})


@st.composite
def node_sets(draw):
    parts = draw(st.sampled_from(((1,), (1,), (1, 1), (2, 1), (2,))))
    return NodeSet(draw(st.integers(1, 3)),
                   (sum(parts), draw(st.integers(1, MEMORY))),
                   instances={0: parts} if len(parts) > 1 else {})


@st.composite
def requests(draw, name):
    arrival = draw(st.integers(0, 60))
    duration = draw(st.integers(1, 60))
    nodes = tuple(draw(st.lists(node_sets(), min_size=1, max_size=2)))
    kind = draw(st.sampled_from(list(Kind)))
    start = deadline = None
    if kind is Kind.RESERVATION or (kind is Kind.DEADLINE
                                    and draw(st.booleans())):
        start = arrival + draw(st.integers(0, 60))
    if kind is Kind.DEADLINE:
        deadline = (arrival if start is None else start) + duration + draw(
            st.integers(1, 120))
    image = draw(st.sampled_from(list(IMAGES)))
    return TraceRequest(name, arrival, Terms(
        nodes, duration, start=start, deadline=deadline,
        image=image or None, image_mb=IMAGES[image],
        immediate=kind is Kind.IMMEDIATE, preemptible=draw(st.booleans())),
        draw(st.integers(1, duration)))


workloads = st.integers(1, 12).flatmap(lambda number: st.tuples(
    *(requests(str(index)) for index in range(number))))


class Watched(LeaseSimulation):
    """Notes what each lease held in truth, second by second."""

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
                self.saving.append((was[1].operations[0].start, now, was[1],
                                    lease))
        booking = lease.booking
        self._current[lease.id] = (now, (lease.state, booking))


HOLDS = (LeaseState.ACTIVE, LeaseState.SUSPENDING, LeaseState.RESUMING)
MIXES = int(os.environ.get('LEASE_MIXES', '300'))
#: Hypothesis remembers what it has drawn: 100,000 at once take it eight times
#: as long as ten times 10,000, and a gigabyte.
AT_ONCE = 10_000


def mixes(number):
    """Draw so many examples for a test, in parts; it is told which."""
    parts = -(-number // AT_ONCE)

    def decorate(test):
        return pytest.mark.parametrize('part', range(parts))(
            hypothesis.settings(max_examples=-(-number // parts),
                                deadline=None)(test))
    return decorate


@mixes(MIXES)
@hypothesis.given(sites(), settings, workloads)
def test_every_promise_is_kept(part, site, chosen, asked):
    simulation = Watched(site, chosen, asked)
    outcomes = simulation.run()
    for one in outcomes:
        lease = one.lease
        terms = lease.terms
        assert lease.state in FINAL, lease
        if lease.state is LeaseState.REJECTED:
            continue
        # Work is conserved: what was lost has been done again.
        assert lease.served == one.request.runs
        if terms.kind is Kind.RESERVATION:
            assert lease.started == terms.start
        if terms.kind is Kind.IMMEDIATE:
            sent = (0 if chosen.preparation is None
                    else chosen.preparation.seconds(terms))
            assert 0 <= lease.started - lease.submitted <= sent
        if terms.kind is Kind.DEADLINE:
            assert lease.ended <= terms.deadline
        if terms.start is not None:
            assert lease.started >= terms.start
        if not terms.preemptible or not chosen.suspension:
            assert not lease.suspends
        if terms.kind in (Kind.RESERVATION, Kind.IMMEDIATE):
            assert not lease.suspends and not lease.requeues
    capacity_holds(site, simulation.held)
    exclusive(chosen.durations.shared, simulation.saving)
    # The table is empty again.
    table = simulation.scheduler.table
    tenants, free, _ = table.at(simulation.scheduler.now + 10_000)
    assert not tenants.any() and (free == site.columns.T).all()


def capacity_holds(site, held):
    for time in {begun for begun, *_ in held}:
        used = np.zeros_like(site.capacity)
        counted = np.zeros_like(site.columns)
        for begun, ended, booking, lease in held:
            if begun <= time < ended:
                for nodes, vms in zip(lease.terms.nodes, booking.vms,
                                      strict=True):
                    used += np.outer(vms, nodes.need)
                counted[booking.slot.hosts] += booking.slot.amounts.T
        assert (counted <= site.columns).all(), (time, held)
        assert (used == counted[:, :2]).all(), (time, held)
        if site.instances:
            assert (used[:, 0] == counted[:, 2:].sum(axis=1)).all()


def exclusive(shared, saving):
    for index, (begun, ended, booking, _) in enumerate(saving):
        for other_begun, other_ended, other, _ in saving[:index]:
            if begun < other_ended and other_begun < ended:
                assert not shared
                assert not (booking.on * other.on).any()


@hypothesis.given(sites(), requests('a'))
def test_what_fits_an_empty_site_is_accepted(site, request):
    outcome, = LeaseSimulation(site, Settings(), [request]).run()
    fits = LeaseSimulation(site, Settings(), [TraceRequest(
        'b', 0, Terms(request.terms.nodes, request.terms.duration), 1)]).run()
    rejected = outcome.lease.state is LeaseState.REJECTED
    assert rejected == (fits[0].lease.state is LeaseState.REJECTED)


@mixes(MIXES // 3)
@hypothesis.given(sites(), settings, workloads, st.sets(st.integers(0, 11)))
def test_what_was_only_tried_leaves_no_trace(part, site, chosen, asked, tried):
    """A price that is refused is as a lease that no site could hold."""
    chosen = dataclasses.replace(chosen, pricing=Constant(1.0))

    def left(**refused):
        return [one for one in outcomes(site, chosen, [
            dataclasses.replace(one, terms=dataclasses.replace(
                one.terms, **refused)) if index in tried else one
            for index, one in enumerate(asked)])
                if int(one['id']) not in tried]

    assert left(max_rate=0.5) == left(nodes=(NodeSet(99, (1, 1)),))


def outcomes(site, chosen, asked):
    """Return what has become of leases."""
    return [vars(one.lease) | {'stay': None, 'terms': None,
                               'hosts': one.lease.hosts.tolist()}
            for one in LeaseSimulation(site, chosen, asked).run()]


@mixes(MIXES // 3)
@hypothesis.given(sites(), settings, workloads)
def test_two_cpus_of_which_all_take_the_same_are_as_one(part, site, chosen,
                                                        asked):
    one = Site(site.resources, site.capacity * (2, 1))
    two = dataclasses.replace(one, instances={
        0: np.repeat(site.capacity[:, :1], 2, axis=1)})

    def twice(nodes, several):
        cpu, memory = nodes.need
        return dataclasses.replace(
            nodes, need=(2 * cpu, memory),
            instances={0: (cpu, cpu)} if several else {})

    def left(site):
        return [each | {'reason': None} for each in outcomes(site, chosen, [
            dataclasses.replace(each, terms=dataclasses.replace(
                each.terms, nodes=tuple(
                    twice(nodes, bool(site.instances))
                    for nodes in each.terms.nodes))) for each in asked])]

    assert left(one) == left(two)


# -- best effort, in its order

@st.composite
def patient(draw, name):
    duration = draw(st.integers(1, 40))
    return TraceRequest(name, draw(st.integers(0, 10)), Terms(
        (NodeSet(draw(st.integers(1, 4)), (1, 1)),), duration),
        draw(st.integers(1, duration)))


class Promised(LeaseSimulation):
    """Nobody who waits is promised a later time than before."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.times = {}

    def _hear(self, lease, before):
        super()._hear(lease, before)
        for one in self.scheduler._holdings.promised.values():
            assert one.booking.begin <= self.times.get(one, one.booking.begin)
            self.times[one] = one.booking.begin
        if lease.state is LeaseState.ACTIVE:
            assert lease.started <= self.times.get(lease, lease.started)


@mixes(MIXES)
@hypothesis.given(st.sampled_from((2, None)), st.tuples(
    *(patient(str(index)) for index in range(10))))
def test_no_promise_to_who_waits_is_put_off(part, reservations, asked):
    Promised(Site(('CPU', 'Memory'), np.ones((4, 2), dtype=int)),
             Settings(reservations=reservations, suspension=False), asked
             ).run()


# -- deadlines, beside the common order

@st.composite
def urgent(draw, name):
    arrival = draw(st.integers(0, 40))
    start = arrival + draw(st.integers(0, 20))
    duration = draw(st.integers(1, 40))
    return TraceRequest(name, arrival, Terms(
        (NodeSet(draw(st.integers(1, 3)), (1, 1)),), duration, start=start,
        deadline=start + duration + draw(st.integers(1, 80))), duration)


def earliest_deadline_first(hosts, now, running, asked):
    """Tell whether all meet their deadlines if the first is served first.

    ``running`` are the times at which hosts get free; nobody is interrupted,
    and each begins as early as it can on the first hosts that will do.
    """
    busy = np.zeros((hosts, 400), dtype=bool)
    for host, until in running:
        busy[host, :until] = True
    busy[:, :now] = True
    for terms in sorted(asked, key=lambda one: one.deadline):
        for start in range(max(terms.start, now), 400 - terms.duration):
            free = np.flatnonzero(
                ~busy[:, start:start + terms.duration].any(axis=1))
            if len(free) >= terms.numbers[0]:
                busy[free[:terms.numbers[0]],
                     start:start + terms.duration] = True
                break
        if start + terms.duration > terms.deadline:
            return False
    return True


class Compared(LeaseSimulation):
    """Whatever the common order could take is taken."""

    def _arrive(self, request):
        scheduler = self.scheduler
        staying = scheduler._holdings.staying.values()
        running = [(host, one.booking.end) for one in staying if not one.ahead
                   for host in one.booking.slot.hosts]
        ahead = [one.terms for one in staying if one.ahead]
        could = earliest_deadline_first(
            scheduler.table.hosts, scheduler.now, running,
            [*ahead, request.terms])
        super()._arrive(request)
        lease = [one for one in self._requests if one.id == request.id][0]
        if could:
            assert lease.state is not LeaseState.REJECTED


@mixes(MIXES)
@hypothesis.given(st.integers(1, 4), st.integers(2, 10).flatmap(
    lambda number: st.tuples(*(urgent(str(index))
                               for index in range(number)))))
def test_no_deadline_is_refused_that_the_common_order_meets(part, hosts,
                                                            asked):
    asked = [one for one in asked if one.terms.numbers[0] <= hosts]
    Compared(Site(('CPU', 'Memory'), np.ones((hosts, 2), dtype=int)),
             Settings(), asked).run()
