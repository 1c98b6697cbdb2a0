# SPDX-License-Identifier: Apache-2.0

"""Decisions come to rest, and no lease starves in the order ``aged``."""

from collections import Counter
import dataclasses
import random
import unittest

from secondary_scheduler.decisions.selection import SelectionOptions
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
)
from secondary_scheduler.model.lease_order import PRIORITY, Aged
from secondary_scheduler.model.operation_kinds import OperationKind
from secondary_scheduler.simulation.switches.rounds import RoundTrip
from secondary_scheduler.simulation.workloads import switches

HOUR_S = 3600


def waiting(lease, number, milli_cpus=1000):
    """Return waiting members of a lease."""
    return {f'{lease}-{one}': Member(
        f'{lease}-{one}', lease, MemberState.WAITING, None,
        (milli_cpus, 512), (0, 0), 512) for one in range(number)}


def suspended(moves):
    """Return the leases that moves suspend."""
    return {one.lease for one in moves
            if one.kind is OperationKind.SUSPEND}


class TestRest(unittest.TestCase):

    def test_constant_demand_has_nothing_to_do_from_the_third_round_on(self):
        for in_place in (False, True):
            for seed in range(1, 6):
                with self.subTest(seed=seed, in_place=in_place):
                    current, queue = switches.draw(seed, 108, hosts=30,
                                                   busy=0.9)
                    trip = RoundTrip(
                        dataclasses.replace(current,
                                            resumes_in_place=in_place),
                        lambda lease, queue=queue: -queue.index(lease))
                    counts = [len(trip.decide()) for _round in range(6)]
                    self.assertGreater(counts[0], 0)
                    self.assertEqual([0] * 4, counts[2:])

    def test_varying_demand_suspends_each_lease_at_most_once_an_hour(self):
        for seed in range(1, 4):
            rng = random.Random(seed)
            members = {}
            for lease in range(20):
                members |= waiting(f'lease{lease}', 4)
            trip = RoundTrip(
                Configuration(('cpu', 'memory'), {
                    f'host{one}': (8000, 8192) for one in range(9)},
                    members),
                lambda lease: -int(lease.removeprefix('lease')),
                SelectionOptions(minimum_run_s=600, margin=20), headroom=0.1)
            counts = Counter()
            started = 0
            for _round in range(HOUR_S // 30):
                trip.change({name: dataclasses.replace(
                    one, demand=(round(1000 * rng.uniform(0.9, 1.1)), 512))
                    for name, one in trip.configuration.members.items()})
                counts.update(suspended(trip.decide()))
                started = max(started, len(trip.runs_since))
            with self.subTest(seed=seed):
                self.assertGreaterEqual(started, 15)
                self.assertLessEqual(max(counts.values(), default=0), 1)


class TestStarvation(unittest.TestCase):

    def large_runs(self, order):
        """Return whether a large lease runs within an hour.

        A small one of higher priority arrives every minute, for four minutes;
        together they leave room for half of the large one.
        """
        arrived = {'large': 0.0}
        priorities = {'large': 0.0}

        def points(lease):
            return -order.rank(priorities[lease], arrived[lease])[0]

        trip = RoundTrip(Configuration(
            ('cpu', 'memory'), {f'host{one}': (1000, 4096)
                                for one in range(8)}, waiting('large', 8)),
            points, SelectionOptions(minimum_run_s=120))
        ends = {}
        trip.change(waiting('small0', 1))
        arrived['small0'], priorities['small0'] = 0.0, 1.0
        number = 0
        while trip.now < HOUR_S:
            if not trip.now % 60 and trip.now:
                number += 1
                lease = f'small{number}'
                arrived[lease], priorities[lease] = trip.now, 1.0
                trip.change(waiting(lease, 1))
            trip.decide()
            if 'large' in trip.runs_since:
                return True
            for lease in list(trip.runs_since):
                if ends.setdefault(lease, trip.now + 240) <= trip.now:
                    trip.remove(lease)
        return False

    def test_large_lease_runs_within_an_hour_if_it_is_aged(self):
        self.assertTrue(self.large_runs(Aged(2.0)))

    def test_large_lease_starves_without_ageing(self):
        self.assertFalse(self.large_runs(PRIORITY))
