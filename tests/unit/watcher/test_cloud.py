# SPDX-License-Identifier: Apache-2.0

"""Requests to Nova, Glance and Placement."""

import copy
import dataclasses
import types
from unittest import mock

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions as sdk_exceptions
from openstack.compute.v2 import _proxy

from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import (
    cloud,
    cloud_errors,
    cloud_snapshot,
)
from tests.unit.watcher import fakes


def thing(**values):
    return types.SimpleNamespace(**values)


def response(body, status=200):
    return mock.Mock(status_code=status, json=lambda: body, headers={},
                     links={}, url='u')


class Placement:
    """One provider's traits and inventory, with generations."""

    def __init__(self, traits=()):
        self.generation = 3
        self.traits = list(traits)
        self.known = set(traits)
        self.inventories = {vocabulary.SLOT: {'total': 4, 'reserved': 1}}
        self.writes = []
        self.conflicts = 0

    def get(self, url, microversion):
        what = url.rpartition('/')[2]
        return response({'resource_provider_generation': self.generation,
                         what: copy.deepcopy(getattr(self, what))})

    def put(self, url, microversion, json=None):
        what = url.rpartition('/')[2]
        self.writes.append(what)
        if url.startswith('/traits/'):
            self.known.add(what)
            return response({}, 201)
        if self.conflicts or (json['resource_provider_generation']
                              != self.generation):
            self.conflicts -= 1
            self.generation += 1
            return response({}, 409)
        if not set(json.get('traits', ())) <= self.known:
            return response({}, 400)
        self.generation += 1
        setattr(self, what, json[what])
        return response({})


def services(*listed):
    return response({'services': list(listed)})


class CloudTest(fakes.TestCase):
    def setUp(self):
        self.conn = mock.Mock()
        self.compute = self.conn.compute
        self.compute.get_endpoint_data.return_value = None
        self.placement = self.conn.placement
        self.cloud = cloud.Cloud(self.conn)

    def test_only_servers_of_secondary_flavors_are_listed(self):
        self.compute.flavors.return_value = [
            thing(id='f1', extra_specs={vocabulary.MARKER: 'true'}),
            thing(id='f2', extra_specs={}), thing(id='f3', extra_specs=None)]
        self.compute.servers.return_value = [
            fakes.sdk_server(1), fakes.sdk_server(2, extra_specs={})]
        self.assertEqual({fakes.uid(1)}, set(self.cloud.servers()))
        self.compute.servers.assert_called_once_with(
            details=True, all_projects=True, flavor='f1')

    def test_server_of_a_lease_is_found_by_its_tag(self):
        lease = fakes.uid(7)
        self.compute.servers.return_value = [
            fakes.sdk_server(number, metadata={
                vocabulary.LEASE_METADATA: lease,
                cloud_snapshot.NODE: str(number)}) for number in (1, 2)]
        found, = self.cloud.labelled('p1', lease, 2)
        self.assertEqual(fakes.uid(2), found.uuid)
        self.compute.servers.assert_called_once_with(
            details=True, all_projects=True, project_id='p1',
            tags=f'secondary-lease-{lease}-2')

    def test_flavors_are_listed_once_a_minute(self):
        self.compute.flavors.return_value = [
            thing(id='f1', extra_specs={vocabulary.MARKER: 'true'})]
        with mock.patch.object(cloud.time, 'monotonic') as clock:
            for clock.return_value in (1000.0, 1059.0, 1061.0):
                self.assertEqual(('f1',), self.cloud.flavors())
        self.assertEqual(2, self.compute.flavors.call_count)
        self.compute.flavors.side_effect = ksa_exceptions.ConnectTimeout()
        with mock.patch.object(cloud.time, 'monotonic', return_value=2000.0):
            self.assertEqual(('f1',), self.cloud.flavors())
        self.compute.flavors.side_effect = sdk_exceptions.HttpException()
        with mock.patch.object(cloud.time, 'monotonic', return_value=9e9):
            self.assertRaises(cloud_errors.CloudError, self.cloud.servers)

    def test_servers_on_a_host_are_listed_by_one_call(self):
        def answer(number, **extra_specs):
            return {'id': fakes.uid(number), 'OS-EXT-SRV-ATTR:host': 'h1',
                    'flavor': {'vcpus': 1, 'extra_specs': extra_specs}}

        compute = _proxy.Proxy(mock.Mock(), default_microversion='2.100')
        compute.get_endpoint_data = lambda: None
        listed = {'servers': [answer(1, **{vocabulary.MARKER: 'true'}),
                              answer(2)]}
        with mock.patch.object(compute, 'get') as get:
            get.return_value = response(listed)
            found = cloud.Cloud(mock.Mock(compute=compute)).servers_on('h1')
        self.assertEqual([(fakes.uid(1), 'h1')],
                         [(s.uuid, s.host) for s in found.values()])
        get.assert_called_once()
        self.assertEqual({'host': 'h1', 'all_tenants': True},
                         get.call_args.kwargs['params'])

    def test_errors_of_libraries_become_cloud_errors(self):
        for raised, expected in (
                (sdk_exceptions.NotFoundException(), cloud_errors.NotFound),
                (sdk_exceptions.ConflictException(), cloud_errors.Conflict),
                (sdk_exceptions.HttpException(), cloud_errors.CloudError),
                *((kind(response=response({'errors': [{'code': code}]}, 409)),
                   expected) for kind in (sdk_exceptions.ConflictException,
                                          ksa_exceptions.Conflict)
                  for code, expected in (
                      ('placement.concurrent_update', cloud_errors.Conflict),
                      ('placement.inventory.inuse', cloud_errors.Refused))),
                (ksa_exceptions.ConnectFailure(), cloud_errors.CloudError)):
            self.compute.get_server.side_effect = raised
            self.assertRaises(expected, self.cloud.server, fakes.uid(1))

    def test_unreadable_answer_is_a_cloud_error(self):
        self.compute.get_server.return_value = thing(id=fakes.uid(1))
        self.assertRaises(cloud_errors.CloudError, self.cloud.server,
                          fakes.uid(1))
        self.compute.hypervisors.return_value = []
        for garbage in ({}, [], None, {'resource_providers': [{}]}):
            self.placement.get.side_effect = [response(garbage)]
            self.assertRaises(cloud_errors.CloudError, self.cloud.hosts)

    def test_image_is_cached_by_an_aggregate_of_the_host(self):
        mine = thing(name='secondary-image-cache-h1', hosts=None)
        self.compute.aggregates.return_value = [
            thing(name='secondary', hosts=['h1', 'h2'])]
        self.compute.create_aggregate.return_value = mine
        self.cloud.cache_image('h1', 'image')
        self.compute.create_aggregate.assert_called_once_with(
            name='secondary-image-cache-h1')
        self.compute.add_host_to_aggregate.assert_called_once_with(mine, 'h1')
        self.compute.aggregate_precache_images.assert_called_once_with(
            mine, 'image')
        mine.hosts = ['h1']
        self.compute.aggregates.return_value.append(mine)
        self.cloud.cache_image('h1', 'other')
        self.compute.create_aggregate.assert_called_once()
        self.compute.add_host_to_aggregate.assert_called_once()
        self.compute.aggregate_precache_images.assert_called_with(
            mine, 'other')

    def test_concurrent_creation_of_a_cache_aggregate_is_retried(self):
        mine = thing(name='secondary-image-cache-h1', hosts=['h1'])
        self.compute.aggregates.side_effect = [], [mine]
        self.compute.create_aggregate.side_effect = (
            sdk_exceptions.ConflictException())
        self.cloud.cache_image('h1', 'image')
        self.compute.aggregate_precache_images.assert_called_once_with(
            mine, 'image')

    def test_hosts_have_facts_of_nova_and_placement(self):
        root = fakes.uid(100)
        child = vocabulary.child_provider_uuid(root)
        self.compute.hypervisors.return_value = [
            thing(id=root, service_details={'host': 'h1'}),
            thing(id=fakes.uid(101), service_details=None)]
        self.compute.aggregates.return_value = [
            thing(id=7, name='agg', hosts=['h1'],
                  metadata={'ssd': 'true, nvme', 'filter_tenant_id': 'p1'}),
            thing(id=9, name='more', hosts=['h1', 'h2'],
                  metadata={'filter_tenant_id': 'p2'}),
            thing(id=8, name='empty', hosts=None, metadata={})]
        self.compute.get.return_value = services(
            {'host': 'h1', 'status': 'enabled', 'state': 'up',
             'forced_down': False, 'zone': 'nova'},
            {'host': 'h2', 'status': 'disabled', 'state': 'up',
             'forced_down': False, 'zone': None})
        listed = response({'resource_providers': [
            {'uuid': child, 'name': 'h1_secondary', 'generation': 5}]})
        inventories = response({'inventories': {
            vocabulary.SLOT: {'total': 4, 'reserved': 1,
                              'allocation_ratio': 1.5}}})
        usages = response({'usages': {vocabulary.SLOT: 2}})
        self.placement.get.side_effect = [
            listed, response({}, 400), response({}, 400), inventories, usages]
        found = self.cloud.hosts()
        self.assertEqual((root, True, {vocabulary.SLOT: 4},
                          {vocabulary.SLOT: 1}, {vocabulary.SLOT: 2},
                          {'agg', 'more'}, 'nova'),
                         (found['h1'].root, found['h1'].up,
                          found['h1'].total, found['h1'].reserved,
                          found['h1'].used,
                          found['h1'].place.aggregates,
                          found['h1'].place.zone))
        self.assertEqual({'ssd': {'true', 'nvme'},
                          'filter_tenant_id': {'p1', 'p2'}},
                         found['h1'].metadata)
        self.assertEqual((None, False, {}), (
            found['h2'].root, found['h2'].up, found['h2'].total))
        self.assertEqual(4, found['h1'].claimable(vocabulary.SLOT))
        self.assertFalse(found['h1'].switched_off)
        # The trait is set now; the provider is unchanged otherwise.
        self.placement.get.side_effect = [
            listed, listed, response({'resource_providers': []})]
        found = self.cloud.hosts()
        self.assertTrue(found['h1'].switched_off)
        self.assertFalse(found['h1'].disabled)
        self.assertFalse(found['h2'].switched_off)
        self.assertEqual({vocabulary.SLOT: 4}, found['h1'].total)
        self.assertEqual({vocabulary.SLOT: 2}, found['h1'].used)
        self.assertEqual(
            [f'/resource_providers?required={trait}' for trait in (
                vocabulary.SWITCHED_OFF_TRAIT, vocabulary.CLOSED_TRAIT)],
            [call[0][0] for call in
             self.placement.get.call_args_list[-2:]])
        self.placement.get.side_effect = [
            response({'resource_providers': [
                {'uuid': child, 'name': 'h1_secondary', 'generation': 6}]}),
            response({'resource_providers': []}),
            response({'resource_providers': [{'uuid': child}]}),
            response({'inventories': {
                vocabulary.SLOT: {'total': 4, 'reserved': 4}}}), usages]
        found = self.cloud.hosts()
        self.assertTrue(found['h1'].closed)
        self.assertTrue(found['h1'].disabled)

    def test_only_server_groups_with_a_hard_policy_count(self):
        def group(name, policy, *members, policies=None, rules=None):
            return thing(id=name, policy=policy, policies=policies,
                         rules=rules, member_ids=list(members))

        self.compute.server_groups.return_value = [
            group('g1', 'anti-affinity', 'a', 'b', rules={}),
            group('g2', 'soft-anti-affinity', 'c'),
            group('g3', None, 'd', policies=['anti-affinity']),
            group('g4', 'anti-affinity', 'e', rules={
                'max_server_per_host': '3'}),
            group('g5', 'affinity', 'f'), group('g6', 'affinity'),
            group('g7', 'soft-affinity', 'g')]
        self.assertEqual(
            [('g1', True, {'a', 'b'}, 1), ('g3', True, {'d'}, 1),
             ('g4', True, {'e'}, 3), ('g5', False, {'f'}, 1)],
            [dataclasses.astuple(one) for one in self.cloud.server_groups()])

    def test_requested_zone_is_known_from_microversion_2_96(self):
        self.compute.flavors.return_value = [
            thing(id='f1', extra_specs={vocabulary.MARKER: 'true'})]
        self.compute.default_microversion = None
        for newest, pinned, zone in (
                ('2.96', None, ''), ('2.100', 'az2', 'az2'),
                ('2.95', None, 'nova')):
            self.compute.get_endpoint_data.return_value = thing(
                min_microversion=(2, 1), max_microversion=tuple(
                    map(int, newest.split('.'))))
            self.compute.servers.return_value = [fakes.sdk_server(
                1, pinned_availability_zone=pinned)]
            with self.subTest(newest, pinned=pinned):
                self.assertEqual(
                    zone, self.cloud.servers()[fakes.uid(1)].zone)

    def test_hosts_of_primaries_that_exist_are_found(self):
        self.compute.get_server.side_effect = [
            thing(compute_host='h1', status='ACTIVE'),
            sdk_exceptions.NotFoundException(),
            thing(compute_host=None, status='SHELVED_OFFLOADED'),
            thing(compute_host=None, status='UNKNOWN'),
            ksa_exceptions.ConnectTimeout()]
        self.assertEqual({'a': 'h1', 'c': None},
                         self.cloud.primary_hosts('abcdef'))
        self.assertEqual(5, self.compute.get_server.call_count)

    def test_server_of_a_cell_that_does_not_answer_is_unseen(self):
        self.compute.get_server.return_value = thing(
            id='u', status='UNKNOWN', flavor=None)
        self.assertRaises(cloud_errors.Unseen, self.cloud.server, 'u')

    def test_lists_are_not_requested_after_a_timeout(self):
        self.compute.flavors.return_value = [
            thing(id='f1', extra_specs={vocabulary.MARKER: 'true'})]
        for error in (ksa_exceptions.ConnectTimeout(),
                      sdk_exceptions.HttpException(http_status=504)):
            self.cloud.gate.note_answer(0, complete=True)
            self.compute.servers.reset_mock()
            self.compute.servers.side_effect = error
            for _ in range(2):
                self.assertRaises(cloud_errors.TimedOut, self.cloud.servers)
                self.assertRaises(cloud_errors.TimedOut,
                                  self.cloud.servers_on, 'h1')
            self.compute.servers.assert_called_once()

    def test_lists_are_requested_unless_they_would_wait(self):
        gate = self.cloud.gate
        for seconds, complete, closed in (
                (9, True, False), (11, True, True), (0.1, False, False),
                (5, False, True), (1, True, False)):
            gate.note_answer(seconds, complete)
            self.assertEqual(closed, gate.closed, (seconds, complete))

    def hosts(self, *listed):
        root = fakes.uid(100)
        self.compute.aggregates.return_value = []
        self.compute.get.return_value = services(*listed)
        self.placement.get.side_effect = lambda url, **_: (
            response({'inventories': {vocabulary.SLOT: {
                'total': 4, 'reserved': 1}}}) if 'inventories' in url else
            response({'usages': {vocabulary.SLOT: 2}}) if 'usages' in url
            else response({'resource_providers': []}) if 'required' in url
            else response({'resource_providers': [
                {'uuid': root, 'name': 'h1.example.org', 'generation': 1},
                {'uuid': vocabulary.child_provider_uuid(root),
                 'name': 'h1_secondary', 'generation': 1}]}))
        return self.cloud.hosts()

    def test_host_of_a_silent_cell_keeps_its_zone_and_root(self):
        self.compute.hypervisors.return_value = [
            thing(id=fakes.uid(100), service_details={'host': 'h1'})]
        up = {'host': 'h1', 'status': 'enabled', 'state': 'up',
              'forced_down': False, 'zone': 'east'}
        before = self.hosts(up)
        self.compute.hypervisors.side_effect = sdk_exceptions.HttpException()
        after = self.hosts({'host': 'h1', 'binary': 'nova-compute',
                            'status': 'UNKNOWN'})
        self.assertEqual({'h1': dataclasses.replace(
            before['h1'], unreachable=True)}, after)
        self.compute.hypervisors.side_effect = None
        self.assertEqual(before, self.hosts(up))

    def test_provider_of_a_host_is_found_by_name_beside_a_silent_cell(self):
        found = self.hosts(
            {'host': 'h1', 'status': 'enabled', 'state': 'up', 'zone': 'z'},
            {'host': 'h2', 'binary': 'nova-compute', 'status': 'UNKNOWN'})
        self.compute.hypervisors.assert_not_called()
        self.assertEqual(fakes.uid(100), found['h1'].root)
        self.assertTrue(found['h2'].unreachable)

    def test_states_of_services_stay_if_nova_takes_too_long(self):
        self.compute.hypervisors.return_value = []
        up = {'host': 'h1', 'status': 'enabled', 'state': 'up', 'zone': 'z'}
        before = self.hosts(up)
        self.compute.get.side_effect = ksa_exceptions.ConnectTimeout()
        self.assertEqual(before, self.hosts())
        self.assertTrue(self.cloud.gate.closed)
        self.compute.get.side_effect = None
        self.hosts(up)
        self.assertFalse(self.cloud.gate.closed)
        other = cloud.Cloud(self.conn)
        self.compute.get.side_effect = ksa_exceptions.ConnectTimeout()
        self.assertRaises(cloud_errors.TimedOut, other.hosts)

    def test_metadata_and_operations_are_passed_to_the_sdk(self):
        self.cloud.set_metadata('u', {'k:1': 'v'})
        self.compute.set_server_metadata.assert_called_once_with(
            'u', **{'k:1': 'v'})
        self.compute.delete_server_metadata.side_effect = (
            sdk_exceptions.NotFoundException())
        self.cloud.delete_metadata('u', 'k')
        self.cloud.act('u', 'shelve_offload')
        self.compute.shelve_offload_server.assert_called_once_with('u')
        self.cloud.unshelve('u', 'h2')
        self.compute.unshelve_server.assert_called_once_with('u', host='h2')
        self.cloud.live_migrate('u', 'h2')
        self.compute.live_migrate_server.assert_called_once_with(
            'u', host='h2', force=False, block_migration='auto')

    def named(self):
        """Let the owner's services find every resource by its name."""
        for service, kinds in (('compute', ['flavor']), ('image', ['image']),
                               ('network', ['network', 'port'])):
            for kind in kinds:
                getattr(getattr(self.conn, service),
                        f'find_{kind}').side_effect = (
                    lambda name, ignore_missing: thing(id=f'id of {name}'))

    def create(self, **build):
        """Return the request for a server."""
        self.named()
        self.compute.post.return_value = response({'server': {'id': 'u'}})
        self.assertEqual('u', self.cloud.create(
            {'name': 'x-0', 'flavor': 'small', **build},
            {'secondary:node': '0'}, {'secondary_host': 'h1'}))
        self.assertEqual('/servers', self.compute.post.call_args.args[0])
        more = self.compute.post.call_args.kwargs
        # User data may hold secrets, and debug logs would show the body.
        self.assertIs(False, more['log'])
        self.assertEqual({'secondary_host': 'h1'},
                         more['json']['OS-SCH-HNT:scheduler_hints'])
        return more['json']['server']

    def test_server_is_created_with_few_properties(self):
        self.assertEqual(
            {'name': 'x-0', 'flavorRef': 'id of small', 'networks': 'auto',
             'metadata': {'secondary:node': '0'}}, self.create())
        self.assertEqual(
            ('none', 'id of debian', 'k'),
            tuple(self.create(network='none', image='debian', key_name='k')[
                name] for name in ('networks', 'imageRef', 'key_name')))
        self.assertEqual([{'uuid': 'id of net'}],
                         self.create(network='net')['networks'])

    def test_server_is_created_with_all_properties(self):
        as_given = {
            'user_data': 'c2Vj', 'tags': ['t'], 'config_drive': True,
            'security_groups': [{'name': 'g'}], 'description': 'd'}
        blank = {'source_type': 'blank', 'volume_size': 1}
        made = self.create(
            **as_given, metadata={'k': 'v', 'secondary:node': '7'},
            networks=[{'uuid': 'a', 'tag': 'x'}, {'port': 'b'}],
            block_device_mapping_v2=[
                {'source_type': 'image', 'uuid': 'debian'}, blank])
        self.assertEqual(as_given, {name: made[name] for name in as_given})
        self.assertEqual({'k': 'v', 'secondary:node': '0'}, made['metadata'])
        self.assertEqual([{'uuid': 'id of a', 'tag': 'x'},
                          {'port': 'id of b'}], made['networks'])
        self.assertEqual([{'source_type': 'image', 'uuid': 'id of debian'},
                          blank], made['block_device_mapping_v2'])
        self.assertNotIn('imageRef', made)

    def test_refused_server_raises_a_cloud_error(self):
        self.named()
        for status, expected in ((404, cloud_errors.NotFound),
                                 (409, cloud_errors.Conflict),
                                 (400, cloud_errors.CloudError)):
            self.compute.post.return_value = response({}, status)
            with self.assertRaises(expected):
                self.cloud.create({'name': 'x', 'flavor': 'f'}, {}, {})

    def test_every_verb_is_a_method_of_the_sdk(self):
        from openstack.compute.v2 import _proxy
        for verb in fakes.FakeCloud.GOALS:
            self.assertTrue(hasattr(_proxy.Proxy, f'{verb}_server'), verb)

    def test_running_migration_is_aborted(self):
        running = thing(status='running')
        self.compute.server_migrations.return_value = [
            thing(status='completed'), running]
        self.assertTrue(self.cloud.abort_migration('u'))
        self.compute.abort_server_migration.assert_called_once_with(
            running, 'u')
        self.compute.server_migrations.return_value = []
        self.assertFalse(self.cloud.abort_migration('u'))

    def place(self, *traits):
        self.conn.placement = Placement(traits)
        self.cloud = cloud.Cloud(self.conn)
        return self.conn.placement

    def test_closed_host_has_the_trait_and_everything_reserved(self):
        placement = self.place(vocabulary.CLOSED_TRAIT)
        self.cloud.close_admission(fakes.uid(100))
        self.assertEqual({'total': 4, 'reserved': 4},
                         placement.inventories[vocabulary.SLOT])
        self.assertEqual(vocabulary.CLOSING_TRAITS, set(placement.traits))
        # The trait first: an agent that finds it keeps the host closed.
        self.assertEqual([vocabulary.SWITCHED_OFF_TRAIT, 'traits',
                          'inventories'], placement.writes)

    def test_opened_host_keeps_the_trait_of_the_operator(self):
        placement = self.place(*vocabulary.CLOSING_TRAITS)
        self.cloud.open_admission(fakes.uid(100))
        self.assertEqual([vocabulary.CLOSED_TRAIT], placement.traits)
        self.cloud.open_admission(fakes.uid(100))
        self.assertEqual(['traits'], placement.writes)

    def test_conflicts_are_retried(self):
        placement = self.place()
        placement.conflicts = 2
        with mock.patch('time.sleep'):
            self.cloud.close_admission(fakes.uid(100))
            self.assertEqual(4, placement.inventories[
                vocabulary.SLOT]['reserved'])
            placement.conflicts = 99
            self.assertRaises(cloud_errors.Conflict, self.cloud.open_admission,
                              fakes.uid(100))
