# SPDX-License-Identifier: Apache-2.0

"""The operator's constraints file, on a real cloud."""

import contextlib
import json
import time

import pytest

import control
import layout
import secondaries
from secondary_scheduler.cmd import providers
from secondary_scheduler.model import vocabulary
import seed
import shell
from tests.box import services, switches
from tests.box.services import wait_until
from tests.box.test_unequal_hosts import tell

FILE = layout.ETC / 'secondary_scheduler/constraints.yaml'
#: Seconds for a drain, and until a host takes secondaries again.
DRAIN_S, OPENS_S = 180, 120
#: Seconds until a guest works, on hosts with a third of a CPU.
WORKS_S = 180

pytestmark = pytest.mark.soak


@pytest.fixture
def guests(cloud, no_fleet, switch):
    """Hosts without other guests; those of the test are deleted."""
    control.forget_orphans()
    found = switches.Guests(cloud)
    yield found
    services.start_missing()
    found.delete()


@pytest.fixture
def constrain():
    """Write the constraints file; at the end it has no constraints."""
    yield FILE.write_text
    FILE.write_text('[]\n')


@contextlib.contextmanager
def drained(cloud, host):
    """Run a block after a host was drained; open the host after it."""
    placement = providers.Providers(cloud.placement)
    tell('drain', host)
    try:
        yield
    finally:
        tell('enable', host)
        wait_until(lambda: placement.child(host).allowed[vocabulary.SLOT],
                   OPENS_S, f'{host} is open')


def work(uuids):
    """Wait until guests work; return their counts."""
    units = switches.units_of(uuids)
    wait_until(lambda: units.update() or all(units.count.values()), WORKS_S,
               lambda: f'all work: {units.count}')
    return units


def test_fence_holds_in_a_drain(cloud, guests, constrain):
    """The fenced guest moves to the only other host that it may be on."""
    fenced, _free = uuids = guests.boot(
        ('test-fenced', 'secondary', 'box1', 'fenced'),
        ('test-free', 'secondary', 'box1', None))
    units = work(uuids)
    constrain(f'- fence: {{leases: ["{guests.lease_of(fenced)}"], '
              'hosts: [box1, box3]}\n')
    hosts = set()

    def moved():
        seen, = guests.look([fenced])
        hosts.add(seen.host)
        return (seen.status, seen.task, seen.host) == ('ACTIVE', None, 'box3')

    with drained(cloud, 'box1'):
        wait_until(moved, DRAIN_S, lambda: f'moved: {guests.look(uuids)}',
                   period=0.5)
    assert hosts == {'box1', 'box3'}
    guests.wait_states(uuids, 'ACTIVE', DRAIN_S)
    units.update()
    assert units.lost == 0
    path, = (layout.SERVICE_STATE / 'watcher/models').glob(
        f'{seed.switch(cloud)}.json')
    made = shell.run([layout.BIN / 'secondary-scheduler', 'plan', 'optimise',
                      path])
    assert json.loads(made.stdout)['schema'] == 1
    known = json.loads(path.read_text())
    assert fenced in {one['name'] for one in known['instances']}


def test_nothing_moves_with_a_file_that_cannot_be_read(
        cloud, guests, constrain):
    """The services begin with such a file; a correct one is used at once."""
    uuids = guests.boot(('test-still', 'secondary', 'box1', None))
    units = work(uuids)
    engines = [name for name in control.services(layout.load_settings())
               if name.startswith('watcher-engine-')]
    with services.without(*engines):
        constrain('- fence: {hosts: box1}\n')
        offsets = {log: services.log_size(log)
                   for log in map('{}-service.log'.format, engines)}
    began = time.time()
    with drained(cloud, 'box1'):
        guests.wait_states(uuids, 'SUSPENDED', DRAIN_S)
    assert [one.host for one in guests.look(uuids)] == ['box1']
    assert {one['kind'] for one in secondaries.operations(
        cloud, began)}.isdisjoint({'migrate', 'unshelve'})
    logged = ''.join(services.log_since(log, offset)
                     for log, offset in offsets.items())
    assert f'{FILE}, line 1: entry 1.fence' in logged
    assert 'No instance is moved to another host.' in logged
    constrain('[]\n')
    guests.wait_states(uuids, 'ACTIVE', DRAIN_S)
    units.update()
    assert units.lost == 0
