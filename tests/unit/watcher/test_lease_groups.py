# SPDX-License-Identifier: Apache-2.0

"""Groups of operations that start together."""

import unittest

from secondary_scheduler.plans.operations import Operation, OperationKind
from secondary_scheduler.watcher import lease_groups

SUSPEND, RESUME, MIGRATE = (OperationKind.SUSPEND, OperationKind.RESUME,
                            OperationKind.MIGRATE)


def operation(number, kind, instance, lease, *after):
    return Operation(number, kind, instance, lease, 'h1', 'h1', after=after)


class GroupOperationsTest(unittest.TestCase):
    def group(self, *operations, names=None):
        return [(one.id, [member.instance for member in one.members],
                 list(one.after)) for one in lease_groups.group_operations(
                     operations, lambda uuid: (names or {}).get(uuid, uuid))]

    def test_group_waits_for_all_and_all_wait_for_the_group(self):
        self.assertEqual([
            (1, ['x'], []), (2, ['a', 'b'], [1, 7]), (7, ['y'], []),
            (4, ['z'], [2])], self.group(
                operation(1, MIGRATE, 'x', 'other'),
                operation(2, RESUME, 'a', 'l', 1),
                operation(7, MIGRATE, 'y', 'other'),
                operation(3, RESUME, 'b', 'l', 7),
                operation(4, MIGRATE, 'z', 'other', 3)))

    def test_order_within_a_group_is_natural_by_name(self):
        self.assertEqual([(1, ['c', 'a', 'b'], [])], self.group(
            operation(1, SUSPEND, 'a', 'l'), operation(2, SUSPEND, 'b', 'l'),
            operation(3, SUSPEND, 'c', 'l'),
            names={'a': 'vm9', 'b': 'vm10', 'c': 'vm1'}))

    def test_leases_and_kinds_are_groups_of_their_own(self):
        self.assertEqual(
            [(1, ['a', 'b'], []), (3, ['c', 'd'], []),
             (5, ['a', 'b'], [1])],
            self.group(
                operation(1, SUSPEND, 'a', 'l'),
                operation(2, SUSPEND, 'b', 'l'),
                operation(3, SUSPEND, 'c', 'm'),
                operation(4, SUSPEND, 'd', 'm'),
                operation(5, RESUME, 'a', 'l', 1),
                operation(6, RESUME, 'b', 'l', 2)))

    def test_migrations_and_losing_operations_stay_apart(self):
        for kind in (MIGRATE, OperationKind.STOP, OperationKind.SHELVE):
            self.assertEqual([(1, ['a'], []), (2, ['b'], [])], self.group(
                operation(1, kind, 'a', 'l'), operation(2, kind, 'b', 'l')))

    def test_group_that_would_wait_for_itself_stays_apart(self):
        """A remote resume frees the room for the second member."""
        self.assertEqual(
            [(1, ['a'], []), (2, ['a'], [1]), (3, ['b'], [2])], self.group(
                operation(1, RESUME, 'a', 'l'),
                operation(2, MIGRATE, 'a', 'l', 1),
                operation(3, RESUME, 'b', 'l', 2)))

    def test_two_groups_that_would_wait_for_each_other(self):
        """Only the first is joined; the other one stays apart."""
        self.assertEqual([
            (1, ['a', 'b'], [4]), (3, ['c'], [1]), (4, ['d'], [])],
            self.group(
                operation(1, SUSPEND, 'a', 'l'),
                operation(2, SUSPEND, 'b', 'l', 4),
                operation(3, RESUME, 'c', 'm', 1),
                operation(4, RESUME, 'd', 'm')))
