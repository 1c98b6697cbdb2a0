"""One pass after the other: the cloud is looked at, and operations ordered.

What a pass decides is written before anything is ordered.  Whatever goes
wrong, the engine forgets all that it knows and begins anew from the database;
so it does as it starts, and one that takes over from another.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses

from oslo_db import exception as db_exception
from oslo_log import log as logging

from secondary_scheduler.lease_api.db import models, schedules
from secondary_scheduler.lease_api.db.quotes import Quotes
from secondary_scheduler.lease_api.db.schedules import Wish
from secondary_scheduler.lease_api.db.session import Database
from secondary_scheduler.lease_api.db.store import Store
from secondary_scheduler.lease_engine import (
    adopting,
    caching,
    capacity,
    dues,
    failures,
    holding,
    quoting,
    seen,
    telling,
)
from secondary_scheduler.lease_engine.estimates import Estimates
from secondary_scheduler.lease_engine.ledger import Ledger
from secondary_scheduler.lease_engine.records import (
    Node,
    Record,
    UnknownFlavorError,
    terms,
)
from secondary_scheduler.lease_engine.values import (
    Cloud,
    Kind,
    Order,
    Postponed,
    Sight,
)
from secondary_scheduler.leases import states
from secondary_scheduler.leases.lease import Lease, TermsError
from secondary_scheduler.leases.planner import Settings
from secondary_scheduler.leases.promises import UnpausableError
from secondary_scheduler.leases.states import State
from secondary_scheduler.model.holds import Hold

LOG = logging.getLogger(__name__)

#: What takes room on a host.
_COMING = (Kind.BOOT, Kind.RESUME)
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

    def __init__(self, database: Database, store: Store, cloud: Cloud,
                 options: Options, clock: Callable[[], float]) -> None:
        self._database = database
        self._store = store
        self._quotes = Quotes(database, clock)
        self._cloud = cloud
        self._options = options
        self._clock = clock
        self._lendable = capacity.Lendable(options.window, options.risk)
        self._recovery = failures.Recovery(options.lead, options.give_up)
        self._waiting: list[models.Lease] = []
        self._ledger: Ledger | None = None
        self._trouble, self._beaten = '', 0.0
        #: What is held for servers of leases, as of the last pass.
        self.holds: dict[str, Hold] = {}

    @property
    def records(self) -> Mapping[str, Record]:
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
        sight = self._cloud.look(ledger.servers() if ledger
                                 else Ledger.servers_in(rows))
        estimates = Estimates(self._options.settings.durations,
                              self._options.boot_s, sight.took)
        if ledger is not None and not ledger.fits(sight, estimates):
            ledger = None
            passes, rows = schedules.read(self._database)
        if ledger is None:
            self._waiting = []
            ledger = self._ledger = Ledger(
                self._database, self._options.settings, sight, estimates,
                passes, int(now))
            ledger.restore(rows)
        self._lendable.note(sight.hosts, now)
        self._withhold(ledger, sight, now)
        one = _Pass(self._options, ledger, sight, estimates, now)
        one.see(wishes)
        self._adopt(ledger, sight, now)
        if self._recovery.handle(ledger, sight, now):
            self._withhold(ledger, sight, now)
        copies = caching.Copies(ledger.records.values(), sight, now,
                                self._options.fetch_s)
        ledger.scheduler.away = copies.away(ledger.hosts)
        self._take_new(ledger, sight, now, [
            row for row, text in rows if text is None])
        ledger.scheduler.fill()
        quoting.answer(self._quotes, ledger.scheduler, sight.flavors,
                       self._options.boot_s)
        orders = one.orders(copies)
        # As late as what the store has told of leases in this pass.
        ledger.write(max(int(now), self._store.now), self._store,
                     anyway=bool(orders))
        # Who is admitted now boots as long as those of leases do.
        self.holds = holding.holds(
            ledger.records.values(), sight, ledger.hosts,
            now + self._options.lead + self._options.boot_s)
        if orders:
            self._cloud.order(orders)
        for order in orders:
            LOG.info('Lease %(lease)s: %(kind)s of node %(node)d is ordered '
                     'for %(when).1f s from now.', {
                         'lease': order.place[0], 'kind': order.kind,
                         'node': order.place[1], 'when': order.at - now})

    def _adopt(self, ledger: Ledger, sight: Sight, now: float) -> None:
        """Make servers without a lease leases, if these can be suspended."""
        found = (adopting.strays(sight, ledger.records)
                 if self._options.settings.suspension else [])
        for server in found:
            ledger.adopt(adopting.record(server, int(now)), int(now))
        if found:
            self._withhold(ledger, sight, now)

    def _take_new(self, ledger: Ledger, sight: Sight, now: float,
                  pending: Sequence[models.Lease]) -> None:
        waiting, self._waiting = self._waiting, []
        again = {row.uuid for row in waiting}
        for row in [*pending, *waiting, *self._store.take_new()]:
            try:
                asked = terms(row, sight.flavors, self._options.boot_s)
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
            ledger.submit(Record(
                row, Lease(row.uuid, asked, row.created_at),
                self._options.boot_s,
                [Node() for one in row.nodes for _ in range(one.number)]),
                int(now))

    def _withhold(self, ledger: Ledger, sight: Sight, now: float) -> None:
        """Keep from leases what hosts cannot lend."""
        ledger.withhold(sight, self._lendable, self._recovery.avoided(now),
                        int(now))


class _Pass:
    """What one look at the cloud leads to."""

    def __init__(self, options: Options, ledger: Ledger, sight: Sight,
                 estimates: Estimates, now: float) -> None:
        self._options = options
        self._ledger = ledger
        self._scheduler = ledger.scheduler
        self._sight = sight
        self._estimates = estimates
        self._now = now
        # What secondaries hold of each host, and what is sent there at once.
        self._there = capacity.taken_by_others(sight, frozenset())

    # -- what is seen

    def see(self, wishes: Mapping[str, Wish]) -> None:
        """Take in what has happened, and let come true what was planned."""
        ledger, now = self._ledger, int(self._now)
        labelled = seen.by_lease(self._sight, ledger.servers())
        for record in ledger.records.values():
            for kind, text in seen.take_in(record, self._sight,
                                           labelled.get(record.uuid, ()),
                                           self._now, self._options.lead):
                ledger.tell(record, kind, text)
            self._count(record)
        self._listen(wishes)
        self._catch_up(now)
        for record in list(ledger.records.values()):
            self._see(record, now)

    def _count(self, record: Record) -> None:
        """Count the time in which all servers of a lease run.

        What a lease has not run of its time, although its owner did not keep
        it from that, makes it stay longer.
        """
        lease, stay, now = record.lease, record.lease.stay, self._now
        served, active = record.served, lease.state is State.ACTIVE
        why = seen.interruption(record, self._sight) if active else None
        served.observe(now, active and seen.all_run(record, self._sight),
                       why is not None and why.excused)
        if why is not None and not (why.brief and record.cause):
            record.cause = why.text
        if not active or record.adopted or stay is None or (
                stay.down <= now + self._options.lead):
            return
        late = (lease.served + now - stay.up - record.boot_s
                - served.seconds - served.excused)
        if late >= _LATE_S:
            idle = now - max(served.until, stay.begin)
            self._scheduler.delay(lease, int(late), int(now),
                                  longer=idle < self._options.give_up)

    def _listen(self, wishes: Mapping[str, Wish]) -> None:
        """Hear what owners want."""
        now = int(self._now)
        for record in self._ledger.records.values():
            wish, lease = wishes.get(record.uuid), record.lease
            if wish is None or lease.state in states.FINAL:
                continue
            if wish.wanted_end:
                self._scheduler.cancel(lease, now)
            elif wish.hold != record.heard:
                record.heard = wish.hold
                self._pause(record, wish.hold, now)

    def _pause(self, record: Record, hold: bool, now: int) -> None:
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
                    if record.lease.state is State.SUSPENDING
                    and record.lease.stay is not None
                    and record.lease.stay.end <= due
                    and not seen.is_saved(record, self._sight)]
            for record in late:
                stay = record.lease.stay
                assert stay is not None
                scheduler.overrun(record.lease, now + max(
                    2, stay.end - stay.down))
                self._ledger.tell(record, 'late', (
                    'it is suspended later than planned'))
            if not late:
                scheduler.advance(due)
        scheduler.advance(now)

    def _see(self, record: Record, now: int) -> None:
        lease, sight = record.lease, self._sight
        if lease.state in (State.ACTIVE, State.SUSPENDING):
            self._ledger.follow(record, now)
        if lease.state is State.SUSPENDING and seen.is_off(record, sight):
            self._scheduler.saved(lease, now)
        elif lease.state is State.ACTIVE and seen.has_ended(record, sight):
            self._scheduler.finish(lease, now)
        elif lease.state in states.SAVED and all(
                node.gone for node in record.nodes):
            lease.reason = lease.reason or 'its servers have been deleted'
            self._scheduler.cancel(lease, now)
        for one in telling.of(record, self._now, self._options.notice):
            self._ledger.tell(record, one.kind, one.text)

    # -- what is due

    def orders(self, copies: caching.Copies) -> list[Order]:
        """Return the operations that are due, what frees hosts first."""
        now, lead = self._now, self._options.lead
        found: list[Order] = []
        for record in self._ledger.records.values():
            found += dues.orders(record, self._sight, self._ledger.hosts, now,
                                 lead, self._expected(record))
            found += dues.notices(record, self._sight, now, lead,
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

    def _has_room(self, order: Order) -> bool:
        """Tell whether a host has room for what should be there already.

        Who is to leave it may be late as well.
        """
        host = self._sight.hosts.get(order.host or '')
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

    def _needs(self, order: Order) -> tuple[int, ...]:
        lease, number = order.place
        record = self._ledger.records[lease]
        set_ = dict((one, index) for index, one in record.sets())[number]
        return record.lease.terms.nodes[set_].need

    def _expected(self, record: Record) -> dict[Kind, float]:
        memory_mb = max(one.need[1] for one in record.lease.terms.nodes)
        return {kind: self._estimates.of(kind, memory_mb) for kind in Kind}
