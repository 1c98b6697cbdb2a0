# SPDX-License-Identifier: Apache-2.0

"""Published drivers against worked examples.

The examples are placements of Kaffes 2015, section 3.2, computed
from its Tables 5.1 and 5.2.
"""

import dataclasses
import unittest

import hypothesis

from secondary_scheduler.cpu_affinity import (
    base,
    interference,
    resource,
    round_robin,
)
from secondary_scheduler.cpu_affinity.workload_profiles import (
    ResourceUse,
    SlowdownMatrix,
    WorkloadProfiles,
)
from secondary_scheduler.simulation.affinity import thesis_host
from tests.unit.cpu_affinity import hosts

PROFILES = thesis_host.PROFILES
DRIVERS = {'round-robin': round_robin.RoundRobinAffinity,
           'resource': resource.ResourceAffinity,
           'interference': interference.InterferenceAffinity}
SHORT = ('LL', 'LS', 'LL', 'HL', 'BS')


def place(driver, classes, topology=thesis_host.TOPOLOGY,
          profiles=PROFILES, options=hosts.THESIS):
    """Return the CPU of each guest."""
    return hosts.chosen(DRIVERS[driver](profiles, options).decide(
        hosts.view(classes, topology), None))


def transposed(matrix):
    """Return a matrix with the neighbour first, as it is printed."""
    return SlowdownMatrix(matrix.name, matrix.classes,
                          tuple(zip(*matrix.rows, strict=True)))


class TestRoundRobin(unittest.TestCase):
    def test_kaf_15_each_guest_gets_the_next_cpu(self):
        self.assertEqual(list(range(8)), place('round-robin', hosts.ALL))
        self.assertEqual([one % 12 for one in range(24)],
                         place('round-robin', hosts.ALL * 3))

    def test_kaf_15_idleness_and_departures_change_nothing(self):
        driver = DRIVERS['round-robin'](PROFILES, hosts.THESIS)
        view = hosts.view(hosts.ALL)
        first = driver.decide(view, None)
        rest = tuple(dataclasses.replace(one, cpu_pct=0.0)
                     for one in view.guests[3:])
        second = driver.decide(dataclasses.replace(view, guests=rest), first)
        self.assertEqual({one.name: first.sets[one.name] for one in rest},
                         second.sets)
        self.assertEqual(frozenset(), second.idle)

    def test_turns_go_on_after_departures(self):
        driver = DRIVERS['round-robin'](PROFILES, hosts.THESIS)
        view = hosts.view(hosts.ALL)
        first = driver.decide(view, None)
        late = dataclasses.replace(view.guests[0], name='late')
        second = driver.decide(dataclasses.replace(
            view, guests=(*view.guests[4:], late)), first)
        self.assertEqual((frozenset({8}),), second.sets['late'])


class TestInterference(unittest.TestCase):
    def test_kaf_19_21_estimates_of_groups_from_pairs(self):
        matrix = PROFILES.time_sharing
        for classes, expected in ((['BS'], 0.5), (['BS', 'BS'], 2.0),
                                  (['BS', 'LS'], 1.42), (['LL', 'HS'], 2.5),
                                  (['LS', 'LS', 'LS'], 1.60125)):
            with self.subTest(classes=classes):
                self.assertAlmostEqual(expected, interference.cpu_interference(
                    matrix, classes))

    def test_normalised_estimates_of_groups(self):
        for classes, expected in ((['BS'], 1.0), (['BS', 'LS'], 1.42),
                                  (['LL', 'LL', 'HL'], 1.33),
                                  (['LS', 'LS', 'LS'], 1.10),
                                  (['MS', 'MS', 'MS'], 1.38)):
            with self.subTest(classes=classes):
                self.assertAlmostEqual(expected, interference.cpu_interference(
                    PROFILES.time_sharing, classes, 'normalised'), places=2)

    def test_kaf_20_placements(self):
        self.assertEqual([0, 1, 2, 2, 0, 3, 4, 3],
                         place('interference', hosts.ALL))
        self.assertEqual([0, 1, 2, 2, 0, 3, 4, 3, 5, 6, 7, 7, 4, 8, 9, 8],
                         place('interference', hosts.ALL * 2))
        two = hosts.one_socket(2)
        self.assertEqual([0, 1, 0, 1, 0, 1, 0, 0],
                         place('interference', hosts.ALL, two))
        self.assertEqual([0, 0, 1, 1, 0], place('interference', SHORT, two))

    def test_kaf_20_threshold_is_strict(self):
        # Hadoop beside low LAMP is exactly at 1.5 in one direction.
        self.assertEqual([0, 1], place('interference', ['LL', 'HA']))
        self.assertEqual([0, 0], place(
            'interference', ['LL', 'HA'], options=base.AffinityOptions(
                interference_threshold=1.51)))

    def test_kaf_23_space_sharing_is_kept_and_does_not_count(self):
        self.assertEqual(1.68, PROFILES.space_sharing.slowdown('HL', 'HA'))
        self.assertEqual(1.01, PROFILES.space_sharing.slowdown('HA', 'HL'))
        worst = dataclasses.replace(
            PROFILES, space_sharing=SlowdownMatrix(
                'space_sharing', hosts.ALL, ((9.0,) * 8,) * 8))
        for profiles in (worst, dataclasses.replace(
                PROFILES, space_sharing=None)):
            self.assertEqual(place('interference', hosts.ALL * 2), place(
                'interference', hosts.ALL * 2, profiles=profiles))

    def test_threshold_never_admits_a_third_guest(self):
        for one in hosts.ALL:
            for other in hosts.ALL:
                for third in hosts.ALL:
                    self.assertGreaterEqual(interference.cpu_interference(
                        PROFILES.time_sharing, [one, other, third]), 1.5)

    def test_normalised_formula_packs_three_mild_guests(self):
        self.assertEqual([0, 0, 0], place(
            'interference', ['LS'] * 3, options=base.AffinityOptions(
                interference_formula='normalised')))

    def test_transposed_matrix_gives_other_estimates(self):
        printed = transposed(PROFILES.time_sharing)
        self.assertEqual(2.5, PROFILES.time_sharing.slowdown('LL', 'HS'))
        self.assertEqual(1.2, PROFILES.time_sharing.slowdown('HS', 'LL'))
        self.assertEqual(1.2, printed.slowdown('LL', 'HS'))
        self.assertEqual(2.65, PROFILES.time_sharing.slowdown('HL', 'HA'))
        # Two guests have the same estimate either way, three have not.
        for classes, right in (
                (['BS', 'LS', 'LS'], 2.4282),
                (['LL', 'HS', 'LS'], 3.4375)):
            with self.subTest(classes=classes):
                found = [interference.cpu_interference(matrix, classes)
                         for matrix in (PROFILES.time_sharing, printed)]
                self.assertAlmostEqual(right, found[0])
                self.assertNotAlmostEqual(found[0], found[1])

    def test_transposed_matrix_gives_another_placement(self):
        wrong = dataclasses.replace(
            PROFILES, time_sharing=transposed(PROFILES.time_sharing))
        two = hosts.one_socket(2)
        self.assertNotEqual(place('interference', hosts.ALL, two),
                            place('interference', hosts.ALL, two, wrong))


class TestResource(unittest.TestCase):
    def test_kaf_16_17_placements(self):
        self.assertEqual([0, 1, 2, 3, 2, 4, 5, 6],
                         place('resource', hosts.ALL))
        self.assertEqual([0, 1, 2, 3, 2, 4, 5, 6, 7, 8, 9, 10, 4, 11, 9, 11],
                         place('resource', hosts.ALL * 2))
        two = hosts.one_socket(2)
        self.assertEqual([0, 1, 0, 1, 0, 0, 0, 0],
                         place('resource', hosts.ALL, two))
        self.assertEqual([0, 0, 1, 1, 0], place('resource', SHORT, two))

    def test_default_does_not_pile_up_guests_on_the_first_cpu(self):
        classes = ['BS'] * 36
        thesis = place('resource', classes)
        default = place('resource', classes, options=hosts.OPTIONS)
        self.assertEqual(14, thesis.count(0))
        self.assertEqual({3}, {default.count(cpu) for cpu in range(12)})

    def test_kaf_18_cpu_counts_on_the_cpu_bandwidth_on_package(self):
        heavy = WorkloadProfiles(
            {'M': ResourceUse(10, 60, 0, 0)},
            SlowdownMatrix('time_sharing', ('M',), ((1.0,),)))
        # Two fill the bandwidth of a package; the third goes to the other.
        self.assertEqual([0, 0, 6, 6], place('resource', ['M'] * 4,
                                             profiles=heavy))

    def test_kaf_18_network_and_disk_count_on_the_host(self):
        heavy = WorkloadProfiles(
            {'N': ResourceUse(10, 0, 70, 0)},
            SlowdownMatrix('time_sharing', ('N',), ((1.0,),)))
        # From the second on the load is above 0 everywhere and grows equally.
        self.assertEqual([0, 0, 0], place('resource', ['N'] * 3,
                                          profiles=heavy))

    def test_kaf_7_unknown_resource_is_left_out(self):
        partly = WorkloadProfiles(
            {'A': ResourceUse(70, None), 'B': ResourceUse(70, 80)},
            SlowdownMatrix('time_sharing', ('A', 'B'), ((1, 1), (1, 1))))
        self.assertEqual([0, 1, 2], place('resource', ['A', 'A', 'A'],
                                          profiles=partly))
        # The highest known use stands in for a class that is unknown.
        self.assertEqual(80, partly.use('C').memory_bandwidth)


class TestLoop(unittest.TestCase):
    def test_kaf_9_guest_is_idle_below_the_threshold(self):
        for cpu_pct, idle in ((2.4, True), (2.5, False), (2.6, False)):
            for driver in ('resource', 'interference'):
                with self.subTest(cpu_pct=cpu_pct, driver=driver):
                    view = hosts.view(['BS', 'JA'])
                    view = dataclasses.replace(view, guests=(
                        view.guests[0], dataclasses.replace(
                            view.guests[1], cpu_pct=cpu_pct)))
                    found = DRIVERS[driver](PROFILES, hosts.THESIS).decide(
                        view, None)
                    self.assertEqual({'1'} if idle else set(), found.idle)
                    self.assertEqual([0, 0 if idle else 1],
                                     hosts.chosen(found))

    def test_kaf_10_idle_guests_share_a_cpu_and_are_no_load(self):
        view = hosts.view(['BS'] * 4)
        view = dataclasses.replace(view, guests=(
            *(dataclasses.replace(one, cpu_pct=0.0)
              for one in view.guests[:3]), view.guests[3]))
        for driver in ('resource', 'interference'):
            found = DRIVERS[driver](PROFILES, hosts.THESIS).decide(view, None)
            self.assertEqual([0, 0, 0, 0], hosts.chosen(found))

    def test_kaf_12_unchanged_sets_of_guests_change_nothing(self):
        for driver in ('resource', 'interference'):
            made = DRIVERS[driver](PROFILES, hosts.THESIS)
            first = made.decide(hosts.view(hosts.ALL), None)
            # The order of arrival alone is no reason to move guests.
            later = hosts.view(hosts.ALL, now_s=60.0)
            later = dataclasses.replace(later, guests=later.guests[::-1])
            second = made.decide(later, first)
            self.assertEqual(first.sets, second.sets)
            self.assertEqual(set(first.changed_s.values()),
                             set(second.changed_s.values()))

    def test_kaf_11_guests_are_placed_again_one_by_one(self):
        made = DRIVERS['interference'](PROFILES, hosts.THESIS)
        first = made.decide(hosts.view(hosts.ALL), None)
        later = hosts.view(hosts.ALL, now_s=60.0)
        later = dataclasses.replace(later, guests=(dataclasses.replace(
            later.guests[0], cpu_pct=0.0), *later.guests[1:]))
        second = made.decide(later, first)
        self.assertEqual([0, 0, 1, 1, 2, 2, 3, 4], hosts.chosen(second))
        self.assertEqual(60.0, second.changed_s['1'])
        self.assertEqual(0.0, second.changed_s['0'])

    def test_kaf_26_unknown_class_counts_as_the_worst(self):
        self.assertEqual([0, 1], place('interference', ['LS', 'other']))
        self.assertEqual([0, 1], place('interference', ['LS', None]))
        self.assertEqual([0, 0], place('interference', ['LS', 'LS']))
        self.assertEqual(('other', None), PROFILES.unknown_classes(
            ['LS', 'other', None, 'other']))

    def test_vcpus_of_a_guest_get_different_cpus_while_there_are_any(self):
        for name, driver in DRIVERS.items():
            with self.subTest(name):
                view = hosts.view(['LS'], hosts.one_socket(3))
                view = dataclasses.replace(view, guests=(dataclasses.replace(
                    view.guests[0], vcpus=4),))
                sets = driver(PROFILES, hosts.THESIS).decide(
                    view, None).sets['0']
                self.assertEqual(4, len(sets))
                self.assertEqual(3, len(frozenset().union(*sets)))

    def test_wrong_guests_are_named(self):
        view = hosts.view(['LS', 'BS'])
        for guests, text in (
                ([dataclasses.replace(view.guests[0], usable=frozenset())],
                 '0: it may use no CPU'),
                ([dataclasses.replace(view.guests[0],
                                      usable=frozenset({99}))],
                 '0: it may use CPUs that the topology does not have'),
                ([dataclasses.replace(view.guests[0], vcpus=0)],
                 '0: expected at least one vCPU, not 0'),
                (view.guests[:1] * 2, '0: two guests have this name')):
            for name, driver in DRIVERS.items():
                with self.subTest(text, driver=name), self.assertRaisesRegex(
                        ValueError, text):
                    driver(PROFILES, hosts.THESIS).decide(
                        dataclasses.replace(view, guests=tuple(guests)), None)


class TestOptions(unittest.TestCase):

    def test_wrong_options_are_named(self):
        for name, value, text in (
                ('idle_below_pct', -1, 'from 0 to 100, not -1'),
                ('interference_threshold', 0.9, 'from 1 to 1000'),
                ('interference_threshold', float('nan'), 'not NaN'),
                ('resource_tie_break', 'first', 'least-loaded or thesis'),
                ('interference_formula', 'sum', 'thesis or normalised')):
            with self.subTest(name), self.assertRaisesRegex(
                    ValueError, f'{name}: expected .*{text}'):
                base.AffinityOptions(**{name: value})


class TestProperties(unittest.TestCase):
    """Properties on 1 to 256 CPUs."""

    @hypothesis.given(hosts.views())
    def test_kaf_13_14_sets_are_one_usable_cpu_and_stable(self, drawn):
        view, dedicated = drawn
        for name, driver in DRIVERS.items():
            made = driver(PROFILES, hosts.OPTIONS)
            first = made.decide(view, None)
            self.assertEqual([one.name for one in view.guests],
                             list(first.sets), name)
            for guest in view.guests:
                self.assertEqual(guest.vcpus, len(first.sets[guest.name]))
                for cpus in first.sets[guest.name]:
                    self.assertEqual(1, len(cpus), name)
                    self.assertLessEqual(cpus, guest.usable, name)
                    self.assertFalse(cpus & dedicated, name)
                    self.assertLessEqual(cpus, first.pool, name)
            again = made.decide(dataclasses.replace(
                view, now_s=view.now_s + 60), first)
            self.assertEqual(first, again, name)
