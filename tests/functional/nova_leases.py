# SPDX-License-Identifier: Apache-2.0

"""A batch job of a new user, from the command to a server of Nova's.

Not collected by pytest; ``test_lease_servers.py`` runs it in a process of its
own (see ``nova_sequence.py``).  The command, the lease service, its database,
the request that a boot reads from it, and Nova are real; Cinder and Neutron
are those of Nova's own functional tests, which know no names, and the engine
is a step that makes the server.
"""

# ruff: noqa: E402, I001
# Nova is patched by it, before anything that imports eventlet.
import nova_sequence

import base64
import io
import pathlib
import types
import typing
import unittest
from unittest import mock

from keystoneauth1 import adapter, session, token_endpoint
import fixtures
from nova import context
from nova.api import auth
from nova.objects import instance as instances
from nova.tests import fixtures as nova_fixtures
from openstack import connection
import webob.dec
from wsgi_intercept import interceptor

from secondary_scheduler.cmd import providers
from secondary_scheduler.leases.api import app, server_properties
from secondary_scheduler.leases.api.db import requests
from secondary_scheduler.leases.client import client, waiting
from secondary_scheduler.leases.client.v1 import lease as commands
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.model import vocabulary
from tests.unit.leases.api import clouds as fake_clouds
from tests.unit.leases.api import services
from tests.unit.nova import fakes

HOST = 'node00'
SIZE = (2, 1024, 5)
SCRIPT = b'#!/bin/sh\nmount /dev/vdb /mnt && date > /mnt/result\n'


class Leases(nova_sequence.Plugin):
    """One host with the plug-in, and the lease service."""

    def setUp(self) -> None:
        self.useFixture(fixtures.MockPatchObject(
            nova_sequence, 'SIZES', {HOST: nova_sequence.SIZES[HOST]}))
        super().setUp()
        self.flavor_id = self.flavor(
            *SIZE, name='secondary.small',
            extra_spec=vocabulary.secondary_extra_specs(
                *SIZE, vocabulary.SecondaryMark()))
        placement = adapter.Adapter(
            session.Session(auth=None), service_type='placement',
            endpoint_override=self.placement.fixture.endpoint,
            additional_headers={'x-auth-token': 'admin'})
        found = providers.Providers(placement)
        child = found.enable(HOST, nova_sequence.TOTALS)
        found._put_inventories(child, {
            name: {**one, 'reserved': 0}
            for name, one in child.inventories.items()})
        self.snapshot.book.accept(fakes.report(HOST, 1))
        self.cloud = fake_clouds.Cloud(self)
        self.names()
        self.serve()

    def names(self) -> None:
        """Give names to what Nova's fixtures have."""
        image, second = nova_sequence.IMAGE, self.neutron.network_2
        self.neutron._networks[second['id']] = {
            **second, 'port_security_enabled': True}
        self.neutron._subnets[self.neutron.subnet_2['id']] = (
            self.neutron.subnet_2)
        self.cloud.images = [{**fake_clouds.IMAGE, 'id': image,
                              'name': 'debian'}]
        self.cloud.networks = [
            self.cloud.network(self.neutron.network_1['id'], 'private'),
            self.cloud.network(self.neutron.network_2['id'], 'storage')]
        self.cloud.security_groups = [{
            'id': self.neutron.security_group['id'], 'name': 'default'}]
        self.ports = self.useFixture(fixtures.MockPatchObject(
            self.neutron, 'create_port',
            wraps=self.neutron.create_port)).mock
        self.volume = nova_fixtures.CinderFixture.IMAGE_BACKED_VOL
        self.cloud.volumes = [{'id': self.volume, 'name': 'results',
                               'status': 'available'}]

    def serve(self) -> None:
        """Start the lease service, and a client of it."""
        self.service = services.on(typing.cast(unittest.TestCase, self))
        inner = app.application(self.service)
        token = fake_clouds.token(['image', 'network', 'block-storage'])
        token.add_service('compute').add_standard_endpoints(
            public=self.api_fixture.base_url)
        owner = self.owner = fake_clouds.Plugin(token)
        known = auth.NovaKeystoneContext._create_context

        def context_of(environ: dict[str, str], **more: typing.Any
                       ) -> context.RequestContext:
            """Know the owner by the token."""
            if environ.get('HTTP_X_AUTH_TOKEN') != 'alices':
                return known(environ, **more)
            return context.RequestContext(
                'fake', nova_fixtures.PROJECT_ID, is_admin=False,
                roles=['reader', 'member'], **more)
        self.useFixture(fixtures.MonkeyPatch(
            'nova.api.auth.NovaKeystoneContext._create_context',
            context_of))

        @webob.dec.wsgify
        def as_keystone(request: typing.Any) -> typing.Any:
            request.environ['keystone.token_auth'] = owner
            return inner
        intercepted = interceptor.RequestsInterceptor(
            lambda: as_keystone, host='lease.example', port=80)
        intercepted.install_intercept()
        self.addCleanup(intercepted.uninstall_intercept)
        self.leases = client.Client(adapter.Adapter(session.Session(
            token_endpoint.Token('http://lease.example', (
                f'alice:{nova_fixtures.PROJECT_ID}'))),
            service_type=client.SERVICE_TYPE))

    def command(self, *arguments: str) -> str:
        """Run ``openstack secondary lease create``; return all it prints."""
        out = io.StringIO()
        screen = types.SimpleNamespace(
            stdout=out, stderr=out, options=types.SimpleNamespace(),
            LOG=None, client_manager=types.SimpleNamespace(
                secondary_lease=self.leases))
        made = commands.CreateLease(screen, None)
        with mock.patch.object(waiting, 'time', types.SimpleNamespace(
                sleep=lambda seconds: self.run_lease(), monotonic=float)):
            made.run(made.get_parser('openstack').parse_args(
                [*arguments, '--wait', 'job']))
        return out.getvalue()

    def run_lease(self) -> None:
        """Do as the engine and the applier do for each node."""
        lease, = self.service.store.leases()
        owner = types.SimpleNamespace(
            compute=connection.Connection(
                session=session.Session(self.owner)).compute,
            image=types.SimpleNamespace(
                find_image=self.finding(self.cloud.images)),
            network=types.SimpleNamespace(
                find_network=self.finding(self.cloud.networks)))
        numbered = [one for one in lease.nodes for _ in range(one.number)]
        self.made = [self.create(owner, lease, number, one)
                     for number, one in enumerate(numbered)]
        for uuid in self.made:
            self._wait_for_state_change({'id': uuid}, 'ACTIVE')
        self.service.store.change(lease.uuid, 'active', {
            'state': LeaseState.ACTIVE}, servers=self.made)

    @staticmethod
    def finding(among: list[dict[str, typing.Any]]) -> typing.Any:
        """Return what finds things by their name, as openstacksdk does."""
        ids = {one['name']: one['id'] for one in among}
        return lambda name, ignore_missing: types.SimpleNamespace(
            id=ids[name])

    def create(self, owner: typing.Any, lease: typing.Any,
               number: int, one: typing.Any) -> str:
        """Ask Nova for the server of a node, as a boot does."""
        body = server_properties.make_server_body(
            owner, {'name': f'job-{number}', 'flavor': one.flavor,
                    'image': one.image, 'network': one.network,
                    'key_name': one.key_name, **requests.server_request(
                        self.service.database, lease.uuid, number)},
            {vocabulary.LEASE_METADATA: lease.uuid})
        answer = owner.compute.post(
            '/servers', microversion=server_properties.VERSION, json={
                'server': body, 'OS-SCH-HNT:scheduler_hints': {
                    vocabulary.LEASE_HINT: lease.uuid,
                    vocabulary.HOST_HINT: HOST}})
        self.assertEqual(202, answer.status_code, answer.text)
        return str(answer.json()['server']['id'])

    def test_a_batch_job(self) -> None:
        """User data, a volume, two networks, and the rest."""
        script = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path, 'job.sh')
        script.write_bytes(SCRIPT)
        told = self.command(
            '--duration', '1h', '--nodes',
            'number=1,flavor=secondary.small,image=debian',
            '--user-data', str(script), '--network', 'private',
            '--network', 'storage', '--boot-from-volume', '4',
            '--block-device', f'source_type=volume,uuid={self.volume},'
            'destination_type=volume,tag=results', '--tag', 'batch',
            '--property', 'job=nightly', '--security-group', 'default',
            '--config-drive', '--description', 'writes a file')
        self.assertIn('active', told)
        lease, = self.service.store.leases()
        self.assertEqual([], lease.unverified)
        self.assertNotIn(base64.b64encode(SCRIPT).decode(), told)
        uuid, = self.made
        server = self.api.get_server(uuid)
        self.assertEqual(
            (HOST, ['batch'], 'writes a file', 'nightly', True),
            (server['OS-EXT-SRV-ATTR:host'], server['tags'],
             server['description'], server['metadata']['job'],
             bool(server['config_drive'])))
        self.assertIn(self.volume, [one['id'] for one in server[
            'os-extended-volumes:volumes_attached']])
        self.assertEqual(2, len(server[
            'os-extended-volumes:volumes_attached']))
        self.assertEqual('', server['image'])
        # The fixture makes all of its ports on the first network.
        self.assertEqual(2, len(self.api.get_port_interfaces(uuid)))
        self.assertEqual(
            [self.neutron.network_1['id'], self.neutron.network_2['id']],
            [call.args[0]['port']['network_id']
             for call in self.ports.call_args_list])
        kept = instances.Instance.get_by_uuid(
            context.get_admin_context(), uuid)
        self.assertEqual(SCRIPT, base64.b64decode(kept.user_data))

    def test_a_network_has_to_be_named(self) -> None:
        """Of two networks none is chosen: the refusal says so."""
        with self.assertRaisesRegex(client.LeaseError, '2 networks'):
            self.command('--duration', '1h', '--nodes',
                         'number=1,flavor=secondary.small,image=debian')


if __name__ == '__main__':
    unittest.main()
