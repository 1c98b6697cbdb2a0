# SPDX-License-Identifier: Apache-2.0

"""Instances of BtrPlace's benchmark: reader, generator and decision."""

import argparse
import contextlib
import gzip
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from benchmarks import applications, btrplace, switches
from secondary_scheduler.model import constraints
from secondary_scheduler.model.cluster import InstanceState
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.reading import fields
from secondary_scheduler.reading.values import InputError

ROOT = pathlib.Path(__file__).resolve().parents[3]


def document(*listed, ready=(3,), offline=(2,)):
    """Return two nodes, four VMs and an offline node."""
    return {'model': {
        'mapping': {
            'readyVMs': list(ready), 'offlineNodes': list(offline),
            'onlineNodes': {
                '0': {'runningVMs': [0, 1], 'sleepingVMs': []},
                '1': {'runningVMs': [], 'sleepingVMs': [2]}}},
        'attributes': {},
        'views': [{'id': 'ns', 'type': 'vm', 'map': {}}] + [
            {'id': 'shareableResource', 'rcId': name, 'defCapacity': 8,
             'defConsumption': 1, 'nodes': {'0': 4}, 'vms': {'0': 2}}
            for name in ('uCpu', 'memory')]},
        'constraints': list(listed)}


def read(*listed, **values):
    return btrplace.read_document(fields.Fields(
        json.loads(json.dumps(document(*listed, **values))), ''))


class TestReader(unittest.TestCase):

    def test_mapping_and_resources(self):
        cluster, ignored = read()
        self.assertEqual({}, ignored)
        self.assertEqual(['0', '1'], list(cluster.hosts))
        self.assertEqual(
            {'0': (InstanceState.ACTIVE, '0', 2),
             '1': (InstanceState.ACTIVE, '0', 1),
             '2': (InstanceState.SUSPENDED, '1', 1),
             '3': (InstanceState.SHELVED, None, 1)},
            {uuid: (one.state, one.host, one.vcpus)
             for uuid, one in cluster.instances.items()})
        self.assertEqual([4.0, 8.0], [
            one.cpus for one in cluster.hosts.values()])
        self.assertEqual({'lease-3': LeaseState.QUEUED}, {
            name: one.state for name, one in cluster.leases.items()})

    def test_every_placement_constraint_is_read(self):
        some, nodes = frozenset('01'), frozenset('01')
        for given, expected in (
                ({'id': 'spread', 'vms': [0, 1], 'continuous': True},
                 constraints.Spread(some)),
                ({'id': 'gather', 'vms': [0, 1], 'continuous': False},
                 constraints.Gather(some)),
                ({'id': 'lonely', 'vms': [0, 1], 'continuous': False},
                 constraints.Lonely(some)),
                ({'id': 'ban', 'vm': 0, 'nodes': [0, 2]},
                 constraints.Ban(frozenset('0'), frozenset('0'))),
                ({'id': 'ban', 'vms': [0, 1], 'nodes': [0, 1]},
                 constraints.Ban(some, nodes)),
                ({'id': 'fence', 'vm': 0, 'nodes': [0, 1]},
                 constraints.Fence(frozenset('0'), nodes)),
                ({'id': 'root', 'vm': 1},
                 constraints.Root(frozenset('1'))),
                ({'id': 'quarantine', 'node': 1},
                 constraints.Quarantine(frozenset('1'))),
                ({'id': 'among', 'vms': [0, 1], 'parts': [[0, 2], [1]],
                  'continuous': True}, constraints.Among(
                      some, (frozenset('0'), frozenset('1')))),
                ({'id': 'split', 'parts': [[0], [1, 3]],
                  'continuous': True}, constraints.Split(
                      (frozenset('0'), frozenset('13'))))):
            with self.subTest(given['id']):
                found = read(given, given)
                self.assertEqual((expected,), found.cluster.constraints)
                self.assertEqual({}, found.ignored)

    def test_every_known_kind_has_a_reader(self):
        self.assertEqual(set(constraints.KINDS), set(btrplace.PLACEMENT))

    def test_equal_parts_are_one_object(self):
        one, other = read(*(
            {'id': 'among', 'vms': [vm], 'parts': [[0], [1]]}
            for vm in (0, 1))).cluster.constraints
        self.assertIs(one.groups, other.groups)

    def test_states(self):
        for given, queued, ignored in (
                ({'id': 'running', 'vm': 2}, {'lease-3', 'lease-2'}, {}),
                ({'id': 'running', 'vm': 0}, {'lease-3'}, {}),
                ({'id': 'ready', 'vm': 3}, set(), {}),
                ({'id': 'ready', 'vm': 0}, {'lease-3'}, {'ready': 1}),
                ({'id': 'sleeping', 'vm': 2}, {'lease-3'}, {}),
                ({'id': 'sleeping', 'vm': 1}, {'lease-3'}, {'sleeping': 1}),
                ({'id': 'online', 'node': 0}, {'lease-3'}, {}),
                ({'id': 'online', 'node': 2}, {'lease-3'}, {'online': 1}),
                ({'id': 'offline', 'node': 2}, {'lease-3'}, {}),
                ({'id': 'offline', 'node': 0}, {'lease-3'},
                 {'offline': 1})):
            with self.subTest(**given):
                found = read(given)
                self.assertEqual(queued, set(found.cluster.leases))
                self.assertEqual(ignored, found.ignored)

    def test_preserve_is_demand(self):
        found = read({'id': 'preserve', 'vm': 1, 'rc': 'uCpu', 'amount': 3},
                     {'id': 'preserve', 'vm': 1, 'rc': 'io', 'amount': 3})
        self.assertEqual((3, 3.0), (found.cluster.instances['1'].vcpus,
                                    found.cluster.instances['1'].wanted_cpu))
        self.assertTrue(found.cluster.hosts['0'].violated)
        self.assertEqual({'preserve': 1}, found.ignored)

    def test_unknown_constraints_are_counted(self):
        unknown = {'id': 'maxOnline', 'nodes': [0], 'amount': 1}
        self.assertEqual({'maxOnline': 2}, read(unknown, unknown).ignored)

    def test_errors_name_the_field(self):
        for given, field in (
                ({'vms': [0]}, r'constraints\[0\]\.id'),
                ({'id': 'spread'}, r'constraints\[0\]\.vms'),
                ({'id': 'spread', 'vms': 0}, r'constraints\[0\]\.vms'),
                ({'id': 'spread', 'vms': [0, 9]}, r'\.vms\[1\]'),
                ({'id': 'ban', 'vm': 9, 'nodes': [0]}, r'\.vm: '),
                ({'id': 'ban', 'vm': 0, 'nodes': [9]}, r'\.nodes\[0\]'),
                ({'id': 'quarantine', 'node': 9}, r'\.node: '),
                ({'id': 'preserve', 'vm': 0, 'rc': 'uCpu', 'amount': -1},
                 r'\.amount'),
                ({'id': 'among', 'vms': [0], 'parts': [0]}, r'\.parts\[0\]'),
                ({'id': 'among', 'vms': [0], 'parts': [[0], [0, 1]]},
                 r'\.parts')):
            with self.subTest(**given), self.assertRaisesRegex(
                    InputError, field):
                read(given)

    def test_command_refuses_bad_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'bad.json.gz'
            for text, said in (
                    ('{"model": ', 'not JSON'),
                    ('{"constraints": []}', 'model: is missing'),
                    ('', 'not JSON')):
                path.write_bytes(gzip.compress(text.encode()))
                done = subprocess.run(
                    [sys.executable, 'benchmarks/decisions.py', 'switch',
                     '--file', path], cwd=ROOT, capture_output=True,
                    text=True, check=False, env={'PYTHONPATH': str(ROOT)})
                self.assertEqual((2, ''), (done.returncode, done.stdout))
                self.assertIn(said, done.stderr)
                self.assertIn('bad.json.gz', done.stderr)


class TestGenerator(unittest.TestCase):

    def test_placement_keeps_all_constraints(self):
        for family in applications.FAMILIES:
            found = btrplace.read_document(fields.Fields(
                applications.make_document(family, 4, 600,
                                           applications.KINDS, 1), ''))
            cluster = found.cluster
            self.assertEqual({}, found.ignored)
            self.assertEqual(2400, len(cluster.instances))
            hosts = {one.uuid: (one.host,)
                     for one in cluster.instances.values() if one.host}
            self.assertEqual({'spread', 'among'}, {
                one.kind for one in cluster.constraints})
            self.assertEqual([], [one for one in cluster.constraints
                                  if one.broken(hosts)])

    def test_events_of_the_families(self):
        wanting = read_family('li')
        self.assertTrue(any(one.violated
                            for one in wanting.hosts.values()))
        self.assertEqual(200, len(wanting.hosts))
        failed = read_family('nr')
        self.assertFalse(any(one.violated for one in failed.hosts.values()))
        self.assertEqual(190, len(failed.hosts))
        self.assertEqual(
            {one.lease for one in failed.instances.values()
             if one.host is None}, set(failed.leases))

    def test_seed_determines_the_instance(self):
        one, same, other = (applications.make_document(
            'li', 3, 100, (), seed) for seed in (1, 1, 2))
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)


def read_family(family, **values):
    return btrplace.read_document(fields.Fields(applications.make_document(
        family, 5, 200, values.get('kinds', ()), 3), '')).cluster


class TestCommand(unittest.TestCase):

    def options(self, *arguments):
        parser = argparse.ArgumentParser()
        switches.add_arguments(parser)
        return parser.parse_args(arguments)

    def test_families_are_solved_with_and_without_constraints(self):
        for family, kind in (('li', 'migrate'), ('nr', 'unshelve')):
            for kinds in ('', 'spread,among'):
                found = switches.switch(self.options(
                    '--family', family, '--ratio', '6', '--constraints',
                    kinds, '--quick'))
                self.assertEqual({kind}, set(found['operations']))
                self.assertEqual(found['instances'], found['selected'])
                self.assertEqual('optimal', found['status'])
                self.assertEqual(bool(kinds), bool(found['constraints']))

    def test_unknown_constraint_is_refused(self):
        said = io.StringIO()
        with (contextlib.redirect_stderr(said),
              self.assertRaises(SystemExit) as ended):
            self.options('--constraints', 'spread,near')
        self.assertEqual(2, ended.exception.code)
        self.assertIn('spread,among', said.getvalue())
