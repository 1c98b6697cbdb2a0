# SPDX-License-Identifier: Apache-2.0

"""The right to make servers for the owner of a lease: a trust.

Without it, a lease that runs goes on until its planned end, since only its
boots need the trust. A waiting lease says so to its owner. Best effort stays
in the queue until there is a trust; a lease with a guaranteed start fails at
its start.
"""

from collections.abc import Iterable, Mapping
import dataclasses

from secondary_scheduler.leases.api.db import models, standing_trusts
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.leases.api.db.standing_trusts import (
    CREATE_COMMAND,
    StandingTrust,
)
from secondary_scheduler.leases.engine import events
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.engine.schedule_ledger import ScheduleLedger
from secondary_scheduler.leases.engine.values import CloudState, Nature
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.model.lease_states import LeaseState

#: Failures after which a trust counts as lost: Keystone answers 401 for other
#: reasons, too.
_ATTEMPTS = 2
#: Event of a lost right; as a mark it is followed by the reason.
_LOST, _RESTORED = 'right-lost', 'right-restored'


class OwnerRights:
    """The trusts of owners in one pass.

    :param trusts: standing trusts by project and user.
    :param cloud_state: its failures tell of lost trusts.
    """

    def __init__(self, trusts: Mapping[tuple[str, str], StandingTrust],
                 cloud_state: CloudState, now: float) -> None:
        self._trusts = trusts
        self._now = now
        self._refused = {
            one.trust: one.why for one in cloud_state.failures.values()
            if one.nature is Nature.LOST_RIGHT and one.trust is not None
            and one.count >= _ATTEMPTS}

    @classmethod
    def read(cls, database: Database, cloud_state: CloudState, now: float
             ) -> 'OwnerRights':
        """Return the rights by the standing trusts in a database."""
        return cls(standing_trusts.read_needed_trusts(database), cloud_state,
                   now)

    def assign_trusts(self, records: Iterable[LeaseRecord]) -> None:
        """Set the trust of each lease, and the reason if its right is lost.
        """
        for record in records:
            record.trust, record.lost_right = self._find_trust(record)

    def _find_trust(self, record: LeaseRecord) -> tuple[str | None, str]:
        """Return the trust of a lease, and the fault of its right or ''."""
        if not record.needs_trust:
            return None, ''
        row = record.row
        own = None if row.trust_id == models.STANDING else row.trust_id
        if own is not None and own not in self._refused:
            return own, ''
        found = self._trusts.get((row.project_id, row.user_id))
        if found is None:
            return None, _describe(
                'there is no standing trust of its owner in the project'
                if own is None else self._refused[own])
        end = events.format_time(found.expires_at)
        if found.expires_at <= self._now:
            return None, _describe(
                f'the standing trust of its owner has ended at {end}')
        if found.trust_id in self._refused:
            return None, _describe(self._refused[found.trust_id])
        if record.lease.ahead and record.lease.booking is not None and (
                found.expires_at <= record.lease.booking.begin):
            return found.trust_id, _describe(
                f'the standing trust of its owner ends at {end}, before its '
                'start')
        return found.trust_id, ''

    @staticmethod
    def without_overcome_failures(
        cloud_state: CloudState, records: Mapping[str, LeaseRecord]
    ) -> CloudState:
        """Leave out failures by trusts that a lease does not use any more."""
        return dataclasses.replace(cloud_state, failures={
            key: one for key, one in cloud_state.failures.items()
            if one.nature is not Nature.LOST_RIGHT or one.trust is None
            or key[0][0] not in records
            or records[key[0][0]].trust == one.trust})

    @staticmethod
    def hold_back(ledger: ScheduleLedger, cloud_state: CloudState, now: int
                  ) -> None:
        """Hold leases back for which no server can be made, and say so."""
        for record in list(ledger.records.values()):
            lease = record.lease
            if not record.lacks_server:
                lease.blocked = False
                continue
            _report(ledger, record)
            begun = lease.state is LeaseState.ACTIVE
            lease.blocked = not record.can_boot and not (
                begun and _has_begun_to_boot(record, cloud_state))
            if not lease.blocked:
                continue
            if lease.terms.kind is LeaseKind.BEST_EFFORT:
                ledger.scheduler.block(lease, now)
            elif begun:
                ledger.scheduler.fail(lease, record.lost_right, now)


def _describe(why: str) -> str:
    return (f'the right to act for its owner is lost: {why}. With the '
            f'password of its owner, "{CREATE_COMMAND}" renews it')


def _has_begun_to_boot(record: LeaseRecord, cloud_state: CloudState) -> bool:
    """Return whether a server of a lease exists, has existed or may boot.

    It may in a cell that does not answer.
    """
    return record.unreachable_since is not None or any(
        node.server or node.lived or node.gone
        or (record.uuid, number) in cloud_state.pending
        for number, node in enumerate(record.nodes))


def _report(ledger: ScheduleLedger, record: LeaseRecord) -> None:
    """Report a lost or restored right to the owner, each once."""
    marks = {one for one in record.emitted_events if one.startswith(_LOST)}
    if record.lost_right:
        if record.register_event(f'{_LOST} {record.lost_right}'):
            ledger.add_event(record, _LOST, record.lost_right)
    elif marks:
        record.emitted_events -= marks
        ledger.add_event(record, _RESTORED, (
            'servers can be made for its owner again'))
