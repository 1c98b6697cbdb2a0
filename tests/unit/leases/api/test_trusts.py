# SPDX-License-Identifier: Apache-2.0

"""Tests of standing trusts, against a Keystone in memory."""

import threading
import unittest
from unittest import mock

import hypothesis
from hypothesis import strategies as st
from keystoneauth1 import access
from keystoneauth1 import exceptions as ks_exceptions
from oslo_db import exception as db_exception
import sqlalchemy as sa

from secondary_scheduler.leases.api import schemas, standing_trusts, trusts
from secondary_scheduler.leases.api.db import standing_trusts as table
from secondary_scheduler.leases.api.db.models import STANDING
from tests.unit.leases.api import keystones, services
from tests.unit.leases.api.services import LEASE, NOW

LIFE = 31_536_000
COMMAND = 'openstack secondary lease trust create'


class TrustCase(unittest.TestCase):

    database = 'memory'

    def setUp(self):
        super().setUp()
        service = services.on(self, self.database, trustee_user_id='engine',
                              quota_leases=-1, quota_nodes=-1)
        self.service, self.store = service, service.store
        self.conf, self.clock = service.conf, service.store._clock
        service.trusts._clock = self.clock
        self.keystone = keystones.Keystone(self, service.conf)
        self.api = services.Api(service)

    def set_option(self, name, value):
        self.conf.set_override(name, value, 'secondary_lease_api')
        self.addCleanup(self.conf.clear_override, name,
                        'secondary_lease_api')

    def stored(self, user='alice', project='p1'):
        return table.read_trust(self.service.database, project, user)

    def trust_of(self, lease):
        """Return the trust with which the engine makes its servers."""
        return self.store.get(lease['id']).trust_id

    def assert_only(self, trust):
        """Assert that Keystone and the database have one trust."""
        self.assertEqual({trust}, set(self.keystone.trusts))
        self.assertEqual(trust, self.stored().trust_id)

    def by_application_credential(self):
        self.keystone.delegated = {'alice:p1'}


class LeaseTest(TrustCase):
    """The trust as requests of leases find, make and renew it."""

    def test_first_lease_makes_the_trust_that_all_later_ones_use(self):
        for _ in range(3):
            self.assertEqual(STANDING, self.trust_of(self.api.create()))
        ((_, url, token, given),) = self.keystone.asked('POST')
        self.assertEqual(
            ('http://keystone.example/identity/v3/OS-TRUST/trusts',
             'alice:p1'), (url, token))
        self.assertEqual(
            {'trustor_user_id': 'alice', 'trustee_user_id': 'engine',
             'project_id': 'p1', 'impersonation': True,
             'allow_redelegation': False, 'roles': [{'name': 'member'}],
             'expires_at': '2028-01-31T08:00:00Z'}, given['trust'])
        self.assert_only('trust1')

    def test_each_user_has_a_trust_in_each_project(self):
        for user, project in (('alice', 'p1'), ('bob', 'p1'),
                              ('alice', 'p2')):
            self.api.create(user, project)
        self.assertEqual(3, len(self.keystone.trusts))
        self.assertEqual('bob', self.keystone.trusts[
            self.stored('bob').trust_id]['trustor_user_id'])

    def test_application_credential_uses_the_trust_and_cannot_make_it(self):
        self.by_application_credential()
        error = self.api.bad(403, 'POST', '/leases', LEASE)
        for words in (COMMAND, 'password', 'Delegated tokens', 'member'):
            self.assertIn(words, error['detail'])
        self.assertEqual([], self.store.leases('p1'))
        self.keystone.delegated = set()
        self.api.good('PUT', '/trust')
        self.by_application_credential()
        self.assertEqual(STANDING, self.trust_of(self.api.create()))
        self.assert_only('trust1')

    def test_token_with_fewer_roles_than_the_trust_gets_no_lease(self):
        self.api.create()
        self.set_option('trust_roles', ['member', 'Creator'])
        error = self.api.bad(403, 'POST', '/leases', LEASE)
        self.assertEqual('secondary-lease.missing-roles', error['code'])
        self.assertIn('lacks: Creator', error['detail'])
        self.api.bad(403, 'PUT', '/trust')
        self.assert_only('trust1')
        # The case of roles does not matter.
        self.set_option('trust_roles', ['MEMBER'])
        self.api.create()

    def test_role_reader_gets_no_lease_and_no_trust(self):
        for method, path, body in (('POST', '/leases', LEASE),
                                   ('PUT', '/trust', None)):
            self.api.bad(403, method, path, body, user='reader')
        # A policy of the operator does not replace the roles of the trust.
        with mock.patch('secondary_scheduler.leases.api.policies.allows',
                        return_value=True):
            self.assertIn('lacks: member', self.api.bad(
                403, 'POST', '/leases', LEASE, user='reader')['detail'])
        self.assertEqual({}, self.keystone.trusts)

    def test_trust_with_other_roles_than_configured_is_renewed(self):
        self.api.create()
        self.set_option('trust_roles', ['reader', 'member'])
        self.by_application_credential()
        self.assertIn('roles are not those', self.api.bad(
            403, 'POST', '/leases', LEASE)['detail'])
        self.keystone.delegated = set()
        self.api.create()
        self.assert_only('trust2')
        self.assertEqual(['reader', 'member'], self.stored().roles)

    def test_trust_that_was_deleted_in_keystone_is_made_again(self):
        self.api.create()
        self.keystone.trusts.clear()
        self.by_application_credential()
        error = self.api.bad(403, 'POST', '/leases', LEASE)
        self.assertIn('does not exist any more', error['detail'])
        self.assertIn(COMMAND, error['detail'])
        self.keystone.delegated = set()
        self.api.create()
        self.assert_only('trust2')

    def test_expired_trust_is_made_again(self):
        self.api.create()
        self.clock.now += LIFE
        self.by_application_credential()
        self.assertIn('before the latest start', self.api.bad(
            403, 'POST', '/leases', LEASE)['detail'])
        self.keystone.delegated = set()
        self.api.create()
        self.assert_only('trust2')
        self.assertEqual(NOW + 2 * LIFE, self.stored().expires_at)

    def test_trust_that_ends_before_the_latest_start_is_renewed(self):
        late = {'start': '2028-01-30T08:00:00Z'}
        self.api.create()
        self.clock.now += 40 * 86400
        self.by_application_credential()
        # It ends soon afterwards, and may be used until then.
        self.api.create(**late)
        self.assert_only('trust1')
        late = {'deadline': '2028-02-01T08:00:00Z', 'duration': 3600}
        error = self.api.bad(403, 'POST', '/leases', {**LEASE, **late})
        self.assertIn('2028-01-31T08:00:00Z', error['detail'])
        self.assertIn(COMMAND, error['detail'])
        self.keystone.delegated = set()
        self.api.create(**late)
        self.assert_only('trust2')

    def test_trust_is_renewed_ahead_of_its_end_by_password_alone(self):
        self.api.create()
        self.clock.now += int(0.95 * LIFE)
        self.by_application_credential()
        self.api.create()
        self.assert_only('trust1')
        self.keystone.delegated = set()
        self.api.create()
        self.assert_only('trust2')

    def test_lease_later_than_the_life_of_a_trust_is_refused(self):
        error = self.api.bad(400, 'POST', '/leases', {
            **LEASE, 'start': '2028-01-31T08:00:00Z'})
        self.assertIn('365 days', error['detail'])
        self.api.create(start='2028-01-31T07:59:59Z')

    def test_token_of_a_trust_uses_the_trust_and_cannot_make_it(self):
        found = access.create(body={'token': {
            'methods': ['password', 'token'], 'OS-TRUST:trust': {'id': 'x'}}})
        by_trust = {'keystone.token_auth': mock.Mock(
            has_user_token=True, get_auth_ref=lambda session: found)}
        error = self.api.bad(403, 'PUT', '/trust', environ=by_trust)
        self.assertIn('has issued the token', error['detail'])
        self.assertEqual([], self.keystone.heard)
        del found._data['token']['OS-TRUST:trust']
        self.api.good('PUT', '/trust', environ=by_trust)
        self.service.trusts.ensure_trust(standing_trusts.Owner(
            'token', 'alice', 'p1', ['member'], by_trust=True), NOW)
        self.assert_only('trust1')

    def test_no_trust_is_made_without_a_trustee(self):
        self.set_option('trustee_user_id', None)
        self.assertIsNone(self.trust_of(self.api.create()))
        self.assertEqual([], self.keystone.heard)
        self.api.bad(409, 'PUT', '/trust')
        self.api.bad(404, 'GET', '/trust')

    def test_trust_of_a_lease_of_an_earlier_release_is_deleted_with_it(self):
        lease = self.api.create()['id']
        self.keystone.trusts['own'] = {}
        self.store.change(lease, 'changed', {'trust_id': 'own'})
        self.api.good('DELETE', f'/leases/{lease}')
        self.assert_only('trust1')

    def test_repeated_request_needs_no_keystone(self):
        lease = self.api.create(client_token='once')
        asked = len(self.keystone.heard)
        self.assertEqual(lease['id'],
                         self.api.create(client_token='once')['id'])
        self.assertEqual(asked, len(self.keystone.heard))

    def test_requests_use_certificates_of_the_middleware(self):
        for name, value in (('cafile', '/ca.pem'), ('insecure', True)):
            with self.subTest(name):
                self.conf.set_override(name, value, 'keystone_authtoken')
                self.addCleanup(self.conf.clear_override, name,
                                'keystone_authtoken')
                self.api.create()
                self.assertEqual(False if name == 'insecure' else value,
                                 self.keystone.verify)

    def test_missing_url_of_keystone_is_logged(self):
        self.conf.set_override('www_authenticate_uri', None,
                               'keystone_authtoken')
        with self.assertLogs(trusts.LOG.logger, 'ERROR') as logs:
            self.api.bad(503, 'POST', '/leases', LEASE)
        self.assertIn('auth_url', logs.output[0])


class FaultTest(TrustCase):
    """Keystone, the database or another request get in the way."""

    AWAY = (ks_exceptions.ServiceUnavailable(), ks_exceptions.ConnectFailure(),
            ks_exceptions.ConnectTimeout())

    def test_keystone_that_is_away_makes_no_trust(self):
        for error in self.AWAY:
            self.keystone.refusals = {'POST': error}
            self.api.bad(503, 'POST', '/leases', LEASE)
            self.api.bad(503, 'PUT', '/trust')
        self.assertIsNone(self.stored())

    def test_known_trust_is_used_while_keystone_is_away(self):
        self.api.create()
        for error in self.AWAY:
            self.keystone.refusals = dict.fromkeys(('GET', 'POST'), error)
            self.api.create()
            self.assertEqual('unverified', self.api.good(
                'GET', '/trust')['trust']['state'])

    def test_trusts_of_one_second_have_different_ends(self):
        ends = [self.api.good('PUT', '/trust')['trust']['expires_at']
                for _ in range(3)]
        self.assertEqual([f'2028-01-31T{time}Z' for time in (
            '08:00:00', '07:59:59', '07:59:58')], ends)
        self.assert_only('trust3')
        for _ in range(8):
            status = self.api.ask('PUT', '/trust')[0]
        self.assertEqual(403, status)
        self.clock.now += 60
        self.api.good('PUT', '/trust')

    def test_refusal_of_keystone_names_required_roles(self):
        self.keystone.refusals = {'POST': ks_exceptions.NotFound(
            'Could not find role: member.')}
        detail = self.api.bad(403, 'POST', '/leases', LEASE)['detail']
        self.assertIn('404: Could not find role', detail)
        self.assertIn('roles member', detail)

    def test_trust_that_is_nearly_new_serves_many_late_leases(self):
        late = {'start': '2028-01-15T08:00:00Z'}
        for _ in range(3):
            self.api.create(**late)
            self.clock.now += 60
        self.assert_only('trust1')

    def test_renewal_that_fails_keeps_the_old_trust(self):
        self.api.create()
        for error in (*self.AWAY, ks_exceptions.Forbidden('no')):
            self.keystone.refusals = {'POST': error}
            self.assertGreaterEqual(self.api.ask('PUT', '/trust')[0], 403)
            self.assert_only('trust1')

    def test_trust_that_cannot_be_stored_is_deleted(self):
        self.api.create()
        with mock.patch.object(table, '_replace',
                               side_effect=db_exception.DBError('gone')):
            self.api.bad(503, 'PUT', '/trust')
        self.assert_only('trust1')

    def test_old_trust_that_cannot_be_deleted_is_logged(self):
        self.api.create()
        self.keystone.refusals = {'DELETE': self.AWAY[0]}
        with self.assertLogs(trusts.LOG.logger, 'WARNING') as logs:
            made = self.api.good('PUT', '/trust')['trust']
        self.assertEqual('trust2', made['id'])
        self.assertIn('trust1', '\n'.join(logs.output))

    def test_revocation_that_keystone_refuses_forgets_nothing(self):
        self.api.create()
        for error, status in ((self.AWAY[0], 503),
                              (ks_exceptions.Forbidden('no'), 403)):
            self.keystone.refusals = {'DELETE': error}
            self.api.bad(status, 'DELETE', '/trust')
            self.assert_only('trust1')

    def test_renewal_meets_a_revocation(self):
        self.api.create()

        def revoke(method, path):
            if method == 'POST':
                self.keystone.before = lambda method, path: None
                self.api.good('DELETE', '/trust')
        self.keystone.before = revoke
        error = self.api.bad(409, 'PUT', '/trust')
        self.assertEqual('secondary-lease.trust-deleted', error['code'])
        self.assertEqual({}, self.keystone.trusts)
        self.assertIsNone(self.stored())

    def at_once(self, method, path, body, number=4):
        """Send requests that all make their trust before one stores it."""
        together = threading.Barrier(number)
        first = iter(range(number))     # a request may ask a second time
        self.keystone.before = lambda method, path: (
            together.wait(30) if method == 'POST'
            and next(first, None) is not None else None)
        statuses = []

        def ask():
            statuses.append(services.Api(self.service).ask(
                method, path, body)[0])
        threads = [threading.Thread(target=ask) for _ in range(number)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.keystone.before = lambda method, path: None
        return set(statuses)

    def assert_one_left(self):
        (left,) = self.keystone.trusts
        self.assert_only(left)


class RaceTest(FaultTest):
    """Requests at the same second leave one trust."""

    database = 'file'

    def test_first_leases_at_once_make_one_trust(self):
        self.assertEqual({202}, self.at_once('POST', '/leases', LEASE))
        self.assert_one_left()
        self.assertEqual(4, len(self.store.leases('p1')))

    def test_renewals_at_once_leave_one_trust(self):
        self.api.create()
        self.assertEqual({200}, self.at_once('PUT', '/trust', None))
        self.assert_one_left()


@services.needs('MariaDB')
class MariaDBRaceTest(RaceTest):

    database = 'MariaDB'


@services.needs('PostgreSQL')
class PostgreSQLRaceTest(RaceTest):

    database = 'PostgreSQL'


#: Steps of a history: (step, whether by password).
_STEPS = st.lists(st.tuples(st.sampled_from((
    'lease', 'late lease', 'show', 'renew', 'revoke', 'delete in keystone',
    'wait', 'other roles')), st.booleans()), max_size=12)


class HistoryTest(TrustCase):
    """Whatever happens, there is one trust, and no lease without it."""

    @hypothesis.given(_STEPS)
    def test_accepted_lease_has_the_only_trust_of_its_owner(self, steps):
        self.keystone.trusts.clear()
        self.keystone.known.clear()
        with self.service.database.writer() as session:
            session.execute(sa.delete(table.StandingTrust))
        self.clock.now = NOW
        self.set_option('trust_roles', ['member'])
        for step, by_password in steps:
            self.clock.now += 1
            self.keystone.delegated = set() if by_password else {'alice:p1'}
            before = set(self.keystone.trusts)
            status, latest = 200, self.clock.now
            if step.endswith('lease'):
                latest += LIFE - 60 if step == 'late lease' else 0
                status, _ = self.api.ask('POST', '/leases', {**LEASE, **(
                    {'start': schemas.moment(latest)}
                    if step == 'late lease' else {})})
            elif step == 'wait':
                self.clock.now += LIFE // 3
                for name, one in list(self.keystone.trusts.items()):
                    if one['expires_at'] <= schemas.moment(self.clock.now):
                        del self.keystone.trusts[name]
            elif step == 'delete in keystone':
                self.keystone.trusts.clear()
            elif step == 'other roles':
                self.conf.set_override('trust_roles', ['reader'],
                                       'secondary_lease_api')
            else:
                status, _ = self.api.ask(
                    {'show': 'GET', 'renew': 'PUT', 'revoke': 'DELETE'}[step],
                    '/trust')
            self.assertIn(status, (200, 202, 204, 403, 404))
            stored = self.stored()
            there = set(self.keystone.trusts)
            self.assertLessEqual(there, {stored.trust_id} if stored else set())
            if not by_password:
                self.assertLessEqual(there, before)
            if status == 202:
                self.assertEqual({stored.trust_id}, there)
                self.assertGreater(stored.expires_at, latest)
                self.assertEqual(stored.roles, self.conf.secondary_lease_api.
                                 trust_roles)
            if by_password and step != 'show':
                self.assertIn(status, (200, 202, 204, 404))


class OwnerTest(TrustCase):
    """The trust as its owner shows, renews and revokes it."""

    def shown(self, **more):
        return self.api.good('GET', '/trust', **more)['trust']

    def test_trust_is_made_shown_renewed_and_revoked(self):
        missing = self.api.bad(404, 'GET', '/trust')
        self.assertEqual('secondary-lease.no-trust', missing['code'])
        self.assertIn(COMMAND, missing['detail'])
        self.api.bad(404, 'DELETE', '/trust')
        made = self.api.good('PUT', '/trust')['trust']
        self.assertEqual({
            'id': 'trust1', 'project_id': 'p1', 'user_id': 'alice',
            'roles': ['member'], 'created_at': '2027-01-31T08:00:00Z',
            'expires_at': '2028-01-31T08:00:00Z', 'state': 'valid',
            'message': ''}, made)
        self.assertEqual(made, self.shown())
        self.clock.now += 60
        renewed = self.api.good('PUT', '/trust')['trust']
        self.assertEqual('2028-01-31T08:01:00Z', renewed['expires_at'])
        self.assert_only('trust2')
        # The new trust is there before the old one is gone.
        methods = [one[0] for one in self.keystone.heard if one[0] != 'GET']
        self.assertEqual(['POST', 'POST', 'DELETE'], methods)
        self.api.good('DELETE', '/trust')
        self.assertEqual({}, self.keystone.trusts)
        self.api.bad(404, 'GET', '/trust')

    def test_state_says_why_no_server_can_be_made(self):
        self.api.create()
        self.by_application_credential()
        self.assertEqual(('unverified', ''), (
            self.shown()['state'], self.shown()['message']))
        self.keystone.delegated = set()
        self.set_option('trust_roles', ['member', 'reader'])
        self.assertEqual('outdated', self.shown()['state'])
        self.set_option('trust_roles', ['member'])
        self.keystone.trusts.clear()
        self.assertEqual('lost', self.shown()['state'])
        self.assertIn(COMMAND, self.shown()['message'])
        self.clock.now += LIFE
        self.assertEqual('expired', self.shown()['state'])

    def test_lost_trust_can_be_revoked(self):
        self.api.create()
        self.keystone.trusts.clear()
        self.api.good('DELETE', '/trust')
        self.assertIsNone(self.stored())

    def test_application_credential_cannot_revoke_it(self):
        self.api.create()
        self.by_application_credential()
        error = self.api.bad(403, 'DELETE', '/trust')
        self.assertIn('stays valid', error['detail'])
        self.assertIn('password', error['detail'])
        self.assert_only('trust1')

    def test_others_do_not_see_or_revoke_it(self):
        self.api.create()
        for user, project in (('bob', 'p1'), ('alice', 'p2'),
                              ('admin', 'p1')):
            self.api.bad(404, 'GET', '/trust', user=user, project=project)
            self.api.bad(404, 'DELETE', '/trust', user=user, project=project)
        self.assert_only('trust1')

    def test_role_reader_may_revoke_it(self):
        """A user who has lost the role still ends the trust."""
        self.api.ask('PUT', '/trust')
        row = self.stored()
        table.replace_trust(self.service.database, table.StandingTrust(
            project_id='p1', user_id='reader', trust_id=row.trust_id,
            roles=row.roles, created_at=NOW, expires_at=NOW + 60), None)
        self.api.good('DELETE', '/trust', user='reader')
        self.assertEqual({}, self.keystone.trusts)

    def test_versions_before_have_no_trust(self):
        self.api.bad(404, 'GET', '/trust', headers={
            'OpenStack-API-Version': 'secondary-lease 1.5'})


if __name__ == '__main__':
    unittest.main()
