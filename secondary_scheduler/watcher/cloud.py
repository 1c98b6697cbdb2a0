"""Nova and Placement, as the collector and the actions use them.

One session per process, from [watcher_clients_auth]: Watcher itself makes a
new one, with a new token, for each audit and each action.
"""

from collections.abc import Collection, Iterator, Mapping
import contextlib
import functools
import time
from typing import Any

from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import loading
from openstack import connection
from openstack import exceptions as sdk_exceptions
from oslo_log import log
import tenacity
from watcher.common import clients

from secondary_scheduler.conf import keystone
from secondary_scheduler.leases.api import server_properties
from secondary_scheduler.leases.engine.values import Nature
from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import cluster_builder, per_process
from secondary_scheduler.watcher import scope as scopes
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

#: The aggregate that has one host, by which images are fetched to it.
_CACHE = 'secondary-image-cache-'
_ABORTABLE = ('queued', 'preparing', 'running')
#: Seconds for which the list of secondary flavors is not asked for again; a
#: server of a newer one is found through its agent's report.
_FLAVORS_S = 60.0


#: HTTP status codes of requests that fail the same way each time: malformed,
#: forbidden (a full quota, too), not there, not supported.
_PERMANENT = frozenset({400, 403, 404, 405, 410, 422, 501})
#: Faults of instances for which Nova's scheduler or all hosts had no room.
_NO_ROOM = ('no valid host', 'exceeded maximum number of retries',
            'insufficient compute resources', 'not enough')


class CloudError(Exception):
    """A service did not answer, answered nothing readable, or refused.

    ``nature`` says whether the same request can succeed later.
    """

    nature = Nature.TRANSIENT


class NotFound(CloudError):
    """A resource of the request does not exist (any more)."""

    nature = Nature.PERMANENT


class Refused(CloudError):
    """The request is refused, and would be again."""

    nature = Nature.PERMANENT


class NoRoom(CloudError):
    """No host, or not this one, has room for the instance now."""

    nature = Nature.CAPACITY


class Untrusted(CloudError):
    """The trust of a lease's owner is gone, or its roles."""

    nature = Nature.LOST_RIGHT


class Conflict(CloudError):
    """The request does not fit the present state."""


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (sdk_exceptions.NotFoundException, ksa_exceptions.NotFound) as exc:
        raise NotFound(str(exc)) from exc
    except (sdk_exceptions.ConflictException, ksa_exceptions.Conflict) as exc:
        raise Conflict(str(exc)) from exc
    except sdk_exceptions.HttpException as exc:
        kind = Refused if exc.status_code in _PERMANENT else CloudError
        raise kind(
            f'{exc.status_code}, {exc.details or exc.message}') from exc
    except sdk_exceptions.DuplicateResource as exc:
        raise Refused(str(exc)) from exc
    except (sdk_exceptions.SDKException,
            ksa_exceptions.ClientException) as exc:
        raise CloudError(f'{type(exc).__name__}: {exc}') from exc
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        LOG.exception('What the cloud has answered cannot be read.')
        raise CloudError('an answer cannot be read: '
                         f'{type(exc).__name__}: {exc}') from exc


_conflicts_retried = tenacity.retry(
    retry=tenacity.retry_if_exception_type(Conflict),
    stop=tenacity.stop_after_attempt(4),
    wait=tenacity.wait_random(0, 0.2), reraise=True)


class Cloud:
    """The calls we make, in our own values and with our own errors.

    Every method that asks raises ``CloudError``, or one of its kinds, and
    nothing else of the client libraries'.
    """

    def __init__(self, conn: connection.Connection) -> None:
        self._conn: Any = conn
        self._compute: Any = conn.compute
        self._placement: Any = conn.placement
        self._flavors: tuple[Any, ...] = ()
        self._flavors_until = 0.0
        self._providers: dict[str, tuple[int, Any, Any]] = {}

    @property
    def session(self) -> Any:
        """The session of keystoneauth of this connection."""
        return self._conn.session

    def open_session(self) -> None:
        """Get a token and find Nova, unless that has been done already."""
        with _errors():
            self._compute.get_token()
            self._compute.get_endpoint_data()

    # Reading

    def servers(self) -> dict[str, cluster_builder.NovaServer]:
        """Return all servers of secondary flavors, by UUID.

        Only these are listed, so a cloud full of primaries costs nothing;
        servers whose flavor has been deleted are found one by one, through
        the agents' reports.
        """
        with _errors():
            found = {}
            for flavor in self.flavors():
                found.update(self._list(flavor=flavor))
            return found

    def servers_on(self, host: str) -> dict[str, cluster_builder.NovaServer]:
        """Return the secondaries on one host, by UUID, with one call."""
        with _errors():
            # As "host" the SDK would look for it again, in what the answer
            # calls otherwise, and keep nothing.
            return self._list(compute_host=host)

    def _list(self, **query: str) -> dict[str, cluster_builder.NovaServer]:
        listed = map(
            cluster_builder.NovaServer.from_sdk,
            self._compute.servers(details=True, all_projects=True, **query),
        )
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

    def _secondary_flavors(self) -> tuple[Any, ...]:
        now = time.monotonic()
        if now >= self._flavors_until:
            with _errors():
                self._flavors = tuple(
                    flavor
                    for flavor in self._compute.flavors(is_public='None')
                    if vocabulary.is_marked(flavor.extra_specs or {}))
            self._flavors_until = now + _FLAVORS_S
        return self._flavors

    def forget_flavors(self) -> None:
        """Ask for the secondary flavors anew when they are needed next."""
        self._flavors_until = 0.0

    def server(self, uuid: str) -> cluster_builder.NovaServer | None:
        """Return one server, or None if it is not a secondary.

        :raises NotFound: if it does not exist.
        """
        with _errors():
            return cluster_builder.NovaServer.from_sdk(
                self._compute.get_server(uuid))

    def hosts(self) -> dict[str, cluster_builder.ComputeHost]:
        """Return compute hosts, with what their children have and hold."""
        with _errors():
            roots = {(item.service_details or {}).get('host'): item.id
                     for item in self._compute.hypervisors(details=True)}
            inside: dict[str, list[Any]] = {}
            for aggregate in self._compute.aggregates():
                for name in aggregate.hosts or ():
                    inside.setdefault(name, []).append(aggregate)
            generations = {p['uuid']: p['generation'] for p in self._get(
                '/resource_providers')['resource_providers']}
            off = self._with_trait(vocabulary.SWITCHED_OFF_TRAIT)
            disabled = self._with_trait(vocabulary.CLOSED_TRAIT)
            before, self._providers = self._providers, {}
            found = {}
            for service in self._compute.services(binary='nova-compute'):
                name, root = service.host, roots.get(service.host)
                child = vocabulary.child_provider_uuid(root or '')
                inventory, used = {}, {}
                if child in generations:
                    # Whatever changes it, claims included, moves this on.
                    now = generations[child]
                    then, inventory, used = before.get(child, (None, {}, {}))
                    if then != now:
                        inventory = self._inventory(child)['inventories']
                        used = self._get(f'/resource_providers/{child}/usages'
                                         )['usages']
                    self._providers[child] = now, inventory, used
                found[name] = cluster_builder.ComputeHost(
                    name=name, root=root,
                    up=(service.status == 'enabled' and service.state == 'up'
                        and not service.is_forced_down),
                    place=scopes.HostPlace(
                        frozenset(a.id for a in inside.get(name, ())),
                        frozenset(a.name for a in inside.get(name, ())),
                        service.availability_zone or ''),
                    total={k: v['total'] for k, v in inventory.items()},
                    reserved={k: v['reserved']
                              for k, v in inventory.items()},
                    used=used, switched_off=child in off,
                    disabled=child in disabled)
            return found

    def anti_affinity(self) -> dict[str, str]:
        """Return the hard anti-affinity group of each member server."""
        with _errors():
            return {
                member: group.id
                for group in self._compute.server_groups(all_projects=True)
                if 'anti-affinity' in (group.policy,
                                       *(group.policies or ()))
                for member in group.member_ids or ()}

    # Servers of leases

    def labelled(self, project: str, lease: str, node: int,
                 ) -> list[cluster_builder.NovaServer]:
        """Return the secondaries of a project that say to be this node."""
        with _errors():
            return [
                server
                for server in self._list(project_id=project).values()
                if cluster_builder.node_of(server.metadata) == (lease, node)
            ]

    def create(self, build: Mapping[str, Any], metadata: Mapping[str, str],
               hints: Mapping[str, str]) -> str:
        """Make a server in the project of this connection; return its UUID.

        :param build: as ``server_properties.body`` takes it.
        :raises NotFound: if what it is to be made of is not there.
        """
        with _errors():
            answer = self._compute.post(
                '/servers', json={
                    'server': server_properties.body(
                        self._conn, build, metadata),
                    'OS-SCH-HNT:scheduler_hints': dict(hints)},
                # Debug logs would show the body, and user data in it.
                microversion=server_properties.VERSION, log=False)
            sdk_exceptions.raise_from_response(answer)
            return str(answer.json()['server']['id'])

    def image(self, name: str) -> str:
        """Return the id of an image, by its name or id.

        :raises NotFound: if whose connection this is may not use it.
        """
        with _errors():
            return str(self._conn.image.find_image(
                name, ignore_missing=False).id)

    @_conflicts_retried
    def cache_image(self, host: str, image: str) -> None:
        """Have Nova fetch an image to a host, which it does when it can.

        It takes no hosts but aggregates; one that has the host alone and no
        metadata means nothing to anybody else.  It is made for the first
        image; a conflict tells that somebody else does so too.
        """
        name = _CACHE + host
        with _errors():
            aggregate = next((one for one in self._compute.aggregates()
                              if one.name == name), None)
            if aggregate is None:
                aggregate = self._compute.create_aggregate(name=name)
            if host not in (aggregate.hosts or ()):
                self._compute.add_host_to_aggregate(aggregate, host)
            self._compute.aggregate_precache_images(aggregate, image)

    def fault(self, uuid: str) -> CloudError:
        """Return the reason, as Nova gives it, for which a server is in ERROR.
        """
        with _errors():
            fault = self._compute.get_server(uuid).fault or {}
        text = str(fault.get('message') or 'Nova gives no reason')
        if any(words in text.lower() for words in _NO_ROOM):
            return NoRoom(text)
        return (Refused if fault.get('code') in _PERMANENT else CloudError
                )(text)

    def delete(self, uuid: str) -> None:
        """Ask Nova to delete a server, if it is there."""
        with contextlib.suppress(NotFound), _errors():
            self._compute.delete_server(uuid, ignore_missing=False)

    # Changing servers

    def set_metadata(self, uuid: str, key: str, value: str) -> None:
        """Set one metadata item of a server."""
        with _errors():
            self._compute.set_server_metadata(uuid, **{key: value})

    def delete_metadata(self, uuid: str, key: str) -> None:
        """Delete one metadata item of a server, if it is there."""
        with contextlib.suppress(NotFound), _errors():
            self._compute.delete_server_metadata(uuid, [key])

    def act(self, uuid: str, verb: str) -> None:
        """Ask Nova to suspend, resume, stop, start, shelve or unshelve.

        ``verb`` is the operation's kind, or ``shelve_offload``.
        """
        with _errors():
            getattr(self._compute, f'{verb}_server')(uuid)

    def live_migrate(self, uuid: str, host: str) -> None:
        """Ask Nova to live-migrate a server to a host it then checks."""
        with _errors():
            self._compute.live_migrate_server(
                uuid, host=host, force=False, block_migration='auto')

    def abort_migration(self, uuid: str) -> bool:
        """Abort the server's live migration; tell whether there was one."""
        with _errors():
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
        if response.status_code == 400:     # nobody has made the trait yet
            return frozenset()
        sdk_exceptions.raise_from_response(response)
        return frozenset(
            p['uuid'] for p in response.json()['resource_providers'])

    @_conflicts_retried
    def close_admission(self, root: str) -> None:
        """Switch a host off: no further claims, whatever its agent thinks.

        Each claim and each change by the agent moves the provider's
        generation, so a conflict is expected and tried again.  The trait
        comes first: an agent that meets it keeps everything reserved.
        """
        provider = vocabulary.child_provider_uuid(root)
        with _errors():
            self._switch(provider, off=True)
            body = self._inventory(provider)
            for inventory in body['inventories'].values():
                inventory['reserved'] = inventory['total']
            self._put(f'/resource_providers/{provider}/inventories', body)

    @_conflicts_retried
    def open_admission(self, root: str) -> None:
        """Leave a host's admission to its agent (and the operator) again."""
        with _errors():
            self._switch(vocabulary.child_provider_uuid(root), off=False)

    def _switch(self, provider: str, off: bool) -> None:
        """Set or remove the trait, and leave the others as they are."""
        url = f'/resource_providers/{provider}/traits'
        body = self._get(url)
        traits = set(body['traits'])
        if off == (vocabulary.SWITCHED_OFF_TRAIT in traits):
            return
        if off:
            self._put(f'/traits/{vocabulary.SWITCHED_OFF_TRAIT}')
        body['traits'] = sorted(traits ^ {vocabulary.SWITCHED_OFF_TRAIT})
        self._put(url, body)


def look_up(cloud: Cloud, uuids: Collection[str],
            ) -> dict[str, cluster_builder.NovaServer]:
    """Return those of some servers that exist and are secondaries."""
    found = {}
    for uuid in uuids:
        with contextlib.suppress(NotFound):
            server = cloud.server(uuid)
            if server is not None:
                found[uuid] = server
    return found


_AUTH = 'watcher_clients_auth'


def _connect() -> Cloud:
    with _errors():
        return Cloud(clients.get_sdk_connection(
            _AUTH, session=clients.OpenStackClients().session))


@functools.lru_cache(maxsize=64)
def _of_owner(trust: str | None) -> Cloud:
    """Return a cloud with all services, of whoever has given us a trust."""
    # Who is trusted has no project of their own for it.
    auth = loading.load_auth_from_conf_options(CONF, _AUTH, **({
        'trust_id': trust, 'project_id': None, 'project_name': None,
        'project_domain_id': None, 'project_domain_name': None}
        if trust else {}))
    session = loading.load_session_from_conf_options(CONF, _AUTH, auth=auth)
    # Watcher's own connections have the services only that it is told of.
    return Cloud(connection.Connection(
        session=session, region_name=keystone.region(CONF.nova),
        interface=keystone.interfaces(CONF.nova) or None))


def as_owner(trust: str | None) -> Cloud:
    """Return the cloud as who has given us a trust; without, as ourselves.

    :raises Untrusted: if the trust is gone, or its roles.
    """
    try:
        with _errors():
            cloud = _of_owner(trust)
            cloud.open_session()
            return cloud
    except CloudError as exc:
        if isinstance(exc.__cause__, ksa_exceptions.Unauthorized
                      | ksa_exceptions.Forbidden | ksa_exceptions.NotFound):
            _of_owner.cache_clear()
            raise Untrusted(str(exc)) from exc
        raise


#: The cloud as seen by this process; nothing is asked before first use.
shared = per_process.PerProcess(_connect)
