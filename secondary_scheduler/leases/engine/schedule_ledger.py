"""All leases as they are now: the database's, and the scheduler's."""

from collections.abc import Collection, Sequence
import dataclasses
import json

import numpy as np
from oslo_log import log as logging

from secondary_scheduler.leases.api.db import models, plans, schedules
from secondary_scheduler.leases.api.db.plans import Stretch
from secondary_scheduler.leases.api.db.schedules import Change, Told
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
from secondary_scheduler.leases.engine.records import (
    Documents,
    LeaseRecord,
    hosts_in,
    reading,
    servers_in,
)
from secondary_scheduler.leases.engine.values import RESOURCES, CloudState
from secondary_scheduler.leases.scheduling.disks import Disks
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.lease import Booking, Lease
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.pricing import Pricing
from secondary_scheduler.leases.scheduling.scheduler import Scheduler
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.table import CapacityEntry
from secondary_scheduler.leases.scheduling.types import NEVER, Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import HOLDING, LeaseState

LOG = logging.getLogger(__name__)

#: By which factor rates have to change before leases are planned by others.
_CHANGED = 1.2

Row = tuple[models.LeaseRow, str | None]


class ScheduleLedger:
    """The schedule in memory, which is that of the database after ``write``.

    Its hosts are those that are seen and those that leases hold; nobody is
    sent to one that is not seen.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        cloud_state: CloudState,
        estimates: Estimates,
        passes: int,
        now: int,
    ) -> None:
        self._database = database
        self._settings = settings
        self._durations = estimates.fitted()
        self._cloud_state = cloud_state
        self._passes = passes
        self._now = now
        self.records: dict[str, LeaseRecord] = {}
        self._told: dict[str, list[Told]] = {}
        self._rejected: list[Change] = []
        self._written: dict[str, str] = {}
        self._learned: str | None = None
        self._servers: dict[str, list[str]] = {}
        self._reasons: dict[str, str] = {}
        self._plans: dict[str, list[Stretch]] = {}

    # -- how it comes to be

    @staticmethod
    def servers_in(rows: Sequence[Row]) -> frozenset[str]:
        """Return the servers that documents name."""
        found: set[str] = set()
        for row, text in rows:
            if text is not None:
                with reading(row.uuid):
                    found |= servers_in(text)
        return frozenset(found)

    def restore(self, rows: Sequence[Row]) -> None:
        """Take all leases that have a document, and what was learned."""
        kept = [(row, text) for row, text in rows if text is not None]
        hosts = set(self._cloud_state.hosts)
        for row, text in kept:
            with reading(row.uuid):
                hosts |= hosts_in(text)
        self._make(sorted(hosts))
        looked_at = schedules.heartbeat(self._database).looked_at
        for row, text in kept:
            with reading(row.uuid):
                record = self._documents.read(row, text)
            self.records[row.uuid] = record
            self._written[row.uuid] = text
            if looked_at is not None:
                record.served.resume(looked_at)
            self._servers[row.uuid] = [one.uuid for one in row.servers]
            self._reasons[row.uuid] = row.reason
        self.scheduler.restore([
            one.lease for one in self.records.values()
            if one.lease.state not in lease_states.FINAL])
        self._recall()

    def _recall(self) -> None:
        """Let pricing know what it has learned, if it can make sense of it."""
        pricing = self._settings.pricing
        if pricing is None:
            return
        self._learned = schedules.learned(self._database, _name(pricing))
        try:
            pricing.recall(json.loads(self._learned or 'null'))
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            LOG.warning('What %(name)s has learned cannot be read, it begins '
                        'anew: %(exc)r', {'name': _name(pricing), 'exc': exc})
            pricing.recall(None)

    def _make(self, hosts: list[str]) -> None:
        known = self._cloud_state.hosts
        self.hosts = hosts
        self._index = {name: index for index, name in enumerate(hosts)}
        self.capacity: Ints = np.array(
            [known[name].total if name in known else (0,) * len(RESOURCES)
             for name in hosts],
            dtype=np.int64).reshape(len(hosts), len(RESOURCES))
        # Nova resumes a server where it was suspended, and its hosts can
        # fetch images by themselves.
        durations = dataclasses.replace(self._durations, migration_rate=None)
        self._documents = Documents(hosts, Disks(
            1 if durations.shared else len(hosts)).operation)
        self.scheduler = Scheduler(
            Site(RESOURCES, self.capacity, memory='memory_mb'),
            dataclasses.replace(self._settings, durations=durations,
                                preparation=None),
            self._now, notify=self._hear)
        self._withheld = np.zeros_like(self.capacity)

    def fits(self, cloud_state: CloudState, estimates: Estimates) -> bool:
        """Tell whether it is still right for these hosts and durations."""
        self._cloud_state = cloud_state
        held = {name for name, one in self._index.items()
                if name not in cloud_state.hosts}
        return (set(cloud_state.hosts) | held == set(self.hosts)
                and all(tuple(self.capacity[self._index[name]]) == host.total
                        for name, host in cloud_state.hosts.items())
                and not any(self.capacity[self._index[name]].any()
                            for name in held)
                and _alike(self._durations, estimates.fitted()))

    def servers(self) -> frozenset[str]:
        """Return the servers of all leases."""
        return frozenset(node.server for record in self.records.values()
                         for node in record.nodes if node.server)

    # -- what becomes of leases

    def submit(self, record: LeaseRecord, now: int) -> None:
        """Let the scheduler take a new lease."""
        self.records[record.uuid] = record
        lease = record.lease
        self.scheduler.submit(lease)
        if lease.state is LeaseState.REJECTED:
            record.next_start = quotes.next_start(self.scheduler, lease.terms,
                                                  record.boot_s)
        start = lease.terms.start
        if lease.state is LeaseState.REJECTED and start is not None and (
                start < now):
            lease.reason = ('its servers take some time to boot: ask for a '
                            f'start that is {record.boot_s} s ahead')
        assert record.row.duration is not None
        lease.price *= record.row.duration / lease.terms.duration
        if record.row.hold and lease.state is LeaseState.QUEUED:
            record.heard = True
            self.scheduler.pause(lease, now)

    def adopt(self, record: LeaseRecord, now: int) -> None:
        """Let the scheduler take a lease whose server runs already."""
        self.records[record.uuid] = record
        placed = observation.placed(record, self._index)
        assert placed is not None
        self.scheduler.adopt(record.lease, self._documents.arrays(placed),
                             now)
        self.tell(record, 'adopted', (
            f'server {record.nodes[0].server} runs without a lease'))

    def reject(self, row: models.LeaseRow, reason: str) -> None:
        """Refuse a lease of which nothing can be made."""
        self._rejected.append(Change(
            row.uuid, None, {'state': LeaseState.REJECTED, 'reason': reason},
            told=[Told(LeaseState.REJECTED, reason)]))

    def tell(self, record: LeaseRecord, kind: str, text: str = '') -> None:
        """Let a lease's owner know something."""
        self._told.setdefault(record.uuid, []).append(Told(kind, text))

    def _hear(self, lease: Lease, before: LeaseState) -> None:
        record = self.records[lease.id]
        if lease.state in (LeaseState.SUSPENDING,
                           LeaseState.RESUMING, LeaseState.ACTIVE):
            record.said.clear()
        if lease.state is LeaseState.SUSPENDING:
            for node in record.nodes:
                node.ran = False
        elif lease.state is LeaseState.QUEUED and before in HOLDING:
            # What its servers were about is lost.
            record.served.reset()
            for node in record.nodes:
                node.ran = node.lived = node.gone = False
        elif lease.state in (LeaseState.DONE, LeaseState.FAILED):
            lease.reason = lease.reason or events.shortfall(record)

    def are_there(self, booking: Booking | None) -> bool:
        """Tell whether all hosts of a stay are seen."""
        return booking is None or all(
            self.hosts[host] in self._cloud_state.hosts
            for host in booking.slot.hosts
        )

    def follow(self, record: LeaseRecord, now: int) -> None:
        """Note that somebody has moved servers of a lease."""
        booking = record.lease.booking
        placed = observation.placed(record, self._index)
        if booking is None or placed is None or (
                placed == self._documents.placed(booking.vms)):
            return
        self.scheduler.moved(record.lease, self._documents.arrays(placed),
                             now)
        self.tell(record, 'moved', 'its servers have been moved')

    def relocate(self, record: LeaseRecord, number: int, host: str, now: float
                 ) -> bool:
        """Give a node another host than one that refuses it, if there is one.

        Not where it is to be on another one anyway.
        """
        booking = record.lease.booking
        assert booking is not None
        places = assignment.hosts(record, booking.vms, self.hosts)
        if places[number] != host:
            return True
        set_ = dict((one, index) for index, one in record.sets())[number]
        room = self.scheduler.table.room(
            record.lease.terms.nodes[set_].need, int(now), booking.end)
        room[self._index[host]] = 0
        if not room.any():
            return False
        vms = [count.copy() for count in booking.vms]
        vms[set_][self._index[host]] -= 1
        vms[set_][int(room.argmax())] += 1
        self.scheduler.moved(record.lease, tuple(vms), int(now))
        return True

    def withhold(self, cloud_state: CloudState, lendable: capacity.Lendable,
                 shunned: Collection[str], now: int) -> None:
        """Keep from leases what hosts cannot lend."""
        ours = frozenset(
            node.server for record in self.records.values()
            if record.lease.booking is not None for node in record.nodes
            if node.server)
        others = capacity.taken_by_others(cloud_state, ours)
        for host in shunned:
            if host in self._index:
                others[host] = self.capacity[self._index[host]].tolist()
        found = capacity.withheld(
            self.capacity, self.hosts, lendable, others,
            self.scheduler.table.least(self.scheduler.now, NEVER)
            + self._withheld)
        if (found == self._withheld).all():
            return
        self._withheld = found
        kept = np.flatnonzero(found.any(axis=1))
        self.scheduler.withhold([CapacityEntry(
            now, NEVER, kept, np.ascontiguousarray(found[kept].T),
            tenants=0)] if len(kept) else [], now)

    # -- what is kept

    def write(self, now: int, store: LeaseStore, anyway: bool) -> None:
        """Keep all that has changed.

        :param anyway: look whether another engine is at work even if nothing
            has changed.
        :raises Overtaken: if another engine has written meanwhile.
        """
        changes, over = [*self._rejected], []
        stretches: dict[str, list[Stretch]] = {}
        for uuid, record in self.records.items():
            change = self._change(record)
            if change is not None:
                changes.append(change)
            if record.told in lease_states.FINAL:
                over.append(uuid)
            found = timeline.stretches(record, self.hosts)
            if found != self._plans.get(uuid):
                self._plans[uuid] = stretches[uuid] = found
        if changes or anyway:
            told = schedules.write(self._database, self._passes, changes, now,
                                   self._new_lessons())
            self._passes += 1
            for lease, event in told:
                store.announce(lease, event)
        plans.write(self._database, stretches)
        for change in changes:
            if change.document is not None:
                self._written[change.uuid] = change.document
        for uuid in over:
            for kept in (self.records, self._written, self._servers,
                         self._reasons, self._plans):
                kept.pop(uuid, None)
        self._told.clear()
        self._rejected.clear()

    def _new_lessons(self) -> dict[str, str]:
        """Return what has been learned since it was written last."""
        pricing = self._settings.pricing
        known = None if pricing is None else pricing.learned()
        if pricing is None or known is None:
            return {}
        text = json.dumps(known, separators=(',', ':'))
        if text == self._learned:
            return {}
        self._learned = text
        return {_name(pricing): text}

    def _shown(self, record: LeaseRecord) -> str:
        """Return the state as its owner sees it.

        A lease is over once its servers are gone, and active only while all
        of them are seen to run.
        """
        lease = record.lease
        if lease.state in lease_states.FINAL and any(
                node.server or (
    record.uuid, number) in self._cloud_state.pending
                for number, node in enumerate(record.nodes)):
            return str(LeaseState.ENDING)
        if (
            lease.state is not LeaseState.ACTIVE
            or record.served.since is not None
        ):
            return str(lease.state)
        assert lease.booking is not None
        return str(LeaseState.INTERRUPTED
                   if record.served.until >= lease.booking.begin
                   else LeaseState.STARTING)

    def _change(self, record: LeaseRecord) -> Change | None:
        lease = record.lease
        told = self._told.get(record.uuid, [])
        values: dict[str, object] = {}
        shown = self._shown(record)
        reason = events.reason(record, shown)
        price = None if record.adopted else lease.price
        if shown != record.told:
            record.told = shown
            values |= {'state': shown, 'price': price,
                       'next_start': record.next_start}
            told = [Told(shown, reason or events.state(record)), *told]
        if record.row.unverified and record.served.until:
            # What Nova has made servers of is there.
            record.row.unverified = []
            values['unverified'] = []
        if values or reason != self._reasons.get(record.uuid, ''):
            values['reason'] = self._reasons[record.uuid] = reason
        servers = [node.server for node in record.nodes if node.server]
        same = servers == self._servers.get(record.uuid, [])
        self._servers[record.uuid] = servers
        text = self._documents.write(record)
        if not (values or told) and same and (
                text == self._written.get(record.uuid)):
            return None
        made, record.made = record.made, None
        return Change(record.uuid, text, values, None if same else servers,
                      told, made, *record.account(price))


def _name(pricing: Pricing) -> str:
    """Return under which name it is kept what a driver has learned."""
    return f'pricing.{type(pricing).__name__}'


def _alike(one: OperationTimes, other: OperationTimes) -> bool:
    """Tell whether leases would be planned much the same by two models."""
    return all(
        1 / _CHANGED < getattr(one, rate) / getattr(other, rate) < _CHANGED
        for rate in ('suspend_rate', 'resume_rate'))
