# SPDX-License-Identifier: Apache-2.0

"""Client of the lease service that validates all answers.

The service describes itself (``GET /openapi.json``).  Each answer must have
the status and the body of that description.
"""

import json
import typing
import urllib.parse

from tempest.lib.common import rest_client

from secondary_tempest_plugin import answers

Json = answers.Json

VERSION_HEADER = 'OpenStack-API-Version'


class LeasesClient(rest_client.RestClient):
    """Client of the lease service, with the rights of one user.

    ``microversion`` is sent with each request; None sends no header, so that
    the service answers in its oldest version.
    """

    #: Descriptions of services by URL, read once.
    _descriptions: typing.ClassVar[dict[str, Json]] = {}

    def __init__(self, *args: typing.Any, **options: typing.Any) -> None:
        super().__init__(*args, **options)
        self.microversion: str | None = 'latest'

    def get_headers(self, accept_type: str | None = None,
                    send_type: str | None = None) -> dict[str, str]:
        """Return the headers of a request, with its microversion."""
        headers: dict[str, str] = super().get_headers(accept_type, send_type)
        if self.microversion is not None:
            headers[VERSION_HEADER] = f'secondary-lease {self.microversion}'
        return headers

    def describe_service(self) -> Json:
        """Return the OpenAPI description of the service."""
        url = str(self.base_url)
        if url not in self._descriptions:
            answer, body = self.get('/openapi.json')
            self.expected_success(200, answer.status)
            self._descriptions[url] = json.loads(body)
        return self._descriptions[url]

    def list_versions(self) -> list[Json]:
        """Return the versions of the service."""
        return self._ask('GET', '/')['versions']

    def create_lease(self, **body: typing.Any) -> Json:
        """Request a lease; return the whole answer."""
        return self._ask('POST', '/leases', body)

    def list_leases(self, **query: typing.Any) -> Json:
        """Return a page of leases, with the links to the next one."""
        return self._ask('GET', '/leases', query=query)

    def show_lease(self, lease: str) -> Json:
        """Return a lease."""
        return self._ask('GET', '/leases/{id}', of=lease)['lease']

    def update_lease(self, lease: str, **changes: typing.Any) -> Json:
        """Change the name or the terms of a lease; return it."""
        return self._ask('PATCH', '/leases/{id}', changes, of=lease)['lease']

    def act_on_lease(self, lease: str, action: str) -> Json:
        """Pause, unpause or cancel a lease; return it."""
        return self._ask('POST', '/leases/{id}/action', {'action': action},
                         of=lease)['lease']

    def delete_lease(self, lease: str) -> None:
        """Delete a lease that is over or new."""
        self._ask('DELETE', '/leases/{id}', of=lease)

    def list_events(self, lease: str, **query: typing.Any) -> list[Json]:
        """Return the events of a lease in the order of time."""
        return self._ask('GET', '/leases/{id}/events', of=lease,
                         query=query)['events']

    def show_timeline(self, **query: typing.Any) -> list[Json]:
        """Return the planned slots of the project's leases."""
        return self._ask('GET', '/timeline', query=query)['slots']

    def show_lease_timeline(self, lease: str) -> list[Json]:
        """Return the planned slots of a lease."""
        return self._ask('GET', '/leases/{id}/timeline', of=lease)['slots']

    def show_quota(self) -> Json:
        """Return limits and usage of the project."""
        return self._ask('GET', '/quota')['quota']

    def create_quote(self, **body: typing.Any) -> Json:
        """Request a quote; return it, without an offer yet."""
        return self._ask('POST', '/quotes', body)['quote']

    def show_quote(self, quote: str) -> Json:
        """Return a quote, with its offer if there is one."""
        return self._ask('GET', '/quotes/{id}', of=quote)['quote']

    def show_capacity(self, **query: typing.Any) -> Json:
        """Return a page of the capacity of hosts; for administrators."""
        return self._ask('GET', '/capacity', query=query)

    def list_operations(self, **query: typing.Any) -> Json:
        """Return a page of plans with their operations; for administrators.
        """
        return self._ask('GET', '/operations', query=query)

    def show_accounting(self, **query: typing.Any) -> Json:
        """Return the accounts of the project, or of all projects."""
        return self._ask('GET', '/accounting', query=query)

    def _ask(self, method: str, path: str, body: Json | None = None, *,
             of: str | None = None, query: Json | None = None) -> Json:
        """Send a request; return the body of the answer, validated.

        :param path: as in the description, with ``{id}`` for ``of``.
        :raises RestClientException: for an error of the service.
        """
        url = path if of is None else path.replace('{id}', of)
        if query:
            url += '?' + urllib.parse.urlencode(
                {name: str(value).lower() if isinstance(value, bool)
                 else value for name, value in query.items()}, doseq=True)
        answer, text = self.request(
            method, url, headers=self.get_headers(),
            body=None if body is None else json.dumps(body))
        return answers.validate_answer(
            self.describe_service(), method, path, answer.status,
            json.loads(text or 'null'))
