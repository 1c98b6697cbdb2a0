"""``openstack secondary lease``, against a service in this process."""

import argparse
import datetime
import io
import json
import tempfile
import time
import types
import unittest
from unittest import mock

from keystoneauth1 import adapter, session, token_endpoint
import openstack
from osc_lib import exceptions
from wsgi_intercept import interceptor

from secondary_scheduler.leases.api import app
from secondary_scheduler.leases.api.db import (
    plans,
    quotes,
    requests,
    schedules,
)
from secondary_scheduler.leases.client import (
    client,
    gantt,
    osc,
    times,
    waiting,
)
from secondary_scheduler.leases.client.v1 import lease as commands
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.api import services
from tests.unit.leases.api.services import stretch

NODES = ('--nodes', 'number=2,flavor=small,image=debian')


class Case(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.service = services.on(self)
        # What is relative to now is in the future of the service.
        self.service.store._clock.now = int(
            datetime.datetime(2026, 1, 1).timestamp())
        schedules.beat(self.service.database, self.service.store.now, '')
        made = app.application(self.service)
        intercepted = interceptor.RequestsInterceptor(
            lambda: made, host='lease.example', port=80)
        intercepted.install_intercept()
        self.addCleanup(intercepted.uninstall_intercept)
        self.leases = self.of('alice:p1')

    def of(self, token):
        return client.Client(adapter.Adapter(
            session.Session(token_endpoint.Token(
                'http://lease.example', token)),
            service_type=client.SERVICE_TYPE))

    def run_it(self, command, *arguments):
        """Run a command; return what it prints."""
        out = io.StringIO()
        screen = types.SimpleNamespace(
            stdout=out, stderr=out, client_manager=types.SimpleNamespace(
                secondary_lease=self.leases),
            options=types.SimpleNamespace(), LOG=None)
        made = command(screen, None)
        made.run(made.get_parser('openstack').parse_args(arguments))
        return out.getvalue()

    def json(self, command, *arguments):
        return json.loads(self.run_it(command, '-f', 'json', *arguments))


class Commands(Case):

    def test_from_create_to_delete(self):
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
            self.run_it(command, 'weekly')
            self.assertEqual(value, self.leases.find('weekly')[key])
        self.assertEqual(
            ['created', 'changed', 'paused', 'unpaused', 'cancel-asked'],
            [one['kind'] for one in self.json(commands.ListLeaseEvents,
                                              'weekly')])
        self.run_it(commands.DeleteLease, 'weekly')
        self.assertEqual([], self.json(commands.ListLease))

    def answering(self, *offer):
        """Let the scheduler answer while a client waits."""
        return mock.patch('time.sleep', lambda seconds: seconds and [
            self.service.quotes.answer(one.uuid, quotes.QuoteAnswer(*offer))
            for one in self.service.quotes.take()])

    def test_quote(self):
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

    def test_a_quote_that_nobody_answers(self):
        with self.assertRaisesRegex(client.LeaseError, 'operator') as caught:
            self.run_it(commands.QuoteLease, '--duration', '60', *NODES,
                        '--timeout', '0')
        self.assertEqual('no-answer', caught.exception.code)

    def test_two_kinds_of_nodes(self):
        self.run_it(commands.CreateLease, '--duration', '60', *NODES,
                    '--nodes', 'number=1,flavor=large', '--immediate', 'x')
        self.assertEqual([('small', 'debian'), ('large', None)], [
            (one['flavor'], one['image'])
            for one in self.leases.find('x')['nodes']])

    def test_servers_as_for_openstack_server_create(self):
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

    def test_networks_by_a_word(self):
        for word in ('none', 'auto'):
            self.run_it(commands.CreateLease, '--duration', '60', *NODES,
                        '--network', word, word)
            self.assertEqual(word, self.leases.find(word)['nodes'][0][
                'networks'])

    def test_options_of_servers_that_cannot_be(self):
        with tempfile.NamedTemporaryFile() as large:
            large.write(b'x' * 49150)
            large.flush()
            for arguments, says in (
                    (('--user-data', '/no/such/file'), 'cannot be read'),
                    (('--user-data', large.name), '49149'),
                    (('--network', 'none', '--network', 'x'),
                     'stands alone'),
                    (('--network', 'x,colour=red'), 'fixed_ip, tag'),
                    (('--block-device', 'source_type'), '<key>=<value>'),
                    (('--block-device', 'boot_index=x'), 'whole number'),
                    (('--block-device', 'delete_on_termination=x'),
                     'true or false'),
                    (('--boot-from-volume', 'large'), 'whole number'),
                    (('--nodes', 'number=1,flavor=f', '--boot-from-volume',
                      '8'), 'of which image')):
                out = io.StringIO()
                with self.subTest(arguments), mock.patch('sys.stderr', out):
                    with self.assertRaises((
                            SystemExit, exceptions.CommandError)) as caught:
                        self.run_it(commands.CreateLease, '--duration', '60',
                                    *NODES, *arguments, 'x')
                    self.assertIn(says, out.getvalue() + str(
                        caught.exception))
        self.assertEqual([], list(self.leases.leases()))

    def test_list(self):
        for name in ('one', 'two'):
            self.run_it(commands.CreateLease, '--duration', '60', *NODES,
                        name)
        self.service.store.change(self.leases.find('two')['id'], 'x',
                                  {'state': LeaseState.QUEUED})
        self.assertEqual(['two'], [one['name'] for one in self.json(
            commands.ListLease, '--state', 'queued', '--state', 'active')])
        self.assertEqual(['one'], [one['name'] for one in self.json(
            commands.ListLease, '--name', 'one')])
        with self.assertRaisesRegex(client.LeaseError, 'all_projects'):
            self.run_it(commands.ListLease, '--all-projects')
        self.leases = self.of('admin:ops')
        self.assertEqual([], self.json(commands.ListLease))
        self.assertEqual(2, len(self.json(commands.ListLease,
                                          '--all-projects')))

    def test_what_goes_wrong_says_what_to_do(self):
        self.run_it(commands.CreateLease, '--duration', '60', *NODES, 'one')
        for _ in range(2):
            self.run_it(commands.CreateLease, '--duration', '60', *NODES,
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
                self.run_it(*arguments)
        with self.assertRaisesRegex(exceptions.CommandError, '1 of 2'):
            self.run_it(commands.DeleteLease, 'nothing', 'one')
        self.assertEqual(2, len(list(self.leases.leases())))

    def test_timeline(self):
        self.assertEqual('Nothing is planned.\n',
                         self.run_it(commands.ShowTimeline))
        for name in ('one', 'two'):
            self.run_it(commands.CreateLease, '--duration', '60', *NODES,
                        name)
        ids = [self.leases.find(name)['id'] for name in ('one', 'two')]
        plans.write(self.service.database, {
            ids[0]: [stretch(0, 3600, node1=1, node2=1)],
            ids[1]: [stretch(3600, 7200, node1=1)]})
        drawn = self.run_it(commands.ShowTimeline, '--width', '48')
        self.assertEqual([
            'one (2) ' + '#' * 20, 'two (1) ' + ' ' * 20 + '#' * 20],
            drawn.splitlines()[2:4])
        self.assertNotIn('Not in it', drawn)
        self.assertNotIn('one', self.run_it(commands.ShowTimeline, 'two'))
        self.assertEqual('Nothing is planned.\nNot in it: two (new)\n',
                         self.run_it(commands.ShowTimeline, '--begin',
                                     '2027-01-31T10:00', 'two'))

    def test_a_timeline_names_what_it_does_not_show(self):
        for name in ('twin', 'twin', ''):
            self.run_it(commands.CreateLease, '--duration', '60', *NODES,
                        name)
        one, two, other = [lease['id'] for lease in self.leases.leases()]
        plans.write(self.service.database, {one: [stretch(0, 60, node1=1)]})
        self.service.store.change(two, 'x', {'state': LeaseState.QUEUED})
        lines = self.run_it(commands.ShowTimeline).splitlines()
        self.assertTrue(lines[2].startswith(f'twin {one[:8]} (1) #'))
        self.assertEqual(
            f'Not in it: twin {two[:8]} (queued), {other} (new)', lines[-1])
        self.service.store.change(two, 'x', {'state': LeaseState.DONE})
        self.assertNotIn('twin', self.run_it(
            commands.ShowTimeline).splitlines()[-1])
        with self.assertRaisesRegex(client.LeaseError, 'all_projects'):
            self.run_it(commands.ShowTimeline, '--all-projects')
        self.leases = self.of('admin:ops')
        self.assertIn('twin', self.run_it(commands.ShowTimeline,
                                          '--all-projects'))

    def test_help_teaches_with_an_example(self):
        for name, command in vars(commands).items():
            if isinstance(command, type) and hasattr(
                    command, 'take_action') and name[0] != '_':
                with self.subTest(name):
                    self.assertIn('openstack secondary lease ',
                                  command.__doc__)


class Waiting(Case):

    def setUp(self):
        super().setUp()
        self.steps = []
        patcher = mock.patch.object(waiting, 'time', types.SimpleNamespace(
            sleep=self.sleep, monotonic=time.monotonic))
        patcher.start()
        self.addCleanup(patcher.stop)

    def sleep(self, seconds):
        """Let the scheduler go on while a command waits."""
        self.assertTrue(self.steps, 'it waits for ever')
        self.steps.pop(0)()

    def enter(self, state, text='', **values):
        lease, = self.leases.leases()
        self.service.store._clock.now += 1
        self.service.store.change(lease['id'], str(state), {
            'state': state, **values}, text=text)

    def wait(self, *arguments):
        return self.run_it(commands.CreateLease, '-f', 'json', '--duration',
                           '60', *NODES, '--wait', *arguments, 'job')

    def test_it_ends_when_all_servers_run(self):
        self.steps = [
            lambda: self.enter(LeaseState.PENDING),
            lambda: self.enter(LeaseState.QUEUED, 'there is no room'),
            lambda: self.enter(LeaseState.ACTIVE)]
        told, _, shown = self.wait().partition('{')
        self.assertEqual([
            '2026-01-01T00:00:00Z new        created',
            '2026-01-01T00:00:01Z pending',
            '2026-01-01T00:00:02Z queued     there is no room',
            '2026-01-01T00:00:03Z active'], told.splitlines())
        self.assertEqual('active', json.loads('{' + shown)['state'])
        self.assertIn('active', self.run_it(commands.WaitForLease, 'job'))

    def test_it_ends_with_the_reason(self):
        for state in (LeaseState.REJECTED, LeaseState.FAILED,
                      LeaseState.CANCELLED):
            self.steps = [lambda state=state: self.enter(
                state, reason='Nova has no such image')]
            with self.subTest(state), self.assertRaisesRegex(
                    exceptions.CommandError,
                    f'Lease job is {state}: Nova has no such image'):
                self.wait()
            self.run_it(commands.DeleteLease, 'job')

    def test_it_gives_up_in_time(self):
        with self.assertRaisesRegex(exceptions.CommandError,
                                    'After 0 s lease .* is new; it goes on'):
            self.wait('--timeout', '0')

    def test_an_event_before_the_last_one_is_told(self):
        def late():
            self.service.store._clock.now -= 7
            self.enter(LeaseState.QUEUED, 'by a slow clock')
        self.steps = [late, lambda: self.enter(LeaseState.ACTIVE)]
        self.assertEqual(1, self.wait().count('by a slow clock'))

    def test_a_service_that_is_away_for_a_moment(self):
        get = self.leases.get
        self.leases.get = mock.Mock(side_effect=[
            client.LeaseError(503, 'x', 'try later'),
            client.LeaseError(503, 'x', 'try later'), get])
        self.steps = [lambda: None, lambda: (
            setattr(self.leases, 'get', get), self.enter(LeaseState.DONE))]
        told = self.wait()
        self.assertEqual(1, told.count('does not answer: try later'))
        self.assertIn('"done"', told)
        with self.assertRaisesRegex(client.LeaseError, 'no lease'):
            self.run_it(commands.WaitForLease, services.NOBODY)

    def test_a_warning_that_no_engine_looks(self):
        self.service.store._clock.now += 1000
        for command, arguments in (
                (commands.CreateLease, ('--duration', '60', *NODES, 'job')),
                (commands.ShowLease, ('job',)), (commands.ListLease, ())):
            self.assertEqual(1, self.run_it(command, *arguments).count(
                'Warning: Leases were last looked at 0:16:'))
        self.steps = [lambda: self.enter(LeaseState.ACTIVE)]
        self.assertIn('an engine looks at them',
                      self.run_it(commands.WaitForLease, 'job'))
        schedules.beat(self.service.database, self.service.store.now, '')
        self.assertNotIn('Warning', self.run_it(commands.ListLease))


class Python(Case):

    def test_a_list_goes_through_all_pages(self):
        made = [self.leases.create([{'number': 1, 'flavor': 'f'}], 60,
                                   name=str(number))['id']
                for number in range(5)]
        self.assertEqual(made, [
            one['id'] for one in self.leases.leases(limit=2)])
        self.assertEqual({'limit': 100, 'used': 5},
                         self.leases.quota()['leases'])

    def test_errors_have_status_and_code(self):
        with self.assertRaises(client.LeaseError) as caught:
            self.leases.get(services.NOBODY)
        self.assertEqual((404, 'secondary-lease.not-found'),
                         (caught.exception.status_code,
                          caught.exception.code))

    def test_an_answer_of_something_else(self):
        intercepted = interceptor.RequestsInterceptor(
            lambda: lambda environ, start: (
                start('502 Bad Gateway', [('Content-Type', 'text/html')]),
                [b'<html>proxy</html>'])[1], host='other.example', port=80)
        with intercepted:
            other = client.Client(adapter.Adapter(
                session.Session(token_endpoint.Token(
                    'http://other.example', 't')), service_type='x'))
            with self.assertRaisesRegex(client.LeaseError,
                                        'Is this the lease service'):
                other.quota()

    def test_a_connection_of_openstacksdk(self):
        connection = openstack.connect(
            load_yaml_config=False, load_envvars=False,
            auth_type='admin_token',
            auth={'endpoint': 'http://lease.example', 'token': 'alice:p1'})
        self.addCleanup(connection.close)
        found = osc.make_client(types.SimpleNamespace(
            sdk_connection=connection))
        made = found.create([{'number': 1, 'flavor': 'f'}], 60)
        self.assertEqual([made], list(found.leases()))


class Times(unittest.TestCase):

    def test_durations(self):
        for text, seconds in (('90', 90), ('90s', 90), ('2h', 7200),
                              ('1h30m', 5400), ('1d12h', 129600),
                              ('1m1', 61)):
            self.assertEqual(seconds, times.duration(text), text)
        for text in ('', 'h', '2x', '-1', '1.5h', '30m1h', '2 h'):
            with self.subTest(text), self.assertRaises(
                    argparse.ArgumentTypeError):
                times.duration(text)

    def test_moments(self):
        now = datetime.datetime(2027, 1, 31, 8, tzinfo=datetime.UTC)
        for text in ('+1h30m', '2027-01-31T09:30', '2027-01-31 09:30:00',
                     '2027-01-31T10:30+01:00', '2027-01-31T09:30:00Z'):
            self.assertEqual('2027-01-31T09:30:00Z', times.moment(text, now))
        self.assertIsNone(times.moment_or_none('none'))
        for text in ('soon', '2027-02-30', '+soon'):
            with self.subTest(text), self.assertRaises(
                    argparse.ArgumentTypeError):
                times.moment(text, now)


class Chart(unittest.TestCase):

    def slot(self, lease, begin, end, what='run', nodes=1):
        return {'lease_id': lease, 'what': what, 'nodes': nodes,
                'begin': f'2027-01-31T{begin}:00Z',
                'end': f'2027-01-31T{end}:00Z'}

    def test_rows_and_axis(self):
        slots = [self.slot('a', '08:00', '08:30', 'prepare', 3),
                 self.slot('a', '08:30', '09:00', nodes=3),
                 self.slot('b', '09:00', '10:00')]
        self.assertEqual([
            '        08:00     08:30     09:00     09:30',
            '        |         |         |         |',
            'lea (3) ..........##########',
            'b (1)   ' + ' ' * 20 + '#' * 20,
            '2027-01-31 08:00 to 10:00 UTC, 3 min a column; (n): n nodes',
            '# run, . prepare, > resume, < suspend, x shut-down'],
            gantt.draw(slots, {'a': 'lea'}, 48))

    def test_what_is_asked_for_is_drawn_and_no_more(self):
        slots = [self.slot('a', '08:00', '23:00'),
                 self.slot('b', '01:00', '02:00')]
        lines = gantt.draw(slots, {}, 46, begin=services.NOW + 3600,
                           end=services.NOW + 5 * 3600)
        self.assertEqual([
            '            10:00       12:00'], lines[:1])
        self.assertEqual('a (1) ' + '#' * 24, lines[2])
        self.assertEqual('b (1)', lines[3])
        self.assertIn('09:00 to 13:00 UTC, 10 min a column', lines[4])

    def test_seconds(self):
        lines = gantt.draw([{**self.slot('a', '08:00', '08:00'),
                             'end': '2027-01-31T08:00:30Z'}], {}, 46)
        self.assertEqual(['08:00:00', '08:00:10', '08:00:20'],
                         lines[0].split())
        self.assertIn('08:00:00 to 08:00:30 UTC, 1 s a', lines[3])

    def test_days(self):
        slots = [{**self.slot('a', '22:00', '23:00'),
                  'end': '2027-02-02T12:00:00Z'}]
        lines = gantt.draw(slots, {}, 46)
        self.assertEqual('        02-01     12:00       02-02'.split(),
                         lines[0].split())
        self.assertIn('2027-01-31 22:00 to 2027-02-02 12:00', lines[3])

    def test_now_is_marked(self):
        slots = [self.slot('a', '08:00', '10:00')]
        for seconds, mark in ((0, '^ now'), (3600, ' ' * 20 + '^ now'),
                              (7199, ' ' * 35 + 'now ^')):
            self.assertEqual(' ' * 6 + mark, gantt.draw(
                slots, {}, 46, now=services.NOW + seconds)[3])
        for seconds in (-1, 7200):
            self.assertNotIn('now', ''.join(gantt.draw(
                slots, {}, 46, now=services.NOW + seconds)))

    def test_what_has_no_end_is_drawn_to_the_end_of_the_chart(self):
        open_ = {**self.slot('a', '08:00', '08:00'), 'end': None}
        self.assertEqual('a (1) ' + '#' * 40, gantt.draw(
            [open_, self.slot('b', '08:00', '10:00')], {}, 46)[2])
        for now, until in ((None, '09:00'), (services.NOW + 7200, '11:00')):
            lines = gantt.draw([open_], {}, 46, now=now)
            self.assertEqual(1, len(lines[2].split('(1) ')[1].split()))
            self.assertIn(f'08:00 to {until} UTC', ''.join(lines))

    def test_what_is_short_is_seen(self):
        slots = [self.slot('a', '08:00', '20:00'),
                 self.slot('a', '12:00', '12:01', 'suspend')]
        row = gantt.draw(slots, {}, 40)[2]
        self.assertEqual(1, row.count('<'))

    def test_a_long_name_leaves_room(self):
        lines = gantt.draw([self.slot('x' * 300, '08:00', '09:00')], {}, 60)
        self.assertLessEqual(max(map(len, lines[2:3])), 60)
        self.assertIn('#' * 20, lines[2])
