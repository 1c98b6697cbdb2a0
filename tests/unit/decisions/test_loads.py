# SPDX-License-Identifier: Apache-2.0

"""Free room of hosts as arrays."""

import math
import unittest

from hypothesis import given, settings

from secondary_scheduler.decisions.loads import Loads
from secondary_scheduler.decisions.what_if import WhatIf, in_order
from secondary_scheduler.estimation.durations import Durations
from secondary_scheduler.estimation.room import RUNNING, LoadLimits
from tests.unit.decisions import worlds


class TestLoads(unittest.TestCase):

    @settings(deadline=None)
    @given(worlds.clusters())
    def test_loads_agree_with_what_if(self, world):
        preview = WhatIf(world, LoadLimits(), Durations(), in_order)
        loads = Loads(preview, ())
        for row, name in enumerate(loads.names):
            there = [one for one in world.residents(name)
                     if one.state in RUNNING]
            for policy in world.hosts[name].policies:
                if (policy.violated or not preview.known(world.hosts[name])
                        or not there):
                    continue
                column = 4 + loads.bounded.index(policy.resource)
                fits = loads.free[row, column] >= -1e-6
                self.assertEqual(fits, all(
                    preview.holds(name, one, math.inf)
                    for one in world.hosts[name].policies
                    if one.resource == policy.resource))

    @given(worlds.clusters(violations=False))
    def test_move_and_its_reverse_cancel_out(self, world):
        loads = Loads(WhatIf(world, LoadLimits(), Durations(), in_order), ())
        before = loads.free.copy()
        for uuid, one in sorted(world.instances.items()):
            for target in loads.takers(uuid):
                if one.host is not None:
                    loads.move(uuid, one.host, target)
                    loads.move(uuid, target, one.host)
        self.assertLess(abs(loads.free - before).max(), 1e-9)
