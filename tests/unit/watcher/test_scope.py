# SPDX-License-Identifier: Apache-2.0

"""Scopes of audits."""

from unittest import TestCase

from secondary_scheduler.watcher import (
    scope,
)


class ScopeTest(TestCase):
    places = {
        'h1': scope.HostPlace(frozenset({1}), frozenset({'a'}), 'z1'),
        'h2': scope.HostPlace(frozenset({2}), frozenset({'b'}), 'z1'),
        'h3': scope.HostPlace(zone='z2')}

    def resolve(self, *rules):
        return scope.resolve_scope([{'compute': list(rules)}], self.places)

    def test_empty_scope_contains_every_host(self):
        self.assertEqual({'h1', 'h2', 'h3'},
                         scope.resolve_scope([], self.places).hosts)
        self.assertEqual({'h1', 'h2', 'h3'},
                         scope.resolve_scope(None, self.places).hosts)

    def test_aggregates_and_zones(self):
        for rules, hosts in (
                ([{'host_aggregates': [{'name': 'a'}]}], {'h1'}),
                ([{'host_aggregates': [{'id': 2}]}], {'h2'}),
                ([{'host_aggregates': [{'name': '*'}]}], {'h1', 'h2'}),
                ([{'host_aggregates': [{'name': 'none'}]}], set()),
                ([{'availability_zones': [{'name': 'z2'}]}], {'h3'}),
                ([{'availability_zones': [{'name': '*'}]}],
                 {'h1', 'h2', 'h3'}),
                ([{'host_aggregates': [{'id': 1}]},
                  {'availability_zones': [{'name': 'z2'}]}], {'h1', 'h3'})):
            self.assertEqual(hosts, self.resolve(*rules).hosts, rules)

    def test_excluded_hosts_instances_and_projects(self):
        found = self.resolve({'exclude': [
            {'compute_nodes': [{'name': 'h1'}]},
            {'host_aggregates': [{'name': 'b'}]},
            {'instances': [{'uuid': 'u'}]},
            {'projects': [{'uuid': 'p'}]}]})
        self.assertEqual({'h3'}, found.hosts)
        self.assertTrue(found.excludes('u', 'other'))
        self.assertTrue(found.excludes('v', 'p'))
        self.assertFalse(found.excludes('v', 'other'))

    def test_handler_does_not_change_the_model(self):
        self.assertEqual('m', scope.SecondaryScope(
            [], None).get_scoped_model('m'))
