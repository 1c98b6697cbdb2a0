# SPDX-License-Identifier: Apache-2.0

"""Answers to lease requests: rejection, queueing, booking, and quotes."""

import contextlib
import dataclasses

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Lease,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.scheduling.planned_starts import PlannedStarts
from secondary_scheduler.leases.scheduling.planner import Planner, Settings
from secondary_scheduler.leases.scheduling.policies import RefusedError
from secondary_scheduler.leases.scheduling.pricing import price
from secondary_scheduler.leases.scheduling.schedule_state import (
    InfeasibleError,
    ScheduleState,
)
from secondary_scheduler.model.lease_states import LeaseState


@dataclasses.dataclass(frozen=True)
class ScheduleOffer:
    """Booking and price of a lease, for its terms or the nearest feasible.

    ``booking`` meets the terms if ``accepted``; else it is the first feasible
    one, or None if there is none.  For best effort it ignores the queue.
    ``rate`` is per node and second.
    """

    accepted: bool
    rate: float
    price: float
    booking: Booking | None


class AdmissionControl:
    """Accepts or rejects leases by policy, capacity and price."""

    def __init__(self, settings: Settings, state: ScheduleState,
                 planner: Planner, planned_starts: PlannedStarts) -> None:
        self._settings = settings
        self._state = state
        self._planner = planner
        self._planned_starts = planned_starts

    def submit(self, lease: Lease) -> None:
        """Reject, queue or book a pending lease."""
        try:
            self._planner.check_terms(lease.terms)
            self._settings.admission.check(lease, self._state.now)
        except (TermsError, RefusedError) as exc:
            self._reject(lease, str(exc))
            return
        pricing, terms = self._settings.pricing, lease.terms
        rate = self._rate(terms)
        lease.price = price(terms, rate)
        affordable = terms.max_rate is None or rate <= terms.max_rate
        if not (self._accept(lease) if affordable
                else self._try_accept(lease)[0]):
            self._reject(lease, 'there is no room for it at its time')
            return
        if pricing is not None:
            pricing.observe(terms.user, rate, affordable)
        if not affordable:
            self._reject(lease, f'at {rate:g} for a node and a second it is '
                         f'more than {terms.max_rate:g}',
                         LeaseState.REJECTED_BY_USER)

    def _accept(self, lease: Lease) -> bool:
        """Queue a lease, or book it as requested; False if infeasible."""
        if lease.terms.kind is not LeaseKind.BEST_EFFORT:
            return self._planned_starts.book_as_requested(lease)
        self._state.enqueue(self._planner.queue_entry(lease))
        return True

    def _try_accept(self, lease: Lease) -> tuple[bool, Booking | None]:
        """Return whether a lease is feasible, and its booking.

        Nothing changes.
        """
        accepted, booking = False, None
        with contextlib.suppress(InfeasibleError), self._state.attempt(
                lease):
            accepted, booking = self._accept(lease), lease.booking
            raise InfeasibleError(lease)
        return accepted, booking

    def quote(self, terms: Terms) -> ScheduleOffer:
        """Return the offer for a new lease; nothing changes.

        :raises TermsError: if an empty site could not hold it.
        :raises RefusedError: if the admission policy rejects it.
        """
        lease = Lease('', terms, self._state.now, number=-1,
                      state=LeaseState.PENDING)
        lease.load_s, lease.save_s = self._planner.minimum_overheads(terms)
        self._planner.check_terms(terms)
        self._settings.admission.check(lease, self._state.now)
        accepted, booking = self._try_accept(lease)
        if terms.kind is LeaseKind.BEST_EFFORT:
            booking = self._planner.find_earliest_booking(
                lease.work, self._state.now)
        elif not accepted:
            booking = self._planned_starts.next_possible_booking(lease)
        rate = self._rate(terms)
        return ScheduleOffer(accepted, rate, price(terms, rate), booking)

    def _rate(self, terms: Terms) -> float:
        pricing = self._settings.pricing
        return 0.0 if pricing is None else pricing.rate(terms)

    def _reject(self, lease: Lease, reason: str,
                state: LeaseState = LeaseState.REJECTED) -> None:
        lease.reason, lease.ended = reason, self._state.now
        self._state.enter_state(lease, state)
