# SPDX-License-Identifier: Apache-2.0

"""Leases on a real cloud (issue 5, acceptance 7).

And that one runs as a whole or not at all, whatever Nova makes of a member.
"""

import collections
import contextlib
import datetime
import hashlib
import re
import statistics
import threading
import time

import openstack
import pytest

import control
import demo
import layout
import secondaries
from secondary_scheduler.leases.client import client
from secondary_scheduler.model import vocabulary
from tests.box import fleet as fleets
from tests.box import primaries, services
from tests.box.services import wait_until

PAIR = ('test-pair-1', 'test-pair-2')
ENGINE_LOG = 'watcher-engine-1-service.log'


@pytest.mark.soak
def test_half_a_lease_goes_down_again_until_the_other_half_can_run(
        owner, calm_fleet, hosts):
    """The disk of a suspended member is away when it is to be resumed."""
    fleet = calm_fleet
    of_name = {name: uuid for uuid, name in fleet.servers.items()}
    whole, broken = (of_name[name] for name in PAIR)
    disk = layout.SHARED / 'instances' / broken / 'disk'
    began = services.log_size(ENGINE_LOG)

    def seen():
        found = fleet.look()
        return {uuid: (one.status, one.preempted) if one.task is None
                else None for uuid, one in found.items()}

    def wait_for(of_whole, of_broken, timeout):
        wait_until(lambda: [seen().get(one) for one in (whole, broken)] == [
            of_whole, of_broken], timeout, lambda: str(fleet.look()))

    away = disk.with_suffix('.away')
    try:
        with services.another_policy(
                f'slots <= {len(fleet.servers) - 2} in aggregate:secondary',
                'nova-scheduler', 'watcher-engine-1',
                *(f'secondary-agent-{host}' for host in hosts)):
            wait_for(('SUSPENDED', True), ('SUSPENDED', True), 180)
            disk.rename(away)
        # Nova has tried: the other one runs now, and goes down again.
        wait_until(lambda: seen().get(broken) == ('ERROR', True), 180,
                   lambda: f'one cannot be resumed: {fleet.look()}')
        wait_for(('SUSPENDED', True), ('ERROR', True), 180)
        told = services.log_since(ENGINE_LOG, began)
        assert told.count(f'{broken} was preempted and is in ERROR') == 1, told
    finally:
        if away.exists():
            away.rename(disk)
        if fleet.look()[broken].status == 'ERROR':
            owner.compute.reboot_server(broken, 'HARD')
    fleet.wait_all_run(240)


#: What a reservation's server takes: more than is left beside two others.
WIDE = 'test-wide'
#: What a server without a lease takes: a reservation's does not fit beside it.
HALF = 'test-half'
_VCPUS = {WIDE: 3, HALF: 2}
#: An image that no host has seen.
FRESH = 'test-fresh'
#: Seconds until a reservation begins, and for how long it and the other run.
AHEAD_S, RESERVED_S, WORKS_S = 120, 45, 900
#: By how many seconds before or after the second that was reserved the last
#: server may run.
OFF_S = 3.0
_TOOK = re.compile(r'Took (\d+\.\d+) s')


class Seen(threading.Thread):
    """States of servers, twice a second."""

    def __init__(self, cloud):
        super().__init__(daemon=True)
        self._cloud = cloud
        self._last = {}
        self.story = []     # (time, server, status, task)
        self.units = None
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(0.4):
            with contextlib.suppress(*fleets.AWAY):
                for server in self._cloud.compute.servers(all_projects=True):
                    state = (server.status, server.task_state)
                    if self._last.get(server.id) != state:
                        self._last[server.id] = state
                        self.story.append((time.time(), server.id, *state))
            if self.units is not None:
                self.units.update()

    def first(self, server, status, after=0.0):
        """Return when a server was seen in a state first."""
        return next((when for when, one, state, _ in self.story
                     if (one, state) == (server, status) and when >= after),
                    None)


class Leases:
    """Two owners of leases, and what the cloud shows of them."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.owners = {
            name: client.Client.of(openstack.connect(
                username=name, project_name=name))
            for name in ('demo', 'other')}
        self.made = []

    def ask(self, owner, number, flavor, image, duration, **terms):
        lease = self.owners[owner].create([{
            'number': number, 'flavor': flavor, 'image': image,
            'network': 'none'}], duration, **terms)['id']
        self.made.append((owner, lease))
        return lease

    def reserve(self, image, start):
        """Have three hosts promised to the other owner, from a second on."""
        exact = self.ask(
            'other', 3, WIDE, image, RESERVED_S, name='exact',
            start=datetime.datetime.fromtimestamp(start, datetime.UTC
                                                  ).strftime(
                '%Y-%m-%dT%H:%M:%SZ'))
        self.wait(exact, ('scheduled', 'ready'), 30)
        return exact

    def show(self, lease):
        """Return a lease, or nothing while the service is away."""
        owner = next(name for name, one in self.made if one == lease)
        try:
            return self.owners[owner].get(lease)
        except (*fleets.AWAY, client.LeaseError):
            return {'state': 'unknown', 'servers': []}

    def tell(self, lease):
        """Return the events of a lease as text, for messages of failures."""
        owner = next(name for name, one in self.made if one == lease)
        try:
            return '\n'.join(
                f"  {one['time']} {one['kind']:20} {one['state']:18} "
                f"{one['text']}" for one in self.owners[owner].events(lease))
        except (*fleets.AWAY, client.LeaseError) as exc:
            return f'  events cannot be read: {exc}'

    def wait(self, lease, states, timeout):
        return wait_until(
            lambda: (found := self.show(lease))['state'] in states and found,
            timeout, lambda: f'{lease} is {states}: {self.show(lease)}\n'
            + self.tell(lease))

    def wait_running(self, lease, timeout):
        """Wait until all servers of a lease run; return their UUIDs."""
        def run():
            found = self.show(lease)
            number = sum(one['number'] for one in found.get('nodes', ()))
            servers = found['servers']
            return number and len(servers) == number and all(
                self.cloud.compute.get_server(one).status == 'ACTIVE'
                for one in servers) and servers
        return wait_until(
            run, timeout, lambda: f'all of {lease} run: {self.show(lease)}\n'
            + self.tell(lease))

    def end(self):
        """Cancel all, and wait until their servers are gone."""
        for owner, lease in self.made:
            with contextlib.suppress(client.LeaseError):
                self.owners[owner].act(lease, 'cancel')
        for _, lease in self.made:
            self.wait(lease, ('done', 'cancelled', 'rejected', 'failed'), 180)
        self.made.clear()


@pytest.fixture(scope='module')
def room_for_leases(cloud, leases_run, quick_control_plane):
    """Empty hosts that may be claimed twice, and an audit for leases."""
    demo.remove(cloud)
    fleets.remove_leftovers(cloud)
    control.forget_orphans()
    flavors = []
    for name, vcpus in _VCPUS.items():
        flavors.append(cloud.compute.find_flavor(name)
                       or cloud.compute.create_flavor(
                           name=name, vcpus=vcpus, ram=128, disk=1))
        cloud.compute.create_flavor_extra_specs(
            flavors[-1], vocabulary.secondary_extra_specs(
                vcpus, 128, 1, vocabulary.SecondaryMark()))

    yield
    for flavor in flavors:
        cloud.compute.delete_flavor(flavor)


@pytest.fixture(scope='module')
def known_boots(cloud, room_for_leases):
    """As many servers have booted as the engine learns from."""
    found = Leases(cloud)
    first = found.ask('demo', 5, 'secondary', 'worker-idle', 600,
                      name='first')
    found.wait_running(first, 240)
    found.end()


@pytest.fixture
def leases(cloud, room_for_leases):
    found = Leases(cloud)
    yield found
    services.start_missing()
    found.end()


@pytest.fixture
def seen(cloud):
    watching = Seen(cloud)
    watching.start()
    yield watching
    watching.ended.set()
    watching.join()


def operations(cloud, since):
    """Return (kind, expected, took) of operations on servers of leases."""
    found = []
    for one in secondaries.operations(cloud, since):
        if one['parameters'].get('request') == 'leases':
            said = _TOOK.search(one.get('message') or '')
            found.append((one['kind'], one['state'],
                          one['parameters'].get('expected'),
                          float(said[1]) if said else None,
                          one.get('message')))
    return found


def calm():
    """Nothing happens in between."""
    return contextlib.nullcontext()


def without_api():
    return services.without('nova-api')


def without_database():
    return services.without('mariadb')


def without_engine():
    return services.without('watcher-engine-1')


def check_preemption(leases, seen, workers, their, fault=calm, lasts=0):
    """Have a reservation preempt workers of ``their`` leases.

    It begins on its second, whatever happens meanwhile, and they go on with
    their memory.
    """
    cloud, began = leases.cloud, time.time()
    seen.units = secondaries.Units(list(workers))
    wait_until(lambda: all(seen.units.count.values()), 120,
               lambda: f'all work: {seen.units.count}')
    start = int(time.time()) + AHEAD_S
    exact = leases.reserve('worker-idle', start)
    time.sleep(max(0.0, start - 70 - time.time()))
    with fault():
        time.sleep(lasts)
    time.sleep(max(0.0, start + 15 - time.time()))
    reserved = leases.show(exact)['servers']
    came = {one: seen.first(one, 'ACTIVE') for one in reserved}
    left = {one: seen.first(one, 'SUSPENDED') for one in workers}
    print(f'\nwith {fault.__name__}:')
    for name, found in (('running', came), ('suspended', left)):
        print(f'  {name}, s from the start that was reserved: '
              + ', '.join('never' if one is None else f'{one - start:+.1f}'
                          for one in found.values()))
    leases.wait(exact, ('done',), RESERVED_S + 60)
    wait_until(lambda: all(
        cloud.compute.get_server(one).status == 'ACTIVE' for one in workers),
        180, lambda: 'all run again: ' + '\n'.join(map(leases.tell, their)))
    time.sleep(5)
    for one in (exact, *their):
        print(f"  {leases.show(one).get('name')}:\n{leases.tell(one)}")
    for one in operations(cloud, began):
        print('  operation:', *one)
    print(f'  units: {seen.units.count}, lost {seen.units.lost}')
    assert len(reserved) == 3, leases.show(exact)
    assert None not in came.values(), came
    assert abs(max(came.values()) - start) <= OFF_S, came
    assert all(when is not None and when <= start
               for when in left.values()), left
    assert seen.units.lost == 0


@pytest.mark.soak
@pytest.mark.parametrize(('fault', 'lasts'), [
    (calm, 0), (without_api, 20), (without_database, 2),
    (without_engine, 5)])
def test_a_reservation_begins_on_its_second(known_boots, leases, seen, fault,
                                            lasts):
    """Preempted leases resume later with their memory."""
    patient = leases.ask('demo', 2, 'secondary', 'worker-cpu', WORKS_S,
                         name='patient')
    check_preemption(leases, seen, leases.wait_running(patient, 240),
                     [patient], fault, lasts)


@pytest.fixture
def booted(cloud, owner, leases):
    """Two servers that their owner has booted, without a lease."""
    found = secondaries.boot(owner, [
        (f'test-alone-{number}', HALF, None) for number in (1, 2)])
    yield found
    primaries.delete(cloud, *found)


@pytest.mark.soak
def test_server_without_a_lease_is_preempted_by_one(
        cloud, known_boots, leases, booted, seen):
    """It returns with its memory, and is left alone when it is stopped.
    """
    demo_leases = leases.owners['demo']

    def adopted():
        """Return the leases of the two servers, by server."""
        with contextlib.suppress(*fleets.AWAY, client.LeaseError):
            return {server: lease for lease in demo_leases.leases(
                        state=['active', 'suspended-queued'])
                    for server in lease['servers'] if server in booted}
        return {}

    found = wait_until(
        lambda: (now := adopted()).keys() == booted.keys() and now, 120,
        lambda: f'both have a lease: {adopted()}')
    for server, lease in found.items():
        leases.made.append(('demo', lease['id']))
        assert (lease['kind'], lease['duration'], lease['name']) == (
            'best-effort', None, booted[server]), lease
    check_preemption(leases, seen, booted,
                     [one['id'] for one in found.values()])
    # What its owner stops is its owner's: the lease is over, it stays.
    stopped, lease = next(iter(found.items()))
    cloud.compute.stop_server(stopped)
    leases.wait(lease['id'], ('done',), 60)
    time.sleep(15)
    assert cloud.compute.get_server(stopped).status == 'SHUTOFF'
    cloud.compute.start_server(stopped)
    again = wait_until(lambda: adopted().get(stopped), 60,
                       lambda: f'it has a new lease: {adopted()}')
    assert again['id'] != lease['id']


@pytest.fixture
def fresh_image(cloud):
    """Another image of what ``worker-idle`` has."""
    like = cloud.image.find_image('worker-idle', ignore_missing=False)
    image = cloud.create_image(
        FRESH, filename=str(layout.GUEST / 'disk.raw'), disk_format='raw',
        container_format='bare', visibility='public', wait=True,
        allow_duplicates=True, kernel_id=like.kernel_id,
        ramdisk_id=like.ramdisk_id, os_command_line=like.os_command_line)
    yield image.id
    cloud.image.delete_image(image.id)


@pytest.mark.soak
def test_hosts_have_an_image_before_servers_boot_from_it(
        cloud, known_boots, leases, hosts, fresh_image):
    began = time.time()
    # The hosts of the box keep images in one place.
    file = layout.SHARED / 'instances/_base' / hashlib.sha1(
        fresh_image.encode()).hexdigest()
    start = int(began) + AHEAD_S
    exact = leases.reserve(FRESH, start)
    wait_until(file.exists, start - 30 - time.time(),
               lambda: f'{file} is there:\n{operations(cloud, began)}\n'
               + leases.tell(exact))
    print(f'\nthe image is there {start - time.time():.0f} s before the start')
    assert not leases.show(exact)['servers']
    leases.wait_running(exact, start + 60 - time.time())
    asked = [(one['parameters']['host'], one['state'])
             for one in secondaries.operations(cloud, began)
             if one['kind'] == 'cache_image']
    print(f'  asked for: {asked}\n' + leases.tell(exact))
    assert len(dict(asked)) == len(asked) > 0, 'once on each host'
    assert {host for host, _ in asked} <= set(hosts)
    assert {state for _, state in asked} == {'SUCCEEDED'}


@pytest.mark.soak
def test_operations_take_as_long_as_expected(cloud, leases):
    """Once enough has been seen; a lease is paused again and again."""
    began = time.time()
    lease = leases.ask('demo', 2, 'secondary', 'worker-idle', 3600,
                       name='paused')
    leases.wait_running(lease, 240)
    owner = leases.owners['demo']
    for _ in range(22):
        owner.act(lease, 'pause')
        leases.wait(lease, ('suspended-queued', 'suspended-pending'), 120)
        owner.act(lease, 'unpause')
        leases.wait(lease, ('active',), 120)
        leases.wait_running(lease, 120)
    ratios = collections.defaultdict(list)
    for kind, state, expected, took, _ in operations(cloud, began):
        if state == 'SUCCEEDED' and took and expected:
            ratios[kind].append((took / expected, took, expected))
    for kind, found in ratios.items():
        later = sorted(one for one, _, _ in found[8:])
        if later:
            print(f'\n{kind}: {len(found)} operations; after the first 8 '
                  f'took / expected: least {later[0]:.2f}, median '
                  f'{statistics.median(later):.2f}, most {later[-1]:.2f}; '
                  f'the last took {found[-1][1]:.2f} s, {found[-1][2]:.2f} s '
                  'were expected')
    for kind in ('suspend', 'resume'):
        later = [one for one, _, _ in ratios[kind][8:]]
        assert len(ratios[kind]) >= 30, kind
        assert 0.7 <= statistics.median(later) <= 1.3, (kind, later)
