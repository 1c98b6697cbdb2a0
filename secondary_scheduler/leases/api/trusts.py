# SPDX-License-Identifier: Apache-2.0

"""Keystone's trusts, with which servers are made in the name of owners."""

from collections.abc import Sequence
import typing

from keystoneauth1 import exceptions, token_endpoint
from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.conf import keystone
from secondary_scheduler.leases.api.errors import ApiError

LOG = logging.getLogger(__name__)

_TIMEOUT_S = 10


class Refused(Exception):
    """Keystone refuses a request; the text has its status and reason."""


class Trusts:
    """Creates, finds and deletes trusts with the token of their owner."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def create_trust(self, token: str, user: str, project: str,
                     roles: Sequence[str], expires_at: str) -> str:
        """Create a trust of a user for Watcher's user; return its id.

        :param user: id of the user, the trustor.
        :param project: id of the project of the trust.
        :param expires_at: time of its end, as of ISO 8601 in UTC.
        :raises Refused: if Keystone refuses it.
        :raises ApiError: 503 if Keystone does not answer.
        """
        answer = self._ask('POST', token, '/OS-TRUST/trusts', json={
            'trust': {
                'trustor_user_id': user, 'project_id': project,
                'trustee_user_id':
                    self._conf.secondary_lease_api.trustee_user_id,
                'impersonation': True, 'allow_redelegation': False,
                'expires_at': expires_at,
                'roles': [{'name': role} for role in roles]}})
        return str(answer.json()['trust']['id'])

    def trust_exists(self, token: str, trust: str) -> bool | None:
        """Return whether a trust exists and has not expired.

        None if Keystone does not answer, or not for this token: it shows
        trusts to no application credential.
        """
        try:
            self._ask('GET', token, f'/OS-TRUST/trusts/{trust}')
        except (Refused, ApiError) as exc:
            return False if _is_missing(exc) else None
        return True

    def delete_trust(self, token: str, trust: str) -> None:
        """Delete a trust, unless it does not exist any more.

        :raises Refused: if Keystone refuses it.
        :raises ApiError: 503 if Keystone does not answer.
        """
        try:
            self._ask('DELETE', token, f'/OS-TRUST/trusts/{trust}')
        except Refused as exc:
            if not _is_missing(exc):
                raise

    def discard_trust(self, token: str, trust: str) -> None:
        """Delete a trust that is not used any more.

        A failure is logged: the trust ends by its expiry then.
        """
        try:
            self.delete_trust(token, trust)
        except (Refused, ApiError) as exc:
            LOG.warning('Trust %(trust)s is not deleted: %(why)s',
                        {'trust': trust, 'why': exc.__cause__ or exc})

    def _ask(self, method: str, token: str, path: str,
             **more: typing.Any) -> typing.Any:
        try:
            url = keystone.identity_url(self._conf)
            return keystone.make_session(
                self._conf, token_endpoint.Token(url, token), _TIMEOUT_S
            ).request(path, method, endpoint_override=url, **more)
        except exceptions.HttpError as exc:
            if exc.http_status >= 500:
                raise _away(exc) from exc
            raise Refused(f'{exc.http_status}: {exc.message}') from exc
        except exceptions.ClientException as exc:
            raise _away(exc) from exc


def _is_missing(exc: Exception) -> bool:
    return isinstance(exc.__cause__, exceptions.NotFound)


def _away(exc: Exception) -> ApiError:
    LOG.error('Keystone does not answer a request for a trust: %s', exc)
    return ApiError(503, 'keystone', (
        'Keystone does not answer. Try again later; requests with the '
        'same client_token are carried out only once.'),
        {'Retry-After': '5'})
