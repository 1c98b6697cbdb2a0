# SPDX-License-Identifier: Apache-2.0

"""Standing trusts: the right to make servers for a user in a project.

Keystone lets no application credential create a trust (CVE-2026-43000). So
one trust of a user in a project is for all leases of this user there,
whatever the credential of their requests. The first request with a password
makes it.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import time

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.leases.api import schemas, trusts
from secondary_scheduler.leases.api.db import standing_trusts
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.leases.api.db.standing_trusts import (
    CREATE_COMMAND,
    StandingTrust,
    TrustState,
)
from secondary_scheduler.leases.api.errors import ApiError, invalid

LOG = logging.getLogger(__name__)

#: Part of its life that a trust should have left when a lease begins.
_SPARE = 0.1


#: States in which servers are made by a trust.
USABLE = frozenset({TrustState.VALID, TrustState.UNVERIFIED})


@dataclasses.dataclass(frozen=True)
class Owner:
    """A user in a project, and the token of a request.

    ``roles`` are those of the token. ``by_trust`` marks a token that was
    issued by a trust.
    """

    token: str = dataclasses.field(repr=False)
    user_id: str
    project_id: str
    roles: Sequence[str]
    by_trust: bool = False


class StandingTrusts:
    """Makes, renews, verifies and revokes standing trusts.

    :param clock: returns seconds since 1970.
    """

    def __init__(self, conf: cfg.ConfigOpts, database: Database,
                 clock: Callable[[], float] = time.time) -> None:
        self._conf = conf
        self._database = database
        self._clock = clock
        self.keystone = trusts.Trusts(conf)

    @property
    def required(self) -> bool:
        """Whether servers of leases are made by trusts here at all."""
        return bool(self._conf.secondary_lease_api.trustee_user_id)

    @property
    def _now(self) -> int:
        return int(self._clock())

    @property
    def _lifetime(self) -> int:
        return int(self._conf.secondary_lease_api.trust_lifetime)

    # -- for requests of leases

    def ensure_trust(self, owner: Owner, start: int) -> None:
        """Ensure that servers can be made for a lease of an owner.

        A missing or invalid trust is made, and one that ends too early is
        renewed, if Keystone lets the token do so.  A trust that is nearly new
        is not: many leases with a late start would renew it one by one.

        :param start: latest start of the lease, as far as its terms tell it,
            in seconds since 1970.
        :raises ApiError: if there is no trust for the lease.
        """
        self._check_roles(owner)
        now, lifetime = self._now, self._lifetime
        if start >= now + lifetime:
            raise invalid(
                f'The latest start, {schemas.moment(start)}, is after the '
                'longest life of a standing trust, '
                f'{lifetime / 86400:.3g} days: request the lease later.')
        trust = self._read(owner)
        if trust is None:
            self._make_trust(owner, None, 'there is none yet')
            return
        state = self._state_of(owner, trust, max(start, now))
        if state not in USABLE:
            self._make_trust(owner, trust, _REASONS[state].format(
                end=schemas.moment(trust.expires_at)))
        elif (trust.expires_at - start < _SPARE * lifetime
              and now + lifetime - trust.expires_at > _SPARE * lifetime):
            try:
                self._make_trust(owner, trust, 'it ends soon')
            except ApiError as exc:
                LOG.info('Trust %(trust)s ends soon and is not renewed: '
                         '%(why)s', {'trust': trust.trust_id, 'why': exc})

    # -- for their owners

    def show_trust(self, owner: Owner) -> tuple[StandingTrust, TrustState]:
        """Return the standing trust of an owner, and its state.

        :raises ApiError: 404 if there is none.
        """
        trust = self._find(owner)
        return trust, self._state_of(owner, trust, self._now)

    def renew_trust(self, owner: Owner) -> StandingTrust:
        """Make the standing trust of an owner, or replace it by a new one.

        :raises ApiError: if Keystone refuses it or does not answer.
        """
        if not self.required:
            raise ApiError(409, 'no-trustee', (
                'Servers of leases are made without trusts here: there is '
                'nothing to do.'))
        self._check_roles(owner)
        return self._make_trust(owner, self._read(owner), '')

    def revoke_trust(self, owner: Owner) -> None:
        """Delete the standing trust of an owner, in Keystone first.

        :raises ApiError: 404 if there is none; 403 or 503 if Keystone keeps
            it, and then it stays the standing trust.
        """
        trust = self._find(owner)
        try:
            self.keystone.delete_trust(owner.token, trust.trust_id)
        except trusts.Refused as exc:
            raise ApiError(403, 'trust-kept', (
                f'Keystone lets this token delete no trust ({exc}), so the '
                'trust stays valid. Run "openstack secondary lease trust '
                'delete" with your password.')) from exc
        standing_trusts.forget_trust(self._database, trust)

    def _read(self, owner: Owner) -> StandingTrust | None:
        found: StandingTrust | None = standing_trusts.read_trust(
            self._database, owner.project_id, owner.user_id)
        return found

    def _find(self, owner: Owner) -> StandingTrust:
        trust = self._read(owner)
        if trust is None:
            raise ApiError(404, 'no-trust', (
                'You have no standing trust in this project. The first lease '
                'that you request with your password makes it, and '
                f'"{CREATE_COMMAND}" does.'))
        return trust

    def _check_roles(self, owner: Owner) -> None:
        """Refuse a token with fewer roles than the trust.

        :raises ApiError: 403, naming the missing roles.
        """
        missing = _missing(self._conf.secondary_lease_api.trust_roles,
                           owner.roles)
        if missing:
            raise ApiError(403, 'missing-roles', (
                'The servers of a lease are made with a trust of yours, which '
                'has more roles than this token. The token lacks: '
                f'{", ".join(missing)}. Request a token with '
                'these roles in the project.'))

    def _state_of(self, owner: Owner, trust: StandingTrust, when: int
                  ) -> TrustState:
        """Return the state of a trust as it will be at a time."""
        wanted = self._conf.secondary_lease_api.trust_roles
        if trust.expires_at <= when:
            return TrustState.EXPIRED
        if _missing(wanted, trust.roles) or _missing(trust.roles, wanted):
            return TrustState.OUTDATED
        exists = self.keystone.trust_exists(owner.token, trust.trust_id)
        return {True: TrustState.VALID, False: TrustState.LOST,
                None: TrustState.UNVERIFIED}[exists]

    def _make_trust(self, owner: Owner, old: StandingTrust | None, why: str
                    ) -> StandingTrust:
        """Make a trust and store it, then delete the one that it replaces.

        :param why: reason for which the lease of the request needs it.
        :returns: the standing trust, maybe of a concurrent request.
        """
        now, roles = self._now, self._conf.secondary_lease_api.trust_roles
        if owner.by_trust:
            # It would end with the trust of the token.
            raise _refused(why, 'a trust has issued the token itself', roles)
        try:
            made, expires_at = self.keystone.create_trust(
                owner.token, owner.user_id, owner.project_id, roles,
                now + self._lifetime)
        except trusts.Refused as exc:
            raise _refused(why, f'Keystone refuses it ({exc})', roles
                           ) from exc
        kept = None
        try:
            kept = standing_trusts.replace_trust(
                self._database, StandingTrust(
                    project_id=owner.project_id, user_id=owner.user_id,
                    trust_id=made, roles=list(roles), created_at=now,
                    expires_at=expires_at),
                None if old is None else old.trust_id)
        finally:
            if kept is None or kept.trust_id != made:
                self.keystone.discard_trust(owner.token, made)
        if kept is None:
            raise ApiError(409, 'trust-deleted', (
                'Your standing trust was deleted at the same time. Try '
                'again.'))
        if kept.trust_id == made and old is not None:
            self.keystone.discard_trust(owner.token, old.trust_id)
        return kept


_REASONS = {
    TrustState.EXPIRED: 'it ends at {end}, before the latest start',
    TrustState.LOST: 'it does not exist any more in Keystone',
    TrustState.OUTDATED: 'its roles are not those that are needed now'}


def _missing(wanted: Iterable[str], found: Iterable[str]) -> list[str]:
    """Return the roles that are not found; case does not matter."""
    there = {one.lower() for one in found}
    return [one for one in wanted if one.lower() not in there]


def _refused(why: str, reason: str, roles: Sequence[str]) -> ApiError:
    return ApiError(403, 'no-trust', (
        'The servers of a lease are made with a standing trust of yours in '
        f'the project{why and f" ({why})"}, and this token cannot make one: '
        f'{reason}. Run "{CREATE_COMMAND}" once with your password: later '
        'requests can use the trust with any credential, also with an '
        'application credential. You need the roles '
        f'{", ".join(roles)} in the project.'))
