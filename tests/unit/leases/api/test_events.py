# SPDX-License-Identifier: Apache-2.0

"""Tests of notifications and webhooks."""

import time
import unittest
from unittest import mock

import oslo_messaging

from secondary_scheduler.leases.api import events
from secondary_scheduler.leases.api.db.models import Event
from secondary_scheduler.leases.api.db.store import ignore_event
from tests.unit.leases.api import services


class NotificationTest(unittest.TestCase):

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

    def test_notifications_are_off_by_default(self):
        self.assertIs(ignore_event, events.announcer(self.conf, 'x'))

    def test_events_are_sent_in_order(self):
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

    def test_notifications_have_no_user_data(self):
        sent = []
        self.service.store.announce = lambda *told: sent.append(
            events.payload(*told))
        services.Api(self.service).create(nodes=[
            {**services.NODES[0], 'user_data': 'c2VjcmV0'}])
        self.assertEqual(1, len(sent))
        self.assertNotIn('c2VjcmV0', str(sent))

    def test_notifications_reach_a_listener(self):
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

    def test_unavailable_broker_delays_no_request(self):
        with mock.patch.object(oslo_messaging.Notifier, 'info',
                               side_effect=OSError('away')), \
                self.assertLogs(events.__name__, 'WARNING'):
            notifier = self.start()
            services.Api(self.service).create()
            notifier.flush()

    def test_excess_notifications_are_dropped(self):
        notifier = events.Notifier(events.by_messages(self.conf, 'x'))
        notifier._thread = mock.Mock()      # sends nothing
        lease = self.service.store.create(
            services.request(1), mock.Mock(leases=-1, nodes=-1))
        event = Event(kind='x', state='new', time=1, text='')
        with self.assertLogs(events.__name__, 'WARNING'):
            for _ in range(events._MOST + 3):
                notifier.announce(lease, event)
        self.assertEqual(3, notifier.dropped)


class WebhookTest(unittest.TestCase):

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
        """Return the log message of a request that fails."""
        with mock.patch.object(events.requests, 'post', **post), \
                self.assertLogs(events.__name__, 'WARNING') as logs:
            services.Api(self.service).create()
            self.notifier.flush()
        return logs.output[0]

    def test_refused_webhook_is_logged(self):
        self.assertIn('500', self.failed(
            return_value=mock.Mock(status_code=500)))

    def test_url_of_webhook_is_not_logged(self):
        said = self.failed(side_effect=events.requests.ConnectionError(
            'Max retries exceeded with url: http://hook.example/x'))
        self.assertIn('ConnectionError', said)
        self.assertNotIn('hook.example', said)
