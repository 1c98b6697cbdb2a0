"""The operator's commands, on a cloud in memory."""

import contextlib
import io
import types
import unittest
from unittest import mock

from keystoneauth1 import exceptions as ks_exceptions

from secondary_scheduler.cmd import manage, providers
from secondary_scheduler.model import vocabulary
from tests.unit.cmd import fakes


class CommandCase(unittest.TestCase):

    def setUp(self):
        self.cloud = fakes.Cloud()
        self.child = vocabulary.child_provider_uuid(self.cloud.root)
        patch = mock.patch('time.sleep')
        patch.start()
        self.addCleanup(patch.stop)

    def run_it(self, *arguments, connect=None):
        """Run a command; return its exit code and all it says."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(out):
            code = manage.main(arguments, connect=connect
                               or (lambda **options: self.cloud))
        return code, out.getvalue()

    def good(self, *arguments):
        code, text = self.run_it(*arguments)
        self.assertEqual(0, code, text)
        return text

    def bad(self, *arguments):
        code, text = self.run_it(*arguments)
        self.assertEqual(1, code, text)
        return text

    @property
    def provider(self):
        return self.cloud.placement.providers.get(self.child)

    def inventory(self, name):
        one = self.provider['inventories'][name]
        return one['total'], one['reserved']

    def open(self, **allowed):
        """Let an agent open some of it."""
        for name, amount in allowed.items():
            one = self.provider['inventories'][getattr(vocabulary, name)]
            one['reserved'] = one['total'] - amount


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

    def test_the_name_may_be_the_nodes(self):
        self.good('host', 'enable', 'node1.example')
        self.assertIsNotNone(self.provider)

    def test_totals(self):
        self.good('host', 'enable', 'node1', '--vcpus', '3', '--memory-mb',
                  '768', '--disk-gb', '0', '--slots', '2')
        self.assertEqual((3, 3), self.inventory(vocabulary.VCPU))
        self.assertEqual((2, 2), self.inventory(vocabulary.SLOT))
        self.assertNotIn(vocabulary.DISK_GB, self.provider['inventories'])

    def test_room_for_those_that_are_suspended(self):
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

    def test_again_changes_nothing(self):
        self.good('host', 'enable', 'node1')
        self.open(VCPU=4, SLOT=4)
        before = dict(self.provider)
        text = self.good('host', 'enable', 'node1')
        self.assertEqual(before, self.provider)
        self.assertNotIn('reserved until', text)

    def test_new_totals_keep_what_is_allowed(self):
        self.good('host', 'enable', 'node1')
        self.open(VCPU=4, SLOT=4)
        self.good('host', 'enable', 'node1', '--vcpus', '6', '--slots', '2')
        self.assertEqual((6, 2), self.inventory(vocabulary.VCPU))
        self.assertEqual((2, 0), self.inventory(vocabulary.SLOT))
        self.assertEqual((90, 90), self.inventory(vocabulary.DISK_GB))

    def test_it_opens_what_was_disabled(self):
        self.good('host', 'enable', 'node1')
        self.good('host', 'disable', 'node1')
        self.assertEqual([vocabulary.CLOSED_TRAIT], self.provider['traits'])
        self.good('host', 'enable', 'node1')
        self.assertEqual([], self.provider['traits'])

    def test_what_watcher_switched_off_is_not_the_operators(self):
        self.good('host', 'enable', 'node1')
        self.provider['traits'] = sorted(vocabulary.CLOSING_TRAITS)
        text = self.good('host', 'enable', 'node1')
        self.assertEqual([vocabulary.SWITCHED_OFF_TRAIT],
                         self.provider['traits'])
        self.assertIn('Watcher keeps it closed', text)
        self.good('host', 'disable', 'node1')
        self.assertEqual(vocabulary.CLOSING_TRAITS,
                         set(self.provider['traits']))

    def test_conflicts_are_tried_again(self):
        self.cloud.placement.conflicts = 3
        self.good('host', 'enable', 'node1')
        self.assertEqual((8, 8), self.inventory(vocabulary.VCPU))
        self.cloud.placement.conflicts = 99
        self.assertIn('Try once more', self.bad(
            'host', 'enable', 'node1', '--vcpus', '1'))

    def test_a_host_without_room(self):
        self.assertIn('--slots', self.bad(
            'host', 'enable', 'node1', '--slots', '0'))
        self.assertIsNone(self.provider)

    def test_unknown_hosts(self):
        self.assertIn('hypervisor list', self.bad('host', 'enable', 'x'))
        del self.cloud.placement.providers[self.cloud.root]
        self.assertIn('Placement knows no', self.bad(
            'host', 'enable', 'node1'))


class DisableTest(CommandCase):

    def setUp(self):
        super().setUp()
        self.good('host', 'enable', 'node1')
        self.open(VCPU=4, SLOT=4)

    def use(self, slots):
        self.provider['usages'] = {vocabulary.SLOT: slots}

    def test_everything_is_reserved_and_stays_so(self):
        self.use(2)
        text = self.good('host', 'disable', 'node1')
        for name in vocabulary.RESOURCE_CLASSES:
            total, reserved = self.inventory(name)
            self.assertEqual(total, reserved)
        self.assertEqual([vocabulary.CLOSED_TRAIT], self.provider['traits'])
        self.assertIn('2 slots', text)

    def test_the_mark_comes_before_the_inventory(self):
        self.cloud.placement.writes.clear()
        self.good('host', 'disable', 'node1')
        urls = [url for _, url, _ in self.cloud.placement.writes]
        self.assertEqual(['traits', 'inventories'],
                         [url.rpartition('/')[2] for url in urls[-2:]])

    def test_an_agent_that_writes_meanwhile(self):
        self.cloud.placement.conflicts = 2
        self.good('host', 'disable', 'node1')
        self.assertEqual((8, 8), self.inventory(vocabulary.VCPU))

    def test_delete(self):
        self.use(1)
        self.assertIn('drain', self.bad(
            'host', 'disable', 'node1', '--delete'))
        self.assertIsNotNone(self.provider)
        self.use(0)
        self.good('host', 'disable', 'node1', '--delete')
        self.assertIsNone(self.provider)

    def test_a_claim_meanwhile_keeps_it(self):
        child = providers.Providers(self.cloud.placement).child(
            'node1.example')
        self.use(1)
        with self.assertRaisesRegex(providers.PlacementError, 'still holds'):
            providers.Providers(self.cloud.placement).delete(child)

    def test_never_enabled(self):
        del self.cloud.placement.providers[self.child]
        self.assertIn('host enable node1', self.bad(
            'host', 'disable', 'node1'))

    def test_drain(self):
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

    def test_drain_wherever_the_catalog_says_that_watcher_is(self):
        self.use(2)
        for endpoint in ('http://w/infra-optim', 'http://w/infra-optim/v1',
                         'http://w/infra-optim/v1/'):
            self.cloud.watcher.endpoint = endpoint
            self.good('host', 'drain', 'node1.example')
        self.assertEqual({'http://w/infra-optim/v1/audits'},
                         {url for url, _, _ in self.cloud.watcher.audits})

    def test_nothing_to_drain(self):
        self.assertIn('nothing to drain', self.good(
            'host', 'drain', 'node1'))
        self.assertEqual([], self.cloud.watcher.audits)

    def test_drain_without_watcher(self):
        self.use(1)
        self.cloud.watcher.status = 404
        self.assertIn('goal list', self.bad('host', 'drain', 'node1'))
        self.assertEqual([vocabulary.CLOSED_TRAIT], self.provider['traits'])

    def test_list(self):
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
        """Let a migration away from node1 hold its place there."""
        self.hold('move')
        self.cloud.compute.moves = [
            types.SimpleNamespace(
                uuid=uid, status=status, server_id=server,
                source_compute='node1', migration_type='live-migration')
            for uid in ('other', 'move')]

    def released(self):
        return [uid for uid, held in self.cloud.placement.allocations.items()
                if not held]

    def test_nothing_to_do(self):
        self.assertIn('is an instance', self.good('host', 'audit'))
        self.good('host', 'audit', '--delete')
        self.assertEqual([], self.released())

    def test_nova_cut_off_after_a_migration(self):
        self.move('error')
        self.cloud.compute.instances['server-1'] = 'node2'
        del self.cloud.placement.allocations['server-1']
        text = self.bad('host', 'audit')
        self.assertIn('node1.example: move is a live-migration of server-1 '
                      'that ended as "error"; to be released', text)
        self.assertEqual([], self.released())
        self.assertIn('released.', self.good('host', 'audit', '--delete'))
        self.assertEqual(['move'], self.released())

    def test_the_instance_is_gone(self):
        self.hold('gone')
        self.move('error', server='server-2')
        text = self.good('host', 'audit', '--delete')
        self.assertIn('gone is an instance or a migration', text)
        self.assertEqual(['gone', 'move'], self.released())

    def test_a_rolled_back_one_whose_instance_has_its_place(self):
        self.move('failed')
        self.good('host', 'audit', '--delete')
        self.assertEqual(['move'], self.released())

    def test_a_place_in_use_is_not_released(self):
        self.move('error')
        del self.cloud.placement.allocations['server-1']
        for arguments in ((), ('--delete',)):
            self.assertIn('left alone, since server-1 is there',
                          self.good('host', 'audit', *arguments))
        self.assertEqual([], self.released())

    def test_a_migration_under_way(self):
        for status in ('running', 'finished'):  # a resize to be confirmed
            self.move(status)
            self.good('host', 'audit', '--delete')
        self.assertEqual([], self.released())

    def test_a_cell_that_is_down(self):
        self.hold('perhaps a migration there')
        self.cloud.compute.instances['server-2'] = ''
        self.assertIn('does not answer',
                      self.bad('host', 'audit', '--delete'))
        self.assertEqual([], self.released())

    def test_nova_is_asked_last(self):
        asked = []
        servers, request = (self.cloud.compute.servers,
                            self.cloud.placement.request)
        self.cloud.compute.servers = lambda **query: (
            asked.append('nova'), servers(**query))[1]
        self.cloud.placement.request = lambda *of, **more: (
            asked.append('placement'), request(*of, **more))[1]
        self.good('host', 'audit')
        self.assertEqual('nova', asked[-1])

    def test_a_change_meanwhile(self):
        self.hold('gone')
        with mock.patch.object(self.cloud.placement, '_consumer', side_effect=[
                self.cloud.placement._consumer('GET', 'gone', None),
                fakes.Answer(409)]):
            self.assertIn('Try once more',
                          self.bad('host', 'audit', '--delete'))


class FlavorTest(CommandCase):

    def create(self, *more):
        return ('flavor', 'create', 'sec', '--vcpus', '2', '--ram', '512',
                *more)

    def test_a_made_flavor_is_well_formed(self):
        self.good(*self.create('--disk', '3', '--priority', '2',
                               '--preempt-policy', 'shelve'))
        flavor = self.cloud.compute.made['sec']
        self.assertEqual((2, 512, 3), (flavor.vcpus, flavor.ram,
                                       flavor.disk))
        self.assertEqual(
            vocabulary.SecondaryMark(vocabulary.PreemptPolicy.SHELVE, 2),
            vocabulary.read_mark(flavor.extra_specs))
        self.assertEqual('3', flavor.extra_specs[
            'resources:' + vocabulary.DISK_GB])
        self.good('flavor', 'check')
        self.good('flavor', 'check', 'sec')

    def test_no_claim_of_zero(self):
        self.good(*self.create())
        self.assertNotIn('resources:' + vocabulary.DISK_GB,
                         self.cloud.compute.made['sec'].extra_specs)
        self.good('flavor', 'check', 'sec')

    def test_again(self):
        self.good(*self.create())
        self.assertIn('already', self.good(*self.create()))
        self.assertIn('another flavor', self.bad(
            *self.create('--disk', '1')))

    def test_never_half(self):
        self.cloud.compute.broken_specs = True
        with self.assertRaises(RuntimeError):
            self.run_it(*self.create())
        self.assertEqual({}, self.cloud.compute.made)

    def test_check(self):
        self.cloud.compute.add('primary')
        self.good('flavor', 'check')
        self.cloud.compute.add('half',
                               extra_specs={vocabulary.MARKER: 'true'})
        text = self.bad('flavor', 'check')
        self.assertIn('half: resources:VCPU', text)
        self.assertNotIn('primary:', text)
        self.good('flavor', 'check', 'primary')
        self.bad('flavor', 'check', 'half')
        self.assertIn('no flavor nothing', self.bad(
            'flavor', 'check', 'nothing'))

    def test_swap_and_ephemeral_disk_count(self):
        flavor = self.cloud.compute.add(
            'sec', disk=1, extra_specs=vocabulary.secondary_extra_specs(
                1, 128, 4, vocabulary.SecondaryMark()))
        flavor.ephemeral, flavor.swap = 2, 512
        self.assertEqual({}, manage.flavor_faults([flavor]))
        flavor.swap = 0
        self.assertEqual(['sec'], list(manage.flavor_faults([flavor])))

    def test_bad_arguments(self):
        for more in (('--priority', '11'), ('--priority', 'high'),
                     ('--vcpus', '0'), ('--preempt-policy', 'vaporize')):
            with self.assertRaises(SystemExit), \
                    contextlib.redirect_stderr(io.StringIO()):
                manage.main(self.create(*more))


class ErrorsTest(CommandCase):

    def test_no_cloud(self):
        code, text = self.run_it(
            'host', 'list', connect=mock.Mock(
                side_effect=ks_exceptions.MissingRequiredOptions([])))
        self.assertEqual(1, code)
        self.assertIn('openstack token issue', text)

    def test_no_rights(self):
        self.cloud.placement.refuse = 403
        self.assertIn('role admin', self.bad('host', 'list'))

    def test_placement_fails(self):
        self.cloud.placement.refuse = 500
        self.assertIn('HTTP 500', self.bad('host', 'list'))

    def test_the_cloud_is_chosen(self):
        connect = mock.Mock(return_value=self.cloud)
        self.run_it('--os-cloud', 'mine', 'host', 'list', connect=connect)
        self.assertEqual('mine', connect.call_args.kwargs['cloud'])

    def test_help(self):
        for arguments in ((), ('host',), ('host', 'enable'),
                          ('flavor', 'create')):
            out = io.StringIO()
            with self.assertRaises(SystemExit) as ended, \
                    contextlib.redirect_stdout(out):
                manage.main((*arguments, '--help'))
            self.assertEqual(0, ended.exception.code)
            self.assertIn('secondary-scheduler', out.getvalue())
