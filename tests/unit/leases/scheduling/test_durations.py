"""The vectors of the specification: 4 hosts, c VMs on each (Haizea 4.8)."""

import numpy as np
import pytest

from secondary_scheduler.leases.scheduling.durations import OperationTimes

LOCAL_SUSPEND, GLOBAL_SUSPEND = 61.86, 63.67
LOCAL_RESUME, GLOBAL_RESUME = 66.27, 81.27


@pytest.mark.parametrize('each, shared, command, rate, expected', (
    (1, False, 0, LOCAL_SUSPEND, (8.28, 12.42, 16.55)),
    (1, False, 1, LOCAL_SUSPEND, (12.28, 16.42, 20.55)),
    (8, False, 0, LOCAL_SUSPEND, (66.21, 99.32)),
    (8, False, 1, LOCAL_SUSPEND, (98.21, 131.32)),
    (1, True, 0, GLOBAL_SUSPEND, (32.17, 48.25, 64.33)),
    (1, True, 1, GLOBAL_SUSPEND, (36.17, 52.25, 68.33)),
    (4, True, 0, GLOBAL_SUSPEND, (128.66, 193.00, 257.33)),
    (4, True, 1, GLOBAL_SUSPEND, (144.66, 209.00, 273.33)),
    (8, True, 0, GLOBAL_SUSPEND, (257.33, 385.99)),
    (8, True, 1, GLOBAL_SUSPEND, (289.33, 417.99)),
    (8, False, 1, LOCAL_RESUME, (93.81, 124.71)),
    (8, True, 1, GLOBAL_RESUME, (233.60, 334.40)),
))
def test_the_specifications_vectors(each, shared, command, rate, expected):
    durations = OperationTimes(shared=shared, command=command)
    for memory, seconds in zip((512, 768, 1024), expected, strict=False):
        found = durations.transfer((np.full(4, each),), (memory,), rate)
        assert found == pytest.approx(seconds, abs=0.011)


def test_whole_seconds_are_planned():
    durations = OperationTimes(suspend_rate=50, resume_rate=64)
    vms = (np.array([1, 0, 1]),)
    assert durations.suspend(vms, (1024,)) == 21
    assert durations.resume(vms, (1024,)) == 16


def test_the_least_is_one_on_each_host():
    durations = OperationTimes(suspend_rate=50, resume_rate=64, margin=0.5)
    spread = (np.array([1, 1, 1]),)
    assert durations.overheads((3,), (1024,)) == (
        durations.resume(spread, (1024,)), durations.suspend(spread, (1024,)))
    assert OperationTimes(shared=True).overheads((3,), (1000,)) == (60, 60)


def test_suspensions_are_planned_longer_by_the_margin():
    vms = (np.array([1, 0, 1]),)
    durations = OperationTimes(suspend_rate=50, resume_rate=50, margin=0.25)
    assert durations.suspend(vms, (1000,)) == 25
    assert durations.resume(vms, (1000,)) == 20


def moved(before, after, **other):
    return OperationTimes(**other).migration(
        (np.array(before),), (np.array(after),), (1000,))


def test_moves_run_side_by_side():
    assert moved([1, 1, 0, 0], [0, 0, 1, 1], migration_rate=100.0) == 10


def test_a_host_takes_part_in_one_move_at_a_time():
    assert moved([2, 0, 0], [0, 1, 1], migration_rate=100.0) == 20


def test_nothing_moves():
    assert moved([1, 0], [1, 0], migration_rate=None) == 0


def test_what_cannot_move():
    assert moved([1, 0], [0, 1], migration_rate=None) is None


def test_shared_storage_takes_no_time():
    assert moved([1, 0], [0, 1], migration_rate=0.0) == 0
