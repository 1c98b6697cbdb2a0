# SPDX-License-Identifier: Apache-2.0

"""Rights of tenants and of credentials on a compute host (doc, "Security").

The agents of the box have what the documentation says they need, so that all
other tests show that it is enough; these show that it is no more.
"""

import json
import time
import uuid

import amqp
from keystoneauth1 import adapter
import openstack
import pytest

import layout
from secondary_scheduler.model import vocabulary
import seed
from tests.box import boots, services
from tests.box.primaries import delete

OTHER = 'secondary_agent.{}'
ANYTHING = str(uuid.UUID(int=1))


# -- a tenant ---------------------------------------------------------------
@pytest.fixture
def boot(cloud, owner, empty_cloud):
    """Boot a secondary from an image of the tenant's own."""
    images, servers = [], []

    def boot(**properties):
        images.append(owner.image.create_image(
            name=f'test-own-{uuid.uuid4()}', disk_format='raw',
            container_format='bare', data=bytes(1 << 20), **properties))
        servers.append(owner.compute.create_server(
            name='test-own', networks='none', image_id=images[-1].id,
            flavor_id=owner.compute.find_flavor('secondary').id))
        return servers[-1].id

    yield boot
    delete(cloud, *(one.id for one in servers))
    for one in images:
        owner.image.delete_image(one)


def test_an_image_gets_no_core_for_itself(boot):
    with pytest.raises(openstack.exceptions.BadRequestException,
                       match='CPU pinning'):
        boot(hw_cpu_policy='dedicated')


def test_an_image_gets_nothing_of_a_primarys(cloud, owner, no_fleet, boot):
    boots.wait_for_room(cloud, owner, 'without the property')
    offset = services.log_size(boots.SCHEDULER_LOG)

    def is_refused():
        server = boot(hw_numa_nodes='1')
        services.wait_until(lambda: owner.compute.get_server(
            server).status == 'ERROR', 60, 'no host is found')
        return (f'No host for secondary instance {server}'
                in services.log_since(boots.SCHEDULER_LOG, offset))

    # Placement finds no room at all for the seconds in which agents notice
    # that the guest before has gone.
    services.wait_until(is_refused, 120, 'the scheduler refuses its image')


# -- the Keystone user ------------------------------------------------------
@pytest.fixture(scope='module')
def session(box):
    """A session of the agents' user."""
    return openstack.connect(username=seed.AGENT,
                             project_name='service').session


@pytest.fixture(scope='module')
def placement(session):
    """Placement as the agents see it."""
    return adapter.Adapter(
        session, service_type='placement', raise_exc=False,
        default_microversion=vocabulary.PLACEMENT_VERSION)


@pytest.fixture(scope='module')
def provider(placement, hosts):
    """The child provider of the first host."""
    answer = placement.get(f'/resource_providers?name={hosts[0]}')
    assert answer.status_code == 200, answer.text
    root = next(one['uuid'] for one in answer.json()['resource_providers']
                if not one['parent_provider_uuid'])
    return '/resource_providers/' + vocabulary.child_provider_uuid(root)


def test_the_agents_keep_the_inventory_with_it(placement, provider, hosts):
    began = time.time()

    def kept(host):
        status = services.agent_status(host)
        return status.get('time', 0) > began and (
            status['inventory']['state'] == 'kept')

    services.wait_until(lambda: all(map(kept, hosts)), 60, lambda: {
        host: services.agent_status(host).get('inventory') for host in hosts})
    for what in ('inventories', 'traits', 'allocations'):
        assert placement.get(f'{provider}/{what}').status_code == 200, what
    now = placement.get(f'{provider}/inventories').json()
    now['resource_provider_generation'] += 1000     # never carried out
    assert placement.put(f'{provider}/inventories',
                         json=now).status_code == 409


@pytest.mark.parametrize('method, url, body', [
    ('PUT', f'/allocations/{ANYTHING}', {}),
    ('POST', '/allocations', {}),
    ('DELETE', f'/allocations/{ANYTHING}', None),
    ('GET', f'/allocations/{ANYTHING}', None),
    ('POST', '/resource_providers', {'name': 'mine'}),
    ('DELETE', '{provider}', None),
    ('PUT', '{provider}', {'name': 'mine'}),
    ('POST', '{provider}/inventories', {}),
    ('DELETE', '{provider}/inventories', None),
    ('PUT', '{provider}/traits', {}),
    ('DELETE', '{provider}/traits', None),
    ('PUT', '{provider}/aggregates', {}),
    ('PUT', '/resource_classes/CUSTOM_MINE', None),
    ('PUT', '/traits/CUSTOM_MINE', None),
    ('POST', '/reshaper', {})])
def test_placement_refuses_the_rest(placement, provider, method, url, body):
    more = {} if body is None else {'json': body}
    answer = placement.request(url.format(provider=provider), method,
                               microversion='1.36', **more)
    assert answer.status_code == 403, answer.text


@pytest.mark.parametrize('service, method, url, body', [
    ('compute', 'POST', '/os-server-external-events', {'events': [{
        'name': 'network-vif-plugged', 'server_uuid': ANYTHING}]}),
    ('compute', 'GET', '/servers/detail?all_tenants=1', None),
    ('compute', 'GET', '/os-hypervisors', None),
    ('identity', 'GET', '/users', None),
    ('infra-optim', 'GET', '/v1/audits', None)])
def test_other_services_refuse_all(session, service, method, url, body):
    api = adapter.Adapter(session, service_type=service, raise_exc=False)
    more = {} if body is None else {'json': body}
    assert api.request(url, method, **more).status_code == 403


# -- the broker account -----------------------------------------------------
@pytest.fixture
def channel(hosts):
    """An AMQP channel of the first host's account."""
    with connected(hosts[0]) as connection:
        yield connection.channel()


def connected(host, virtual_host=layout.MEETING):
    return amqp.Connection(
        host=layout.CONTROL, userid=f'secondary-agent-{host}',
        password=layout.SECRET, virtual_host=virtual_host)


def published(channel, exchange, key):
    """Publish a hint about no instance, and wait for the broker to take it."""
    call = {'method': 'thaw_hint', 'args': {'uuid': ANYTHING},
            '_unique_id': uuid.uuid4().hex}
    channel.confirm_select()
    channel.basic_publish_confirm(amqp.Message(
        json.dumps({'oslo.version': '2.0',
                    'oslo.message': json.dumps(call)}),
        content_type='application/json', content_encoding='utf-8'),
        exchange, key)


def test_an_account_reaches_no_other_virtual_host(hosts):
    with pytest.raises(amqp.NotAllowed):
        connected(hosts[0], '/').connect()


@pytest.mark.parametrize('do', [
    lambda channel, other: channel.basic_consume(other),
    lambda channel, other: channel.basic_get(other),
    lambda channel, other: channel.queue_purge(other),
    lambda channel, other: channel.queue_delete(other),
    lambda channel, other: channel.queue_declare(other)],
    ids=['consume', 'get', 'purge', 'delete', 'declare'])
def test_an_account_reads_no_other_hosts_queue(channel, hosts, do):
    with pytest.raises(amqp.AccessRefused):
        do(channel, OTHER.format(hosts[1]))


@pytest.mark.parametrize('exchange, key', [
    ('secondary_scheduler', '#'),
    ('secondary_scheduler', 'secondary_scheduler_describe'),
    ('secondary_scheduler', OTHER.format('box2')),
    ('secondary_scheduler_fanout', '')])
def test_an_account_overhears_nothing(channel, hosts, exchange, key):
    # A queue with which it may do all that it may with any.
    name = channel.queue_declare('secondary_agent_fanout_mine',
                                 exclusive=True).queue
    channel.queue_bind(name, 'secondary_scheduler',
                       OTHER.format(hosts[0]))
    with pytest.raises(amqp.AccessRefused):
        channel.queue_bind(name, exchange, key)


@pytest.mark.parametrize('exchange, key', [
    ('secondary_scheduler', OTHER.format('box2')),
    ('secondary_agent_fanout', '')])
def test_an_account_calls_no_agent_by_topic(channel, exchange, key):
    with pytest.raises(amqp.AccessRefused):
        published(channel, exchange, key)


def test_broker_cannot_refuse_replies_and_fanout(channel, hosts):
    """Answers go through the default exchange, which knows no topics."""
    published(channel, '', OTHER.format(hosts[1]))
    published(channel, 'secondary_scheduler_fanout', '')
