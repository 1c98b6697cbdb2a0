# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools
import unittest

from secondary_scheduler.cpu_affinity.measurements import (
    MeasuredSlowdown,
    Measurement,
    Place,
)
from secondary_scheduler.cpu_affinity.profile_merging import merge_profiles
from secondary_scheduler.cpu_affinity.workload_profiles import (
    ResourceUse,
    SlowdownMatrix,
    WorkloadProfiles,
)
from secondary_scheduler.reading.values import InputError

MEASURED = Measurement('EPYC', '6.1', 'units', 10.0, (
    MeasuredSlowdown('a', 'b', Place.SAME_CPU, (1.5, 1.6)),), ('one cache',))


def profiles(classes, rows, cpu=50.0, measured=MEASURED):
    return WorkloadProfiles(
        dict.fromkeys(classes, ResourceUse(cpu)),
        SlowdownMatrix('time_sharing', tuple(classes), rows), None, measured)


class MergeTest(unittest.TestCase):

    def test_classes_of_all_files_are_joined(self):
        found = merge_profiles({
            'one': profiles('ab', ((1.0, 1.5), (1.2, None))),
            'two': profiles('bc', ((1.3, None), (1.4, 2.0)))}).profiles
        self.assertEqual(('a', 'b', 'c'), found.time_sharing.classes)
        self.assertEqual(((1.0, 1.5, None), (1.2, 1.3, None),
                          (None, 1.4, 2.0)), found.time_sharing.rows)

    def test_larger_value_counts_and_the_conflict_is_named(self):
        files = {'one': profiles('a', ((1.5,),)),
                 'two': profiles('a', ((1.8,),), 54.0),
                 'three': profiles('a', ((1.62,),))}
        for order in itertools.permutations(files.items()):
            found = merge_profiles(dict(order))
            self.assertEqual(1.8, found.profiles.time_sharing.entry('a', 'a'))
            self.assertEqual(54.0, found.profiles.uses['a'].cpu)
            conflict, = found.conflicts
            self.assertTrue(conflict.startswith('time_sharing[a][a]: '))
            self.assertIn('1.8 in two', conflict)

    def test_values_within_the_tolerance_are_no_conflict(self):
        self.assertEqual((), merge_profiles({
            'one': profiles('a', ((1.5,),)),
            'two': profiles('a', ((1.64,),))}).conflicts)

    def test_repeats_of_all_files_are_kept(self):
        other = dataclasses.replace(MEASURED, kernel='6.2', seconds=5.0)
        found = merge_profiles({
            'one': profiles('a', ((1.5,),)),
            'two': profiles('a', ((1.5,),), measured=other),
            'three': profiles('a', ((1.5,),))}).profiles.measurement
        self.assertEqual(('6.1, 6.2', 5.0, ('one cache',)),
                         (found.kernel, found.seconds, found.unknown))
        self.assertEqual((1.5, 1.6) * 3, found.slowdowns[0].values)

    def test_other_cpu_models_are_refused_with_their_files(self):
        other = dataclasses.replace(MEASURED, cpu_model='Xeon')
        for measured, name in ((other, 'Xeon'), (None, 'unknown')):
            with self.assertRaisesRegex(
                    InputError, f'one CPU model, not one: EPYC; two: {name}'):
                merge_profiles({
                    'one': profiles('a', ((1.5,),)),
                    'two': profiles('a', ((1.5,),), measured=measured)})


if __name__ == '__main__':
    unittest.main()
