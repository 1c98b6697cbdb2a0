# SPDX-License-Identifier: Apache-2.0

"""Figures of the estimator (Boettger 2012, section 4.4.1)."""

import math
import unittest

from hypothesis import given, strategies

from secondary_scheduler.estimation.feasibility import (
    Estimator,
    GuestLoad,
    Overheads,
    TimedOperation,
)

#: Boettger 2012, Table 4.2: kind, whether on the target, CPU, NetIn, NetOut.
TABLE = (('suspend', False, 2, 0, 31), ('migrate', False, 30, 0, 31),
         ('stop', False, 0, 0, 0), ('migrate', True, 12, 30, 0),
         ('resume', True, 15, 25, 0), ('start', True, 20, 20, 0))


def guest(host, cpu=None, **usage):
    if cpu is not None:
        usage['cpu'] = cpu
    return GuestLoad(host, {'slots': 1, 'cores': 2, **usage})


class Case(unittest.TestCase):

    def setUp(self):
        self.fe = Estimator(
            {'a': {'cpu': 30, 'net_in': 10, 'net_out': 5},
             'b': {'cpu': 40, 'net_in': 0, 'net_out': 0}},
            {'v': guest('a', 25.0), 'w': guest('a', 10.0),
             'd': guest(None, 50.0), 'e': guest(None, 7.0)},
            Overheads(limits_newcomers=True))

    def cpu(self, host, at_s, *works, **more):
        return self.fe.predict('cpu', host, at_s, works, **more)


class TestBound(Case):

    @given(strategies.lists(strategies.builds(
        TimedOperation, strategies.sampled_from([
            'migrate', 'suspend', 'stop', 'resume', 'start']),
        strategies.sampled_from('vwde'), strategies.sampled_from('ab'),
        strategies.sampled_from(['a', 'b', None]),
        strategies.integers(0, 5), strategies.integers(5, 9)), max_size=6),
        strategies.sampled_from(['cpu', 'net_in', 'net_out', 'slots']))
    def test_demand_never_exceeds_the_bound(self, works, resource):
        for host in 'ab':
            bound = self.fe.bound(resource, host, works)
            for at_s in (*range(11), math.inf):
                self.assertLessEqual(self.fe.demand(
                    resource, host, at_s, works), bound + 1e-9)

    def test_instance_that_stays_counts_once(self):
        self.assertEqual(65, self.fe.bound('cpu', 'a'))
        self.assertEqual(65 + 20 + 20, self.fe.bound(
            'cpu', 'a', [TimedOperation('start', 'd', 'a', 'a', 0, 22)]))
        self.assertEqual(2, self.fe.bound('slots', 'a'))


class TestPredict(Case):

    def test_mean_use_persists(self):
        self.assertEqual(65, self.cpu('a', 0))
        self.assertEqual(65, self.cpu('a', math.inf))
        self.assertEqual(40, self.cpu('b', 5))

    def test_overheads_of_the_table(self):
        for kind, arrives, *percents in TABLE:
            work = TimedOperation(
                kind, 'v', 'x', 'x' if kind != 'migrate' else 'y', 0, 9
            )
            host = work.target if arrives else work.source
            if not arrives and kind != 'migrate':
                work = TimedOperation(kind, 'v', 'x', None, 0, 9)
            fe = Estimator({host: {'cpu': 0, 'net_in': 0, 'net_out': 0}},
                           {'v': guest(None)})
            for resource, percent in zip(('cpu', 'net_in', 'net_out'),
                                         percents, strict=True):
                with self.subTest(kind=kind, resource=resource):
                    self.assertEqual(percent, fe.predict(
                        resource, host, 8, [work]))

    def test_instance_keeps_its_old_state_until_the_end(self):
        out = TimedOperation('suspend', 'v', 'a', None, 0, 9)
        self.assertEqual(67, self.cpu('a', 0, out))
        self.assertEqual(67, self.cpu('a', 8.9, out))
        self.assertEqual(40, self.cpu('a', 9, out))
        move = TimedOperation('migrate', 'v', 'a', 'b', 2, 7)
        self.assertEqual([65, 95, 95, 40, 40], [
            self.cpu('a', at, move) for at in (0, 2, 6, 7, 9)])
        self.assertEqual([40, 52, 52, 60, 60], [
            self.cpu('b', at, move) for at in (0, 2, 6, 7, 9)])

    def test_lingering_operation_counts_at_its_end(self):
        up = TimedOperation('start', 'd', 'b', 'b', 0, 22)
        for lingers, uses in ((False, [60, 60, 60]), (True, [60, 80, 60])):
            fe = Estimator(self.fe.primaries, self.fe.guests,
                           Overheads(limits_newcomers=True,
                                     lingers=lingers))
            self.assertEqual(uses, [fe.predict('cpu', 'b', at, [up])
                                    for at in (21, 22, 23)])

    def test_newcomers_use_at_most_the_default(self):
        for kind, uuid, percent in (
                ('start', 'e', 20), ('resume', 'd', 20), ('resume', 'e', 7),
                ('migrate', 'v', 20), ('migrate', 'w', 10),
                ('unshelve', 'e', 7)):
            with self.subTest(kind=kind, uuid=uuid):
                work = TimedOperation(
                    kind, uuid, 'a' if kind == 'migrate' else 'b', 'b', 0, 1
                )
                self.assertEqual(40 + percent, self.cpu('b', 1, work))

    def test_use_counts_alike_before_and_after_a_return(self):
        fe = Estimator(self.fe.primaries, self.fe.guests,
                       Overheads(newcomer=8))
        for kind, uuid, percent in (
                ('resume', 'd', 50), ('resume', 'e', 7), ('unshelve', 'e', 7),
                ('migrate', 'v', 25), ('start', 'd', 50), ('start', 'e', 8)):
            with self.subTest(kind=kind, uuid=uuid):
                self.assertEqual(40 + percent, fe.predict('cpu', 'b', 1, [
                    TimedOperation(kind, uuid, 'b', 'b', 0, 1)]))

    def test_memory_is_used_from_the_first_second(self):
        fe = Estimator({'b': {'mem': 10}}, {'d': guest(None, mem=50)})
        for kind in ('start', 'resume', 'unshelve'):
            self.assertEqual(60, fe.predict(
                'mem', 'b', 9, [TimedOperation(kind, 'd', 'b', 'b', 0, 9)]))

    def test_newcomers_to_a_host_of_another_size(self):
        sizes = {'large': 64.0, 'small': 4.0, 'equal': 64.0, None: 64.0}
        fe = Estimator(
            dict.fromkeys(sizes, {'cpu': 10}), {
                'v': GuestLoad('large', {'cpu': 32.0}),
                'w': GuestLoad('small', {'cpu': 2.0}),
                'x': GuestLoad(None, {'cpu': 32.0})},
            Overheads(limits_newcomers=True),
            capacity=lambda host, _resource: sizes[host],
            least={'cpu': 5.0})
        for uuid, source, target, percent in (
                ('v', 'large', 'equal', 20), ('v', 'large', 'small', 800),
                ('w', 'small', 'equal', 5), ('x', None, 'equal', 20),
                ('x', None, 'small', 800)):
            work = TimedOperation(
                'unshelve' if source is None else 'migrate',
                uuid,
                source,
                target,
                0,
                1,
            )
            there = 50 if target == 'small' else 0
            self.assertEqual(10 + there + percent, fe.demand(
                'cpu', target, 1, [work]))
        self.assertEqual([50.0, 5.0], [
            fe.use('w', 'cpu', host) for host in ('small', 'large')])

    def test_unknown_use_counts_as_full_host_or_newcomer(self):
        fe = Estimator({'a': {}, 'b': {'cpu': 0}, 'c': {}}, {'v': guest('b')},
                       Overheads(newcomer=8))
        self.assertEqual(100, fe.predict('cpu', 'a', 0))
        self.assertEqual(100, fe.predict('cpu', 'c', 0))
        self.assertEqual(8, fe.predict('cpu', 'b', 0))

    def test_prediction_is_at_most_a_whole_host(self):
        self.assertEqual(100, self.cpu(
            'a', 0, *(TimedOperation('migrate', 'v', 'a', 'b', 0, 5),) * 2))

    def test_static_resources_are_sums(self):
        work = TimedOperation('migrate', 'v', 'a', 'b', 0, 5)
        for resource, each in (('slots', 1), ('cores', 2), ('memory', 0)):
            self.assertEqual(
                [2 * each, 2 * each, each, each], [
                    self.fe.predict(resource, host, at, [work])
                    for host, at in (('a', 0), ('a', 4.9), ('a', 5),
                                     ('b', 5))])

    def test_resume_and_migration_in_one_plan(self):
        up = TimedOperation('resume', 'e', 'a', 'a', 0, 3)
        on = TimedOperation('migrate', 'e', 'a', 'b', 3, 8)
        self.assertEqual([80, 100, 65], [
            self.cpu('a', at, on, up) for at in (1, 4, 8)])
        self.assertEqual(47, self.cpu('b', 8, on, up))

    def test_only_restricts_the_instances(self):
        self.assertEqual(40, self.cpu('a', 0, only={'w'}))
        self.assertEqual(1, self.fe.predict('slots', 'a', 0, only={'v'}))


class TestHolds(Case):

    def test_policy_holds_up_to_its_threshold(self):
        self.assertTrue(self.fe.holds('cpu', 65, 'a', 0))
        self.assertFalse(self.fe.holds('cpu', 64.9, 'a', 0))
        self.assertTrue(self.fe.holds('slots', 2, 'a', 0))
        self.assertFalse(self.fe.holds('slots', 1, 'a', 0))

    def test_policy_holds_without_secondaries(self):
        self.assertTrue(self.fe.holds('cpu', 10, 'b', 0))
        self.assertTrue(self.fe.holds('cpu', 0, 'a', 0, only=()))
        gone = [TimedOperation('stop', one, 'a', None, 0, 2) for one in 'vw']
        self.assertTrue(self.fe.holds('cpu', 10, 'a', 2, gone))
        self.assertFalse(self.fe.holds('cpu', 10, 'a', 1, gone))

    def test_ongoing_operation_contributes(self):
        work = TimedOperation('start', 'd', 'b', 'b', 0, 9)
        self.assertFalse(self.fe.holds('cpu', 59, 'b', 1, [work]))
        self.assertTrue(self.fe.holds('cpu', 60, 'b', 1, [work]))
