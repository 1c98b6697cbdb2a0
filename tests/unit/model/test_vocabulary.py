# SPDX-License-Identifier: Apache-2.0

import unittest

from secondary_scheduler.model import vocabulary as words


def specs(**changes):
    found = words.secondary_extra_specs(2, 512, 4, words.SecondaryMark())
    for key, value in changes.items():
        found[key.replace('__', ':')] = value
    return found


class TestMark(unittest.TestCase):

    def test_an_unmarked_flavor_is_a_primary(self):
        for extra in ({}, {words.MARKER: 'false'}, {words.MARKER: 'maybe'},
                      {words.PRIORITY: '3'}):
            self.assertIsNone(words.read_mark(extra))

    def test_marked_flavor_is_a_secondary(self):
        mark = words.read_mark({words.MARKER: ' True ', words.PRIORITY: '8',
                                words.PREEMPT_POLICY: 'shelve'})
        self.assertEqual(
            words.SecondaryMark(words.PreemptPolicy.SHELVE, 8), mark)

    def test_marked_flavor_has_defaults(self):
        self.assertEqual(words.SecondaryMark(),
                         words.read_mark({words.MARKER: 'yes'}))

    def test_unreadable_values_are_safe_for_primaries(self):
        mark = words.read_mark({words.MARKER: '1', words.PRIORITY: 'high',
                                words.PREEMPT_POLICY: 'explode'})
        self.assertEqual(1, mark.priority)
        self.assertEqual(words.PreemptPolicy.SUSPEND, mark.preempt_policy)
        self.assertEqual(10, words.read_mark(
            {words.MARKER: '1', words.PRIORITY: '99'}).priority)

    def test_owner_may_lower_a_priority_only(self):
        mark = words.SecondaryMark(priority=5)
        wishes = {'3': 3, '9': 5, '-4': 1, 'top': 5, None: 5}
        self.assertEqual(wishes, {
            wish: words.lowered_priority(mark, wish) for wish in wishes})


class TestProblems(unittest.TestCase):

    def problems(self, extra):
        return words.flavor_problems(extra, 2, 512, 4)

    def test_well_formed_flavors_have_no_problem(self):
        self.assertEqual([], self.problems(specs()))
        self.assertEqual([], self.problems({}))
        self.assertEqual([], self.problems({'hw:cpu_policy': 'dedicated'}))

    def test_resources_without_the_marker(self):
        extra = specs()
        del extra[words.MARKER]
        self.assertIn('without', self.problems(extra)[0])

    def test_unreadable_resources_without_the_marker(self):
        self.assertFalse(words.uses_secondary_resources(
            {'resources:' + words.SLOT: 'one'}))

    def test_the_marker_without_resources(self):
        found = self.problems({words.MARKER: 'true'})
        self.assertIn('resources:CUSTOM_SECONDARY_SLOT must be 1, not absent',
                      found)

    def test_each_fault_is_named(self):
        for change, expected in (
                ({'lifecycle__priority': '11'}, 'from 1 to 10'),
                ({'lifecycle__priority': 'x'}, 'from 1 to 10'),
                ({'lifecycle__preempt_policy': 'eat'}, 'must be one of'),
                ({'resources__VCPU': '2'}, 'resources:VCPU must be 0'),
                ({'hw__cpu_policy': 'dedicated'}, 'must be shared'),
                ({'hw__numa_nodes': '2'}, 'not possible'),
                ({'pci_passthrough__alias': 'a:1'}, 'not possible'),
                ({'resources__CUSTOM_GOLD': '1'}, 'a primary\'s')):
            with self.subTest(change):
                found = self.problems(specs(**change))
                self.assertEqual(1, len(found))
                self.assertIn(expected, found[0])

    def test_a_class_of_amount_zero_may_be_left_out(self):
        extra = words.secondary_extra_specs(1, 64, 0, words.SecondaryMark())
        del extra['resources:' + words.DISK_GB]
        self.assertEqual([], words.flavor_problems(extra, 1, 64, 0))


class TestProvider(unittest.TestCase):

    def test_child_provider_follows_from_the_root(self):
        root = '3f0c9b52-3a53-4d0e-9d0e-2d7f6d0c5e11'
        # Existing child providers have these names, so they never change.
        self.assertEqual('ca7bd351-49fc-5f61-a74d-0eb3e51c6e65',
                         words.child_provider_uuid(root))
        self.assertEqual(root + '_secondary',
                         words.child_provider_name(root))
