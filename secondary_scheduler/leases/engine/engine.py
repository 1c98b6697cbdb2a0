"""One pass after the other: the cloud is looked at, and operations ordered.

What a pass decides is written before anything is ordered.  Whatever goes
wrong, the engine forgets all that it knows and begins anew from the database;
so it does as it starts, and one that takes over from another.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses

from oslo_db import exception as db_exception
from oslo_log import log as logging

from secondary_scheduler.leases.api.db import models, schedules
from secondary_scheduler.leases.api.db.quotes import Quotes
from secondary_scheduler.leases.api.db.schedules import Wish
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.leases.api.db.store import LeaseStore
from secondary_scheduler.leases.engine import (
    adoption,
    capacity,
    events,
    failures,
    holds,
    image_cache,
    observation,
    quotes,
    reconcile,
)
from secondary_scheduler.leases.engine.estimates import Estimates
from secondary_scheduler.leases.engine.records import (
    LeaseRecord,
    Node,
    UnknownFlavorError,
    terms,
)
from secondary_scheduler.leases.engine.schedule_ledger import ScheduleLedger
from secondary_scheduler.leases.engine.values import (
    CloudState,
    LeaseCloud,
    LeaseOperation,
    OperationRequest,
    Postponed,
)
from secondary_scheduler.leases.scheduling.lease import Lease, TermsError
from secondary_scheduler.leases.scheduling.planned_starts import (
    UnpausableError,
)
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.holds import Hold
from secondary_scheduler.model.lease_states import LeaseState

LOG = logging.getLogger(__name__)

#: What takes room on a host.
_COMING = (LeaseOperation.BOOT, LeaseOperation.RESUME)
#: Seconds by which a lease may be short of its running time before it is
#: planned anew.
_LATE_S = 1.0
#: Seconds after which a heartbeat is written again.
_HEARTBEAT_S = 10.0


@dataclasses.dataclass(frozen=True)
class Options:
    """How the engine works; times in seconds.

    ``boot_s`` is how long hosts are held for servers that boot, ``lead`` how
    long before their time operations are ordered, ``notice`` how long before
    a preemption its servers are told.  ``window`` and ``risk`` are those of
    ``capacity.Lendable``.  A host fetches an image in ``fetch_s``; 0: it is
    not asked to before servers boot.  A lease whose operations fail for
    ``give_up`` has failed.
    """

    settings: Settings
    boot_s: int = 15
    lead: float = 5.0
    notice: float = 0.0
    window: float = 3600.0
    risk: float = 0.5
    fetch_s: int = 0
    give_up: float = 1800.0


class Engine:
    """Runs the leases of a database on a cloud; one thread at a time."""

    def __init__(
        self,
        database: Database,
        store: LeaseStore,
        cloud: LeaseCloud,
        options: Options,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._store = store
        self._quotes = Quotes(database, clock)
        self._cloud = cloud
        self._options = options
        self._clock = clock
        self._lendable = capacity.Lendable(options.window, options.risk)
        self._recovery = failures.Recovery(options.lead, options.give_up)
        self._waiting: list[models.LeaseRow] = []
        self._ledger: ScheduleLedger | None = None
        self._trouble, self._beaten = '', 0.0
        #: What is held for servers of leases, as of the last pass.
        self.holds: dict[str, Hold] = {}

    @property
    def records(self) -> Mapping[str, LeaseRecord]:
        """The leases that are not over, by UUID."""
        return {} if self._ledger is None else self._ledger.records

    def forget(self) -> None:
        """Begin anew from the database with the next pass."""
        self._ledger = None
        self._waiting.clear()

    def run(self) -> None:
        """Do all that is due now.

        :raises Postponed: if the cloud does not answer, or another engine is
            at work too.
        """
        try:
            self._pass()
        except schedules.Overtaken as exc:
            self.forget()
            raise Postponed(str(exc)) from exc
        except Exception as exc:
            self.forget()
            self._beat(str(exc) if isinstance(exc, Postponed)
                       else f'{type(exc).__name__}: {exc}')
            raise
        self._beat('')

    def _beat(self, trouble: str) -> None:
        """Let the API tell when leases were last looked at."""
        now = self._clock()
        if trouble == self._trouble and now < self._beaten + _HEARTBEAT_S:
            return
        try:
            schedules.beat(self._database, None if trouble else int(now),
                           trouble)
        except db_exception.DBError as exc:
            LOG.warning('The heartbeat is not written: %s', exc)
            return
        self._trouble, self._beaten = trouble, now

    def _pass(self) -> None:
        now = self._clock()
        wishes = schedules.wishes(self._database)
        ledger = self._ledger
        if ledger is not None and (wishes.keys() - ledger.records.keys()
                                   - {row.uuid for row in self._waiting}):
            ledger = None   # another engine has taken some
        passes, rows = (0, []) if ledger else schedules.read(self._database)
        cloud_state = self._cloud.look(ledger.servers() if ledger
                                       else ScheduleLedger.servers_in(rows))
        estimates = Estimates(self._options.settings.durations,
                              self._options.boot_s, cloud_state.took)
        if ledger is not None and not ledger.fits(cloud_state, estimates):
            ledger = None
            passes, rows = schedules.read(self._database)
        if ledger is None:
            self._waiting = []
            ledger = self._ledger = ScheduleLedger(
                self._database, self._options.settings, cloud_state, estimates,
                passes, int(now))
            ledger.restore(rows)
        self._lendable.note(cloud_state.hosts, now)
        self._withhold(ledger, cloud_state, now)
        one = _Pass(self._options, ledger, cloud_state, estimates, now)
        one.see(wishes)
        self._adopt(ledger, cloud_state, now)
        if self._recovery.handle(ledger, cloud_state, now):
            self._withhold(ledger, cloud_state, now)
        copies = image_cache.Copies(ledger.records.values(), cloud_state, now,
                                    self._options.fetch_s)
        ledger.scheduler.away = copies.away(ledger.hosts)
        self._take_new(ledger, cloud_state, now, [
            row for row, text in rows if text is None])
        ledger.scheduler.fill()
        quotes.answer(self._quotes, ledger.scheduler, cloud_state.flavors,
                      self._options.boot_s)
        orders = one.orders(copies)
        # As late as what the store has told of leases in this pass.
        ledger.write(max(int(now), self._store.now), self._store,
                     anyway=bool(orders))
        # Who is admitted now boots as long as those of leases do.
        self.holds = holds.holds(
            ledger.records.values(), cloud_state, ledger.hosts,
            now + self._options.lead + self._options.boot_s)
        if orders:
            self._cloud.order(orders)
        for order in orders:
            LOG.info('Lease %(lease)s: %(kind)s of node %(node)d is ordered '
                     'for %(when).1f s from now.', {
                         'lease': order.place[0], 'kind': order.kind,
                         'node': order.place[1], 'when': order.at - now})

    def _adopt(self, ledger: ScheduleLedger,
               cloud_state: CloudState, now: float) -> None:
        """Make servers without a lease leases, if these can be suspended."""
        found = (adoption.strays(cloud_state, ledger.records)
                 if self._options.settings.suspension else [])
        for server in found:
            ledger.adopt(adoption.record(server, int(now)), int(now))
        if found:
            self._withhold(ledger, cloud_state, now)

    def _take_new(
        self,
        ledger: ScheduleLedger,
        cloud_state: CloudState,
        now: float,
        pending: Sequence[models.LeaseRow],
    ) -> None:
        waiting, self._waiting = self._waiting, []
        again = {row.uuid for row in waiting}
        for row in [*pending, *waiting, *self._store.take_new()]:
            try:
                asked = terms(row, cloud_state.flavors, self._options.boot_s)
            except UnknownFlavorError as exc:
                if row.uuid in again:
                    ledger.reject(row, str(exc))
                else:   # it may be a new one
                    self._waiting.append(row)
                    self._cloud.forget_flavors()
                continue
            except TermsError as exc:
                ledger.reject(row, str(exc))
                continue
            ledger.submit(LeaseRecord(
                row, Lease(row.uuid, asked, row.created_at),
                self._options.boot_s,
                [Node() for one in row.nodes for _ in range(one.number)]),
                int(now))

    def _withhold(self, ledger: ScheduleLedger,
                  cloud_state: CloudState, now: float) -> None:
        """Keep from leases what hosts cannot lend."""
        ledger.withhold(
            cloud_state, self._lendable, self._recovery.avoided(now), int(now)
        )


class _Pass:
    """What one look at the cloud leads to."""

    def __init__(
        self,
        options: Options,
        ledger: ScheduleLedger,
        cloud_state: CloudState,
        estimates: Estimates,
        now: float,
    ) -> None:
        self._options = options
        self._ledger = ledger
        self._scheduler = ledger.scheduler
        self._cloud_state = cloud_state
        self._estimates = estimates
        self._now = now
        # What secondaries hold of each host, and what is sent there at once.
        self._there = capacity.taken_by_others(cloud_state, frozenset())

    # -- what is seen

    def see(self, wishes: Mapping[str, Wish]) -> None:
        """Take in what has happened, and let come true what was planned."""
        ledger, now = self._ledger, int(self._now)
        labelled = observation.by_lease(self._cloud_state, ledger.servers())
        for record in ledger.records.values():
            for kind, text in observation.take_in(
                record,
                self._cloud_state,
                labelled.get(record.uuid, ()),
                self._now,
                self._options.lead,
            ):
                ledger.tell(record, kind, text)
            self._count(record)
        self._listen(wishes)
        self._catch_up(now)
        for record in list(ledger.records.values()):
            self._see(record, now)

    def _count(self, record: LeaseRecord) -> None:
        """Count the time in which all servers of a lease run.

        What a lease has not run of its time, although its owner did not keep
        it from that, makes it stay longer.
        """
        lease, booking, now = record.lease, record.lease.booking, self._now
        served, active = record.served, lease.state is LeaseState.ACTIVE
        why = observation.interruption(
    record, self._cloud_state) if active else None
        served.observe(
            now,
            active and observation.all_run(record, self._cloud_state),
            why is not None and why.excused,
        )
        if why is not None and not (why.brief and record.cause):
            record.cause = why.text
        if not active or record.adopted or booking is None or (
                booking.down <= now + self._options.lead):
            return
        late = (lease.served + now - booking.up - record.boot_s
                - served.seconds - served.excused)
        if late >= _LATE_S:
            idle = now - max(served.until, booking.begin)
            self._scheduler.delay(lease, int(late), int(now),
                                  longer=idle < self._options.give_up)

    def _listen(self, wishes: Mapping[str, Wish]) -> None:
        """Hear what owners want."""
        now = int(self._now)
        for record in self._ledger.records.values():
            wish, lease = wishes.get(record.uuid), record.lease
            if wish is None or lease.state in lease_states.FINAL:
                continue
            if wish.wanted_end:
                self._scheduler.cancel(lease, now)
            elif wish.hold != record.heard:
                record.heard = wish.hold
                self._pause(record, wish.hold, now)

    def _pause(self, record: LeaseRecord, hold: bool, now: int) -> None:
        if not hold:
            self._scheduler.unpause(record.lease, now)
            return
        try:
            self._scheduler.pause(record.lease, now)
        except UnpausableError as exc:
            self._ledger.tell(record, 'not-paused', str(exc))

    def _catch_up(self, now: int) -> None:
        """Let come true what was planned up to now, one thing at a time.

        But nobody counts as saved whose saving has not even begun.
        """
        scheduler = self._scheduler
        while (due := scheduler.next_time()) is not None and due <= now:
            late = [record for record in self._ledger.records.values()
                    if record.lease.state is LeaseState.SUSPENDING
                    and record.lease.booking is not None
                    and record.lease.booking.end <= due
                    and not observation.is_saved(record, self._cloud_state)]
            for record in late:
                booking = record.lease.booking
                assert booking is not None
                scheduler.overrun(record.lease, now + max(
                    2, booking.end - booking.down))
                self._ledger.tell(record, 'late', (
                    'it is suspended later than planned'))
            if not late:
                scheduler.advance(due)
        scheduler.advance(now)

    def _see(self, record: LeaseRecord, now: int) -> None:
        lease, cloud_state = record.lease, self._cloud_state
        if lease.state in (LeaseState.ACTIVE, LeaseState.SUSPENDING):
            self._ledger.follow(record, now)
        if lease.state is LeaseState.SUSPENDING and observation.is_off(
            record, cloud_state):
            self._scheduler.saved(lease, now)
        elif lease.state is LeaseState.ACTIVE and observation.has_ended(
            record, cloud_state
        ):
            self._scheduler.finish(lease, now)
        elif lease.state in lease_states.SAVED and all(
                node.gone for node in record.nodes):
            lease.reason = lease.reason or 'its servers have been deleted'
            self._scheduler.cancel(lease, now)
        for one in events.of(record, self._now, self._options.notice):
            self._ledger.tell(record, one.kind, one.text)

    # -- what is due

    def orders(self, copies: image_cache.Copies) -> list[OperationRequest]:
        """Return the operations that are due, what frees hosts first."""
        now, lead = self._now, self._options.lead
        found: list[OperationRequest] = []
        for record in self._ledger.records.values():
            found += reconcile.orders(
                record,
                self._cloud_state,
                self._ledger.hosts,
                now,
                lead,
                self._expected(record),
            )
            found += reconcile.notices(record, self._cloud_state, now, lead,
                                       self._options.notice)
        if self._options.fetch_s:
            found += copies.orders(self._ledger.hosts)
        ordered = sorted(
            (one for one in found
             if copies.lets_begin(one)
             and (one.at > now or self._has_room(one))),
            key=lambda one: (one.at, one.kind in _COMING))
        for one in ordered:
            lease, number = one.place
            self._ledger.records[lease].note_order(number, one.kind, one.at)
        return ordered

    def _has_room(self, order: OperationRequest) -> bool:
        """Tell whether a host has room for what should be there already.

        Who is to leave it may be late as well.
        """
        host = self._cloud_state.hosts.get(order.host or '')
        if order.kind not in _COMING or host is None:
            return True
        there = self._there.get(host.name, [0] * len(host.total))
        both = [held + more for held, more in zip(
            there, self._needs(order), strict=True)]
        if any(amount > most for amount, most in zip(
                both, host.total, strict=True)):
            return False
        self._there[host.name] = both
        return True

    def _needs(self, order: OperationRequest) -> tuple[int, ...]:
        lease, number = order.place
        record = self._ledger.records[lease]
        set_ = dict((one, index) for index, one in record.sets())[number]
        return record.lease.terms.nodes[set_].need

    def _expected(self, record: LeaseRecord) -> dict[LeaseOperation, float]:
        memory_mb = max(one.need[1] for one in record.lease.terms.nodes)
        return {kind: self._estimates.of(kind, memory_mb)
                for kind in LeaseOperation}
