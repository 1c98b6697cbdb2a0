# SPDX-License-Identifier: Apache-2.0

import unittest

from secondary_scheduler.agent import cgroup_mounts


class Mounts(unittest.TestCase):
    def test_mount_maps_paths_below_its_root(self):
        mount = cgroup_mounts.Mount(frozenset({'cpu'}), '/docker/x', '/m', 1)
        self.assertEqual('/m/machine', mount.directory('/docker/x/machine'))
        self.assertEqual('/m', mount.directory('/docker/x'))
        self.assertIsNone(mount.directory('/docker/xy'))
        self.assertIsNone(mount.directory('/../other'))
        self.assertEqual('a b\\x', cgroup_mounts._unescape('a\\040b\\134x'))
