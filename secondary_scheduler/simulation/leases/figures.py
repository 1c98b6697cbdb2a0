"""What a run of a workload of leases comes to, lease by lease and in all."""

from collections.abc import Sequence
import csv
import statistics
import typing

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.pricing import price
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.simulation.leases.run import Outcome

#: The share of best-effort leases, the first submitted, that is left out of
#: the trimmed means: the site is empty at first (Haizea 6.1).
TRIMMED = 0.05
#: Shorter runs count as so many seconds, or their slowdown would be all.
_SHORTEST = 10

COLUMNS = ('lease_id', 'kind', 'submitted', 'start', 'end', 'nodes',
           'requested_s', 'ran_s', 'wait_s', 'slowdown', 'state', 'preempted',
           'suspended_s', 'hosts')


def wait(one: Outcome) -> int:
    """Return how long a lease waited to begin, in seconds."""
    assert one.lease.started is not None
    return one.lease.started - one.lease.submitted


def turnaround(one: Outcome) -> int:
    """Return how long it was from a lease's arrival to its end, in seconds."""
    assert one.lease.ended is not None
    return one.lease.ended - one.lease.submitted


def slowdown(one: Outcome) -> float:
    """Return the bounded slowdown: how much longer than it runs it took.

    That is counted on machines of its own, without VMs (Haizea 6.1).
    """
    bare = one.request.runs if one.request.bare is None else one.request.bare
    return max(1.0, turnaround(one) / max(_SHORTEST, bare))


def figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the figures of a run, by the names of EXPERIMENTS 1."""
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
    """Return what was earned and missed, of what could have been earned.

    The four add up to the revenue if each lease were sold for the most that
    is paid for it (Haizea 6.1).
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

    Each VM is taken to have a host of its own (Haizea 6.1).
    """
    busy = sum(sum(one.lease.terms.numbers)
               * max(0, min(until, end) - max(since, start))
               for one in outcomes for since, until in one.held)
    return 100 * busy / (hosts * (end - start))


def row(one: Outcome) -> tuple[object, ...]:
    """Return what a table has of a lease, by ``COLUMNS``."""
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


def write(outcomes: Sequence[Outcome], file: typing.TextIO) -> None:
    """Write a table of leases as CSV, one row each."""
    rows = csv.writer(file)
    rows.writerow(COLUMNS)
    rows.writerows(row(one) for one in outcomes)
