# SPDX-License-Identifier: Apache-2.0

"""Leases of owners whose standing trust is lost, and comes back."""

import unittest

import hypothesis
from hypothesis import strategies as st

from secondary_scheduler.leases.api.db import standing_trusts as table
from secondary_scheduler.leases.api.db.models import STANDING
from secondary_scheduler.leases.engine.values import (
    BY_TRUST,
    LeaseOperation,
    Nature,
)
from secondary_scheduler.model import lease_states
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import base

COMMAND = 'openstack secondary lease trust create'
LOST = '404, Could not find trust'


class RightTestCase(base.EngineTestCase):

    def setUp(self):
        super().setUp()
        self.trust('t1')

    def trust(self, name, life=10 ** 6, user='alice'):
        """Make or renew the standing trust, as the service does."""
        database = self.world.service.database
        known = table.read_trust(database, 'p1', user)
        now = int(self.world.clock.now)
        table.replace_trust(database, table.StandingTrust(
            project_id='p1', user_id=user, trust_id=name, roles=['member'],
            created_at=now, expires_at=now + life),
            known and known.trust_id)

    def revoke(self):
        """Revoke the standing trust, as the service does."""
        database = self.world.service.database
        known = table.read_trust(database, 'p1', 'alice')
        if known is not None:
            table.forget_trust(database, known)

    def ask(self, number=1, **terms):
        return self.world.ask(number, trust_id=STANDING,
                              **{'duration': 60, **terms})

    def ask_of_an_earlier_release(self, **terms):
        return self.world.ask(1, trust_id='own', **{'duration': 60, **terms})

    def lose(self, *trusts):
        """Let Keystone know only other trusts, behind our back."""
        self.nova.refusal = lambda order: (
            (Nature.LOST_RIGHT, LOST)
            if order.kind in BY_TRUST and order.build.trust in trusts
            else None)

    def boots(self, lease):
        return [one.build.trust for _, one in self.nova.ordered
                if one.kind is LeaseOperation.BOOT and one.place[0] == lease]

    def assert_waits(self, lease, *words, state='queued'):
        found = self.lease(lease)
        self.assertEqual(state, found.state)
        for word in ('right to act for its owner', COMMAND, *words):
            self.assertIn(word, found.reason)
        self.assertIn('right-lost', self.world.kinds(lease))


class RevokedTest(RightTestCase):
    """The owner has revoked the trust."""

    def test_servers_are_made_with_the_standing_trust(self):
        lease = self.ask(2)
        self.world.until(30)
        self.assertEqual('active', self.world.state(lease))
        self.assertEqual(['t1', 't1'], self.boots(lease))

    def test_running_lease_ends_at_its_time(self):
        lease = self.ask(2)
        self.world.until(30)
        self.revoke()
        self.world.until(50)
        self.assertEqual('active', self.world.state(lease))
        self.assertEqual('', self.lease(lease).reason)
        self.world.until(120)
        found = self.lease(lease)
        self.assertEqual(('done', 60), (found.state, found.served))
        self.assertEqual({}, self.nova.of(lease))
        self.assertNotIn('right-lost', self.world.kinds(lease))

    def test_suspended_lease_is_resumed_and_ends_at_its_time(self):
        lease = self.ask()
        self.world.until(30)
        self.world.store.change(lease, 'paused', {'hold': True})
        self.world.until(50)
        self.revoke()
        self.world.store.change(lease, 'unpaused', {'hold': False})
        self.world.until(180)
        found = self.lease(lease)
        self.assertEqual(('done', 60), (found.state, found.served))

    def test_waiting_best_effort_says_so_and_goes_on_with_a_new_trust(self):
        self.revoke()
        lease = self.ask()
        self.world.until(600)
        self.assert_waits(lease, 'there is no standing trust')
        self.assertEqual([], self.boots(lease))
        self.assertEqual(1, self.world.kinds(lease).count('right-lost'))
        self.world.restart()
        self.world.until(620)
        self.assertEqual(1, self.world.kinds(lease).count('right-lost'))
        self.trust('t2')
        self.world.until(650)
        self.assertEqual('active', self.world.state(lease))
        self.assertEqual('', self.lease(lease).reason)
        self.assertIn('right-restored', self.world.kinds(lease))
        self.assertEqual(['t2'], self.boots(lease))

    def test_lease_without_the_right_takes_no_room(self):
        self.revoke()
        self.ask(12)
        self.trust('t9', user='bob')
        self.world.until(10)
        # Bob's leases have one.
        other = self.world.ask(12, duration=60)
        self.world.until(40)
        self.assertEqual('active', self.world.state(other))

    def test_planned_start_is_withdrawn_and_planned_again(self):
        first = self.world.ask(12, duration=120)
        second = self.ask(12)
        self.world.until(30)
        self.assertEqual('scheduled', self.world.state(second))
        self.revoke()
        self.world.until(40)
        self.assert_waits(second)
        self.trust('t2')
        self.world.until(50)
        self.assertEqual('scheduled', self.world.state(second))
        self.world.until(260)
        self.assertEqual(['done', 'done'], [
            self.world.state(one) for one in (first, second)])

    def test_reservation_says_so_and_fails_at_its_start(self):
        lease = self.ask(start=NOW + 100)
        self.world.until(20)
        self.revoke()
        self.world.until(80)
        self.assert_waits(lease, 'no standing trust', state='scheduled')
        self.world.until(130)
        self.assert_failed(lease, 'right to act for its owner', COMMAND)
        self.assertEqual([], self.boots(lease))

    def test_reservation_whose_owner_renews_the_trust_in_time_runs(self):
        lease = self.ask(start=NOW + 100)
        self.world.until(20)
        self.revoke()
        self.world.until(60)
        self.trust('t2')
        self.world.until(120)
        self.assertEqual('active', self.world.state(lease))
        self.assertEqual('', self.lease(lease).reason)

    def test_deadline_lease_without_the_right_starts_no_earlier(self):
        first = self.world.ask(12, duration=300, preemptible=False)
        self.world.until(10)
        second = self.ask(12, deadline=NOW + 500)
        self.world.until(20)
        self.assertEqual('scheduled', self.world.state(second))
        self.revoke()
        self.world.until(30)
        self.world.store.change(first, 'cancelled', {'wanted_end': True})
        self.world.until(60)
        self.assert_waits(second, state='scheduled')
        self.trust('t2')
        self.world.until(90)
        self.assertEqual('active', self.world.state(second))

    def test_lease_that_begins_returns_to_the_queue(self):
        self.nova.latency = 1000.0     # no boot begins
        self.lose('t1')
        lease = self.ask()
        self.world.until(4)
        self.assertEqual('starting', self.world.state(lease))
        self.nova.pending.clear()
        self.revoke()
        self.world.until(8)
        self.assert_waits(lease)

    def test_server_that_runs_is_not_deleted_for_another_that_cannot_boot(
            self):
        self.nova.refusal = lambda order: (
            (Nature.TRANSIENT, '503') if order.place[1] == 1 else None)
        lease = self.ask(2)
        self.world.until(20)
        self.revoke()
        self.world.until(60)
        self.assertEqual(['ACTIVE'], self.nova.statuses(lease))
        self.assertIn('right to act', self.lease(lease).reason)
        self.nova.refusal = lambda order: None
        self.trust('t2')
        self.world.until(80)
        self.assertEqual('active', self.world.state(lease))

    def test_trust_of_another_user_is_not_used(self):
        self.revoke()
        self.trust('t9', user='bob')
        lease = self.ask()
        self.world.until(30)
        self.assert_waits(lease)

    def test_no_server_is_ever_made_without_the_trust(self):
        """Watcher's own project would get it."""
        self.revoke()
        for terms in ({}, {'start': NOW + 50}, {'deadline': NOW + 500},
                      {'immediate': True}):
            self.ask(**terms)
        self.world.until(120)
        self.assertEqual([], [one for _, one in self.nova.ordered
                              if one.kind in BY_TRUST])


class LostTest(RightTestCase):
    """Keystone refuses a trust that the database has."""

    def test_trust_deleted_in_keystone_holds_best_effort_back(self):
        self.lose('t1')
        lease = self.ask()
        self.world.until(30)
        self.assert_waits(lease, LOST)
        self.assertEqual(['t1', 't1'], self.boots(lease))
        self.trust('t2')
        self.world.until(60)
        self.assertEqual('active', self.world.state(lease))

    def test_reservation_fails_at_its_start(self):
        self.lose('t1')
        lease = self.ask(start=NOW + 50)
        self.world.until(40)
        self.assertEqual('scheduled', self.world.state(lease))
        self.world.until(80)
        self.assert_failed(lease, 'right to act for its owner', LOST)

    def test_one_lease_tells_of_all(self):
        self.lose('t1')
        first = self.ask()
        self.world.until(30)
        second = self.ask()
        self.world.until(60)
        self.assert_waits(second, LOST)
        self.assertEqual([], self.boots(second))
        self.assertEqual(2, len(self.boots(first)))

    def test_operation_by_the_old_trust_is_repeated_by_the_new_one(self):
        """A renewal deletes the old trust while a boot is ordered by it."""
        self.nova.latency = 3.0
        lease = self.ask()
        self.world.until(2)
        self.trust('t2')
        self.lose('t1')
        self.world.until(40)
        self.assertEqual('active', self.world.state(lease))
        self.assertEqual(['t1', 't2'], self.boots(lease))

    def test_expired_trust_holds_leases_back(self):
        self.trust('t2', life=40)
        queued = self.world.ask(12, duration=50)
        waiting = self.ask(12)
        ahead = self.ask(start=NOW + 300)
        self.world.until(30)
        self.assert_waits(ahead, 'before its start', state='scheduled')
        self.world.until(110)
        self.assertEqual('done', self.world.state(queued))
        self.assert_waits(waiting, 'has ended at')
        self.trust('t3')
        self.world.until(150)
        self.assertEqual('active', self.world.state(waiting))
        self.assertEqual('', self.lease(ahead).reason)


class EarlierReleaseTest(RightTestCase):
    """Leases with a trust of their own."""

    def test_lease_uses_its_own_trust_until_it_ends(self):
        self.revoke()
        lease = self.ask_of_an_earlier_release()
        self.world.until(30)
        self.assertEqual('active', self.world.state(lease))
        self.assertEqual(['own'], self.boots(lease))

    def test_lease_whose_own_trust_is_lost_uses_the_standing_one(self):
        self.lose('own')
        lease = self.ask_of_an_earlier_release()
        self.world.until(40)
        self.assertEqual('active', self.world.state(lease))
        self.assertEqual(['own', 'own', 't1'], self.boots(lease))

    def test_lease_without_any_trust_waits(self):
        self.revoke()
        self.lose('own')
        lease = self.ask_of_an_earlier_release()
        self.world.until(40)
        self.assert_waits(lease, LOST)


class HistoryTest(unittest.TestCase):

    @hypothesis.settings(max_examples=max(
        30, hypothesis.settings().max_examples // 100))
    @hypothesis.given(st.lists(st.tuples(
        st.sampled_from(('revoke', 'renew', 'lose', 'lease', 'reserve')),
        st.integers(2, 30)), max_size=12))
    def test_lost_right_ends_no_running_lease_and_boots_nothing(self, steps):
        case = RightTestCase('setUp')
        case.setUp()
        self.addCleanup(case.doCleanups)
        lost, valid, leases, seconds = set(), 't1', [], 0
        for number, (step, pause) in enumerate(steps):
            if step == 'revoke':
                case.revoke()
                lost.add(valid)
            elif step == 'lose':
                lost.add(valid)
            elif step == 'renew':
                lost.add(valid)
                valid = f'n{number}'
                case.trust(valid)
            else:
                leases.append(case.ask(**(
                    {'start': NOW + seconds + 40} if step == 'reserve'
                    else {})))
            case.lose(*lost)
            seconds += pause
            case.world.until(seconds)
        case.trust('last')
        case.lose(*lost, valid)
        end = seconds + 600
        while seconds < end and not all(
                case.world.state(one) in lease_states.FINAL
                for one in leases):
            seconds += 20
            case.world.until(seconds)
        case.world.until(seconds + 20)
        for lease in leases:
            found = case.lease(lease)
            if found.served:
                self.assertEqual(('done', 60), (found.state, found.served))
            else:
                self.assertEqual('failed', found.state)
                self.assertIn(COMMAND, found.reason)
        self.assertEqual({}, case.nova.servers)
        self.assertNotIn(None, [
            one.build.trust for _, one in case.nova.ordered
            if one.kind in BY_TRUST])


if __name__ == '__main__':
    unittest.main()
