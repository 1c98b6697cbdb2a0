# SPDX-License-Identifier: Apache-2.0

"""Python client of the lease service, based on openstacksdk.

    import openstack
    from secondary_scheduler.leases.client import client

    leases = client.Client.of(openstack.connect(cloud='mycloud'))
    lease = leases.create([{'number': 2, 'flavor': 'secondary.small'}], 3600)
    print(leases.get(lease['id'])['state'])
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import typing
import urllib.parse
import uuid

from keystoneauth1 import adapter
from openstack import exceptions
import tenacity

from secondary_scheduler.reading import answers
from secondary_scheduler.reading.values import InputError

SERVICE_TYPE = 'secondary-lease'
#: Microversion of all requests.
VERSION = '1.6'

Json = dict[str, typing.Any]


class LeaseError(exceptions.HttpException):
    """An error of the service: ``code``, and a message with a remedy."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(message=detail, http_status=status)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of a list; ``more`` if there is a next one.

    The marker of the next page is the id of the last item (of a host its
    name).
    """

    items: Sequence[Json]
    more: bool


class Client:
    """Client of the lease service.

    :param via: an adapter of keystoneauth or openstacksdk for the service
        type ``secondary-lease``.
    """

    def __init__(self, via: adapter.Adapter) -> None:
        self._via = via
        #: State of the engines, from the last response.
        self.engine: Json = {}

    @classmethod
    def of(cls, connection: typing.Any) -> 'Client':
        """Return the client of a connection of openstacksdk."""
        connection.add_service(SERVICE_TYPE)
        return cls(connection.secondary_lease)

    @property
    def warning(self) -> str:
        """Reason why leases wait, if no engine has processed them lately."""
        return str(self.engine.get('message') or '') if (
            self.engine.get('stale')) else ''

    def create(self, nodes: Sequence[Mapping[str, typing.Any]],
               duration: int, **terms: typing.Any) -> Json:
        """Request a lease; return it.

        :param nodes: each with ``number`` and ``flavor``, and optionally
            ``image``, ``network`` and ``key_name``, and further properties
            of a server by Nova's names: ``user_data`` (base64),
            ``networks``, ``security_groups``, ``metadata``, ``tags``,
            ``config_drive``, ``block_device_mapping_v2``, ``description``.
        :param duration: seconds.
        :param terms: ``name``, ``start``, ``deadline`` (times like
            2027-01-31T08:00:00Z), ``immediate``, ``preemptible``,
            ``max_rate``; ``client_token`` if the caller repeats requests.
        """
        body = {'nodes': [dict(one) for one in nodes], 'duration': duration,
                'client_token': str(uuid.uuid4()), **terms}
        # The token makes retries safe: all attempts make one lease.
        # Not logged, since user data may hold secrets.
        answer = self._request('POST', '/leases', json=body, connect_retries=2,
                           status_code_retries=2, log=False,
                           retriable_status_codes=[503])
        return typing.cast(Json, answer['lease'])

    def leases(self, **filters: typing.Any) -> Iterator[Json]:
        """Yield leases, the oldest first; read page by page.

        :param filters: ``state`` (one or several), ``name``, ``marker``,
            ``all_projects``, ``project_id``, and ``limit``, the length of a
            page; ``sort_key`` (created_at, name, state or project_id) and
            ``sort_dir`` (asc or desc).
        """
        return _all_items(self.leases_page, 'id', filters)

    def leases_page(self, **filters: typing.Any) -> Page:
        """Return one page of leases.

        :param filters: as of ``leases``.
        """
        return self._page('leases', 'leases', filters)

    def get(self, lease: str) -> Json:
        """Return a lease by its id."""
        return typing.cast(Json, self._request('GET', _path(lease))['lease'])

    def find(self, name_or_id: str) -> Json:
        """Return a lease by its id, or by its name if that is unique."""
        try:
            return self.get(name_or_id)
        except LeaseError as exc:
            if exc.status_code != 404:
                raise
        found = list(self.leases(name=name_or_id))
        if not found:
            raise LeaseError(404, 'not-found', (
                f'There is no lease {name_or_id}; "openstack secondary lease '
                'list" shows the existing ones.'))
        if len(found) > 1:
            raise LeaseError(409, 'ambiguous', (
                f'{len(found)} leases are called {name_or_id}: give the id '
                f'of one, {", ".join(one["id"] for one in found[:5])} ...'))
        return found[0]

    def update(self, lease: str, **changes: typing.Any) -> Json:
        """Change terms; with ``revision`` only if the lease still has it."""
        return typing.cast(Json, self._request(
            'PATCH', _path(lease), json=changes)['lease'])

    def act(self, lease: str, action: str) -> Json:
        """Pause, unpause or cancel a lease; return it."""
        return typing.cast(Json, self._request(
            'POST', f'{_path(lease)}/action',
            json={'action': action})['lease'])

    def delete(self, lease: str) -> None:
        """Delete a lease that is over or new."""
        self._request('DELETE', _path(lease))

    def timeline(self, lease: str | None = None, **window: typing.Any
                 ) -> list[Json]:
        """Return the planned slots of one lease, or of all of the project.

        :param window: ``begin``, ``end``, and ``all_projects``.
        """
        path = '' if lease is None else _path(lease)
        return typing.cast(list[Json], self._request(
            'GET', f'{path}/timeline', params=_query(window))['slots'])

    def events(self, lease: str) -> list[Json]:
        """Return the events of a lease in the order of time."""
        return typing.cast(list[Json], self._request(
            'GET', f'{_path(lease)}/events')['events'])

    def quote(self, nodes: Sequence[Mapping[str, typing.Any]],
              duration: int, patience: float = 60, **terms: typing.Any
              ) -> Json:
        """Request a quote: price and start of a possible lease.

        :param patience: seconds to wait for the scheduler's answer.
        :param terms: as of ``create``, without a name.
        :returns: the quote; its ``offer`` has ``accepted``, ``price``,
            ``rate``, ``start`` (or the next possible start), and the
            ``reason`` if it would not be accepted.
        :raises LeaseError: "no-answer" if there is no answer in time.
        """
        made = self.request_quote(nodes, duration, **terms)
        attempts = tenacity.Retrying(
            wait=tenacity.wait_exponential(min=0.2, max=2),
            stop=tenacity.stop_after_delay(patience),
            retry=tenacity.retry_if_result(
                lambda quote: quote['offer'] is None))
        try:
            return typing.cast(Json, attempts(self.get_quote, made['id']))
        except tenacity.RetryError as exc:
            raise LeaseError(504, 'no-answer', (
                f'The scheduler of leases has not answered within '
                f'{patience:g} s. Try again with a longer --timeout; if that '
                'fails too, it may not be running: inform the operator.')
                             ) from exc

    def request_quote(self, nodes: Sequence[Mapping[str, typing.Any]],
                      duration: int, **terms: typing.Any) -> Json:
        """Request a quote, and return it without waiting for its offer.

        :param terms: as of ``create``, without a name.
        """
        body = {'nodes': [dict(one) for one in nodes], 'duration': duration,
                **terms}
        return typing.cast(Json, self._request(
            'POST', '/quotes', json=body, log=False)['quote'])

    def get_quote(self, quote: str) -> Json:
        """Return a quote by its id.

        Its ``offer`` is None until the scheduler has answered.
        """
        return typing.cast(Json, self._request(
            'GET', f'/quotes/{urllib.parse.quote(quote, safe="")}')['quote'])

    def quota(self) -> Json:
        """Return limits and usage of the project."""
        return typing.cast(Json, self._request('GET', '/quota')['quota'])

    def trust(self) -> Json:
        """Return the standing trust of the user in the project.

        Its ``state`` is "valid", "unverified", "expired", "lost" or
        "outdated"; ``message`` is the remedy if no server can be made.
        """
        return typing.cast(Json, self._request('GET', '/trust')['trust'])

    def create_trust(self) -> Json:
        """Make or renew the standing trust; return it.

        Keystone refuses this to application credentials.
        """
        return typing.cast(Json, self._request('PUT', '/trust')['trust'])

    def delete_trust(self) -> None:
        """Revoke the standing trust.

        Keystone refuses this to application credentials.
        """
        self._request('DELETE', '/trust')

    # -- for operators

    def capacity(self, **filters: typing.Any) -> Iterator[Json]:
        """Yield the hosts that take secondaries, by name; page by page.

        :param filters: ``host``, ``marker`` (the name of a host), and
            ``limit``, the length of a page.
        """
        return _all_items(self.capacity_page, 'host', filters)

    def capacity_page(self, **filters: typing.Any) -> Page:
        """Return one page of hosts.

        :param filters: as of ``capacity``.
        """
        return self._page('capacity', 'hosts', filters)

    def operations(self, **filters: typing.Any) -> Iterator[Json]:
        """Yield action plans with operations, the newest first.

        :param filters: ``host``, ``server`` (its id), ``request``, ``state``
            (one or several), ``since`` and ``until`` (times like
            2027-01-31T08:00:00Z), ``marker`` and ``limit``.
        """
        return _all_items(self.operations_page, 'id', filters)

    def operations_page(self, **filters: typing.Any) -> Page:
        """Return one page of action plans.

        :param filters: as of ``operations``.
        """
        return self._page('operations', 'plans', filters)

    def accounting(self, begin: str | None = None, end: str | None = None,
                   all_projects: bool | None = None) -> Json:
        """Return served time and charge by project.

        :param begin: first day (UTC), like 2027-01-31; by default the first
            one of the present month.
        :param end: day after the last one; by default tomorrow.
        :returns: ``begin``, ``end``, ``since`` (first day with an account)
            and ``projects``, each with ``project_id``, ``leases``, ``served``
            and ``node_seconds`` (s) and ``charge``.
        """
        return self._request('GET', '/accounting', params=_query({
            'begin': begin, 'end': end, 'all_projects': all_projects}))

    def _page(self, path: str, key: str, filters: Mapping[str, typing.Any]
              ) -> Page:
        answer = self._request('GET', f'/{path}', params=_query(filters))
        return Page(answer[key], any(
            one['rel'] == 'next' for one in answer[f'{key}_links']))

    def _request(self, method: str, path: str, **more: typing.Any
                 ) -> Json:
        answer = self._via.request(
            path, method, raise_exc=False, headers={
                'Accept': 'application/json',
                'OpenStack-API-Version': f'{SERVICE_TYPE} {VERSION}'},
            **more)
        if answer.status_code >= 400:
            raise _error(answer)
        if not answer.content:
            return {}
        try:
            found: Json = answers.read_answer(answer, 'the lease service', {})
        except InputError as exc:
            raise LeaseError(answer.status_code, 'unknown', (
                f'{method} {path}: {exc}')) from None
        self.engine = found.get('engine', self.engine)
        return found


def _all_items(read_page: Callable[..., Page], key: str,
               filters: Mapping[str, typing.Any]) -> Iterator[Json]:
    """Yield the items of all pages; ``key`` is the field of their marker."""
    page = read_page(**filters)
    while True:
        yield from page.items
        if not page.more:
            return
        page = read_page(**{**filters, 'marker': page.items[-1][key]})


def _path(lease: str) -> str:
    return f'/leases/{urllib.parse.quote(lease, safe="")}'


def _query(given: Mapping[str, typing.Any]) -> Json:
    return {name: str(value).lower() if isinstance(value, bool) else value
            for name, value in given.items() if value is not None}


def _error(answer: typing.Any) -> LeaseError:
    try:
        error = answer.json()['errors'][0]
        return LeaseError(answer.status_code, error['code'], error['detail'])
    except (ValueError, KeyError, IndexError, TypeError):
        return LeaseError(answer.status_code, 'unknown', (
            f'HTTP {answer.status_code} from {answer.url}: '
            f'{answer.text[:300]}. Is this the lease service?'))
