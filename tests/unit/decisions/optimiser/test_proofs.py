# SPDX-License-Identifier: Apache-2.0

"""Bounds and optimal switches against an enumeration of all placements."""

import itertools
import os
import random
import unittest

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser import optimise
from secondary_scheduler.decisions.optimiser.optimise import measure_of
from secondary_scheduler.estimation.switch_times import published_seconds
from tests.unit.decisions.optimiser import small_clusters

CASES = 500 if os.environ.get('HYPOTHESIS_PROFILE') == 'search' else 50
OBJECTIVES = ('cost', 'span', 'memory', 'time')


def list_switches(current, sample):
    return [switch for _, switch in small_clusters.list_switches(
        current, sample)]


class TestProofs(unittest.TestCase):
    """Each claim holds for all placements of small clusters."""

    def test_no_placement_is_below_a_bound_or_an_optimal_switch(self):
        proved = 0
        for seed in range(CASES):
            current, sample = small_clusters.draw_cluster(seed)
            switches = list_switches(current, sample)
            for objective in OBJECTIVES:
                with self.subTest(seed=seed, objective=objective):
                    proved += self._check(current, sample, objective, switches)
        self.assertGreater(proved, CASES)

    def test_no_plan_whatever_its_pools_costs_less_than_the_bound(self):
        plans = 0
        for seed in range(2 * CASES):
            current, sample = small_clusters.draw_cluster(seed)
            if current.resumes_in_place:
                continue
            found = optimise(current, sample, 'cost', Budget())
            rng = random.Random(seed)
            states = {one.lease: one.state
                      for one in found.target.members.values()}
            for target in itertools.islice(
                    small_clusters.list_targets(current, states), 100):
                cost = small_clusters.draw_plan_cost(current, target, rng)
                if cost is not None:
                    plans += 1
                    with self.subTest(seed=seed):
                        self.assertLessEqual(found.bound, cost)
        self.assertGreater(plans, 2 * CASES)

    def _check(self, current, sample, objective, switches):
        measure = measure_of(objective, published_seconds)
        found = optimise(current, sample, objective, Budget(),
                         published_seconds)
        if found.left:
            # The claims are about the states that are reached.
            self.assertTrue(all(
                found.target.members[name].state is one.state
                for name, one in current.members.items()
                if one.lease in found.left))
            switches = list_switches(current, found.target)
        least = min((measure(one.pools) for one in switches), default=None)
        if least is None:
            # Members that cannot move overload a host.
            self.assertTrue(found.status in ('feasible', 'infeasible')
                            or not found.target.is_viable())
            return False
        self.assertLessEqual(found.bound, least)
        self.assertLessEqual(found.bound, found.value)
        self.assertEqual(found.value, measure(found.switch.pools))
        if found.status in ('optimal', 'nothing_to_do'):
            # It may be cheaper: the solver may let operations wait.
            self.assertLessEqual(found.value, least)
        return found.status == 'optimal'
