# SPDX-License-Identifier: Apache-2.0

"""Lease engine: observes the cloud and orders operations, pass by pass.

The decisions of a pass are stored before operations are ordered.  After any
error the engine drops its state and restores it from the database.  It does
the same after a start, and when it takes over from another engine.
"""

import collections
from collections.abc import Callable, Container, Mapping, Sequence
import dataclasses

from oslo_log import log as logging

from secondary_scheduler.leases.api.db import models, schedules
from secondary_scheduler.leases.api.db.quotes import Quotes
from secondary_scheduler.leases.api.db.session import (
    Database,
    DatabaseError,
)
from secondary_scheduler.leases.api.db.store import LeaseStore
from secondary_scheduler.leases.engine import (
    adoption,
    capacity,
    constrained_bookings,
    failures,
    holds,
    host_rules,
    image_cache,
    owner_rights,
    quarantine,
    quotes,
    sweep,
)
from secondary_scheduler.leases.engine.engine_pass import EnginePass
from secondary_scheduler.leases.engine.estimates import Estimates
from secondary_scheduler.leases.engine.records import (
    LeaseRecord,
    Node,
    UnknownFlavorError,
    to_terms,
)
from secondary_scheduler.leases.engine.schedule_ledger import (
    Row,
    ScheduleLedger,
)
from secondary_scheduler.leases.engine.values import (
    CloudState,
    LeaseCloud,
    Postponed,
)
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import Lease, TermsError
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.policies import RefusedError
from secondary_scheduler.model.holds import Hold
from secondary_scheduler.model.lease_states import LeaseState

LOG = logging.getLogger(__name__)

#: Seconds between two heartbeats, unless there is news.
_HEARTBEAT_S = 10.0


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """Options of the engine; times in seconds.

    :param settings: settings of the scheduler.
    :param boot_s: time for which hosts are booked for the boot of servers.
    :param lead: time by which operations are ordered ahead.
    :param notice: time by which servers are notified of a preemption.
    :param window: as in ``capacity.LendableCapacity``.
    :param risk: as in ``capacity.LendableCapacity``.
    :param learning: time after the first pass in which no lease is rejected
        for lack of room.
    :param fetch_s: time in which a host fetches an image; 0: images are not
        fetched ahead.
    :param give_up: time for which operations of a lease may fail.
    :param delete_unknown: delete servers of unknown leases: see ``sweep``.
    """

    settings: Settings
    boot_s: int = 15
    lead: float = 5.0
    notice: float = 0.0
    window: float = 3600.0
    risk: float = 0.5
    learning: float = 0.0
    fetch_s: int = 0
    give_up: float = 1800.0
    delete_unknown: bool = False


class Engine:
    """Runs the leases of a database on a cloud; for one thread at a time."""

    def __init__(
        self,
        database: Database,
        store: LeaseStore,
        cloud: LeaseCloud,
        options: EngineOptions,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._store = store
        self._quotes = Quotes(database, clock)
        self._cloud = cloud
        self._options = options
        self._clock = clock
        self._lendable = capacity.LendableCapacity(
            options.window, options.risk)
        self._recovery = failures.Recovery(options.lead, options.give_up)
        self._sweep = sweep.Sweep(database, options.delete_unknown)
        self._quarantine = quarantine.Quarantine(database)
        self._waiting: list[models.LeaseRow] = []
        self._ledger: ScheduleLedger | None = None
        self._trouble, self._last_heartbeat = '', 0.0
        self._looked_at = 0
        #: Claims with the leases that start soon, by host of such a lease, as
        #: of the last pass.
        self.expected: dict[str, holds.ExpectedClaims] = {}
        #: Holds for these leases, by host.
        self.holds: dict[str, Hold] = {}

    @property
    def records(self) -> Mapping[str, LeaseRecord]:
        """The leases that are not over, by UUID."""
        return {} if self._ledger is None else self._ledger.records

    def count_leases(self) -> dict[str, int]:
        """Return the number of leases that are not over, by state."""
        return collections.Counter(
            str(one.lease.state) for one in self.records.values())

    def count_unknown_servers(self) -> int:
        """Return the number of servers of leases that are not known."""
        return self._sweep.unknown

    def count_unreadable_leases(self) -> int:
        """Return the number of leases in quarantine."""
        return len(self._quarantine.leases)

    def guaranteed_leases(self) -> frozenset[str]:
        """Return the leases with a guaranteed start, as project:UUID."""
        return frozenset(
            f'{one.row.project_id}:{one.row.uuid}'
            for one in self.records.values()
            if one.lease.terms.kind is not LeaseKind.BEST_EFFORT)

    def drop_state(self) -> None:
        """Restore the state from the database with the next pass."""
        self._ledger = None
        self._waiting.clear()
        self._sweep.drop_state()

    def run_pass(self, term: int = 0) -> None:
        """Run one pass: observe the cloud, and order the operations due.

        :param term: term of the leadership under which it runs.
        :raises Postponed: if the cloud does not answer, or another engine
            has written a pass meanwhile.
        """
        try:
            self._run_pass(term)
        except schedules.Overtaken as exc:
            self.drop_state()
            raise Postponed(str(exc)) from exc
        except Exception as exc:
            self.drop_state()
            self._write_heartbeat(
                str(exc) if isinstance(exc, Postponed)
                else f'{type(exc).__name__}: {exc}')
            raise
        self._write_heartbeat('')

    def _write_heartbeat(self, trouble: str) -> None:
        """Store the time of this pass, or its trouble, for the API."""
        now = self._clock()
        if trouble == self._trouble and (
                now < self._last_heartbeat + _HEARTBEAT_S):
            return
        try:
            schedules.record_heartbeat(
                self._database, None if trouble else int(now), trouble,
                self._looked_at)
        except DatabaseError as exc:
            LOG.warning('Cannot write the heartbeat: %s', exc)
            return
        self._trouble, self._last_heartbeat = trouble, now
        if not trouble:
            self._looked_at = int(now)

    def _run_pass(self, term: int) -> None:
        now = self._clock()
        requests = schedules.read_owner_requests(self._database)
        ledger = self._ledger
        if self._quarantine.end_cancelled(requests, int(now)):
            ledger = None   # their hosts are free
        if ledger is not None and (
                requests.keys() - ledger.records.keys()
                - self._quarantine.leases
                - {row.uuid for row in self._waiting}):
            ledger = None   # another engine has taken new leases
        if ledger is not None and ledger.term != term:
            ledger = None   # another engine may have led in between
        passes, rows = (0, []) if ledger else self._read_pass(term, now)
        cloud_state = self._cloud.observe_state(
            ledger.known_servers() if ledger
            else ScheduleLedger.servers_in(rows))
        estimates = Estimates(self._options.settings.durations,
                              self._options.boot_s, cloud_state.took)
        if ledger is not None and not ledger.is_current(
                cloud_state, estimates):
            ledger = None
            passes, rows = self._read_pass(term, now)
        if ledger is None:
            self._waiting = []
            ledger = self._ledger = ScheduleLedger(
                self._database, self._options.settings, cloud_state, estimates,
                passes, int(now), term)
            ledger.restore_leases(rows)
            self._quarantine.hold_plans(ledger, cloud_state)
        new = self._read_new(ledger, cloud_state, [
            row for row, text in rows if text is None])
        rights = owner_rights.OwnerRights.read(
            self._database, cloud_state, now)
        rights.assign_trusts([*ledger.records.values(), *new])
        cloud_state = rights.without_overcome_failures(
            cloud_state, ledger.records)
        ledger.host_rules = host_rules.HostRules.of_cloud(
            self._cloud, [*ledger.records.values(), *new], cloud_state,
            ledger.hosts)
        self._lendable.add_samples(cloud_state.hosts, now)
        self._withhold(ledger, cloud_state, now)
        one = EnginePass(self._options.lead, self._options.notice,
                         self._options.give_up, ledger, cloud_state,
                         estimates, now)
        one.observe_leases(requests)
        self._adopt(ledger, cloud_state, self._sweep.examine_servers(
            ledger, cloud_state, now, self._looked_at), now)
        rights.hold_back(ledger, cloud_state, int(now))
        if self._recovery.handle_failures(ledger, cloud_state, now):
            self._withhold(ledger, cloud_state, now)
        constrained_bookings.apply_constraints(ledger, now)
        copies = image_cache.ImageCopies(
            ledger.records.values(), cloud_state, now, self._options.fetch_s)
        ledger.scheduler.image_distance = copies.distances(ledger.hosts)
        learning = self._lendable.observed_s(now) < self._options.learning
        for record in new:
            request = requests.get(record.uuid)
            if request and request.wanted_end:
                ledger.end_unplanned(record.row, LeaseState.CANCELLED)
            elif learning and self._lacks_room(ledger, record):
                self._waiting.append(record.row)
            else:
                record.lease.blocked = not record.can_boot
                ledger.submit_lease(record, int(now))
        ledger.scheduler.fill()
        for record in ledger.records.values():
            ledger.host_rules.note_booking(record)
        quotes.answer_quotes(self._quotes, ledger.scheduler,
                             cloud_state.flavors, self._options.boot_s,
                             learning)
        orders = one.due_operations(copies)
        orders += self._sweep.due_deletions(
            ledger, cloud_state, estimates, now,
            most=cloud_state.free_operations - len(orders))
        # Not earlier than the events that the store has written meanwhile.
        ledger.write_changes(max(int(now), self._store.now), self._store,
                             anyway=bool(orders))
        # An instance that Nova admits now needs a boot time, too.
        self.expected = holds.expect_claims(
            ledger.records.values(), cloud_state, ledger.hosts,
            now + self._options.lead + self._options.boot_s)
        self.holds = holds.compute_holds(self.expected, cloud_state)
        if orders:
            self._cloud.order_operations(orders)
        for order in orders:
            LOG.info('Lease %(lease)s: %(kind)s of node %(node)d ordered, '
                     'to begin in %(when).1f s.', {
                         'lease': order.place[0], 'kind': order.kind,
                         'node': order.place[1], 'when': order.at - now})

    def _read_pass(self, term: int, now: float
                   ) -> tuple[int, list[Row]]:
        found = schedules.read_pass(self._database, term)
        return found.passes, self._quarantine.take(found, int(now))

    def _adopt(self, ledger: ScheduleLedger, cloud_state: CloudState,
               claimed: Container[str], now: float) -> None:
        """Adopt servers without a lease, if leases may be suspended at all."""
        found = (
            adoption.find_adoptable_servers(
                cloud_state, ledger.records, claimed)
            if self._options.settings.suspension else [])
        for server in found:
            ledger.adopt_lease(
                adoption.make_record(server, int(now)), int(now))
        if found:
            self._withhold(ledger, cloud_state, now)

    def _read_new(
        self,
        ledger: ScheduleLedger,
        cloud_state: CloudState,
        pending: Sequence[models.LeaseRow],
    ) -> list[LeaseRecord]:
        """Return new leases, and reject those with invalid terms.

        A lease of an unknown flavor waits for one pass, since the flavor may
        be new.

        :param pending: leases taken before that have no document yet.
        """
        found = []
        waiting, self._waiting = self._waiting, []
        again = {row.uuid for row in waiting}
        for row in [*pending, *waiting, *self._store.take_new()]:
            try:
                asked = to_terms(row, cloud_state.flavors,
                                 self._options.boot_s)
            except UnknownFlavorError as exc:
                if row.uuid in again:
                    ledger.end_unplanned(row, LeaseState.REJECTED, str(exc))
                else:
                    self._waiting.append(row)
                    self._cloud.forget_flavors()
                continue
            except TermsError as exc:
                ledger.end_unplanned(row, LeaseState.REJECTED, str(exc))
                continue
            found.append(LeaseRecord(
                row, Lease(row.uuid, asked, row.created_at),
                self._options.boot_s,
                [Node() for one in row.nodes for _ in range(one.number)]))
        return found

    @staticmethod
    def _lacks_room(ledger: ScheduleLedger, record: LeaseRecord) -> bool:
        """Return whether a lease would be rejected for lack of room alone."""
        try:
            return not ledger.scheduler.quote(record.lease.terms).accepted
        except (TermsError, RefusedError):
            return False

    def _withhold(self, ledger: ScheduleLedger,
                  cloud_state: CloudState, now: float) -> None:
        """Withhold from leases the capacity that hosts cannot lend."""
        ledger.withhold_capacity(
            cloud_state, self._lendable, self._recovery.avoided_hosts(now),
            self._quarantine.counted_servers(cloud_state, now), int(now))
