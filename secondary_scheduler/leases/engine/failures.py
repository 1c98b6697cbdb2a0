"""Failing operations of leases: another attempt, another host, or the end.

The same operation is tried again with growing pauses (``dues.retry_at``).  A
host that refuses servers is avoided for a while.  A lease ends as failed, with
the words of the service that refused, when an operation can never succeed or
has failed for too long.
"""

from collections.abc import Collection, Iterator
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

#: Attempts to boot on a host after which others are tried, and for how many
#: seconds the host gets no other server then.
_ATTEMPTS, _AVOIDED_S = 2, 120.0
#: Attempts after which a lost trust is believed: Keystone answers 401 for
#: reasons of its own, too.
_BELIEVED = 2
#: Orders of one operation after which its success is not believed any more.
_WITHOUT_EFFECT = 2


@dataclasses.dataclass(frozen=True)
class Trouble:
    """An operation that is due on a server of a lease, and has failed."""

    node: int
    kind: LeaseOperation
    failure: Failure

    @property
    def final(self) -> bool:
        """Whether no further attempt can succeed."""
        return self.failure.nature is Nature.PERMANENT or (
            self.failure.nature is Nature.LOST_RIGHT
            and self.failure.count >= _BELIEVED)

    def __str__(self) -> str:
        times = self.failure.count
        lost = ('the right to act for its owner is lost: '
                if self.failure.nature is Nature.LOST_RIGHT else '')
        return (f'{self.kind} of server {self.node} failed'
                + (f' {times} times: ' if times > 1 else ': ') + lost
                + (self.failure.why or 'no reason is known'))


class Recovery:
    """Decides after failures; one for each engine.

    :param lead: seconds before their time in which operations are ordered.
    :param give_up: seconds for which operations of a lease may fail.
    """

    def __init__(self, lead: float, give_up: float) -> None:
        self._lead = lead
        self._give_up = give_up
        self._avoided: dict[str, float] = {}

    def avoided(self, now: float) -> Collection[str]:
        """Return the hosts that get no servers for the moment."""
        self._avoided = {host: until for host, until in self._avoided.items()
                         if until > now}
        return self._avoided.keys()

    def handle(self, ledger: ScheduleLedger,
               cloud_state: CloudState, now: float) -> bool:
        """Handle the failures of all leases.

        :returns: whether hosts are avoided now that were not before.
        """
        before = set(self._avoided)
        for record in list(ledger.records.values()):
            lease = record.lease
            if record.adopted:
                continue
            if lease.ahead and lease.home is None and not (
                    ledger.are_there(lease.booking)):
                ledger.scheduler.lost(lease, int(now))
                continue
            found = list(self._troubles(record, cloud_state, now))
            reason = self._end(record, found, cloud_state, now)
            if reason is None:
                self._tell(ledger, record, found)
                self._look_elsewhere(ledger, record, found, now)
                continue
            record.failing_since = None
            LOG.warning('Lease %(lease)s ends: %(why)s', {
                'lease': record.uuid, 'why': reason})
            if lease.state in lease_states.FINAL:
                # Its servers are left to their owner from now on.
                lease.reason = '; '.join(filter(None, (lease.reason, reason)))
                for node in record.nodes:
                    node.server = None
            else:
                ledger.scheduler.fail(lease, reason, int(now))
        return bool(self._avoided.keys() - before)

    def _troubles(
        self, record: LeaseRecord, cloud_state: CloudState, now: float
    ) -> Iterator[Trouble]:
        """Yield the operations that are due on a lease's servers, and failed.
        """
        goal = reconcile.aim(record, now, self._lead, record.boot_s).goal
        for number, kind in reconcile.missing(
            record, cloud_state, goal).items():
            failure = cloud_state.failures.get(((record.uuid, number), kind))
            count, last = record.ordered.get((number, kind), (0, 0.0))
            if failure is None and count > _WITHOUT_EFFECT:
                failure = Failure(count, last, why=(
                    'it is reported as done, and has no effect'))
            if failure is not None:
                yield Trouble(number, kind, failure)

    @staticmethod
    def _tell(ledger: ScheduleLedger, record: LeaseRecord,
              found: list[Trouble]) -> None:
        """Tell the owner of a failure, the first time that it is seen."""
        if not found:
            return
        last = max(found, key=lambda one: one.failure.last)
        if record.cause != str(last):
            record.cause = str(last)
            if record.first(f'failing {last.kind} {last.failure.why}'):
                ledger.tell(record, 'operation-failed', str(last))

    def _end(
        self,
        record: LeaseRecord,
        found: list[Trouble],
        cloud_state: CloudState,
        now: float,
    ) -> str | None:
        """Return the reason for which a lease fails now; None if it does not.
        """
        for one in found:
            if one.final:
                return str(one)
        broken = observation.interruption(record, cloud_state)
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
        """Tell whether a lease waits since a host has refused its servers.
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

    def _look_elsewhere(self, ledger: ScheduleLedger, record: LeaseRecord,
                        found: list[Trouble], now: float) -> None:
        """Let a lease begin on other hosts than one that refuses it."""
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
            LOG.warning('%(host)s takes no server of lease %(lease)s; '
                        'another host is tried: %(why)s', {
                            'lease': record.uuid, 'host': failure.host,
                            'why': failure.why})
            self._avoided[failure.host] = now + _AVOIDED_S
            if ledger.relocate(record, one.node, failure.host, now) or any(
                    node.lived for node in record.nodes):
                continue
            ledger.scheduler.lost(lease, int(now))
            if lease.state is LeaseState.FAILED:
                lease.reason += f' ({one})'
            break
