# SPDX-License-Identifier: Apache-2.0

"""Look-ups in Nova, Glance, Neutron and Cinder with an owner's token.

All look-ups of a request run concurrently and within one time limit. The
result of a look-up is an object, or one of the exceptions below.
"""

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Mapping,
    Sequence,
)
from concurrent import futures
import dataclasses
import functools
import typing
import urllib.parse

from keystoneauth1 import adapter, exceptions
from keystoneauth1 import session as sessions
from oslo_config import cfg
from oslo_log import log as logging
import requests
from requests import adapters

from secondary_scheduler.conf import keystone

LOG = logging.getLogger(__name__)

Json = dict[str, typing.Any]

#: Largest number of concurrent look-ups of a process; further ones wait, and
#: may exceed their time limit.
_AT_ONCE = 64


class Missing(Exception):
    """No object or several objects match; the text names the remedy."""


class Unanswered(Exception):
    """The service gave no usable answer; the text gives the reason."""


@dataclasses.dataclass(frozen=True)
class ResourceKind:
    """A kind of objects of a service to which a request can refer.

    ``path`` is the path of the collection, or ``listing`` if the list has
    another one. ``key`` is the key of an object in a response ('' if the
    object is the whole response), ``keys`` the key of a list ('' if there is
    no look-up by name). ``command`` is the command of ``openstack`` that lists
    them.
    """

    service: str
    noun: str
    path: str
    key: str
    keys: str
    command: str
    listing: str = ''


KINDS = {
    one.noun: one
    for one in (
        ResourceKind(
            'compute',
            'flavor',
            '/flavors',
            'flavor',
            'flavors',
            'flavor list',
            '/flavors/detail',
        ),
        ResourceKind(
            'compute',
            'key pair',
            '/os-keypairs',
            'keypair',
            '',
            'keypair list',
        ),
        ResourceKind('image', 'image', '/images', '', 'images', 'image list'),
        ResourceKind(
            'network',
            'network',
            '/networks',
            'network',
            'networks',
            'network list',
        ),
        ResourceKind(
            'network', 'port', '/ports', 'port', 'ports', 'port list'
        ),
        ResourceKind(
            'network',
            'security group',
            '/security-groups',
            'security_group',
            'security_groups',
            'security group list',
        ),
        ResourceKind(
            'block-storage', 'volume', '/volumes', 'volume', '', 'volume list'
        ),
        ResourceKind(
            'block-storage',
            'snapshot',
            '/snapshots',
            'snapshot',
            '',
            'volume snapshot list',
        ),
    )
}

#: Of each service: the major version and the microversion.
_VERSIONS: Mapping[str, tuple[str, str | None]] = {
    # From 2.61 on a flavor has its extra specs.
    'compute': ('2', '2.61'), 'image': ('2', None), 'network': ('2', None),
    'block-storage': ('3', None)}

#: Statuses for an id that does not exist. Some services reject a name as a
#: malformed id, or forbid access to an object of another project.
_NOT_AN_ID = (400, 403, 404)

#: One look-up; called with adapters by service type.
LookUp = Callable[['Services'], typing.Any]
Answers = dict[Hashable, typing.Any]


class Services:
    """The services of a cloud, accessed with one session."""

    def __init__(self, session: sessions.Session, region: str | None,
                 interfaces: Sequence[str]) -> None:
        self._adapters = {
            name: adapter.Adapter(
                session, service_type=name, region_name=region,
                interface=list(interfaces), min_version=major,
                max_version=f'{major}.latest',
                default_microversion=microversion)
            for name, (major, microversion) in _VERSIONS.items()}

    def get(self, service: str, path: str, query: Mapping[str, str],
            absent: Collection[int] = (404,)) -> Json | None:
        """Return the JSON of a response, None if the object does not exist.

        :param absent: statuses that mean that it does not exist.
        :raises Unanswered: if the service gives no usable answer.
        """
        try:
            answer = self._adapters[service].get(
                path, params=query, raise_exc=False,
                headers={'Accept': 'application/json'})
        except (exceptions.EndpointNotFound,
                exceptions.EmptyCatalog) as exc:
            raise NoService(
                f'the catalogue of services has no {service} service'
            ) from exc
        except exceptions.ClientException as exc:
            LOG.warning('The %(service)s service does not answer: %(why)s',
                        {'service': service, 'why': exc})
            raise Unanswered(f'the {service} service does not answer'
                             ) from exc
        if answer.status_code in absent:
            return None
        try:
            if answer.status_code == 200:
                return typing.cast(Json, dict(answer.json()))
        except (TypeError, ValueError):
            pass
        raise Unanswered(f'the {service} service answers with '
                         f'{answer.status_code}')


class NoService(Unanswered):
    """The catalogue has no such service."""


def find_by_id_or_name(kind: ResourceKind, value: str, **query: str
                       ) -> LookUp:
    """Return the look-up of an object by its id, or else by its name.

    :param query: further filters of the list.
    """
    def look_up(services: Services) -> Json:
        path = f'{kind.path}/{urllib.parse.quote(value, safe="")}'
        found = services.get(kind.service, path, {}, _NOT_AN_ID)
        if found is not None:
            return found[kind.key] if kind.key else found
        named = _named(services, kind, value, query) if kind.keys else []
        if len(named) > 1:
            raise Missing(
                f'{len(named)} {kind.noun}s are called {value}. Give the id '
                f'of one: {", ".join(str(one["id"]) for one in named[:5])}.')
        if not named:
            raise Missing(
                f'there is no {kind.noun} {value} that your project can use. '
                f'"openstack {kind.command}" lists the usable ones.')
        return named[0]
    return look_up


def _named(services: Services, kind: ResourceKind, name: str,
           query: Mapping[str, str]) -> list[Json]:
    """Return the objects of a name, from all pages."""
    found: list[Json] = []
    page: Mapping[str, str] = {**query, 'name': name}
    if kind.listing:
        page = {}       # Nova cannot filter flavors by name.
    while True:
        answer = services.get(kind.service, kind.listing or kind.path, page)
        listed = (answer or {}).get(kind.keys) or []
        found += [one for one in listed if one.get('name') == name]
        if not listed or not _has_next(answer or {}, kind):
            return found
        page = {**page, 'marker': str(listed[-1]['id'])}


def _has_next(answer: Json, kind: ResourceKind) -> bool:
    return 'next' in answer or any(
        one.get('rel') == 'next' for one in answer.get(f'{kind.keys}_links',
                                                       ()))


class Pool:
    """Runs the look-ups of requests in a shared pool of threads.

    :param timeout: seconds for all look-ups of a request.
    :param region: region of the services; None is any.
    :param interfaces: interfaces of endpoints, the preferred one first.
    """

    def __init__(self, timeout: float, region: str | None,
                 interfaces: Sequence[str]) -> None:
        self.timeout = timeout
        self._region = region
        self._interfaces = tuple(interfaces)
        self._threads = futures.ThreadPoolExecutor(
            _AT_ONCE, thread_name_prefix='look-up')
        self._discovered: Json = {}

    @functools.cached_property
    def _http(self) -> requests.Session:
        found = requests.Session()
        for scheme in ('http://', 'https://'):
            found.mount(scheme, adapters.HTTPAdapter(pool_maxsize=_AT_ONCE))
        return found

    def session(self, conf: cfg.ConfigOpts, auth: typing.Any
                ) -> sessions.Session:
        """Return a session of an auth plug-in, with persistent connections.

        :param conf: has the certificates, in [keystone_authtoken].
        """
        return keystone.make_session(
            conf, auth, self.timeout, session=self._http,
            discovery_cache=self._discovered)

    def run_look_ups(self, session: sessions.Session,
            look_ups: Mapping[Hashable, LookUp]) -> Answers:
        """Return the object or the exception of each look-up."""
        services = Services(session, self._region, self._interfaces)
        begun = {self._threads.submit(one, services): key
                 for key, one in look_ups.items()}
        done, _ = futures.wait(begun, self.timeout)
        return {key: _outcome(one) if one in done else self._late(one)
                for one, key in begun.items()}

    def _late(self, look_up: 'futures.Future[typing.Any]') -> Unanswered:
        look_up.cancel()
        return Unanswered(
            f'a service has not answered within {self.timeout:g} s')


def _outcome(done: 'futures.Future[typing.Any]') -> typing.Any:
    problem = done.exception()
    if problem is None:
        return done.result()
    if isinstance(problem, (Missing, Unanswered)):
        return problem
    LOG.error('A response of a service is invalid.', exc_info=problem)
    return Unanswered('the response of a service is invalid')
