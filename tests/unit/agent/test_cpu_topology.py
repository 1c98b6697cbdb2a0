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
from secondary_scheduler.cpu_affinity import base, pool, workload_profiles
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
    @hypothesis.given(hosts.topologies(most_cpus=12), strategies.data())
    def test_gaps_and_orders_of_numbers_make_no_difference(self, topology,
                                                           data):
        shutil.rmtree(self.cpu, ignore_errors=True)
        shutil.rmtree(self.node, ignore_errors=True)
        self.write_topology(topology)
        folders = [(self.node, 'node'), *(
            (self.cpu / f'cpu{cpu}/cache', 'index') for cpu in topology.cpus)]
        for folder, name in folders:
            parts = sorted(folder.iterdir())
            for number, part in zip(data.draw(strategies.lists(
                    strategies.integers(0, 999), unique=True,
                    min_size=len(parts), max_size=len(parts))), parts,
                    strict=True):
                part.rename(folder / f'new{number}')
            for part in list(folder.iterdir()):
                part.rename(folder / part.name.replace('new', name))
        found = self.read()
        self.assertEqual((), found.unknown)
        for field in dataclasses.fields(Topology):
            self.assertEqual(set(getattr(topology, field.name)),
                             set(getattr(found, field.name)), field.name)

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

    def test_unknown_facts_confine_no_guest(self):
        one = (ALL,)
        for name, attribute, expected in (
                ('cpu/cpu3/topology/core_cpus_list', 'cores',
                 singletons(ALL)),
                ('cpu/cpu3/topology/package_cpus_list', 'packages', one),
                ('cpu/cpu3/cache', 'caches', None),
                ('cpu/cpu3/cache/index2/level', 'caches', None),
                ('node/node1/cpulist', 'nodes', one),
                ('node/node1', 'nodes', one)):
            with self.subTest(name):
                self.setUp()
                self.remove(name)
                found = self.read()
                self.assertEqual(expected, getattr(found, attribute))
                self.assertEqual(1, len(found.unknown), found.unknown)
                self.assertIn('unknown: ', found.describe())

    def remove(self, name):
        path = self.cpu.parent / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    def test_unknown_files_are_named(self):
        for name in ('core_cpus_list', 'package_cpus_list'):
            self.remove(f'cpu/cpu3/topology/{name}')
        self.remove('cpu/cpu3/cache')
        self.remove('node/node1/cpulist')
        found = self.read().unknown
        self.assertEqual(4, len(found))
        for name, text in zip(('core_cpus_list', 'cache', 'package_cpus_list',
                               'node1/cpulist'), found, strict=True):
            self.assertIn(name, text)

    def test_kernel_without_numa_has_one_node(self):
        self.remove('node')
        found = self.read()
        self.assertEqual(((ALL,), ()), (found.nodes, found.unknown))

    def test_numbers_of_nodes_and_caches_may_have_gaps(self):
        (self.cpu.parent / 'node/node1').rename(
            self.cpu.parent / 'node/node250')
        for cpu in ALL:
            cache = self.cpu / f'cpu{cpu}/cache'
            (cache / 'index2').rename(cache / 'index12')
            (cache / 'index0').rename(cache / 'index4')
            (cache / 'uevent').write_text('')
        self.assertEqual(EXPECTED, self.read())

    def test_cpu_without_any_cache_makes_caches_unknown(self):
        shutil.rmtree(self.cpu / 'cpu3/cache')
        (self.cpu / 'cpu3/cache').mkdir()
        found = self.read()
        self.assertIsNone(found.caches)
        self.assertIn('cpu3/cache has no cache', found.unknown[0])

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

    def make(self, online, siblings, caches, nodes):
        """Write the files of a host of a public report.

        :param siblings: returns the threads of the core of a CPU
        :param caches: returns index, level, type and sharing CPUs of each
            cache of a CPU; None instead of these for no such file
        :param nodes: CPUs of each NUMA node by number; None for no folder
        """
        shutil.rmtree(self.cpu)
        shutil.rmtree(self.node)
        self.write('cpu/online', online)
        for cpu in kernel_files.parse_cpus(online, ''):
            folder = f'cpu/cpu{cpu}'
            self.write(f'{folder}/topology/core_cpus_list', siblings(cpu))
            for name in ('package_cpus_list', 'die_cpus_list'):
                self.write(f'{folder}/topology/{name}', '0-15')
            for index, level, kind, shared in caches(cpu):
                cache = f'{folder}/cache/index{index}'
                self.write(f'{cache}/level', str(level))
                self.write(f'{cache}/type', kind)
                if shared is not None:
                    self.write(f'{cache}/shared_cpu_list', shared)
        for number, cpus in (nodes or {}).items():
            self.write(f'node/node{number}/cpulist', cpus)
        return self.read()

    def test_last_level_cache_behind_a_gap(self):
        found = self.make('0-7', str, lambda cpu: [
            (0, 1, 'Data', str(cpu)), (1, 1, 'Instruction', str(cpu)),
            (3, 3, 'Unified', '0-3' if cpu < 4 else '4-7')], {0: '0-7'})
        self.assertEqual('8 CPUs on 8 cores, 2 shared L3, 1 die, 1 package, '
                         '1 NUMA node', found.describe())

    def test_node_without_cpus_and_sparse_nodes(self):
        found = self.make('0-3', str, lambda cpu: [
            (0, 1, 'Data', str(cpu)), (1, 3, 'Unified', '0-3')],
            {0: '0-1', 8: '2-3', 250: ''})
        self.assertEqual('4 CPUs on 4 cores, 1 shared L3, 1 die, 1 package, '
                         '2 NUMA nodes', found.describe())

    def test_offline_cpu_and_a_cache_that_contradicts(self):
        found = self.make('1-3', str, lambda cpu: [
            (0, 1, 'Data', str(cpu)),
            (1, 3, 'Unified', '1' if cpu == 1 else '1-3')], {0: '1-3'})
        self.assertEqual(
            '3 CPUs on 3 cores, 1 die, 1 package, 1 NUMA node, unknown: '
            'caches (CPUs 2 and 1 disagree on their level 3 caches)',
            found.describe())

    def test_cores_of_three_kinds_of_which_one_has_no_l3(self):
        def pair(cpu):
            return '0-1' if cpu < 2 else '2-3' if cpu < 4 else str(cpu)

        found = self.make('0-9', pair, lambda cpu: [
            (0, 1, 'Data', pair(cpu)),
            (1, 2, 'Unified', pair(cpu) if cpu < 4 else
             '4-7' if cpu < 8 else '8-9'),
            *([(2, 3, 'Unified', '0-7')] if cpu < 8 else [])], {0: '0-9'})
        self.assertEqual(
            '10 CPUs on 8 cores, 2 shared L1, 4 shared L2, 1 shared L3, '
            '1 die, 1 package, 1 NUMA node', found.describe())

    def test_siblings_that_are_off_are_still_listed(self):
        found = self.make('0-1', lambda cpu: f'{cpu},{cpu + 2}', lambda cpu: [
            (0, 1, 'Data', f'{cpu},{cpu + 2}'), (1, 3, 'Unified', '0-3')],
            {0: '0-3'})
        self.assertEqual('2 CPUs on 2 cores, 1 shared L3, 1 die, 1 package, '
                         '1 NUMA node', found.describe())

    def test_caches_without_the_cpus_that_share_them(self):
        found = self.make('0-1', str, lambda cpu: [
            (0, 1, 'Data', str(cpu)), (1, 2, 'Unified', None)], {0: '0-1'})
        self.assertRegex(found.describe(),
                         '1 NUMA node, unknown: caches .*shared_cpu_list')

    def test_guests_spread_on_hosts_without_numa_and_caches(self):
        """They stayed for ever on the CPU where they began."""
        for nodes in ({0: '0-7'}, None):
            topology = self.make('0-7', str, lambda cpu: [], nodes)
            driver = pool.PoolAffinity(workload_profiles.UNPROFILED,
                                       base.AffinityOptions())
            last = None
            for second, share in ((0, 1.0), (100, 8.0), (200, 8.0),
                                  (300, 8.0), (400, 8.0)):
                last = driver.decide(base.AffinityView(
                    float(second), topology,
                    hosts.guests([None] * 8, ALL), share), last)
            # No CPU is idle while a guest waits on another.
            self.assertEqual({(ALL,)}, set(last.sets.values()), nodes)

    @FEWER
    @hypothesis.given(hosts.topologies(most_cpus=8), strategies.data())
    def test_missing_files_make_facts_unknown_and_no_others(self, topology,
                                                            data):
        shutil.rmtree(self.cpu, ignore_errors=True)
        shutil.rmtree(self.node, ignore_errors=True)
        self.write_topology(topology)
        files = sorted(str(path.relative_to(self.cpu.parent)) for path
                       in self.cpu.parent.rglob('*')
                       if path.is_file() and path.name != 'online')
        for name in data.draw(strategies.sets(strategies.sampled_from(files),
                                              max_size=3)):
            self.remove(name)
        found = self.read()
        whole = {topology.cpus}
        unknown = ' '.join(found.unknown)
        for fact, attribute, expected in (
                ('SMT siblings', 'cores', set(singletons(topology.cpus))),
                ('packages', 'packages', whole),
                ('NUMA nodes', 'nodes', whole)):
            self.assertEqual(expected if fact in unknown else set(
                getattr(topology, attribute)),
                set(getattr(found, attribute)), attribute)
        self.assertEqual('caches' in unknown, found.caches is None)

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
