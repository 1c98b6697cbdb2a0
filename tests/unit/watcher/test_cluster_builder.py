# SPDX-License-Identifier: Apache-2.0

"""Cluster model, from facts of Nova and reports of agents."""

import dataclasses
import datetime
from unittest import TestCase

from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
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
from secondary_scheduler.watcher import (
    cloud_snapshot,
    cluster_builder,
    locks,
    scope,
)
from secondary_scheduler.watcher.lease_facts import LeaseFacts
from tests.unit.watcher import fakes


class BuildTest(TestCase):
    def build(self, servers=(), hosts=(), fresh=(), inside=('h1', 'h2'),
              unseen=(), **changes):
        arguments = {'locks': locks.Locks(), 'durations': Durations(),
                     'relief': (), 'policies_hash': None, 'share': 6.0,
                     **changes}
        return cluster_builder.build_cluster(
            cloud_snapshot.CloudSnapshot(
                {h.name: h for h in hosts}, {s.uuid: s for s in servers},
                unseen=frozenset(map(fakes.uid, unseen))),
            scope.ResolvedScope(frozenset(inside)),
            {r.host: r for r in fresh}, **arguments)

    def test_cpu_use_counts_up_to_the_share(self):
        report = fakes.report('h1', [fakes.server(1)])
        for cpu, cap, floored, counted in (
                (2.0, 20.0, False, 2.0),    # below its limit
                (9.0, 20.0, False, 6.0),    # above the share
                (2.0, 2.1, False, 6.0),     # held by its limit
                (0.1, 20.0, True, 6.0), (None, 20.0, False, None),
                (4.0, None, False, 4.0)):
            seen = dataclasses.replace(report, instances=(dataclasses.replace(
                report.instances[0], cpu=cpu, cap=cap, floored=floored),))
            found = self.build([fakes.server(1)], [fakes.host('h1')], [seen])
            self.assertEqual(
                counted and counted / 100 * report.cpus,
                found.instances[fakes.uid(1)].cpu)

    def test_dirty_memory_is_taken_from_the_report(self):
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

    def test_use_of_other_resources_is_in_their_units(self):
        report = fakes.report('h1', [fakes.server(1)], usage={'mem': 55.5})
        report = dataclasses.replace(report, instances=(dataclasses.replace(
            report.instances[0], usage={
                'mem': 12.5, 'net_in': -1.0, 'net_out': 20.0,
                'disk_in': 30.0}),), capacities={
                    'net_in': 125.0, 'net_out': 1250.0})
        found = self.build([fakes.server(1)],
                           [fakes.host('h1'), fakes.host('h2')], [report])
        # The capacity of the disks is unknown, so 30 % of it is no amount.
        self.assertEqual({'mem': 512.0, 'net_in': 0.0, 'net_out': 250.0},
                         found.instances[fakes.uid(1)].usage)
        self.assertEqual(
            {'mem': 4096, 'net_in': 125.0, 'net_out': 1250.0},
            found.hosts['h1'].capacities)
        self.assertEqual([55.5, None], [
            found.hosts[name].primary_use('mem') for name in ('h1', 'h2')])

    def test_instance_that_is_down_is_expected_to_use_its_memory(self):
        down = dataclasses.replace(fakes.server(1), status='SUSPENDED')
        for memory_mb, usage in ((4096, {'mem': 512.0}), (0, {})):
            report = fakes.report('h1', memory_mb=memory_mb)
            found = self.build([down], [fakes.host('h1')], [report])
            self.assertEqual(usage, found.instances[fakes.uid(1)].usage)
        found = self.build([down], [fakes.host('h1')], [])
        self.assertEqual({}, found.instances[fakes.uid(1)].usage)

    def test_host_is_usable_only_with_all_facts_known(self):
        good = fakes.report('h1')
        h1 = fakes.host('h1')
        self.assertTrue(self.build((), [h1], [good]).hosts['h1'].usable)
        for hosts, fresh, more in (
                ([fakes.host('h1', up=False)], [good], {}),
                ([fakes.host('h1', total={})], [good], {}),
                ([fakes.host('h1', disabled=True)], [good], {}),
                ([fakes.host('h1', switched_off=True)], [good], {}),
                ([fakes.host('h1', unreachable=True)], [good], {}),
                ([h1], [], {}),
                ([h1], [fakes.report('h1', admission=False)], {}),
                ([h1], [good], {'policies_hash': 'other'}),
                ([h1], [good], {'inside': ('h2',)})):
            self.assertFalse(self.build(
                (), hosts, fresh, **more).hosts['h1'].usable)

    def test_unseen_instance_stays_on_its_host_and_is_blocked(self):
        servers = [fakes.server(1), fakes.server(2, 'h2'),
                   fakes.server(3, 'h2', status='SUSPENDED')]
        found = self.build(
            servers, [fakes.host('h1'), fakes.host('h2', unreachable=True)],
            [fakes.report('h1', servers[:1])], unseen=(2, 3))
        self.assertEqual(
            [('h1', False), ('h2', True), ('h2', True)],
            [(one.host, one.blocked) for one in found.instances.values()])
        # They keep their place: the host is not empty.
        self.assertEqual(0, found.hosts['h2'].reserved[vocabulary.SLOT])
        full = self.build(
            servers, [fakes.host('h2', unreachable=True,
                                 used={vocabulary.SLOT: 5})], unseen=(2, 3))
        self.assertEqual(3, full.hosts['h2'].reserved[vocabulary.SLOT])

    def test_host_that_is_unreachable_is_no_target(self):
        limits = LoadLimits()
        servers = [fakes.server(number) for number in (1, 2, 3)]
        violated = fakes.report('h1', servers, primary=90.0, violated=True)
        for unreachable, kinds in ((False, {'migrate'}), (True, {'suspend'})):
            world = self.build(
                servers,
                [fakes.host('h1'), fakes.host('h2', unreachable=unreachable)],
                [violated, fakes.report('h2')])
            for request in ('preempt', 'drain'):
                plan = GuidedDecision(
                    limits, profile=with_agents(limits)).decide(
                        world, DecisionRequest(
                            request, frozenset({'h1'})), Budget())
                with self.subTest(request, unreachable=unreachable):
                    self.assertEqual(
                        kinds, {one.kind for one in plan.operations})

    def test_predictions_and_classes_are_taken_over(self):
        arrivals = {'web': (1.5, 0.0)}
        found = self.build(
            [fakes.server(1, workload_class='web')],
            [fakes.host('h1'), fakes.host('h2')],
            [fakes.report('h1', arrivals=arrivals)])
        self.assertEqual('web', found.instances[fakes.uid(1)].workload_class)
        self.assertEqual([arrivals, {}], [
            one.arrivals for one in found.hosts.values()])

    def test_a_report_counts_only_where_nova_has_the_instance(self):
        here, there = fakes.server(1, 'h1'), fakes.server(2, 'h2')
        found = self.build(
            [here, there], [fakes.host('h1'), fakes.host('h2')],
            [fakes.report('h1', [here, there])])
        self.assertEqual(0.12, found.instances[fakes.uid(1)].cpu)
        self.assertIsNone(found.instances[fakes.uid(2)].cpu)

    def test_claims_of_others_are_reserved(self):
        hosts = [fakes.host('h1', reserved=dict.fromkeys(fakes.TOTAL, 1))]
        for used, reserved in ((0, 1), (2, 1), (3, 2), (5, 4)):
            found = self.build(
                [fakes.server(1), fakes.server(2, status='SUSPENDED'),
                 fakes.server(3, 'h2'), fakes.server(4, None)],
                [dataclasses.replace(hosts[0], used={vocabulary.SLOT: used})])
            self.assertEqual({**hosts[0].reserved, vocabulary.SLOT: reserved},
                             found.hosts['h1'].reserved)

    def test_operation_in_flight_is_reserved_once(self):
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

    def test_remaining_time_depends_on_memory(self):
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

    def test_violations_and_relief_count_inside_the_scope(self):
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

    def with_signal(self, state, suspect=None):
        servers = [fakes.server(n, priority=n) for n in (1, 2, 3)]
        seen = fakes.report('h1', servers)
        seen = dataclasses.replace(seen, instances=tuple(
            dataclasses.replace(one, suspect=one.uuid == suspect)
            for one in seen.instances), policies=(
            *seen.policies, reports.PolicyReport(
                'probe:p99_ms <= 20 for 5s', 'probe:p99_ms', 20.0, 5, 31.0,
                2, state)))
        return self.build(servers, [fakes.host('h1'), fakes.host('h2')],
                          [seen, fakes.report('h2')])

    def test_violated_signal_counts_as_cpu_violation(self):
        for state, violated in ((reports.PolicyState.VIOLATED, True),
                                (reports.PolicyState.INVALID, True),
                                (reports.PolicyState.FAILING, False),
                                (reports.PolicyState.UNKNOWN, False)):
            host = self.with_signal(state).hosts['h1']
            self.assertEqual([('cpu', violated)], [
                (one.resource, one.violated) for one in host.policies])

    def test_one_instance_leaves_for_a_violated_signal(self):
        limits = LoadLimits()
        world = self.with_signal(reports.PolicyState.VIOLATED)
        plan = GuidedDecision(limits, profile=with_agents(limits)).decide(
            world, DecisionRequest('preempt'), Budget())
        self.assertEqual(
            [('migrate', 'h1', 'h2')],
            [(one.kind, one.source, one.target) for one in plan.operations])

    def test_confirmed_suspect_leaves_first(self):
        limits = LoadLimits()
        for number in (1, 2, 3):
            suspect = fakes.server(number).uuid
            plan = GuidedDecision(limits, profile=with_agents(limits)).decide(
                self.with_signal(reports.PolicyState.VIOLATED, suspect),
                DecisionRequest('preempt'), Budget())
            self.assertEqual([suspect],
                             [one.instance for one in plan.operations])

    def test_waiting_leases_have_priority_and_waiting_time(self):
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
            {'p1:1': (5, 3), 'p1:2': (5, 0), 'p1:l': (6, 1), 'p1:6': (5, 0)},
            {name: (one.priority, round(one.waited_s / 3600, 2))
             for name, one in found.items()})
        self.assertFalse([one for one in found.values()
                          if one.state in lease_states.QUEUED])

    def test_wanted_cpu_is_the_use_unless_a_limit_is_reached(self):
        one = fakes.server(1, vcpus=2)
        report = fakes.report('h1', [one])
        for cpu, cap, floored, wanted in (
                (2.0, 20.0, False, 0.04),   # 2 % of two CPUs
                (18.0, 20.0, False, 2.0),   # throttled
                (0.1, 20.0, True, 2.0), (150.0, None, False, 2.0),
                (None, 20.0, False, None)):
            seen = dataclasses.replace(report, instances=(dataclasses.replace(
                report.instances[0], cpu=cpu, cap=cap, floored=floored),))
            found = self.build([one], [fakes.host('h1')], [seen])
            self.assertEqual(wanted, found.instances[one.uuid].wanted_cpu)
        silent = self.build([one], [fakes.host('h1')])
        self.assertIsNone(silent.instances[one.uuid].wanted_cpu)

    def test_limit_of_some_seconds_does_not_count_for_the_demand(self):
        one = fakes.server(1, vcpus=2)
        report = fakes.report('h1', [one], floored=True)
        found = self.build([one], [fakes.host('h1')], [report],
                           facts=LeaseFacts(unlimited={one.uuid: 0.04}))
        self.assertEqual(0.04, found.instances[one.uuid].wanted_cpu)

    def test_instance_that_is_down_wants_what_it_wanted_before(self):
        for stored, wanted in (('0.125', 0.125), ('9', 2.0), ('-1', 0.5),
                               ('nan', 0.5), ('tea', 0.5), (None, 0.5)):
            one = fakes.server(1, vcpus=2, status='SUSPENDED', metadata={
                cloud_snapshot.WANTED_CPU: stored} if stored else {})
            found = self.build([one], [fakes.host('h1')], facts=LeaseFacts(
                default_demand=25.0))
            self.assertEqual(wanted, found.instances[one.uuid].wanted_cpu)

    def test_instance_that_is_down_uses_what_it_used_before(self):
        for stored, used in (
                ('net_in=25.000 disk_in=0.5', {'net_in': 25, 'disk_in': 0.5}),
                ('net_in=-1 net_out=tea cpu=3 =4 disk_in', {}),
                ('net_in=1e400 net_out=2', {'net_out': 2}), (None, {})):
            down, runs = (fakes.server(1, status=status, metadata={
                cloud_snapshot.USED: stored} if stored else {})
                for status in ('SUSPENDED', 'ACTIVE'))
            found = self.build([down], [fakes.host('h1')])
            self.assertEqual(used, found.instances[down.uuid].usage)
            found = self.build([down], [fakes.host('h1')],
                               [fakes.report('h1')])
            self.assertEqual({**used, 'mem': down.memory_mb},
                             found.instances[down.uuid].usage)
            found = self.build([runs], [fakes.host('h1')])
            self.assertEqual({}, found.instances[runs.uuid].usage)

    def test_running_time_is_that_since_the_last_boot_or_return(self):
        now = datetime.datetime.now(datetime.UTC)
        launched = {'launched': now - datetime.timedelta(seconds=500)}
        for values, returned, seconds in (
                (launched, {}, 500), (launched, {fakes.uid(1): 60.0}, 60),
                ({}, {fakes.uid(1): 60.0}, 60), ({}, {}, None)):
            found = self.build([fakes.server(1, **values)], facts=LeaseFacts(
                returned=returned)).instances[fakes.uid(1)].running_s
            self.assertEqual(seconds, found and round(found))

    def test_claims_exceed_the_inventory_by_the_allocation_ratio(self):
        host = fakes.host('h1', reserved={vocabulary.VCPU: 2}, ratios={
            vocabulary.VCPU: 2.0, vocabulary.MEMORY_MB: 1.5}, used={
                vocabulary.VCPU: 3})
        found = self.build([fakes.server(1)], [host]).hosts['h1']
        self.assertEqual(8 * 2, found.total[vocabulary.VCPU])
        room = {name: found.total[name] - found.reserved[name]
                for name in found.total}
        # Two of the three VCPUs are claimed by others.
        self.assertEqual((8 - 2) * 2 - 2, room[vocabulary.VCPU])
        self.assertEqual(8192 * 3 // 2, room[vocabulary.MEMORY_MB])
        self.assertEqual(100, room[vocabulary.DISK_GB])

    def test_claims_of_expected_servers_are_held_at_any_ratio(self):
        # Beside the running server, two of four vCPUs are expected.
        expected = {vocabulary.VCPU: 1 + 2, vocabulary.MEMORY_MB: 512 + 2048,
                    vocabulary.DISK_GB: 1 + 20, vocabulary.SLOT: 1}
        for ratio, room in ((1.0, (8 - 2 - 2, 8192 - 512 - 512 - 2048,
                                   100 - 1 - 1 - 20)),
                            (2.0, (12, 13312, 178)),
                            (16.0, (124, 128000, 1578)),
                            (0.5, (0, 1024, 28))):
            found = self.build(
                [fakes.server(1), fakes.server(2, status='SUSPENDED')],
                [fakes.host('h1', ratios=dict.fromkeys(fakes.TOTAL, ratio)),
                 fakes.host('h2')],
                facts=LeaseFacts(expected_claims={'h1': expected}))
            host = found.hosts['h1']
            self.assertEqual((2, 2048, 20, 0), tuple(
                host.held[name] for name in vocabulary.RESOURCE_CLASSES))
            claimed = {vocabulary.VCPU: 2, vocabulary.MEMORY_MB: 1024,
                       vocabulary.DISK_GB: 2}
            self.assertEqual(room, tuple(
                host.total[name] - host.reserved[name] - host.held[name]
                - claimed[name] for name in claimed))
            self.assertEqual({}, found.hosts['h2'].held)

    def test_servers_that_exceed_expected_claims_leave_nothing_held(self):
        found = self.build(
            [fakes.server(1, vcpus=4)],
            [fakes.host('h1', total={vocabulary.VCPU: 8})],
            facts=LeaseFacts(expected_claims={'h1': {
                vocabulary.VCPU: 3, vocabulary.DISK_GB: 9}}))
        self.assertEqual({vocabulary.VCPU: 0}, found.hosts['h1'].held)

    def test_leases_have_an_age_and_guaranteed_starts(self):
        now = datetime.datetime.now(datetime.UTC)
        found = self.build([
            fakes.server(number, created=now - datetime.timedelta(
                hours=number), hints={vocabulary.LEASE_HINT: 'l'})
            for number in (1, 2)] + [fakes.server(3)], facts=LeaseFacts(
                guaranteed=frozenset({'p1:l'}))).leases
        self.assertEqual(
            {'p1:l': (True, 3600), fakes.uid(3): (False, None)},
            {name: (one.guaranteed, one.age_s and round(one.age_s))
             for name, one in found.items()})

    def test_marks_and_locks_set_flags_of_instances(self):
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
                just_failed_instances=frozenset({fakes.uid(4)}),
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
                fakes.server(2, status='SUSPENDED'),    # by its owner
                fakes.server(3, metadata=mark),         # by its owner
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
