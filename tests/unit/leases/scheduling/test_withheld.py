"""What the primary is expected to take is kept from leases."""

import numpy as np

from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.table import CapacityEntry
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import NEED, Run, lease

#: 1024 MB take 21 s to save.
SUSPENDS = 21


def part(start, end, *hosts, vms=1):
    """Return room for so many VMs on each of some hosts, which nobody has."""
    amounts = np.tile(np.array(NEED)[:, None] * vms, (1, len(hosts)))
    return CapacityEntry(start, end, np.array(hosts), amounts, tenants=0)


def test_nobody_begins_where_something_is_withheld():
    run = Run(2, Settings(suspension=False))
    run.scheduler.withhold([part(0, 100, 0, 1)], 0)
    one = lease('a', 1, 50)
    run.submit(one)
    run.until(200)
    assert one.started == 100


def test_best_effort_is_suspended_in_time():
    run = Run(1)
    one = lease('a', 1, 200)
    run.submit(one)
    run.until(10)
    run.scheduler.withhold([part(100, 300, 0)], 10)
    run.scheduler.fill()
    run.until(1000)
    assert (one.suspends, one.served) == (1, 200)
    assert one.suspended_s == 200


def test_who_runs_where_it_is_withheld_now_leaves_at_once():
    run = Run(1)
    one = lease('a', 1, 200)
    run.submit(one)
    run.until(10)
    run.scheduler.withhold([part(10, 300, 0)], 10)
    run.scheduler.fill()
    run.until(11 + SUSPENDS)
    assert one.state is LeaseState.SUSPENDED_SCHEDULED and one.served == 11


def test_a_promise_goes_elsewhere_or_begins_later_or_fails():
    run = Run(2)
    elsewhere = lease('a', 1, 50, start=100, preemptible=False)
    run.submit(elsewhere)
    host, = elsewhere.booking.slot.hosts.tolist()
    run.scheduler.withhold([part(50, 500, host)], 0)
    assert elsewhere.booking.begin == 100
    assert elsewhere.booking.slot.hosts.tolist() == [1 - host]
    run.scheduler.withhold([part(50, 500, 0, 1)], 0)
    assert elsewhere.booking.begin == 500
    run.scheduler.withhold([part(50, 2 ** 60, 0, 1)], 0)
    assert elsewhere.state is LeaseState.FAILED
    assert 'promised' in elsewhere.reason


def test_who_was_promised_not_to_be_interrupted_stays():
    run = Run(1)
    one = lease('a', 1, 100, immediate=True, preemptible=False)
    run.submit(one)
    run.until(10)
    run.scheduler.withhold([part(10, 300, 0)], 10)
    run.until(500)
    assert (one.state, one.ended) == (LeaseState.DONE, 100)


def test_what_is_withheld_takes_the_place_of_what_was():
    run = Run(1)
    run.scheduler.withhold([part(0, 1000, 0)], 0)
    run.scheduler.withhold([part(50, 100, 0)], 0)
    run.submit(lease('a', 1, 10, start=20, preemptible=False),
               lease('b', 1, 10, start=60, preemptible=False))
    run.until(200)
    assert [run.story[name][-1] for name in 'ab'] == ['done', 'rejected']
    tenants, free, _ = run.scheduler.table.at(300)
    assert not tenants.any() and free.T.tolist() == [list(NEED)]
