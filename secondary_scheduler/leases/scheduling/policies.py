# SPDX-License-Identifier: Apache-2.0

"""Admission and preemption policies, loaded as stevedore drivers.

Namespaces ``admission`` and ``preemption`` of
``secondary_scheduler.lease_policies``.
"""

import typing

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import Lease

_WEEK = 7 * 24 * 3600
_MONTH = 31 * 24 * 3600


class RefusedError(Exception):
    """The lease is not admitted; the message says which lease would be."""


class AdmissionPolicy(typing.Protocol):
    """Policy that admits or rejects leases, regardless of free capacity."""

    def check(self, lease: Lease, now: int) -> None:
        """Raise RefusedError if a lease is not admitted."""


class Preemption(typing.Protocol):
    """Policy that selects leases to preempt."""

    def score(self, preemptor: Lease, preemptee: Lease, start: int, now: int
              ) -> float:
        """Return the preemptability at ``start``; below 0: never.

        Leases with the highest score are preempted first.
        """


class _Policy:
    """A policy without options."""

    def __init__(self, options: typing.Any = None) -> None:
        """Ignore options."""


class AcceptAll(_Policy):
    """Admit every lease that fits."""

    def check(self, lease: Lease, now: int) -> None:
        """Admit a lease."""


class NoReservations(_Policy):
    """Reject advance reservations."""

    def check(self, lease: Lease, now: int) -> None:
        """Reject reservations."""
        if lease.terms.kind is LeaseKind.RESERVATION:
            raise RefusedError('reservations are not admitted; ask for a '
                               'deadline, or for no time')


class MinimumNotice:
    """Reject reservations requested too late (Sotomayor 2010, section 4.3.1).
    """

    def __init__(self, options: typing.Any) -> None:
        """Read ``reservation_notice``, in seconds."""
        self._notice: int = options.reservation_notice

    def check(self, lease: Lease, now: int) -> None:
        """Reject reservations that start before the notice has passed."""
        start = lease.terms.start
        if (lease.terms.kind is LeaseKind.RESERVATION and start is not None
                and start < now + self._notice):
            raise RefusedError(
                'a reservation must be requested at least '
                f'{self._notice} s before its start; at present the earliest '
                f'start is {now + self._notice}')


class NoPreemption(_Policy):
    """Never preempt."""

    def score(self, preemptor: Lease, preemptee: Lease, start: int, now: int
              ) -> float:
        """Return -1."""
        return -1.0


class LeastRun(_Policy):
    """Preempt best-effort leases, the least run time first.

    Sotomayor 2010, section 4.3.2 (see reference/errata).
    """

    def score(self, preemptor: Lease, preemptee: Lease, start: int, now: int
              ) -> float:
        """Return 1 for a lease that has not run, less for longer runs."""
        if not _may_preempt(preemptor, preemptee):
            return -1.0
        ran = preemptee.served
        if preemptee.booking is not None and not preemptee.ahead:
            ran += max(now - preemptee.booking.up, 0)
        return _MONTH / (_MONTH + ran)


class Youngest(_Policy):
    """Preempt best-effort leases, the latest submitted first.

    As Haizea's program, never leases submitted more than seven days ago.
    """

    def score(self, preemptor: Lease, preemptee: Lease, start: int, now: int
              ) -> float:
        """Return 1 for a lease submitted now, -1 if older than a week."""
        age = now - preemptee.submitted
        if age > _WEEK or not _may_preempt(preemptor, preemptee):
            return -1.0
        return (_MONTH - age) / _MONTH


class MostSlack(LeastRun):
    """As LeastRun; then leases that can still meet their deadline.

    Sotomayor 2010, section 5.3: the most slack first.
    """

    def score(self, preemptor: Lease, preemptee: Lease, start: int, now: int
              ) -> float:
        """Return at most 0.5 for a lease with a deadline, if it can be met."""
        deadline, booking = preemptee.terms.deadline, preemptee.booking
        if (preemptee.terms.kind is not LeaseKind.DEADLINE or deadline is None
                or booking is None or not preemptee.terms.preemptible
                or preemptor.terms.kind is LeaseKind.BEST_EFFORT):
            return super().score(preemptor, preemptee, start, now)
        delay = (preemptee.save_s + preemptor.terms.duration
                 + preemptee.load_s)
        remaining = max(booking.down - max(start, booking.up), 1)
        left = deadline - start - delay
        if left <= remaining:
            return -1.0
        return 0.5 * (1 - remaining / left)


def _may_preempt(preemptor: Lease, preemptee: Lease) -> bool:
    """Return whether a best-effort lease may be preempted by another type."""
    return (preemptee.terms.preemptible
            and preemptee.terms.kind is LeaseKind.BEST_EFFORT
            and preemptor.terms.kind is not LeaseKind.BEST_EFFORT)
