# SPDX-License-Identifier: Apache-2.0

"""Tests of all routes of the service."""

import json
import unittest
from unittest import mock

from oslo_db import exception as db_exception
import webob

from secondary_scheduler.leases.api.db import plans, quotes
from secondary_scheduler.leases.api.resources import leases
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.api import services
from tests.unit.leases.api.services import (
    LEASE,
    NOBODY,
    NODES,
    NOW,
    QUOTE,
    stretch,
)


class ApiCase(unittest.TestCase):

    options: dict = {}

    def setUp(self):
        super().setUp()
        self.service = services.on(self, **self.options)
        self.api = services.Api(self.service)

    def enter(self, lease, state):
        """Set the state of a lease, as the scheduler does."""
        self.service.store.change(lease['id'], str(state), {'state': state})


class CreateTest(ApiCase):

    def test_requested_terms_are_stored_and_shown(self):
        made = self.api.create(start='2027-01-31T10:00:00+01:00',
                               deadline='2027-01-31T12:00:00Z', max_rate=0.5,
                               preemptible=False)
        self.assertEqual(202, self.api.answer.status_int)
        self.assertEqual(f'http://localhost/leases/{made["id"]}',
                         self.api.answer.headers['Location'])
        expected = {
            'id': made['id'], 'name': 'nightly', 'project_id': 'p1',
            'user_id': 'alice', 'kind': 'deadline', 'state': 'new',
            'paused': False, 'cancelling': False, 'reason': '',
            'nodes': [{**NODES[0], 'network': None, 'key_name': None,
                       'has_user_data': False}],
            'duration': 3600, 'start': '2027-01-31T09:00:00Z',
            'deadline': '2027-01-31T12:00:00Z', 'immediate': False,
            'preemptible': False, 'max_rate': 0.5, 'price': None,
            'next_start': None, 'servers': [],
            'created_at': '2027-01-31T08:00:00Z',
            'updated_at': '2027-01-31T08:00:00Z', 'revision': 1,
            # Without Keystone there is no token for look-ups.
            'unverified': [
                {'field': field, 'reason': 'there is no token for requests '
                                           'to services'}
                for field in ('nodes[0].flavor', 'nodes[0].image',
                              'nodes[0].networks', 'nodes')],
            'served': 0, 'charge': None}
        self.assertEqual(expected, made)
        self.assertEqual(expected, self.api.good(
            'GET', f'/leases/{made["id"]}')['lease'])

    def test_user_data_may_be_empty(self):
        made = self.api.create(nodes=[{**NODES[0], 'user_data': ''}])
        self.assertTrue(made['nodes'][0]['has_user_data'])

    def test_kind_follows_from_terms(self):
        for kind, terms in (
                ('best-effort', {}), ('immediate', {'immediate': True}),
                ('reservation', {'start': '2027-01-31T09:00:00Z'}),
                ('deadline', {'deadline': '2027-01-31T09:00:00Z'})):
            self.assertEqual(kind, self.api.create(**terms)['kind'])

    def test_repeated_request_returns_the_same_lease(self):
        first = self.api.create(client_token='t')
        self.assertEqual(first, self.api.create(client_token='t'))
        self.assertEqual('secondary-lease.token-used', self.api.bad(
            409, 'POST', '/leases', {**LEASE, 'client_token': 't',
                                     'duration': 1})['code'])
        self.assertEqual(1, len(self.api.good('GET', '/leases')['leases']))

    def test_invalid_terms_are_refused_with_their_field(self):
        for changes, says in (
                ({'duration': 0}, 'duration'),
                ({'duration': True}, 'duration'),
                ({'duration': 1.5}, 'duration'),
                ({'nodes': []}, 'nodes'),
                ({'nodes': [{'number': 1}]}, 'flavor'),
                ({'nodes': [{**NODES[0], 'number': 10 ** 30}]}, 'number'),
                ({'name': 'two\nlines'}, 'name'),
                ({'name': 'end\n'}, 'name'),
                ({'name': 'null\0'}, 'name'),
                ({'name': '\ud800'}, 'surrogates'),
                ({'name': 'x' * 256}, 'name'),
                ({'price': 0}, 'price'),
                ({'start': '2027-01-31T09:00:00'}, 'start'),
                ({'start': '2027-02-30T09:00:00Z'}, 'no such time'),
                ({'start': '2027-02-28T09:00:00+99:99'}, 'no such time'),
                ({'start': '2027-01-31T07:59:59Z'}, 'later start'),
                ({'deadline': '2027-01-31T08:59:59Z'}, 'does not fit'),
                ({'start': '2027-01-31T09:00:00Z',
                  'deadline': '2027-01-31T09:59:59Z'}, 'does not fit'),
                ({'start': '2027-01-31T09:00:00Z', 'immediate': True},
                 'leave out')):
            with self.subTest(changes):
                error = self.api.bad(400, 'POST', '/leases',
                                     {**LEASE, **changes})
                self.assertIn(says, error['detail'])
                self.assertEqual('secondary-lease.invalid', error['code'])
        self.assertEqual([], self.service.store.leases())

    def test_invalid_bodies_are_refused(self):
        for body in (b'', b'{', b'[]', b'null', b'\xff', b'{"duration": NaN}',
                     b'[' * 50000, b'"' + b'x' * 9999 + b'"'):
            with self.subTest(body[:20]):
                self.api.bad(400, 'POST', '/leases', body)
        self.assertEqual('secondary-lease.no-json', self.api.bad(
            415, 'POST', '/leases', b'{}',
            headers={'Content-Type': 'text/plain'})['code'])
        self.api.bad(413, 'POST', '/leases', b' ' * 200000)


class QuotaTest(ApiCase):

    options = {'quota_leases': 2, 'quota_nodes': 5}

    def test_quotas_limit_leases_and_nodes(self):
        self.api.create()
        error = self.api.bad(403, 'POST', '/leases', {
            **LEASE, 'nodes': [{**NODES[0], 'number': 4}]})
        self.assertEqual('secondary-lease.over-quota', error['code'])
        self.assertIn('2 of 5 nodes', error['detail'])
        lease = self.api.create()
        self.assertIn('2 of 2 leases', self.api.bad(
            403, 'POST', '/leases', LEASE)['detail'])
        self.assertEqual(
            {'quota': {'leases': {'limit': 2, 'used': 2},
                       'nodes': {'limit': 5, 'used': 4}}},
            self.api.good('GET', '/quota'))
        self.enter(lease, LeaseState.DONE)
        self.api.create()


class QuoteTest(ApiCase):

    options = {'quota_quotes': 2, 'quote_lifetime': 60}

    def ask(self, **changes):
        return self.api.good('POST', '/quotes', {**QUOTE, **changes})['quote']

    def test_quote_shows_answer_of_scheduler(self):
        made = self.ask(start='2027-01-31T10:00:00+01:00', max_rate=0.5)
        self.assertEqual(202, self.api.answer.status_int)
        path = f'/quotes/{made["id"]}'
        self.assertEqual(f'http://localhost{path}',
                         self.api.answer.headers['Location'])
        self.assertEqual({
            'id': made['id'], 'project_id': 'p1', 'user_id': 'alice',
            'kind': 'reservation',
            'nodes': [{**NODES[0], 'network': None, 'key_name': None,
                       'has_user_data': False}],
            'duration': 3600, 'start': '2027-01-31T09:00:00Z',
            'deadline': None, 'immediate': False, 'preemptible': True,
            'max_rate': 0.5, 'created_at': '2027-01-31T08:00:00Z',
            'expires_at': '2027-01-31T08:01:00Z', 'offer': None}, made)
        for one in self.service.quotes.unanswered():
            self.service.quotes.answer(one.uuid, quotes.QuoteAnswer(
                False, NOW + 7200, 1.0, 7200.0, 'there is no room'))
        self.assertEqual({'quote': {**made, 'offer': {
            'accepted': False, 'start': '2027-01-31T10:00:00Z', 'rate': 1.0,
            'price': 7200.0, 'reason': 'there is no room'}}},
            self.api.good('GET', path, user='reader'))
        self.service.store._clock.now += 60
        self.assertIn('POST /quotes', self.api.bad(404, 'GET', path)['detail'])

    def test_quote_makes_no_lease(self):
        self.ask()
        self.assertEqual([], self.api.good('GET', '/leases')['leases'])
        self.assertEqual(0, self.api.good('GET', '/quota')['quota']['leases'][
            'used'])

    def test_quotes_have_the_terms_of_leases(self):
        for changes, says in (
                ({'name': 'x'}, 'name'), ({'client_token': 'x'}, 'token'),
                ({'nodes': []}, 'nodes'),
                ({'deadline': '2027-01-31T08:59:59Z'}, 'does not fit'),
                ({'start': '2027-01-31T07:00:00Z'}, 'later start')):
            with self.subTest(changes):
                self.assertIn(says, self.api.bad(
                    400, 'POST', '/quotes', {**QUOTE, **changes})['detail'])
        self.api.bad(403, 'POST', '/quotes', QUOTE, user='reader')

    def test_unanswered_quotes_are_limited(self):
        for _ in range(2):
            self.ask()
        error = self.api.bad(403, 'POST', '/quotes', QUOTE)
        self.assertEqual('secondary-lease.over-quota', error['code'])
        self.assertIn('2 of 2 quotes', error['detail'])
        self.api.good('POST', '/quotes', QUOTE, project='p2')
        self.service.quotes.answer(self.service.quotes.unanswered()[0].uuid,
                                   quotes.QuoteAnswer(True, NOW))
        self.ask()


class ReadTest(ApiCase):

    options = {'max_limit': 2}

    def test_pages_link_to_all_leases(self):
        made = [self.api.create(name=f'n{number}')['id']
                for number in range(5)]
        path, found = '/leases?state=new&state=done', []
        while path:
            page = self.api.good('GET', path)
            self.assertLessEqual(len(page['leases']), 2)
            found += [one['id'] for one in page['leases']]
            links = [one['href'] for one in page['leases_links']]
            path = links[0].removeprefix('http://localhost') if links else ''
        self.assertEqual(made, found)
        self.assertEqual(made[:1], [one['id'] for one in self.api.good(
            'GET', '/leases?limit=1')['leases']])

    def test_rejected_lease_shows_price_or_next_start(self):
        dear, early = self.api.create(), self.api.create()
        self.service.store.change(dear['id'], 'rejected', {
            'state': LeaseState.REJECTED_BY_USER, 'price': 7200.0,
            'reason': 'too dear'})
        self.service.store.change(early['id'], 'rejected', {
            'state': LeaseState.REJECTED, 'next_start': NOW + 60})
        self.assertEqual([(7200.0, None), (None, '2027-01-31T08:01:00Z')], [
            (one['price'], one['next_start'])
            for one in self.api.good('GET', '/leases')['leases']])

    def test_lists_are_filtered_by_state_and_name(self):
        one, two = self.api.create(name='one'), self.api.create(name='two')
        self.enter(two, LeaseState.ACTIVE)
        for query, expected in (
                ('name=one', [one]), ('state=active', [two]),
                ('state=done', []), ('name=two&state=new', [])):
            self.assertEqual(
                [lease['id'] for lease in expected],
                [lease['id'] for lease in self.api.good(
                    'GET', f'/leases?{query}')['leases']], query)

    def test_invalid_queries_are_refused(self):
        for query in ('limit=0', 'limit=x', 'limit=-1', 'limit=1&limit=2',
                      f'limit={10 ** 30}', 'state=asleep', 'colour=red',
                      'marker=x', f'marker={NOBODY}', 'all_projects=maybe',
                      'name=%FF', 'name=%00'):
            with self.subTest(query):
                self.api.bad(400, 'GET', f'/leases?{query}')
        self.api.bad(400, 'GET', '/timeline?begin=soon')

    def test_events_are_listed(self):
        lease = self.api.create()
        path = f'/leases/{lease["id"]}'
        self.api.good('POST', f'{path}/action', {'action': 'pause'})
        self.assertEqual(
            [{'time': '2027-01-31T08:00:00Z', 'kind': kind, 'state': 'new',
              'text': ''} for kind in ('created', 'paused')],
            self.api.good('GET', f'{path}/events')['events'])
        self.assertEqual(['paused'], [one['kind'] for one in self.api.good(
            'GET', f'{path}/events?limit=1')['events']])

    def test_timeline_shows_planned_slots(self):
        lease, other = self.api.create(), self.api.create()
        plans.write_plan(self.service.database, {
            lease['id']: [stretch(0, 60, node1=1, node2=1)],
            other['id']: [stretch(60, 90, node1=2)]})
        slot = {'lease_id': lease['id'], 'begin': '2027-01-31T08:00:00Z',
                'end': '2027-01-31T08:01:00Z', 'what': 'run', 'nodes': 2,
                'hosts': None}
        path = f'/leases/{lease["id"]}/timeline'
        self.assertEqual({'slots': [slot]}, self.api.good('GET', path))
        self.assertEqual(slot, self.api.good('GET', '/timeline')['slots'][0])
        self.assertEqual([other['id']], [
            one['lease_id'] for one in self.api.good(
                'GET', '/timeline?begin=2027-01-31T08:01:00Z')['slots']])
        self.assertEqual({'node1': 1, 'node2': 1}, self.api.good(
            'GET', path, user='admin')['slots'][0]['hosts'])


class ChangeTest(ApiCase):

    def test_terms_change_only_while_lease_is_new(self):
        lease = self.api.create()
        path = f'/leases/{lease["id"]}'
        changed = self.api.good('PATCH', path, {
            'duration': 60, 'deadline': '2027-01-31T08:01:00Z',
            'revision': 1})['lease']
        self.assertEqual(
            {**lease, 'duration': 60, 'deadline': '2027-01-31T08:01:00Z',
             'kind': 'deadline', 'revision': 2}, changed)
        self.assertEqual('secondary-lease.stale', self.api.bad(
            409, 'PATCH', path, {'duration': 61, 'deadline': None,
                                 'revision': 1})['code'])
        self.api.bad(400, 'PATCH', path, {'duration': 61})
        self.api.bad(400, 'PATCH', path, {})
        self.api.bad(400, 'PATCH', path, {'revision': 2})
        self.api.bad(400, 'PATCH', path, {'state': 'active'})
        self.enter(lease, LeaseState.PENDING)
        self.assertEqual('secondary-lease.wrong-state', self.api.bad(
            409, 'PATCH', path, {'duration': 30})['code'])
        self.assertEqual('other', self.api.good(
            'PATCH', path, {'name': 'other'})['lease']['name'])

    def test_concurrent_change_makes_checked_terms_stale(self):
        lease = self.api.create()
        path = f'/leases/{lease["id"]}'
        checked = leases._check_terms

        def meanwhile(*arguments):
            checked(*arguments)
            self.service.store.change(lease['id'], 'changed',
                                      {'duration': 7200})

        with mock.patch.object(leases, '_check_terms', meanwhile):
            self.api.bad(409, 'PATCH', path,
                         {'deadline': '2027-01-31T09:00:00Z'})
        self.assertIsNone(self.api.good('GET', path)['lease']['deadline'])

    def test_name_changes_even_after_the_start(self):
        lease = self.api.create(start='2027-01-31T08:00:10Z')
        self.service.store._clock.now = NOW + 20
        path = f'/leases/{lease["id"]}'
        self.api.good('PATCH', path, {'name': 'late'})
        self.api.bad(400, 'PATCH', path, {'duration': 5})

    def test_actions_set_paused_and_cancelling(self):
        lease = self.api.create()
        path = f'/leases/{lease["id"]}/action'
        for action, paused, cancelling in (
                ('pause', True, False), ('pause', True, False),
                ('unpause', False, False), ('cancel', False, True)):
            found = self.api.good('POST', path, {'action': action})['lease']
            self.assertEqual((paused, cancelling),
                             (found['paused'], found['cancelling']))
        self.api.bad(400, 'POST', path, {'action': 'delete'})
        self.enter(lease, LeaseState.CANCELLED)
        for action in ('pause', 'unpause', 'cancel'):
            self.api.bad(409, 'POST', path, {'action': action})

    def test_only_leases_over_or_new_are_deleted(self):
        new, old = self.api.create(), self.api.create()
        self.enter(old, LeaseState.ACTIVE)
        path = f'/leases/{old["id"]}'
        self.assertIn('Cancel it', self.api.bad(
            409, 'DELETE', path)['detail'])
        self.enter(old, LeaseState.DONE)
        for lease in (new, old):
            self.api.good('DELETE', f'/leases/{lease["id"]}')
        self.api.bad(404, 'DELETE', path)
        self.assertEqual([], self.api.good('GET', '/leases')['leases'])


class AccessTest(ApiCase):

    def test_versions_are_public(self):
        found = self.api.good('GET', '/', user=None)['versions']
        self.assertEqual([('1.0', '1.6')], [
            (one['min_version'], one['max_version']) for one in found])
        self.assertEqual('secondary-lease 1.6', self.api.answer.headers[
            'OpenStack-API-Version'])
        self.assertIn('openstack-api-version', self.api.answer.vary)

    def test_unknown_versions_are_refused(self):
        for version, status in (('secondary-lease 9.9', 406),
                                ('secondary-lease x', 400)):
            for accepted in ({}, {'Accept': 'application/json'}):
                self.api.bad(status, 'GET', '/leases', headers={
                    'OpenStack-API-Version': version, **accepted})
        self.api.good('GET', '/leases', headers={
            'OpenStack-API-Version': 'compute 2.99, secondary-lease latest'})

    def test_first_version_lacks_newer_fields(self):
        lease = self.api.create()
        for headers in ({'OpenStack-API-Version': 'secondary-lease 1.0'},
                        {'OpenStack-API-Version': 'compute 2.99'}):
            found = self.api.good('GET', f'/leases/{lease["id"]}',
                                  headers=headers)['lease']
            self.assertEqual({'next_start', 'unverified', 'served', 'charge'},
                             lease.keys() - found.keys())
            self.assertEqual([{**NODES[0], 'network': None,
                               'key_name': None}], found['nodes'])
            self.assertIn('secondary-lease 1.1', self.api.bad(
                404, 'GET', f'/quotes/{NOBODY}', headers=headers)['detail'])

    def test_roles_limit_operations(self):
        lease = self.api.create()
        path = f'/leases/{lease["id"]}'
        self.api.bad(401, 'GET', '/leases', user=None)
        self.assertEqual('secondary-lease.no-project', self.api.bad(
            403, 'GET', '/leases', project='')['code'])
        self.api.good('GET', path, user='reader')
        for method, where, body in (
                ('POST', '/leases', LEASE), ('DELETE', path, None),
                ('PATCH', path, {'name': 'x'}),
                ('POST', f'{path}/action', {'action': 'pause'})):
            self.assertIn('secondary_lease:', self.api.bad(
                403, method, where, body, user='reader')['detail'])

    def test_operator_sees_and_cancels_leases_of_all_projects(self):
        lease = self.api.create()
        for path in ('/leases', '/timeline'):
            self.api.bad(403, 'GET', f'{path}?all_projects=true')
            self.api.good('GET', f'{path}?all_projects=true', user='admin',
                          project='ops')
        self.assertEqual([], self.api.good(
            'GET', '/leases', user='admin', project='ops')['leases'])
        self.assertTrue(self.api.good(
            'POST', f'/leases/{lease["id"]}/action', {'action': 'cancel'},
            user='admin', project='ops')['lease']['cancelling'])

    def test_unknown_paths_and_methods_are_refused(self):
        for path in ('/leases/', '/lease', f'/leases/{NOBODY}/x', '//',
                     '/%ff'):
            self.assertEqual('secondary-lease.no-such-path', self.api.bad(
                404, 'GET', path)['code'])
        self.api.bad(404, 'GET', '/leases/not-a-uuid')
        self.api.bad(405, 'PUT', '/leases')
        self.assertEqual('GET, POST', self.api.answer.headers['Allow'])

    def test_errors_name_their_request(self):
        error = self.api.bad(404, 'GET', f'/leases/{NOBODY}')
        self.assertEqual(self.api.answer.headers['x-openstack-request-id'],
                         error['request_id'])
        self.assertTrue(error['request_id'].startswith('req-'))

    def test_healthcheck_needs_no_token(self):
        answer = webob.Request.blank('/healthcheck').get_response(
            self.api.application)
        self.assertEqual(200, answer.status_int)

    def test_unavailable_database_gives_503(self):
        with mock.patch.object(
                self.service.store, 'leases',
                side_effect=db_exception.DBConnectionError('password=x')):
            error = self.api.bad(503, 'GET', '/leases')
        self.assertNotIn('password', json.dumps(error))
        self.assertIn('Retry-After', self.api.answer.headers)

    def test_internal_errors_reveal_nothing(self):
        with mock.patch.object(self.service.store, 'leases',
                               side_effect=RuntimeError('secret')):
            error = self.api.bad(500, 'GET', '/leases')
        self.assertNotIn('secret', json.dumps(error))

    def test_links_have_the_host_of_the_request(self):
        made = self.api.good('POST', '/leases', LEASE, headers={
            'Host': 'cloud.example'})
        self.assertEqual(
            f'http://cloud.example/leases/{made["lease"]["id"]}',
            self.api.answer.headers['Location'])
