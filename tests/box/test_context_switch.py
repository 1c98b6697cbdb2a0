# SPDX-License-Identifier: Apache-2.0

"""Cluster-wide context switches on a real cloud."""

import contextlib
import datetime
import time

import openstack
import pytest

import control
import layout
from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.leases.client import client
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
)
import seed
from tests.box import services, switches
from tests.box.services import wait_until
from tests.box.test_leases import Seen

#: A server that leaves no room for another one of its kind on a host.
WIDE, WIDE_VCPUS, HOST_VCPUS = 'test-wide', 3, 4
#: Number of switches, and of those by separate operations.
SWITCHES, SEPARATE = 20, 3
#: Seconds in which the next round makes a lease whole again: a round begins
#: every 10 s, instances cool down for 30 s, and a resume takes up to 20 s.
WHOLE_S = 240
#: Seconds for a decision of the CONTINUOUS audit, and its operations.
ROUND_S = 180
#: Seconds for which a guest is busy from its boot on.
BUSY_S = 180
#: Seconds until a reservation begins, and how early or late it may run.
AHEAD_S, EARLY_S, OFF_S = 75, 20.0, 3.0
#: Seconds of three rounds in which nothing is to be done.
RESTS_S = 35


@pytest.fixture
def guests(cloud, no_fleet, switch):
    """Hosts without other guests; those of the test are deleted."""
    control.forget_orphans()
    found = switches.Guests(cloud)
    yield found
    services.start_missing()
    found.delete()


@pytest.fixture
def wide(cloud, guests):
    """Two guests on two hosts, and a third host for one of them."""
    flavor = (cloud.compute.find_flavor(WIDE)
              or cloud.compute.create_flavor(
                  name=WIDE, vcpus=WIDE_VCPUS, ram=128, disk=1))
    cloud.compute.create_flavor_extra_specs(
        flavor, vocabulary.secondary_extra_specs(
            WIDE_VCPUS, 128, 1, vocabulary.SecondaryMark()))
    yield guests.boot(('test-swap-1', WIDE, 'box1', None),
                      ('test-swap-2', WIDE, 'box2', None))
    guests.delete()
    cloud.compute.delete_flavor(flavor)


def configuration(placed):
    """Return a configuration of wide guests, {uuid: host}."""
    return Configuration(
        ('vcpus',), {f'box{number}': (HOST_VCPUS,) for number in (1, 2, 3)},
        {uuid: Member(uuid, uuid, MemberState.RUNNING, host, (WIDE_VCPUS,),
                      (WIDE_VCPUS,), 128) for uuid, host in placed.items()},
        resumes_in_place=True)


def test_guests_swap_hosts_through_a_third_one(cloud, guests, wide):
    first, second = wide
    units = switches.units_of(wide)
    wait_until(lambda: units.update() or all(units.count.values()), 120,
               lambda: f'both work: {units.count}')
    planned = sequence(configuration({first: 'box1', second: 'box2'}),
                       configuration({first: 'box2', second: 'box1'}))
    began = time.time()
    plan = switches.launch(guests, switches.operations_of(planned))
    state = switches.wait_plan(cloud, plan)
    print(f'\n{state} after {time.time() - began:.1f} s')
    assert state == 'SUCCEEDED', switches.actions(cloud, plan)
    assert [one.host for one in guests.look(wide)] == ['box2', 'box1']
    done = switches.actions(cloud, plan)
    assert [one['action_type'] for one in done] == ['secondary_migrate'] * 3
    # Each one waits for the one before: a chain of three.
    parents = {one['uuid']: one['parents'] for one in done}
    assert sorted(map(len, parents.values())) == [0, 1, 1]
    assert len({parent for several in parents.values()
                for parent in several}) == 2
    units.update()
    assert units.lost == 0


@pytest.fixture
def trio(guests):
    """Three guests of one lease on one host, which hear each other."""
    return guests.boot(*((f'test-peer-{number}', 'secondary', 'box1', 'peers')
                         for number in (1, 2, 3)),
                       image_id=guests.cloud.image.find_image(
                           'worker-idle').id)


def switch_lease(guests, lease, uuids, apart):
    """Suspend and resume a lease once; return the seconds for it."""
    began = time.monotonic()
    for kind, target in (('suspend', None), ('resume', 'box1')):
        plan = switches.launch(guests, [
            switches.operation(number, kind, uuid, lease, 'box1', target,
                               [number - 1] if apart and number > 1 else [])
            for number, uuid in enumerate(uuids, 1)],
            # Only a context switch has the members of a lease together.
            kind='preempt' if apart else 'select')
        state = switches.wait_plan(guests.cloud, plan)
        assert state == 'SUCCEEDED', switches.actions(guests.cloud, plan)
    return time.monotonic() - began


def count_declared(guests, lease, uuids, number, apart):
    """Switch a lease so many times; return the peers declared dead."""
    peers = switches.Peers(uuids)
    peers.start()
    seconds = []
    for _ in range(number):
        time.sleep(3)       # all hear of each other
        seconds.append(switch_lease(guests, lease, uuids, apart))
    time.sleep(3)
    peers.stop()
    print(f'\n{number} switches, {"apart" if apart else "together"}: '
          f'{peers.declared} declared dead, longest silence '
          f'{peers.longest:.1f} s, {sum(seconds) / number:.1f} s each')
    return peers.declared


@pytest.mark.soak
def test_no_peer_is_declared_dead_in_switches_of_a_lease(guests, trio):
    lease = guests.lease_of(trio[0])
    assert count_declared(guests, lease, trio, SWITCHES, apart=False) == 0
    assert count_declared(guests, lease, trio, SEPARATE, apart=True) > 0


@pytest.fixture
def spread(guests):
    """Three guests of one lease on two hosts, and one beside them."""
    lease = guests.boot(
        ('test-part-1', 'secondary', 'box1', 'parts'),
        ('test-part-2', 'secondary', 'box2', 'parts'),
        ('test-part-3', 'secondary', 'box1', 'parts'))
    return [*lease, *guests.boot(
        ('test-after', 'secondary', 'box2', None))]


def without_compute(_guests, _members):
    """End the nova-compute of the second member, before its suspend.

    Nova itself leaves an instance in the task "suspending" for ever if its
    nova-compute ends in the middle of that.
    """
    return services.without('nova-compute-box2')


def without_applier(_guests, _members):
    return services.without('watcher-applier')


def without_engine(_guests, _members):
    return services.without('watcher-engine-1')


@contextlib.contextmanager
def member_deleted(guests, members):
    guests.cloud.compute.delete_server(members[1])
    yield
    guests.names.pop(members[1], None)


@pytest.mark.soak
@pytest.mark.parametrize('fault', [
    without_compute, without_applier, without_engine, member_deleted])
def test_fault_in_the_middle_of_a_switch(cloud, guests, spread, observer,
                                         fault):
    """What waits for the lease does not start unless all of it is down."""
    *members, other = spread
    units = switches.units_of(spread)
    wait_until(lambda: units.update() or all(units.count.values()), 180,
               lambda: f'all work: {units.count}')
    lease, began = guests.lease_of(members[0]), time.time()
    places = [one.host for one in guests.look(members)]
    plan = switches.launch(guests, [
        *(switches.operation(number, 'suspend', uuid, lease, place)
          for number, (uuid, place) in enumerate(
              zip(members, places, strict=True), 1)),
        switches.operation(4, 'migrate', other, other, 'box2', 'box1',
                           [1, 2, 3])])
    wait_until(lambda: any(one.task for one in guests.look(members)), 60,
               'the first operation begins', period=0.1)
    with fault(guests, members):
        time.sleep(20)
    members = [one for one in members if one in guests.names]
    # The next round brings back the whole lease, whatever has become of it.
    guests.wait_states([*members, other], 'ACTIVE', WHOLE_S + 120)
    wait_until(lambda: not any(one.preempted for one in guests.look(members)),
               60, lambda: f'no mark is left: {guests.look(members)}')
    print(f'\nwith {fault.__name__}: whole after {time.time() - began:.0f} s; '
          f'plan {switches.plan_state(cloud, plan)}, '
          + ', '.join(f"{one['action_type']} {one['state']}"
                      for one in switches.actions(cloud, plan)))
    switches.check_dependencies(cloud, plan)
    run, rows, host = observer.longest_failure(began)
    assert run <= layout.TIMELIMIT, (host, rows)
    units.update()
    assert sum(units.lost_by[one] for one in members) == 0, units.lost_by


@pytest.fixture
def seen(cloud):
    """States of all servers, and units of work."""
    watching = Seen(cloud)
    watching.start()
    yield watching
    watching.ended.set()
    watching.join()


@pytest.fixture
def busy_first(cloud):
    """Image of a guest that is busy at first."""
    found = switches.image(cloud, 'test-busy-first', BUSY_S)
    yield found
    cloud.image.delete_image(found)


def reserve(other, start):
    """Reserve a server of another owner from a second on."""
    return other.create(
        [{'number': 1, 'flavor': 'secondary', 'image': 'worker-idle',
          'network': 'none'}], 60, start=datetime.datetime.fromtimestamp(
            start, datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ'))['id']


def action_uuids(cloud):
    """Return the actions of all plans so far."""
    return {one['uuid'] for one in seed.listed(
        seed.watcher(cloud), 'actions')}


@pytest.mark.soak
def test_busy_lease_displaces_the_lowest_one_for_a_while(
        cloud, guests, leases_run, quick_control_plane, busy_first,
        seen):
    """By the CONTINUOUS audit, beside a reservation."""
    # One busy guest takes all that a host has for secondaries.
    low = guests.boot(*((f'test-low-{number}', 'secondary.low',
                         f'box{number}', 'low') for number in (1, 2)))
    units = seen.units = switches.units_of(low)
    wait_until(lambda: all(units.count.values()), 120,
               lambda: f'both work: {units.count}')
    other = client.Client.of(openstack.connect(
        username='other', project_name='other'))
    with switches.parameters(cloud, decision='context-switch',
                             minimum_run_time=20):
        start = int(time.time()) + AHEAD_S
        lease = reserve(other, start)
        wait_until(lambda: other.get(lease)['state'] == 'done',
                   AHEAD_S + ROUND_S,
                   lambda: f'the reservation is over: {other.get(lease)}')
        came = next(when for when, one, state, _ in seen.story
                    if one not in guests.names and state == 'ACTIVE')
        print(f'\nreserved server ran {came - start:+.1f} s from its start')
        guests.boot(('test-mid', 'secondary', 'box3', None))
        high, = guests.boot(('test-high', 'secondary.high', 'box1', None),
                            image_id=busy_first)
        began = time.time()
        guests.wait_states(low, 'SUSPENDED', BUSY_S)
        print(f'suspended after {time.time() - began:.0f} s')
        suspend = next(
            one for one in seed.listed(seed.watcher(cloud), 'actions')
            if one['action_type'] == 'secondary_suspend_lease')
        assert {one['resource_id'] for one in suspend['input_parameters'][
            'members']} == set(low)
        # The switch may move it to a host that has become free.
        guests.wait_states([high], 'ACTIVE', 60)
        guests.wait_states(low, 'ACTIVE', BUSY_S + ROUND_S)
        print(f'running again after {time.time() - began:.0f} s')
        before = dict(units.count)
        wait_until(lambda: all(units.count[one] > before[one] for one in low),
                   60, lambda: f'both go on: {before}, {units.count}')
        done = action_uuids(cloud)
        time.sleep(RESTS_S)
        assert action_uuids(cloud) == done
    print(f'units {units.count}, lost {units.lost}')
    # It boots as early as boots of this cloud have needed before.
    assert -EARLY_S <= came - start <= OFF_S, other.events(lease)
    assert units.lost == 0


def plan_of_switch(cloud, uuids):
    """Return the plan of an action that suspends these guests, if any."""
    return next((
        one['action_plan_uuid'] for one in seed.listed(
            seed.watcher(cloud), 'actions')
        if one['action_type'] == 'secondary_suspend_lease' and {
            member['resource_id'] for member in one['input_parameters'][
                'members']} == set(uuids)), None)


@pytest.mark.soak
def test_engine_killed_during_a_switch_of_the_audit(
        cloud, guests, busy_first):
    """An engine completes what an audit of the killed one has begun."""
    low = guests.boot(*((f'test-low-{number}', 'secondary.low',
                         f'box{number}', 'low') for number in (1, 2)))
    units = switches.units_of(low)
    wait_until(lambda: units.update() or all(units.count.values()), 180,
               lambda: f'both work: {units.count}')
    with switches.parameters(cloud, decision='context-switch',
                             minimum_run_time=20):
        guests.boot(('test-mid', 'secondary', 'box3', None))
        high, = guests.boot(('test-high', 'secondary.high', 'box1', None),
                            image_id=busy_first)
        began = time.time()
        wait_until(lambda: any(one.task for one in guests.look(low)), BUSY_S,
                   'the first member is suspended', period=0.1)
        with services.without('watcher-engine-1'):
            time.sleep(20)
            plan = plan_of_switch(cloud, low)
        guests.wait_states([high], 'ACTIVE', 60)
        guests.wait_states(low, 'ACTIVE', BUSY_S + ROUND_S)
        wait_until(lambda: not any(one.preempted for one in guests.look(low)),
                   60, lambda: f'no mark is left: {guests.look(low)}')
    print(f'\nwhole after {time.time() - began:.0f} s; '
          f'plan {switches.plan_state(cloud, plan)}')
    switches.check_dependencies(cloud, plan)
    units.update()
    assert units.lost == 0
