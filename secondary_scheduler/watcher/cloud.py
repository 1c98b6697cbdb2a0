# SPDX-License-Identifier: Apache-2.0

"""Requests to Nova, Glance and Placement.

The collector, the leader and the actions use this class, with the connection
of ``cloud_connections``.
"""

from collections.abc import Collection, Mapping
import contextlib
import time
from typing import Any

from openstack import connection, utils
from openstack import exceptions as sdk_exceptions
from openstack.compute.v2 import server as sdk_server

from secondary_scheduler.leases.api import server_properties
from secondary_scheduler.leases.engine.values import UNKNOWN
from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import cloud_errors, cloud_snapshot
from secondary_scheduler.watcher.cloud_snapshot import (
    ComputeHost,
    NovaServer,
    ServerGroup,
)
from secondary_scheduler.watcher.compute_services import ComputeServices
from secondary_scheduler.watcher.list_gate import ListGate
from secondary_scheduler.watcher.scope import HostPlace

#: Prefix of the aggregates that hold one host, for pre-caching images.
_CACHE = 'secondary-image-cache-'
_ABORTABLE = ('queued', 'preparing', 'running')
#: Seconds for which the list of secondary flavors is cached; a server of a
#: newer flavor is found through its agent's report.
_FLAVORS_S = 60.0
#: Microversion that tells the availability zone a server asked for.
_REQUESTED_ZONE = '2.96'
_APART = 'anti-affinity'
#: Faults of instances for which Nova's scheduler or all hosts had no room.
_NO_ROOM = ('no valid host', 'exceeded maximum number of retries',
            'insufficient compute resources', 'not enough')


class Cloud:
    """Requests to Nova, Glance and Placement, with our values and errors.

    :param request_timeout: seconds after which ``conn`` gives a request up.

    Every method that sends a request raises ``CloudError`` or one of its
    subclasses, and no exception of the client libraries.
    """

    def __init__(self, conn: connection.Connection,
                 request_timeout: float = 10.0) -> None:
        self._conn: Any = conn
        self._compute: Any = conn.compute
        self._placement: Any = conn.placement
        self._flavors: tuple[Any, ...] = ()
        self._flavors_until = 0.0
        self._providers: dict[str, tuple[int, Any, Any]] = {}
        self.gate = ListGate(request_timeout)
        self._services = ComputeServices(conn.compute, self.gate)

    @property
    def session(self) -> Any:
        """The keystoneauth session of this connection."""
        return self._conn.session

    def open_session(self) -> None:
        """Get a token and discover Nova, unless that has been done."""
        with cloud_errors.translated_errors():
            self._compute.get_token()
            self._compute.get_endpoint_data()

    # Reading

    def servers(self) -> dict[str, NovaServer]:
        """Return all servers of secondary flavors, by UUID.

        Only these are listed, so the primaries of a cloud cost nothing.
        Servers whose flavor was deleted are looked up one by one, once an
        agent reports them.  Servers in a cell that does not answer are left
        out.

        :raises TimedOut: if a cell is silent.
        """
        with self.gate.list(), cloud_errors.translated_errors():
            found = {}
            for flavor in self.flavors():
                found.update(self._list(flavor=flavor))
            return found

    def servers_on(self, host: str) -> dict[str, NovaServer]:
        """Return the secondaries on one host, by UUID, with one call.

        :raises TimedOut: if a cell is silent, whichever it is.
        """
        with self.gate.list(), cloud_errors.translated_errors():
            # With "host" the SDK would filter the answer once more, by an
            # attribute that it names differently, and drop every server.
            return self._list(compute_host=host)

    def _list(self, **query: str) -> dict[str, NovaServer]:
        tells_zone = self._tells_zone
        listed = (NovaServer.from_sdk(server, tells_zone) for server in
                  self._compute.servers(
                      details=True, all_projects=True, **query))
        return {server.uuid: server for server in listed
                if server is not None}

    def flavors(self) -> tuple[str, ...]:
        """Return the ids of secondary flavors; up to a minute old."""
        return tuple(flavor.id for flavor in self._secondary_flavors())

    def sizes(self) -> dict[str, tuple[int, int, int]]:
        """Return vCPUs, memory (MiB) and disk (GiB) of secondary flavors.

        By name and by id; up to a minute old.
        """
        return {key: (int(flavor.vcpus or 0), int(flavor.ram or 0),
                      vocabulary.claimed_disk_gb(
                          flavor.disk, flavor.ephemeral, flavor.swap))
                for flavor in self._secondary_flavors()
                for key in (flavor.id, flavor.name)}

    def flavor_specs(self) -> dict[str, dict[str, str]]:
        """Return the extra specs of secondary flavors, by name and by id.

        Up to a minute old.
        """
        return {key: dict(flavor.extra_specs)
                for flavor in self._secondary_flavors()
                for key in (flavor.id, flavor.name)}

    def _secondary_flavors(self) -> tuple[Any, ...]:
        now = time.monotonic()
        if now >= self._flavors_until:
            try:
                with cloud_errors.translated_errors():
                    self._flavors = tuple(
                        flavor
                        for flavor in self._compute.flavors(is_public='None')
                        if vocabulary.is_marked(flavor.extra_specs or {}))
            except cloud_errors.TimedOut:
                # All threads of Nova's API may wait for a silent cell.
                if not self._flavors:
                    raise
            self._flavors_until = now + _FLAVORS_S
        return self._flavors

    def forget_flavors(self) -> None:
        """Drop the cached flavors; the next use requests them again."""
        self._flavors_until = 0.0

    def server(self, uuid: str) -> NovaServer | None:
        """Return one server, or None if it is not a secondary.

        :raises NotFound: if it does not exist.
        :raises Unseen: if its cell does not answer.
        """
        with cloud_errors.translated_errors():
            server = self._compute.get_server(uuid)
            if server.status == UNKNOWN:
                raise cloud_errors.Unseen(
                    f'the cell of server {uuid} does not answer Nova')
            return NovaServer.from_sdk(server, self._tells_zone)

    @property
    def _tells_zone(self) -> bool:
        """Whether Nova tells the availability zone that servers asked for."""
        return bool(utils.supports_microversion(
            self._compute, _REQUESTED_ZONE)) and hasattr(
                sdk_server.Server, 'pinned_availability_zone')

    def primary_hosts(self, uuids: Collection[str]) -> dict[str, str | None]:
        """Return the hosts of servers that exist, one request for each.

        Servers in a cell that does not answer are left out.
        """
        found = {}
        for uuid in uuids:
            try:
                with (contextlib.suppress(cloud_errors.NotFound),
                      cloud_errors.translated_errors()):
                    server = self._compute.get_server(uuid)
                    if server.status != UNKNOWN:
                        found[uuid] = server.compute_host or None
            except cloud_errors.TimedOut:
                break
        return found

    def hosts(self) -> dict[str, ComputeHost]:
        """Return compute hosts with inventory and usage of their children.

        Of a host in a cell that does not answer, state and zone are the last
        known ones.

        :raises TimedOut: if Nova takes too long, and did so from the start.
        """
        with cloud_errors.translated_errors():
            services = self._services.refresh()
            inside: dict[str, list[Any]] = {}
            for aggregate in self._compute.aggregates():
                for name in aggregate.hosts or ():
                    inside.setdefault(name, []).append(aggregate)
            providers = self._get('/resource_providers')['resource_providers']
            generations = {p['uuid']: p['generation'] for p in providers}
            roots = self._services.find_roots(providers)
            off = self._with_trait(vocabulary.SWITCHED_OFF_TRAIT)
            disabled = self._with_trait(vocabulary.CLOSED_TRAIT)
            before, self._providers = self._providers, {}
            found = {}
            for name, service in services.items():
                root = roots.get(name)
                child = vocabulary.child_provider_uuid(root or '')
                inventory, used = {}, {}
                if child in generations:
                    # Every change of it, claims included, raises this.
                    now = generations[child]
                    then, inventory, used = before.get(child, (None, {}, {}))
                    if then != now:
                        inventory = self._inventory(child)['inventories']
                        used = self._get(f'/resource_providers/{child}/usages'
                                         )['usages']
                    self._providers[child] = now, inventory, used
                found[name] = ComputeHost(
                    name=name, root=root,
                    up=service.up, unreachable=service.unreachable,
                    place=HostPlace(
                        frozenset(a.id for a in inside.get(name, ())),
                        frozenset(a.name for a in inside.get(name, ())),
                        service.zone),
                    total={k: v['total'] for k, v in inventory.items()},
                    reserved={k: v['reserved']
                              for k, v in inventory.items()},
                    used=used,
                    ratios={k: float(v.get('allocation_ratio', 1.0))
                            for k, v in inventory.items()},
                    metadata=_metadata(inside.get(name, ())),
                    switched_off=child in off,
                    disabled=child in disabled)
            return found

    def unreachable_hosts(self) -> frozenset[str]:
        """Return the hosts in cells that do not answer; may take a minute.

        :raises TimedOut: if Nova takes longer.
        """
        return frozenset(name for name, service
                         in self._services.refresh().items()
                         if service.unreachable)

    def server_groups(self) -> tuple[ServerGroup, ...]:
        """Return the server groups with members and a hard policy.

        A soft policy is a wish: Nova may place members against it.
        """
        with cloud_errors.translated_errors():
            return tuple(
                ServerGroup(
                    group.id, policy == _APART, frozenset(group.member_ids),
                    int((group.rules or {}).get('max_server_per_host', 1)))
                for group in self._compute.server_groups(all_projects=True)
                for policy in (group.policy, *(group.policies or ()))
                if policy in (_APART, 'affinity') and group.member_ids)

    # Servers of leases

    def labelled(self, project: str, lease: str, node: int,
                 ) -> list[NovaServer]:
        """Return the secondaries of a project labelled as a lease's node.

        Nova finds them by their tag: the list of a project may be long.
        """
        with cloud_errors.translated_errors():
            return [
                server
                for server in self._list(
                    project_id=project,
                    tags=cloud_snapshot.lease_tag(lease, node)).values()
                if cloud_snapshot.node_of(server.metadata) == (lease, node)
            ]

    def create(self, build: Mapping[str, Any], metadata: Mapping[str, str],
               hints: Mapping[str, str]) -> str:
        """Create a server in the project of this connection; return its UUID.

        :param build: as ``server_properties.make_server_body`` takes it.
        :raises NotFound: if its flavor, image or network does not exist.
        """
        with cloud_errors.translated_errors():
            answer = self._compute.post(
                '/servers', json={
                    'server': server_properties.make_server_body(
                        self._conn, build, metadata),
                    'OS-SCH-HNT:scheduler_hints': dict(hints)},
                # Debug logs would show the body, which has user data.
                microversion=server_properties.VERSION, log=False)
            sdk_exceptions.raise_from_response(answer)
            return str(answer.json()['server']['id'])

    def image(self, name: str) -> str:
        """Return the id of an image, by its name or id.

        :raises NotFound: if this connection's account may not use it.
        """
        with cloud_errors.translated_errors():
            return str(self._conn.image.find_image(
                name, ignore_missing=False).id)

    @cloud_errors.retry_conflicts
    def cache_image(self, host: str, image: str) -> None:
        """Ask Nova to pre-cache an image on a host, asynchronously.

        Nova's API takes aggregates only, not hosts.  So each host gets an
        aggregate of its own, without metadata, with its first image.  A
        conflict means that another process creates it at the same time.
        """
        name = _CACHE + host
        with cloud_errors.translated_errors():
            aggregate = next((one for one in self._compute.aggregates()
                              if one.name == name), None)
            if aggregate is None:
                aggregate = self._compute.create_aggregate(name=name)
            if host not in (aggregate.hosts or ()):
                self._compute.add_host_to_aggregate(aggregate, host)
            self._compute.aggregate_precache_images(aggregate, image)

    def fault(self, uuid: str) -> cloud_errors.CloudError:
        """Return the reason that Nova gives for a server in ERROR."""
        with cloud_errors.translated_errors():
            fault = self._compute.get_server(uuid).fault or {}
        text = str(fault.get('message') or 'Nova gives no reason')
        if any(words in text.lower() for words in _NO_ROOM):
            return cloud_errors.NoRoom(text)
        kind = (cloud_errors.Refused
                if fault.get('code') in cloud_errors.PERMANENT
                else cloud_errors.CloudError)
        return kind(text)

    def delete(self, uuid: str) -> None:
        """Ask Nova to delete a server, if it is there."""
        with (contextlib.suppress(cloud_errors.NotFound),
              cloud_errors.translated_errors()):
            self._compute.delete_server(uuid, ignore_missing=False)

    # Changing servers

    def set_metadata(self, uuid: str, items: Mapping[str, str]) -> None:
        """Set metadata items of a server, with one request."""
        with cloud_errors.translated_errors():
            self._compute.set_server_metadata(uuid, **items)

    def delete_metadata(self, uuid: str, key: str) -> None:
        """Delete one metadata item of a server, if it is there."""
        with (contextlib.suppress(cloud_errors.NotFound),
              cloud_errors.translated_errors()):
            self._compute.delete_server_metadata(uuid, [key])

    def act(self, uuid: str, verb: str) -> None:
        """Ask Nova to suspend, resume, stop, start or shelve a server.

        ``verb`` is the operation's kind, ``unpause`` or ``shelve_offload``.
        """
        with cloud_errors.translated_errors():
            getattr(self._compute, f'{verb}_server')(uuid)

    def unshelve(self, uuid: str, host: str | None) -> None:
        """Ask Nova to unshelve a server.

        :param host: host that it requests, which Nova checks; None for a
            server that is not offloaded, since it still has a host
        """
        with cloud_errors.translated_errors():
            self._compute.unshelve_server(uuid, host=host)

    def live_migrate(self, uuid: str, host: str) -> None:
        """Ask Nova to live-migrate a server to a host, which Nova checks."""
        with cloud_errors.translated_errors():
            self._compute.live_migrate_server(
                uuid, host=host, force=False, block_migration='auto')

    def abort_migration(self, uuid: str) -> bool:
        """Abort the server's live migration; return whether there was one."""
        with cloud_errors.translated_errors():
            aborted = False
            for migration in self._compute.server_migrations(uuid):
                if migration.status in _ABORTABLE:
                    self._compute.abort_server_migration(migration, uuid)
                    aborted = True
            return aborted

    # Placement

    def _get(self, url: str) -> Any:
        response = self._placement.get(
            url, microversion=vocabulary.PLACEMENT_VERSION)
        sdk_exceptions.raise_from_response(response)
        return response.json()

    def _inventory(self, provider: str) -> Any:
        return self._get(f'/resource_providers/{provider}/inventories')

    def _put(self, url: str, body: Any = None) -> None:
        response = self._placement.put(
            url, microversion=vocabulary.PLACEMENT_VERSION,
            **({'json': body} if body else {}))
        sdk_exceptions.raise_from_response(response)

    def _with_trait(self, trait: str) -> frozenset[str]:
        """Return the providers with a trait, by one query."""
        response = self._placement.get(
            f'/resource_providers?required={trait}',
            microversion=vocabulary.PLACEMENT_VERSION)
        if response.status_code == 400:     # the trait does not exist yet
            return frozenset()
        sdk_exceptions.raise_from_response(response)
        return frozenset(
            p['uuid'] for p in response.json()['resource_providers'])

    @cloud_errors.retry_conflicts
    def close_admission(self, root: str) -> None:
        """Switch a host off: its provider admits no further claim.

        The trait is set first: an agent that finds it keeps everything
        reserved.  Each claim and each change by the agent raises the
        provider's generation, so a conflict is expected and retried.
        """
        provider = vocabulary.child_provider_uuid(root)
        with cloud_errors.translated_errors():
            self._switch(provider, off=True)
            body = self._inventory(provider)
            for inventory in body['inventories'].values():
                inventory['reserved'] = inventory['total']
            self._put(f'/resource_providers/{provider}/inventories', body)

    @cloud_errors.retry_conflicts
    def open_admission(self, root: str) -> None:
        """Switch a host on: its agent and the operator control admission."""
        with cloud_errors.translated_errors():
            self._switch(vocabulary.child_provider_uuid(root), off=False)

    def _switch(self, provider: str, off: bool) -> None:
        """Set or remove the trait, without changing other traits."""
        url = f'/resource_providers/{provider}/traits'
        body = self._get(url)
        traits = set(body['traits'])
        if off == (vocabulary.SWITCHED_OFF_TRAIT in traits):
            return
        if off:
            self._put(f'/traits/{vocabulary.SWITCHED_OFF_TRAIT}')
        body['traits'] = sorted(traits ^ {vocabulary.SWITCHED_OFF_TRAIT})
        self._put(url, body)


def _metadata(aggregates: Collection[Any]) -> dict[str, frozenset[str]]:
    """Return the metadata of a host's aggregates, as Nova's filters do.

    A value may be a list with commas.
    """
    found: dict[str, set[str]] = {}
    for aggregate in aggregates:
        for key, value in (aggregate.metadata or {}).items():
            found.setdefault(key, set()).update(
                one.strip() for one in str(value).split(','))
    return {key: frozenset(values) for key, values in found.items()}
