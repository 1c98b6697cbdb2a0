# SPDX-License-Identifier: Apache-2.0

import math
import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.agent.controller import Controller, Load

W = 89.0


def simulate(controller, periods, primary, demands, minimum=5.0, uuids='ab'):
    """Run a host whose guests use the lesser of demand and cap.

    ``primary`` and ``demands`` are functions of the period.  As in the real
    loop, the use in the period before is measured.
    """
    caps = dict.fromkeys(uuids, minimum)
    totals = []
    for k in range(periods):
        used = {u: min(demands(k), caps[u]) for u in uuids}
        wanted = primary(k) + sum(used.values())
        if wanted > 100.0:   # worst case: a full host is shared by demand
            used = {u: used[u] * 100.0 / wanted for u in uuids}
        total = min(100.0, wanted)
        totals.append(total)
        caps = controller.step(
            total, [Load(u, 5, used[u]) for u in uuids], W, minimum)
    return totals, caps


class StepTest(unittest.TestCase):
    def test_use_settles_at_the_set_point(self):
        totals, caps = simulate(Controller(), 40, lambda k: 30.0,
                                lambda k: 100.0)
        self.assertAlmostEqual(W, totals[-1], delta=0.5)
        self.assertAlmostEqual(caps['a'], caps['b'], delta=0.1)

    def test_burst_of_the_primary_is_compensated_in_two_periods(self):
        totals, _ = simulate(Controller(), 40,
                             lambda k: 30.0 if k < 20 else 60.0,
                             lambda k: 100.0)
        self.assertGreater(totals[20], W)
        self.assertTrue(all(total <= W + 1 for total in totals[23:]))

    def test_share_does_not_wind_up_while_guests_are_idle(self):
        """After 30 idle seconds, guests and primary need the CPU at once."""
        totals, _ = simulate(Controller(), 120,
                             lambda k: 30.0 if k < 60 else 70.0,
                             lambda k: 10.0 if k < 60 else 50.0)
        over = sum(total > 90.0 for total in totals)
        # 2 s; the law of Boettger 2012 with a clamp alone takes 2.5 s.
        self.assertLessEqual(over, 4)

    def test_integral_part_compensates_for_unused_caps(self):
        """Guests that get only 90 % of their cap still fill the host."""
        controller, caps, total = Controller(), {'a': 5.0}, 0.0
        for _ in range(60):
            used = 0.9 * caps['a']
            total = 40.0 + used
            caps = controller.step(total, [Load('a', 5, used)], W, 5.0)
        self.assertAlmostEqual(W, total, delta=1.0)

    def test_new_instance_starts_with_the_minimum(self):
        controller = Controller()
        controller.step(20.0, [Load('a', 5, 5.0)], W, 5.0)
        caps = controller.step(20.0, [Load('a', 5, 5.0),
                                      Load('b', 9, None)], W, 5.0)
        self.assertEqual(5.0, caps['b'])
        self.assertGreater(caps['a'], 5.0)

    def test_unknown_use_reduces_all_to_the_minimum_at_once(self):
        controller = Controller()
        simulate(controller, 20, lambda k: 10.0, lambda k: 50.0)
        caps = controller.step(None, [Load('a', 5, 40.0), Load('b', 5, 1.0)],
                               W, 5.0)
        self.assertEqual({'a': 5.0, 'b': 5.0}, caps)

    def test_instances_keep_the_minimum_beside_a_busy_primary(self):
        _, caps = simulate(Controller(), 20, lambda k: 99.0, lambda k: 50.0)
        self.assertEqual({'a': 5.0, 'b': 5.0}, caps)

    def test_use_that_is_not_finite_reduces_all_to_the_minimum(self):
        for unknown in (math.nan, math.inf):
            caps = Controller().step(unknown, [Load('a', 5, 40.0)], W, 5.0)
            self.assertEqual({'a': 5.0}, caps)

    def test_share_of_an_idle_instance_recovers(self):
        controller, used = Controller(), {'a': 0.0, 'b': 60.0}
        for _ in range(60):
            caps = controller.step(20 + sum(used.values()), [
                Load(u, 5, used[u]) for u in 'ab'], W, 5.0)
            used = dict(caps)
        self.assertGreater(caps['a'], 15.0)

    def test_higher_priority_gets_a_larger_share(self):
        controller = Controller()
        for _ in range(10):
            caps = controller.step(50.0, [Load('a', 2, 20.0),
                                          Load('b', 8, 20.0)], W, 5.0)
        self.assertGreater(caps['b'], caps['a'])

    def test_share_above_the_capacity_of_one_goes_to_the_other(self):
        controller = Controller()
        for _ in range(10):
            caps = controller.step(
                70.0, [Load('a', 5, 25.0, most=25.0), Load('b', 5, 25.0)],
                W, 5.0)
        self.assertEqual(25.0, caps['a'])
        self.assertGreater(caps['b'], 30.0)

    def test_no_instances_no_caps(self):
        self.assertEqual({}, Controller().step(50.0, [], W, 5.0))


LOADS = st.lists(st.builds(
    Load, uuid=st.uuids().map(str), priority=st.integers(1, 10),
    usage=st.none() | st.floats(0, 100), most=st.floats(0.5, 400)),
    max_size=6, unique_by=lambda load: load.uuid)


class PropertiesTest(unittest.TestCase):
    @given(steps=st.lists(st.tuples(st.none() | st.floats(0, 100), LOADS),
                          min_size=1, max_size=8),
           set_point=st.floats(0, 100), minimum=st.floats(0, 20),
           gain=st.floats(0.05, 1.9))
    def test_caps_are_bounded(self, steps, set_point, minimum, gain):
        controller = Controller(gain)
        for total, loads in [*steps, steps[-1]]:
            caps = controller.step(total, loads, set_point, minimum)
            self.assertEqual({load.uuid for load in loads}, set(caps))
            self.assertLessEqual(
                sum(caps.values()),
                max(set_point, len(loads) * minimum) + 1e-6)
            for load in loads:
                self.assertGreaterEqual(caps[load.uuid],
                                        min(minimum, load.most) - 1e-9)
                self.assertLessEqual(caps[load.uuid], load.most + 1e-9)
