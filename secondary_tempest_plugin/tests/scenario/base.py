# SPDX-License-Identifier: Apache-2.0

"""Base class of scenarios: servers that count their work, and load."""

import base64
import json
import typing

from oslo_utils import uuidutils
from tempest import config
from tempest.lib import exceptions
from tempest.lib.common import api_microversion_fixture
from tempest.lib.common.utils import data_utils

from secondary_tempest_plugin.tests import base
from secondary_tempest_plugin.tests.base import Json
from secondary_tempest_plugin.tests.scenario import work

CONF = config.CONF

#: Nova's version from which an administrator can name the host of a server.
COMPUTE_VERSION = '2.74'
#: States in which a secondary takes no CPU of a host.
PREEMPTED = frozenset(
    {'SUSPENDED', 'SHELVED', 'SHELVED_OFFLOADED', 'SHUTOFF'})
#: Suffix of the names of child providers with the capacity for secondaries.
_CHILD = '_secondary'


class ScenarioTestCase(base.LeaseTestCase):
    """Base class of scenarios; an administrator puts load on hosts."""

    credentials = ['primary', 'admin']

    #: Whether the tests put load on hosts.
    needs_load = False

    @classmethod
    def skip_checks(cls) -> None:
        """Skip the tests where no load is wanted."""
        super().skip_checks()
        if cls.needs_load and not CONF.secondary_scenario.load:
            raise cls.skipException('[secondary_scenario] load is false')

    def setUp(self) -> None:
        """Choose the version of Nova's API."""
        super().setUp()
        self.useFixture(api_microversion_fixture.APIMicroversionFixture(
            compute_microversion=COMPUTE_VERSION))

    def node_set(self, number: int = 1, **more: typing.Any) -> Json:
        """Return a node set whose servers count their work."""
        return super().node_set(number, **{
            'user_data': user_data(),
            'config_drive': CONF.secondary_scenario.config_drive, **more})

    def boot_secondary(self) -> str:
        """Boot a secondary without a lease; return its id when it works.

        A refused one is requested again: hosts open some time after they
        were busy.
        """
        refusals = []

        def booted() -> str | None:
            server = self.request_server('primary',
                                         CONF.secondary_lease.flavor)
            found = self.wait_for_server(
                server, lambda one: one['status'] != 'BUILD',
                CONF.secondary_scenario.boot_timeout)
            if found['status'] == 'ACTIVE':
                return server
            refusals.append(found.get('fault', {}).get('message', ''))
            self.delete_server(server)
            return None
        server = base.wait_until(
            booted, CONF.secondary_scenario.boot_timeout,
            lambda: f'no secondary could be booted: {refusals[-1:]}')
        self.wait_for_work(server)
        return str(server)

    def hosts(self) -> list[str]:
        """Return the hosts that may run secondaries, from Placement."""
        found = self.os_admin.placement.ResourceProvidersClient(
            ).list_resource_providers()['resource_providers']
        roots = {one['name'].removesuffix(_CHILD) for one in found
                 if one['name'].endswith(_CHILD)}
        return [one['name'] for one in found if one['uuid'] in roots]

    def load_host(self, host: str) -> list[str]:
        """Boot busy primaries on a host; return their ids when they work."""
        servers = [self.request_server(
            'admin', CONF.secondary_scenario.primary_flavor
            or CONF.compute.flavor_ref, host=host)
            for _ in range(CONF.secondary_scenario.primaries_per_host)]
        for server in servers:
            found = self.wait_for_server(
                server, lambda one: one['status'] != 'BUILD',
                CONF.secondary_scenario.boot_timeout)
            self.assertEqual(
                'ACTIVE', found['status'],
                f'no primary for the load on {host}: {found.get("fault")}')
        return servers

    def request_server(self, credentials: str, flavor: str,
                       **more: typing.Any) -> str:
        """Request a busy server; delete it at the end of the test."""
        manager = getattr(self, f'os_{credentials}')
        server = str(manager.servers_client.create_server(
            name=data_utils.rand_name(
                'server', prefix=CONF.resource_name_prefix),
            flavorRef=self.flavor_id(flavor), imageRef=self.image_id(),
            networks=self.networks(credentials), user_data=user_data(),
            config_drive=CONF.secondary_scenario.config_drive,
            **more)['server']['id'])
        self.addCleanup(self.delete_server, server)
        return server

    def networks(self, credentials: str) -> typing.Any:
        """Return the networks of a server, in Nova's form."""
        network = self.network_of(credentials)
        if network in ('auto', 'none'):
            return network
        if uuidutils.is_uuid_like(network):
            return [{'uuid': network}]
        found = self.os_admin.networks_client.list_networks(
            name=network)['networks']
        return [{'uuid': found[0]['id']}] if found else self.fail(
            f'there is no network {network}')

    def flavor_id(self, name_or_id: str) -> str:
        """Return the id of a flavor."""
        flavors = self.os_admin.flavors_client.list_flavors()['flavors']
        return _only('flavor', name_or_id, flavors)

    def image_id(self) -> str:
        """Return the id of the image of all servers."""
        wanted = CONF.secondary_lease.image or CONF.compute.image_ref
        images = self.os_admin.image_client_v2
        return _only('image', wanted, images.list_images(
            {'name': wanted})['images']) if not (
                uuidutils.is_uuid_like(wanted)) else str(wanted)

    def show_server(self, server: str) -> Json:
        """Return a server as an administrator sees it."""
        return typing.cast(Json, self.os_admin.servers_client.show_server(
            server)['server'])

    def host_of(self, server: str) -> str:
        """Return the host of a server."""
        return self.place_of(server)[0]

    def wait_for_server(self, server: str, reached: typing.Callable[
            [Json], bool], seconds: float) -> Json:
        """Return a server as soon as it is as wanted."""
        def found() -> Json | None:
            one = self.show_server(server)
            return one if reached(one) else None
        return typing.cast(Json, base.wait_until(
            found, seconds, lambda: describe(self.show_server(server))))

    def place_of(self, server: str) -> tuple[str, str]:
        """Return host and status of a server."""
        found = self.show_server(server)
        return found['OS-EXT-SRV-ATTR:host'], found['status']

    def wait_until_left(self, server: str, host: str) -> None:
        """Wait until a server is on another host or preempted."""
        self.wait_for_server(
            server, lambda one: one['status'] in PREEMPTED
            or one['OS-EXT-SRV-ATTR:host'] != host,
            CONF.secondary_scenario.preemption_timeout)

    def wait_until_running(self, server: str) -> None:
        """Wait until a server runs, and nothing is done with it."""
        self.wait_for_server(
            server, lambda one: one['status'] == 'ACTIVE'
            and one['OS-EXT-STS:task_state'] is None,
            CONF.secondary_scenario.return_timeout)

    def delete_server(self, server: str) -> None:
        """Delete a server and wait until it does not exist."""
        client = self.os_admin.servers_client

        def gone() -> bool:
            try:
                client.show_server(server)
            except exceptions.NotFound:
                return True
            return False
        if not gone():
            try:
                client.delete_server(server)
            except exceptions.NotFound:
                return
            base.wait_until(gone, CONF.secondary_scenario.boot_timeout,
                            lambda: describe(self.show_server(server)))

    def read_work(self, server: str) -> work.Work | None:
        """Return the work that a server has counted, None if none yet."""
        return work.read_work(self.os_admin.servers_client.get_console_output(
            server, length=20)['output'])

    def wait_for_work(self, server: str, after: work.Work | None = None
                      ) -> work.Work:
        """Return the work of a server as soon as there is more of it.

        :param after: the work before; the server must not have booted since.
        """
        def more() -> work.Work | None:
            found = self.read_work(server)
            if after is None or found is None:
                return found
            self.assertEqual(after.boot, found.boot,
                             f'{server} has booted again: its work is lost')
            self.assertGreaterEqual(found.units, after.units,
                                    f'{server} has lost work')
            return found if found.units > after.units else None
        return typing.cast(work.Work, base.wait_until(
            more, CONF.secondary_scenario.boot_timeout, lambda: (
                f'{server} does not count its work on its console, after '
                f'{after}; [secondary_lease] image has to run user data')))


def user_data() -> str:
    """Return the user data of all servers, in base64."""
    return base64.b64encode(work.SCRIPT.encode()).decode()


def describe(server: Json) -> str:
    """Return the state of a server, for an error."""
    return json.dumps({name: server.get(name) for name in (
        'id', 'name', 'status', 'OS-EXT-STS:task_state',
        'OS-EXT-SRV-ATTR:host', 'fault')})


def _only(kind: str, name_or_id: str, found: list[Json]) -> str:
    """Return the id of the only thing with a name or an id."""
    ids = [str(one['id']) for one in found
           if name_or_id in (one['id'], one['name'])]
    if len(ids) != 1:
        raise exceptions.InvalidConfiguration(
            f'there are {len(ids)} {kind}s {name_or_id}')
    return ids[0]
