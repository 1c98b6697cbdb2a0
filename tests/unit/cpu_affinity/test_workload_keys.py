# SPDX-License-Identifier: Apache-2.0

import unittest

from secondary_scheduler.cpu_affinity.workload_keys import class_of

IMAGE = '6b1f0b0e-6f0e-4f43-9a44-0d2f6b1c7e55'
SPECS = {'lifecycle:workload_class': 'batch'}
KNOWN = {'batch', 'web', f'{IMAGE}/m1.small'}


class ClassOfTest(unittest.TestCase):

    def test_class_named_by_flavor_wins_over_image(self):
        self.assertEqual('batch', class_of(SPECS, IMAGE, 'm1.small', KNOWN))

    def test_unknown_class_named_by_flavor_is_not_replaced_by_image(self):
        self.assertEqual('batch', class_of(
            SPECS, IMAGE, 'm1.small', KNOWN - {'batch'}))

    def test_image_with_flavor_is_class_only_if_it_is_known(self):
        for specs in ({}, {'lifecycle:workload_class': ''}):
            self.assertEqual(f'{IMAGE}/m1.small',
                             class_of(specs, IMAGE, 'm1.small', KNOWN))
        for image, flavor in ((IMAGE, 'm1.large'), ('web', ''), (None, 'web'),
                              (IMAGE, None), ('', 'm1.small')):
            self.assertIsNone(class_of({}, image, flavor, KNOWN))
