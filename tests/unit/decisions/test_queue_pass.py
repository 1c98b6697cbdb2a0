# SPDX-License-Identifier: Apache-2.0

"""One pass over a queue, by the lease engine and by a context switch."""

import unittest

from hypothesis import given
from hypothesis import strategies as st
import numpy as np

from secondary_scheduler.decisions.queue_pass import serve_queue
from secondary_scheduler.decisions.selection import (
    QueuedLease,
    SelectionOptions,
    select,
)
from secondary_scheduler.decisions.steady_selection import select_steadily
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.lease import Lease, NodeSet, Terms
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.scheduler import Scheduler
from secondary_scheduler.leases.scheduling.selection import InOrder
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
)

#: Seconds that each lease runs, so that no room is free again before.
DURATION = 100


class ServeQueueTest(unittest.TestCase):

    def serve(self, queue, room, **options):
        """Serve leases, which are amounts; return those that are placed."""
        placed = []

        def place(amount):
            fits = sum(placed) + amount <= room
            if fits:
                placed.append(amount)
            return fits

        return placed, serve_queue(queue, place, **options)

    def test_lease_that_does_not_fit_does_not_block_the_next(self):
        self.assertEqual(([3, 1], None), self.serve([3, 2, 1], 4))

    def test_no_lease_starts_while_room_is_kept(self):
        self.assertEqual(([3, 1], 5), self.serve(
            [3, 2, 1, 5, 0], 4, keeps_room=lambda amount: amount > 3))

    def test_leases_that_run_are_placed_while_room_is_kept(self):
        for running in ([1], [1, 7], [7, 1]):   # 7 does not fit
            with self.subTest(running):
                self.assertEqual(([3, 1], 2), self.serve(
                    [3, 2, 0, *running, 0], 4, keeps_room=lambda amount: True,
                    runs=running.__contains__))

    def test_queue_may_depend_on_what_was_placed(self):
        placed = []

        def queue():
            yield 1
            yield len(placed) + 1

        serve_queue(queue(), lambda lease: placed.append(lease) or True)
        self.assertEqual([1, 2], placed)


def leases():
    """Draw sizes of members, and their number and priority, by lease."""
    return st.lists(st.tuples(
        st.tuples(st.integers(0, 3), st.integers(1, 3)), st.integers(1, 4),
        st.integers(0, 2)), min_size=1, max_size=9)


class AgreementTest(unittest.TestCase):
    """The lease engine starts the leases that a context switch would select.

    Leases run equally long, and reservations begin first and end last.
    """

    def schedule(self, hosts, guaranteed, waiting, reservations, begin):
        """Return what a lease scheduler books: {name: hosts of members}."""
        scheduler = Scheduler(
            Site(('CPU', 'Memory'), np.array(hosts)),
            Settings(reservations=reservations, suspension=False,
                     selection=InOrder(),
                     durations=OperationTimes(shutdown=0)))
        submitted = [Lease(f'g{number}', Terms(
            (NodeSet(count, need),), 10 * DURATION, start=begin), 0)
            for number, (need, count, _) in enumerate(guaranteed)]
        submitted += [Lease(f'b{number}', Terms(
            (NodeSet(count, need),), DURATION, priority=priority), 0)
            for number, (need, count, priority) in enumerate(waiting)]
        for one in submitted:
            scheduler.submit(one)
        scheduler.fill()
        for one in submitted:
            if one.terms.start is not None and one.booking is not None:
                self.assertEqual(begin, one.booking.begin)
        return {one.id: [
            f'h{host}' for host, count in enumerate(one.booking.on)
            for _ in range(count)] for one in submitted
            if one.booking is not None and one.booking.begin <= begin}

    def configuration(self, hosts, guaranteed, waiting, booked):
        """Return members of all leases; those with a reservation run."""
        members = {}
        for kind, several in (('g', guaranteed), ('b', waiting)):
            for number, (need, count, _) in enumerate(several):
                name = f'{kind}{number}'
                places = booked.get(name) if kind == 'g' else [None] * count
                for index, host in enumerate(places or ()):
                    members[f'{name}-{index}'] = Member(
                        f'{name}-{index}', name,
                        MemberState.RUNNING if host else MemberState.WAITING,
                        host, need, (0, 0), need[1], fixed=host is not None)
        return Configuration(
            ('cpu', 'memory'), {f'h{number}': amounts for number, amounts
                                in enumerate(hosts)}, members)

    @given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)),
                    min_size=1, max_size=5),
           leases(), leases(), st.sampled_from((1, 2, None)),
           st.sampled_from((0, 5)))
    def test_engine_and_context_switch_select_the_same_leases(
            self, hosts, guaranteed, waiting, reservations, begin):
        booked = self.schedule(hosts, guaranteed, waiting, reservations,
                               begin)
        current = self.configuration(hosts, guaranteed, waiting, booked)
        queue = [QueuedLease(f'b{number}', priority)
                 for number, (_, _, priority) in sorted(
                     enumerate(waiting), key=lambda one: -one[1][2])]
        for selection in (select(current, queue), select_steadily(
                current, queue, SelectionOptions())):
            selected = {}
            for one in selection.sample.members.values():
                if one.state is MemberState.RUNNING:
                    selected.setdefault(one.lease, []).append(one.host)
            self.assertEqual(booked, selected)
