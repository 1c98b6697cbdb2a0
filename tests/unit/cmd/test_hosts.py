# SPDX-License-Identifier: Apache-2.0

"""Tests of ``secondary-scheduler host``, on a cloud in memory."""

import json
import types
from unittest import mock

from secondary_scheduler.cmd import providers
from secondary_scheduler.model import vocabulary
from tests.unit.cmd import fakes
from tests.unit.cmd.command_case import CommandCase


class EnableTest(CommandCase):

    def test_defaults_come_from_the_host(self):
        text = self.good('host', 'enable', 'node1')
        self.assertEqual(set(vocabulary.RESOURCE_CLASSES),
                         self.cloud.placement.classes)
        self.assertEqual(self.cloud.root, self.provider['parent'])
        self.assertEqual(
            vocabulary.child_provider_name(self.cloud.root),
            self.provider['name'])
        self.assertEqual((8, 8), self.inventory(vocabulary.VCPU))
        self.assertEqual((15872, 15872),
                         self.inventory(vocabulary.MEMORY_MB))
        self.assertEqual((90, 90), self.inventory(vocabulary.DISK_GB))
        self.assertEqual((8, 8), self.inventory(vocabulary.SLOT))
        self.assertEqual(8, self.provider['inventories'][
            vocabulary.VCPU]['max_unit'])
        self.assertIn('secondary-agent', text)

    def test_host_may_be_named_by_its_compute_node(self):
        self.good('host', 'enable', 'node1.example')
        self.assertIsNotNone(self.provider)

    def test_given_totals_replace_defaults(self):
        self.good('host', 'enable', 'node1', '--vcpus', '3', '--memory-mb',
                  '768', '--disk-gb', '0', '--slots', '2')
        self.assertEqual((3, 3), self.inventory(vocabulary.VCPU))
        self.assertEqual((2, 2), self.inventory(vocabulary.SLOT))
        self.assertNotIn(vocabulary.DISK_GB, self.provider['inventories'])

    def test_claims_set_the_allocation_ratio(self):
        def ratios():
            return {one['allocation_ratio'] for one
                    in self.provider['inventories'].values()}
        self.good('host', 'enable', 'node1')
        self.assertEqual({1.0}, ratios())
        self.good('host', 'enable', 'node1', '--claims', '2')
        self.assertEqual({2.0}, ratios())
        self.good('host', 'enable', 'node1', '--slots', '3')
        self.assertEqual({2.0}, ratios())
        self.assertEqual((3, 3), self.inventory(vocabulary.SLOT))

    def test_second_enable_changes_nothing(self):
        self.good('host', 'enable', 'node1')
        self.open(VCPU=4, SLOT=4)
        before = dict(self.provider)
        text = self.good('host', 'enable', 'node1')
        self.assertEqual(before, self.provider)
        self.assertNotIn('reserved until', text)

    def test_new_totals_keep_allowed_amounts(self):
        self.good('host', 'enable', 'node1')
        self.open(VCPU=4, SLOT=4)
        self.good('host', 'enable', 'node1', '--vcpus', '6', '--slots', '2')
        self.assertEqual((6, 2), self.inventory(vocabulary.VCPU))
        self.assertEqual((2, 0), self.inventory(vocabulary.SLOT))
        self.assertEqual((90, 90), self.inventory(vocabulary.DISK_GB))

    def test_enable_opens_disabled_host(self):
        self.good('host', 'enable', 'node1')
        self.good('host', 'disable', 'node1')
        self.assertEqual([vocabulary.CLOSED_TRAIT], self.provider['traits'])
        self.good('host', 'enable', 'node1')
        self.assertEqual([], self.provider['traits'])

    def test_enable_does_not_open_host_switched_off_by_watcher(self):
        self.good('host', 'enable', 'node1')
        self.provider['traits'] = sorted(vocabulary.CLOSING_TRAITS)
        text = self.good('host', 'enable', 'node1')
        self.assertEqual([vocabulary.SWITCHED_OFF_TRAIT],
                         self.provider['traits'])
        self.assertIn('Watcher keeps it closed', text)
        self.good('host', 'disable', 'node1')
        self.assertEqual(vocabulary.CLOSING_TRAITS,
                         set(self.provider['traits']))

    def test_conflicts_are_retried(self):
        self.cloud.placement.conflicts = 3
        self.good('host', 'enable', 'node1')
        self.assertEqual((8, 8), self.inventory(vocabulary.VCPU))
        for conflict in (fakes.Answer(409),
                         fakes.conflict('concurrent_update')):
            self.cloud.placement.conflicts = 99
            self.cloud.placement.conflict = conflict
            with mock.patch('time.sleep'):
                self.assertIn('Try once more', self.bad(
                    'host', 'enable', 'node1', '--vcpus', '1'))
            self.assertEqual(89, self.cloud.placement.conflicts)

    def test_conflict_that_lasts_is_not_retried(self):
        self.good('host', 'enable', 'node1')
        for code in ('inventory.inuse', 'duplicate_name', 'undefined_code',
                     'resource_provider.cannot_delete_parent', 'of.tomorrow'):
            self.cloud.placement.writes.clear()
            self.cloud.placement.conflicts = 99
            self.cloud.placement.conflict = fakes.conflict(code, 'Why.')
            with self.subTest(code), mock.patch('time.sleep') as sleep:
                text = self.bad('host', 'enable', 'node1', '--vcpus', '1')
                self.assertIn('Why.', text)
                self.assertNotIn('once more', text)
                self.assertEqual(1, [url.rpartition('/')[2] for _, url, _ in (
                    self.cloud.placement.writes)].count('inventories'))
                sleep.assert_not_called()

    def test_total_of_a_class_in_use_cannot_become_0(self):
        self.good('host', 'enable', 'node1')
        self.provider['usages'] = {vocabulary.DISK_GB: 5, vocabulary.SLOT: 1}
        text = self.bad('host', 'enable', 'node1', '--disk-gb', '0')
        self.assertIn('Secondaries on node1.example hold 5 '
                      f'{vocabulary.DISK_GB} of the provider', text)
        self.assertIn('"secondary-scheduler host drain node1.example"', text)
        self.assertIn(vocabulary.DISK_GB, self.provider['inventories'])

    def test_other_provider_of_the_same_name_is_named(self):
        name = vocabulary.child_provider_name(self.cloud.root)
        other = self.cloud.placement.add(name)
        text = self.bad('host', 'enable', 'node1')
        self.assertIn(f'The name {name}, which', text)
        self.assertIn(f'"openstack resource provider delete {other}"', text)

    def test_provider_that_another_command_makes_meanwhile_is_used(self):
        collection = self.cloud.placement._collection

        def make_first(method, query, body):
            answer = collection(method, query, body)
            return collection(method, query, body) if (
                method == 'POST') else answer
        with mock.patch.object(self.cloud.placement, '_collection',
                               make_first):
            self.good('host', 'enable', 'node1')
        self.assertEqual((8, 8), self.inventory(vocabulary.VCPU))

    def test_host_without_slots_is_refused(self):
        self.assertIn('--slots', self.bad(
            'host', 'enable', 'node1', '--slots', '0'))
        self.assertIsNone(self.provider)

    def test_unknown_host_is_an_error(self):
        self.assertIn('hypervisor list', self.bad('host', 'enable', 'x'))
        del self.cloud.placement.providers[self.cloud.root]
        self.assertIn('Placement has no', self.bad(
            'host', 'enable', 'node1'))


class DisableTest(CommandCase):

    def setUp(self):
        super().setUp()
        self.good('host', 'enable', 'node1')
        self.open(VCPU=4, SLOT=4)

    def use(self, slots):
        self.provider['usages'] = {vocabulary.SLOT: slots}

    def test_disable_reserves_whole_inventory_and_sets_trait(self):
        self.use(2)
        text = self.good('host', 'disable', 'node1')
        for name in vocabulary.RESOURCE_CLASSES:
            total, reserved = self.inventory(name)
            self.assertEqual(total, reserved)
        self.assertEqual([vocabulary.CLOSED_TRAIT], self.provider['traits'])
        self.assertIn('2 slots', text)

    def test_trait_is_set_before_inventory(self):
        self.cloud.placement.writes.clear()
        self.good('host', 'disable', 'node1')
        urls = [url for _, url, _ in self.cloud.placement.writes]
        self.assertEqual(['traits', 'inventories'],
                         [url.rpartition('/')[2] for url in urls[-2:]])

    def test_disable_survives_concurrent_writes_of_agent(self):
        self.cloud.placement.conflicts = 2
        self.good('host', 'disable', 'node1')
        self.assertEqual((8, 8), self.inventory(vocabulary.VCPU))

    def test_provider_in_use_is_not_deleted(self):
        self.use(1)
        self.assertIn('drain', self.bad(
            'host', 'disable', 'node1', '--delete'))
        self.assertIsNotNone(self.provider)
        self.use(0)
        self.good('host', 'disable', 'node1', '--delete')
        self.assertIsNone(self.provider)

    def test_concurrent_claim_prevents_deletion(self):
        child = providers.Providers(self.cloud.placement).child(
            'node1.example')
        self.use(1)
        for answer in (None, fakes.Answer(409)):
            with mock.patch.object(
                    self.cloud.placement, '_provider', **(
                        {'wraps': self.cloud.placement._provider}
                        if answer is None else {'return_value': answer})), (
                            self.assertRaisesRegex(
                                providers.PlacementError,
                                'still holds .* host drain node1.example')):
                providers.Providers(self.cloud.placement).delete(child)

    def test_provider_with_children_is_not_deleted(self):
        child = providers.Providers(self.cloud.placement).child(
            'node1.example')
        with mock.patch.object(
                self.cloud.placement, '_provider', return_value=fakes.conflict(
                    'resource_provider.cannot_delete_parent',
                    'It has child resource providers.')), (
                        self.assertRaisesRegex(
                            providers.PlacementError, 'It has child')):
            providers.Providers(self.cloud.placement).delete(child)

    def test_disable_of_host_never_enabled_is_an_error(self):
        del self.cloud.placement.providers[self.child]
        self.assertIn('host enable node1', self.bad(
            'host', 'disable', 'node1'))

    def test_drain_creates_oneshot_audit(self):
        self.use(2)
        text = self.good('host', 'drain', 'node1.example')
        (url, body, headers), = self.cloud.watcher.audits
        self.assertEqual('http://watcher.example:9322/v1/audits', url)
        self.assertEqual(
            ('ONESHOT', 'secondary', True, True,
             {'request': 'drain', 'hosts': ['node1']}),
            (body['audit_type'], body['goal'], body['auto_trigger'],
             body['force'], body['parameters']))
        self.assertEqual('infra-optim 1.2', headers['OpenStack-API-Version'])
        self.assertEqual((8, 8), self.inventory(vocabulary.VCPU))
        self.assertIn('audit-1', text)

    def test_drain_accepts_catalog_with_and_without_version(self):
        self.use(2)
        for endpoint in ('http://w/infra-optim', 'http://w/infra-optim/v1',
                         'http://w/infra-optim/v1/'):
            self.cloud.watcher.endpoint = endpoint
            self.good('host', 'drain', 'node1.example')
        self.assertEqual({'http://w/infra-optim/v1/audits'},
                         {url for url, _, _ in self.cloud.watcher.audits})

    def test_drain_of_empty_host_creates_no_audit(self):
        self.assertIn('nothing to drain', self.good(
            'host', 'drain', 'node1'))
        self.assertEqual([], self.cloud.watcher.audits)

    def test_drain_closes_host_even_if_watcher_fails(self):
        self.use(1)
        self.cloud.watcher.status = 404
        self.assertIn('goal list', self.bad('host', 'drain', 'node1'))
        self.assertEqual([vocabulary.CLOSED_TRAIT], self.provider['traits'])

    def test_list_shows_state_and_amounts(self):
        self.use(2)
        text = self.good('host', 'list')
        self.assertRegex(text, r'node1.example +open +0/4/8 .* 2/4/8')
        self.good('host', 'disable', 'node1')
        self.assertRegex(self.good('host', 'list'), 'node1.example +closed')
        self.provider['traits'] = [vocabulary.SWITCHED_OFF_TRAIT]
        self.assertRegex(self.good('host', 'list'),
                         'node1.example +switched off  ')
        self.provider['traits'] = sorted(vocabulary.CLOSING_TRAITS)
        self.assertRegex(self.good('host', 'list'),
                         'node1.example +closed, switched off')
        self.provider['traits'] = []
        self.assertRegex(self.good('host', 'list'), 'shut by agent')
        del self.cloud.placement.providers[self.child]
        self.assertIn('host enable', self.good('host', 'list'))


    def test_list_for_programs_has_states_and_amounts_by_option(self):
        self.use(2)
        self.good('host', 'enable', 'node1', '--claims', '2')
        one, = json.loads(self.good('host', 'list', '--json'))
        self.assertEqual(('node1', 'node1.example', 2.0, False, False), (
            one['host'], one['provider'], one['claims'], one['closed'],
            one['switched_off']))
        self.assertEqual((2, 4, 8), (
            one['used']['slots'], one['allowed']['slots'],
            one['total']['slots']))
        self.assertEqual({'vcpus', 'memory_mb', 'disk_gb', 'slots'},
                         set(one['total']))
        self.good('host', 'disable', 'node1')
        one, = json.loads(self.good('host', 'list', '--json'))
        self.assertTrue(one['closed'])
        del self.cloud.placement.providers[self.child]
        self.assertEqual([], json.loads(self.good('host', 'list', '--json')))


class AuditTest(CommandCase):

    def setUp(self):
        super().setUp()
        self.good('host', 'enable', 'node1')
        self.hold('server-1')
        self.cloud.compute.instances['server-1'] = 'node1'

    def hold(self, consumer):
        self.cloud.placement.allocations[consumer] = [
            self.cloud.root, self.child]

    def move(self, status, server='server-1'):
        """Add a migration from node1, with its allocation there."""
        self.hold('move')
        self.cloud.compute.moves = [
            types.SimpleNamespace(
                uuid=uid, status=status, server_id=server,
                source_compute='node1', migration_type='live-migration')
            for uid in ('other', 'move')]

    def released(self):
        return [uid for uid, held in self.cloud.placement.allocations.items()
                if not held]

    def test_allocations_of_instances_are_no_orphans(self):
        self.assertIn('is of an instance', self.good('host', 'audit'))
        self.good('host', 'audit', '--delete')
        self.assertEqual([], self.released())

    def test_allocation_of_failed_migration_is_released(self):
        self.move('error')
        self.cloud.compute.instances['server-1'] = 'node2'
        del self.cloud.placement.allocations['server-1']
        text = self.bad('host', 'audit')
        self.assertIn('node1.example: move is a live-migration of server-1 '
                      'that ended as "error"; to be released', text)
        self.assertEqual([], self.released())
        self.assertIn('released.', self.good('host', 'audit', '--delete'))
        self.assertEqual(['move'], self.released())

    def test_allocations_of_missing_instances_are_released(self):
        self.hold('gone')
        self.move('error', server='server-2')
        text = self.good('host', 'audit', '--delete')
        self.assertIn('gone is an instance or a migration', text)
        self.assertEqual(['gone', 'move'], self.released())

    def test_rolled_back_migration_is_released(self):
        self.move('failed')
        self.good('host', 'audit', '--delete')
        self.assertEqual(['move'], self.released())

    def test_allocation_of_resident_instance_is_not_released(self):
        self.move('error')
        del self.cloud.placement.allocations['server-1']
        for arguments in ((), ('--delete',)):
            self.assertIn('left alone, since server-1 is there',
                          self.good('host', 'audit', *arguments))
        self.assertEqual([], self.released())

    def test_migration_in_progress_is_no_orphan(self):
        for status in ('running', 'finished'):  # a resize to be confirmed
            self.move(status)
            self.good('host', 'audit', '--delete')
        self.assertEqual([], self.released())

    def test_nothing_is_released_while_a_cell_is_down(self):
        self.hold('maybe-a-migration')
        self.cloud.compute.instances['server-2'] = ''
        self.assertIn('does not answer',
                      self.bad('host', 'audit', '--delete'))
        self.assertEqual([], self.released())

    def test_nova_is_read_after_placement(self):
        asked = []
        servers, request = (self.cloud.compute.servers,
                            self.cloud.placement.request)
        self.cloud.compute.servers = lambda **query: (
            asked.append('nova'), servers(**query))[1]
        self.cloud.placement.request = lambda *of, **more: (
            asked.append('placement'), request(*of, **more))[1]
        self.good('host', 'audit')
        self.assertEqual('nova', asked[-1])

    def test_concurrent_change_is_an_error(self):
        self.hold('gone')
        with mock.patch.object(self.cloud.placement, '_consumer', side_effect=[
                self.cloud.placement._consumer('GET', 'gone', None),
                fakes.Answer(409)]):
            self.assertIn('Try once more',
                          self.bad('host', 'audit', '--delete'))
