"""How images get to hosts, and who shares what copies."""

import dataclasses

import numpy as np
import pytest

from secondary_scheduler.leases.scheduling.images import Preparation
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.policies import MostSlack
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import Run, lease

#: At 10 MB/s an image of 1000 MB takes 100 s.
EACH = Preparation(10.0, joins=False)
JOINED = Preparation(10.0)
POOLED = Preparation(10.0, pool_mb=2000)


def of(name, nodes, duration, image='i', **other):
    return lease(name, nodes, duration, image=image, image_mb=1000, **other)


def run(hosts, preparation, **other):
    return Run(hosts, Settings(preparation=preparation, **other))


def sent(one):
    return [(each.image, each.start, each.end)
            for each in one.scheduler._holdings.images.transfers]


def test_a_lease_begins_once_its_image_is_there():
    world = run(3, EACH)
    one = of('a', 2, 50)
    world.submit(one)
    assert sent(world) == [('i', 0, 100)]
    world.until(500)
    assert (one.started, one.ended) == (100, 150)
    assert world.story['a'] == ['pending', 'queued', 'scheduled', 'preparing',
                                'ready', 'active', 'done']


def test_one_image_is_sent_at_a_time():
    world = run(3, EACH)
    leases = [of(name, 1, 50) for name in 'abc']
    world.submit(*leases)
    world.until(1000)
    assert [one.started for one in leases] == [100, 200, 300]


def test_leases_with_the_same_image_share_a_transfer():
    world = run(3, JOINED)
    leases = [of('a', 1, 50), of('b', 1, 50, image='j'), of('c', 1, 50)]
    world.submit(*leases)
    world.until(1000)
    # It is on its way to a's host already, so c's waits for its own.
    assert [one.started for one in leases] == [100, 200, 300]
    world = run(3, JOINED)
    leases = [of('x', 1, 50, image='j'), of('a', 1, 50), of('c', 1, 50)]
    world.submit(*leases)
    world.until(1000)
    assert [one.started for one in leases] == [100, 200, 200]


def test_a_copy_in_the_pool_is_used_again():
    world = run(1, POOLED)
    first, second = of('a', 1, 50), of('b', 1, 50)
    world.submit(first, second)
    world.until(1000)
    assert (first.started, second.started) == (100, 150)
    world = run(1, JOINED)
    first, second = of('a', 1, 50), of('b', 1, 50)
    world.submit(first)
    world.until(120)
    world.submit(second, at=120)
    world.until(1000)
    assert second.started == 220


def test_what_nobody_uses_makes_room():
    """There is room for two images; the first is the first to go."""
    world = run(1, POOLED)
    leases = [of(name, 1, 10, image=name) for name in 'abc']
    world.submit(*leases)
    world.until(500)
    again = [of('a2', 1, 10, image='a'), of('c2', 1, 10, image='c')]
    world.submit(again[1], at=1000)
    world.until(1100)
    assert again[1].started == 1000
    world.submit(again[0], at=2000)
    world.until(2500)
    assert again[0].started == 2100


def test_a_copy_in_use_stays():
    """Copies beside a full pool serve their own lease only."""
    world = run(3, dataclasses.replace(POOLED, pool_mb=1000))
    held = of('a', 3, 10_000, image='a')
    world.submit(held)
    world.until(200)
    assert held.state is LeaseState.ACTIVE
    pool = world.scheduler._holdings.images._pool['a']
    assert pool.there.all() and (pool.users == 1).all()
    world.until(20_000)
    assert (pool.users == 0).all()


def test_hosts_with_the_image_come_first():
    world = run(3, POOLED)
    world.submit(of('x', 1, 500, image='x'), of('a', 1, 10))
    world.until(900)
    again = of('b', 1, 10)
    world.submit(again, at=1000)
    world.until(1100)
    assert again.started == 1000
    assert again.hosts.tolist() == [1]


# -- promises

def test_a_reservation_has_its_image_just_in_time():
    world = run(2, EACH)
    one = of('r', 2, 50, start=1000, preemptible=False)
    world.submit(one)
    assert one.state is LeaseState.SCHEDULED
    assert sent(world) == [('i', 900, 1000)]
    world.until(2000)
    assert (one.started, one.ended) == (1000, 1050)


def test_a_reservation_is_refused_if_its_image_would_be_late():
    world = run(2, EACH)
    late = of('r', 1, 50, start=99, preemptible=False)
    just = of('s', 1, 50, start=100, preemptible=False)
    world.submit(late, just)
    assert (late.state, just.state) == (
        LeaseState.REJECTED, LeaseState.PREPARING)


def test_promised_images_are_sent_late_and_the_earliest_due_first():
    world = run(3, EACH)
    leases = [of(name, 1, 50, image=name, start=start, preemptible=False)
              for name, start in (('a', 1000), ('b', 1050), ('c', 1020))]
    world.submit(*leases)
    assert sent(world) == [('a', 750, 850), ('c', 850, 950), ('b', 950, 1050)]
    world.until(2000)
    assert [one.started for one in leases] == [1000, 1050, 1020]


def test_whose_image_cannot_be_packed_is_refused():
    world = run(5, EACH)
    leases = [of(name, 1, 50, image=name, start=start, preemptible=False)
              for name, start in (('a', 250), ('b', 250), ('c', 299))]
    world.submit(*leases)
    assert [one.state is LeaseState.REJECTED for one in leases] == [
        False, False, True]
    assert sent(world) == [('b', 50, 150), ('a', 150, 250)]


def test_an_image_sent_at_once_is_not_moved():
    world = run(5, EACH)
    queued = of('q', 1, 50, image='q')
    world.submit(queued)
    one, other = (of(name, 1, 50, image=name, start=290, preemptible=False)
                  for name in 'ab')
    world.submit(one, other)
    assert one.state is LeaseState.SCHEDULED
    assert other.state is LeaseState.REJECTED
    world.until(1000)
    assert (queued.started, one.started) == (100, 290)


def test_immediate_only_if_it_can_be_sent_now():
    world = run(5, JOINED)
    first, second = (of(name, 1, 50, image=name, immediate=True,
                        preemptible=False) for name in 'ab')
    world.submit(first, second)
    world.until(500)
    assert (first.started, second.state) == (100, LeaseState.REJECTED)


def test_a_deadline_counts_the_image():
    world = run(1, EACH)
    late, just = (of(name, 1, 50, image=name, deadline=deadline)
                  for name, deadline in (('a', 149), ('b', 150)))
    world.submit(late)
    assert late.state is LeaseState.REJECTED
    world.submit(just)
    world.until(500)
    assert (just.started, just.ended) == (100, 150)


def test_who_gives_way_keeps_what_was_sent():
    world = run(1, EACH)
    queued = of('q', 1, 1000)
    world.submit(queued)
    world.until(50)
    world.submit(lease('r', 1, 60, start=100, preemptible=False), at=50)
    world.until(5000)
    assert queued.started == 160


def test_who_begins_anew_elsewhere_has_its_image_there_in_time():
    """What comes between takes the repository only when it is not needed."""
    world = run(3, EACH, suspension=False, preemption=MostSlack())
    urgent = of('u', 1, 300, deadline=4000)
    world.submit(urgent, *(lease(name, 1, duration, preemptible=False)
                           for name, duration in (('x', 600), ('y', 650))))
    world.submit(lease('r', 1, 1000, start=250, preemptible=False), at=200)
    # On x's host, since its own is the reservation's.
    assert urgent.booking.loses and urgent.later.begin == 600
    assert sent(world) == [('i', 500, 600)]
    large = lease('l', 1, 10, image='j', image_mb=4000)
    world.submit(large, at=210)
    world.until(5000)
    assert (urgent.started, urgent.ended, urgent.requeues) == (600, 900, 1)
    assert large.started == 1000


def test_a_suspended_lease_moves_with_its_image():
    world = run(2, EACH)
    queued = of('q', 1, 2000)
    world.submit(queued)
    world.until(200)
    blocked = queued.hosts.tolist()
    other = lease('r', 2, 50, start=300, preemptible=False)
    more = lease('s', 1, 2000, start=350, preemptible=False)
    world.submit(other, more, at=200)
    world.until(10_000)
    assert queued.state is LeaseState.DONE and queued.suspends == 1
    if more.hosts.tolist() == blocked:
        # 1024 + 1000 MB at 100 MB/s, and 21 s to load.
        assert queued.suspended_s >= 21


def test_the_copy_is_the_same_after_a_failed_attempt():
    world = run(2, POOLED)
    world.submit(of('a', 2, 50))
    world.until(200)
    images = world.scheduler._holdings.images
    before = [(one.there.tolist(), one.users.tolist(), one.expires.tolist())
              for one in images._pool.values()]
    refused = of('r', 3, 50, start=1000, preemptible=False)
    world.submit(refused)
    assert refused.state is LeaseState.REJECTED
    images = world.scheduler._holdings.images
    assert before == [(one.there.tolist(), one.users.tolist(),
                       one.expires.tolist())
                      for one in images._pool.values()]


@pytest.mark.parametrize('megabytes, rate, seconds', (
    (4096, 125.0, 33), (4096, 12.5, 328), (1, 125.0, 1)))
def test_seconds(megabytes, rate, seconds):
    one = dataclasses.replace(of('a', 1, 1).terms, image_mb=megabytes)
    assert Preparation(rate).seconds(one) == seconds


def test_distance_prefers_what_is_there_to_what_is_sent():
    world = run(3, POOLED)
    world.submit(of('a', 1, 10))
    world.until(120)
    world.submit(of('x', 1, 500, image='x', start=500, preemptible=False),
                 of('b', 1, 500, start=900, preemptible=False), at=200)
    images = world.scheduler._holdings.images
    asked = of('c', 1, 10).work
    assert images.distance(asked, 200).tolist() == [0, 2, 2]
    assert np.array_equal(images.ready(asked), [200, 300, 300])
