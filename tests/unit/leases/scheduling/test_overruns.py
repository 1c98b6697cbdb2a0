"""What takes longer than planned, or less."""

import random

import numpy as np
import pytest

from secondary_scheduler.conf.leases import OPTS
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.model.lease_states import (
    IllegalTransitionError,
    LeaseState,
)
from secondary_scheduler.simulation.leases import figures
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.workloads.requests import TraceRequest
from tests.unit.leases.scheduling.builders import Run, lease, site, terms

#: 1024 MB take 21 s to save.
SUSPENDS = 21


def suspending(hosts=1, **reserved):
    """Return a run in which a is being suspended for r, at 100."""
    run = Run(hosts)
    first, other = (lease('a', hosts, 1000),
                    lease('r', hosts, 50, start=100, preemptible=False,
                          **reserved))
    run.submit(first, other)
    run.until(100 - SUSPENDS)
    assert first.state is LeaseState.SUSPENDING
    return run, first, other


def test_who_is_suspended_sooner_leaves_its_hosts_sooner():
    run, first, other = suspending()
    run.scheduler.saved(first, 90)
    run.scheduler.fill()
    assert first.state is LeaseState.SUSPENDED_SCHEDULED
    quick = lease('b', 1, 10)
    run.submit(quick, at=90)
    run.until(2000)
    assert quick.started == 90
    assert other.started == 100
    assert first.served == 1000


def test_what_was_promised_begins_once_the_hosts_are_free():
    run, first, other = suspending()
    run.scheduler.overrun(first, 105)
    run.until(2000)
    assert (other.started, other.ended) == (105, 155)
    assert first.suspended_s == 155 - 105
    assert first.served == 1000 and other.served == 50


def test_only_who_needs_the_hosts_is_late():
    run = Run(3)
    first = lease('a', 2, 1000)
    late, just = (lease(name, number, 50, start=100, preemptible=False)
                  for name, number in (('r', 2), ('s', 1)))
    run.submit(first, just, late)
    run.until(100 - SUSPENDS)
    assert first.state is LeaseState.SUSPENDING
    run.scheduler.overrun(first, 130)
    run.until(3000)
    assert just.started == 100
    assert late.started == 130


def test_other_hosts_may_do():
    run = Run(2, Settings())
    first = lease('a', 1, 1000)
    block = lease('b', 1, 80)
    reserved = lease('r', 1, 50, start=100, preemptible=False)
    wide = lease('w', 1, 50, start=100, preemptible=False)
    run.submit(first, block, reserved, wide)
    run.until(100 - SUSPENDS)
    run.scheduler.overrun(first, 130)
    run.until(3000)
    assert sorted((reserved.started, wide.started)) == [100, 130]


def test_a_deadline_is_kept_if_it_can_be():
    run = Run(1)
    first = lease('a', 1, 1000)
    urgent = lease('d', 1, 100, start=100, deadline=210)
    run.submit(first, urgent)
    run.until(100 - SUSPENDS)
    assert first.state is LeaseState.SUSPENDING
    run.scheduler.overrun(first, 105)
    run.until(3000)
    assert (urgent.started, urgent.ended) == (105, 205)


def test_only_who_is_being_suspended_can_be_late():
    run, first, other = suspending()
    with pytest.raises(IllegalTransitionError):
        run.scheduler.overrun(other, 200)
    with pytest.raises(ValueError, match='planned'):
        run.scheduler.overrun(first, 100)


# -- as they come

def mixed(number, seed=7):
    """Return so many reservations, and best effort that they interrupt.

    Best effort asks for somewhat more than 16 hosts have.
    """
    draw = random.Random(seed)
    end = 667 * number
    asked = []
    for index in range(number // 2):
        one = terms(draw.randint(1, 8), draw.randint(600, 20_000))
        asked.append(TraceRequest(f'b{index}', draw.randrange(end), one,
                                  draw.randint(300, one.duration)))
    for index in range(number):
        arrival = draw.randrange(end)
        asked.append(TraceRequest(f'r{index}', arrival, terms(
            draw.randint(1, 4), 1800, preemptible=False,
            start=arrival + draw.randint(600, 7200)), 1800))
    return asked


def late(margin, number):
    """Return which share of reservations is late, with errors of 20 %.

    The errors are lognormal.
    """
    errors = np.random.default_rng(3)
    outcomes = LeaseSimulation(
        site(16), Settings(durations=OperationTimes(
            margin=margin)), mixed(number),
        lambda: float(errors.lognormal(0.0, 0.2))).run()
    found = figures.figures(outcomes)
    accepted = found['reservations_accepted']
    assert 0.9 * number < accepted < found['suspends']
    assert all(one.lease.served == one.request.runs for one in outcomes
               if one.lease.state is not LeaseState.REJECTED)
    return found['reservations_late'] / accepted


def test_the_margin_keeps_reservations_in_time():
    """With the default at most one in a hundred is late, of some 1,400."""
    default, = (one.default for one in OPTS if one.dest == 'suspend_margin')
    assert late(default, 1500) <= 0.01
    assert late(0.3, 300) > 0.05
    assert late(0.0, 300) > 0.3
