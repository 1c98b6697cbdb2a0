# SPDX-License-Identifier: Apache-2.0

"""Leases on hosts in a cell that does not answer Nova."""

import dataclasses
import unittest

import hypothesis
from hypothesis import strategies as st

from secondary_scheduler.leases.engine.values import (
    CloudState,
    LeaseOperation,
    LeaseServer,
    Nature,
)
from secondary_scheduler.model import lease_states
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import base, fakes, property_parts
from tests.unit.leases.engine.test_properties import hide_servers

#: Times at which other servers or hosts are unseen: a mask of each.
MOMENTS = st.lists(st.tuples(
    st.integers(0, 50), st.integers(0, 63), st.integers(0, 7)), max_size=5)


class UnreachableTest(base.EngineTestCase):

    def setUp(self):
        super().setUp()
        self.everywhere = set(self.nova.hosts)

    def silence(self, *hosts):
        self.nova.silent = set(hosts or self.everywhere)

    def test_server_with_the_status_unknown_is_not_observed(self):
        server = LeaseServer('u', 'p', None, 'UNKNOWN', (1, 1, 1, 1))
        state = CloudState({'u': server}, gone=frozenset({'v'}))
        self.assertEqual({}, state.servers)
        self.assertEqual([True, False, False], [
            state.is_unseen(one) for one in ('u', 'v', None)])

    def test_lease_is_unknown_and_goes_on(self):
        lease = self.world.ask(2, duration=300)
        self.world.until(60)
        servers = set(self.nova.servers)
        self.silence()
        self.world.until(200)
        found = self.lease(lease)
        self.assertEqual('unknown', found.state)
        self.assertIn('has not answered Nova since 2027', found.reason)
        self.assertIn('whether its servers run is unknown', found.reason)
        self.silence('none')
        self.world.until(210)
        self.assertEqual(('active', ''), (self.lease(lease).state,
                                          self.lease(lease).reason))
        self.world.until(400)
        found = self.lease(lease)
        self.assertEqual(('done', '', 300), (
            found.state, found.reason, found.served))
        self.assertEqual({}, self.nova.servers)
        kinds = self.world.kinds(lease)
        self.assertEqual([1, 1], [kinds.count('unreachable'),
                                  kinds.count('reachable')])
        self.assertEqual(servers, {one.server for _, one in self.nova.ordered
                                   if one.kind is LeaseOperation.DELETE})

    def test_unseen_time_of_another_boot_is_not_served(self):
        lease = self.world.ask(1, duration=300)
        self.world.until(60)
        self.mark_changes('before')
        self.world.until(70)
        self.silence()
        self.world.until(130)
        self.silence('none')
        self.mark_changes('after')
        self.world.until(150)
        self.assertEqual('active', self.world.state(lease))
        self.assertLess(self.lease(lease).served, 90)
        self.world.until(500)
        # It got its time, some of it later than planned.
        self.assertEqual(('done', 300), (self.lease(lease).state,
                                         self.lease(lease).served))

    def mark_changes(self, text):
        for key in self.nova.servers:
            self.nova.change(self.world.clock.now, key, changed=text)

    def test_lease_that_ends_meanwhile_ends_at_its_time(self):
        lease = self.world.ask(2, duration=100)
        self.world.until(60)
        self.silence()
        self.world.until(200)
        found = self.lease(lease)
        self.assertEqual('ending', found.state)
        self.assertEqual(2, len(self.nova.servers))
        self.silence('none')
        self.world.until(220)
        found = self.lease(lease)
        self.assertEqual(('done', '', 100), (
            found.state, found.reason, found.served))
        self.assertEqual({}, self.nova.servers)

    def test_lease_that_ended_with_its_servers_down_says_so(self):
        lease = self.world.ask(1, duration=100)
        self.world.until(60)
        self.silence()
        self.world.until(200)
        for key in self.nova.servers:
            self.nova.change(self.world.clock.now, key, status='SHUTOFF')
        self.silence('none')
        self.world.until(220)
        found = self.lease(lease)
        self.assertEqual('done', found.state)
        self.assertLess(found.served, 60)
        self.assertIn('of 100 s', found.reason)

    def test_reservation_begins_once_its_cell_answers(self):
        lease = self.world.ask(2, duration=300, start=NOW + 60)
        self.world.until(30)
        self.silence()
        self.world.until(150)
        self.assertEqual({}, self.nova.servers)
        found = self.lease(lease)
        self.assertEqual('starting', found.state)
        self.assertIn('its servers boot as soon as it does', found.reason)
        self.silence('none')
        self.world.until(170)
        self.assertEqual('active', self.world.state(lease))
        self.world.until(700)
        self.assertEqual('done', self.world.state(lease))

    def test_server_that_booted_unseen_is_not_booted_again(self):
        lease = self.world.ask(1, duration=300)
        self.world.until(4)     # ordered, not booted
        self.silence()
        self.world.until(100)
        self.silence('none')
        self.world.until(110)
        self.assertEqual(1, len(self.nova.servers))
        self.assertEqual('active', self.world.state(lease))

    def test_node_with_a_failed_boot_in_a_silent_cell_boots_nowhere(self):
        self.refuse(LeaseOperation.BOOT, Nature.CAPACITY, 'No valid host')
        lease = self.world.ask(1, duration=600)
        self.world.until(6)
        *_, (_, order) = self.nova.ordered
        self.world.until(8)
        self.silence(order.host)
        orders = self.orders(lease)
        self.world.until(150)
        self.assertEqual(orders, self.orders(lease))
        self.assertNotIn(self.world.state(lease), lease_states.FINAL)

    def test_preempted_server_is_blamed_on_nobody_and_returns(self):
        lease = self.world.ask(1, duration=100)
        self.world.until(40)
        (key,) = self.nova.servers
        self.nova.change(self.world.clock.now, key, status='SUSPENDED',
                         preempted=True)
        self.world.until(50)
        self.silence()
        self.world.until(150)
        self.silence('none')
        self.world.until(160)
        self.assertEqual('interrupted', self.world.state(lease))
        self.nova.change(self.world.clock.now, key, status='ACTIVE',
                         preempted=False)
        self.world.until(400)
        found = self.lease(lease)
        self.assertEqual('done', found.state)
        self.assertGreaterEqual(found.served, 97)

    def test_lease_that_is_to_be_suspended_waits(self):
        lease = self.world.ask(1, duration=300)
        self.world.until(40)
        self.silence()
        self.world.store.change(lease, 'asked', {'hold': True})
        self.world.until(120)
        self.assertEqual('suspending', self.world.state(lease))
        self.world.restart()
        self.world.until(130)
        self.assertEqual('suspending', self.world.state(lease))
        self.silence('none')
        self.world.until(150)
        self.assertEqual(['SUSPENDED'], self.nova.statuses(lease))
        self.assertEqual('suspended-queued', self.world.state(lease))

    def test_lease_whose_suspended_servers_are_unseen_is_suspended(self):
        lease = self.world.ask(1, duration=300)
        self.world.until(40)
        self.world.store.change(lease, 'asked', {'hold': True})
        self.world.until(70)
        self.silence()
        self.world.until(120)
        self.assertEqual('suspended-queued', self.world.state(lease))

    def test_reservation_waits_for_the_suspension_of_another_lease(self):
        lease = self.world.ask(12, duration=300)
        self.world.until(40)
        ahead = self.world.ask(12, duration=60, start=NOW + 100)
        self.world.until(60)
        self.assertEqual('scheduled', self.world.state(ahead))
        self.silence()
        self.world.until(200)
        self.assertEqual(('suspending', 'starting'), (
            self.world.state(lease), self.world.state(ahead)))
        self.silence('none')
        self.world.until(240)
        self.assertEqual(('active', 12), (
            self.world.state(ahead), self.nova.statuses(ahead).count(
                'ACTIVE')))
        self.assertTrue(self.world.state(lease).startswith('suspended'))
        self.world.until(700)
        self.assertEqual(['done', 'done'], [
            self.world.state(one) for one in (lease, ahead)])
        self.assertEqual([], self.world.overloads)

    def test_cancelled_lease_ends_when_its_cell_answers(self):
        lease = self.world.ask(1, duration=300)
        self.world.until(40)
        self.silence()
        self.world.until(50)
        self.world.store.change(lease, 'asked', {'wanted_end': True})
        self.world.until(80)
        found = self.lease(lease)
        self.assertEqual('ending', found.state)
        self.assertIn('its servers are deleted as soon as it does',
                      found.reason)
        self.silence('none')
        self.world.until(100)
        self.assertEqual(('cancelled', {}),
                         (self.world.state(lease), self.nova.servers))

    def test_report_of_an_agent_is_an_observation(self):
        lease = self.world.ask(1, duration=100)
        self.world.until(40)
        observe = self.nova.observe_state

        def report(known):
            return dataclasses.replace(observe(known), servers={
                key: dataclasses.replace(one, reachable=False)
                for key, one in self.nova.servers.items()})
        self.silence()
        self.nova.observe_state = report
        self.world.until(90)
        self.assertEqual('active', self.world.state(lease))
        self.world.until(150)
        found = self.lease(lease)
        self.assertEqual(('ending', 100), (found.state, found.served))
        self.assertEqual(1, len(self.nova.ordered), 'nothing but the boot')
        self.nova.observe_state = observe
        self.silence('none')
        self.world.until(170)
        self.assertEqual('done', self.world.state(lease))

    def test_leases_in_other_cells_are_not_affected(self):
        first = self.world.ask(3, duration=60)
        self.world.until(20)
        silent = {one.host for one in self.nova.servers.values()}
        self.silence(*silent)
        others = [self.world.ask(1, duration=40) for _ in range(3)]
        self.world.until(90)
        self.assertEqual(['done'] * 3, [self.world.state(one)
                                        for one in others])
        self.assertTrue(all(
            order.host not in silent for _, order in self.nova.ordered
            if order.place[0] in others))
        self.assertEqual('ending', self.world.state(first))

    def test_other_engine_continues_while_the_cell_is_silent(self):
        lease = self.world.ask(1, duration=200)
        ahead = self.world.ask(1, duration=60, start=NOW + 150)
        self.world.until(40)
        self.silence()
        self.world.until(60)
        self.world.restart()
        self.world.until(140)
        self.assertEqual(('unknown', 'scheduled'), (
            self.world.state(lease), self.world.state(ahead)))
        self.assertLess(self.lease(lease).served, 40)
        self.silence('none')
        self.world.until(300)
        self.assertEqual([('done', 200), ('done', 60)], [
            (self.lease(one).state, self.lease(one).served)
            for one in (lease, ahead)])

    def test_cell_that_returns_with_other_servers(self):
        lease = self.world.ask(2, duration=200)
        self.world.until(40)
        self.silence()
        self.world.until(60)
        key = sorted(self.nova.servers)[0]
        del self.nova.servers[key]
        self.silence('none')
        self.world.until(70)
        self.assertIn('server-deleted', self.world.kinds(lease))
        self.assertEqual('active', self.world.state(lease))


class UnseenPropertyTest(unittest.TestCase):
    """Has one test for each part; they are added below."""


def _make_check():
    @property_parts.settings
    @hypothesis.given(moments=MOMENTS, leases=st.lists(st.tuples(
        st.integers(1, 3), st.integers(15, 40)), min_size=1, max_size=2))
    # A deletion that was ordered before its server is unseen takes effect.
    @hypothesis.example([(17, 44, 0), (53, 0, 1)], [(2, 44)])
    # A deletion fails while the time that was served is unknown.
    @hypothesis.example([(20, 19, 0), (49, 18, 0), (48, 32, 0)],
                        [(3, 39), (1, 22)])
    # A server is seen again in the first pass after the end.
    @hypothesis.example([(20, 9, 0), (38, 54, 0), (59, 12, 0)],
                        [(1, 55), (2, 27)])
    @hypothesis.example([(13, 20, 0), (65, 49, 0), (72, 7, 7)],
                        [(3, 45), (3, 55)])
    def check(moments, leases):
        case = unittest.TestCase()
        try:
            _check_unseen(case, sorted(moments), leases)
        finally:
            case.doCleanups()

    return check


property_parts.add_parts(
    UnseenPropertyTest, 'test_no_lease_ends_and_no_node_boots_twice',
    _make_check)


def _check_unseen(case, moments, leases):
    world = fakes.World(case, dataclasses.replace(
        base.OPTIONS, give_up=1800.0))
    asked = [world.ask(number, duration=duration)
             for number, duration in leases]
    calm = max([50, *(moment for moment, _, _ in moments)]) + 10
    for moment, servers, hosts in [*moments, (calm, 0, 0)]:
        world.until(moment)
        hide_servers(world.nova, servers)
        world.nova.silent = {f'h{number + 1}' for number in range(3)
                             if hosts >> number & 1}
    while world.clock.now < NOW + 600 and not all(
            world.state(one) in lease_states.FINAL for one in asked):
        world.until(world.clock.now - NOW + 4, period=4.0)
    for uuid, (_, duration) in zip(asked, leases, strict=True):
        found = world.store.get(uuid)
        case.assertEqual(('done', ''), (found.state, found.reason),
                         world.events(uuid))
        case.assertGreaterEqual(found.served, duration - 8)
    deleted = [key for _, key, status in world.nova.story
               if status == 'DELETED']
    case.assertEqual(sum(number for number, _ in leases), len(deleted))
    case.assertEqual({}, world.nova.servers)


class GiveUpTest(base.EngineTestCase):
    """An outage that is longer than the time for which a lease may fail."""

    def test_operations_that_time_out_end_no_lease(self):
        lease = self.world.ask(1, duration=600)
        self.world.until(30)
        self.refuse(LeaseOperation.SUSPEND, Nature.UNSEEN, 'timed out')
        self.world.store.change(lease, 'asked', {'hold': True})
        self.world.until(30 + 3 * base.GIVE_UP)
        self.assertEqual('suspending', self.world.state(lease))
        self.assertIn('operation-failed', self.world.kinds(lease))
        self.nova.refusal = lambda order: None
        self.world.until(40 + 6 * base.GIVE_UP)
        self.assertEqual(['SUSPENDED'], self.nova.statuses(lease))

    def test_reservation_gets_its_time_after_a_long_outage(self):
        lease = self.world.ask(1, duration=60, start=NOW + 60)
        self.world.until(30)
        self.nova.silent = set(self.nova.hosts)
        self.world.until(60 + 3 * base.GIVE_UP)
        self.assertEqual('starting', self.world.state(lease))
        self.nova.silent = set()
        self.world.until(200 + 3 * base.GIVE_UP)
        found = self.lease(lease)
        self.assertEqual('done', found.state, self.world.events(lease))
        self.assertGreaterEqual(found.served, 55)
