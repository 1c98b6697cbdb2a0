# SPDX-License-Identifier: Apache-2.0

"""Keystone trusts, with which servers are made in the name of owners."""

import typing

from keystoneauth1 import exceptions, token_endpoint
from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.conf import keystone
from secondary_scheduler.leases.api.errors import ApiError

LOG = logging.getLogger(__name__)

_TIMEOUT_S = 10


class Trusts:
    """Creates and deletes trusts with the token of a lease's owner."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def create_trust(self, token: str, user: str, project: str) -> str | None:
        """Create a trust of a user; return its id, or None if none is needed.

        :param user: id of the user, the trustor.
        :param project: id of the project of the trust.
        :raises ApiError: if Keystone refuses or does not answer.
        """
        options = self._conf.secondary_lease_api
        if not options.trustee_user_id:
            return None
        try:
            answer = self._ask('POST', token, '/OS-TRUST/trusts', json={
                'trust': {
                    'trustor_user_id': user, 'project_id': project,
                    'trustee_user_id': options.trustee_user_id,
                    'impersonation': True, 'allow_redelegation': False,
                    'roles': [{'name': role}
                              for role in options.trust_roles]}})
            return str(answer.json()['trust']['id'])
        except exceptions.HttpError as exc:
            if exc.http_status >= 500:
                raise self._away(exc) from exc
            raise ApiError(403, 'no-trust', (
                'The servers of a lease are made with a trust of yours, and '
                f'Keystone refuses it ({exc.http_status}): you need the '
                f'roles {", ".join(options.trust_roles)} in the project, and '
                'a password or an unrestricted application credential.')
            ) from exc
        except exceptions.ClientException as exc:
            raise self._away(exc) from exc

    @staticmethod
    def _away(exc: Exception) -> ApiError:
        LOG.error('Keystone creates no trust: %s', exc)
        return ApiError(503, 'keystone', (
            'Keystone does not answer. Try again later; requests with the '
            'same client_token are carried out only once.'),
            {'Retry-After': '5'})

    def delete_trust(self, token: str, trust: str | None) -> None:
        """Delete a trust; a failure does no harm and is logged."""
        if trust is None:
            return
        try:
            self._ask('DELETE', token, f'/OS-TRUST/trusts/{trust}')
        except exceptions.ClientException as exc:
            LOG.warning('Trust %(trust)s is not deleted: %(why)s',
                        {'trust': trust, 'why': exc})

    def _ask(self, method: str, token: str, path: str,
             **more: typing.Any) -> typing.Any:
        url = keystone.identity_url(self._conf)
        return keystone.make_session(
            self._conf, token_endpoint.Token(url, token), _TIMEOUT_S).request(
                path, method, endpoint_override=url, **more)
