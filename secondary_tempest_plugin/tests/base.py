# SPDX-License-Identifier: Apache-2.0

"""Base class of all tests: requests for leases, and their removal."""

from collections.abc import Callable
import datetime
import json
import time
import typing

from tempest import config, test
from tempest.lib import exceptions
from tempest.lib.common import api_version_utils
from tempest.lib.common.utils import data_utils

from secondary_tempest_plugin.services.leases_client import (
    Json,
    LeasesClient,
)

CONF = config.CONF

#: States without a successor.
FINAL = frozenset(
    {'done', 'cancelled', 'rejected', 'rejected-by-user', 'failed'})
#: Seconds between two questions for a state.
PERIOD_S = 1.0


def wait_until(found: Callable[[], typing.Any], seconds: float,
               wanted: Callable[[], str]) -> typing.Any:
    """Return the first true result of a function, asked for some seconds.

    :param wanted: text about the missing result, for the error.
    :raises TimeoutException: if there is none in time.
    """
    deadline = time.monotonic() + seconds
    while not (result := found()):
        if time.monotonic() > deadline:
            raise exceptions.TimeoutException(
                f'after {seconds:g} s: {wanted()}')
        time.sleep(PERIOD_S)
    return result


def moment(seconds: float) -> str:
    """Return the time in so many seconds, in the form of the service."""
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(
        seconds=seconds)).strftime('%Y-%m-%dT%H:%M:%SZ')


class LeaseTestCase(api_version_utils.BaseMicroversionTest,
                    test.BaseTestCase):
    """Base class of tests with a client of the lease service.

    All leases that a test requests are removed at its end.
    """

    credentials: typing.ClassVar[list[typing.Any]] = ['primary']
    #: Credentials of the user that requests leases.
    owner = 'primary'
    #: Whether the tests need decisions of an engine.
    needs_engine = False

    @classmethod
    def skip_checks(cls) -> None:
        """Skip the tests on clouds that do not have what they need."""
        super().skip_checks()
        if not CONF.service_available.secondary_lease:
            raise cls.skipException(
                '[service_available] secondary_lease is false')
        if cls.needs_engine and not CONF.secondary_lease.engine:
            raise cls.skipException('[secondary_lease] engine is false')
        api_version_utils.check_skip_with_microversion(
            cls.min_microversion, cls.max_microversion,
            CONF.secondary_lease.min_microversion,
            CONF.secondary_lease.max_microversion)

    @classmethod
    def setup_clients(cls) -> None:
        """Make the clients of the lease service."""
        super().setup_clients()
        cls.client = cls.client_of(getattr(cls, f'os_{cls.owner}'))

    @classmethod
    def client_of(cls, manager: typing.Any) -> LeasesClient:
        """Return the client of a user, in the newest tested version."""
        client: LeasesClient = manager.secondary_lease.LeasesClient()
        client.microversion = CONF.secondary_lease.max_microversion
        return client

    def node_set(self, number: int = 1, **more: typing.Any) -> Json:
        """Return a node set by the options of the tested cloud."""
        return {'number': number, 'flavor': CONF.secondary_lease.flavor,
                'image': CONF.secondary_lease.image or CONF.compute.image_ref,
                'network': self.network_of(self.owner), **more}

    def network_of(self, credentials: str) -> str:
        """Return the id or name of a user's network, "auto" or "none"."""
        made = getattr(self.credentials_provider,
                       f'get_{credentials}_creds')().network or {}
        return str(CONF.secondary_lease.network or made.get('id')
                   or CONF.compute.fixed_network_name or 'auto')

    def wait_for_room(self, number: int = 1) -> None:
        """Wait until an engine would accept a lease with some nodes.

        An engine that has just been started, or hosts that were busy a moment
        ago, leave no room for any lease.
        """
        terms = {'nodes': [self.node_set(number)], 'duration': 60,
                 'start': moment(86400)}
        offers = []

        def accepted() -> bool:
            quote = self.client.create_quote(**terms)
            offers.append(wait_until(
                lambda: self.client.show_quote(quote['id'])['offer'],
                CONF.secondary_lease.decision_timeout,
                lambda: 'no engine has answered a quote'))
            return bool(offers[-1]['accepted'])
        wait_until(accepted, CONF.secondary_lease.room_timeout, lambda: (
            f'there is no room for a lease of {number}: {offers[-1]}'))

    def create_lease(self, client: LeasesClient | None = None,
                     **terms: typing.Any) -> Json:
        """Request a lease, and remove it at the end of the test."""
        client = client or self.client
        lease: Json = client.create_lease(**{
            'name': data_utils.rand_name(
                'lease', prefix=CONF.resource_name_prefix),
            'nodes': [self.node_set()], **terms})['lease']
        self.addCleanup(self.remove_lease, client, lease['id'])
        return lease

    def remove_lease(self, client: LeasesClient, lease: str) -> None:
        """Cancel a lease, and delete it when it is over."""
        cancelled = False

        def removed() -> bool:
            nonlocal cancelled
            try:
                client.delete_lease(lease)
            except exceptions.NotFound:
                return True
            except exceptions.Conflict:
                if not cancelled:
                    cancelled = True
                    self.cancel_lease(client, lease)
                return False
            return True
        wait_until(removed, CONF.secondary_scenario.return_timeout, lambda: (
            f'lease {lease} could not be removed: {client.show_lease(lease)}; '
            'does an engine run?'))

    @staticmethod
    def cancel_lease(client: LeasesClient, lease: str) -> None:
        """Cancel a lease that may be over by now."""
        try:
            client.act_on_lease(lease, 'cancel')
        except (exceptions.Conflict, exceptions.NotFound):
            pass

    def wait_for_state(self, lease: str, states: typing.Collection[str],
                       seconds: float) -> Json:
        """Return a lease as soon as it is in one of the states.

        :raises TimeoutException: with its events, if it is not in time or
            has another final state.
        """
        def reached() -> Json | None:
            found = self.client.show_lease(lease)
            if found['state'] not in states and found['state'] in FINAL:
                raise exceptions.TimeoutException(
                    f'lease {lease} is {found["state"]}: {found["reason"]}\n'
                    + self.tell_events(lease))
            return found if found['state'] in states else None
        return typing.cast(Json, wait_until(reached, seconds, lambda: (
            f'lease {lease} is not {" or ".join(sorted(states))}: '
            f'{self.client.show_lease(lease)}\n' + self.tell_events(lease))))

    def tell_events(self, lease: str) -> str:
        """Return the events of a lease, a line for each."""
        return '\n'.join(
            f'{one["time"]} {one["kind"]} {one["state"]} {one["text"]}'
            for one in self.client.list_events(lease))

    def assert_refused(self, expected: type[exceptions.RestClientException],
                       code: str, ask: Callable[..., typing.Any],
                       *arguments: typing.Any, **more: typing.Any) -> str:
        """Assert that a request is refused with a code; return the detail.

        :param code: without the prefix of the service.
        """
        refusal = self.assertRaises(expected, ask, *arguments, **more)
        error = error_of(refusal)
        self.assertEqual(f'secondary-lease.{code}', error['code'], error)
        self.assertTrue(error['detail'])
        self.assertTrue(error['request_id'])
        return str(error['detail'])


def error_of(refusal: typing.Any) -> Json:
    """Return the error in the body of a refusal."""
    body = refusal.resp_body
    if isinstance(body, str | bytes):
        body = json.loads(body)
    # Tempest takes the only key off a body.
    errors = body['errors'] if isinstance(body, dict) else body
    error, = errors
    return typing.cast(Json, error)
