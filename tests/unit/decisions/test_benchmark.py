# SPDX-License-Identifier: Apache-2.0

"""Small runs of the benchmark of decisions."""

import argparse
import dataclasses
import gzip
import json
import pathlib
import tempfile
import unittest

from benchmarks import absolute, clusters, decisions
from secondary_scheduler.model.cluster import Cluster
from tests.unit.decisions.worlds import host, vm

KEYS = {'hosts', 'instances', 'leases', 'violated', 'cpu_s', 'check_cpu_s',
        'convert_cpu_s', 'rss_mib', 'operations', 'violated_after',
        'overloaded', 'relievable', 'infeasible', 'lower_bound', 'optimum',
        'peer'}


def options(**values):
    return argparse.Namespace(**{
        'hosts': 40, 'instances': 400, 'violated': 0.1, 'seed': 1,
        'repeat': 1, 'watcher': None, 'count': 2, 'optimum': False,
        'unequal': False, **values})


class TestBenchmark(unittest.TestCase):

    def test_easy_reports_all_figures(self):
        found = decisions.easy(options())
        self.assertEqual(KEYS, set(found))
        self.assertEqual(
            (40, 400, 40, 4, 0, 0, 0), tuple(found[name] for name in (
                'hosts', 'instances', 'leases', 'violated', 'violated_after',
                'overloaded', 'infeasible')))
        self.assertLessEqual(found['lower_bound'],
                             found['operations']['migrate'])

    def test_easy_on_hosts_of_different_size(self):
        found = decisions.easy(options(unequal=True))
        self.assertEqual({'equal', 'unequal', 'cpu_ratio'}, set(found))
        for values in found['equal'], found['unequal']:
            self.assertEqual(KEYS, set(values))
            self.assertEqual((4, 0, 0, 0, 0), tuple(values[name] for name in (
                'violated', 'violated_after', 'relievable', 'overloaded',
                'infeasible')))
        world = clusters.easy(40, 400, 0.1, 1, True)
        self.assertEqual(set(clusters.SIZES), {
            one.cpus for one in world.hosts.values()})

    def test_tight_on_hosts_of_different_size(self):
        found = decisions.tight(options(instances=240, unequal=True))
        self.assertEqual((0, 0), (found['overloaded'], found['infeasible']))
        self.assertEqual(0, found['relievable'])

    def test_tight_sums_up(self):
        found = decisions.tight(options(instances=240))
        one, two = (decisions.tight(options(instances=240, count=1,
                                            seed=seed)) for seed in (1, 2))
        self.assertEqual(80, found['hosts'])
        for name in ('violated', 'planted', 'lower_bound'):
            self.assertEqual(one[name] + two[name], found[name])

    def test_btrplace_instance_is_solved(self):
        nodes = {'n0': 4, 'n1': 4}
        document = {'model': {
            'mapping': {'readyVMs': [2], 'onlineNodes': {
                'n0': {'runningVMs': [0, 1]}, 'n1': {'runningVMs': []}}},
            'views': [{'id': 'shareableResource', 'rcId': name,
                       'nodes': nodes, 'vms': {'0': 2, '1': 1, '2': 1}}
                      for name in ('uCpu', 'memory')]},
            'constraints': [
                {'id': 'preserve', 'rc': 'uCpu', 'vm': 0, 'amount': 4}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'in.json.gz'
            path.write_bytes(gzip.compress(json.dumps(document).encode()))
            found = decisions.repair(argparse.Namespace(file=path))
        self.assertEqual((1, 0, {'migrate': 1}), tuple(
            found[name] for name in (
                'violated', 'violated_after', 'operations')))
        filled = found['provisioning']
        self.assertEqual((1, {'unshelve': 1}, []), tuple(
            filled[name] for name in ('waiting', 'operations', 'faults')))

    def test_seed_determines_the_cluster(self):
        for make in (clusters.easy, clusters.tight):
            for sizes in False, True:
                one, same, other = (make(10, 100, 0.2, seed, sizes)
                                    for seed in (5, 5, 6))
                self.assertEqual(one, same)
                self.assertNotEqual(one, other)

    def test_tight_clusters_have_the_stated_load_and_repair(self):
        world, planted = clusters.tight(200, 1200, 0.05, 1)
        use = absolute.used(world.instances.values())
        self.assertAlmostEqual(0.80, use['cores'] / 200 / 64, delta=0.04)
        self.assertAlmostEqual(0.85, use['memory'] / 200 / 262144, delta=0.04)
        violated = [one for one in world.hosts.values() if one.violated]
        self.assertEqual(10, len(violated))
        for one in violated:
            self.assertEqual(1, sum(p.violated for p in one.policies))
        repaired = dataclasses.replace(world, instances={
            uuid: dataclasses.replace(one, host=planted.get(uuid, one.host))
            for uuid, one in world.instances.items()})
        outcome = absolute.replay(world, list(planted.items()))
        self.assertEqual(([], []), (outcome.violated, outcome.infeasible))
        groups = [(one.host, one.anti_affinity)
                  for one in repaired.instances.values() if one.anti_affinity]
        self.assertEqual(len(groups), len(set(groups)))
        self.assertGreater(len(groups), 60)

    def test_replay_counts_violations(self):
        world = Cluster(
            {name: host(name, 0.0) for name in 'hx'},
            {one.uuid: one for one in (
                vm('a', 'h', cpu=95.0), vm('b', 'x', vcpus=8))})
        self.assertEqual((['h'], [], [], []), absolute.replay(world, []))
        moved = [('a', 'x')]
        self.assertEqual((['x'], [], moved, moved),
                         absolute.replay(world, moved))

    def test_replay_counts_in_absolute_units(self):
        world = Cluster(
            {'h': host('h', 50.0, cpus=64.0), 'x': host('x', 0.0, cpus=4.0),
             'y': host('y', 80.0, cpus=64.0)},
            {one.uuid: one for one in (
                vm('a', 'h', cpu=28.0), vm('b', 'h', cpu=5.1))})
        outcome = absolute.replay(world, [('b', 'x')])
        self.assertEqual((['h', 'x'], [('b', 'x')]),
                         (outcome.violated, outcome.overloaded))
        self.assertEqual(['x'], outcome.relievable)
        self.assertEqual([], absolute.replay(world, [('b', 'y')]).overloaded)
