# SPDX-License-Identifier: Apache-2.0

"""Requests that the lease service refuses."""

import json
import uuid

from tempest import config
from tempest.lib import decorators, exceptions

from secondary_tempest_plugin.tests import base

CONF = config.CONF

#: A reservation far ahead: no server is booted for it.
AHEAD_S = 2 * 86400


class LeasesNegativeTest(base.LeaseTestCase):
    """Each refusal names its reason, and makes no lease."""

    def setUp(self) -> None:
        """Count the leases of the project."""
        super().setUp()
        self.used = self.client.show_quota()['leases']['used']

    def tearDown(self) -> None:
        """Assert that no lease was made."""
        self.assertEqual(self.used, self.client.show_quota()['leases']['used'])
        super().tearDown()

    def assert_invalid(self, word: str, **terms: object) -> None:
        """Assert that a request is refused as invalid, naming a field."""
        detail = self.assert_refused(
            exceptions.BadRequest, 'invalid', self.client.create_lease,
            **{'nodes': [self.node_set()], 'duration': 60, **terms})
        self.assertIn(word, detail)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('ea514d20-c740-4233-80b9-015b4a89c28f')
    def test_wrong_terms(self) -> None:
        for word, terms in (
                ('nodes', {'nodes': []}),
                ('number', {'nodes': [self.node_set(0)]}),
                ('duration', {'duration': 0}),
                ('duration', {'duration': '60'}),
                ('start', {'start': 'tomorrow'}),
                ('start', {'start': base.moment(-3600)}),
                ('deadline', {'deadline': base.moment(30)}),
                ('immediate', {'immediate': True,
                               'start': base.moment(AHEAD_S)}),
                ('priority', {'priority': 10})):
            self.assert_invalid(word, **terms)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('9804ed87-7e82-43a1-8112-412a4cfc51bb')
    def test_unknown_flavor_and_image_are_named_together(self) -> None:
        wrong = str(uuid.uuid4())
        node = self.node_set(flavor=wrong, image=wrong)
        self.assert_invalid('nodes[0].flavor', nodes=[node])
        self.assert_invalid('nodes[0].image', nodes=[node])

    @decorators.attr(type='negative')
    @decorators.idempotent_id('1c7d2f7d-fe12-4349-bc2c-7bb3e2e9edc9')
    def test_flavor_of_primaries_is_refused(self) -> None:
        flavor = CONF.secondary_scenario.primary_flavor or (
            CONF.compute.flavor_ref)
        self.assert_invalid('nodes[0].flavor',
                            nodes=[self.node_set(flavor=flavor)])

    @decorators.attr(type='negative')
    @decorators.idempotent_id('049684d9-5a14-4eb6-9e4c-97534aa86680')
    def test_reserved_metadata_are_refused(self) -> None:
        self.assert_invalid('secondary:lease', nodes=[self.node_set(
            metadata={'secondary:lease': 'x'})])

    @decorators.attr(type='negative')
    @decorators.idempotent_id('b310fe43-9d64-44a7-89e1-1039f384c4ea')
    def test_unknown_leases_are_not_found(self) -> None:
        for lease in (str(uuid.uuid4()), 'no-uuid'):
            for ask, more in (
                    (self.client.show_lease, ()),
                    (self.client.delete_lease, ()),
                    (self.client.list_events, ()),
                    (self.client.show_lease_timeline, ()),
                    (self.client.act_on_lease, ('cancel',))):
                self.assert_refused(exceptions.NotFound, 'not-found',
                                    ask, lease, *more)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('12deca32-8fdd-452a-b40b-5d0fd4918e52')
    def test_unknown_query_is_refused(self) -> None:
        for query in ({'order': 'name'}, {'limit': 0}, {'state': 'asleep'},
                      {'marker': str(uuid.uuid4())}):
            self.assert_refused(exceptions.BadRequest, 'invalid',
                                self.client.list_leases, **query)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('293f299a-d96f-4fc9-8fdf-29eec99222a4')
    def test_unknown_path_and_method_are_refused(self) -> None:
        self.assert_refused(exceptions.NotFound, 'no-such-path',
                            self.client.get, '/reservations')
        refusal = self.assertRaises(exceptions.UnexpectedResponseCode,
                                    self.client.put, '/leases', '{}')
        self.assertEqual(405, refusal.resp.status)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('f85e59cc-6f54-4a9f-9bcd-b812eed952f2')
    def test_body_that_is_no_json_is_refused(self) -> None:
        self.assert_refused(exceptions.BadRequest, 'invalid',
                            self.client.post, '/leases', '{"nodes": ')
        self.assert_refused(
            exceptions.InvalidContentType, 'no-json', self.client.post,
            '/leases', 'nodes', headers={
                **self.client.get_headers(), 'Content-Type': 'text/plain'})

    @decorators.attr(type='negative')
    @decorators.idempotent_id('5e5fee84-c3f2-46aa-8288-a6349a01b0e7')
    def test_request_without_a_token_is_unauthorized(self) -> None:
        for headers in ({}, {'X-Auth-Token': 'no-token'}):
            answer, body = self.client.raw_request(
                self.client.base_url.rstrip('/') + '/leases', 'GET',
                headers=headers)
            self.assertEqual(401, answer.status)
            error, = json.loads(body)['errors']
            self.assertEqual('secondary-lease.unauthorized', error['code'])
