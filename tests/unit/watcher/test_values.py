"""Scope, snapshot, window, stages, per-process objects, goal, leader."""

import dataclasses
import datetime
import tempfile
import threading
from unittest import TestCase, mock

from openstack.compute.v2 import flavor, server

from secondary_scheduler.cmd import flavors
from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.priority import PriorityDecision
from secondary_scheduler.decisions.violations import with_agents
from secondary_scheduler.estimation import learning
from secondary_scheduler.estimation.durations import Durations
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import (
    cluster,
    lease_states,
    reports,
    vocabulary,
)
from secondary_scheduler.plans import operations
from secondary_scheduler.watcher import (
    cloud,
    cloud_snapshot,
    cluster_builder,
    goal,
    leader,
    locks,
    per_process,
    scope,
    stages,
    violations,
)
from tests.unit.watcher import fakes


class ScopeTest(TestCase):
    places = {
        'h1': scope.HostPlace(frozenset({1}), frozenset({'a'}), 'z1'),
        'h2': scope.HostPlace(frozenset({2}), frozenset({'b'}), 'z1'),
        'h3': scope.HostPlace(zone='z2')}

    def resolve(self, *rules):
        return scope.resolve_scope([{'compute': list(rules)}], self.places)

    def test_empty_scope_means_all(self):
        self.assertEqual({'h1', 'h2', 'h3'},
                         scope.resolve_scope([], self.places).hosts)
        self.assertEqual({'h1', 'h2', 'h3'},
                         scope.resolve_scope(None, self.places).hosts)

    def test_aggregates_and_zones(self):
        for rules, hosts in (
                ([{'host_aggregates': [{'name': 'a'}]}], {'h1'}),
                ([{'host_aggregates': [{'id': 2}]}], {'h2'}),
                ([{'host_aggregates': [{'name': '*'}]}], {'h1', 'h2'}),
                ([{'host_aggregates': [{'name': 'none'}]}], set()),
                ([{'availability_zones': [{'name': 'z2'}]}], {'h3'}),
                ([{'availability_zones': [{'name': '*'}]}],
                 {'h1', 'h2', 'h3'}),
                ([{'host_aggregates': [{'id': 1}]},
                  {'availability_zones': [{'name': 'z2'}]}], {'h1', 'h3'})):
            self.assertEqual(hosts, self.resolve(*rules).hosts, rules)

    def test_exclude(self):
        found = self.resolve({'exclude': [
            {'compute_nodes': [{'name': 'h1'}]},
            {'host_aggregates': [{'name': 'b'}]},
            {'instances': [{'uuid': 'u'}]},
            {'projects': [{'uuid': 'p'}]}]})
        self.assertEqual({'h3'}, found.hosts)
        self.assertTrue(found.excludes('u', 'other'))
        self.assertTrue(found.excludes('v', 'p'))
        self.assertFalse(found.excludes('v', 'other'))

    def test_handler_leaves_the_model(self):
        self.assertEqual('m', scope.SecondaryScope(
            [], None).get_scoped_model('m'))


class ServerTest(TestCase):
    def read(self, **changes):
        return cloud_snapshot.NovaServer.from_sdk(
            fakes.sdk_server(1, **changes))

    def test_only_marked_flavors_are_secondaries(self):
        self.assertIsNone(self.read(extra_specs={}))
        self.assertIsNone(self.read(flavor=None))
        found = self.read()
        self.assertEqual((2, 512, 2), (found.vcpus, found.memory_mb,
                                       found.disk_gb))
        self.assertEqual(('x', 'alice', 'secondary'),
                         (found.name, found.user, found.flavor))

    def test_lease_and_priority(self):
        self.assertEqual(fakes.uid(1), self.read().lease)
        self.assertEqual('p1:x', self.read(scheduler_hints={
            vocabulary.LEASE_HINT: ['x']}).lease)
        self.assertEqual('p1:y', self.read(
            metadata={vocabulary.LEASE_METADATA: 'y'}).lease)
        self.assertEqual(5, self.read().priority)
        self.assertEqual(2, self.read(
            metadata={vocabulary.PRIORITY_METADATA: '2'}).priority)
        self.assertEqual(5, self.read(
            metadata={vocabulary.PRIORITY_METADATA: '9'}).priority)

    def test_since_when_it_is_as_it_is(self):
        now = datetime.datetime.now(datetime.UTC)
        for said, seconds in ((None, 0), ('2000-01-01T00:00:00Z', (
                now - datetime.datetime(
                    2000, 1, 1, tzinfo=datetime.UTC)).total_seconds())):
            self.assertAlmostEqual(
                seconds, self.read(updated_at=said).unchanged_s, delta=60)

    def test_states(self):
        for status, task, state in (
                ('ACTIVE', None, cluster.InstanceState.ACTIVE),
                ('ACTIVE', 'suspending', cluster.InstanceState.BUSY),
                ('MIGRATING', None, cluster.InstanceState.BUSY),
                ('SHUTOFF', None, cluster.InstanceState.STOPPED),
                ('SHELVED_OFFLOADED', None, cluster.InstanceState.SHELVED),
                ('PAUSED', None, cluster.InstanceState.OTHER),
                ('ERROR', None, cluster.InstanceState.OTHER)):
            self.assertEqual(state, self.read(
                status=status, task_state=task).state, status)


class SwapTest(TestCase):

    def test_swap_counts_as_placement_claims_it(self):
        for swap, gigabytes in ((0, 50), ('', 50), (1, 51), (512, 51),
                                (1024, 51), (2048, 52), (2049, 53)):
            specs = vocabulary.secondary_extra_specs(
                4, 8192, gigabytes, vocabulary.SecondaryMark())
            found = flavor.Flavor(
                id='f', name='sec', vcpus=4, ram=8192, disk=40,
                extra_specs=specs, swap=swap,
                **{'OS-FLV-EXT-DATA:ephemeral': 10})
            one = server.Server(
                id='s', status='ACTIVE', tenant_id='p', flavor={
                    'vcpus': 4, 'ram': 8192, 'disk': 40, 'ephemeral': 10,
                    'swap': swap, 'original_name': 'sec',
                    'extra_specs': specs})
            sizes = cloud.Cloud.sizes(mock.Mock(
                _secondary_flavors=lambda found=found: (found,)))
            with self.subTest(swap):
                self.assertEqual({}, flavors.flavor_faults([found]))
                self.assertEqual(
                    gigabytes, cloud_snapshot.NovaServer.from_sdk(one).disk_gb
                )
                self.assertEqual((4, 8192, gigabytes), sizes['sec'])


class BuildTest(TestCase):
    def build(self, servers=(), hosts=(), fresh=(), inside=('h1', 'h2'),
              **changes):
        arguments = {'locks': locks.Locks(), 'durations': Durations(),
                     'relief': (), 'policies_hash': None, 'share': 6.0,
                     **changes}
        return cluster_builder.build_cluster(
            cloud_snapshot.CloudSnapshot({h.name: h for h in hosts},
                                          {s.uuid: s for s in servers}),
            scope.ResolvedScope(frozenset(inside)),
            {r.host: r for r in fresh}, **arguments)

    def test_what_an_instance_counts(self):
        report = fakes.report('h1', [fakes.server(1)])
        for cpu, cap, floored, counted in (
                (2.0, 20.0, False, 2.0),    # it wants no more
                (9.0, 20.0, False, 6.0),    # it can be squeezed
                (2.0, 2.1, False, 6.0),     # it wants more than it may
                (0.1, 20.0, True, 6.0), (None, 20.0, False, None),
                (4.0, None, False, 4.0)):
            seen = dataclasses.replace(report, instances=(dataclasses.replace(
                report.instances[0], cpu=cpu, cap=cap, floored=floored),))
            found = self.build([fakes.server(1)], [fakes.host('h1')], [seen])
            self.assertEqual(
                counted and counted / 100 * report.cpus,
                found.instances[fakes.uid(1)].cpu)

    def test_what_memory_it_writes_to(self):
        report = fakes.report('h1', [fakes.server(1)])
        for said, counted in (((12.5, 20.0), (12.5, 20.0)),
                              ((None, None), (0, 0)), ((-3.0, 1.0), (0, 1))):
            seen = dataclasses.replace(report, instances=(dataclasses.replace(
                report.instances[0], dirty_1s_mb=said[0],
                dirty_5s_mb=said[1]),))
            found = self.build([fakes.server(1)], [fakes.host('h1')], [seen])
            self.assertEqual(counted, found.instances[fakes.uid(1)].dirty)
        floored = dataclasses.replace(seen, instances=(dataclasses.replace(
            seen.instances[0], dirty_1s_mb=9.0, floored=True),))
        found = self.build([fakes.server(1)], [fakes.host('h1')], [floored])
        self.assertEqual(cluster.CLEAN, found.instances[fakes.uid(1)].dirty)

    def test_what_is_used_of_other_resources(self):
        report = fakes.report('h1', [fakes.server(1)], usage={'mem': 55.5})
        report = dataclasses.replace(report, instances=(dataclasses.replace(
            report.instances[0], usage={
                'mem': 12.5, 'net_in': -1.0, 'net_out': 20.0,
                'disk_in': 30.0}),), capacities={
                    'net_in': 125.0, 'net_out': 1250.0})
        found = self.build([fakes.server(1)],
                           [fakes.host('h1'), fakes.host('h2')], [report])
        # Nobody knows what the disks can do, so 30 % of them is no amount.
        self.assertEqual({'mem': 512.0, 'net_in': 0.0, 'net_out': 250.0},
                         found.instances[fakes.uid(1)].usage)
        self.assertEqual(
            {'mem': 4096, 'net_in': 125.0, 'net_out': 1250.0},
            found.hosts['h1'].capacities)
        self.assertEqual([55.5, None], [
            found.hosts[name].primary_use('mem') for name in ('h1', 'h2')])

    def test_who_is_down_is_expected_to_take_its_memory(self):
        down = dataclasses.replace(fakes.server(1), status='SUSPENDED')
        for memory_mb, usage in ((4096, {'mem': 512.0}), (0, {})):
            report = fakes.report('h1', memory_mb=memory_mb)
            found = self.build([down], [fakes.host('h1')], [report])
            self.assertEqual(usage, found.instances[fakes.uid(1)].usage)
        found = self.build([down], [fakes.host('h1')], [])
        self.assertEqual({}, found.instances[fakes.uid(1)].usage)

    def test_usable_only_with_everything_known(self):
        good = fakes.report('h1')
        h1 = fakes.host('h1')
        self.assertTrue(self.build((), [h1], [good]).hosts['h1'].usable)
        for hosts, fresh, more in (
                ([fakes.host('h1', up=False)], [good], {}),
                ([fakes.host('h1', total={})], [good], {}),
                ([fakes.host('h1', disabled=True)], [good], {}),
                ([fakes.host('h1', switched_off=True)], [good], {}),
                ([h1], [], {}),
                ([h1], [fakes.report('h1', admission=False)], {}),
                ([h1], [good], {'policies_hash': 'other'}),
                ([h1], [good], {'inside': ('h2',)})):
            self.assertFalse(self.build(
                (), hosts, fresh, **more).hosts['h1'].usable)

    def test_a_report_counts_only_where_nova_has_the_instance(self):
        here, there = fakes.server(1, 'h1'), fakes.server(2, 'h2')
        found = self.build(
            [here, there], [fakes.host('h1'), fakes.host('h2')],
            [fakes.report('h1', [here, there])])
        self.assertEqual(0.12, found.instances[fakes.uid(1)].cpu)
        self.assertIsNone(found.instances[fakes.uid(2)].cpu)

    def test_what_others_hold_is_reserved(self):
        hosts = [fakes.host('h1', reserved=dict.fromkeys(fakes.TOTAL, 1))]
        for used, reserved in ((0, 1), (2, 1), (3, 2), (5, 4)):
            found = self.build(
                [fakes.server(1), fakes.server(2, status='SUSPENDED'),
                 fakes.server(3, 'h2'), fakes.server(4, None)],
                [dataclasses.replace(hosts[0], used={vocabulary.SLOT: used})])
            self.assertEqual({**hosts[0].reserved, vocabulary.SLOT: reserved},
                             found.hosts['h1'].reserved)

    def test_what_is_on_its_way_is_reserved_once(self):
        begun = locks.Begun('migrate', fakes.uid(1), 'h1', 'h2', 2.0)
        going = cluster.InFlight('migrate', fakes.uid(1), 'h1', 'h2', 3.0)
        others = [dataclasses.replace(begun, target='h3'),
                  dataclasses.replace(begun, instance=fakes.uid(9))]
        for status, task, used, goes_on in (
                ('ACTIVE', None, 0, True), ('MIGRATING', 'migrating', 1, True),
                ('SUSPENDED', None, 1, False)):
            found = self.build(
                [fakes.server(1, status=status, task_state=task)],
                [fakes.host('h1'),
                 fakes.host('h2', used={vocabulary.SLOT: used})],
                locks=locks.Locks(begun=(begun, *others)))
            self.assertEqual((going,) if goes_on else (), found.in_flight)
            self.assertEqual(used * (not goes_on),
                             found.hosts['h2'].reserved[vocabulary.SLOT])

    def test_what_is_on_its_way_takes_as_long_as_it_is_large(self):
        report = fakes.report('h1', [fakes.server(1)])
        writer = dataclasses.replace(report, instances=(dataclasses.replace(
            report.instances[0], dirty_1s_mb=8.0, dirty_5s_mb=40.0),))
        learned = learning.LearnedDurations(
            {'migrate': learning.Line(2.0, 4.0, 1.2, 60, 32.0)},
            bandwidth_mb_s=16.0)
        for memory_mb, seen, left in ((32, report, 1.0), (64, report, 5.0),
                                      (64, writer, 8.97)):
            found = self.build(
                [dataclasses.replace(fakes.server(1), memory_mb=memory_mb)],
                [fakes.host('h1'), fakes.host('h2')], [seen],
                durations=learned, locks=locks.Locks(begun=(locks.Begun(
                    'migrate', fakes.uid(1), 'h1', 'h2', 5.0),)))
            self.assertAlmostEqual(left, found.in_flight[0].remaining_s,
                                   delta=0.01)

    def test_violation_relief_and_scope(self):
        servers = [fakes.server(1)]
        hosts = [fakes.host('h1')]
        self.assertTrue(self.build(servers, hosts, [
            fakes.report('h1', servers, violated=True)]
            ).hosts['h1'].violated)
        calm = [fakes.report('h1', servers)]
        self.assertFalse(self.build(servers, hosts, calm
                                    ).hosts['h1'].violated)
        self.assertTrue(self.build(servers, hosts, calm, relief={'h1'}
                                   ).hosts['h1'].violated)
        self.assertFalse(self.build(servers, hosts, calm, relief={'h1'},
                                    inside=()).hosts['h1'].violated)

    def with_signal(self, state):
        servers = [fakes.server(n, priority=n) for n in (1, 2, 3)]
        seen = fakes.report('h1', servers)
        seen = dataclasses.replace(seen, policies=(
            *seen.policies, reports.PolicyReport(
                'probe:p99_ms <= 20 for 5s', 'probe:p99_ms', 20.0, 5, 31.0,
                2, state)))
        return self.build(servers, [fakes.host('h1'), fakes.host('h2')],
                          [seen, fakes.report('h2')])

    def test_cpu_stands_for_a_signal(self):
        for state, violated in ((reports.PolicyState.VIOLATED, True),
                                (reports.PolicyState.INVALID, True),
                                (reports.PolicyState.FAILING, False),
                                (reports.PolicyState.UNKNOWN, False)):
            host = self.with_signal(state).hosts['h1']
            self.assertEqual([('cpu', violated)], [
                (one.resource, one.violated) for one in host.policies])

    def test_one_leaves_for_a_signal(self):
        limits = LoadLimits()
        world = self.with_signal(reports.PolicyState.VIOLATED)
        for decision in (
                GuidedDecision(limits, profile=with_agents(limits)),
                PriorityDecision(limits)):
            plan = decision.decide(world, DecisionRequest('preempt'), Budget())
            self.assertEqual(
                [('migrate', 'h1', 'h2')],
                [(one.kind, one.source, one.target)
                 for one in plan.operations], decision)

    def test_who_waits_and_for_how_long(self):
        def down(number, hours, status='SUSPENDED', **values):
            return fakes.server(
                number, status=status, updated=now - datetime.timedelta(
                    hours=hours), hints={vocabulary.LEASE_HINT: values.pop(
                        'lease', str(number))}, **values)
        now = datetime.datetime.now(datetime.UTC)
        mark = {cloud_snapshot.PREEMPTED: 'preempt@2000-01-01T00:00:00Z'}
        found = self.build([
            down(1, 3, metadata=mark), down(2, 5),
            down(3, 2, lease='l', priority=7, metadata=mark),
            down(4, 1, lease='l', priority=6, metadata=mark),
            down(5, 9, lease='l', status='ACTIVE', priority=8,
                 metadata=mark),
            down(6, -1, metadata=mark)], [fakes.host('h1')]).leases
        self.assertEqual(
            {'p1:1': (5, 3), 'p1:l': (6, 1), 'p1:6': (5, 0)},
            {name: (one.priority, round(one.waited_s / 3600, 2))
             for name, one in found.items()})
        self.assertFalse([one for one in found.values()
                          if one.state in lease_states.QUEUED])

    def test_marks(self):
        found = self.build([
            fakes.server(1, status='SUSPENDED',
                         metadata={cloud_snapshot.PREEMPTED: 'x'}),
            fakes.server(2, metadata={cloud_snapshot.PREEMPTED: 'x'}),
            fakes.server(3, metadata={cloud_snapshot.ORIGIN: 'h2'}),
            fakes.server(4, metadata={cloud_snapshot.ORIGIN: 'nowhere'}),
            fakes.server(5, host=None, status='SHELVED_OFFLOADED')],
            [fakes.host('h1'), fakes.host('h2')],
            locks=locks.Locks(
                busy_instances=frozenset({fakes.uid(3)}),
                failed_instances=frozenset({fakes.uid(4)}),
                cooling_down_instances=frozenset({fakes.uid(2)}),
                cooling_down_hosts=frozenset({'h2'}),
                migration_failed_instances=frozenset({fakes.uid(1)})))
        one = [found.instances[fakes.uid(i)] for i in range(1, 6)]
        self.assertEqual([True, False, False, False, False],
                         [i.preempted for i in one])
        self.assertEqual([None, None, 'h2', None, None],
                         [i.origin for i in one])
        self.assertEqual([False, False, True, True, False],
                         [i.blocked for i in one])
        self.assertEqual([False, True, False, False, False],
                         [i.cooling_down for i in one])
        self.assertEqual([True, False, False, False, False],
                         [i.migration_failed for i in one])
        self.assertIsNone(one[4].host)
        self.assertEqual([False, True], [found.hosts[h].blocked
                                         for h in ('h1', 'h2')])

    def test_failed_return_or_preemption_is_marked(self):
        mark = {cloud_snapshot.PREEMPTED: 'preempt@2000-01-01T00:00:00Z'}
        uuids = frozenset(map(fakes.uid, range(9)))
        for returns, preemptions, expected in (
                ((), (), [4]), (uuids, (), [1, 4]), ((), uuids, [3, 4])):
            found = self.build([
                fakes.server(1, status='SUSPENDED', metadata=mark),
                fakes.server(2, status='SUSPENDED'),    # its owner's doing
                fakes.server(3, metadata=mark),         # its owner woke it
                fakes.server(4, status='ERROR', metadata=mark),
                fakes.server(5, status='ERROR'),
                fakes.server(6, status='ERROR', metadata=mark,
                             task_state='deleting'),
                fakes.server(7, status='PAUSED', metadata=mark)],
                [fakes.host('h1')], locks=locks.Locks(
                    return_failed_instances=frozenset(returns),
                    preempt_failed_instances=frozenset(preemptions))).instances
            self.assertEqual([fakes.uid(one) for one in expected], [
                one.uuid for one in found.values()
                if one.return_failed or one.preempt_failed])
            self.assertFalse(any(one.blocked for one in found.values()))

    def test_closed(self):
        self.assertFalse(fakes.host('h1').closed)
        self.assertTrue(fakes.host('h1', reserved=fakes.TOTAL).closed)


class WindowTest(TestCase):
    def setUp(self):
        self.window = violations.Window()
        self.servers = [fakes.server(1)]

    def violate(self, name, now, **changes):
        self.window.note(fakes.report(name, self.servers, violated=True,
                                      **changes), now)

    def test_first_leaves_at_once_then_they_are_merged(self):
        self.assertEqual((), self.window.due(2.0, 0.0))
        self.violate('h1', 10.0, time=500.0)
        self.assertEqual(('h1',), self.window.due(2.0, 10.0))
        batch = self.window.take(['h1'], 10.0)
        self.assertEqual((('h1',), 500.0), (batch.hosts, batch.reported))
        self.assertFalse(self.window.waiting)
        self.violate('h2', 11.0)
        self.violate('h3', 12.0)
        self.assertEqual((), self.window.due(2.0, 12.9))
        self.assertEqual(('h2', 'h3'), self.window.due(2.0, 13.0))

    def test_after_a_quiet_time_at_once_again(self):
        self.violate('h1', 10.0)
        self.window.take(['h1'], 10.0)
        self.violate('h1', 13.0)
        self.assertEqual(('h1',), self.window.due(2.0, 13.0))

    def test_a_calm_or_silent_host_is_dropped(self):
        self.violate('h1', 1.0)
        self.violate('h2', 1.0)
        self.window.note(fakes.report('h1', self.servers), 1.5)
        self.assertEqual(('h2',), self.window.due(2.0, 9.0))
        self.window.forget({'h1'})
        self.assertFalse(self.window.waiting)

    def test_violation_without_secondaries_is_not_ours(self):
        self.window.note(fakes.report('h1', violated=True), 1.0)
        self.assertFalse(self.window.waiting)

    def test_relief(self):
        self.window.note(fakes.report('h1', self.servers, floored=True), 1.0)
        self.window.note(fakes.report('h1', self.servers, floored=True), 9.0)
        self.assertEqual({}, self.window.relief(20.0, 21.0))
        self.assertEqual({'h1': 1.0}, self.window.relief(20.0, 21.1))
        self.window.note_relief('h1', 21.1, 700.0)
        self.assertEqual(('h1',), self.window.due(2.0, 21.1))
        self.window.note(fakes.report('h1', self.servers, floored=True),
                         22.0)
        self.assertTrue(self.window.waiting)
        self.window.note(fakes.report('h1', self.servers), 23.0)
        self.assertEqual({}, self.window.relief(20.0, 99.0))
        self.assertFalse(self.window.waiting)
        self.window.note(fakes.report('h2', self.servers, floored=True), 1.0)
        self.window.forget(())
        self.assertEqual({}, self.window.relief(20.0, 99.0))


class StagesTest(TestCase):
    def test_lines(self):
        with self.assertLogs(stages.LOG.logger, 'INFO') as logs:
            stages.mark('b', stages.REPORT, 5.0)
            stages.mark_first_call('b1')
            stages.mark_first_call('b1')
        self.assertEqual(2, len(logs.output))
        self.assertIn('secondary-stage batch=b stage=report t=5.000',
                      logs.output[0])
        self.assertIn('batch=b1 stage=first_api_call', logs.output[1])

    def test_memory_is_bounded(self):
        for number in range(stages._REMEMBERED + 10):
            stages.mark_first_call(f'n{number}')
        self.assertEqual(stages._REMEMBERED, len(stages._first_calls))


class PerProcessTest(TestCase):
    def test_once_in_a_process_and_anew_after_a_fork(self):
        made = per_process.PerProcess(object)
        first = made()
        self.assertIs(first, made())
        with mock.patch.object(per_process.os, 'getpid', return_value=-1):
            self.assertIsNot(first, made())


class GoalTest(TestCase):
    def test_specification(self):
        spec = goal.SecondaryWorkloadsGoal.get_efficacy_specification()
        names = {i.name for i in spec.indicators_specs}
        self.assertIn('preempted_instances_count', names)
        spec.validate_efficacy_indicators(dict.fromkeys(names, 0))
        self.assertEqual(
            100.0, spec.get_global_efficacy_indicator({})[0].value)
        self.assertEqual(50.0, spec.get_global_efficacy_indicator({
            'preempted_instances_count': 2,
            'migrated_instances_count': 2})[0].value)

    def test_predicted_usage(self):
        hosts = {name: cluster.Host(name, cpus, {}, cpu_primary=primary)
                 for name, cpus, primary in (
                     ('h1', 64.0, 60.0), ('h2', 128.0, 20.0),
                     ('h3', 2.0, None), ('h4', 2.0, 90.0))}
        instances = {uuid: cluster.Instance(
            uuid, uuid, 'h1', state, 1, 1, 1, cpu=6.4)
            for uuid, state in (('a', cluster.InstanceState.ACTIVE),
                                ('b', cluster.InstanceState.ACTIVE),
                                ('c', cluster.InstanceState.ACTIVE),
                                ('d', cluster.InstanceState.SUSPENDED))}
        effect = goal.Effect(
            cluster.Cluster(hosts, instances),
            operations.Plan(
                (
                    operations.Operation(
                        1,
                        operations.OperationKind.MIGRATE,
                        'a',
                        'a',
                        'h1',
                        'h2',
                        duration_s=1,
                    ),
                    operations.Operation(
                        2,
                        operations.OperationKind.STOP,
                        'b',
                        'b',
                        'h1',
                        None,
                        duration_s=1,
                    ),
                )
            ),
            ('h1', 'h3'),
            share=12.0,
        )
        self.assertEqual([70.0, 25.0], effect.cpu_usage)
        values = effect.indicators()
        self.assertEqual((1, 70, 47.5), (
            values['work_losing_instances_count'],
            values['cpu_usage_highest_predicted'],
            values['cpu_usage_mean_predicted']))

    def test_who_comes_back_is_predicted_to_take_a_share(self):
        hosts = {'h1': cluster.Host('h1', 2.0, {}, cpu_primary=20.0)}
        instances = {uuid: cluster.Instance(
            uuid, uuid, 'h1', state, 1, 1, 1)
            for uuid, state in (('a', cluster.InstanceState.SUSPENDED),
                                ('b', cluster.InstanceState.ACTIVE),
                                ('c', cluster.InstanceState.SUSPENDED))}
        back = operations.Operation(
            1,
            operations.OperationKind.RESUME,
            'a',
            'a',
            'h1',
            'h1',
            duration_s=1,
        )
        effect = goal.Effect(cluster.Cluster(hosts, instances),
                             operations.Plan((back,)), ('h1',), share=12.0)
        self.assertEqual([44.0], effect.cpu_usage)


class LeaderTest(TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def make(self):
        made = leader.Coordination('file://' + self.directory.name)
        self.addCleanup(made.stop)
        return made

    def test_one_leader_and_the_next_when_it_goes(self):
        one, two = self.make(), self.make()
        self.assertTrue(one.am_i_leader())
        self.assertTrue(one.am_i_leader())
        self.assertFalse(two.am_i_leader())
        one.stop()
        self.assertTrue(two.am_i_leader())

    def test_lost_lock(self):
        one = self.make()
        self.assertTrue(one.am_i_leader())
        one._leading.release()
        self.assertFalse(one.am_i_leader())
        self.assertTrue(one.am_i_leader())

    def test_nobody_leads_without_the_service(self):
        made = leader.Coordination('nonsense://')
        self.assertFalse(made.am_i_leader())
        with self.assertRaises(RuntimeError):
            with made.claiming():
                self.fail('claimed')

    def test_claims_exclude_each_other(self):
        one, two = self.make(), self.make()
        with one.claiming():
            with self.assertRaises(RuntimeError):
                with two.claiming(timeout=1):
                    self.fail('claimed twice')
        with two.claiming():
            pass

    def test_claims_of_threads_wait(self):
        one = self.make()
        order = []

        def later():
            with one.claiming():
                order.append('second')
        with one.claiming():
            thread = threading.Thread(target=later)
            thread.start()
            order.append('first')
        thread.join(5)
        self.assertEqual(['first', 'second'], order)
