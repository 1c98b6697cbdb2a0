# SPDX-License-Identifier: Apache-2.0

"""Topology of a host as sysfs describes it."""

import dataclasses
import pathlib
import shutil
import tempfile
import unittest

import hypothesis
from hypothesis import strategies

from secondary_scheduler.agent import cpu_topology, kernel_files
from secondary_scheduler.model.topology import (
    SharedCache,
    Topology,
    singletons,
)
from tests.unit.cpu_affinity import hosts

#: Examples that write many files.
FEWER = hypothesis.settings(
    max_examples=max(20, hypothesis.settings().max_examples // 10))
#: Two packages of two cores with two threads each.
ALL = frozenset(range(8))
PACKAGES = (frozenset({0, 1, 4, 5}), frozenset({2, 3, 6, 7}))
CORES = tuple(frozenset({cpu, cpu + 4}) for cpu in range(4))
EXPECTED = Topology(
    CORES, (*(SharedCache(1, one) for one in CORES),
            *(SharedCache(3, one) for one in PACKAGES)),
    PACKAGES, PACKAGES, PACKAGES)


class TestReader(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cpu = pathlib.Path(folder.name) / 'cpu'
        self.node = pathlib.Path(folder.name) / 'node'
        self.write('node/has_cpu', '0-1\n')
        self.write_topology(EXPECTED)

    def write_topology(self, topology):
        """Write the files of all CPUs; level 1 has an instruction cache too.
        """
        self.write('cpu/online', topology.cpus)
        for number, node in enumerate(topology.nodes):
            self.write(f'node/node{number}/cpulist', node)
        for cpu in topology.cpus:
            for name, parts in (('core_cpus_list', topology.cores),
                                ('package_cpus_list', topology.packages),
                                ('die_cpus_list', topology.dies)):
                self.write(f'cpu/cpu{cpu}/topology/{name}', next(
                    part for part in parts if cpu in part))
            first, *rest = [one for one in topology.caches
                            if cpu in one.cpus] or [
                SharedCache(1, frozenset({cpu}))]
            for number, (kind, cache) in enumerate((
                    ('Data', first), ('Instruction', first),
                    *(('Unified', one) for one in rest))):
                folder = f'cpu/cpu{cpu}/cache/index{number}'
                self.write(f'{folder}/type', f'{kind}\n')
                self.write(f'{folder}/level', f'{cache.level}\n')
                self.write(f'{folder}/shared_cpu_list', cache.cpus)

    def write(self, name, content):
        """Write a file; a set is a list of CPUs."""
        path = self.cpu.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str)
                        else kernel_files.format_cpus(content) + '\n')

    def read(self, cpus=None):
        """Return the topology of the tree."""
        return cpu_topology.read_topology(str(self.cpu), cpus)

    def test_complete_tree(self):
        self.assertEqual(EXPECTED, self.read())

    @FEWER
    @hypothesis.given(hosts.topologies(most_cpus=12))
    def test_any_topology_is_read_as_it_was_written(self, topology):
        shutil.rmtree(self.cpu, ignore_errors=True)
        shutil.rmtree(self.node, ignore_errors=True)
        self.write_topology(topology)
        found = self.read()
        self.assertEqual((), found.unknown)
        for field in dataclasses.fields(Topology):
            self.assertEqual(set(getattr(topology, field.name)),
                             set(getattr(found, field.name)), field.name)

    def test_some_cpus(self):
        self.assertEqual(EXPECTED.restrict({0, 1, 4}), self.read({0, 1, 4}))

    def test_names_of_old_kernels(self):
        for cpu in ALL:
            folder = self.cpu / f'cpu{cpu}/topology'
            (folder / 'core_cpus_list').rename(
                folder / 'thread_siblings_list')
            (folder / 'package_cpus_list').rename(
                folder / 'core_siblings_list')
            (folder / 'die_cpus_list').unlink()
        self.assertEqual(EXPECTED, self.read())

    def test_unknown_fact_makes_each_cpu_a_domain_of_its_own(self):
        alone = singletons(ALL)
        for name, attribute, expected in (
                ('cpu/cpu3/topology/core_cpus_list', 'cores', alone),
                ('cpu/cpu3/topology/package_cpus_list', 'packages', alone),
                ('cpu/cpu3/cache', 'caches', ()),
                ('cpu/cpu3/cache/index2/level', 'caches', ()),
                ('node', 'nodes', alone)):
            with self.subTest(name):
                self.setUp()
                path = self.cpu.parent / name
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
                found = self.read()
                self.assertEqual(expected, getattr(found, attribute))
                self.assertEqual(1, len(found.unknown), found.unknown)
                self.assertIn(name.rpartition('/')[2], found.unknown[0])
                self.assertIn('unknown: ', found.describe())

    def test_contradictions_are_unknown(self):
        for name, content, text in (
                ('cpu/cpu0/topology/core_cpus_list', '0,5', 'CPUs 0 and 5'),
                ('cpu/cpu0/topology/core_cpus_list', '4', 'CPU 0 is in none'),
                ('node/node1/cpulist', '2-3,6', 'CPU 7 is in none'),
                ('node/node1/cpulist', '1-3,6-7', 'disagree'),
                ('cpu/cpu0/cache/index2/shared_cpu_list', '0', 'level 3'),
                ('cpu/cpu0/cache/index2/level', '-3', 'is expected'),
                ('cpu/cpu0/topology/core_cpus_list', '0-99999999',
                 'is expected')):
            with self.subTest(name, content=content):
                self.setUp()
                self.write(name, content)
                found = self.read()
                self.assertEqual(1, len(found.unknown))
                self.assertIn(text, found.unknown[0])

    def test_file_of_online_cpus_is_needed_without_cpus(self):
        self.write('cpu/online', '\n')
        with self.assertRaisesRegex(ValueError, 'at least one CPU'):
            self.read()
        (self.cpu / 'online').unlink()
        with self.assertRaises(FileNotFoundError):
            self.read()
        self.assertEqual(EXPECTED, self.read(ALL))

    def test_this_machine_can_be_read(self):
        if not pathlib.Path(cpu_topology.SYSFS, 'online').exists():
            self.skipTest('this machine has no sysfs')
        self.assertTrue(cpu_topology.read_topology().cpus)

    @hypothesis.given(strategies.sampled_from([
        'cpu/cpu1/topology/core_cpus_list', 'node/node0/cpulist',
        'cpu/cpu1/cache/index2/type', 'cpu/cpu1/cache/index2/level',
        'cpu/cpu1/cache/index2/shared_cpu_list']),
        strategies.text(max_size=12)
        | strategies.sampled_from(['0-3', '1,5', '5-1', '3\x00', ',,', '٣']))
    def test_any_content_is_read_or_unknown(self, name, content):
        path = self.cpu.parent / name
        before = path.read_bytes()
        try:
            path.write_bytes(content.encode())
            found = self.read()
        finally:
            path.write_bytes(before)
        self.assertEqual(ALL, found.cpus)
        self.assertLessEqual(len(found.unknown), 1)
