# SPDX-License-Identifier: Apache-2.0

"""Prediction for one more secondary on a host."""

import dataclasses
import math
import time
import unittest

import hypothesis

from secondary_scheduler.cpu_affinity import base, interference, pool
from secondary_scheduler.cpu_affinity.host_prediction import HostPredictor
from secondary_scheduler.cpu_affinity.workload_profiles import SlowdownMatrix
from secondary_scheduler.model.topology import (
    SharedCache,
    Topology,
    singletons,
)
from secondary_scheduler.simulation.affinity import thesis_host
from tests.unit.cpu_affinity import hosts

PROFILES = thesis_host.PROFILES
TIME, SPACE = PROFILES.time_sharing, PROFILES.space_sharing
PREDICTOR = HostPredictor(PROFILES, hosts.OPTIONS)
DRIVER = pool.PoolAffinity(PROFILES, hosts.OPTIONS)
SIMPLE = interference.InterferenceAffinity(PROFILES, hosts.OPTIONS)
#: Drawing large hosts takes long.
FEWER = hypothesis.settings(
    max_examples=max(30, hypothesis.settings().max_examples // 10))


def predict(view, driver=DRIVER, usable=None, predictor=PREDICTOR):
    """Return the predictions beside what a driver decides for a view."""
    return predictor.predict_arrivals(view, driver.decide(view, None),
                             usable or view.topology.cpus)


class TestGuests(unittest.TestCase):

    def predict(self, view):
        return PREDICTOR.predict_guests(view, DRIVER.decide(view, None))

    def test_pair_on_one_cpu_has_the_measured_slowdowns(self):
        for one in hosts.ALL:
            for other in hosts.ALL:
                view = hosts.view([one, other], hosts.one_socket(1))
                first, second = (guest.name for guest in view.guests)
                found = self.predict(view)
                self.assertAlmostEqual(TIME.slowdown(one, other),
                                       found[first])
                self.assertAlmostEqual(TIME.slowdown(other, one),
                                       found[second])

    def test_guest_on_another_cpu_counts_through_the_cache(self):
        view = hosts.view(['HS', 'HL'], hosts.one_socket(2))
        sets = {guest.name: (frozenset({cpu}),)
                for cpu, guest in enumerate(view.guests)}
        found = PREDICTOR.predict_guests(view, base.AffinityDecision(
            frozenset({0, 1}), sets, frozenset(), {}))
        self.assertEqual([SPACE.slowdown('HS', 'HL'),
                          SPACE.slowdown('HL', 'HS')], list(found.values()))

    def test_idle_guests_have_none(self):
        view = hosts.view(['HS'], hosts.one_socket(1))
        name = view.guests[0].name
        self.assertEqual({}, PREDICTOR.predict_guests(
            view, base.AffinityDecision(frozenset({0}), {
                name: (frozenset({0}),)}, frozenset({name}), {})))


class TestPrediction(unittest.TestCase):

    def test_newcomer_on_an_empty_host_is_not_slowed_down(self):
        found = predict(hosts.view([]))
        self.assertEqual(set(hosts.ALL), set(found))
        self.assertEqual({(1.0, 0.0)}, set(found.values()))

    def test_generators_of_load_are_no_newcomers(self):
        profiles = PROFILES.with_unknown(['stress-ng:cpu-50', 'other'])
        found = predict(hosts.view(['HS']), predictor=HostPredictor(
            profiles, hosts.OPTIONS))
        self.assertEqual({*hosts.ALL, 'other'}, set(found))

    def test_pair_on_one_cpu_has_the_measured_slowdowns(self):
        for victim in hosts.ALL:
            found = predict(hosts.view([victim], hosts.one_socket(1)))
            for name in hosts.ALL:
                self.assertAlmostEqual(TIME.slowdown(name, victim),
                                       found[name].slowdown)
                self.assertAlmostEqual(
                    math.log(TIME.slowdown(victim, name)), found[name].harm)

    def test_neighbour_on_another_cpu_counts_through_the_cache(self):
        found = predict(hosts.view(['HS'], hosts.one_socket(2)))
        self.assertAlmostEqual(SPACE.slowdown('HL', 'HS'),
                               found['HL'].slowdown)
        self.assertAlmostEqual(math.log(SPACE.slowdown('HS', 'HL')),
                               found['HL'].harm)

    def test_newcomer_goes_to_the_cache_where_least_is_lost(self):
        # HL suffers beside HA, and not beside BS.
        view = hosts.view(['HA'] * 5 + ['BS'] * 5)
        sets = {one.name: (frozenset({cpu}),) for one, cpu in zip(
            view.guests, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10], strict=True)}
        found = PREDICTOR.predict_arrivals(view, base.AffinityDecision(
            frozenset(range(12)), sets, frozenset(), {}), frozenset(range(12)))
        self.assertAlmostEqual(SPACE.slowdown('HL', 'BS'),
                               found['HL'].slowdown)
        found = PREDICTOR.predict_arrivals(view, base.AffinityDecision(
            frozenset(range(12)), sets, frozenset(), {}), frozenset({5}))
        self.assertAlmostEqual(SPACE.slowdown('HL', 'HA'),
                               found['HL'].slowdown)

    def test_harm_to_primaries_has_their_weight(self):
        one = hosts.one_socket(2)
        weights = [HostPredictor(PROFILES, base.AffinityOptions(
            primary_weight=weight)) for weight in (10.0, 20.0)]
        view = hosts.view([], one, primaries={0: base.PrimaryUse(0.5, 'HL')})
        first, second = (predict(view, predictor=some)['HA']
                         for some in weights)
        self.assertAlmostEqual(10 * 0.5 * math.log(SPACE.slowdown(
            'HL', 'HA')), first.harm)
        self.assertAlmostEqual(2 * first.harm, second.harm)
        self.assertEqual(first.slowdown, second.slowdown)

    def test_idle_guests_count_as_no_load(self):
        view = dataclasses.replace(hosts.view(
            [], hosts.one_socket(1)), guests=hosts.guests(
                ['BS', 'BS'], {0}, cpu_pct=0.5))
        self.assertEqual((1.0, 0.0), predict(view)['BS'])

    def test_newcomer_stays_in_a_pool_that_cannot_grow(self):
        for share, slowdown in ((1.0, TIME.slowdown('BS', 'BS')),
                                (math.inf, SPACE.slowdown('BS', 'BS'))):
            found = predict(hosts.view(['BS'], hosts.one_socket(4),
                                       share_cpus=share))
            self.assertAlmostEqual(slowdown, found['BS'].slowdown)

    def test_drivers_of_one_cpu_are_predicted_alike(self):
        view = hosts.view(['BS'], hosts.one_socket(1), share_cpus=0.5)
        self.assertAlmostEqual(TIME.slowdown('BS', 'BS'),
                               predict(view, SIMPLE)['BS'].slowdown)

    def test_nothing_is_predicted_without_a_usable_cpu(self):
        view = hosts.view(['BS'])
        self.assertEqual({}, PREDICTOR.predict_arrivals(
            view, DRIVER.decide(view, None), frozenset()))
        self.assertEqual({}, PREDICTOR.predict_arrivals(
            view, DRIVER.decide(view, None), frozenset({99})))

    def test_cpu_that_went_offline_since_the_decision_is_left_out(self):
        view = hosts.view(['BS', 'BS'], hosts.one_socket(2))
        decision = DRIVER.decide(view, None)
        found = PREDICTOR.predict_arrivals(dataclasses.replace(
            view, topology=view.topology.restrict({0})), decision,
            frozenset({0, 1}))
        self.assertAlmostEqual(TIME.slowdown('BS', 'BS'),
                               found['BS'].slowdown)

    @FEWER
    @hypothesis.given(hosts.views())
    def test_any_host_gets_predictions_from_none_to_all_of_the_performance(
            self, drawn):
        view, dedicated = drawn
        found = predict(view, SIMPLE, view.topology.cpus - dedicated)
        self.assertEqual(set(PROFILES.uses), set(found))
        for one in found.values():
            self.assertTrue(1.0 <= one.slowdown and 0.0 <= one.harm
                            and 0.0 < one.performance <= 1.0)

    def test_large_host_is_predicted_fast(self):
        domains = [frozenset(range(at, at + 16)) for at in range(0, 128, 16)]
        cpus = frozenset(range(128))
        topology = Topology(
            singletons(cpus), tuple(SharedCache(3, one) for one in domains),
            (cpus,), (cpus,), tuple(domains))
        view = hosts.view([hosts.ALL[place * 7 % 5] for place in range(200)],
                          topology)
        sets = {one.name: (frozenset({int(one.name) * 37 % 128}),)
                for one in view.guests}
        decision = base.AffinityDecision(cpus, sets, frozenset(), {})
        predictor = HostPredictor(dataclasses.replace(
            PROFILES, uses={one: PROFILES.uses[one] for one in hosts.ALL[:5]},
            **{one.name: SlowdownMatrix(one.name, hosts.ALL[:5], tuple(
                tuple(one.slowdown(victim, other) for other in hosts.ALL[:5])
                for victim in hosts.ALL[:5])) for one in (TIME, SPACE)}),
            hosts.OPTIONS)
        predictor.predict_arrivals(view, decision, cpus)
        began = time.process_time()
        predictor.predict_arrivals(view, decision, cpus)
        self.assertLess(time.process_time() - began, 0.02)
