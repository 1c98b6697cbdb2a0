# SPDX-License-Identifier: Apache-2.0

"""Base class of tests of the client, with a lease service in memory."""

import datetime
import io
import json
import types
import unittest

from keystoneauth1 import adapter, session, token_endpoint
from wsgi_intercept import interceptor

from secondary_scheduler.leases.api import app
from secondary_scheduler.leases.api.db import schedules
from secondary_scheduler.leases.client import client
from tests.unit.leases.api import services

NODES = ('--nodes', 'number=2,flavor=small,image=debian')


class ClientCase(unittest.TestCase):
    """Test case with a lease service in this process."""

    def setUp(self):
        super().setUp()
        self.service = services.on(self)
        # Times relative to the real clock are in the service's future.
        self.service.store._clock.now = int(
            datetime.datetime(2026, 1, 1).timestamp())
        schedules.record_heartbeat(self.service.database,
                                   self.service.store.now, '')
        made = app.application(self.service)
        intercepted = interceptor.RequestsInterceptor(
            lambda: made, host='lease.example', port=80)
        intercepted.install_intercept()
        self.addCleanup(intercepted.uninstall_intercept)
        self.leases = self.client_of('alice:p1')

    def client_of(self, token):
        return client.Client(adapter.Adapter(
            session.Session(token_endpoint.Token(
                'http://lease.example', token)),
            service_type=client.SERVICE_TYPE))

    def execute(self, command, *arguments):
        """Run a command; return its output."""
        out = io.StringIO()
        screen = types.SimpleNamespace(
            stdout=out, stderr=out, client_manager=types.SimpleNamespace(
                secondary_lease=self.leases),
            options=types.SimpleNamespace(), LOG=None)
        made = command(screen, None)
        made.run(made.get_parser('openstack').parse_args(arguments))
        return out.getvalue()

    def json(self, command, *arguments):
        return json.loads(self.execute(command, '-f', 'json', *arguments))
