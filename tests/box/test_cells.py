# SPDX-License-Identifier: Apache-2.0

"""A cell of Nova whose database is away, in the middle of four leases.

``python3 tools/box up --cells 2`` makes a second cell with the last host.
"""

import contextlib
import datetime
import threading
import time
import urllib.request

import pytest

import cells as box_cells
import layout
import seed
from tests.box import load
from tests.box.services import agent_status, wait_until
from tests.box.tenants import Tenant

pytestmark = pytest.mark.soak

#: Seconds for which the cell is away, and when a lease begins and ends in it.
#: It begins once a burst at the begin of the fault is over.
FAULT_S, BEGIN_S, END_S = 180, 120, 90
#: Seconds for which a host on which a server has booted is left alone.
BACKOFF_S = 32
#: Longest time, in seconds, between two passes of the lease engine: its
#: interval, and one request that waits for the cell.
PASS_S = 20.0
#: Duration of the leases that begin, and how late a boot in the other cell may
#: be: Nova waits for the silent one, too.
LEASE_S, BOOT_S = 120, 40
#: Use by the primary of a busy host, in percent, and seconds until the cloud
#: has relieved it.
BUSY, RELIEF_S = 75.0, 60.0
PASSED = 'secondary_lease_engine_last_pass_timestamp_seconds'


@pytest.fixture
def cells():
    """Return the hosts of the first cell and the host of the second one."""
    settings = layout.load_settings()
    if not box_cells.hosts_of_second(settings):
        pytest.skip('needs two cells: python3 tools/box up --cells 2')
    names = layout.host_names(settings)
    return names[:-1], names[-1]


@pytest.fixture
def flavors(cloud, cells):
    """Have a flavor of secondaries for each cell."""
    compute = cloud.compute
    found = compute.find_flavor('secondary', get_extra_specs=True)
    for number in (1, 2):
        old = compute.find_flavor(f'test-cell{number}')
        if old is not None:
            compute.delete_flavor(old)
        made = compute.create_flavor(
            name=f'test-cell{number}', vcpus=1, ram=seed.MEMORY_MB,
            disk=seed.DISK_GB)
        compute.create_flavor_extra_specs(made, {
            **found.extra_specs,
            'aggregate_instance_extra_specs:secondary:cell': str(number)})


@pytest.fixture
def tenant(cloud, no_fleet, leases_run, flavors):
    found = Tenant(cloud)
    yield found
    found.end()


def ask(tenant, cell, image, ahead=None, number=1, **terms):
    nodes = {'flavor': f'test-cell{cell}', 'image': f'worker-{image}',
             'number': number}
    return (tenant.ask(nodes, **terms) if ahead is None
            else tenant.ahead(ahead, nodes=nodes, **terms))


@contextlib.contextmanager
def away(kind):
    """Take the database of the second cell away."""
    box_cells.FAULT.write_text(kind)
    try:
        yield
    finally:
        box_cells.FAULT.unlink()


class Watch(threading.Thread):
    """Lease states, passes of the engine, and invalid policies."""

    def __init__(self, tenant, hosts):
        super().__init__(daemon=True)
        self._tenant = tenant
        self._hosts = hosts
        self.began = time.time()
        self.states = {}    # by lease: (seconds, state), when it changes
        self.pauses = []    # ages of the last pass, in seconds
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(1.0):
            now = time.time() - self.began
            for lease in self._tenant.made:
                seen = self.states.setdefault(lease, [])
                state = self._tenant.show(lease)['state']
                if not seen or seen[-1][1] != state:
                    seen.append((round(now), state))
            with contextlib.suppress(OSError, StopIteration):
                self.pauses.append(time.time() - last_pass())

    def stop(self):
        self.ended.set()
        self.join()


def last_pass():
    """Return when the lease engine has made its last pass."""
    with urllib.request.urlopen(
            f'http://{layout.CONTROL}:9920/metrics', timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines
                      if line.startswith(f'{PASSED} ')))


def invalidations(hosts):
    return {host: agent_status(host)['counters']['invalidations']
            for host in hosts}


def place_of(tenant, cloud, lease):
    """Return the host of a lease's only server, and the server."""
    (server,) = tenant.servers(lease)
    return cloud.compute.get_server(server.id).compute_host, server.id


def relieve(host, uuid):
    """Keep a host busy until a secondary has left it; return the time.

    By the host itself: Nova may be slow while a cell is silent.
    """
    began = time.time()
    with load.burner(host, BUSY):
        wait_until(lambda: uuid not in {
            one['uuid'] for one in agent_status(host)['instances']},
            3 * RELIEF_S, lambda: f'{uuid} has left {host}')
    return time.time() - began


@pytest.mark.parametrize('kind', ['refused', 'silent'])
def test_leases_survive_a_cell_that_is_away(kind, cloud, tenant, cells):
    """One lease runs, one ends, one begins, and one is preempted for it."""
    others, host = cells
    elsewhere = ask(tenant, 1, 'cpu', duration=1200)
    runs = ask(tenant, 2, 'idle', duration=1200)
    for lease in (runs, elsewhere):
        tenant.wait(lease, ['active'], 300)
    # Of leases that began together, either one may be preempted.
    preempted = ask(tenant, 2, 'idle', duration=1200, number=2)
    tenant.wait(preempted, ['active'], 300)
    place = place_of(tenant, cloud, elsewhere)
    undisturbed = relieve(*place)
    tenant.wait(elsewhere, ['active'], 300)
    wait_until(lambda: all(agent_status(one)['admission'] for one in others),
               120, lambda: f'{others} take secondaries again')
    ends, ends_there = (
        ask(tenant, cell, 'idle', duration=END_S + BACKOFF_S,
            preemptible=False)
        for cell in (2, 1))
    for lease in (ends, ends_there):
        tenant.wait(lease, ['active'], 120)
    time.sleep(BACKOFF_S)
    # The second cell is full, and the latest lease gives its place.
    begins = ask(tenant, 2, 'idle', ahead=BEGIN_S, duration=LEASE_S)
    begins_there = ask(tenant, 1, 'idle', ahead=BEGIN_S, duration=LEASE_S)
    for lease in (begins, begins_there):
        tenant.wait(lease, ['scheduled', 'ready', 'preparing'], 30)
    place = place_of(tenant, cloud, elsewhere)
    before, began = invalidations(others), time.time()
    watch = Watch(tenant, others)
    watch.start()
    with away(kind):
        disturbed = relieve(*place)
        time.sleep(max(0.0, began + FAULT_S - time.time()))
    back = time.time()
    late = gone = 0.0
    try:
        tenant.wait(begins, ['active'], 120)
        late = time.time() - back
        tenant.wait(ends, ['done'], 120)
        gone = time.time() - back
        tenant.wait(preempted, ['active'], 300)
        tenant.wait(elsewhere, ['active'], 240)
    finally:
        watch.stop()
        print(f'\nrelief {undisturbed:.1f} s, in the fault {disturbed:.1f} s; '
              f'longest pause of passes {max(watch.pauses):.1f} s; {late:.0f} '
              f'and {gone:.0f} s after the cell was back the reservation ran '
              'and the ended lease was gone')
        for name, lease in (
                ('runs', runs), ('begins', begins), ('ends', ends),
                ('preempted', preempted), ('elsewhere', elsewhere),
                ('begins there', begins_there), ('ends there', ends_there)):
            print(f'\n{name} {watch.states.get(lease)}\n'
                  f'{tenant.story(lease)}')
    assert late <= 60
    assert disturbed <= undisturbed + RELIEF_S / 2
    assert max(watch.pauses) <= PASS_S
    assert invalidations(others) == before
    assert {state for _, state in watch.states[runs]} <= {'active', 'unknown'}
    assert tenant.show(runs)['state'] == 'active'
    for lease in (ends, ends_there, begins):
        tenant.wait(lease, ['done'], 300)
    # It may lack the time by which Nova was late to boot it.
    tenant.wait(begins_there, ['done', 'failed'], 300)
    assert tenant.show(begins_there)['served'] >= LEASE_S - BOOT_S
    kept = {runs: 1, preempted: 2, elsewhere: 1}
    for lease, number in kept.items():
        assert len(tenant.servers(lease)) == number, tenant.story(lease)
    assert {one.metadata.get('secondary:lease') for one in
            cloud.compute.servers(all_projects=True)} == kept.keys()
    assert host not in targets(cloud, began + 15, back)


def targets(cloud, begin, end):
    """Return the hosts to which servers were to come, by actions of a time."""
    return {action['input_parameters'].get('target')
            for action in seed.listed(seed.watcher(cloud), 'actions')
            if begin < datetime.datetime.fromisoformat(
                action['created_at']).replace(
                    tzinfo=datetime.UTC).timestamp() < end
            and action['action_type'].endswith(('migrate', 'boot'))}
