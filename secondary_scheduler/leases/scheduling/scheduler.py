# SPDX-License-Identifier: Apache-2.0

"""Lease scheduler: queue, guaranteed starts and preemption.

Sotomayor 2010, chapter 5.  The caller passes the time; nothing here acts on a
cloud.  ``advance`` carries out the schedule; deviations from it, such as the
early end of a lease (``finish``), are reported by the caller.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import itertools

from secondary_scheduler.leases.scheduling.admission import (
    AdmissionControl,
    ScheduleOffer,
)
from secondary_scheduler.leases.scheduling.backfilling import Backfilling
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Lease,
    Terms,
)
from secondary_scheduler.leases.scheduling.planned_starts import (
    PlannedStarts,
    UnpausableError,
)
from secondary_scheduler.leases.scheduling.planner import Planner, Settings
from secondary_scheduler.leases.scheduling.replanning import Replanner
from secondary_scheduler.leases.scheduling.schedule_state import ScheduleState
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.table import (
    CapacityEntry,
    SlotTable,
)
from secondary_scheduler.leases.scheduling.transitions import Transitions
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import HOLDING, LeaseState


def _ignore_change(lease: Lease, before: LeaseState) -> None:
    """Default state-change callback; does nothing."""


class Scheduler:
    """Schedules all leases of a site.

    ``notify`` is called with each lease that enters a state, and its previous
    state.
    """

    def __init__(
        self,
        site: Site,
        settings: Settings,
        now: int = 0,
        notify: Callable[[Lease, LeaseState], object] = _ignore_change,
    ) -> None:
        shutdown = settings.durations.shutdown
        self._shutdown_s = shutdown
        self._state = ScheduleState(site, settings.durations.shared,
                                    settings.preparation, now, notify)
        self._planner = Planner(site, settings, self._state)
        self._planned_starts = PlannedStarts(settings, self._state,
                                             self._planner)
        self._admission = AdmissionControl(settings, self._state,
                                           self._planner,
                                           self._planned_starts)
        self._replanner = Replanner(self._state, self._planner,
                                    self._planned_starts)
        self._transitions = Transitions(self._state, self._planner, shutdown)
        self._backfilling = Backfilling(
            self._state, self._planner, self._planned_starts,
            self._transitions, settings.reservations)
        self._numbers = itertools.count()
        self._withheld: list[CapacityEntry] = []

    @property
    def now(self) -> int:
        """The present time."""
        return self._state.now

    @property
    def table(self) -> SlotTable:
        """The free capacity, now and later."""
        return self._state.table

    @property
    def queue(self) -> tuple[Lease, ...]:
        """The leases that wait for hosts, in order."""
        return tuple(one.lease for one in self._state.queue)

    @property
    def image_distance(self) -> Mapping[str, Ints]:
        """Distances of images from hosts; see ``ScheduleState``."""
        return self._state.image_distance

    @image_distance.setter
    def image_distance(self, image_distance: Mapping[str, Ints]) -> None:
        self._state.image_distance = image_distance

    def next_time(self) -> int | None:
        """Return the time of the next event, None if there is none."""
        return self._state.next_time()

    def advance(self, now: int) -> None:
        """Process all events up to ``now``, in order."""
        self._transitions.process_due_events(now)

    def fill(self) -> None:
        """Fill free capacity with queued leases; see ``Backfilling``."""
        self._backfilling.schedule_queue()

    # -- requests

    def submit(self, lease: Lease) -> None:
        """Reject, queue or book a new lease."""
        self._register(lease)
        self._admission.submit(lease)

    def quote(self, terms: Terms) -> ScheduleOffer:
        """Return the offer for a new lease; nothing changes.

        :raises TermsError: if an empty site could not hold it.
        :raises RefusedError: if the admission policy rejects it.
        """
        return self._admission.quote(terms)

    def _register(self, lease: Lease) -> None:
        lease.number = next(self._numbers)
        lease.load_s, lease.save_s = self._planner.minimum_overheads(
            lease.terms)
        self._state.enter_state(lease, LeaseState.PENDING)

    def restore(self, leases: Sequence[Lease]) -> None:
        """Take over stored leases, none of them new or in a final state."""
        for lease in leases:
            lease.load_s, lease.save_s = self._planner.minimum_overheads(
                lease.terms)
            if lease.booking is None:
                self._state.queue.add(self._planner.queue_entry(lease))
            else:
                self._state.restore(lease, lease.booking)
        self._numbers = itertools.count(
            1 + max((one.number for one in leases), default=-1))

    def adopt(self, lease: Lease, vms: tuple[Ints, ...], now: int) -> None:
        """Take over a best-effort lease whose VMs already run.

        It is suspended before other bookings of its hosts begin.  Withheld
        capacity does not preempt it: the caller withholds capacity anew,
        with the lease in the table.

        :param vms: for each node set the VMs on each host, shape (hosts,)
        """
        self._state.advance_clock(now)
        self._register(lease)
        self._state.enqueue(self._planner.queue_entry(lease))
        down, end = self._planner.end_times(lease.work, now)
        for one in self._withheld:
            self.table.give(one)
        slot = self._planner.capacity_entry(lease.terms, vms, now, end)
        until = self.table.fits_until(slot.hosts, slot.amounts, now)
        for one in self._withheld:
            self.table.take(one)
        self._backfilling.book(lease, Booking(
            now, now, down, end, vms, slot,
            self._planner.suspend_time(lease.terms, vms)))
        if until < end:
            self._replanner.suspend_by(lease, until)

    # -- deviations from the schedule

    def restart_lost(self, lease: Lease, now: int) -> None:
        """Restart a lease whose VMs and memory are lost.

        A lease with a guaranteed start is booked again at once.
        """
        self._state.advance_clock(now)
        lease.served, lease.started, lease.home = 0, None, None
        lease.requeues += 1
        self._replanner.restart_lost(lease)
        self._backfilling.replan_planned_starts()

    def record_move(self, lease: Lease, vms: tuple[Ints, ...], now: int
                    ) -> None:
        """Update the booking of a lease whose VMs were moved.

        It does not delay guaranteed starts on its new hosts.

        :param vms: for each node set the VMs on each host, shape (hosts,)
        """
        self._state.advance_clock(now)
        booking = lease.booking
        assert booking is not None
        with self._state.temporarily_released(booking):
            slot = self._planner.capacity_entry(
                lease.terms, vms, booking.slot.start, booking.slot.end)
        self._state.replace_booking(
            lease,
            dataclasses.replace(
                booking,
                vms=vms,
                slot=slot,
                save_s=self._planner.suspend_time(lease.terms, vms),
                operations=tuple(
                    self._state.disks.operation(
                        slot.hosts, one.start, one.end
                    )
                    for one in booking.operations
                ),
            ),
        )
        self._replanner.follow_move(lease)

    def finish(self, lease: Lease, now: int) -> None:
        """End a running lease that is done before its planned end."""
        self._state.advance_clock(now)
        booking = lease.booking
        if lease.state is not LeaseState.ACTIVE or booking is None:
            raise lease_states.IllegalTransitionError(
                f'lease {lease.id} cannot finish: it is {lease.state}')
        lease.served += now - booking.up
        self._transitions.finish(lease)
        if now < booking.down:
            self._backfilling.replan_planned_starts()

    def delay(self, lease: Lease, seconds: int, now: int,
              longer: bool = True) -> None:
        """Subtract seconds in which VMs did not run from the served time.

        :param longer: extend the booking by as much, requeueing planned
            starts; without room a preemptible best-effort lease is suspended
            at its end
        """
        self._state.advance_clock(now)
        booking = lease.booking
        if lease.state is not LeaseState.ACTIVE or booking is None:
            raise lease_states.IllegalTransitionError(
                f'lease {lease.id} cannot be delayed: it is {lease.state}')
        lease.served -= seconds
        if longer and not (booking.saves or booking.loses):
            self._replanner.extend_run(lease, seconds)

    @staticmethod
    def credit(lease: Lease, seconds: int) -> None:
        """Count seconds in which VMs ran after the end of their booking.

        Those of a lease that will be suspended or requeued are not counted.
        """
        booking = lease.booking
        if booking is not None and not (booking.saves or booking.loses):
            lease.served += seconds

    def end_suspension(self, lease: Lease, now: int) -> None:
        """End the suspension of a lease before its planned end."""
        self._state.advance_clock(now)
        self._transitions.end_suspension(
            lease, self._suspending_booking(lease))
        self._backfilling.replan_planned_starts()

    def extend_suspension(self, lease: Lease, until: int) -> None:
        """Extend a suspension that takes longer than planned.

        :param until: its expected end
        """
        if until <= self._suspending_booking(lease).end:
            raise ValueError(f'lease {lease.id} was planned to take that long')
        self._replanner.extend_suspension(lease, until)

    @staticmethod
    def _suspending_booking(lease: Lease) -> Booking:
        if lease.state is not LeaseState.SUSPENDING or lease.booking is None:
            raise lease_states.IllegalTransitionError(
                f'lease {lease.id} is {lease.state}, not being suspended')
        return lease.booking

    def withhold(self, slots: Sequence[CapacityEntry], now: int) -> None:
        """Withhold capacity for primaries, replacing what was withheld before.

        Best-effort leases are suspended or requeued for it, other leases are
        planned again if they have not begun.  The capacity is withheld even
        if it does not fit.
        """
        self._state.advance_clock(now)
        for slot in self._withheld:
            self._state.table.give(slot)
        self._withheld = list(slots)
        for slot in slots:
            self._replanner.withhold(slot)
        self._backfilling.replan_planned_starts()

    # -- wishes of owners, and failures

    def cancel(self, lease: Lease, now: int) -> None:
        """Cancel a lease at the request of its owner."""
        self._stop(lease, LeaseState.CANCELLED, now)

    def fail(self, lease: Lease, reason: str, now: int) -> None:
        """End a lease that cannot run, or cannot continue, as failed."""
        lease.reason = reason
        self._stop(lease, LeaseState.FAILED, now)

    def _stop(self, lease: Lease, state: LeaseState, now: int) -> None:
        """Release the hosts of a lease and enter a final state."""
        lease_states.check_transition(lease.id, lease.state, state)
        self._state.advance_clock(now)
        booking = lease.booking
        if booking is None:
            self._state.dequeue(lease)
        elif lease.ahead:
            self._state.release(lease)
        else:
            if lease.state is LeaseState.ACTIVE:
                lease.served += now - booking.up
            self._state.release_after(lease, self._shutdown_s)
        self._state.forget_images(lease)
        lease.ended = now
        self._state.enter_state(lease, state)
        self._backfilling.replan_planned_starts()

    def pause(self, lease: Lease, now: int) -> None:
        """Keep a best-effort lease from running; suspend it if it runs.

        :raises UnpausableError: if it has a guaranteed start, or runs and
            cannot be suspended.
        """
        self._state.advance_clock(now)
        if lease.terms.kind is not LeaseKind.BEST_EFFORT:
            raise UnpausableError(f'lease {lease.id} has a guaranteed start; '
                                  'it can be cancelled')
        if lease.ahead:
            self._planned_starts.requeue(lease)
        elif lease.state in HOLDING:
            self._planned_starts.suspend_lease(lease)
        lease.paused = True
        self._backfilling.replan_planned_starts()

    def block(self, lease: Lease, now: int) -> None:
        """Keep a best-effort lease without servers in the queue.

        Its ``blocked`` ends when the caller unsets it.
        """
        lease.blocked = True
        self._state.advance_clock(now)
        if lease.booking is None:
            return
        if lease.ahead:
            self._planned_starts.requeue(lease)
            self._backfilling.replan_planned_starts()
        else:
            self.restart_lost(lease, now)

    def unpause(self, lease: Lease, now: int) -> None:
        """Let a paused lease run again."""
        self._state.advance_clock(now)
        lease.paused = False
