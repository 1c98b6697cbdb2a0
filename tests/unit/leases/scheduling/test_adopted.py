"""Leases of VMs that run already, and that have no end."""

import numpy as np
import pytest

from secondary_scheduler.leases.scheduling.planned_starts import (
    UnpausableError,
)
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.table import (
    CapacityEntry,
    SlotTable,
)
from secondary_scheduler.leases.scheduling.types import NEVER
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import NEED, Run, lease
from tests.unit.leases.scheduling.test_withheld import SUSPENDS, part


def adopted(run, host, name='a', at=0):
    """Let a VM be there; return its lease."""
    run.until(at)
    one = lease(name, 1, NEVER, at)
    vms = np.zeros(run.scheduler.table.hosts, dtype=np.int64)
    vms[host] = 1
    run.scheduler.adopt(one, (vms,), at)
    run.scheduler.fill()
    return one


def test_it_runs_where_it_is_for_ever():
    run = Run(2)
    one = adopted(run, 1)
    assert one.state is LeaseState.ACTIVE and one.booking.vms[0].tolist() == [
                                                                     0, 1]
    assert (one.booking.down, one.booking.end) == (NEVER, NEVER)
    assert run.scheduler.table.room(NEED, 0, NEVER).tolist() == [1, 0]
    run.finish(one, 50)
    assert one.state is LeaseState.DONE and one.served == 50
    assert run.scheduler.table.room(NEED, 50, NEVER).tolist() == [1, 1]


def test_it_gives_way_and_comes_back_where_it_was():
    run = Run(1)
    one = adopted(run, 0)
    exact = run.submit(lease('b', 1, 100, start=200), at=10)
    assert exact.state is LeaseState.SCHEDULED
    run.until(200)
    assert one.state is LeaseState.SUSPENDED_SCHEDULED
    run.until(1000)
    assert exact.started == 200 and one.state is LeaseState.ACTIVE
    assert one.booking.down == NEVER and one.resumes == 1


def test_it_leaves_before_what_is_promised_there():
    run = Run(1)
    run.submit(lease('b', 1, 100, start=200))
    one = adopted(run, 0, at=50)
    assert one.booking.saves and one.booking.end == 200
    assert one.booking.down == 200 - SUSPENDS


def test_who_has_no_room_leaves_at_once():
    run = Run(1)
    run.submit(lease('b', 1, 500, immediate=True, preemptible=False))
    one = adopted(run, 0, at=50)
    run.until(60 + SUSPENDS)
    assert one.state is LeaseState.SUSPENDED_SCHEDULED
    run.until(1000)
    assert one.state is LeaseState.ACTIVE


def test_what_is_withheld_is_not_in_its_way():
    run = Run(1)
    run.scheduler.withhold([part(0, NEVER, 0)], 0)
    one = adopted(run, 0)
    assert one.booking.end == NEVER
    run.scheduler.withhold([], 0)
    assert run.scheduler.table.room(NEED, 0, NEVER).tolist() == [0]


def test_nobody_is_kept_from_a_host_by_what_it_does_not_take():
    table = SlotTable(np.array([[1, 1]]))
    table.take(CapacityEntry(5, 10, np.array([0]), np.array([[2], [0]])))
    assert table.holds(CapacityEntry(
        0, 20, np.array([0]), np.array([[0], [1]])))
    assert not table.holds(CapacityEntry(
        0, 20, np.array([0]), np.array([[1], [1]])))


def test_without_suspension_it_stays():
    """It would begin anew, and nothing would come of that."""
    run = Run(1, Settings(suspension=False))
    one = adopted(run, 0)
    exact = run.submit(lease('b', 1, 100, start=200), at=10)
    assert exact.state is LeaseState.REJECTED
    with pytest.raises(UnpausableError):
        run.scheduler.pause(one, 20)
    assert one.state is LeaseState.ACTIVE
