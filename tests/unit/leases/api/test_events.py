"""Notifications, and the service as its entry points make it."""

import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock
import urllib.request

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import session
from keystonemiddleware import fixture, opts
import oslo_messaging
import testtools

from secondary_scheduler.leases.api import events, trusts
from secondary_scheduler.leases.api.db.models import Event
from secondary_scheduler.leases.api.db.store import nothing
from tests.unit.leases.api import clouds, services

ROOT = pathlib.Path(__file__).parents[4]


class Notifications(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.service = services.on(self)
        self.conf = self.service.conf

    def start(self):
        self.conf.set_override('notification_url', 'fake://',
                               group='secondary_lease_api')
        self.addCleanup(self.conf.clear_override, 'notification_url',
                        group='secondary_lease_api')
        announce = events.announcer(self.conf, 'lease-api.test')
        self.service.store.announce = announce
        return announce.__self__

    def test_off_without_a_transport(self):
        self.assertIs(nothing, events.announcer(self.conf, 'x'))

    def test_events_are_sent_in_their_order(self):
        sent = []
        with mock.patch.object(oslo_messaging.Notifier, 'info', lambda
                               self, context, kind, told: sent.append(
                                   (kind, told))):
            notifier = self.start()
            api = services.Api(self.service)
            lease = api.create()
            api.good('POST', f'/leases/{lease["id"]}/action',
                     {'action': 'pause'})
            api.good('DELETE', f'/leases/{lease["id"]}')
            notifier.flush()
        self.assertEqual(
            ['secondary_lease.created', 'secondary_lease.paused',
             'secondary_lease.deleted'], [kind for kind, _ in sent])
        self.assertEqual(
            {'lease_id': lease['id'], 'project_id': 'p1', 'user_id': 'alice',
             'name': 'nightly', 'state': 'new', 'over': False,
             'time': services.NOW, 'text': '', 'revision': 2, 'servers': []},
            sent[1][1])

    def test_they_have_no_user_data(self):
        sent = []
        self.service.store.announce = lambda *told: sent.append(
            events.payload(*told))
        services.Api(self.service).create(nodes=[
            {**services.NODES[0], 'user_data': 'c2VjcmV0'}])
        self.assertEqual(1, len(sent))
        self.assertNotIn('c2VjcmV0', str(sent))

    def test_they_reach_a_topic(self):
        heard = []

        class Endpoint:
            def info(self, context, publisher, kind, told, metadata):
                heard.append((publisher, kind, told['name']))

        notifier = self.start()
        listener = oslo_messaging.get_notification_listener(
            oslo_messaging.get_notification_transport(self.conf, 'fake://'),
            [oslo_messaging.Target(topic='notifications')], [Endpoint()],
            executor='threading')
        listener.start()
        self.addCleanup(listener.stop)
        services.Api(self.service).create()
        notifier.flush()
        until = time.monotonic() + 10
        while not heard and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual([('lease-api.test', 'secondary_lease.created',
                           'nightly')], heard)

    def test_a_broker_that_is_away_holds_nobody_up(self):
        with mock.patch.object(oslo_messaging.Notifier, 'info',
                               side_effect=OSError('away')), \
                self.assertLogs(events.__name__, 'WARNING'):
            notifier = self.start()
            services.Api(self.service).create()
            notifier.flush()

    def test_what_is_too_much_is_dropped(self):
        notifier = events.Notifier(events.by_messages(self.conf, 'x'))
        notifier._thread = mock.Mock()      # which sends nothing
        lease = self.service.store.create(
            services.request(1), mock.Mock(leases=-1, nodes=-1))
        event = Event(kind='x', state='new', time=1, text='')
        with self.assertLogs(events.__name__, 'WARNING'):
            for _ in range(events._MOST + 3):
                notifier.announce(lease, event)
        self.assertEqual(3, notifier.dropped)


class Webhook(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.service = services.on(self, webhook_url='http://hook.example/x',
                                   webhook_timeout=2.0)
        self.notifier = self.service.store.announce.__self__

    def test_each_event_is_posted(self):
        with mock.patch.object(events.requests, 'post') as post:
            post.return_value.status_code = 204
            services.Api(self.service).create()
            self.notifier.flush()
        post.assert_called_once_with('http://hook.example/x', json=mock.ANY,
                                     timeout=2.0)
        heard = post.call_args.kwargs['json']
        self.assertEqual(('secondary_lease.created', 'nightly'), (
            heard['event_type'], heard['payload']['name']))

    def failed(self, **post):
        """Return what is logged of a request that fails."""
        with mock.patch.object(events.requests, 'post', **post), \
                self.assertLogs(events.__name__, 'WARNING') as logs:
            services.Api(self.service).create()
            self.notifier.flush()
        return logs.output[0]

    def test_who_refuses_holds_nobody_up(self):
        self.assertIn('500', self.failed(
            return_value=mock.Mock(status_code=500)))

    def test_its_url_is_not_logged(self):
        said = self.failed(side_effect=events.requests.ConnectionError(
            'Max retries exceeded with url: http://hook.example/x'))
        self.assertIn('ConnectionError', said)
        self.assertNotIn('hook.example', said)


class Trust(unittest.TestCase):

    def setUp(self):
        super().setUp()
        service = services.on(self, trustee_user_id='engine')
        for group, options in opts.list_auth_token_opts():
            service.conf.register_opts(options, group)
        service.conf.set_override('www_authenticate_uri',
                                  'http://keystone.example/identity/',
                                  'keystone_authtoken')
        self.addCleanup(service.conf.clear_override, 'www_authenticate_uri',
                        'keystone_authtoken')
        self.store, self.conf = service.store, service.conf
        self.api = services.Api(service)
        self.heard, self.trust, self.refusal = [], 'trust1', None

        def request(session, path, method, endpoint_override, **more):
            self.verify = session.verify
            self.heard.append((method, endpoint_override + path,
                               session.auth.token, more.get('json')))
            if self.refusal:
                raise self.refusal
            return mock.Mock(json=lambda: {'trust': {'id': self.trust}})
        patcher = mock.patch.object(session.Session, 'request', request)
        patcher.start()
        self.addCleanup(patcher.stop)

    def asked(self, method):
        return [one for one in self.heard if one[0] == method]

    def test_an_owner_gives_one_and_takes_it_back(self):
        lease = self.api.create()
        self.assertEqual('trust1', self.store.get(lease['id']).trust_id)
        ((_, url, token, given),) = self.asked('POST')
        self.assertEqual(
            ('http://keystone.example/identity/v3/OS-TRUST/trusts',
             'alice:p1'), (url, token))
        self.assertEqual(
            {'trustor_user_id': 'alice', 'trustee_user_id': 'engine',
             'project_id': 'p1', 'impersonation': True,
             'allow_redelegation': False, 'roles': [{'name': 'member'}]},
            given['trust'])
        self.api.good('DELETE', f'/leases/{lease["id"]}')
        self.assertEqual(1, len(self.asked('DELETE')))

    def test_keystone_is_asked_as_the_middleware_asks_it(self):
        for name, value in (('cafile', '/ca.pem'), ('insecure', True)):
            with self.subTest(name):
                self.conf.set_override(name, value, 'keystone_authtoken')
                self.addCleanup(self.conf.clear_override, name,
                                'keystone_authtoken')
                self.api.create()
                self.assertEqual(False if name == 'insecure' else value,
                                 self.verify)

    def test_service_that_knows_no_keystone_says_so(self):
        self.conf.set_override('www_authenticate_uri', None,
                               'keystone_authtoken')
        with self.assertLogs(trusts.LOG.logger, 'ERROR') as logs:
            self.api.bad(503, 'POST', '/leases', services.LEASE)
        self.assertIn('auth_url', logs.output[0])

    def test_what_makes_no_lease_leaves_no_trust(self):
        self.api.create(client_token='once')
        self.trust = 'trust2'
        self.api.create(client_token='once')
        self.assertEqual(1, len(self.asked('POST')))
        # Two attempts at once both find no lease before they make one.
        with mock.patch.object(self.store, 'repeated', return_value=None):
            self.api.create(client_token='once')
        (taken,) = self.asked('DELETE')
        self.assertTrue(taken[1].endswith('/trust2'))

    def test_who_may_not_is_told_what_is_needed(self):
        self.refusal = ks_exceptions.Forbidden()
        self.assertIn('member', self.api.bad(
            403, 'POST', '/leases', services.LEASE)['detail'])
        for self.refusal in (ks_exceptions.ServiceUnavailable(),
                             ks_exceptions.ConnectFailure()):
            self.api.bad(503, 'POST', '/leases', services.LEASE)


class Keystone(testtools.TestCase):

    def setUp(self):
        super().setUp()
        service = services.on(self, auth_strategy='keystone')
        for group, options in opts.list_auth_token_opts():
            service.conf.register_opts(options, group)
        for name, value in (
                ('www_authenticate_uri', 'http://keystone.example'),
                ('service_token_roles_required', True)):
            service.conf.set_override(name, value, 'keystone_authtoken')
            self.addCleanup(service.conf.clear_override, name,
                            'keystone_authtoken')
        self.tokens = self.useFixture(fixture.AuthTokenFixture())
        self.api = services.Api(service)

    def test_a_token_says_who_one_is(self):
        self.tokens.add_token_data(
            'carols', project_id='p7', user_id='carol',
            role_list=['member', 'reader'])
        made = self.api.good('POST', '/leases', services.LEASE, user=None,
                             headers={'X-Auth-Token': 'carols',
                                      'X-Project-Id': 'p1'})['lease']
        self.assertEqual(('p7', 'carol'),
                         (made['project_id'], made['user_id']))

    def test_services_are_asked_with_the_token(self):
        cloud = clouds.Cloud(self)
        token = clouds.token(cloud.services)
        token.add_role(name='member')
        self.tokens.add_token(token, 'alices')

        def ask(flavor):
            return self.api.ask(
                'POST', '/leases', {**services.LEASE, 'nodes': [
                    {**services.NODES[0], 'flavor': flavor}]}, user=None,
                headers={'X-Auth-Token': 'alices'})
        status, answer = ask('secondary.small')
        self.assertEqual((202, []), (status, answer['lease']['unverified']))
        self.assertEqual(400, ask('m1.small')[0])
        self.assertEqual({'alices'}, cloud.tokens)

    def test_a_token_that_is_none_is_refused(self):
        api = self.api
        api.good('GET', '/', user=None)
        api.bad(401, 'GET', '/leases', user=None, headers={
            'X-Auth-Token': 'nonsense'})
        # What somebody says of themselves does not count.
        api.bad(401, 'GET', '/leases', user=None, headers={
            'X-User-Id': 'mallory', 'X-Project-Id': 'p1',
            'X-Roles': 'admin', 'X-Identity-Status': 'Confirmed'})


class EntryPoints(unittest.TestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = pathlib.Path(directory.name, 'lease.conf')
        self.file.write_text(
            '[secondary_lease_api]\nauth_strategy = noauth\n'
            f'database_url = sqlite:///{directory.name}/l.sqlite\n')

    def test_the_server_for_development(self):
        process = subprocess.Popen(
            [sys.executable, '-m', 'secondary_scheduler.cmd.lease_api',
             '--port', '0', '--sync', '--config-file', self.file], cwd=ROOT,
            stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        url = next(line for line in process.stdout
                   if line.startswith('secondary-lease-api: ')).split()[1]
        with urllib.request.urlopen(urllib.request.Request(
                f'{url}/leases', headers={'X-Auth-Token': 'a:p'})) as answer:
            self.assertEqual(b'{"leases": [], "leases_links": []}',
                             answer.read())

    def test_a_wsgi_server_needs_no_more_than_the_module(self):
        # Nor does the service bring what only the scheduler needs.
        done = subprocess.run(
            [sys.executable, '-c', '''
import sys, webob
from secondary_scheduler.leases.api import wsgi
print(webob.Request.blank('/').get_response(wsgi.application).status,
      sorted({'numpy', 'nova', 'watcher', 'openstack'} & set(sys.modules)))
'''], cwd=ROOT, capture_output=True, text=True,
            env={'OS_SECONDARY_LEASE_CONFIG': str(self.file),
                 'PYTHONPATH': ':'.join(sys.path)})
        self.assertEqual('200 OK []\n', done.stdout, done.stderr)
