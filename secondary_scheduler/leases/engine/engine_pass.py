# SPDX-License-Identifier: Apache-2.0

"""One pass of the engine over all leases: observation and operations."""

from collections.abc import Mapping

from secondary_scheduler.leases.api.db.schedules import OwnerRequests
from secondary_scheduler.leases.engine import (
    capacity,
    events,
    image_cache,
    observation,
    reconcile,
)
from secondary_scheduler.leases.engine.estimates import Estimates
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.engine.schedule_ledger import ScheduleLedger
from secondary_scheduler.leases.engine.values import (
    BY_TRUST,
    CloudState,
    LeaseOperation,
    OperationRequest,
)
from secondary_scheduler.leases.scheduling.planned_starts import (
    UnpausableError,
)
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState

#: Operations that need room on a host.
_ARRIVALS = (LeaseOperation.BOOT, LeaseOperation.RESUME)
#: Seconds of running time that a lease may lack before it is extended.
_LATE_S = 1.0


class EnginePass:
    """One pass over all leases, for one observed state of the cloud.

    :param lead: seconds by which operations are ordered ahead.
    :param notice: seconds by which servers are notified of a preemption.
    :param give_up: seconds after which an interruption no longer extends a
        lease.
    """

    def __init__(
        self,
        lead: float,
        notice: float,
        give_up: float,
        ledger: ScheduleLedger,
        cloud_state: CloudState,
        estimates: Estimates,
        now: float,
    ) -> None:
        self._lead = lead
        self._notice = notice
        self._give_up = give_up
        self._ledger = ledger
        self._scheduler = ledger.scheduler
        self._cloud_state = cloud_state
        self._estimates = estimates
        self._now = now
        # Amounts in use on each host, including orders of this pass.
        self._used = capacity.sum_used(cloud_state, frozenset())

    # -- observation

    def observe_leases(self, wanted: Mapping[str, OwnerRequests]) -> None:
        """Update all leases from the observed state, and process due events.

        :param wanted: requests of owners, by UUID of the lease.
        """
        ledger, now = self._ledger, int(self._now)
        labelled = observation.servers_by_label(
            self._cloud_state, ledger.known_servers())
        for record in ledger.records.values():
            for kind, text in observation.update_record(
                record,
                self._cloud_state,
                labelled.get(record.uuid, ()),
                ledger.hosts,
                self._now,
                self._lead,
            ):
                ledger.add_event(record, kind, text)
            self._count_served_time(record)
        self._apply_requests(wanted)
        self._process_due_events(now)
        for record in list(ledger.records.values()):
            self._update_schedule(record, now)
            self._end_served_time(record)

    def _count_served_time(self, record: LeaseRecord) -> None:
        """Count the time in which all servers of a lease run.

        Time in which servers of an active lease did not run, unless their
        owner caused it, is discounted and extends the lease.
        """
        lease, booking, now = record.lease, record.lease.booking, self._now
        served, active = record.served, lease.state is LeaseState.ACTIVE
        why = (observation.find_interruption(record, self._cloud_state)
               if active else None)
        if lease.state in lease_states.FINAL:
            return
        running = observation.all_run(record, self._cloud_state)
        served.observe(
            now,
            running if active or running is None else False,
            why is not None and why.excused,
        )
        if why is not None and not (why.brief and record.cause):
            record.cause = why.text
        if not active or record.adopted or booking is None:
            return
        if running is None and served.since is not None:
            return      # whether it lacks time is known later
        late = (lease.served + min(now, booking.down) - booking.up
                - record.boot_s - served.seconds - served.excused)
        if booking.down <= now:
            # They ran on while no engine was there to end them.
            self._scheduler.credit(lease, max(0, -int(late)))
        elif booking.down > now + self._lead and late >= _LATE_S:
            idle = now - max(served.until, booking.begin,
                             record.last_unreachable)
            self._scheduler.delay(lease, int(late), int(now),
                                  longer=idle < self._give_up)

    def _end_served_time(self, record: LeaseRecord) -> None:
        """End the served time of a lease that is over.

        If its servers are unseen, that waits until they are seen again.  Only
        then a shortfall is known.
        """
        served, lease = record.served, record.lease
        if lease.state not in lease_states.FINAL:
            return
        ran_on = observation.ran_on(record, self._cloud_state)
        if ran_on is None:
            return
        if ran_on and lease.ended is not None:
            served.until = max(served.until, lease.ended)
        served.end_stretch()
        if lease.state in (LeaseState.DONE, LeaseState.FAILED):
            lease.reason = lease.reason or events.describe_shortfall(record)

    def _apply_requests(self, wanted: Mapping[str, OwnerRequests]) -> None:
        """Pass new requests of owners on to the scheduler."""
        now = int(self._now)
        for record in self._ledger.records.values():
            request, lease = wanted.get(record.uuid), record.lease
            if request is None or lease.state in lease_states.FINAL:
                continue
            if request.wanted_end:
                self._scheduler.cancel(lease, now)
            elif request.hold != record.request_acknowledged:
                record.request_acknowledged = request.hold
                self._pause(record, request.hold, now)

    def _pause(self, record: LeaseRecord, hold: bool, now: int) -> None:
        if not hold:
            self._scheduler.unpause(record.lease, now)
            return
        try:
            self._scheduler.pause(record.lease, now)
        except UnpausableError as exc:
            self._ledger.add_event(record, 'not-paused', str(exc))

    def _process_due_events(self, now: int) -> None:
        """Process due events of the schedule in order.

        A lease whose suspend has not started is re-planned, never recorded
        as suspended.  If its cell does not answer, the plan goes on: leases
        that are to follow on its hosts are in the same cell, and wait too.
        """
        scheduler = self._scheduler
        while (due := scheduler.next_time()) is not None and due <= now:
            late = [record for record in self._ledger.records.values()
                    if record.lease.state is LeaseState.SUSPENDING
                    and record.unreachable_since is None
                    and record.lease.booking is not None
                    and record.lease.booking.end <= due
                    and not observation.is_saved(record, self._cloud_state)]
            for record in late:
                booking = record.lease.booking
                assert booking is not None
                scheduler.extend_suspension(record.lease, now + max(
                    2, booking.end - booking.down))
                if record.register_event('suspended late'):
                    self._ledger.add_event(record, 'late', (
                        'it is suspended later than planned'))
            if not late:
                scheduler.advance(due)
        scheduler.advance(now)

    def _update_schedule(self, record: LeaseRecord, now: int) -> None:
        """Tell the scheduler of deviations from the plan; add due events."""
        lease, cloud_state = record.lease, self._cloud_state
        if lease.state in (LeaseState.ACTIVE, LeaseState.SUSPENDING):
            self._ledger.follow_migrations(record, now)
        if lease.state is LeaseState.SUSPENDING and observation.is_off(
                record, cloud_state):
            self._scheduler.end_suspension(lease, now)
        elif lease.state is LeaseState.ACTIVE and observation.has_ended(
                record, cloud_state):
            self._scheduler.finish(lease, now)
        elif lease.state in lease_states.SAVED and all(
                node.gone for node in record.nodes):
            lease.reason = lease.reason or 'its servers have been deleted'
            self._scheduler.cancel(lease, now)
        for one in events.due_events(record, self._now, self._notice):
            self._ledger.add_event(record, one.kind, one.text)

    # -- operations

    def due_operations(self, copies: image_cache.ImageCopies
                       ) -> list[OperationRequest]:
        """Return the due operations by time, suspends before boots.

        Those that may not be ordered yet are left to later passes.
        """
        now, lead = self._now, self._lead
        found: list[OperationRequest] = []
        for record in self._ledger.records.values():
            found += reconcile.due_operations(
                record,
                self._cloud_state,
                self._ledger.hosts,
                now,
                lead,
                self._expected(record),
            )
            found += reconcile.due_notices(
                record, self._cloud_state, now, lead, self._notice)
            found += reconcile.due_verifications(
                record, self._cloud_state, now)
        found += copies.due_fetches(self._ledger.hosts)
        ordered = sorted(
            (one for one in found
             if (one.kind not in BY_TRUST
                 or self._ledger.records[one.place[0]].can_boot)
             and copies.permits(one)
             and (one.at > now or self._has_room(one))
             and self._ledger.host_rules.permit(
                 self._ledger.records[one.place[0]], one)),
            key=lambda one: (one.at, one.kind in _ARRIVALS))
        del ordered[self._cloud_state.free_operations:]
        for one in ordered:
            lease, number = one.place
            self._ledger.records[lease].note_order(number, one.kind, one.at)
        return ordered

    def _has_room(self, order: OperationRequest) -> bool:
        """Return whether the host of a boot or resume has room for it now.

        Servers that should have left the host may be late.  If there is
        room, it is taken.
        """
        host = self._cloud_state.hosts.get(order.host or '')
        if order.kind not in _ARRIVALS or host is None:
            return True
        there = self._used.get(host.name, [0] * len(host.total))
        both = [held + more for held, more in zip(
            there, self._needs(order), strict=True)]
        if any(amount > most for amount, most in zip(
                both, host.total, strict=True)):
            return False
        self._used[host.name] = both
        return True

    def _needs(self, order: OperationRequest) -> tuple[int, ...]:
        lease, number = order.place
        record = self._ledger.records[lease]
        return record.lease.terms.nodes[record.set_of(number)].need

    def _expected(self, record: LeaseRecord) -> dict[LeaseOperation, float]:
        memory_mb = max(one.need[1] for one in record.lease.terms.nodes)
        return {kind: self._estimates.expected_seconds(kind, memory_mb)
                for kind in LeaseOperation}
