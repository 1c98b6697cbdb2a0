# SPDX-License-Identifier: Apache-2.0

"""Topology of a host as a value."""

import unittest

import hypothesis
from hypothesis import strategies

from secondary_scheduler.model.topology import (
    SharedCache,
    Topology,
    singletons,
    usable_cpus,
)
from tests.unit.cpu_affinity import hosts

ALL = frozenset(range(4))


def topology(**changes):
    """Return two cores of two threads, with changes."""
    pairs = (frozenset({0, 2}), frozenset({1, 3}))
    return Topology(**{
        'cores': pairs, 'caches': tuple(SharedCache(1, one) for one in pairs),
        'dies': (ALL,), 'packages': (ALL,), 'nodes': (ALL,)} | changes)


class TestTopology(unittest.TestCase):

    def test_wrong_topologies_are_refused(self):
        for changes, text in (
                ({'dies': (frozenset({0, 1}),)}, 'dies'),
                ({'packages': (ALL, frozenset({1}))}, 'packages'),
                ({'nodes': (ALL, frozenset({9}))}, 'nodes'),
                ({'nodes': (ALL, frozenset())}, 'nodes must have no empty'),
                ({'cores': (*singletons(ALL), frozenset())}, 'cores'),
                ({'caches': (SharedCache(3, frozenset({0, 7})),)}, 'level 3'),
                ({'caches': (SharedCache(3, ALL), SharedCache(3, ALL))},
                 'level 3')):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                topology(**changes)

    def test_last_level_cache_is_the_highest_that_a_cpu_shares(self):
        self.assertEqual(topology().cores, topology().cache_domains)
        self.assertEqual((ALL,), topology(caches=(
            *topology().caches, SharedCache(3, ALL))).cache_domains)
        self.assertEqual(singletons(ALL),
                         topology(caches=()).cache_domains)
        self.assertEqual(
            (frozenset({0, 2}), frozenset({1}), frozenset({3})),
            topology(caches=topology().caches[:1]).cache_domains)

    def test_unknown_caches_are_shared_by_a_package_on_a_node(self):
        self.assertEqual((ALL,), topology(caches=None).cache_domains)
        halves = (frozenset({0, 1}), frozenset({2, 3}))
        others = (frozenset({0, 2}), frozenset({1, 3}))
        self.assertEqual(halves, topology(
            caches=None, packages=halves).cache_domains)
        self.assertEqual(others, topology(
            caches=None, nodes=others).cache_domains)
        self.assertEqual(singletons(ALL), topology(
            caches=None, nodes=others, packages=halves).cache_domains)
        self.assertIsNone(topology(caches=None).restrict({0, 1}).caches)
        self.assertNotIn('shared', topology(caches=None).describe())

    def test_restricted_topology_has_some_cpus_only(self):
        some = topology().restrict({0, 1, 3})
        self.assertEqual((frozenset({0}), frozenset({1, 3})), some.cores)
        self.assertEqual((SharedCache(1, frozenset({1, 3})),), some.caches)
        self.assertEqual((frozenset({0, 1, 3}),), some.nodes)

    def test_description_names_parts_and_unknown_facts(self):
        self.assertEqual('4 CPUs on 2 cores, 2 shared L1, 1 die, 1 package, '
                         '1 NUMA node', topology().describe())
        self.assertIn('4 NUMA nodes, unknown: NUMA nodes', topology(
            nodes=singletons(ALL), unknown=('NUMA nodes',)).describe())

    @hypothesis.given(hosts.topologies(caches=((), (2, 3), None)),
                      strategies.data())
    def test_cache_domains_and_restrictions_have_each_cpu_once(self, some,
                                                               data):
        cpus = data.draw(strategies.sets(strategies.sampled_from(
            sorted(some.cpus)), min_size=1))
        for one in (some, some.restrict(cpus)):
            domains = [cpu for part in one.cache_domains for cpu in part]
            self.assertEqual(sorted(one.cpus), sorted(domains))
            for core in one.cores:
                self.assertTrue(core)
        self.assertEqual(cpus, some.restrict(cpus).cpus)


class TestUsable(unittest.TestCase):

    def test_own_set_without_dedicated_cpus(self):
        self.assertEqual({1, 3}, usable_cpus(
            topology(), frozenset({1, 2, 3, 9}), frozenset({2})))
        self.assertEqual(frozenset(), usable_cpus(topology(), ALL, ALL))
