# SPDX-License-Identifier: Apache-2.0

"""Leases: request, list, show, change, act on and delete."""

import uuid

from tempest import config
from tempest.lib import decorators, exceptions

from secondary_tempest_plugin.tests import base

CONF = config.CONF

#: A reservation far ahead: no server is booted for it.
AHEAD_S = 2 * 86400


class LeasesTest(base.LeaseTestCase):
    """Operations of a project on its own leases."""

    def reserve(self, **terms: object) -> base.Json:
        """Request a reservation that begins long after the test."""
        return self.create_lease(**{'start': base.moment(AHEAD_S),
                                    'duration': 60, **terms})

    @decorators.attr(type='smoke')
    @decorators.idempotent_id('d746199b-a7b9-4d10-bea1-3a8d138bdf35')
    def test_requested_lease_has_its_terms(self) -> None:
        start = base.moment(AHEAD_S)
        lease = self.reserve(start=start, duration=90, preemptible=False,
                             nodes=[self.node_set(2)])
        found = self.client.show_lease(lease['id'])
        self.assertEqual(
            ('reservation', start, 90, False, self.client.project_id, 2),
            (found['kind'], found['start'], found['duration'],
             found['preemptible'], found['project_id'],
             found['nodes'][0]['number']))
        self.assertEqual([], found['servers'])

    @decorators.idempotent_id('4d9a05d9-0b8e-4f3b-af3d-38d85830fd0d')
    def test_kind_follows_from_the_terms(self) -> None:
        for kind, terms in (
                ('reservation', {}),
                ('deadline', {'deadline': base.moment(2 * AHEAD_S)})):
            self.assertEqual(kind, self.reserve(**terms)['kind'])

    @decorators.idempotent_id('75eb2c18-66eb-49cb-8bec-430ccc51d228')
    def test_list_by_name_and_state(self) -> None:
        lease = self.reserve()
        found = self.client.list_leases(name=lease['name'])['leases']
        self.assertEqual([lease['id']], [one['id'] for one in found])
        self.assertEqual([], self.client.list_leases(
            name=lease['name'], state=['done', 'cancelled'])['leases'])

    @decorators.idempotent_id('198c1760-1260-4917-8e6c-a1f9729c4194')
    def test_list_in_pages(self) -> None:
        made = [self.reserve()['id'] for _ in range(3)]
        seen, query = [], {'limit': 2}
        while query:
            page = self.client.list_leases(**query)
            self.assertLessEqual(len(page['leases']), 2)
            seen += [one['id'] for one in page['leases']]
            query = {'limit': 2, 'marker': seen[-1]} if (
                page['leases_links']) else {}
        self.assertEqual(made, [one for one in seen if one in made])
        self.assertEqual(len(seen), len(set(seen)))

    @decorators.idempotent_id('e5eb500f-831e-4f7d-9ac4-dd68b9ef7214')
    def test_repeated_request_makes_one_lease(self) -> None:
        token = str(uuid.uuid4())
        start = base.moment(AHEAD_S)
        first = self.reserve(start=start, name='same', client_token=token)
        again = self.reserve(start=start, name='same', client_token=token)
        self.assertEqual(first['id'], again['id'])
        self.assert_refused(
            exceptions.Conflict, 'token-used', self.reserve,
            start=start, name='same', duration=61, client_token=token)

    @decorators.idempotent_id('f0399053-8599-4ebe-8f30-3d0752e5afdd')
    def test_change_of_the_name(self) -> None:
        lease = self.reserve()
        changed = self.client.update_lease(lease['id'], name='other')
        self.assertEqual('other', changed['name'])
        self.assertGreater(changed['revision'], lease['revision'])
        self.assert_refused(
            exceptions.Conflict, 'stale', self.client.update_lease,
            lease['id'], name='third', revision=lease['revision'])
        self.assertEqual('other',
                         self.client.show_lease(lease['id'])['name'])

    @decorators.idempotent_id('1a1c6db2-aebd-43c1-b134-c345e03be72c')
    def test_terms_change_while_a_lease_is_new_only(self) -> None:
        lease = self.reserve()
        try:
            changed = self.client.update_lease(lease['id'], duration=120)
        except exceptions.Conflict as refusal:
            # The engine was quicker.
            self.assertEqual('secondary-lease.wrong-state',
                             base.error_of(refusal)['code'])
            found = self.client.show_lease(lease['id'])
            self.assertNotEqual('new', found['state'])
            self.assertEqual(60, found['duration'])
        else:
            self.assertEqual(120, changed['duration'])

    @decorators.idempotent_id('85d2cc6b-5b16-4ea9-afb8-f8f3212540f3')
    def test_pause_and_unpause(self) -> None:
        lease = self.reserve()['id']
        self.assertTrue(self.client.act_on_lease(lease, 'pause')['paused'])
        self.assertFalse(self.client.act_on_lease(lease, 'unpause')['paused'])
        kinds = [one['kind'] for one in self.client.list_events(lease)]
        self.assertEqual(['paused', 'unpaused'],
                         [one for one in kinds if 'paused' in one])

    @decorators.idempotent_id('fff8a02c-ff06-4683-8495-33e48aa332c8')
    def test_events_begin_with_the_request(self) -> None:
        lease = self.reserve()
        events = self.client.list_events(lease['id'])
        self.assertEqual(('created', 'new'),
                         (events[0]['kind'], events[0]['state']))
        self.assertEqual(events[-1:],
                         self.client.list_events(lease['id'], limit=1))

    @decorators.idempotent_id('9b8a5904-156e-4b82-be2d-85457de2763f')
    def test_quota_counts_leases_and_nodes(self) -> None:
        before = self.client.show_quota()
        lease = self.reserve(nodes=[self.node_set(2)])
        during = self.client.show_quota()
        self.assertEqual((1, 2), tuple(
            during[name]['used'] - before[name]['used']
            for name in ('leases', 'nodes')))
        self.remove_lease(self.client, lease['id'])
        self.assertEqual(before, self.client.show_quota())

    @decorators.idempotent_id('70a38051-a080-4683-adcd-00b9f0571053')
    def test_deleted_lease_does_not_exist(self) -> None:
        lease = self.reserve()['id']
        self.remove_lease(self.client, lease)
        self.assert_refused(exceptions.NotFound, 'not-found',
                            self.client.show_lease, lease)


class DecisionsTest(base.LeaseTestCase):
    """Decisions of the engine about leases far ahead."""

    min_microversion = '1.1'
    needs_engine = True

    def setUp(self) -> None:
        """Wait until leases can be accepted."""
        super().setUp()
        self.wait_for_room()

    @decorators.idempotent_id('0b3e8101-d6b5-463d-8918-4b72d6cd1880')
    def test_reservation_is_planned(self) -> None:
        start = base.moment(AHEAD_S)
        lease = self.create_lease(start=start, duration=60)['id']
        self.wait_for_state(lease, {'scheduled'},
                            CONF.secondary_lease.decision_timeout)
        slots = self.client.show_lease_timeline(lease)
        self.assertIn((start, 1), [(one['begin'], one['nodes'])
                                   for one in slots])
        self.assertEqual({None}, {one['hosts'] for one in slots})
        self.assertLessEqual(
            [lease], [one['lease_id'] for one in self.client.show_timeline(
                begin=start)])

    @decorators.idempotent_id('c7781033-bdfd-4a5a-9709-935c21ef74aa')
    def test_cancelled_lease_ends_without_servers(self) -> None:
        lease = self.create_lease(start=base.moment(AHEAD_S),
                                  duration=60)['id']
        self.client.act_on_lease(lease, 'cancel')
        found = self.wait_for_state(lease, {'cancelled'},
                                    CONF.secondary_lease.decision_timeout)
        self.assertEqual([], found['servers'])
        self.assert_refused(exceptions.Conflict, 'wrong-state',
                            self.client.act_on_lease, lease, 'pause')

    @decorators.idempotent_id('e079cd3d-29d8-4437-b4c8-e5167c6e7023')
    def test_quote_has_price_and_start(self) -> None:
        start = base.moment(AHEAD_S)
        quote = self.client.create_quote(
            nodes=[self.node_set()], duration=60, start=start)
        offer = base.wait_until(
            lambda: self.client.show_quote(quote['id'])['offer'],
            CONF.secondary_lease.decision_timeout,
            lambda: 'no engine has answered the quote')
        self.assertEqual((True, start), (offer['accepted'], offer['start']))
        self.assertAlmostEqual(offer['rate'] * 60, offer['price'])
