# SPDX-License-Identifier: Apache-2.0

"""Tests of the verification of leases: errors name field and remedy."""

import base64
import time
import unittest
from unittest import mock

from oslo_config import cfg
import sqlalchemy.exc
import webob

from secondary_scheduler.conf import lease_api as options
from secondary_scheduler.leases.api import lookups, verification
from secondary_scheduler.leases.api.db.models import Nodes
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.api import clouds, services

VOLUME = {'source_type': 'volume', 'uuid': 'v1',
          'destination_type': 'volume'}
ROOT = {'source_type': 'image', 'uuid': 'debian', 'boot_index': 0,
        'destination_type': 'volume', 'volume_size': 4}


class VerificationCase(unittest.TestCase):

    options: dict = {'verify_timeout': 5.0}

    def setUp(self):
        super().setUp()
        self.cloud = clouds.Cloud(self)
        self.service = services.on(self, **self.options)
        self.api = services.Api(self.service)
        inner = self.api.application

        @webob.dec.wsgify
        def as_keystone(request):
            request.environ['keystone.token_auth'] = self.cloud.plugin
            return inner
        self.api.application = as_keystone

    def lease(self, **changes):
        """Return the body of a request for one node set."""
        return {**services.LEASE, 'nodes': [{**services.NODES[0], **changes}]}

    def refused(self, says, *, status=400, **changes):
        error = self.api.bad(status, 'POST', '/leases',
                             self.lease(**changes))
        for one in says if isinstance(says, tuple) else (says,):
            self.assertIn(one, error['detail'])
        self.assertEqual([], self.service.store.leases())
        return error

    def accepted(self, **changes):
        return self.api.good('POST', '/leases', self.lease(**changes))[
            'lease']


class VerificationTest(VerificationCase):

    def test_lease_that_can_run_is_accepted(self):
        self.cloud.limits = {
            'maxTotalInstances': 2, 'totalInstancesUsed': 0,
            'maxTotalCores': 4, 'totalCoresUsed': 0,
            'maxTotalRAMSize': 1024, 'totalRAMUsed': 0}
        made = self.accepted(
            key_name='k', networks=[{'uuid': 'private'}, {'uuid': 'n1'}],
            security_groups=[{'name': 'default'}])
        self.assertEqual([], made['unverified'])
        self.assertEqual({'alices'}, self.cloud.tokens)

    def test_references_to_missing_things_are_refused(self):
        self.cloud.limits = {}
        device = {**ROOT, 'boot_index': 1}
        for field, changes, command in (
                ('nodes[0].flavor', {'flavor': 'nothing'}, 'flavor list'),
                ('nodes[0].image', {'image': 'guest'}, 'image list'),
                ('nodes[0].key_name', {'key_name': 'other'}, 'keypair list'),
                ('nodes[0].network', {'network': 'x'}, 'network list'),
                ('nodes[0].networks[1]',
                 {'networks': [{'uuid': 'private'}, {'uuid': 'x'}]},
                 'network list'),
                ('nodes[0].networks[0]',
                 {'number': 1, 'networks': [{'port': 'x'}]}, 'port list'),
                ('nodes[0].security_groups[0]',
                 {'security_groups': [{'name': 'x'}]},
                 'security group list'),
                ('nodes[0].block_device_mapping_v2[0]',
                 {'number': 1,
                  'block_device_mapping_v2': [{**VOLUME, 'uuid': 'x'}]},
                 'volume list'),
                ('nodes[0].block_device_mapping_v2[0]',
                 {'number': 1, 'block_device_mapping_v2': [
                     {**VOLUME, 'uuid': 'x', 'source_type': 'snapshot'}]},
                 'volume snapshot list'),
                ('nodes[0].block_device_mapping_v2[0]',
                 {'block_device_mapping_v2': [{**device, 'uuid': 'x'}]},
                 'image list')):
            with self.subTest(field=field, changes=changes):
                error = self.refused((f'{field}: there is no ',
                                      f'"openstack {command}"'), **changes)
                self.assertEqual('secondary-lease.invalid', error['code'])

    def test_all_problems_are_reported_at_once(self):
        self.refused(('nodes[0].image: ', 'nodes[0].key_name: '),
                     image='guest', key_name='other')

    def test_ambiguous_name_is_refused(self):
        self.cloud.images.append({**clouds.IMAGE, 'id': 'i2'})
        self.refused('2 images are called debian. Give the id of one: i1, i2')
        self.accepted(image='i2')

    def test_flavors_that_are_not_secondary_are_refused(self):
        self.refused(('nodes[0].flavor: m1.small is not a secondary flavor',
                      vocabulary.MARKER), flavor='m1.small')
        self.cloud.flavors.append({
            **clouds.SMALL, 'name': 'half', 'id': 'f3',
            'extra_specs': {vocabulary.MARKER: 'true'}})
        self.refused('half is not well formed', flavor='half')

    def test_quote_verifies_its_flavor_only(self):
        quote = {'duration': 60, 'nodes': [
            {**services.NODES[0], 'image': 'nothing', 'user_data': 'c2Vj'}]}
        made = self.api.good('POST', '/quotes', quote)['quote']
        self.assertFalse(made['nodes'][0]['has_user_data'])
        self.assertEqual({'compute'}, {name for name, _ in self.cloud.asked})
        quote['nodes'][0]['flavor'] = 'm1.small'
        self.assertIn('nodes[0].flavor: m1.small is not', self.api.bad(
            400, 'POST', '/quotes', quote)['detail'])

    def test_images_that_do_not_fit_are_refused(self):
        for changes, says in (
                ({'status': 'queued'}, 'debian is queued, not active'),
                ({'min_ram': 1024},
                 ('needs 1024 MiB of memory', 'secondary.small has 512')),
                ({'min_disk': 6}, ('needs a disk of 6 GiB',
                                   'flavor secondary.small has 5')),
                ({'size': 6 * 2 ** 30}, 'needs a disk of 6 GiB'),
                ({'virtual_size': 5 * 2 ** 30 + 1}, 'a disk of 6 GiB')):
            with self.subTest(changes):
                self.cloud.images[:] = [{**clouds.IMAGE, **changes}]
                self.refused(says)

    def test_image_has_to_fit_its_new_volume(self):
        self.cloud.images[:] = [{**clouds.IMAGE, 'min_disk': 8}]
        self.refused(('nodes[0].block_device_mapping_v2: debian needs a '
                      'disk of 8 GiB', 'the volume has 4'),
                     image=None, block_device_mapping_v2=[ROOT])
        self.accepted(image=None, block_device_mapping_v2=[
            {**ROOT, 'volume_size': 8}])

    def test_missing_boot_device_is_refused(self):
        self.refused('nodes[0].image: there is no boot device',
                     image=None)
        self.accepted(image=None, number=1, block_device_mapping_v2=[
            {**VOLUME, 'boot_index': 0}])

    def test_unusable_volume_is_refused(self):
        self.cloud.volumes[0]['status'] = 'error'
        self.refused('v1 is error, not available', number=1,
                     block_device_mapping_v2=[VOLUME])

    def test_choice_among_several_networks_is_refused(self):
        self.cloud.networks.append(self.cloud.network('n2', 'storage'))
        self.refused(('nodes[0].networks: ', '2 networks (private, storage)',
                      'Give the networks'))
        self.refused('2 networks', networks='auto')
        self.cloud.networks[1]['shared'] = True
        self.refused('2 networks')
        self.accepted(networks='none')
        self.accepted(networks=[{'uuid': 'storage'}])

    def test_project_without_a_network_is_refused(self):
        self.cloud.networks.clear()
        self.refused(('nodes[0].networks: your project has no network',
                      'network create'))
        self.cloud.topology = 200
        self.accepted()

    def test_cloud_without_neutron_accepts_leases_without_networks(self):
        self.cloud.services.remove('network')
        self.assertEqual([], self.accepted()['unverified'])
        self.assertEqual(
            [{'field': 'nodes[0].network', 'reason':
              'the catalogue of services has no network service'}],
            self.accepted(network='x')['unverified'])

    def test_limits_of_nova_are_respected(self):
        full = {'maxTotalInstances': 1, 'totalInstancesUsed': 0,
                'maxTotalCores': -1, 'maxTotalRAMSize': -1}
        for changes, says in (
                ({}, '1 of 1 instances, and 2 are requested'),
                ({'totalInstancesUsed': 3}, '0 of 1 instances'),
                ({'maxTotalInstances': -1, 'maxTotalCores': 8,
                  'totalCoresUsed': 5}, '3 of 8 cores, and 4 are req'),
                ({'maxTotalInstances': 9, 'maxTotalRAMSize': 1000,
                  'totalRAMUsed': 0}, '1000 of 1000 MiB of memory')):
            with self.subTest(changes):
                self.cloud.limits = {**full, **changes}
                error = self.refused(('nodes: ', says, 'limits show'),
                                     status=403)
                self.assertEqual('secondary-lease.over-quota',
                                 error['code'])

    def test_servers_of_other_leases_count_as_free(self):
        first = self.accepted()
        self.cloud.limits = {
            'maxTotalInstances': 4, 'totalInstancesUsed': 4,
            'maxTotalCores': 6, 'totalCoresUsed': 6}
        body = self.lease()
        self.api.bad(403, 'POST', '/leases', body)
        self.service.store.change(first['id'], 'active', {
            'state': LeaseState.ACTIVE}, servers=[services.NOBODY])
        self.accepted()
        # The other half of the used instances is not of leases.
        self.assertIn('2 of 4 instances', self.api.bad(
            403, 'POST', '/leases', self.lease(number=3))['detail'])
        self.service.store.change(first['id'], 'done', {
                                  'state': LeaseState.DONE})
        self.api.bad(403, 'POST', '/leases', body)

    def test_repeated_request_is_not_verified_again(self):
        body = {**self.lease(), 'client_token': 't'}
        made = self.api.good('POST', '/leases', body)
        self.cloud.images.clear()
        self.assertEqual(made, self.api.good('POST', '/leases', body))

    def test_forbidden_look_up_leaves_field_unverified(self):
        self.cloud.broken = {'image': 403}
        self.assertEqual(
            [('nodes[0].image', 'the image service answers with 403')],
            [(one['field'], one['reason'])
             for one in self.accepted()['unverified']])

    def test_hidden_extra_specs_leave_flavor_unverified(self):
        del (shown := dict(clouds.SMALL))['extra_specs']
        self.cloud.flavors[0] = shown
        self.assertEqual(['nodes[0].flavor'], [
            one['field'] for one in self.accepted()['unverified']])


class UnavailableServiceTest(VerificationCase):

    options = {'verify_timeout': 0.5}

    def test_unavailable_service_delays_no_request(self):
        for how in ('away', 'slow', 'broken'):
            for service, fields in (
                    ('compute', ['nodes[0].flavor', 'nodes']),
                    ('image', ['nodes[0].image']),
                    ('network', ['nodes[0].networks'])):
                with self.subTest(how=how, service=service):
                    self.cloud.away, self.cloud.slow = set(), set()
                    self.cloud.broken = {}
                    if how == 'broken':
                        self.cloud.broken = {service: 500}
                    else:
                        setattr(self.cloud, how, {service})
                    began = time.monotonic()
                    made = self.accepted()
                    self.assertLess(time.monotonic() - began, 3)
                    self.assertEqual(fields, [
                        one['field'] for one in made['unverified']])
                    self.assertEqual(made, self.api.good(
                        'GET', f'/leases/{made["id"]}')['lease'])

    def test_other_problems_are_reported_nevertheless(self):
        self.cloud.away = {'network'}
        self.refused('nodes[0].image: ', image='nothing')

    def test_engine_verifies_with_session_of_the_owner(self):
        self.cloud.away = {'image'}
        lease = self.service.store.get(self.accepted()['id'])
        self.cloud.away = set()
        self.cloud.images.clear()
        verifier = verification.Verifier.from_options(self.service.conf)
        session = verifier.pool.session(self.service.conf, self.cloud.plugin)
        found = verifier.verify(session, lease.nodes, lease.project_id)
        self.assertEqual(['nodes[0].image'],
                         [one.field for one in found.wrong])
        self.assertEqual((), found.unverified)


class CertificateTest(VerificationCase):

    def test_look_ups_use_certificates_of_the_middleware(self):
        found = []

        def ask(pool, session, look_ups):
            found.append(session.verify)
            return asked(pool, session, look_ups)
        asked = lookups.Pool.run_look_ups
        self.accepted()
        conf = self.service.conf
        conf.set_override('cafile', '/ca.pem', 'keystone_authtoken')
        self.addCleanup(conf.clear_override, 'cafile', 'keystone_authtoken')
        with mock.patch.object(lookups.Pool, 'run_look_ups', ask):
            self.accepted()
        self.assertEqual({'/ca.pem'}, set(found))


class ContradictionTest(VerificationCase):

    def test_contradictions_are_refused(self):
        for changes, says in (
                ({'network': 'x', 'networks': 'none'}, 'nodes[0].network: '),
                ({'networks': [{}]}, 'networks[0]: give either'),
                ({'networks': [{'uuid': 'x', 'port': 'y'}]}, 'give either'),
                ({'networks': [{'port': 'y'}]}, 'serves one server'),
                ({'networks': [{'uuid': 'x', 'fixed_ip': '10.0.0.5'}]},
                 'serves one server'),
                ({'number': 1, 'networks': [
                    {'uuid': 'x', 'fixed_ip': '10.0.0.500'}]}, 'IPv4'),
                ({'number': 1, 'networks': [
                    {'port': 'x', 'fixed_ip': '10.0.0.5'}]}, 'leave out'),
                ({'block_device_mapping_v2': [ROOT]}, 'nodes[0].image: '),
                ({'block_device_mapping_v2': [VOLUME]}, 'one server'),
                ({'image': None, 'block_device_mapping_v2': [ROOT, ROOT]},
                 'same boot_index'),
                ({'block_device_mapping_v2': [
                    {'source_type': 'blank', 'destination_type': 'volume'}]},
                 'volume_size'),
                ({'block_device_mapping_v2': [{'source_type': 'image'}]},
                 'give the uuid of the image'),
                ({'block_device_mapping_v2': [
                    {'source_type': 'blank', 'uuid': 'x'}]}, 'no uuid'),
                ({'metadata': {'secondary:node': '0'}}, 'reserved'),
                ({'user_data': 'c2Vjc'}, 'user_data: it is not in base64')):
            with self.subTest(changes):
                self.refused(says, **changes)

    def test_limits_of_properties_are_those_of_nova(self):
        for changes, says in (
                ({'user_data': 'c2Vj' * 16384}, 'too long'),
                ({'user_data': '?'}, 'user_data'),
                ({'tags': ['a/b']}, 'tags'), ({'tags': ['x' * 61]}, 'tags'),
                ({'tags': ['x'] * 50}, 'tags'),
                ({'metadata': {'k': 'x' * 256}}, 'metadata'),
                ({'metadata': {'k/': 'x'}}, 'metadata'),
                ({'networks': 'all'}, 'networks'),
                ({'description': 'x' * 256}, 'description')):
            with self.subTest(str(changes)[:40]):
                self.refused(says, **changes)

    def test_references_with_parts_of_a_path_are_refused(self):
        for name in ('..', '.', 'a/../..', './b', 'a/.'):
            for changes in (
                    {'flavor': name}, {'image': name}, {'network': name},
                    {'key_name': name},
                    {'block_device_mapping_v2': [
                        {'source_type': 'volume', 'uuid': name}]},
                    {'security_groups': [{'name': name}]}):
                with self.subTest(changes):
                    self.refused('not allowed', **changes)
            self.refused('networks', networks=[{'port': name}])
        for name in ('a..b', '...', 'a/b', '.a', 'b.'):
            with self.subTest(name):
                self.refused('there is no flavor', flavor=name)

    def test_older_versions_refuse_server_properties(self):
        error = self.api.bad(400, 'POST', '/leases', self.lease(
            user_data='c2Vj'), headers={
                'OpenStack-API-Version': 'secondary-lease 1.2'})
        self.assertIn("'user_data' was unexpected", error['detail'])


class UserDataTest(VerificationCase):

    SECRET = base64.b64encode(b'#!/bin/sh\necho password\n').decode()

    def test_user_data_is_in_no_response(self):
        heard = []
        self.service.store.announce = lambda *told: heard.append(told)
        made = self.accepted(user_data=self.SECRET)
        self.assertTrue(made['nodes'][0]['has_user_data'])
        path = f'/leases/{made["id"]}'
        for method, where, body in (
                ('GET', path, None), ('GET', '/leases', None),
                ('GET', f'{path}/events', None),
                ('PATCH', path, {'name': 'x'}),
                ('POST', f'{path}/action', {'action': 'pause'})):
            self.api.good(method, where, body)
            self.assertNotIn(self.SECRET, self.api.answer.text, where)
        self.assertTrue(heard)

    def test_user_data_is_in_no_error(self):
        node = {**services.NODES[0], 'user_data': self.SECRET}
        for nodes in (
                node, [node] * 101, [[node]], {'x': node},
                [{**node, 'number': 0}], [{**node, 'colour': 'red'}],
                [{**node, 'user_data': self.SECRET + '?'}],
                [{**node, 'user_data': [self.SECRET]}],
                [{**node, 'user_data': {'a': self.SECRET}}],
                [{**node, 'flavor': 'nothing'}],
                [{**node, 'user_data': self.SECRET[:-1]}]):
            error = self.api.bad(400, 'POST', '/leases', {
                **services.LEASE, 'nodes': nodes})
            self.assertNotIn(self.SECRET[:20], str(error))

    def test_user_data_is_not_loaded_with_a_lease(self):
        made = self.accepted(user_data=self.SECRET)
        node, = self.service.store.get(made['id']).nodes
        with self.assertRaises(sqlalchemy.exc.InvalidRequestError):
            print(node.secret)
        self.assertNotIn(self.SECRET, repr(Nodes(
            1, 'f', user_data=self.SECRET)))


class OptionTest(unittest.TestCase):

    def test_option_refuses_unknown_limits(self):
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        with self.assertRaises(ValueError):
            conf.set_override('verify_limits', ['floating_ips'],
                              group='secondary_lease_api')
