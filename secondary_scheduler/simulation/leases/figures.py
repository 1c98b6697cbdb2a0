# SPDX-License-Identifier: Apache-2.0

"""Figures of a run of leases, lease by lease and in total."""

from collections.abc import Sequence
import csv
import statistics
import typing

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.pricing import price
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.simulation.leases.run import Outcome

#: Share of best-effort leases, the first submitted, left out of trimmed means,
#: since the site is empty at first (Sotomayor 2010, section 5.4).
TRIMMED = 0.05
#: Shortest run for a slowdown, in seconds; shorter ones would dominate it.
_SHORTEST = 10

COLUMNS = ('lease_id', 'kind', 'submitted', 'start', 'end', 'nodes',
           'requested_s', 'ran_s', 'wait_s', 'slowdown', 'state', 'preempted',
           'suspended_s', 'hosts')


def wait(one: Outcome) -> int:
    """Return the wait of a lease for its start, in seconds."""
    assert one.lease.started is not None
    return one.lease.started - one.lease.submitted


def turnaround(one: Outcome) -> int:
    """Return the time from submission to end of a lease, in seconds."""
    assert one.lease.ended is not None
    return one.lease.ended - one.lease.submitted


def slowdown(one: Outcome) -> float:
    """Return the bounded slowdown: turnaround by run time.

    The run time is that on physical machines (Sotomayor 2010, section 5.4).
    """
    bare = one.request.runs if one.request.bare is None else one.request.bare
    return max(1.0, turnaround(one) / max(_SHORTEST, bare))


def figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the figures of a run by name."""
    ended = [one for one in outcomes if one.lease.state is LeaseState.DONE]
    served = [one for one in ended
              if one.lease.terms.kind is LeaseKind.BEST_EFFORT]
    served.sort(key=lambda one: (one.lease.submitted, one.lease.number))
    reservations = [one.lease for one in outcomes
                    if one.lease.terms.kind in (LeaseKind.RESERVATION,
                                                LeaseKind.IMMEDIATE)]
    deadlines = [one.lease for one in outcomes
                 if one.lease.terms.kind is LeaseKind.DEADLINE]
    rejected = sum(one.state is LeaseState.REJECTED for one in reservations)
    found: dict[str, float] = {
        'all_best_effort_s': max((one.lease.ended or 0 for one in served),
                                 default=0)}
    for mean, trimmed, value in (
            ('wait_mean_s', 'wait_mean_trimmed_s', wait),
            ('turnaround_mean_s', 'turnaround_mean_trimmed_s', turnaround),
            ('bounded_slowdown_mean', 'bounded_slowdown_trimmed', slowdown)):
        values = [value(one) for one in served] or [0.0]
        found[mean] = statistics.fmean(values)
        found[trimmed] = statistics.fmean(
            values[round(TRIMMED * len(values)):])
    return found | {
        'reservations_accepted': len(reservations) - rejected,
        'reservations_rejected': rejected,
        'reservations_late': sum(
            one.started is not None
            and one.started > (one.submitted if one.terms.start is None
                               or one.terms.immediate else one.terms.start)
            for one in reservations),
        'deadlines_accepted': sum(one.state is not LeaseState.REJECTED
                                  for one in deadlines),
        'deadlines_missed': sum(
            one.ended is not None and one.terms.deadline is not None
            and one.state is LeaseState.DONE and one.ended > one.terms.deadline
            for one in deadlines),
        **_money(outcomes),
        **{name: sum(getattr(one.lease, name) for one in outcomes)
           for name in ('suspends', 'resumes', 'requeues')}}


def _money(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the revenue, and the revenue missed for each reason.

    The four add up to the total possible revenue, with each lease sold at the
    highest acceptable rate (Sotomayor 2010, chapter 8).
    """
    found = dict.fromkeys(('revenue', 'missed_underpricing', 'missed_price',
                           'missed_schedule'), 0.0)
    for one in outcomes:
        lease, most = one.lease, one.lease.terms.max_rate
        if most is None:
            continue
        worth = price(lease.terms, most)
        if lease.state is LeaseState.REJECTED_BY_USER:
            found['missed_price'] += worth
        elif lease.state is LeaseState.REJECTED:
            found['missed_schedule'] += worth
        else:
            found['revenue'] += lease.price
            found['missed_underpricing'] += worth - lease.price
    return found


def utilization(outcomes: Sequence[Outcome], hosts: int, start: int,
                end: int) -> float:
    """Return the share of hosts in use in [start, end), in percent.

    Each VM counts as a host of its own (Sotomayor 2010, section 5.5).
    """
    busy = sum(sum(one.lease.terms.numbers)
               * max(0, min(until, end) - max(since, start))
               for one in outcomes for since, until in one.held)
    return 100 * busy / (hosts * (end - start))


def table_row(one: Outcome) -> tuple[object, ...]:
    """Return the values of a lease in the order of ``COLUMNS``."""
    lease, terms = one.lease, one.lease.terms
    return (
        lease.id, terms.kind, lease.submitted,
        '' if lease.started is None else lease.started,
        '' if lease.ended is None else lease.ended, sum(terms.numbers),
        terms.duration, lease.served,
        '' if lease.started is None else wait(one),
        f'{slowdown(one):.3f}' if lease.state is LeaseState.DONE else '',
        lease.state, lease.suspends + lease.requeues, lease.suspended_s,
        ' '.join(map(str, lease.hosts.tolist())))


def write_table(outcomes: Sequence[Outcome], file: typing.TextIO) -> None:
    """Write a table of leases as CSV, one row each."""
    rows = csv.writer(file)
    rows.writerow(COLUMNS)
    rows.writerows(table_row(one) for one in outcomes)
