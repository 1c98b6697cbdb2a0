# SPDX-License-Identifier: Apache-2.0

"""Messages with holds for leases."""

import json
import unittest

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.holds import (
    MOST_HOSTS,
    MOST_LEASES,
    Hold,
    Holds,
)


def room(*amounts):
    return dict(zip(vocabulary.RESOURCE_CLASSES, amounts, strict=True))


HOLDS = Holds('a', 7, 1000.5, {
    'node1': Hold(room(2, 512, 10, 1), frozenset({'x', 'y'})),
    'node2': Hold(room(0, 0, 0, 0), frozenset())})
HOST = HOLDS.to_dict()['hosts']['node1']


class TestHolds(unittest.TestCase):

    def test_holds_survive_json(self):
        sent = json.loads(json.dumps(HOLDS.to_dict()))
        self.assertEqual(HOLDS, Holds.from_dict(sent))

    def test_servers_of_held_leases_and_small_ones_are_admitted(self):
        hold = HOLDS.hosts['node1']
        self.assertTrue(hold.admits(room(2, 512, 10, 1), None))
        for too_much in (room(3, 1, 1, 1), room(1, 513, 1, 1),
                         room(1, 1, 11, 1), room(1, 1, 1, 2)):
            self.assertFalse(hold.admits(too_much, 'z'))
            self.assertTrue(hold.admits(too_much, 'x'))

    def test_malformed_holds_are_rejected(self):
        for changes in (
                {'version': 2}, {'incarnation': ''},
                {'incarnation': 'x' * 256},
                {'seq': 1.0}, {'seq': True}, {'seq': -1},
                {'time': float('nan')}, {'time': 10 ** 400}, {'hosts': []},
                {'more': 1},
                {'hosts': {f'n{n}': HOST for n in range(MOST_HOSTS + 1)}},
                {'hosts': {1: HOST}}, {'hosts': {'n': None}},
                {'hosts': {'n': {**HOST, 'room': {}}}},
                {'hosts': {'n': {**HOST,
                                 'room': {**HOST['room'], 'VCPU': 1}}}},
                {'hosts': {'n': {**HOST, 'room': room(1.0, 1, 1, 1)}}},
                {'hosts': {'n': {**HOST, 'leases': 'x'}}},
                {'hosts': {'n': {**HOST, 'leases': [[]]}}},
                {'hosts': {'n': {**HOST,
                                 'leases': ['x'] * (MOST_LEASES + 1)}}}):
            with self.subTest(str(changes)[:70]), \
                    self.assertRaises(ValueError):
                Holds.from_dict({**HOLDS.to_dict(), **changes})
