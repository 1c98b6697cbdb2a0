# SPDX-License-Identifier: Apache-2.0

"""Tests that no route shows or changes leases of other projects."""

import json
import re
import unittest

from secondary_scheduler.leases.api import policies, resources
from secondary_scheduler.leases.api.db import plans
from tests.unit.leases.api import services
from tests.unit.leases.api.services import LEASE, NOBODY, QUOTE, stretch

#: A body that each route with one would accept.
BODIES = {'create_lease': LEASE, 'update_lease': {'name': 'theirs'},
          'act_on_lease': {'action': 'cancel'}, 'create_quote': QUOTE}
ROUTES = [one for one in resources.TABLE if one.rule is not None]


class IsolationTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.service = services.on(self)
        self.api = services.Api(self.service)
        self.lease = self.api.create(name='very-private',
                                     client_token='token')
        self.lease_id = self.lease['id']
        self.server = services.request(9).uuid
        self.service.store.change(self.lease_id, 'notice', {}, text='hush',
                                  servers=[self.server])
        plans.write_plan(self.service.database, {
            self.lease_id: [stretch(0, 60, secret_host=2)]})
        self.quote = self.api.good('POST', '/quotes', QUOTE)['quote']['id']
        self.ids = {'leases': self.lease_id, 'quotes': self.quote}
        self.before = self.seen()

    def seen(self):
        """Return all data of the lease that its owner sees."""
        return [self.api.good('GET', path) for path in (
            f'/quotes/{self.quote}', *(
                f'/leases/{self.lease_id}{more}'
                for more in ('', '/events', '/timeline')))]

    def ask(self, route, uuid, **more):
        return self.api.ask(route.method, route.path.format(id=uuid),
                            BODIES[route.name] if route.body else None,
                            **more)

    def test_all_routes_are_known(self):
        self.assertEqual({'/leases', '/leases/{id}', '/leases/{id}/action',
                          '/leases/{id}/events', '/leases/{id}/timeline',
                          '/timeline', '/quota', '/quotes', '/quotes/{id}',
                          '/capacity', '/operations', '/accounting', '/trust'},
                         {route.path for route in ROUTES})

    def test_lease_of_other_project_looks_like_a_missing_one(self):
        routes = [one for one in ROUTES if '{id}' in one.path]
        self.assertTrue(routes)
        for route in routes:
            for user in ('bob', 'reader'):
                with self.subTest(f'{user}: {route.method} {route.path}'):
                    answers = []
                    for uuid in (self.ids[route.collection], NOBODY):
                        status, answer = self.ask(route, uuid, user=user,
                                                  project='p2')
                        self.assertIn(status, (403, 404))
                        text = re.sub('req-[0-9a-f-]+', '',
                                      json.dumps(answer))
                        answers.append((status, text.replace(uuid, ''),
                                        set(self.api.answer.headers)))
                    self.assertEqual(*answers)
        self.assertEqual(self.before, self.seen())

    def test_no_response_has_data_of_other_projects(self):
        for route in ROUTES:
            if '{id}' in route.path:
                continue
            with self.subTest(f'{route.method} {route.path}'):
                status, answer = self.ask(route, '', user='bob',
                                          project='p2')
                if route.rule in (policies.CAPACITY, policies.OPERATIONS):
                    self.assertEqual(403, status)   # only for operators
                elif route.collection == 'trust':
                    self.assertIn(status, (404, 409))   # bob has none
                else:
                    self.assertLess(status, 400)
                for secret in (*self.ids.values(), self.server,
                               'very-private', 'hush', 'secret_host', 'p1',
                               'alice'):
                    self.assertNotIn(secret, json.dumps(answer))
        self.assertEqual(self.before, self.seen())

    def test_quota_counts_leases_of_own_project_only(self):
        self.assertEqual(0, self.api.good(
            'GET', '/quota', project='p2')['quota']['leases']['used'])

    def test_marker_of_other_project_looks_like_a_missing_one(self):
        answers = []
        for uuid in (self.lease_id, NOBODY):
            error = self.api.bad(400, 'GET', f'/leases?marker={uuid}',
                                 project='p2')
            answers.append(error['detail'].replace(uuid, ''))
        self.assertEqual(*answers)

    def test_client_token_of_other_project_has_no_effect(self):
        made = self.api.create(project='p2', client_token='token')
        self.assertNotEqual(self.lease_id, made['id'])
        self.assertEqual('p2', made['project_id'])
        self.api.create(project='p3', client_token='token', duration=7)

    def test_owner_sees_no_hosts(self):
        self.assertNotIn('secret_host', json.dumps(self.before))

    def test_ids_are_random(self):
        versions = {self.api.create()['id'][14] for _ in range(5)}
        self.assertEqual({'4'}, versions)
