# SPDX-License-Identifier: Apache-2.0

"""Times near the ends of the calendar at all doors of the service.

A time is refused at its field, or accepted with a response that fits its
schema, which ``services.Api`` checks.
"""

import unittest
import urllib.parse

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.leases.api.db import models, plans, quotas
from secondary_scheduler.leases.scheduling.types import NEVER
from secondary_scheduler.reading import times
from tests.unit import fuzzing
from tests.unit.leases.api import services
from tests.unit.leases.api.services import LEASE, QUOTE, request

#: Settings of tests that take longer than other property tests.
_LESS = hypothesis.settings(
    max_examples=max(300, hypothesis.settings().max_examples // 5))
_LEASE_PATH = f'/leases/{request(1).uuid}'
#: Methods and paths that take times, and the names of their fields.
DOORS = (
    ('POST', '/leases', ('start', 'deadline')),
    ('POST', '/quotes', ('start', 'deadline')),
    ('PATCH', _LEASE_PATH, ('start', 'deadline')),
    ('GET', '/timeline', ('begin', 'end')),
    ('GET', f'{_LEASE_PATH}/timeline', ('begin', 'end')),
    ('GET', '/operations', ('since', 'until')),
    ('GET', '/accounting', ('begin', 'end')),
)


class TimesOfRequestsTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.service = services.on(self, quota_leases=-1, quota_nodes=-1,
                                   quota_quotes=-1)
        self.api = services.Api(self.service)
        self.service.store.create(request(1), quotas.QuotaLimits(-1, -1))

    def ask(self, method, path, terms):
        """Send a request with times; return the detail of its refusal."""
        body = None
        if method == 'GET':
            path += '?' + urllib.parse.urlencode(terms)
        else:
            body = {**{'/leases': LEASE, '/quotes': QUOTE}.get(path, {}),
                    **terms}
        status, answer = self.api.ask(method, path, body, user='admin')
        self.assertIn(status, (200, 202, 400))
        return answer['errors'][0]['detail'] if status == 400 else ''

    @_LESS
    @given(st.sampled_from(DOORS), fuzzing.times() | fuzzing.days,
           st.data())
    def test_time_is_refused_at_its_field_or_shown(self, door, text, data):
        method, path, names = door
        name = data.draw(st.sampled_from(names))
        detail = self.ask(method, path, {name: text})
        self.assertTrue(not detail or name in detail, detail)
        made = self.api.answer.headers.get('Location')
        for shown in filter(None, (made, '/timeline', _LEASE_PATH)):
            self.api.good('GET', urllib.parse.urlsplit(shown).path)

    @_LESS
    @given(st.sampled_from(('/leases', '/quotes')),
           st.integers(times.LAST - 9000, times.LAST + 9000),
           st.integers(1, 7200))
    def test_lease_ends_within_the_calendar(self, path, start, duration):
        text = times.to_datetime(start).strftime('%Y-%m-%dT%H:%M:%SZ')
        detail = self.ask('POST', path, {'start': text, 'duration': duration})
        self.assertEqual(start + duration <= times.LAST, not detail)

    def test_start_at_the_end_of_2099_in_a_western_zone(self):
        body = {'name': 'late', 'duration': 3600,
                'start': '2099-12-31T23:59:59-12:00', 'nodes': [{
                    'number': 1, 'flavor': 'secondary.small',
                    'image': 'debian'}]}
        detail = self.api.bad(400, 'POST', '/leases', body)['detail']
        self.assertEqual(
            'start is 2099-12-31T23:59:59-12:00: expected a time from '
            '2000-01-01T00:00:00Z to 2099-12-31T23:59:59Z.', detail)

    def test_faulty_spelling_is_described_in_words(self):
        for text in ('9999-12-31T23:59-12:00', '2027-01-31T08:00:00z',
                     '2027-01-31T08:00:00.5Z', '2027-01-31T08:00:00',
                     '2027-01-31T08:00:0٠Z', '2' * 5000, '+2h'):
            with self.subTest(text[:30]):
                detail = self.ask('POST', '/leases', {'start': text})
                self.assertIn('at start: expected a time from 2000-01-01T', (
                    detail))
                self.assertLess(len(detail), 300)
        self.assertIn('at end: expected a day from 2000-01-01', self.ask(
            'GET', '/accounting', {'end': '2100-01-01'}))

    def test_lease_that_would_end_after_the_calendar_is_refused(self):
        for terms in ({'start': '2099-12-31T23:30:00Z'},
                      {'start': '2099-01-01T00:00:00Z',
                       'duration': times.LONGEST},
                      {'start': '2099-12-31T23:30:00Z',
                       'deadline': '2099-12-31T23:59:59Z'}):
            for path in '/leases', '/quotes':
                with self.subTest(terms):
                    detail = self.ask('POST', path, terms)
                    self.assertIn('would end after 2099-12-31T23:59:59Z. '
                                  'Choose an earlier start', detail)

    def test_slots_after_the_calendar_fit_the_schema(self):
        lease = self.api.create(start='2099-12-31T22:59:59Z')
        end = times.LAST - services.NOW
        plans.write_plan(self.service.database, {lease['id']: [
            services.stretch(end - 3600, end, node1=2),
            services.stretch(end, end + 300, plans.SlotPurpose.SUSPEND,
                             node1=2),
            services.stretch(end + 10 ** 12, end + 10 ** 15, node1=2)]})
        slots = self.api.good('GET', '/timeline')['slots']
        self.assertEqual(
            ['2099-12-31T23:59:59Z'] * 3, [one['end'] for one in slots])

    def test_column_holds_any_finite_time(self):
        column = models.Moment()
        for seconds in (times.LAST, 10 ** 15, 1e300, NEVER):
            found = column.process_bind_param(seconds, None)
            self.assertLessEqual(found.year, 9999)
