# SPDX-License-Identifier: Apache-2.0

"""Ledger of all leases that are not over: records, schedule and database.
"""

from collections.abc import Collection, Sequence
import dataclasses

import numpy as np

from secondary_scheduler.leases.api.db import models, plans, schedules
from secondary_scheduler.leases.api.db.changes import Change, NewEvent
from secondary_scheduler.leases.api.db.plans import PlannedSlot
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.leases.api.db.store import LeaseStore
from secondary_scheduler.leases.engine import (
    assignment,
    capacity,
    events,
    observation,
    quotes,
    timeline,
)
from secondary_scheduler.leases.engine.estimates import Estimates
from secondary_scheduler.leases.engine.host_rules import HostRules
from secondary_scheduler.leases.engine.pricing_store import PricingStore
from secondary_scheduler.leases.engine.records import (
    LeaseRecord,
    RecordDocuments,
    hosts_in,
    naming_lease,
    servers_in,
)
from secondary_scheduler.leases.engine.values import (
    RESOURCES,
    Amounts,
    CloudState,
)
from secondary_scheduler.leases.scheduling.disks import Disks
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.lease import Booking, Lease
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.scheduler import Scheduler
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.table import CapacityEntry
from secondary_scheduler.leases.scheduling.types import NEVER, Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import HOLDING, LeaseState

#: Factor by which a measured rate has to change before it is used.
_CHANGED = 1.2

Row = tuple[models.LeaseRow, str | None]


class ScheduleLedger:
    """The schedule in memory; the database has it after ``write_changes``.

    Its hosts are those observed and those that leases hold.  A host that is
    not observed has no capacity.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        cloud_state: CloudState,
        estimates: Estimates,
        passes: int,
        now: int,
        term: int,
    ) -> None:
        self._database = database
        self._settings = settings
        self._durations = estimates.fitted_times()
        self._cloud_state = cloud_state
        self._passes = passes
        self.term = term
        self._now = now
        self.records: dict[str, LeaseRecord] = {}
        self._new_events: dict[str, list[NewEvent]] = {}
        self._unplanned: list[Change] = []
        self._written: dict[str, str] = {}
        self._pricing = PricingStore(database, settings.pricing)
        self._servers: dict[str, list[str]] = {}
        self._reasons: dict[str, str] = {}
        self._plans: dict[str, list[PlannedSlot]] = {}
        #: Placement constraints of this pass.
        self.host_rules = HostRules((), cloud_state, ())

    # -- construction

    @staticmethod
    def servers_in(rows: Sequence[Row]) -> frozenset[str]:
        """Return the UUIDs of the servers in documents."""
        found: set[str] = set()
        for row, text in rows:
            if text is not None:
                with naming_lease(row.uuid):
                    found |= servers_in(text)
        return frozenset(found)

    def restore_leases(self, rows: Sequence[Row]) -> None:
        """Restore all leases that have a document, and the learned prices."""
        kept = [(row, text) for row, text in rows if text is not None]
        hosts = set(self._cloud_state.hosts)
        for row, text in kept:
            with naming_lease(row.uuid):
                hosts |= hosts_in(text)
        self._build_scheduler(sorted(hosts))
        looked_at = schedules.read_heartbeat(self._database).looked_at
        for row, text in kept:
            with naming_lease(row.uuid):
                record = self._documents.read_record(row, text)
            if row.state == LeaseState.ERROR:
                record.reported_state = row.state   # it could not be read
            self.records[row.uuid] = record
            self._written[row.uuid] = text
            if looked_at is not None and record.unreachable_since is None:
                record.served.resume(looked_at)
            self._servers[row.uuid] = [one.uuid for one in row.servers]
            self._reasons[row.uuid] = row.reason
        self.scheduler.restore([
            one.lease for one in self.records.values()
            if one.lease.state not in lease_states.FINAL])
        self._pricing.restore()

    def hold_plan(self, plan: Sequence[PlannedSlot], need: Amounts) -> None:
        """Hold the hosts of a lease that has a plan and no record.

        :param need: amounts of each node.
        """
        for slot in plan:
            there = sorted((self._index[name], nodes) for name, nodes
                           in slot.hosts.items() if name in self._index)
            end = NEVER if slot.end is None else slot.end
            if there and end > self._now:
                hosts, nodes = np.array(there, dtype=np.int64).T
                self.scheduler.table.take(CapacityEntry(
                    max(slot.begin, self._now), end,
                    np.ascontiguousarray(hosts),
                    np.outer(np.array(need, dtype=np.int64), nodes),
                    tenants=0))

    def _build_scheduler(self, hosts: list[str]) -> None:
        known = self._cloud_state.hosts
        self.hosts = hosts
        self._index = {name: index for index, name in enumerate(hosts)}
        self.capacity: Ints = np.array(
            [known[name].total if name in known else (0,) * len(RESOURCES)
             for name in hosts],
            dtype=np.int64).reshape(len(hosts), len(RESOURCES))
        # Nova resumes a server on the host where it was suspended, and hosts
        # fetch images without the scheduler.
        durations = dataclasses.replace(self._durations, migration_rate=None)
        self._documents = RecordDocuments(hosts, Disks(
            1 if durations.shared else len(hosts)).operation)
        self.scheduler = Scheduler(
            Site(RESOURCES, self.capacity, memory='memory_mb'),
            dataclasses.replace(self._settings, durations=durations,
                                preparation=None),
            self._now, notify=self._on_state_change)
        self._withheld = np.zeros_like(self.capacity)

    def is_current(self, cloud_state: CloudState, estimates: Estimates
                   ) -> bool:
        """Return whether hosts and durations are still those of the schedule.
        """
        self._cloud_state = cloud_state
        held = {name for name, one in self._index.items()
                if name not in cloud_state.hosts}
        return (set(cloud_state.hosts) | held == set(self.hosts)
                and all(tuple(self.capacity[self._index[name]]) == host.total
                        for name, host in cloud_state.hosts.items())
                and not any(self.capacity[self._index[name]].any()
                            for name in held)
                and _are_similar(self._durations, estimates.fitted_times()))

    def known_servers(self) -> frozenset[str]:
        """Return the UUIDs of the servers of all leases."""
        return frozenset(node.server for record in self.records.values()
                         for node in record.nodes if node.server)

    # -- changes of leases

    def submit_lease(self, record: LeaseRecord, now: int) -> None:
        """Submit a new lease to the scheduler."""
        self.records[record.uuid] = record
        lease = record.lease
        self.choose_hosts(record)
        self.scheduler.submit(lease)
        self.host_rules.note_booking(record)
        if lease.state is LeaseState.REJECTED:
            record.next_start = quotes.next_possible_start(
                self.scheduler, lease.terms, record.boot_s)
        start = lease.terms.start
        if lease.state is LeaseState.REJECTED and start is not None and (
                start < now):
            lease.reason = ('its servers take some time to boot: ask for a '
                            f'start that is {record.boot_s} s ahead')
        assert record.row.duration is not None
        lease.price *= record.row.duration / lease.terms.duration
        if record.row.hold and lease.state is LeaseState.QUEUED:
            record.request_acknowledged = True
            self.scheduler.pause(lease, now)

    def adopt_lease(self, record: LeaseRecord, now: int) -> None:
        """Add a lease whose server runs already to the schedule."""
        self.records[record.uuid] = record
        counts = observation.count_by_host(record, self._index)
        assert counts is not None
        self.scheduler.adopt(record.lease, self._documents.to_arrays(counts),
                             now)
        self.add_event(record, 'adopted', (
            f'server {record.nodes[0].server} runs without a lease'))

    def end_unplanned(self, row: models.LeaseRow, state: LeaseState,
                      reason: str = '') -> None:
        """End a lease that the scheduler has not been told of."""
        self._unplanned.append(Change(
            row.uuid, None, {'state': state, 'reason': reason},
            events=[NewEvent(state, reason)]))

    def add_late_event(self, row: models.LeaseRow, kind: str, text: str
                       ) -> None:
        """Add an event of a lease that is over and has no record."""
        self._unplanned.append(Change(
            row.uuid, None, events=[NewEvent(kind, text)],
            served=row.served, charge=row.charge))

    def add_event(self, record: LeaseRecord, kind: str, text: str = ''
                  ) -> None:
        """Add an event of a lease, to be stored with this pass."""
        self._new_events.setdefault(record.uuid, []).append(
            NewEvent(kind, text))

    def _on_state_change(self, lease: Lease, before: LeaseState) -> None:
        record = self.records[lease.id]
        if lease.state in (LeaseState.SUSPENDING,
                           LeaseState.RESUMING, LeaseState.ACTIVE):
            record.emitted_events.clear()
        if lease.state is LeaseState.SUSPENDING:
            for node in record.nodes:
                node.ran = False
        elif lease.state is LeaseState.QUEUED and before in HOLDING:
            # The work of its servers is lost.
            record.served.reset()
            for node in record.nodes:
                node.ran = node.lived = node.gone = False

    def has_hosts_of(self, booking: Booking | None) -> bool:
        """Return whether all hosts of a booking are observed.

        A host in a cell that does not answer is not lost.
        """
        known = self._cloud_state
        return booking is None or all(
            self.hosts[host] in known.hosts
            or self.hosts[host] in known.unreachable_hosts
            for host in booking.slot.hosts
        )

    def follow_migrations(self, record: LeaseRecord, now: int) -> None:
        """Adapt the booking if servers of a lease were migrated."""
        booking = record.lease.booking
        counts = observation.count_by_host(record, self._index)
        if booking is None or counts is None or (
                counts == self._documents.count_by_host(booking.vms)):
            return
        self.scheduler.record_move(
            record.lease, self._documents.to_arrays(counts), now)
        self.add_event(record, 'moved', 'its servers have been moved')

    def relocate_node(self, record: LeaseRecord, number: int, host: str,
                      now: float) -> bool:
        """Assign a node to another host than ``host``, which refuses it.

        :returns: False if no other host has room.
        """
        booking = record.lease.booking
        assert booking is not None
        places = assignment.assign_hosts(record, booking.vms, self.hosts)
        if places[number] != host:
            return True
        set_ = record.set_of(number)
        room = self.scheduler.table.free_vms(
            record.lease.terms.nodes[set_].need, int(now), booking.end
        ) * self.host_rules.usable_hosts(record, number)
        room[self._index[host]] = 0
        if not room.any():
            return False
        vms = [count.copy() for count in booking.vms]
        vms[set_][self._index[host]] -= 1
        vms[set_][int(room.argmax())] += 1
        self.scheduler.record_move(record.lease, tuple(vms), int(now))
        self.host_rules.note_booking(record)
        return True

    def choose_hosts(self, record: LeaseRecord) -> None:
        """Set the hosts on which a lease may begin, by constraints."""
        record.lease.choice = (
            self.host_rules.choose(record)
            if record.lease.home is None else None)

    def withhold_capacity(
        self,
        cloud_state: CloudState,
        lendable: capacity.LendableCapacity,
        avoided: Collection[str],
        counted: frozenset[str],
        now: int,
    ) -> None:
        """Withhold from leases the capacity that hosts cannot lend.

        :param avoided: hosts whose whole capacity is withheld.
        :param counted: servers whose hosts are held by ``hold_plan``.
        """
        ours = frozenset(
            node.server for record in self.records.values()
            if record.lease.booking is not None for node in record.nodes
            if node.server)
        others = capacity.sum_used(cloud_state, ours | counted)
        for host in avoided:
            if host in self._index:
                others[host] = self.capacity[self._index[host]].tolist()
        found = capacity.withheld_amounts(
            self.capacity, self.hosts, lendable, others,
            self.scheduler.table.least_free(self.scheduler.now, NEVER)
            + self._withheld)
        if (found == self._withheld).all():
            return
        self._withheld = found
        kept = np.flatnonzero(found.any(axis=1))
        self.scheduler.withhold([CapacityEntry(
            now, NEVER, kept, np.ascontiguousarray(found[kept].T),
            tenants=0)] if len(kept) else [], now)

    # -- storage

    def write_changes(self, now: int, store: LeaseStore, anyway: bool
                      ) -> None:
        """Store all changes of this pass in few transactions.

        :param anyway: begin the transaction even if nothing has changed, to
            learn of another engine.
        :raises Overtaken: if another engine has written meanwhile.
        """
        changes, over = [*self._unplanned], []
        slots: dict[str, list[PlannedSlot]] = {}
        for uuid, record in self.records.items():
            change = self._find_change(record)
            if change is not None:
                changes.append(change)
            if record.reported_state in lease_states.FINAL:
                over.append(uuid)
            found = timeline.planned_slots(record, self.hosts)
            if found != self._plans.get(uuid):
                self._plans[uuid] = slots[uuid] = found
        if changes or anyway:
            written = schedules.write_pass(
                self._database, self._passes, self.term, changes, now,
                self._pricing.unsaved_state())
            self._passes = written.passes
            for lease, event in written.events:
                store.announce(lease, event)
        plans.write_plan(self._database, slots)
        for change in changes:
            if change.document is not None:
                self._written[change.uuid] = change.document
        for uuid in over:
            for kept in (self.records, self._written, self._servers,
                         self._reasons, self._plans):
                kept.pop(uuid, None)
        self._new_events.clear()
        self._unplanned.clear()

    def _visible_state(self, record: LeaseRecord) -> str:
        """Return the state that the owner is shown.

        A lease is over once its servers are gone, and active only while all
        of them are observed to run.  It is unknown while they are unseen,
        unless one of them is known not to run.  It is suspended once they
        were observed not to run.
        """
        lease = record.lease
        if lease.state in lease_states.FINAL and any(
                node.server
                or (record.uuid, number) in self._cloud_state.pending
                for number, node in enumerate(record.nodes)):
            return str(LeaseState.ENDING)
        if lease.state in lease_states.SAVED and observation.may_run(
                record, self._cloud_state):
            return str(LeaseState.SUSPENDING)
        if lease.state is LeaseState.ACTIVE and record.unseen and (
                record.served.since is not None):
            return str(LeaseState.UNKNOWN)
        if (
            lease.state is not LeaseState.ACTIVE
            or record.served.since is not None
        ):
            return str(lease.state)
        assert lease.booking is not None
        return str(LeaseState.INTERRUPTED
                   if record.served.until >= lease.booking.begin
                   else LeaseState.STARTING)

    def _find_change(self, record: LeaseRecord) -> Change | None:
        """Return the change of a lease in this pass, if there is one."""
        lease = record.lease
        new_events = self._new_events.get(record.uuid, [])
        values: dict[str, object] = {}
        shown = self._visible_state(record)
        reason = events.state_reason(record, shown)
        price = None if record.adopted else lease.price
        if shown != record.reported_state:
            record.reported_state = shown
            values |= {'state': shown, 'price': price,
                       'next_start': record.next_start}
            new_events = [
                NewEvent(shown, reason or events.describe_state(record)),
                *new_events]
        if record.row.unverified and (
                record.served.until
                or record.uuid in self._cloud_state.verified):
            # Servers that have run show that their resources exist.
            record.row.unverified = []
            values['unverified'] = []
        if values or reason != self._reasons.get(record.uuid, ''):
            values['reason'] = self._reasons[record.uuid] = reason
        servers = [node.server for node in record.nodes if node.server]
        same = servers == self._servers.get(record.uuid, [])
        self._servers[record.uuid] = servers
        text = self._documents.write_record(record)
        if not (values or new_events) and same and (
                text == self._written.get(record.uuid)):
            return None
        request, record.pending_request = record.pending_request, None
        return Change(record.uuid, text, values, None if same else servers,
                      new_events, request, *record.served_and_charge(price),
                      books=lease.ahead)


def _are_similar(one: OperationTimes, other: OperationTimes) -> bool:
    """Return whether the rates of two models differ by little."""
    return all(
        1 / _CHANGED < getattr(one, rate) / getattr(other, rate) < _CHANGED
        for rate in ('suspend_rate', 'resume_rate'))
