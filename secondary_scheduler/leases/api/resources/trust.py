# SPDX-License-Identifier: Apache-2.0

"""/trust: the standing trust of the user in the project of the token."""

import typing

from secondary_scheduler.leases.api import (
    microversions,
    policies,
    schemas,
    standing_trusts,
)
from secondary_scheduler.leases.api.db.standing_trusts import (
    CREATE_COMMAND,
    StandingTrust,
    TrustState,
)
from secondary_scheduler.leases.api.routing import Call, Reply, Route


def show_trust(call: Call) -> Reply:
    """Show the standing trust."""
    return Reply(200, {'trust': _show(
        *call.service.trusts.show_trust(call.owner))})


def renew_trust(call: Call) -> Reply:
    """Make the standing trust, or replace it by a new one."""
    return Reply(200, {'trust': _show(
        call.service.trusts.renew_trust(call.owner), TrustState.VALID)})


def revoke_trust(call: Call) -> Reply:
    """Revoke the standing trust."""
    call.service.trusts.revoke_trust(call.owner)
    return Reply(204)


def _show(trust: StandingTrust, state: TrustState
          ) -> dict[str, typing.Any]:
    return {
        'id': trust.trust_id, 'project_id': trust.project_id,
        'user_id': trust.user_id, 'roles': trust.roles,
        'created_at': schemas.moment(trust.created_at),
        'expires_at': schemas.moment(trust.expires_at), 'state': state,
        'message': '' if state in standing_trusts.USABLE else (
            'No server of a lease can be made with it. Run '
            f'"{CREATE_COMMAND}" with your password to renew it.')}


ROUTES = (
    Route('GET', '/trust', show_trust, (
        'Show the standing trust of the user in the project, with which '
        'servers of leases are made.'), 200, 'TrustAnswer',
        policies.SHOW_TRUST, since=microversions.TRUSTS),
    Route('PUT', '/trust', renew_trust, (
        'Make the standing trust, or replace it by a new one. Keystone '
        'refuses this to application credentials.'), 200, 'TrustAnswer',
        policies.RENEW_TRUST, refusals=(409,),
        since=microversions.TRUSTS),
    Route('DELETE', '/trust', revoke_trust, (
        'Revoke the standing trust. Servers that run go on until their '
        'leases end; leases that have no servers yet wait. Keystone refuses '
        'this to application credentials.'), 204, None,
        policies.REVOKE_TRUST, since=microversions.TRUSTS),
)
