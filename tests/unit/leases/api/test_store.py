# SPDX-License-Identifier: Apache-2.0

"""Tests of the tables, the store and the plan, on each database."""

import concurrent.futures
import dataclasses
import functools
import unittest
from unittest import mock

from oslo_db import exception as db_exception
import sqlalchemy as sa

from secondary_scheduler.leases.api.db import (
    changes,
    errors,
    migration,
    models,
    plans,
    purging,
    quotas,
    quotes,
    requests,
    schedules,
    session,
    standing_trusts,
)
from secondary_scheduler.leases.api.db.models import STANDING, Nodes
from secondary_scheduler.leases.api.db.plans import SlotPurpose
from secondary_scheduler.leases.api.db.store import OPEN
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.api import services
from tests.unit.leases.api.services import NOW, request, stretch

LIMITS = quotas.QuotaLimits(100, 1000)


class StoreCases:
    """Tests for each database."""

    database = ''

    def setUp(self):
        super().setUp()
        self.service = services.on(self, self.database)
        self.store = self.service.store
        self.announced = []
        self.store.announce = lambda lease, event: self.announced.append(
            (lease.uuid, event.kind))

    def create(self, number, **changes):
        return self.store.create(request(number, **changes), LIMITS)

    def add_event(self, uuid, text):
        """Add an event without another change."""
        self.store.change(uuid, 'notice', {}, text=text)

    def test_migrated_tables_equal_the_models(self):
        self.assertEqual([], services.differences(
            self.service.database.engine))
        self.assertEqual('0011', migration.version(
            self.service.database.engine))

    def test_downgrade_and_upgrade_keep_rows(self):
        engine = self.service.database.engine
        uuid = self.create(1, nodes=(Nodes(2, 'a'), Nodes(1, 'b'))).uuid
        migration.downgrade(engine, '0001')
        self.assertEqual('0001', migration.version(engine))
        self.assertNotIn('quotes', sa.inspect(engine).get_table_names())
        migration.sync(engine)
        self.assertEqual([], services.differences(engine))
        self.assertEqual(['a', 'b'], [
            one.flavor for one in self.store.get(uuid).nodes])
        migration.downgrade(engine, 'base')
        self.assertEqual(['alembic_version'],
                         sa.inspect(engine).get_table_names())

    def test_downgrade_leaves_no_lease_without_a_trust(self):
        """Its servers would be made in the project of Watcher's user."""
        for number, user in enumerate(('alice', 'bob', 'carol'), 1):
            self.create(number, user_id=user, trust_id=STANDING)
        self.create(4)
        self.create(5, trust_id='own')
        for user, trust in (('alice', 't1'), ('bob', 't2')):
            standing_trusts.replace_trust(
                self.service.database, standing_trusts.StandingTrust(
                    project_id='p1', user_id=user, trust_id=trust,
                    roles=['member'], created_at=NOW, expires_at=NOW + 60),
                None)
        engine = self.service.database.engine
        migration.downgrade(engine, '0008')
        migration.sync(engine)
        self.assertEqual([], services.differences(engine))
        self.assertEqual(
            ['t1', 't2', STANDING, None, 'own'],
            [one.trust_id for one in self.store.leases('p1')])
        self.assertIsNone(standing_trusts.read_trust(
            self.service.database, 'p1', 'alice'))

    def test_downgrade_deletes_adopted_leases(self):
        engine = self.service.database.engine
        asked = self.create(1).uuid
        open_ = self.create(2, duration=None).uuid
        plans.write_plan(self.service.database, {
            asked: [stretch(0, 60, h1=1)],
            open_: [dataclasses.replace(stretch(0, 0, h1=1), end=None)]})
        planned = plans.read_plan(self.service.database, begin=NOW + 90)
        self.assertEqual([(open_, None)], [
            (uuid, one.end) for uuid, one in planned])
        self.assertEqual(LeaseKind.BEST_EFFORT, self.store.get(open_).kind)
        # Adopted leases do not count.
        self.assertEqual(1, quotas.read_usage(
            self.service.database, 'p1', LIMITS).leases)
        migration.downgrade(engine, '0004')
        migration.sync(engine)
        self.assertEqual([], services.differences(engine))
        self.assertEqual([(asked, 3600)], [
            (one.uuid, one.duration) for one in self.store.leases('p1')])
        self.assertEqual([(asked, stretch(0, 60, h1=1))],
                         plans.read_plan(self.service.database))

    def test_stored_lease_equals_its_request(self):
        asked = request(
            1, name='Ünïcode 🌍', start=NOW + 60, deadline=NOW + 9000,
            preemptible=False, max_rate=0.1,
            nodes=(Nodes(2, 'small', 'debian', 'net', 'key'),
                   Nodes(1, 'large')))
        self.store.create(asked, LIMITS)
        found = self.store.get(asked.uuid)
        self.assertEqual(asked.terms, {
            name: getattr(found, name) for name in asked.terms})
        self.assertEqual(asked.nodes, tuple(
            Nodes(one.number, one.flavor, one.image, one.network,
                  one.key_name) for one in found.nodes))
        self.assertEqual(
            (LeaseState.NEW, False, False, 1, NOW, NOW, [], 'p1', 'alice',
             LeaseKind.DEADLINE),
            (found.state, found.hold, found.wanted_end, found.revision,
             found.created_at, found.updated_at, found.servers,
             found.project_id, found.user_id, found.kind))

    def test_node_sets_are_read_without_user_data(self):
        nodes = (
            Nodes(2, 'a', 'image', user_data='c2Vj', server={'tags': ['x']}),
            Nodes(1, 'b', network='net', key_name='key'))
        asked = self.create(1, nodes=nodes)
        self.assertEqual(
            [dataclasses.replace(one, user_data=None) for one in nodes],
            requests.node_sets(self.service.database, asked.uuid))
        with self.assertRaises(errors.UnknownLease):
            requests.node_sets(self.service.database, request(7).uuid)

    def test_server_request_is_read_by_number_of_the_node(self):
        server = {'networks': 'none', 'metadata': {'k': 'v' * 255},
                  'tags': ['ü']}
        long = 'c2Vj' * 16383
        asked = self.create(1, nodes=(
            Nodes(2, 'a', server=server, user_data=long), Nodes(1, 'b')))
        other = self.create(2)
        read = functools.partial(requests.server_request,
                                 self.service.database)
        for node, expected in (
                (0, {**server, 'user_data': long}),
                (1, {**server, 'user_data': long}), (2, {})):
            self.assertEqual(expected, read(asked.uuid, node))
        self.assertEqual({}, read(other.uuid, 1))
        for uuid, node in ((asked.uuid, 3), (asked.uuid, -1),
                           (request(7).uuid, 0)):
            with self.assertRaises(errors.UnknownLease):
                read(uuid, node)
        self.assertEqual([True, False], [
            one.has_user_data for one in self.store.get(asked.uuid).nodes])
        self.store.delete(asked.uuid)
        with self.assertRaises(errors.UnknownLease):
            read(asked.uuid, 0)

    def test_database_errors_show_no_values(self):
        secret = 'top secret'
        with self.assertRaises(db_exception.DBError) as caught:
            self.create(1, nodes=(Nodes(1, None, user_data=secret),))
        self.assertNotIn(secret, str(caught.exception))

    def test_names_are_compared_with_case_and_accents(self):
        self.create(1, name='Résumé')
        for other in ('résumé', 'Resume', 'Résumé '):
            self.assertEqual([], self.store.leases('p1', name=other), other)
        self.assertEqual(1, len(self.store.leases('p1', name='Résumé')))

    def test_lists_are_sorted_by_age_and_begin_after_a_marker(self):
        for number in (3, 1, 2):
            self.create(number)
        self.create(4, project='p2')
        uuids = [request(number).uuid for number in (3, 1, 2)]
        self.assertEqual(uuids, [
            one.uuid for one in self.store.leases('p1')])
        self.assertEqual(uuids[1:], [
            one.uuid for one in self.store.leases('p1', marker=uuids[0])])
        self.assertEqual(uuids[:2], [
            one.uuid for one in self.store.leases('p1', limit=2)])
        self.assertEqual(4, len(self.store.leases()))
        with self.assertRaises(errors.UnknownLease):
            self.store.leases('p1', marker=request(4).uuid)

    def test_same_token_makes_one_lease(self):
        first = self.create(1, token='t')
        again = self.create(2, token='t')
        self.assertEqual(first.uuid, again.uuid)
        self.assertEqual([(first.uuid, 'created')], self.announced)
        self.assertNotEqual(first.uuid, self.create(3, token='T').uuid)
        self.assertNotEqual(first.uuid, self.create(
            4, token='t', project='p2').uuid)
        with self.assertRaisesRegex(errors.OtherRequest, first.uuid):
            self.create(5, token='t', duration=1)

    def test_changes_increment_revision_and_refuse_stale_ones(self):
        lease = self.create(1)
        changed = self.store.change(lease.uuid, 'paused', {'hold': True},
                                    revision=1)
        self.assertEqual((2, True), (changed.revision, changed.hold))
        with self.assertRaises(errors.Stale):
            self.store.change(lease.uuid, 'x', {'hold': False}, revision=1)
        with self.assertRaises(errors.WrongState):
            self.store.change(lease.uuid, 'x', {'hold': False},
                              among={LeaseState.ACTIVE})
        with self.assertRaises(errors.UnknownLease):
            self.store.change(lease.uuid, 'x', {'hold': False},
                              project='p2')
        self.assertEqual((2, True), (
            self.store.get(lease.uuid).revision,
            self.store.get(lease.uuid).hold))
        self.assertEqual(['created', 'paused'], [
            kind for _, kind in self.announced])

    def secrets(self):
        with self.service.database.reader() as session:
            return session.scalar(sa.select(sa.func.count()).select_from(
                models.UserData))

    def test_user_data_of_a_lease_that_is_over_are_deleted(self):
        leases = [self.store.create(request(number, nodes=(
            Nodes(2, 'a', 'image', user_data='c2Vj'),)), LIMITS)
            for number in (1, 2, 3)]
        self.store.take_new()
        passes = schedules.read_pass(self.service.database, 0).passes
        schedules.write_pass(self.service.database, passes, 0, [
            changes.Change(lease.uuid, None, {'state': state})
            for lease, state in zip(leases, ('done', 'active', 'active'),
                                    strict=True)], NOW)
        self.assertEqual(2, self.secrets())
        schedules.set_state(self.service.database, leases[1].uuid,
                            LeaseState.CANCELLED, '', NOW)
        self.assertEqual(1, self.secrets())

    def test_old_leases_that_are_over_are_purged(self):
        for number, state, age in (
                (1, 'done', 9), (2, 'done', 11), (3, 'failed', 11),
                (4, 'active', 11), (5, 'error', 99), (6, 'new', 99)):
            lease = self.create(number)
            with self.service.database.writer() as session:
                session.execute(sa.update(models.LeaseRow).where(
                    models.LeaseRow.uuid == lease.uuid).values(
                        state=state, updated_at=NOW - age * 86400))
        database, before = self.service.database, NOW - 10 * 86400
        expected = {'leases': 2, 'quotes': 0}
        self.assertEqual(expected, purging.purge_rows(
            database, before, None, dry_run=True))
        self.assertEqual(6, len(self.store.leases()))
        self.assertEqual(expected, purging.purge_rows(database, before, None))
        self.assertEqual(['done', 'active', 'error', 'new'],
                         [one.state for one in self.store.leases()])
        self.assertEqual({'leases': 0, 'quotes': 0, 'accounts': 0},
                         purging.purge_rows(database, before, before))

    def test_request_without_effect_stores_nothing(self):
        lease = self.create(1)
        for values in ({'hold': True}, {'name': 'n'}, {'max_rate': 0.25},
                       {'max_rate': None}, {'name': 'm', 'hold': True}):
            before = self.store.get(lease.uuid).revision
            for _ in range(3):
                changed = self.store.change(lease.uuid, 'x', values)
                self.assertEqual(before + 1, changed.revision)
        self.assertEqual(['created', *['x'] * 5], [
            kind for _, kind in self.announced])
        with self.assertRaises(errors.Stale):
            self.store.change(lease.uuid, 'x', {'hold': True}, revision=1)

    def test_servers_of_a_lease_are_replaced(self):
        lease = self.create(1)
        one, two = request(8).uuid, request(9).uuid
        self.store.change(lease.uuid, 'x', {}, servers=[one])
        self.store.change(lease.uuid, 'x', {}, servers=[two, one])
        self.assertEqual({one, two}, {
            server.uuid for server in self.store.get(lease.uuid).servers})
        self.store.change(lease.uuid, 'x', {}, servers=[])
        self.assertEqual([], self.store.get(lease.uuid).servers)

    def test_each_new_lease_is_taken_once(self):
        for number in range(3):
            self.create(number)
        taken = self.store.take_new(2)
        self.assertEqual([(LeaseState.PENDING, 2)] * 2, [
            (one.state, one.revision) for one in taken])
        self.assertEqual([request(2).uuid], [
            one.uuid for one in self.store.take_new()])
        self.assertEqual([], self.store.take_new())
        self.assertEqual(3, len(self.store.leases(among={LeaseState.PENDING})))

    def test_limited_events_are_the_latest_in_order_of_time(self):
        lease = self.create(1)
        for number in range(3):
            self.add_event(lease.uuid, f'number {number}')
        self.assertEqual(['number 1', 'number 2'], [
            one.text for one in self.store.events(lease.uuid, limit=2)])
        self.assertEqual('created', self.store.events(lease.uuid)[0].kind)
        with self.assertRaises(errors.UnknownLease):
            self.add_event(request(7).uuid, '')
        with self.assertRaises(errors.UnknownLease):
            self.store.events(lease.uuid, 'p2')

    def test_events_of_different_clocks_are_sorted_by_time(self):
        # The clocks of service and engine differ.
        lease = self.create(1)
        for seconds in (5, 2, 5):
            self.store._clock.now = NOW + seconds
            self.add_event(lease.uuid, f'after {seconds}')
        self.assertEqual(
            ['', 'after 2', 'after 5', 'after 5'],
            [one.text for one in self.store.events(lease.uuid)])
        self.assertEqual([NOW + 5, NOW + 5], [
            one.time for one in self.store.events(lease.uuid, limit=2)])

    def test_leases_over_or_new_are_deleted_with_their_plans(self):
        lease = self.create(1)
        self.store.change(lease.uuid, 'x', {'state': LeaseState.ACTIVE},
                          servers=[request(9).uuid])
        plans.write_plan(self.service.database,
                         {lease.uuid: [stretch(0, 10, node1=1)]})
        with self.assertRaises(errors.WrongState):
            self.store.delete(lease.uuid)
        self.store.change(lease.uuid, 'x', {'state': LeaseState.DONE})
        with self.assertRaises(errors.UnknownLease):
            self.store.delete(lease.uuid, 'p2')
        self.store.delete(lease.uuid, 'p1')
        with self.assertRaises(errors.UnknownLease):
            self.store.get(lease.uuid)
        self.assertEqual([], plans.read_plan(self.service.database))
        self.assertEqual((lease.uuid, 'deleted'), self.announced[-1])
        self.store.delete(self.create(1).uuid)

    def test_plan_replaces_slots_of_named_leases_only(self):
        one, two = self.create(1).uuid, self.create(2, project='p2').uuid
        first = {one: [stretch(0, 10, SlotPurpose.RESUME, node1=2),
                       stretch(10, 60, node1=2)],
                 two: [stretch(5, 70, node1=1, node2=3)],
                 request(9).uuid: [stretch(0, 1, node3=1)]}
        plans.write_plan(self.service.database, first)
        read = plans.read_plan(self.service.database)
        self.assertEqual([(one, first[one][0]), (two, first[two][0]),
                          (one, first[one][1])], read)
        plans.write_plan(self.service.database,
                         {one: [stretch(1, 2, node9=1)]})
        self.assertEqual([stretch(1, 2, node9=1)], [
            found for uuid, found in plans.read_plan(
                self.service.database, 'p1')])
        plans.write_plan(self.service.database, {one: []})
        self.assertEqual([two], [
            uuid for uuid, _ in plans.read_plan(self.service.database)])

    def test_plan_is_read_within_a_window(self):
        uuid = self.create(1).uuid
        plans.write_plan(self.service.database, {uuid: [
            stretch(0, 10, a=1), stretch(10, 20, a=1), stretch(20, 30, a=1)]})
        self.assertEqual([stretch(10, 20, a=1)], [
            found for _, found in plans.read_plan(
                self.service.database, lease=uuid, begin=NOW + 10,
                end=NOW + 20)])

    def test_quotas_count_leases_that_are_not_over(self):
        for number, state in enumerate(LeaseState):
            lease = self.create(number, nodes=(Nodes(2, 'a'), Nodes(1, 'b')))
            self.store.change(lease.uuid, 'x', {'state': state})
        self.assertEqual(
            quotas.ProjectUsage(LIMITS, len(OPEN), 3 * len(OPEN)),
            quotas.read_usage(self.service.database, 'p1', LIMITS))
        self.assertEqual(quotas.ProjectUsage(LIMITS, 0, 0), quotas.read_usage(
            self.service.database, 'p2', LIMITS))

    def test_own_limits_of_a_project_override_configured_ones(self):
        quotas.set_limits(self.service.database, 'p1', leases=1)
        quotas.set_limits(self.service.database, 'p1', nodes=quotas.UNLIMITED)
        self.create(1, nodes=(Nodes(5000, 'a'),))
        with self.assertRaises(errors.OverQuota) as caught:
            self.create(2)
        self.assertEqual('leases', caught.exception.resource)
        quotas.set_limits(self.service.database, 'p1', leases=None, nodes=None)
        with self.assertRaises(errors.OverQuota) as caught:
            self.create(2)
        self.assertEqual('nodes', caught.exception.resource)

    def ask(self, number, most=quotas.UNLIMITED, **changes):
        return self.service.quotes.create(request(number, **changes), 60,
                                          most)

    def test_quote_waits_until_it_is_answered(self):
        asked = request(
            1, start=NOW + 60, deadline=NOW + 9000, preemptible=False,
            max_rate=0.1, nodes=(Nodes(2, 'ünïcode', 'debian', 'net', 'key'),
                                 Nodes(1, 'large')))
        self.service.quotes.create(asked, 60, 1)
        self.ask(2)
        for _ in range(2):
            taken = self.service.quotes.unanswered()
            self.assertEqual([asked.uuid, request(2).uuid],
                             [one.uuid for one in taken])
        self.assertEqual(
            (asked.nodes, 'p1', 'alice', LeaseKind.DEADLINE, None),
            (taken[0].nodes, taken[0].project_id, taken[0].user_id,
             taken[0].kind, taken[0].accepted))
        self.assertEqual(asked.terms, {'name': '', **{
            name: getattr(taken[0], name) for name in models.TERMS}})
        offer = quotes.QuoteAnswer(False, NOW + 90, 0.5, 0.1 + 0.2, 'wäit')
        self.assertTrue(self.service.quotes.answer(asked.uuid, offer))
        self.assertFalse(self.service.quotes.answer(
            asked.uuid, quotes.QuoteAnswer(True)))
        found = self.service.quotes.get(asked.uuid, 'p1')
        self.assertEqual(offer, quotes.QuoteAnswer(**{
            one.name: getattr(found, one.name)
            for one in dataclasses.fields(quotes.QuoteAnswer)}))
        self.assertEqual([request(2).uuid], [
            one.uuid for one in self.service.quotes.unanswered()])

    def test_quote_is_hidden_from_other_projects_and_expires(self):
        self.ask(1)
        with self.assertRaises(errors.UnknownQuote):
            self.service.quotes.get(request(1).uuid, 'p2')
        self.store._clock.now += 60
        with self.assertRaises(errors.UnknownQuote):
            self.service.quotes.get(request(1).uuid)
        self.assertFalse(self.service.quotes.answer(
            request(1).uuid, quotes.QuoteAnswer(True)))
        self.ask(2, 1)
        self.assertEqual([request(2).uuid], self.kept())
        self.store._clock.now += 60
        self.assertEqual([], self.service.quotes.unanswered())
        self.assertEqual([], self.kept())

    def kept(self):
        """Return the UUIDs of all stored quotes, expired or not."""
        with self.service.database.reader() as session:
            return session.scalars(sa.select(models.Quote.uuid)).all()


class StoreInMemoryTest(StoreCases, unittest.TestCase):

    database = 'memory'


class ConcurrencyCases:
    """Tests of concurrent requests, for databases that allow them."""

    database = ''

    def at_once(self, function, number=24):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return [one.result() for one in [
                pool.submit(function, number) for number in range(number)]]

    def attempt(self, number, limits, **changes):
        try:
            return self.store.create(request(number, **changes), limits).uuid
        except errors.OverQuota:
            return None

    def test_concurrent_requests_do_not_exceed_a_quota(self):
        for name, limits in (('leases', quotas.QuotaLimits(5, -1)),
                             ('nodes', quotas.QuotaLimits(-1, 11))):
            got = self.at_once(lambda number, name=name, limits=limits:
                               self.attempt(number, limits, project=name,
                                            uuid=f'{name}-{number}'))
            self.assertEqual(5, sum(one is not None for one in got), name)
            self.assertEqual(5, len(self.store.leases(name)))

    def test_concurrent_requests_do_not_exceed_quota_of_quotes(self):
        def attempt(number):
            try:
                return self.ask(number, most=5).uuid
            except errors.OverQuota:
                return None

        got = [one for one in self.at_once(attempt) if one is not None]
        self.assertEqual(sorted(got), sorted(self.kept()))
        self.assertEqual(5, len(got))

    def test_quotes_expire_during_concurrent_requests(self):
        for number in range(24):
            self.ask(number)
        self.store._clock.now += 60
        self.at_once(lambda number: self.ask(100 + number))
        self.assertEqual(24, len(self.kept()))

    def test_concurrent_requests_with_one_token_make_one_lease(self):
        got = self.at_once(lambda number: self.attempt(
            number, quotas.QuotaLimits(1, -1), token='t'))
        self.assertEqual(1, len(set(got)))
        self.assertEqual(set(got), {
            one.uuid for one in self.store.leases()})

    def test_concurrent_schedulers_take_each_lease_once(self):
        for number in range(24):
            self.create(number)
        # A scheduler that meets another may get fewer than there are.
        taken = [lease.uuid for some in [
            *self.at_once(lambda number: self.store.take_new(5)),
            self.store.take_new()] for lease in some]
        self.assertEqual(24, len(taken))
        self.assertEqual(24, len(set(taken)))

    def test_one_of_concurrent_changes_of_a_revision_succeeds(self):
        lease = self.create(1)

        def change(number):
            try:
                self.store.change(lease.uuid, 'x', {'reason': str(number)},
                                  revision=1)
            except errors.Stale:
                return 0
            return 1

        self.assertEqual(1, sum(self.at_once(change)))


class StoreOnFileTest(ConcurrencyCases, StoreCases, unittest.TestCase):

    database = 'file'


@services.needs('MariaDB')
class StoreOnMariaDBTest(ConcurrencyCases, StoreCases, unittest.TestCase):

    database = 'MariaDB'


@services.needs('PostgreSQL')
class StoreOnPostgreSQLTest(ConcurrencyCases, StoreCases, unittest.TestCase):

    database = 'PostgreSQL'


class RetryTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.service = services.on(self)
        patch = mock.patch('time.sleep')
        patch.start()
        self.addCleanup(patch.stop)

    def failing(self, failure):
        """Make the first transaction that creates a lease fail at its end."""
        store = self.service.store
        create, left = store._create_locked, [failure]

        def broken(transaction, asked, limits):
            made = create(transaction, asked, limits)
            if left:
                transaction.commit()
                raise left.pop()
            return made

        return mock.patch.object(store, '_create_locked', broken)

    def test_lost_connection_makes_no_second_lease(self):
        for number, failure in enumerate((
                db_exception.DBConnectionError(), db_exception.DBDeadlock(),
                db_exception.DBError('database is locked'))):
            asked = dataclasses.replace(request(number), token=None)
            with self.subTest(type(failure)), self.failing(failure):
                self.assertEqual(asked.uuid, self.service.store.create(
                    asked, LIMITS).uuid)
            self.assertEqual(number + 1, len(self.service.store.leases()))

    def test_other_errors_are_not_retried(self):
        with self.failing(db_exception.DBError('disk is full')), \
                self.assertRaises(db_exception.DBError):
            self.service.store.create(request(1), LIMITS)


class DatabaseUrlTest(unittest.TestCase):

    def test_url_gets_a_timeout_and_that_of_mariadb_utf8mb4(self):
        for given, used in (
                ('mysql+pymysql://u:p%40@h/d',
                 'mysql+pymysql://u:p%40@h/d?charset=utf8mb4'
                 '&connect_timeout=5'),
                ('mysql+pymysql://u@h/d?charset=utf8&connect_timeout=9',
                 'mysql+pymysql://u@h/d?charset=utf8&connect_timeout=9'),
                ('postgresql://h/d', 'postgresql://h/d?connect_timeout=5'),
                ('sqlite:////a/b', 'sqlite:////a/b')):
            self.assertEqual(used, session._url(given))
