# SPDX-License-Identifier: Apache-2.0

"""Placement constraints that Nova's own filters enforce."""

import json
import subprocess
import sys
from unittest import TestCase

from secondary_scheduler.model.constraints import (
    Ban,
    Fence,
    Gather,
    Occupancy,
    PlacementRules,
    Root,
)
from secondary_scheduler.watcher.cloud_snapshot import (
    CloudSnapshot,
    ServerGroup,
)
from secondary_scheduler.watcher.nova_constraints import find_nova_constraints
from secondary_scheduler.watcher.scope import HostPlace
from tests.unit.watcher import fakes

#: Extra specs, also such that other matchers than Nova's read otherwise.
WANTED = ('1', 'true', 'a b', '= 1', '== 1', '!= 1', '>= 1', '<= 1', '> 1',
          's== abc', 's!= abc', 's< b', 's<= abc', 's> a', 's>= abc',
          '<in> b', '<all-in> aes mmx', '<all-in>', '<or> 1 <or> abc', '',
          '<or>', 's== abc x', '=', '==1', '>=1', 'abc def', 's==')
VALUES = ('1', '2.0', 'true', 'abc', 'a b', 'aes mmx', '', 'aes')
#: Metadata of an aggregate that names the only projects on its hosts.
OWNED = ({}, {'ssd': 'true'}, {'filter_tenant_id': 'p1'},
         {'filter_tenant_id': 'p2'},
         {'filter_tenant_id': 'p2', 'filter_tenant_id2': 'p1'},
         {'filter_tenant_id': 'p2,p1'})

#: Asks Nova's filters, in a process of their own: options of Nova and Watcher
#: would collide.
NOVA = """
import json, sys, types
from unittest import mock
from nova.scheduler.filters import aggregate_instance_extra_specs as specs
from nova.scheduler.filters import aggregate_multitenancy_isolation as projects

def passes(one, metadata, **spec):
    try:
        return bool(one.host_passes(types.SimpleNamespace(aggregates=[
            types.SimpleNamespace(metadata=metadata)]), mock.Mock(**spec)))
    except (IndexError, ValueError):    # the scheduler finds no host
        return False

def flavor(wanted):
    made = mock.MagicMock(extra_specs={
        'aggregate_instance_extra_specs:k': wanted})
    made.__contains__.return_value = True
    return made

asked = json.load(sys.stdin)
print(json.dumps([
    [passes(specs.AggregateInstanceExtraSpecsFilter(), {'k': value},
            flavor=flavor(wanted)) for wanted, value in asked['specs']],
    [passes(projects.AggregateMultiTenancyIsolation(), metadata,
            project_id=one) for metadata, one in asked['projects']]]))
"""


def find(servers, hosts, groups=(), primaries=None, usable=None):
    names = [one.name for one in hosts]
    found = find_nova_constraints(
        CloudSnapshot({one.name: one for one in hosts},
                      {one.uuid: one for one in servers}, groups=tuple(groups),
                      primary_hosts=primaries or {}),
        names if usable is None else usable)
    hash(found)     # raises if a constraint is no value
    return found


def ids(*numbers):
    return frozenset(map(fakes.uid, numbers))


def in_zone(name, zone):
    return fakes.host(name, place=HostPlace(zone=zone))


class ZoneTest(TestCase):
    def test_server_is_fenced_to_the_zone_that_it_asked_for(self):
        hosts = [in_zone('h1', 'a'), in_zone('h2', 'a'), in_zone('h3', 'b')]
        self.assertEqual((Fence(ids(1, 2), frozenset({'h1', 'h2'})),), find(
            [fakes.server(1, zone='a'), fakes.server(2, zone='a'),
             fakes.server(3)], hosts))

    def test_no_constraint_is_made_within_one_zone(self):
        hosts = [in_zone('h1', 'a'), in_zone('h2', 'b')]
        self.assertEqual((), find(
            [fakes.server(1, zone='a')], hosts, usable=['h1']))

    def test_server_of_a_zone_without_hosts_stays(self):
        self.assertEqual((Root(ids(1)),), find(
            [fakes.server(1, zone='gone')], [in_zone('h1', 'a')]))


class CellTest(TestCase):

    def test_server_stays_in_the_cell_that_is_named(self):
        hosts = [fakes.host(name, metadata={
            'secondary:cell': frozenset({cell})})
            for name, cell in (('h1', 'a'), ('h2', 'a'), ('h3', 'b'))]
        hosts.append(fakes.host('h4'))
        self.assertEqual(
            {Fence(ids(1, 2), frozenset({'h1', 'h2'})),
             Fence(ids(3), frozenset({'h3'}))},
            set(find([fakes.server(1, 'h1'), fakes.server(2, 'h2'),
                      fakes.server(3, 'h3'), fakes.server(4, 'h4'),
                      fakes.server(5, None)], hosts)))


class AggregateTest(TestCase):
    """Constraints admit the hosts that Nova's own filters pass."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.specs = [(wanted, value) for wanted in WANTED for value in VALUES]
        cls.projects = [(metadata, one) for metadata in OWNED
                        for one in ('p1', 'p3')]
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', NOVA], text=True,
            input=json.dumps({'specs': cls.specs, 'projects': cls.projects}),
            capture_output=True, check=True)
        cls.passed = json.loads(done.stdout.splitlines()[-1])

    def admits(self, server, **metadata):
        host = fakes.host('h1', metadata={
            key: frozenset(value.split(','))
            for key, value in metadata.items()})
        rules = PlacementRules(find([server], [host, fakes.host('h0')]))
        return rules.admits(server.uuid, 'h0', 'h1', Occupancy({}))

    def test_extra_specs_of_aggregates_are_matched_as_by_nova(self):
        self.assertEqual({True, False}, set(self.passed[0]))
        for (wanted, value), passes in zip(self.specs, self.passed[0],
                                           strict=True):
            with self.subTest(wanted, value=value):
                server = fakes.server(1, aggregate_specs={'k': wanted})
                self.assertEqual(passes, self.admits(server, k=value))
                self.assertFalse(self.admits(server, other=value))

    def test_hosts_of_other_projects_are_refused_as_by_nova(self):
        self.assertEqual({True, False}, set(self.passed[1]))
        for (metadata, project), passes in zip(
                self.projects, self.passed[1], strict=True):
            with self.subTest(str(metadata), project=project):
                self.assertEqual(passes, self.admits(
                    fakes.server(1, project=project), **metadata))


class ServerGroupTest(TestCase):
    HOSTS = tuple(map(fakes.host, ('h1', 'h2', 'h3')))
    SERVERS = (fakes.server(1, 'h1'), fakes.server(2, 'h2'))

    def find(self, apart, *members, most=1, **primaries):
        return find(self.SERVERS, self.HOSTS, [ServerGroup(
            'g', apart, ids(1, 2) | set(members), most)], primaries)

    def test_affinity_gathers_secondaries_on_the_host_of_primaries(self):
        self.assertEqual((Gather(ids(1, 2)),), self.find(False))
        self.assertEqual(
            (Gather(ids(1, 2)), Fence(ids(1, 2), frozenset({'h3'}))),
            self.find(False, 'vm', vm='h3'))

    def test_secondary_is_not_moved_beside_a_primary_of_its_group(self):
        self.assertEqual((), self.find(True))
        self.assertEqual((Ban(ids(1, 2), frozenset({'h3'})),),
                         self.find(True, 'vm', 'down', vm='h3', down=None))

    def test_full_hosts_are_banned_if_a_host_may_have_several(self):
        self.assertEqual((), self.find(True, 'a', most=3, a='h1'))
        self.assertEqual(
            (Ban(ids(2), frozenset({'h1'})),),
            self.find(True, 'a', 'b', most=2, a='h1', b='h3'))
        self.assertEqual(
            (Ban(ids(1), frozenset({'h3'})),
             Ban(ids(2), frozenset({'h1', 'h3'}))),
            self.find(True, *'abc', most=2, a='h1', b='h3', c='h3'))

    def test_members_stay_while_the_host_of_a_primary_is_unknown(self):
        for apart in (True, False):
            self.assertEqual((Root(ids(1, 2)),), self.find(apart, 'vm'))

    def test_group_without_secondaries_makes_no_constraint(self):
        self.assertEqual((), find(self.SERVERS, self.HOSTS, [
            ServerGroup('g', True, frozenset({'vm'}))]))
