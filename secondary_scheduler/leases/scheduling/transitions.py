# SPDX-License-Identifier: Apache-2.0

"""State transitions of leases when phases of their bookings are due."""

from collections.abc import Callable

from secondary_scheduler.leases.scheduling.lease import Booking, Lease
from secondary_scheduler.leases.scheduling.planner import Planner
from secondary_scheduler.leases.scheduling.schedule_state import (
    BEGIN,
    DOWN,
    END,
    UP,
    ScheduleState,
)
from secondary_scheduler.model.lease_states import LeaseState

#: Seconds, and share of its duration, by which a lease may run for less than
#: its duration and still be done.
SHORT_S, SHORT = 10, 0.01


class Transitions:
    """Changes leases as their bookings begin, resume, stop and end.

    ``shutdown_s`` is how long VMs take to shut down at the end of a lease.
    """

    def __init__(self, state: ScheduleState, planner: Planner,
                 shutdown_s: int) -> None:
        self._state = state
        self._planner = planner
        self._shutdown_s = shutdown_s

    def process_due_events(self, now: int) -> None:
        """Process all events up to ``now``, in order."""
        for event in self._state.due_events(now):
            if event.booking is not None:
                _HANDLERS[event.phase](self, event.lease, event.booking)

    def begin(self, lease: Lease, booking: Booking) -> None:
        """Begin a booking: its VMs run, or resume."""
        if not lease.ahead:
            return      # already begun, when it was booked
        self._state.forget_planned_start(lease)
        enter_state = self._state.enter_state
        lease.hosts = booking.slot.hosts
        if lease.home is None:
            if lease.state is not LeaseState.READY:
                enter_state(lease, LeaseState.READY)
            self._run(lease)
        else:
            if any((old != new).any() for old, new
                   in zip(lease.home, booking.vms, strict=True)):
                enter_state(lease, LeaseState.MIGRATING)
                enter_state(lease, LeaseState.SUSPENDED_SCHEDULED)
            lease.home = None
            lease.resumes += 1
            lease.suspended_s += self._state.now - lease.saved_at
            enter_state(lease, LeaseState.RESUMING)
            self._state.add_event(lease, booking, UP, booking.up)
        self._state.add_event(lease, booking, DOWN, booking.down)

    def _up(self, lease: Lease, booking: Booking) -> None:
        self._state.enter_state(lease, LeaseState.RESUMED_READY)
        self._run(lease)

    def _run(self, lease: Lease) -> None:
        if lease.started is None:
            lease.started = self._state.now
        self._state.enter_state(lease, LeaseState.ACTIVE)

    def _down(self, lease: Lease, booking: Booking) -> None:
        lease.served += booking.down - booking.up
        if booking.saves:
            lease.suspends += 1
            self._state.enter_state(lease, LeaseState.SUSPENDING)
            self._state.add_event(lease, booking, END, booking.end)
        elif booking.loses:
            lease.served, lease.started = 0, None
            lease.requeues += 1
            self._release(lease)
        else:
            duration = lease.terms.duration
            short = duration - lease.served > max(
                SHORT_S, SHORT * duration)
            self.finish(lease, LeaseState.FAILED if short else LeaseState.DONE)

    def end_suspension(self, lease: Lease, booking: Booking) -> None:
        """Release the hosts of a lease whose memory has been saved."""
        lease.home, lease.saved_at = booking.vms, self._state.now
        self._state.enter_state(lease, LeaseState.SUSPENDED_PENDING)
        self._release(lease)

    def _release(self, lease: Lease) -> None:
        """Requeue a preempted lease, or activate its later booking."""
        later = lease.later
        self._state.release(lease)
        self._state.enqueue(self._planner.queue_entry(lease))
        if later is None:
            self._state.cancel_transfers(lease)
        else:
            self._state.dequeue(lease)
            self._state.book(lease, later)

    def finish(self, lease: Lease,
               state: LeaseState = LeaseState.DONE) -> None:
        """End a lease; its hosts are free once its VMs are shut down."""
        self._state.release_after(lease, self._shutdown_s)
        lease.ended = self._state.now
        self._state.enter_state(lease, state)


_HANDLERS: dict[int, Callable[[Transitions, Lease, Booking], None]] = {
    BEGIN: Transitions.begin, UP: Transitions._up, DOWN: Transitions._down,
    END: Transitions.end_suspension}
