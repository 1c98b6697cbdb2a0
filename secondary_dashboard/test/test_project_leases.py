# SPDX-License-Identifier: Apache-2.0

"""Panel of a project's leases."""

import base64
import contextlib
import datetime
import random
import re
from unittest import mock
import uuid

from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils import timezone
from openstack_dashboard.api import glance, neutron, nova
import requests

from secondary_dashboard import formats
from secondary_dashboard.content.project_leases import forms
from secondary_dashboard.test import helpers
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.reading import times

PANEL = 'horizon:project:secondary_leases'
INDEX = reverse(f'{PANEL}:index')
CREATE = reverse(f'{PANEL}:create')
QUOTE = reverse(f'{PANEL}:quote')
DETAIL = reverse(f'{PANEL}:detail', args=[helpers.LEASE_ID])
TIMELINE = reverse(f'{PANEL}:timeline')

FORM = {'name': 'nightly', 'flavor': 'secondary', 'number': '2',
        'image': 'image-1', 'networks': ['none'], 'key_name': '',
        'duration': '1h30m', 'begin': 'room', 'start': '', 'deadline': '',
        'preemptible': 'on', 'max_rate': '', 'user_data': ''}
QUOTA = {'quota': {'leases': {'limit': 10, 'used': 1},
                   'nodes': {'limit': -1, 'used': 2}}}


def uuid_of(number):
    """Return an id of a lease."""
    return str(uuid.UUID(int=number))


def named(**values):
    """Return an object with attributes, ``name`` among them."""
    found = mock.Mock(**{name: value for name, value in values.items()
                         if name != 'name'})
    found.name = values['name']
    return found


@contextlib.contextmanager
def cloud(**failures):
    """Let Nova, Glance and Neutron offer choices, or fail."""
    answers = {
        (nova, 'flavor_list'): [
            named(name='secondary', vcpus=1, ram=128, disk=1,
                  extra_specs={'lifecycle:preemptable': 'true'}),
            named(name='primary', vcpus=1, ram=128, disk=1,
                  extra_specs={})],
        (nova, 'keypair_list'): [named(name='mykey')],
        (glance, 'image_list_detailed'): ([
            named(id='image-1', name='worker', container_format='bare'),
            named(id='image-2', name='kernel', container_format='aki')],
            False, False),
        (neutron, 'network_list_for_tenant'): [
            named(id='net-1', name='private'),
            named(id='net-2', name='storage')]}
    with contextlib.ExitStack() as stack:
        for (module, name), answer in answers.items():
            stack.enter_context(mock.patch.object(
                module, name, return_value=answer,
                side_effect=failures.get(name)))
        yield


class LeaseListTest(helpers.LeaseTestCase):

    def test_list_shows_state_and_reason_of_each_lease(self):
        self.list_leases([helpers.lease(
            state='rejected', reason='there is no room <b>now</b>')])
        page = self.client.get(INDEX)
        self.assertContains(page, 'Rejected')
        self.assertContains(page, 'there is no room &lt;b&gt;now&lt;/b&gt;')
        self.assertEqual([], self.texts(page))

    def test_each_state_has_a_text(self):
        self.assertEqual(set(LeaseState), set(formats.STATES))

    def test_lease_of_unknown_state_is_read_again(self):
        for state, changes in (('active', False), ('unknown', True)):
            self.list_leases([helpers.lease(state=state)])
            page = self.client.get(INDEX)
            self.assertContains(page, formats.STATES[state])
            row, = re.findall(r'<tr[^>]*ajax-update[^>]*>',
                              page.content.decode())
            self.assertEqual(changes, 'warning' in row)

    def test_paused_lease_can_be_unpaused_only(self):
        self.list_leases([helpers.lease(paused=True)])
        page = self.client.get(INDEX)
        self.assertContains(page, 'Active (paused)')
        self.assertContains(page, f'leases__unpause__{helpers.LEASE_ID}')
        self.assertNotContains(page, f'leases__pause__{helpers.LEASE_ID}')

    def test_empty_list_offers_to_create_a_lease(self):
        self.list_leases([])
        page = self.client.get(INDEX)
        self.assertContains(page, 'No items to display')
        self.assertContains(page, CREATE)

    def test_lists_are_read_page_by_page_in_both_directions(self):
        leases = [helpers.lease(id=uuid_of(n), name=f'lease-{n}')
                  for n in range(3)]
        self.list_leases(leases, more=True)
        page = self.client.get(INDEX)
        self.assertEqual({'limit': ['20'], 'sort_key': ['created_at'],
                          'sort_dir': ['desc']}, self.query())
        self.assertContains(page, f'marker={uuid_of(2)}')
        self.assertNotContains(page, 'prev_marker')
        page = self.client.get(f'{INDEX}?prev_marker={uuid_of(2)}')
        self.assertEqual('asc', self.query()['sort_dir'][0])
        self.assertEqual(['lease-2', 'lease-1', 'lease-0'], [
            one.name for one in page.context['table'].data])
        self.assertContains(page, f'prev_marker={uuid_of(2)}')
        self.assertContains(page, f'marker={uuid_of(0)}')

    def test_filter_by_state_is_done_by_the_service(self):
        self.list_leases([])
        self.client.post(INDEX, {
            'leases__filter__q': 'active',
            'leases__filter__q_field': 'state'}, follow=True)
        self.assertEqual(['active'], self.query()['state'])

    def test_waiting_leases_are_explained(self):
        self.list_leases([], engine={
            **helpers.ENGINE, 'stale': True,
            'message': 'No engine has processed leases. Tell the operator.'})
        self.assertIn('No engine has processed leases. Tell the operator.',
                      self.texts(self.client.get(INDEX)))

    def test_controls_of_the_list_have_names_and_use_the_keyboard(self):
        self.list_leases([helpers.lease()])
        page = self.client.get(INDEX)
        self.assertNotContains(page, 'themable-select')
        for name in ('Filter by', 'Value of the filter', 'Further actions'):
            self.assertContains(page, f'aria-label="{name}"')

    def test_silent_service_is_a_message_and_no_traceback(self):
        self.service.register_uri(
            'GET', f'{helpers.URL}/leases', exc=requests.ConnectTimeout)
        page = self.client.get(INDEX)
        self.assertEqual(200, page.status_code)
        self.assertIn('does not answer', self.texts(page)[0])

    def test_page_of_a_proxy_is_not_shown(self):
        self.service.register_uri(
            'GET', f'{helpers.URL}/leases', status_code=502,
            text='<html>nginx at 10.1.2.3</html>')
        page = self.client.get(INDEX)
        self.assertIn('HTTP status 502', self.texts(page)[0])
        self.assertNotContains(page, '10.1.2.3')

    def test_missing_right_is_a_message(self):
        self.refuse('GET', '/leases', 403, 'forbidden',
                    'The policy secondary_lease:list does not allow this.')
        page = self.client.get(INDEX)
        self.assertIn('does not allow this', self.texts(page)[0])

    def test_expired_token_leads_to_the_login(self):
        self.refuse('GET', '/leases', 401, 'unauthorized', 'Log in.')
        page = self.client.get(INDEX)
        self.assertEqual(302, page.status_code)
        self.assertIn('/auth/login/', page['location'])


class LeaseActionTest(helpers.LeaseTestCase):

    def order(self, action):
        """Choose an action of the row; return the page after it."""
        return self.client.post(INDEX, {
            'action': f'leases__{action}__{helpers.LEASE_ID}'}, follow=True)

    def test_actions_are_sent_to_the_service(self):
        for action in ('pause', 'cancel'):
            with self.subTest(action):
                self.list_leases([helpers.lease()])
                self.answer('POST', f'/leases/{helpers.LEASE_ID}/action',
                            {'lease': helpers.lease()}, 202)
                self.order(action)
                self.assertEqual({'action': action}, self.sent())

    def test_lease_of_another_page_can_be_paused_from_its_details(self):
        self.list_leases([helpers.lease(id=uuid_of(2))], more=True)
        self.answer('GET', f'/leases/{helpers.LEASE_ID}', {
            'lease': helpers.lease(), 'engine': helpers.ENGINE})
        self.answer('POST', f'/leases/{helpers.LEASE_ID}/action',
                    {'lease': helpers.lease()}, 202)
        self.order('pause')
        self.assertEqual({'action': 'pause'}, self.sent())

    def test_action_on_a_missing_lease_is_a_message(self):
        self.list_leases([])
        self.refuse('GET', f'/leases/{helpers.LEASE_ID}', 404, 'not-found',
                    'There is no such lease.')
        page = self.order('pause')
        self.assertEqual(['There is no such lease.'], self.texts(page))

    def test_lease_that_is_over_can_be_deleted(self):
        self.list_leases([helpers.lease(state='done')])
        self.answer('DELETE', f'/leases/{helpers.LEASE_ID}', status=204)
        self.order('delete')
        self.assertIn('DELETE', [one.method for one in (
            self.service.request_history)])

    def test_active_lease_is_not_deleted(self):
        self.list_leases([helpers.lease()])
        page = self.order('delete')
        self.assertNotIn('DELETE', [one.method for one in (
            self.service.request_history)])
        self.assertIn('not allowed', self.texts(page)[0])

    def test_refused_action_shows_the_reason(self):
        self.list_leases([helpers.lease()])
        self.refuse('POST', f'/leases/{helpers.LEASE_ID}/action', 409,
                    'wrong-state', 'The lease is done, so this is not '
                    'possible any more.')
        page = self.order('pause')
        self.assertEqual(['nightly: The lease is done, so this is not '
                          'possible any more.'], self.texts(page))


class CreateLeaseTest(helpers.LeaseTestCase):

    def setUp(self):
        super().setUp()
        self.answer('GET', '/quota', QUOTA)
        self.answer('POST', '/leases', {'lease': helpers.lease()}, 202)
        self.list_leases([])

    def create(self, **changes):
        """Send the form with some other values; return the page."""
        with cloud():
            return self.client.post(CREATE, {**FORM, **changes})

    def test_form_offers_what_a_lease_can_use(self):
        with cloud():
            page = self.client.get(CREATE)
        choices = {name: [value for value, _ in field.choices]
                   for name, field in page.context['form'].fields.items()
                   if hasattr(field, 'choices')}
        self.assertEqual(['secondary'], choices['flavor'])
        self.assertEqual(['', 'image-1'], choices['image'])
        self.assertEqual(['none', 'net-1', 'net-2'], choices['networks'])
        self.assertContains(page, '1 used, 10 allowed')

    def test_lists_of_the_form_can_be_operated_with_the_keyboard(self):
        with cloud():
            page = self.client.get(CREATE)
        for name in ('flavor', 'image', 'networks', 'key_name', 'begin'):
            self.assertContains(page, f'<select name="{name}"')
        self.assertNotContains(page, 'themable-select')

    def test_terms_are_sent_as_the_service_takes_them(self):
        page = self.create(user_data='#!/bin/sh\r\ndate\r\n')
        self.assertRedirectsNoFollow(page, INDEX)
        sent = self.sent()
        self.assertTrue(sent.pop('client_token'))
        self.assertEqual({
            'name': 'nightly', 'duration': 5400, 'preemptible': True,
            'nodes': [{'number': 2, 'flavor': 'secondary',
                       'image': 'image-1', 'networks': 'none',
                       'user_data': base64.b64encode(
                           b'#!/bin/sh\ndate\n').decode()}]}, sent)

    def test_each_kind_of_start_has_its_times(self):
        moments = {'start': '2027-01-31T08:00',
                   'deadline': '2027-01-31T12:00'}
        for begin, expected in (
                ('room', {}), ('now', {'immediate': True}),
                ('time', {'start': '2027-01-31T08:00:00Z'}),
                ('deadline', {'start': '2027-01-31T08:00:00Z',
                              'deadline': '2027-01-31T12:00:00Z'})):
            with self.subTest(begin):
                self.create(begin=begin, **moments)
                sent = self.sent()
                self.assertEqual(expected, {
                    name: sent[name] for name in (
                        'immediate', 'start', 'deadline') if name in sent})

    def test_wrong_values_are_named_at_their_fields(self):
        for field, value, text in (
                ('duration', 'soon', 'like 90m, 2h or 1d12h'),
                ('duration', '0', 'At least a second'),
                ('number', '0', 'greater than or equal to 1'),
                ('networks', ['none', 'net-1'], 'not both'),
                ('flavor', 'primary', 'valid choice'),
                ('max_rate', '-1', 'greater than or equal to 0'),
                ('user_data', 'x' * 50_000, 'longer than Nova allows'),
                ('name', '', 'required')):
            with self.subTest(field):
                page = self.create(**{field: value})
                self.assertIn(text, str(page.context['form'].errors[field]))
        page = self.create(begin='deadline')
        self.assertIn('deadline', page.context['form'].errors)
        self.assertNotIn('POST', [one.method for one in (
            self.service.request_history)])

    def test_times_out_of_the_calendar_are_refused_at_their_field(self):
        for field, value, changes in (
                ('start', '9999-12-31T23:59', {}),
                ('start', '0001-01-01T00:00', {}),
                ('start', '1999-12-31T23:59', {}),
                ('start', '2100-01-01T00:00', {}),
                ('start', '2099-12-31T23:00', {}),
                ('deadline', '9999-12-31T23:59', {'begin': 'deadline'}),
                ('duration', '999999999999d', {}),
                ('duration', '9' * 40, {})):
            with self.subTest(f'{field} {value}'):
                page = self.create(**{
                    'begin': 'time', 'start': '2027-01-31T08:00', **changes,
                    field: value})
                self.assertEqual([field], list(page.context['form'].errors))
        self.assertNotIn('POST', [one.method for one in (
            self.service.request_history)])

    def test_time_in_any_zone_is_refused_or_within_the_bounds(self):
        draw, field = random.Random(1), forms.MomentField()
        zones = ('UTC', 'Pacific/Kiritimati', 'Etc/GMT+12', 'Europe/Berlin',
                 'America/New_York')
        days = (datetime.date.min, datetime.date.max,
                datetime.date(2099, 12, 31), datetime.date(2100, 1, 1),
                datetime.date(2000, 1, 1), datetime.date(1999, 12, 31))
        for _ in range(300):
            day = draw.choice((*days, datetime.date.fromordinal(
                draw.randint(1, datetime.date.max.toordinal()))))
            text = (f'{day}T{draw.choice(("00:00", "11:59", "23:59"))}')
            with timezone.override(draw.choice(zones)):
                try:
                    found = field.clean(text)
                except ValidationError:
                    continue
            self.assertTrue(times.FIRST <= found <= times.LAST, text)

    def test_refused_form_keeps_all_that_was_typed(self):
        self.refuse('POST', '/leases', 400, 'invalid-request',
                    'nodes[0].image: there is no image guest.')
        page = self.create(user_data='#!/bin/sh\ndate')
        self.assertContains(page, 'nodes[0].image: there is no image guest.')
        self.assertContains(page, '#!/bin/sh')
        self.assertContains(page, 'value="1h30m"')
        self.assertContains(page, 'value="nightly"')

    def test_form_opens_while_another_service_is_away(self):
        with cloud(network_list_for_tenant=requests.ConnectionError):
            page = self.client.get(CREATE)
        self.assertContains(page, 'secondary')
        self.assertIn('networks cannot be read', self.texts(page)[0])

    def test_session_is_verified_before_the_form_is_sent(self):
        verify = reverse(f'{PANEL}:session')
        with cloud():
            self.assertContains(self.client.get(CREATE),
                                f'data-secondary-session="{verify}"')
        for status, expected in ((200, 200), (503, 200), (401, 401)):
            with self.subTest(status):
                if status == 200:
                    self.answer('GET', '/quota', QUOTA)
                else:
                    self.refuse('GET', '/quota', status, 'code', 'A reason.')
                self.assertEqual(expected, self.client.get(
                    verify, HTTP_X_REQUESTED_WITH='XMLHttpRequest'
                    ).status_code)

    def test_silent_lease_service_keeps_the_form(self):
        self.service.register_uri(
            'POST', f'{helpers.URL}/leases', exc=requests.ConnectTimeout)
        page = self.create()
        self.assertContains(page, 'does not answer')
        self.assertContains(page, 'value="nightly"')


class QuoteTest(helpers.LeaseTestCase):
    ID = '00000000-0000-0000-0000-000000000001'

    def quote(self, offer):
        """Let the service have a quote; return the dashboard's answer."""
        self.answer('GET', f'/quotes/{self.ID}', {'quote': {
            'id': self.ID, 'offer': offer}})
        return self.client.get(reverse(f'{PANEL}:offer', args=[self.ID])
                               ).json()

    def test_quote_needs_no_name(self):
        self.answer('POST', '/quotes', {'quote': {'id': self.ID}}, 202)
        with cloud():
            answer = self.client.post(QUOTE, {**FORM, 'name': ''}).json()
        self.assertEqual({'offer': reverse(f'{PANEL}:offer',
                                           args=[self.ID])}, answer)
        self.assertNotIn('name', self.sent())

    def test_expired_token_is_told_to_the_script_of_the_form(self):
        self.refuse('POST', '/quotes', 401, 'unauthorized', 'Log in.')
        with cloud():
            answer = self.client.post(
                QUOTE, FORM, HTTP_X_REQUESTED_WITH='XMLHttpRequest')
        self.assertEqual(401, answer.status_code)

    def test_wrong_terms_are_named(self):
        with cloud():
            answer = self.client.post(QUOTE, {**FORM, 'duration': ''}).json()
        self.assertEqual(['duration'], list(answer['errors']))

    def test_offer_is_shown_once_the_scheduler_has_answered(self):
        self.assertEqual({}, self.quote(None))
        self.assertEqual(
            {'accepted': False, 'start': '2027-01-31 10:00:00',
             'price': '7200', 'rate': '0.5', 'reason': 'there is no room'},
            self.quote({'accepted': False, 'start': '2027-01-31T10:00:00Z',
                        'price': 7200.0, 'rate': 0.5,
                        'reason': 'there is no room'}))

    def test_forgotten_quote_is_a_message(self):
        self.refuse('GET', f'/quotes/{self.ID}', 404, 'not-found',
                    'There is no quote.')
        self.assertEqual({'message': 'There is no quote.'}, self.client.get(
            reverse(f'{PANEL}:offer', args=[self.ID])).json())


class LeaseDetailTest(helpers.LeaseTestCase):

    def show(self, tab='overview', **changes):
        """Return the page of a lease."""
        self.answer('GET', f'/leases/{helpers.LEASE_ID}', {
            'lease': helpers.lease(**changes), 'engine': helpers.ENGINE})
        with mock.patch.object(glance, 'image_get',
                               return_value=named(name='worker')):
            return self.client.get(f'{DETAIL}?tab=lease_details__{tab}')

    def test_overview_shows_terms_and_reason(self):
        page = self.show(state='failed', reason='image not found')
        for text in ('Failed', 'image not found', '1 h 30 min', '7200',
                     '1 min 1 s', 'worker'):
            self.assertContains(page, text)

    def test_lease_of_another_project_is_not_shown(self):
        self.refuse('GET', f'/leases/{helpers.LEASE_ID}', 404, 'not-found',
                    'There is no lease of this id in your project.')
        self.assertRedirectsNoFollow(self.client.get(DETAIL), INDEX)

    def test_servers_have_the_states_of_nova(self):
        with mock.patch.object(nova, 'server_list', return_value=(
                [named(id='s1', name='nightly-0', status='SUSPENDED')],
                False)):
            page = self.show('servers', servers=['s1', 's2'])
        self.assertContains(page, 'SUSPENDED')
        self.assertContains(page, 'Deleted, or not of this project')

    def test_states_are_unknown_without_nova(self):
        with mock.patch.object(nova, 'server_list',
                               side_effect=requests.ConnectionError):
            page = self.show('servers', servers=['s1'])
        self.assertContains(page, 'Unknown')
        self.assertNotContains(page, 'Deleted')

    def test_events_are_shown_newest_first(self):
        self.answer('GET', f'/leases/{helpers.LEASE_ID}/events', {'events': [
            {'time': f'2027-01-31T08:00:0{n}Z', 'kind': f'kind-{n}',
             'state': 'active', 'text': 'text'} for n in (1, 2)]})
        text = self.show('events').content.decode()
        self.assertLess(text.index('kind-2'), text.index('kind-1'))

    def test_timeline_has_a_bar_for_each_slot(self):
        self.answer('GET', f'/leases/{helpers.LEASE_ID}/timeline', {'slots': [
            {'lease_id': helpers.LEASE_ID, 'begin': '2027-01-31T08:00:00Z',
             'end': '2027-01-31T09:00:00Z', 'what': 'run', 'nodes': 2,
             'hosts': None},
            {'lease_id': helpers.LEASE_ID, 'begin': '2027-01-31T09:00:00Z',
             'end': '2027-01-31T10:00:00Z', 'what': 'suspend', 'nodes': 2,
             'hosts': None}]})
        page = self.show('timeline')
        self.assertContains(page, '<title>run, 2 nodes</title>')
        self.assertContains(page, 'secondary-suspend" x="50.000%"')

    def test_failing_tab_leaves_the_page(self):
        self.refuse('GET', f'/leases/{helpers.LEASE_ID}/events', 403,
                    'forbidden', 'The policy forbids it.')
        self.assertContains(self.show('events'), 'The policy forbids it.')


class TimelineTest(helpers.LeaseTestCase):

    def test_leases_without_hosts_are_named_beside_the_chart(self):
        self.answer('GET', '/timeline', {'slots': [
            {'lease_id': helpers.LEASE_ID, 'begin': '2027-01-31T08:00:00Z',
             'end': None, 'what': 'run', 'nodes': 1, 'hosts': None}]})
        self.list_leases([helpers.lease(), helpers.lease(
            id='00000000-0000-0000-0000-000000000002', name='waits',
            state='queued')])
        page = self.client.get(TIMELINE)
        self.assertContains(page, '<title>run, 1 node</title>')
        self.assertEqual(['waits'], [one['name'] for one in (
            page.context['waiting'])])

    def test_interval_is_that_of_the_chart(self):
        self.answer('GET', '/timeline', {'slots': []})
        self.list_leases([])
        page = self.client.get(f'{TIMELINE}?window=day')
        self.assertContains(page, 'Nothing is planned.')
        asked = next(one for one in self.service.request_history
                     if one.path == '/timeline')
        self.assertEqual({'begin', 'end'}, set(asked.qs))

    def test_silent_service_is_a_message(self):
        self.service.register_uri(
            'GET', f'{helpers.URL}/timeline', exc=requests.ConnectTimeout)
        self.assertIn('does not answer',
                      self.texts(self.client.get(TIMELINE))[0])
