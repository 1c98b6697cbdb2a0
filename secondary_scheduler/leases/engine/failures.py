# SPDX-License-Identifier: Apache-2.0

"""Handling of failed operations: retry, relocation, or the lease's failure.

An operation is retried with an exponential back-off (``reconcile.retry_at``).
A host that refuses servers is avoided for a while.  A lease fails, with the
words of the service that refused, when an operation can never succeed or has
failed for too long.
"""

from collections.abc import Collection, Iterator, Sequence
import dataclasses

from oslo_log import log as logging

from secondary_scheduler.leases.engine import observation, reconcile
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.engine.schedule_ledger import ScheduleLedger
from secondary_scheduler.leases.engine.values import (
    CloudState,
    Failure,
    LeaseOperation,
    Nature,
)
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState

LOG = logging.getLogger(__name__)

#: Attempts to boot on a host after which another host is tried, and seconds
#: for which the host gets no other server then.
_ATTEMPTS, _AVOIDED_S = 2, 120.0
#: Orders of one operation without an effect after which it counts as failed.
_WITHOUT_EFFECT = 2


@dataclasses.dataclass(frozen=True)
class FailedOperation:
    """A due operation on a server of a lease whose last attempt failed."""

    node: int
    kind: LeaseOperation
    failure: Failure

    @property
    def final(self) -> bool:
        """Whether no further attempt can succeed."""
        return self.failure.nature is Nature.PERMANENT

    def __str__(self) -> str:
        times = self.failure.count
        lost = ('the right to act for its owner is lost: '
                if self.failure.nature is Nature.LOST_RIGHT else '')
        return (f'{self.kind} of server {self.node} failed'
                + (f' {times} times: ' if times > 1 else ': ') + lost
                + (self.failure.why or 'no reason is known'))


class Recovery:
    """Decides on retries, relocation and failure; one for each engine.

    :param lead: seconds by which operations are ordered ahead.
    :param give_up: seconds for which operations of a lease may fail.
    """

    def __init__(self, lead: float, give_up: float) -> None:
        self._lead = lead
        self._give_up = give_up
        self._avoided: dict[str, float] = {}

    def avoided_hosts(self, now: float) -> Collection[str]:
        """Return the hosts that get no servers of leases for now."""
        self._avoided = {host: until for host, until in self._avoided.items()
                         if until > now}
        return self._avoided.keys()

    def handle_failures(self, ledger: ScheduleLedger,
                        cloud_state: CloudState, now: float) -> bool:
        """Handle the failures of all leases.

        :returns: True if hosts are avoided that were not before.
        """
        before = set(self._avoided)
        for record in list(ledger.records.values()):
            lease = record.lease
            if record.adopted:
                continue
            if lease.ahead and lease.home is None and not (
                    ledger.has_hosts_of(lease.booking)):
                ledger.scheduler.restart_lost(lease, int(now))
                continue
            found = list(self._failed_operations(
                record, cloud_state, ledger.hosts, now))
            reason = self._reason_to_fail(record, found, cloud_state, now)
            if reason is None:
                self._report(ledger, record, found)
                self._relocate(ledger, record, found, now)
                continue
            record.failing_since = None
            LOG.warning('Giving up lease %(lease)s: %(why)s', {
                'lease': record.uuid, 'why': reason})
            if lease.state in lease_states.FINAL:
                # The record ends, so that the owner is told why; the sweep
                # tries again to delete its servers.
                lease.reason = '; '.join(filter(None, (lease.reason, reason)))
                for node in record.nodes:
                    node.server = None
            else:
                ledger.scheduler.fail(lease, reason, int(now))
        return bool(self._avoided.keys() - before)

    def _failed_operations(
        self,
        record: LeaseRecord,
        cloud_state: CloudState,
        hosts: Sequence[str],
        now: float,
    ) -> Iterator[FailedOperation]:
        """Yield the operations that are due on a lease's servers, and failed.
        """
        wanted = reconcile.desired_state(
            record, now, self._lead, record.boot_s)
        for number, kind in reconcile.missing_operations(
                record, cloud_state, wanted, hosts).items():
            failure = cloud_state.failures.get(((record.uuid, number), kind))
            count, last = record.ordered.get((number, kind), (0, 0.0))
            if failure is None and count > _WITHOUT_EFFECT:
                failure = Failure(count, last, why=(
                    'it had no effect, and no error was reported'))
            if failure is not None:
                yield FailedOperation(number, kind, failure)

    @staticmethod
    def _report(ledger: ScheduleLedger, record: LeaseRecord,
                found: list[FailedOperation]) -> None:
        """Report a failure to the owner, once in a booking."""
        if not found:
            return
        last = max(found, key=lambda one: one.failure.last)
        if record.cause != str(last):
            record.cause = str(last)
            if record.register_event(
                    f'failing {last.kind} {last.failure.why}'):
                ledger.add_event(record, 'operation-failed', str(last))

    def _reason_to_fail(
        self,
        record: LeaseRecord,
        found: list[FailedOperation],
        cloud_state: CloudState,
        now: float,
    ) -> str | None:
        """Return the reason for which a lease fails now, None without one."""
        for one in found:
            if one.final:
                return str(one)
        verification = cloud_state.failures.get(
            ((record.uuid, 0), LeaseOperation.VERIFY))
        if record.row.unverified and verification is not None and (
                FailedOperation(0, LeaseOperation.VERIFY, verification).final
                and record.lease.state not in lease_states.FINAL):
            return f'it was verified, and cannot run: {verification.why}'
        # A cell that does not answer is no reason to give a lease up.  A boot
        # can wait for other services.
        found = [one for one in found if one.kind is LeaseOperation.BOOT
                 or one.failure.nature is not Nature.UNSEEN]
        broken = observation.find_interruption(record, cloud_state)
        if not found and (broken is None or not broken.broken
                          or record.lease.state in lease_states.FINAL):
            if not self._failed_lately(record, cloud_state, now):
                record.failing_since = None
            return None
        if record.failing_since is None:
            record.failing_since = now
        if now - record.failing_since < self._give_up:
            return None
        last = (str(max(found, key=lambda one: one.failure.last))
                if found or broken is None else broken.text)
        return f'given up after {now - record.failing_since:.0f} s: {last}'

    def _failed_lately(
        self, record: LeaseRecord, cloud_state: CloudState, now: float
    ) -> bool:
        """Return whether a lease that has not begun failed to boot recently.
        """
        lease = record.lease
        if lease.home is not None or not (
                lease.ahead or lease.state is LeaseState.QUEUED):
            return False
        since = now - max(self._give_up, 2 * reconcile.LONGEST_RETRY_S)
        failures = (
            cloud_state.failures.get(
                ((record.uuid, number), LeaseOperation.BOOT))
            for number in range(len(record.nodes))
        )
        return any(one is not None and one.last > since for one in failures)

    def _relocate(self, ledger: ScheduleLedger, record: LeaseRecord,
                  found: list[FailedOperation], now: float) -> None:
        """Relocate servers of a lease that cannot be booted on their host."""
        lease, booking = record.lease, record.lease.booking
        if lease.state is not LeaseState.ACTIVE or booking is None:
            return
        for one in found:
            failure = one.failure
            if (one.kind is not LeaseOperation.BOOT or failure.host is None
                    or failure.nature is not Nature.CAPACITY
                    or failure.count < _ATTEMPTS
                    or failure.last < booking.begin):
                continue
            LOG.warning('%(host)s refuses a server of lease %(lease)s; '
                        'trying another host: %(why)s', {
                            'lease': record.uuid, 'host': failure.host,
                            'why': failure.why})
            self._avoided[failure.host] = now + _AVOIDED_S
            if ledger.relocate_node(
                    record, one.node, failure.host, now) or any(
                        node.lived for node in record.nodes):
                continue
            ledger.scheduler.restart_lost(lease, int(now))
            if lease.state is LeaseState.FAILED:
                lease.reason += f' ({one})'
            break
