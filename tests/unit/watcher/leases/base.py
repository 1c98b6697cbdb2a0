# SPDX-License-Identifier: Apache-2.0

"""Base of tests of leases inside Watcher, with a cloud in memory."""

import contextlib
import tempfile
from unittest import mock

from secondary_scheduler.leases.engine.values import (
    Build,
    LeaseOperation,
    OperationRequest,
)
from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import (
    cloud_connections,
    cloud_snapshot,
    leader,
    poller,
    secondary_action,
)
from secondary_scheduler.watcher.leases import (
    action_plans,
    server_requests,
)
from secondary_scheduler.watcher.leases import actions as lease_actions
from tests.unit.watcher import fakes

LEASE = fakes.uid(700)
BUILD = {'name': 'x-0', 'flavor': 'secondary', 'image': 'debian',
         'network': 'none', 'key_name': None}
SPEC = Build('x-0', 'p1', 'alice', 'trust', 'secondary', 'debian', 'none',
             None)


def order(kind, node=0, at=0.0, server=None, host='h1', **more):
    return OperationRequest(
        kind,
        (LEASE, node),
        'p1',
        host,
        at,
        at + 60,
        server,
        SPEC
        if kind in (LeaseOperation.BOOT, LeaseOperation.CACHE_IMAGE)
        else None,
        **more,
    )


class LeaseNova(fakes.FakeCloud):
    """Cloud that boots and deletes; ``faults`` are the causes of failed boots.
    """

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.faults = []
        self.hints = None

    def labelled(self, project, lease, node):
        return [one for one in self.known.values()
                if one.project == project
                and cloud_snapshot.node_of(one.metadata) == (lease, node)]

    def create(self, build, metadata, hints):
        self.calls.append(('create', build['name']))
        self.hints, self.built = hints, build
        one = fakes.server(
            len(self.known) + 50, hints[vocabulary.HOST_HINT],
            'ERROR' if self.faults else 'ACTIVE', metadata=metadata)
        self.known[one.uuid] = one
        return one.uuid

    def image(self, name):
        return f'id of {name}'

    def cache_image(self, host, image):
        self.calls.append(('cache', host, image))

    def fault(self, key):
        return self.faults.pop(0)

    def delete(self, key):
        self.calls.append(('delete', key))
        self.known.pop(key, None)

    def sizes(self):
        return {'secondary': (1, 512, 1)}

    def flavor_specs(self):
        return {'secondary': {
            vocabulary.MARKER: 'true',
            'aggregate_instance_extra_specs:ssd': 'true'}}


class LeaseTestCase(fakes.WatcherTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = LeaseNova(
            [fakes.server(1)], [fakes.host('h1'), fakes.host('h2')])
        for name in ('shared', 'patient'):
            self.patch(cloud_connections, name, lambda: self.cloud)
        self.patch(cloud_connections, 'act_as_owner', self.act_as_owner)
        waiting = poller.Poller(lambda: self.cloud, lambda: 0.01)
        self.patch(secondary_action, '_poller', lambda: waiting)
        self.agents = mock.Mock()
        self.agents.hand_over.return_value = {}
        self.patch(secondary_action, '_agents', lambda: self.agents)
        self.patch(lease_actions, '_RETRY_S', 0.0)
        self.patch(server_requests, 'read_server_request',
                   self.read_server_request)
        self.trusts = []
        self.applier = mock.Mock()
        self.patch(action_plans.rpcapi, 'ApplierAPI', lambda: self.applier)
        locks = tempfile.TemporaryDirectory()
        self.addCleanup(locks.cleanup)
        self.locks_file = locks.name + '/locks.sqlite'
        self.coordination = fakes.coordinate(self, file=self.locks_file)
        self.coordination.renew()
        self.patch(leader, 'shared', lambda: self.coordination)
        self.switch = self.audit(800, parameters={'leases': True})
        self.leases = action_plans.LeaseActionPlans(self.history)
        self.leases.term = self.coordination.term

    def patch(self, *arguments):
        patcher = mock.patch.object(*arguments)
        patcher.start()
        self.addCleanup(patcher.stop)

    def read_server_request(self, lease, node):
        """Return the properties of a node in the database of leases."""
        return {'user_data': f'secret of {lease}:{node}'}

    @contextlib.contextmanager
    def act_as_owner(self, trust, lease):
        self.assertEqual(LEASE, lease)
        self.trusts.append(trust)
        yield self.cloud
