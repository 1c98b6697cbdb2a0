# SPDX-License-Identifier: Apache-2.0

"""Leases that cannot run: refused at once, or ended with the reason."""

import contextlib
import time

import pytest

from secondary_scheduler.leases.client import client
from secondary_scheduler.model import vocabulary
import seed
from tests.box import services
from tests.box.services import wait_until
from tests.box.tenants import Tenant

#: Seconds after which the box's engine gives an operation up; see the option
#: give_up_after in tools/box/control.py.
GIVE_UP_S = 25


@pytest.fixture(autouse=True)
def nothing_raises():
    """Watcher logs failed actions, of which there are many here, by itself.
    """


@pytest.fixture
def tenant(cloud, leases_run):
    found = Tenant(cloud)
    yield found
    services.start_missing()
    found.end()


@pytest.fixture(scope='module')
def image(cloud):
    """An image that may be deleted, and one too large for the flavor."""
    source = cloud.image.find_image('worker-idle', ignore_missing=False)
    data = cloud.image.download_image(source)
    content = data.content if hasattr(data, 'content') else data
    made = []

    def make(name, **more):
        one = cloud.image.create_image(
            name=name, data=content, disk_format=source.disk_format,
            container_format=source.container_format, visibility='public',
            wait=True, **more)
        made.append(one.id)
        return one

    yield make
    for one in made:
        cloud.image.delete_image(one, ignore_missing=True)


# -- refused at the door


@pytest.mark.parametrize(('nodes', 'field', 'word'), [
    ({'image': 'no-such-image'}, 'nodes[0].image', 'openstack image list'),
    ({'key_name': 'no-such-key'}, 'nodes[0].key_name', 'keypair list'),
    ({'flavor': 'no-such-flavor'}, 'nodes[0].flavor', 'flavor list'),
    ({'flavor': 'primary'}, 'nodes[0].flavor', 'not a secondary flavor'),
    ({'networks': [{'uuid': 'no-such-network'}]}, 'nodes[0].networks[0]',
     'network list'),
], ids=('image', 'key', 'flavor', 'primary-flavor', 'network'))
def test_wrong_reference_is_refused_at_once(tenant, nodes, field, word):
    with pytest.raises(client.LeaseError) as caught:
        tenant.ask({'number': 2, **nodes})
    print(caught.value)
    assert '400' in repr(caught.value.__dict__) + str(caught.value)
    assert field in str(caught.value)
    assert word in str(caught.value)


def test_image_larger_than_the_flavors_disk_is_refused_at_once(tenant, image):
    image('test-large', min_disk=50)
    with pytest.raises(client.LeaseError) as caught:
        tenant.ask({'image': 'test-large'})
    print(caught.value)
    assert 'disk of 50 GiB' in str(caught.value)


@contextlib.contextmanager
def quota(cloud, instances):
    project = cloud.identity.find_project('demo', ignore_missing=False)
    before = cloud.compute.get_quota_set(project).instances
    cloud.compute.update_quota_set(project, instances=instances)
    try:
        yield
    finally:
        cloud.compute.update_quota_set(project, instances=before)


def test_lease_above_the_quota_is_refused_with_its_figures(cloud, tenant):
    with quota(cloud, 1), pytest.raises(client.LeaseError) as caught:
        tenant.ask({'number': 2})
    print(caught.value)
    assert '1 of 1 instances' in str(caught.value)


# -- ended by the engine


@pytest.mark.soak
def test_resources_that_go_before_the_start_end_leases(cloud, tenant, image):
    """Image, flavor, quota and trust are gone when servers are to boot."""
    image('test-gone')
    flavor = cloud.compute.create_flavor(
        name='test-gone', vcpus=1, ram=128, disk=1)
    cloud.compute.create_flavor_extra_specs(
        flavor, vocabulary.secondary_extra_specs(
            1, 128, 1, vocabulary.SecondaryMark()))
    other = Tenant(cloud, 'other')
    try:
        without_image = tenant.ahead(60, nodes={'image': 'test-gone'})
        without_flavor = tenant.ahead(60, nodes={'flavor': 'test-gone'})
        pair = tenant.ahead(60, nodes={'number': 2})
        untrusted = other.ahead(60)
        for lease in (without_image, without_flavor, pair):
            tenant.wait(lease, ('scheduled', 'ready'), 60)
        other.wait(untrusted, ('scheduled', 'ready'), 60)
        cloud.image.delete_image(cloud.image.find_image('test-gone'))
        cloud.compute.delete_flavor(flavor)
        for trust in other.own.identity.trusts(
                trustor_user_id=other.own.current_user_id):
            other.own.identity.delete_trust(trust)
        with quota(cloud, 1):
            tenant.assert_over(pair, 'failed', 'quota')
            tenant.assert_over(without_image, 'failed', 'image')
            tenant.assert_over(without_flavor, 'failed', 'flavor')
            other.assert_over(untrusted, 'failed', 'right to act')
    finally:
        cloud.compute.delete_flavor(flavor, ignore_missing=True)
        other.end()


@pytest.mark.parametrize(('service', 'nodes', 'word'), [
    ('neutron', {'networks': 'auto'}, 'boot of server 0'),
    ('glance', {}, 'boot of server 0'),
])
def test_service_that_is_down_for_long_ends_a_lease(tenant, service, nodes,
                                                    word):
    with services.without(service):
        lease = tenant.ask(nodes)
        assert tenant.show(lease)['unverified']
        found = tenant.wait(lease, ('starting',), 60)
        wait_until(lambda: 'boot of server 0' in tenant.show(lease)['reason'],
                   60, lambda: f'the reason is shown: {found}')
        tenant.assert_over(lease, 'failed', 'given up after', word)


@pytest.mark.soak
def test_keystone_that_is_down_for_long_ends_a_lease(tenant):
    lease = tenant.ahead(30)
    tenant.wait(lease, ('scheduled', 'ready'), 30)
    with services.without('keystone'):
        time.sleep(30 + GIVE_UP_S + 30)
    tenant.assert_over(lease, 'failed', 'boot of server 0')


def test_service_that_comes_back_in_time_ends_nothing(tenant):
    with services.without('glance'):
        lease = tenant.ask()
        later = tenant.ahead(3600)
        wrong = tenant.ahead(3600, nodes={'image': 'no-such-image'})
        assert tenant.show(wrong)['unverified']
        tenant.wait(lease, ('starting',), 60)
        time.sleep(10)
    found = tenant.wait(lease, ('active',), 120)
    assert found['unverified'] == []
    # Those that have not begun are verified by the engine.
    tenant.assert_over(wrong, 'failed', 'there is no image no-such-image')
    wait_until(lambda: tenant.show(later)['unverified'] == [], 120,
               lambda: f'it is verified: {tenant.show(later)}')
    assert tenant.show(later)['state'] == 'scheduled'


def test_hosts_that_take_no_server_end_a_lease(tenant, hosts):
    with services.another_policy('slots <= 0 in aggregate:secondary',
                                 'nova-scheduler'):
        lease = tenant.ask()
        tenant.assert_over(lease, 'failed', 'No valid host', timeout=300)


# -- servers of a lease that runs


def test_servers_that_stop_running_are_told(cloud, tenant):
    stopped = tenant.ask({'number': 2}, 90)
    deleted, broken = tenant.ask(), tenant.ask()
    for lease in (stopped, deleted, broken):
        tenant.wait(lease, ('active',), 120)
    tenant.own.compute.stop_server(tenant.servers(stopped)[0])
    tenant.own.compute.delete_server(tenant.servers(deleted)[0])
    cloud.compute.reset_server_state(tenant.servers(broken)[0], 'error')
    tenant.wait(stopped, ('interrupted',), 60)
    wait_until(lambda: 'SHUTOFF by its owner' in tenant.show(
        stopped)['reason'], 60, lambda: tenant.story(stopped))
    tenant.assert_over(deleted, 'done', 'servers have been deleted')
    found = tenant.assert_over(broken, 'failed', 'is in ERROR')
    assert found['served'] < 60
    found = tenant.assert_over(stopped, 'done', 'of 90 s',
                               'SHUTOFF by its owner', timeout=240)
    assert found['served'] < 60


# -- no engine


def test_answers_tell_that_no_engine_looks_at_leases(cloud, tenant):
    seed.run_leases(cloud, False)
    try:
        lease = tenant.ask()
        wait_until(lambda: tenant.show(lease) and (
            tenant.leases.engine.get('stale')), 120, 'it is told')
        print(tenant.leases.engine)
        assert 'leases=true' in tenant.leases.engine['message']
        assert tenant.leases.engine['last_pass']
    finally:
        seed.run_leases(cloud, True)
    tenant.wait(lease, ('active',), 120)
    assert not tenant.leases.engine['stale']


@pytest.mark.soak
def test_server_that_its_owner_paused_is_suspended_with_its_lease(tenant):
    lease = tenant.ask()
    tenant.wait(lease, ('active',))
    server, = tenant.servers(lease)
    tenant.own.compute.pause_server(server)
    wait_until(lambda: tenant.servers(lease)[0].status == 'PAUSED', 60,
               lambda: str(tenant.servers(lease)))
    tenant.leases.act(lease, 'pause')
    tenant.wait(lease, ('suspended-pending', 'suspended-queued'))
    assert [one.status for one in tenant.servers(lease)] == ['SUSPENDED']
    tenant.leases.act(lease, 'unpause')
    tenant.wait(lease, ('active',))
    assert [one.id for one in tenant.servers(lease)] == [server.id]
