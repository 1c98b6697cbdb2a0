# SPDX-License-Identifier: Apache-2.0

"""Control groups of the one-machine cloud."""

import importlib
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

BOX = pathlib.Path(__file__).parents[2] / 'tools/box'


class BoxTestCase(unittest.TestCase):
    """Imports modules of the box, and has a directory of its own."""

    def setUp(self):
        patch = mock.patch.object(sys, 'path', [str(BOX), *sys.path])
        patch.start()
        self.addCleanup(patch.stop)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class TopsTest(BoxTestCase):

    def setUp(self):
        super().setUp()
        self.cgroups = importlib.import_module('cgroups')
        self.cgroups._tops.cache_clear()
        self.addCleanup(self.cgroups._tops.cache_clear)

    def tops(self, own, *mounts):
        """Return the topmost groups on a machine with groups and mounts."""
        lines = []
        for point, kind, names in mounts:
            directory = self.folder / point
            directory.mkdir(parents=True, exist_ok=True)
            if kind == 'cgroup2':
                (directory / 'cgroup.controllers').write_text(
                    names.replace(',', ' ') + '\n')
                names = 'nsdelegate'
            lines.append(f'32 31 0:29 / {directory} rw - {kind} {kind} '
                         f'rw,{names}')
        (self.folder / 'cgroup').write_text(own)
        (self.folder / 'mountinfo').write_text('\n'.join(
            ['23 1 0:1 / / rw - ext4 /dev/vda rw', *lines]) + '\n')
        return {name: str(top.relative_to(self.folder)) for name, top
                in self.cgroups._tops(str(self.folder)).items()}

    def test_version_2_is_at_the_top(self):
        found = self.tops('0::/user.slice/session-3.scope\n',
                          ('fs', 'cgroup2', 'cpuset,cpu,io,memory,pids,rdma'))
        self.assertEqual(dict.fromkeys(
            ('cpu', 'cpuacct', 'cpuset', 'memory', 'io', 'pids'),
            'fs/secondary-box'), found)

    def test_version_1_is_below_the_caller(self):
        found = self.tops(
            '4:memory:/one/secondary-box/control\n2:cpu,cpuacct:/a\n'
            '1:name=systemd:/b\n0::/\n',
            ('fs/cpu,cpuacct', 'cgroup', 'cpu,cpuacct'),
            ('fs/memory', 'cgroup', 'memory'),
            ('fs/systemd', 'cgroup', 'name=systemd'),
            ('fs/unified', 'cgroup2', 'hugetlb,pids'))
        self.assertEqual({'cpu': 'fs/cpu,cpuacct/a/secondary-box',
                          'cpuacct': 'fs/cpu,cpuacct/a/secondary-box',
                          'memory': 'fs/memory/one/secondary-box'}, found)

    def test_some_controllers_of_each_version(self):
        found = self.tops('4:memory:/\n0::/\n',
                          ('fs/memory', 'cgroup', 'memory'),
                          ('fs/unified', 'cgroup2', 'cpu,cpuset'))
        self.assertEqual({'cpu': 'fs/unified/secondary-box',
                          'cpuacct': 'fs/unified/secondary-box',
                          'cpuset': 'fs/unified/secondary-box',
                          'memory': 'fs/memory/secondary-box'}, found)


class RemovalTest(BoxTestCase):

    def test_groups_may_be_removed_by_libvirt_meanwhile(self):
        """As by another "down", or by libvirt when a guest ends."""
        for going in ('control', 'hosts/box1'):
            with self.subTest(going):
                self.check_removal(going)

    def check_removal(self, going):
        cgroups = importlib.import_module('cgroups')
        top = self.folder / 'top'
        for group in ('control/a', 'hosts/box1/machine',
                      'hosts/box2/machine'):
            (top / group).mkdir(parents=True)
        scan, removed = os.scandir, []

        def scandir(path):
            if str(path) == str(top / going) and not removed:
                removed.append(path)
                shutil.rmtree(path)
            return scan(path)

        with mock.patch.object(cgroups, '_tops', lambda: {'cpu': top}), \
                mock.patch.object(os, 'scandir', scandir):
            self.assertEqual(set(), cgroups.processes(''))
            cgroups.remove()
        self.assertFalse(top.exists())


class CpusTest(BoxTestCase):

    def test_no_other_host_is_on_the_first_ones_cpu(self):
        layout = importlib.import_module('layout')
        for usable, cpus in (({0}, ([0], [0])), ({0, 1}, ([1], [0])),
                             ({9, 4, 6}, ([9], [4, 6]))):
            with self.subTest(usable), mock.patch.object(
                    layout.os, 'sched_getaffinity',
                    lambda pid, usable=usable: usable):
                self.assertEqual(cpus, layout.cpus())

    def test_other_hosts_of_a_wide_box_have_all_cpus(self):
        layout = importlib.import_module('layout')
        settings = {'hosts': 3, 'wide': True}
        for usable, first, others in (({0}, [0], [0]), ({0, 1}, [1], [0, 1]),
                                      ({9, 4, 6}, [9], [4, 6, 9])):
            with self.subTest(usable), mock.patch.object(
                    layout.os, 'sched_getaffinity',
                    lambda pid, usable=usable: usable):
                self.assertEqual(
                    {'box1': first, 'box2': others, 'box3': others},
                    layout.host_cpus(settings))


class CpuTimesTest(BoxTestCase):

    def test_throttled_time_of_both_versions(self):
        cgroups = importlib.import_module('cgroups')
        stat = self.folder / 'cpu.stat'
        stat.write_text('nr_periods 9\nnr_throttled 3\n'
                        'throttled_time 52000\n')
        self.assertEqual(52_000, cgroups.throttled_ns(self.folder))
        (self.folder / 'cgroup.controllers').write_text('cpu\n')
        stat.write_text('usage_usec 7\nthrottled_usec 52\n')
        self.assertEqual(52_000, cgroups.throttled_ns(self.folder))
