"""One at a time on each disk."""

import numpy as np
import pytest

from secondary_scheduler.leases.scheduling.disks import Disks

FIRST, SECOND, BOTH = map(np.array, ([0], [1], [0, 1]))


@pytest.fixture
def disks():
    made = Disks(2)
    for start, end in ((10, 20), (30, 40)):
        made.take(made.operation(FIRST, start, end))
    return made


@pytest.mark.parametrize('hosts, start, expected', (
    (FIRST, 0, 0), (FIRST, 6, 20), (FIRST, 25, 25), (FIRST, 26, 40),
    (SECOND, 6, 6), (BOTH, 6, 20), (FIRST, 50, 50)))
def test_quiet_from(disks, hosts, start, expected):
    assert disks.quiet_from(hosts, start, 5) == expected


@pytest.mark.parametrize('hosts, end, expected', (
    (FIRST, 10, 10), (FIRST, 11, 10), (FIRST, 35, 30), (FIRST, 24, 10),
    (SECOND, 35, 35), (BOTH, 35, 30), (FIRST, 45, 45)))
def test_quiet_until(disks, hosts, end, expected):
    assert disks.quiet_until(hosts, end, 5) == expected


def test_what_is_to_be_changed_is_in_nobodys_way(disks):
    own = disks.operation(SECOND, 50, 60)
    disks.take(own)
    assert disks.quiet_until(SECOND, 60, 5) == 50
    assert disks.quiet_until(SECOND, 60, 5, own) == 60


def test_given_back_or_past(disks):
    mine = disks.operation(SECOND, 10, 20)
    disks.take(mine)
    assert disks.quiet_from(SECOND, 15, 5) == 20
    disks.give(mine)
    assert disks.quiet_from(SECOND, 15, 5) == 15
    disks.take(mine)
    disks.advance(20)
    disks.give(mine)
    assert disks.quiet_from(FIRST, 12, 5) == 12
    assert disks.quiet_from(FIRST, 28, 5) == 40


def test_one_for_the_whole_site():
    disks = Disks(1)
    disks.take(disks.operation(FIRST, 10, 20))
    assert disks.quiet_from(SECOND, 6, 5) == 20
