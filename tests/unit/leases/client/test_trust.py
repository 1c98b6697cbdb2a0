# SPDX-License-Identifier: Apache-2.0

"""Tests of the commands and methods for the standing trust."""

import unittest

from secondary_scheduler.leases.client import client
from secondary_scheduler.leases.client.v1 import lease, trust
from tests.unit.leases.api import keystones
from tests.unit.leases.client.client_case import NODES, ClientCase


class TrustCommandTest(ClientCase):

    def setUp(self):
        super().setUp()
        self.service.conf.set_override('trustee_user_id', 'engine',
                                       'secondary_lease_api')
        self.addCleanup(self.service.conf.clear_override, 'trustee_user_id',
                        'secondary_lease_api')
        self.service.trusts._clock = self.service.store._clock
        self.keystone = keystones.Keystone(self, self.service.conf)

    def test_trust_is_made_shown_and_revoked(self):
        made = self.json(trust.CreateLeaseTrust)
        self.assertEqual(('trust1', 'member', 'valid', ''), tuple(
            made[name] for name in ('id', 'roles', 'state', 'message')))
        self.assertEqual(made, self.json(trust.ShowLeaseTrust))
        self.assertEqual('trust2', self.json(trust.CreateLeaseTrust)['id'])
        self.assertEqual('', self.execute(trust.DeleteLeaseTrust))
        self.assertEqual({}, self.keystone.trusts)

    def test_errors_name_the_command_to_run(self):
        for command in (trust.ShowLeaseTrust, trust.DeleteLeaseTrust):
            with self.assertRaisesRegex(client.LeaseError, 'trust create'):
                self.execute(command)
        self.keystone.delegated = {'alice:p1'}
        with self.assertRaisesRegex(client.LeaseError, 'trust create'):
            self.execute(lease.CreateLease, 'nightly', *NODES,
                         '--duration', '1h')


if __name__ == '__main__':
    unittest.main()
