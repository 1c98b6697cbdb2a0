# SPDX-License-Identifier: Apache-2.0

"""Plan of a characterisation, and profiles from its results."""

import unittest

from secondary_scheduler.cpu_affinity import characterisation as plan
from secondary_scheduler.cpu_affinity.characterisation import Run, Speed
from secondary_scheduler.cpu_affinity.measurements import Place
from secondary_scheduler.cpu_affinity.workload_profiles import ResourceUse
from secondary_scheduler.model.topology import SharedCache, Topology

SAME, BESIDE = Place.SAME_CPU, Place.SAME_CACHE


def sets(*parts):
    return tuple(map(frozenset, parts))


#: Two packages of two cores of two threads.
WIDE = Topology(
    sets((0, 1), (2, 3), (4, 5), (6, 7)),
    (SharedCache(3, frozenset({0, 1, 2, 3})),
     SharedCache(3, frozenset({4, 5, 6, 7}))),
    *(sets((0, 1, 2, 3), (4, 5, 6, 7)),) * 3)


class SeatsTest(unittest.TestCase):

    def test_neighbours_are_near_and_far(self):
        seats = plan.choose_seats(WIDE, WIDE.cpus)
        self.assertEqual((0, {SAME: 0, Place.SIBLING: 1, BESIDE: 2,
                              Place.OTHER_CACHE: 4}, ()), seats)

    def test_guests_get_only_cpus_that_they_may_use(self):
        # CPU 1 has no sibling left, and CPU 5 neither.
        seats = plan.choose_seats(WIDE, frozenset({1, 5, 6, 7}))
        self.assertEqual((6, {SAME: 6, Place.SIBLING: 7, BESIDE: 5,
                              Place.OTHER_CACHE: 1}, ()), seats)

    def test_places_that_the_host_lacks_are_unknown_with_the_reason(self):
        one = Topology(sets((0,), (1,)), (SharedCache(3, frozenset({0, 1})),),
                       *(sets((0, 1)),) * 3)
        seats = plan.choose_seats(one, one.cpus)
        self.assertEqual({SAME: 0, BESIDE: 1}, seats.others)
        self.assertEqual(('SMT sibling: one thread per core',
                          'other cache: one cache for all CPUs'),
                         seats.unknown)
        narrow = plan.choose_seats(one, frozenset({1}))
        self.assertIn('same cache: no CPU there that the guests may use',
                      narrow.unknown)
        blind = Topology(sets((0,), (1,)), None, *(sets((0, 1)),) * 3,
                         unknown=('caches (no such file)',))
        seats = plan.choose_seats(blind, blind.cpus)
        self.assertEqual({SAME: 0}, seats.others)
        self.assertIn('same cache: no cache that several cores share; caches '
                      '(no such file)', seats.unknown)


class PlanTest(unittest.TestCase):

    def setUp(self):
        self.seats = plan.choose_seats(WIDE, WIDE.cpus)

    def test_each_guest_meets_each_generator_at_each_place(self):
        runs = plan.plan_runs(('u',), self.seats, 3, False)
        self.assertEqual(3 * (1 + 4 * len(plan.GENERATORS)), len(runs))
        self.assertEqual(3, sum(run.place is None for run in runs))
        self.assertEqual({(run.place, run.generator[1]) for run in runs
                          if run.generator}, set(self.seats.others.items()))

    def test_each_pair_meets_on_one_cpu_and_on_two(self):
        runs = plan.plan_runs(('u', 'v', 'w'), self.seats, 2, True)
        self.assertEqual(2 * (3 + 3 * 2), len(runs))
        self.assertIn(Run(1, {'u': 0, 'w': 0}, SAME), runs)
        self.assertIn(Run(0, {'v': 0, 'w': 2}, BESIDE), runs)
        self.assertFalse(any(run.generator for run in runs))


def speed(work, cpu=100.0, stretch=1.0):
    return Speed(ResourceUse(cpu), stretch, work)


class ResultsTest(unittest.TestCase):

    classes = {'u': 'web', 'v': 'batch'}

    def test_kaf_23_matrix_has_the_victim_first(self):
        results = [(Run(0, {'u': 0}), {'u': speed(100)}),
                   (Run(0, {'v': 0}), {'v': speed(10)}),
                   (Run(0, {'u': 0, 'v': 0}, SAME), {
                       'u': speed(80), 'v': speed(4)})]
        found = plan.measured_slowdowns(results, self.classes)
        matrix = plan.slowdown_matrix('time_sharing', ('web', 'batch'), found,
                                      SAME)
        self.assertEqual(1.25, matrix.entry('web', 'batch'))
        self.assertEqual(2.5, matrix.entry('batch', 'web'))
        self.assertIsNone(matrix.entry('web', 'web'))
        self.assertIsNone(plan.slowdown_matrix(
            'space_sharing', ('web', 'batch'), found, BESIDE))

    def test_drift_of_the_host_cancels_out(self):
        results = [one for repeat, factor in enumerate((1, 3, 2)) for one in (
            (Run(repeat, {'u': 0}), {'u': speed(100 * factor)}),
            (Run(repeat, {'u': 0, 'v': 2}, BESIDE), {
                'u': speed(50 * factor)}))]
        one, = plan.measured_slowdowns(results, self.classes)
        self.assertEqual((2.0, 2.0, 2.0), one.values)
        self.assertEqual(0.0, one.deviation)

    def test_noise_below_one_counts_as_one(self):
        results = [(Run(0, {'u': 0}), {'u': speed(100)}),
                   (Run(0, {'u': 0, 'v': 2}, BESIDE), {'u': speed(110)})]
        found = plan.measured_slowdowns(results, self.classes)
        self.assertLess(found[0].median, 1.0)
        self.assertEqual(1.0, plan.slowdown_matrix(
            'space_sharing', ('web', 'batch'), found, BESIDE).entry(
                'web', 'batch'))

    def test_two_guests_of_a_class_show_it_beside_itself(self):
        results = [(Run(0, {'u': 0}), {'u': speed(100)}),
                   (Run(0, {'v': 0}), {'v': speed(100)}),
                   (Run(0, {'u': 0, 'v': 0}, SAME), {
                       'u': speed(50), 'v': speed(25)})]
        one, = plan.measured_slowdowns(results, {'u': 'web', 'v': 'web'})
        self.assertEqual(('web', 'web', SAME, (2.0, 4.0)),
                         (*one.key, one.values))

    def test_without_work_waiting_shows_sharing_of_time_only(self):
        alone, shared = speed(None), speed(None, 50, 2.0)
        self.assertEqual(2.0, alone.slowdown_beside(shared, SAME))
        self.assertIsNone(alone.slowdown_beside(shared, BESIDE))
        self.assertIsNone(alone.slowdown_beside(
            Speed(ResourceUse(None), None, None), SAME))

    def test_cpu_time_for_a_unit_shows_harm_without_the_sharing(self):
        results = [(Run(0, {'u': 0}), {'u': speed(100)}),
                   (Run(0, {'u': 0, 'v': 0}, SAME), {'u': speed(40, 50)})]
        one, = plan.measured_slowdowns(results, self.classes)
        self.assertEqual((2.5,), one.values)
        self.assertEqual((1.25,), one.cpu_values)

    def test_kaf_22_uses_are_those_alone(self):
        generator = plan.GENERATORS[0]
        uses = (ResourceUse(59.04, None, 4.0), ResourceUse(70, None, 6.0),
                ResourceUse(58, None, None))
        results = [(Run(repeat, {'u': 0}), {'u': Speed(use, 1.0, 1.0)})
                   for repeat, use in enumerate(uses)]
        results += [(Run(0, {'u': 0}, SAME, (generator, 0)),
                     {'u': speed(1, 30)}),
                    (Run(0, {'v': 0}), {'v': speed(None, None)})]
        found = plan.measured_uses(results, self.classes)
        self.assertEqual({
            'web': ResourceUse(59.0, None, 5.0), 'batch': ResourceUse(None),
            'stress-ng:cpu-25': ResourceUse(25.0)}, found)


if __name__ == '__main__':
    unittest.main()
