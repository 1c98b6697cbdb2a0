# SPDX-License-Identifier: Apache-2.0

"""Microversions of the lease service."""

import json

from tempest.lib import decorators, exceptions

from secondary_tempest_plugin.services.leases_client import VERSION_HEADER
from secondary_tempest_plugin.tests import base

#: A reservation far ahead: no server is booted for it.
AHEAD_S = 2 * 86400
#: Fields that came with a microversion, by that version.
FIELDS = {'1.1': {'next_start'}, '1.3': {'unverified'},
          '1.4': {'served', 'charge'}}


class VersionsTest(base.LeaseTestCase):
    """Choice of a version, and the fields that depend on it."""

    def setUp(self) -> None:
        """Make a client whose version a test may change."""
        super().setUp()
        self.any = self.client_of(self.os_primary)

    @decorators.idempotent_id('889a2505-9ae7-4fdc-a72f-3c3c17a825b4')
    def test_versions_are_public(self) -> None:
        answer, body = self.any.raw_request(
            self.any.base_url.rstrip('/') + '/', 'GET', headers={})
        self.assertEqual(200, answer.status)
        version, = json.loads(body)['versions']
        self.assertEqual('1.0', version['min_version'])
        self.assertEqual([version], self.any.list_versions())

    @decorators.idempotent_id('11bcd4f0-5b63-4ee5-b764-ab752c5d26c3')
    def test_default_is_the_oldest_version(self) -> None:
        self.any.microversion = None
        answer, _ = self.any.get('/quota')
        self.assertEqual('secondary-lease 1.0',
                         answer[VERSION_HEADER.lower()])

    @decorators.idempotent_id('9ce2d28e-99a2-4d97-a273-c2b40afc73be')
    def test_latest_is_the_newest_version(self) -> None:
        self.any.microversion = 'latest'
        answer, _ = self.any.get('/quota')
        version, = self.any.list_versions()
        self.assertEqual(f'secondary-lease {version["max_version"]}',
                         answer[VERSION_HEADER.lower()])

    @decorators.attr(type='negative')
    @decorators.idempotent_id('ff9502c6-f2a2-4c78-b9b3-05df4c9e8f3e')
    def test_unknown_version_is_not_acceptable(self) -> None:
        for version in ('1.999', '2.0', '0.9'):
            self.any.microversion = version
            self.assert_refused(exceptions.NotAcceptable, 'not-acceptable',
                                self.any.get, '/quota')

    @decorators.attr(type='negative')
    @decorators.idempotent_id('4690ca49-d429-4522-b6d1-99ce41da4ea2')
    def test_malformed_version_is_refused(self) -> None:
        self.any.microversion = 'newest'
        self.assert_refused(exceptions.BadRequest, 'bad-request',
                            self.any.get, '/quota')

    @decorators.idempotent_id('50d34c99-05a1-4f88-ab36-6234115727d5')
    def test_fields_of_a_lease_depend_on_the_version(self) -> None:
        lease = self.create_lease(start=base.moment(AHEAD_S), duration=60)
        newest, = self.any.list_versions()
        for version, fields in FIELDS.items():
            number = int(version.partition('.')[2])
            if number > int(newest['max_version'].partition('.')[2]):
                continue
            self.any.microversion = f'1.{number - 1}'
            self.assertFalse(fields & self.any.show_lease(lease['id']).keys())
            self.any.microversion = version
            self.assertLessEqual(fields,
                                 self.any.show_lease(lease['id']).keys())

    @decorators.attr(type='negative')
    @decorators.idempotent_id('ae3614de-55a1-4a32-98bc-4a510a1f2bb3')
    def test_quotes_do_not_exist_in_the_first_version(self) -> None:
        self.any.microversion = '1.0'
        detail = self.assert_refused(
            exceptions.NotFound, 'no-such-path', self.any.create_quote,
            nodes=[self.node_set()], duration=60)
        self.assertIn('1.1', detail)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('fc612252-c901-4904-a8c8-656db546ba46')
    def test_user_data_is_refused_before_its_version(self) -> None:
        self.any.microversion = '1.2'
        self.assert_refused(
            exceptions.BadRequest, 'invalid', self.any.create_lease,
            nodes=[self.node_set(user_data='IyEvYmluL3NoCg==')], duration=60)
