"""What a site may decide for itself: who is let in, and who gives way.

Each is a driver that an operator chooses by name (stevedore namespace
``secondary_scheduler.lease_policies``); Haizea's are here.
"""

import typing

from secondary_scheduler.leases.scheduling.lease import Kind, Lease

_WEEK = 7 * 24 * 3600
_MONTH = 31 * 24 * 3600


class RefusedError(Exception):
    """A lease is not let in; says why, and what would be."""


class AdmissionPolicy(typing.Protocol):
    """Who may have leases at all, whether or not there is room."""

    def check(self, lease: Lease, now: int) -> None:
        """Raise RefusedError if a lease is not let in."""


class Preemption(typing.Protocol):
    """Who gives way to whom."""

    def score(self, preemptor: Lease, preemptee: Lease, start: int, now: int
              ) -> float:
        """Return how readily one gives way at ``start``; below 0 never."""


class _Policy:
    """A policy that no option changes."""

    def __init__(self, options: typing.Any = None) -> None:
        """Take no notice of options."""


class AcceptAll(_Policy):
    """Who fits may come in."""

    def check(self, lease: Lease, now: int) -> None:
        """Let a lease in."""


class NoReservations(_Policy):
    """Nobody gets hosts at an exact time that is to come."""

    def check(self, lease: Lease, now: int) -> None:
        """Refuse reservations."""
        if lease.terms.kind is Kind.RESERVATION:
            raise RefusedError('there are no reservations here; ask for a '
                               'deadline, or for no time')


class MinimumNotice:
    """Reservations have to be asked for some time ahead (REQ-016)."""

    def __init__(self, options: typing.Any) -> None:
        """Read ``reservation_notice``, in seconds."""
        self._notice: int = options.reservation_notice

    def check(self, lease: Lease, now: int) -> None:
        """Refuse reservations that come too late."""
        start = lease.terms.start
        if lease.terms.kind is Kind.RESERVATION and start is not None and (
                start < now + self._notice):
            raise RefusedError(
                f'a reservation is asked for at least {self._notice} s ahead; '
                f'from now on that is {now + self._notice}')


class NoPreemption(_Policy):
    """Nobody gives way."""

    def score(self, preemptor: Lease, preemptee: Lease, start: int, now: int
              ) -> float:
        """Return -1."""
        return -1.0


class LeastRun(_Policy):
    """Best effort gives way to promises; who has run least does so first.

    Haizea's "ar-preempts-everything", by run time, as its example says
    (AMB-6).
    """

    def score(self, preemptor: Lease, preemptee: Lease, start: int, now: int
              ) -> float:
        """Return 1 for a lease that has not run, less the longer it has."""
        if not _best_effort(preemptor, preemptee):
            return -1.0
        ran = preemptee.served
        if preemptee.booking is not None and not preemptee.ahead:
            ran += max(now - preemptee.booking.up, 0)
        return _MONTH / (_MONTH + ran)


class Youngest(_Policy):
    """Best effort gives way to promises; the latest submitted does so first.

    As Haizea's program, which never takes one older than seven days.
    """

    def score(self, preemptor: Lease, preemptee: Lease, start: int, now: int
              ) -> float:
        """Return 1 for a lease submitted now, -1 for one older than a week."""
        age = now - preemptee.submitted
        if age > _WEEK or not _best_effort(preemptor, preemptee):
            return -1.0
        return (_MONTH - age) / _MONTH


class MostSlack(LeastRun):
    """As LeastRun; who can be late and yet meet its deadline gives way too.

    Haizea 4.7: after best effort, in the order of the time that would be left
    to them.
    """

    def score(self, preemptor: Lease, preemptee: Lease, start: int, now: int
              ) -> float:
        """Return up to 0.5 for a lease that meets its deadline afterwards."""
        deadline, booking = preemptee.terms.deadline, preemptee.booking
        if (preemptee.terms.kind is not Kind.DEADLINE or deadline is None
                or booking is None or not preemptee.terms.preemptible
                or preemptor.terms.kind is Kind.BEST_EFFORT):
            return super().score(preemptor, preemptee, start, now)
        delay = (preemptee.save_s + preemptor.terms.duration
                 + preemptee.load_s)
        remaining = max(booking.down - max(start, booking.up), 1)
        left = deadline - start - delay
        if left <= remaining:
            return -1.0
        return 0.5 * (1 - remaining / left)


def _best_effort(preemptor: Lease, preemptee: Lease) -> bool:
    return (preemptee.terms.preemptible
            and preemptee.terms.kind is Kind.BEST_EFFORT
            and preemptor.terms.kind is not Kind.BEST_EFFORT)
