# SPDX-License-Identifier: Apache-2.0

"""Keystone's trusts, with which servers are made in the name of owners."""

from collections.abc import Sequence
import typing

from keystoneauth1 import exceptions, token_endpoint
from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.conf import keystone
from secondary_scheduler.leases.api.errors import ApiError
from secondary_scheduler.leases.api.schemas import moment

LOG = logging.getLogger(__name__)

_TIMEOUT_S = 10
#: Ends that are tried for a trust, a second apart.
_ENDS = 10


class Refused(Exception):
    """Keystone refuses a request; the text has its status and reason."""


class Trusts:
    """Creates, finds and deletes trusts with the token of their owner."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def create_trust(self, token: str, user: str, project: str,
                     roles: Sequence[str], expires_at: int
                     ) -> tuple[str, int]:
        """Create a trust of a user for Watcher's user.

        :param user: id of the user, the trustor.
        :param project: id of the project of the trust.
        :param expires_at: time of its end, in seconds since 1970.
        :returns: its id, and the time of its end, which may be a few seconds
            earlier.
        :raises Refused: if Keystone refuses it.
        :raises ApiError: 503 if Keystone does not answer.
        """
        asked = {
            'trustor_user_id': user, 'project_id': project,
            'trustee_user_id': self._conf.secondary_lease_api.trustee_user_id,
            'impersonation': True, 'allow_redelegation': False,
            'roles': [{'name': role} for role in roles]}
        # Keystone refuses a second trust that ends in the same second, even
        # after the deletion of the first one.
        for end in range(expires_at, expires_at - _ENDS, -1):
            try:
                answer = self._ask('POST', token, '/OS-TRUST/trusts', json={
                    'trust': {**asked, 'expires_at': str(moment(end))}})
                return str(answer.json()['trust']['id']), end
            except Refused as exc:
                if not isinstance(exc.__cause__, exceptions.Conflict):
                    raise
        raise Refused('409: it has made too many trusts in this second')

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
