# SPDX-License-Identifier: Apache-2.0

"""Tests of ``secondary-scheduler flavor``, on a cloud in memory."""

import contextlib
import io

from secondary_scheduler.cmd import flavors, manage
from secondary_scheduler.model import vocabulary
from tests.unit.cmd.command_case import CommandCase


class FlavorTest(CommandCase):

    def create(self, *more):
        return ('flavor', 'create', 'sec', '--vcpus', '2', '--ram', '512',
                *more)

    def test_created_flavor_is_well_formed(self):
        self.good(*self.create('--disk', '3', '--priority', '2',
                               '--preempt-policy', 'shelve'))
        flavor = self.cloud.compute.made['sec']
        self.assertEqual((2, 512, 3), (flavor.vcpus, flavor.ram,
                                       flavor.disk))
        self.assertEqual(
            vocabulary.SecondaryMark(vocabulary.PreemptPolicy.SHELVE, 2),
            vocabulary.read_mark(flavor.extra_specs))
        self.assertEqual('3', flavor.extra_specs[
            'resources:' + vocabulary.DISK_GB])
        self.good('flavor', 'check')
        self.good('flavor', 'check', 'sec')

    def test_flavor_claims_no_resource_of_amount_zero(self):
        self.good(*self.create())
        self.assertNotIn('resources:' + vocabulary.DISK_GB,
                         self.cloud.compute.made['sec'].extra_specs)
        self.good('flavor', 'check', 'sec')

    def test_existing_flavor_is_accepted_only_if_equal(self):
        self.good(*self.create())
        self.assertIn('already', self.good(*self.create()))
        self.assertIn('another flavor', self.bad(
            *self.create('--disk', '1')))

    def test_flavor_is_deleted_if_its_extra_specs_fail(self):
        self.cloud.compute.broken_specs = True
        with self.assertRaises(RuntimeError):
            self.run_command(*self.create())
        self.assertEqual({}, self.cloud.compute.made)

    def test_check_lists_ill_formed_flavors(self):
        self.cloud.compute.add('primary')
        self.good('flavor', 'check')
        self.cloud.compute.add('half',
                               extra_specs={vocabulary.MARKER: 'true'})
        text = self.bad('flavor', 'check')
        self.assertIn('half: resources:VCPU', text)
        self.assertNotIn('primary:', text)
        self.good('flavor', 'check', 'primary')
        self.bad('flavor', 'check', 'half')
        self.assertIn('no flavor nothing', self.bad(
            'flavor', 'check', 'nothing'))

    def test_swap_and_ephemeral_disk_count(self):
        flavor = self.cloud.compute.add(
            'sec', disk=1, extra_specs=vocabulary.secondary_extra_specs(
                1, 128, 4, vocabulary.SecondaryMark()))
        flavor.ephemeral, flavor.swap = 2, 512
        self.assertEqual({}, flavors.flavor_faults([flavor]))
        flavor.swap = 0
        self.assertEqual(['sec'], list(flavors.flavor_faults([flavor])))

    def test_bad_arguments_are_refused(self):
        for more in (('--priority', '11'), ('--priority', 'high'),
                     ('--vcpus', '0'), ('--preempt-policy', 'vaporize')):
            with self.assertRaises(SystemExit), \
                    contextlib.redirect_stderr(io.StringIO()):
                manage.main(self.create(*more))
