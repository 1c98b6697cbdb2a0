# SPDX-License-Identifier: Apache-2.0

"""Configurations: viability, and the order of the members of a lease."""

import unittest

from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
    natural_key,
)


def vm(name, host, busy, lease='vjob'):
    return Member(name, lease, MemberState.RUNNING, host, (busy, 256),
                  (0, 0), 256)


def three_hosts(*members):
    return Configuration(
        ('cpu', 'memory'), {name: (1, 1024) for name in ('N1', 'N2', 'N3')},
        {one.name: one for one in members})


class TestViability(unittest.TestCase):
    """The example of Hermenier 2009, figure 5."""

    def test_two_busy_members_on_a_host_of_one_cpu_are_not_viable(self):
        self.assertFalse(three_hosts(
            vm('VM1', 'N1', 0), vm('VM2', 'N2', 1),
            vm('VM3', 'N2', 1)).is_viable())

    def test_an_idle_member_is_viable_beside_a_busy_one(self):
        for host in ('N1', 'N2', 'N3'):
            with self.subTest(host):
                self.assertTrue(three_hosts(
                    vm('VM1', host, 0), vm('VM2', 'N2', 1),
                    vm('VM3', 'N3', 1)).is_viable())


class TestOrder(unittest.TestCase):

    def test_members_of_a_lease_are_in_natural_order(self):
        found = three_hosts(*(vm(name, 'N1', 0) for name in (
            'vm10', 'vm2', 'vm1', 'a'))).leases['vjob']
        self.assertEqual(['a', 'vm1', 'vm2', 'vm10'],
                         [one.name for one in found])

    def test_natural_keys_of_any_names_compare(self):
        names = ['', '1', 'a', '1a', 'a1', 'a1b2', '00', '-1']
        self.assertEqual(len(names), len(sorted(names, key=natural_key)))


if __name__ == '__main__':
    unittest.main()
