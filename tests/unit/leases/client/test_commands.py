# SPDX-License-Identifier: Apache-2.0

"""Tests of ``openstack secondary lease``."""

import contextlib
import io
import tempfile
from unittest import mock

from osc_lib import exceptions

from secondary_scheduler.leases.api.db import plans, quotes, requests
from secondary_scheduler.leases.client import client
from secondary_scheduler.leases.client.v1 import lease as commands
from secondary_scheduler.leases.client.v1 import records, timeline
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.reading.values import InputError
from tests.unit.leases.api import services
from tests.unit.leases.api.services import stretch
from tests.unit.leases.client.client_case import NODES, ClientCase


class CommandTest(ClientCase):

    def test_lease_is_created_changed_and_deleted(self):
        made = self.json(commands.CreateLease, '--duration', '2h', *NODES,
                         '--deadline', '+3h', '--not-preemptible',
                         '--max-rate', '0.5', 'nightly')
        self.assertEqual(
            ('nightly', 'new', 7200, 'deadline', False, 0.5,
             'number=2, flavor=small, image=debian'),
            tuple(made[name] for name in (
                'name', 'state', 'duration', 'kind', 'preemptible',
                'max_rate', 'nodes')))
        self.assertEqual(made, self.json(commands.ShowLease, 'nightly'))
        self.assertEqual(made, self.json(commands.ShowLease, made['id']))
        changed = self.json(commands.SetLease, '--name', 'weekly',
                            '--deadline', 'none', 'nightly')
        self.assertEqual(('weekly', 'best-effort'),
                         (changed['name'], changed['kind']))
        for command, key, value in (
                (commands.PauseLease, 'paused', True),
                (commands.UnpauseLease, 'paused', False),
                (commands.CancelLease, 'cancelling', True)):
            self.execute(command, 'weekly')
            self.assertEqual(value, self.leases.find('weekly')[key])
        self.assertEqual(
            ['created', 'changed', 'paused', 'unpaused', 'cancel-asked'],
            [one['kind'] for one in self.json(commands.ListLeaseEvents,
                                              'weekly')])
        self.execute(commands.DeleteLease, 'weekly')
        self.assertEqual([], self.json(commands.ListLease))

    def answering(self, *offer):
        """Answer quotes as the scheduler does, while a client waits."""
        # Not time.sleep itself, which threads of other tests may call.
        return mock.patch('tenacity.nap.time', mock.Mock(
            sleep=lambda seconds: seconds and [
                self.service.quotes.answer(
                    one.uuid, quotes.QuoteAnswer(*offer))
                for one in self.service.quotes.unanswered()]))

    def test_quote_shows_price_and_start(self):
        arguments = ('--duration', '2h', *NODES, '--start', '+3h',
                     '--max-rate', '0.5')
        with self.answering(True, services.NOW, 0.5, 7200.0):
            self.assertEqual(
                {'accepted': True, 'kind': 'reservation', 'price': 7200.0,
                 'rate': 0.5, 'reason': '', 'start': '2027-01-31T08:00:00Z'},
                self.json(commands.QuoteLease, *arguments))
        with self.answering(False, None, 1.0, 14400.0, 'too dear'):
            found = self.json(commands.QuoteLease, *arguments)
        self.assertEqual((False, None, 'too dear'), tuple(
            found[name] for name in ('accepted', 'start', 'reason')))
        self.assertEqual([], list(self.leases.leases()))

    def test_unanswered_quote_is_an_error(self):
        with self.assertRaisesRegex(client.LeaseError, 'operator') as caught:
            self.execute(commands.QuoteLease, '--duration', '60', *NODES,
                         '--timeout', '0')
        self.assertEqual('no-answer', caught.exception.code)

    def test_option_nodes_may_be_repeated(self):
        self.execute(commands.CreateLease, '--duration', '60', *NODES,
                     '--nodes', 'number=1,flavor=large', '--immediate', 'x')
        self.assertEqual([('small', 'debian'), ('large', None)], [
            (one['flavor'], one['image'])
            for one in self.leases.find('x')['nodes']])

    def test_server_options_follow_openstack_server_create(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b'#!/bin/sh\n\xff')
            file.flush()
            made = self.json(
                commands.CreateLease, '--duration', '60', '--nodes',
                'number=1,flavor=small,image=debian', '--user-data',
                file.name, '--network', 'private', '--network',
                'storage,fixed_ip=10.0.0.5,tag=back', '--network',
                'port=web', '--security-group', 'ssh', '--property', 'a=b=c',
                '--tag', 't', '--description', 'a job', '--config-drive',
                '--boot-from-volume', '8', '--block-device',
                'source_type=volume,uuid=v1,destination_type=volume,'
                'delete_on_termination=false', 'x')
        node, = self.leases.find('x')['nodes']
        self.assertEqual({
            'number': 1, 'flavor': 'small', 'image': None, 'network': None,
            'key_name': None, 'has_user_data': True, 'metadata': {'a': 'b=c'},
            'networks': [
                {'uuid': 'private'},
                {'uuid': 'storage', 'fixed_ip': '10.0.0.5', 'tag': 'back'},
                {'port': 'web'}],
            'security_groups': [{'name': 'ssh'}], 'tags': ['t'],
            'description': 'a job', 'config_drive': True,
            'block_device_mapping_v2': [
                {'source_type': 'image', 'uuid': 'debian', 'boot_index': 0,
                 'destination_type': 'volume', 'volume_size': 8,
                 'delete_on_termination': True},
                {'source_type': 'volume', 'uuid': 'v1',
                 'destination_type': 'volume',
                 'delete_on_termination': False}]}, node)
        self.assertIn('has_user_data=True', made['nodes'])
        self.assertIn('nodes[0].flavor: there is no token',
                      made['unverified'])
        self.assertEqual('IyEvYmluL3NoCv8=', requests.server_request(
            self.service.database, made['id'], 0)['user_data'])

    def test_network_may_be_none_or_auto(self):
        for word in ('none', 'auto'):
            self.execute(commands.CreateLease, '--duration', '60', *NODES,
                         '--network', word, word)
            self.assertEqual(word, self.leases.find(word)['nodes'][0][
                'networks'])

    def test_invalid_server_options_are_explained(self):
        with tempfile.NamedTemporaryFile() as large:
            large.write(b'x' * 49150)
            large.flush()
            for arguments, says in (
                    (('--user-data', '/no/such/file'), 'cannot be read'),
                    (('--user-data', large.name), '49149'),
                    (('--network', 'none', '--network', 'x'),
                     'excludes other networks'),
                    (('--network', 'x,colour=red'), 'fixed_ip, tag'),
                    (('--block-device', 'source_type'), '<key>=<value>'),
                    (('--block-device', 'boot_index=x'), 'whole number'),
                    (('--block-device', 'delete_on_termination=x'),
                     'true or false'),
                    (('--boot-from-volume', 'large'), 'whole number'),
                    (('--nodes', 'number=1,flavor=f', '--boot-from-volume',
                      '8'), 'give the image')):
                out = io.StringIO()
                with self.subTest(arguments), mock.patch('sys.stderr', out):
                    with self.assertRaises((
                            SystemExit, exceptions.CommandError)) as caught:
                        self.execute(commands.CreateLease, '--duration', '60',
                                     *NODES, *arguments, 'x')
                    self.assertIn(says, out.getvalue() + str(
                        caught.exception))
        self.assertEqual([], list(self.leases.leases()))

    def test_list_is_filtered(self):
        for name in ('one', 'two'):
            self.execute(commands.CreateLease, '--duration', '60', *NODES,
                         name)
        self.service.store.change(self.leases.find('two')['id'], 'x',
                                  {'state': LeaseState.QUEUED})
        self.assertEqual(['two'], [one['name'] for one in self.json(
            commands.ListLease, '--state', 'queued', '--state', 'active')])
        self.assertEqual(['one'], [one['name'] for one in self.json(
            commands.ListLease, '--name', 'one')])
        with self.assertRaisesRegex(client.LeaseError, 'all_projects'):
            self.execute(commands.ListLease, '--all-projects')
        self.leases = self.client_of('admin:ops')
        self.assertEqual([], self.json(commands.ListLease))
        self.assertEqual(2, len(self.json(commands.ListLease,
                                          '--all-projects')))

    def test_errors_name_a_remedy(self):
        self.execute(commands.CreateLease, '--duration', '60', *NODES, 'one')
        for _ in range(2):
            self.execute(commands.CreateLease, '--duration', '60', *NODES,
                         'twin')
        for arguments, error, says in (
                ((commands.ShowLease, 'none/such'), client.LeaseError,
                 'secondary lease list'),
                ((commands.ShowLease, 'twin'), client.LeaseError,
                 'give the id'),
                ((commands.SetLease, 'one'), exceptions.CommandError,
                 'Nothing to change'),
                ((commands.CreateLease, '--duration', '60', '--nodes',
                  'number=many,flavor=f', 'x'), exceptions.CommandError,
                 'number=4'),
                ((commands.CreateLease, '--duration', '60', *NODES, '--start',
                  '2020-01-01T00:00', 'x'), client.LeaseError,
                 'no more|start')):
            with self.subTest(arguments), self.assertRaisesRegex(error,
                                                                 says):
                self.execute(*arguments)
        with self.assertRaisesRegex(exceptions.CommandError, '1 of 2'):
            self.execute(commands.DeleteLease, 'nothing', 'one')
        self.assertEqual(2, len(list(self.leases.leases())))

    def test_timeline_is_drawn(self):
        self.assertEqual('Nothing is planned.\n',
                         self.execute(timeline.ShowTimeline))
        for name in ('one', 'two'):
            self.execute(commands.CreateLease, '--duration', '60', *NODES,
                         name)
        ids = [self.leases.find(name)['id'] for name in ('one', 'two')]
        plans.write_plan(self.service.database, {
            ids[0]: [stretch(0, 3600, node1=1, node2=1)],
            ids[1]: [stretch(3600, 7200, node1=1)]})
        drawn = self.execute(timeline.ShowTimeline, '--width', '48')
        self.assertEqual([
            'one (2) ' + '#' * 20, 'two (1) ' + ' ' * 20 + '#' * 20],
            drawn.splitlines()[2:4])
        self.assertNotIn('Not in it', drawn)
        with self.assertRaisesRegex(InputError, 'width: .* not 0'):
            self.execute(timeline.ShowTimeline, '--width', '0')
        self.assertNotIn('one', self.execute(timeline.ShowTimeline, 'two'))
        self.assertEqual('Nothing is planned.\nNot in it: two (new)\n',
                         self.execute(timeline.ShowTimeline, '--begin',
                                      '2027-01-31T10:00', 'two'))

    def test_times_out_of_the_calendar_are_refused_at_their_option(self):
        create = (commands.CreateLease, 'late', '--duration', '60', *NODES)
        for text in ('+999999999999d', '9999-12-31T23:59-12:00',
                     '0001-01-01T00:00+12:00'):
            for command, *arguments, option in (
                    (*create, '--start'), (*create, '--deadline'),
                    (*create, '--duration'), (*create, '--timeout'),
                    (timeline.ShowTimeline, '--begin'),
                    (timeline.ShowTimeline, '--end'),
                    (records.ListOperation, '--since'),
                    (records.ShowAccounting, '--begin'),
                    (records.ShowAccounting, '--end')):
                output = io.StringIO()
                with (self.subTest(f'{option} {text}'),
                      contextlib.redirect_stderr(output),
                      self.assertRaises(SystemExit) as caught):
                    self.execute(command, *arguments, option, text)
                self.assertEqual(2, caught.exception.code)
                self.assertIn(f'argument {option}: "',
                              ' '.join(output.getvalue().split()))
        self.assertEqual([], list(self.leases.leases()))

    def test_timeline_names_leases_without_slots(self):
        for name in ('twin', 'twin', ''):
            self.execute(commands.CreateLease, '--duration', '60', *NODES,
                         name)
        one, two, other = [lease['id'] for lease in self.leases.leases()]
        plans.write_plan(self.service.database,
                         {one: [stretch(0, 60, node1=1)]})
        self.service.store.change(two, 'x', {'state': LeaseState.QUEUED})
        lines = self.execute(timeline.ShowTimeline).splitlines()
        self.assertTrue(lines[2].startswith(f'twin {one[:8]} (1) #'))
        self.assertEqual(
            f'Not in it: twin {two[:8]} (queued), {other} (new)', lines[-1])
        self.service.store.change(two, 'x', {'state': LeaseState.DONE})
        self.assertNotIn('twin', self.execute(
            timeline.ShowTimeline).splitlines()[-1])
        with self.assertRaisesRegex(client.LeaseError, 'all_projects'):
            self.execute(timeline.ShowTimeline, '--all-projects')
        self.leases = self.client_of('admin:ops')
        self.assertIn('twin', self.execute(timeline.ShowTimeline,
                                           '--all-projects'))

    def test_help_has_an_example(self):
        for name, command in (*vars(commands).items(),
                              *vars(timeline).items()):
            if isinstance(command, type) and hasattr(
                    command, 'take_action') and name[0] != '_':
                with self.subTest(name):
                    self.assertIn('openstack secondary lease ',
                                  command.__doc__)
