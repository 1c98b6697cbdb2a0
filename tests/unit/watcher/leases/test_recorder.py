# SPDX-License-Identifier: Apache-2.0

"""Records of hosts and operations, written by the leader."""

import datetime
import time
from unittest import mock

import jsonschema
from oslo_utils import timeutils
from watcher import objects

from secondary_scheduler.leases.api import record_schemas
from secondary_scheduler.leases.api.db import (
    host_states,
    migration,
    recorded_plans,
)
from secondary_scheduler.model import reports, vocabulary
from secondary_scheduler.watcher import (
    cloud_snapshot,
    cluster_state,
    decision_measures,
    settings,
)
from secondary_scheduler.watcher.duration_record import DurationRecord
from secondary_scheduler.watcher.leases import (
    plan_records,
    record_writer,
    recorder,
)
from tests.unit.watcher import fakes, report_case

LEASE = fakes.uid(700)


class RecorderCase(report_case.ReportCase):

    def setUp(self):
        super().setUp()
        settings.CONF.set_override('database_url', 'sqlite://',
                                   'secondary_lease_api')
        self.addCleanup(settings.CONF.clear_override, 'database_url',
                        'secondary_lease_api')
        self.switch = self.audit(1, parameters={'leases': True})
        self.seen.refresh()
        self.recorder = recorder.Recorder(settings.CONF, self.seen,
                                          self.leading)
        self.writer = record_writer.RecordWriter(settings.CONF, self.seen)
        self.recorder._writer = self.writer
        self.db = self.writer._database
        migration.sync(self.db.engine)

    def hosts(self):
        return {one.name: one for one in host_states.read_hosts(self.db)}


class HostRecordTest(RecorderCase):

    def document(self, name='h1'):
        self.recorder.tick()
        found = self.hosts()[name].document
        jsonschema.Draft202012Validator(record_schemas.make_answer(
            record_schemas.CAPACITY)).validate(found)
        return found

    def test_host_is_recorded_with_use_policies_and_inventory(self):
        self.report('h1', instances=(reports.InstanceReport(
            fakes.uid(1), 5, 10.0, 20.0, floored=True),))
        found = self.document()
        self.assertEqual(
            (True, 'open', '', 2.0, 4096, 1, ['agg'], 'nova'),
            tuple(found[name] for name in (
                'known', 'admission', 'reason', 'cpus', 'memory_mb',
                'at_floor', 'aggregates', 'availability_zone')))
        self.assertEqual([{'resource': 'cpu', 'unit': '%', 'primary': 10.0,
                           'secondary': 10.0, 'limit': 90.0}], found['use'])
        self.assertEqual([{
            'policy': 'cpu <= 90% for 10s', 'resource': 'cpu', 'unit': '%',
            'usage': 50.0, 'threshold': 90.0, 'time_limit': 10,
            'failed_checks': 0, 'state': 'held'}], found['policies'])
        self.assertEqual(
            {vocabulary.VCPU: ('vCPU', 0, 8, 8),
             vocabulary.MEMORY_MB: ('MiB', 0, 8192, 8192),
             vocabulary.DISK_GB: ('GiB', 0, 100, 100),
             vocabulary.SLOT: ('slots', 0, 8, 8)},
            {one['resource_class']: tuple(one[name] for name in (
                'unit', 'used', 'allowed', 'total'))
             for one in found['inventory']})
        secondary, = found['secondaries']
        self.assertEqual((fakes.uid(1), 'p1', 10.0, 20.0, True), tuple(
            secondary[name] for name in (
                'server_id', 'project_id', 'cpu', 'limit', 'at_floor')))
        self.assertAlmostEqual(time.time(), self.hosts()['h1'].reported_at,
                               delta=5)

    def test_host_without_a_report_is_unknown(self):
        found = self.document()
        self.assertEqual((False, 'unknown', [], None), tuple(
            found[name] for name in (
                'known', 'admission', 'use', 'at_floor')))
        self.assertEqual([(fakes.uid(1), None)], [
            (one['server_id'], one['cpu']) for one in found['secondaries']])
        self.assertIsNone(self.hosts()['h1'].reported_at)

    def test_unknown_use_of_one_secondary_makes_the_sum_unknown(self):
        self.report('h1', cpu_primary=None, instances=tuple(
            reports.InstanceReport(fakes.uid(one), 5, use)
            for one, use in ((1, 10.0), (2, None))))
        use, = self.document()['use']
        self.assertEqual((None, None), (use['primary'], use['secondary']))

    def test_units_of_policies_are_those_of_their_resources(self):
        self.report('h1', usage={'mem': 40.0}, policies=tuple(
            reports.PolicyReport(f'{name} <= 3', name, 3.0, 60, 1.0, 0,
                                 reports.PolicyState.HELD)
            for name in ('slots', 'mem', 'pressure', 'probe:p99')))
        found = self.document()
        self.assertEqual(['secondaries', '%', '%', ''],
                         [one['unit'] for one in found['policies']])
        # Secondaries have no known part in signals and probes.
        self.assertEqual([('cpu', None), ('mem', 3.0)], [
            (one['resource'], one['limit']) for one in found['use']])

    def test_hosts_without_inventory_are_left_out(self):
        self.cloud.places['h2'] = fakes.host('h2', total={})
        self.seen.refresh()
        self.recorder.tick()
        self.assertEqual({'h1'}, self.hosts().keys())

    def test_nothing_is_recorded_unless_leading_for_leases(self):
        self.leading.am_i_leader.return_value = False
        self.recorder.tick()
        self.leading.am_i_leader.return_value = True
        self.switch.parameters = {}
        self.switch.save()
        self.recorder.tick()
        self.assertEqual({}, self.hosts())

    def test_hosts_are_not_deleted_before_the_first_snapshot(self):
        self.recorder.tick()
        with mock.patch.object(
                cluster_state.ClusterState, 'snapshot',
                cloud_snapshot.CloudSnapshot()):
            self.recorder.tick()
        self.assertEqual({'h1', 'h2'}, self.hosts().keys())

    def test_trouble_is_logged_once(self):
        for _ in range(2):
            with mock.patch.object(self.writer, 'write',
                                   side_effect=OSError('away')), (
                    self.assertLogs() if not _ else self.assertNoLogs()):
                self.recorder.tick()


class PlanRecordTest(RecorderCase):

    def records(self):
        found = plan_records.find_changed_plans(
            timeutils.utcnow() - datetime.timedelta(seconds=60),
            self.seen.snapshot.servers)
        for one in found:
            for operation in one.operations:
                jsonschema.Draft202012Validator(record_schemas.make_answer(
                    record_schemas.OPERATION)).validate({
                        **operation.document, 'id': operation.id,
                        'server_id': operation.server_id,
                        'source': operation.source,
                        'target': operation.target, 'began_at': None,
                        'ended_at': None})
        return found

    def end(self, action, state='SUCCEEDED', message=None):
        action.state, action.status_message = state, message
        action.save()

    def indicate(self, plan, name, value):
        objects.EfficacyIndicator(
            self.context, uuid=fakes.uid(500), name=name, unit='s',
            description='', value=value, action_plan_id=plan.id).create()

    def test_plan_is_recorded_with_operations_and_indicators(self):
        plan = self.plan(self.audit(2, audit_type='ONESHOT'))
        self.indicate(plan, 'duration_predicted', 7.5)
        self.action(plan, 'migrate', 1, target='h2', request='preempt',
                    lease='p1:night', expected=5.0)
        ended = self.action(plan, 'suspend', 2, source='h2')
        self.end(ended, message=DurationRecord(3.5, 1801382400.0, 512
                                               ).to_message())
        one, = self.records()
        self.assertEqual(('preempt', 'ONGOING', fakes.uid(2), 'ONESHOT', 7.5),
                         (one.request, one.state, one.document['audit_id'],
                          one.document['audit_type'],
                          one.document['predicted']))
        self.assertEqual([{'name': 'duration_predicted', 'value': 7.5,
                           'unit': 's'}], one.document['indicators'])
        migrate, suspend = one.operations
        self.assertEqual(
            (fakes.uid(1), 'h1', 'h2', None, None, 'migrate', 'night', 5.0),
            (migrate.server_id, migrate.source, migrate.target,
             migrate.began_at, migrate.ended_at, migrate.document['kind'],
             migrate.document['lease_id'], migrate.document['predicted']))
        self.assertEqual(
            (1801382396, 1801382400, 3.5, 'SUCCEEDED', ''),
            (suspend.began_at, suspend.ended_at, suspend.document['seconds'],
             suspend.document['state'], suspend.document['reason']))

    def test_failed_operation_has_its_reason(self):
        plan = self.plan(self.switch)
        self.end(self.action(plan), 'FAILED',
                 'suspend of x failed (transient): no space left')
        self.end(self.action(plan, instance=2), 'SKIPPED', 'not needed: off')
        one, = self.records()
        self.assertEqual(['no space left', 'not needed: off'], [
            operation.document['reason'] for operation in one.operations])

    def test_each_member_of_a_lease_has_an_operation(self):
        plan = self.plan(self.switch)
        self.action(plan, 'suspend_lease', members=[
            {'resource_id': fakes.uid(one), 'source': f'h{one}'}
            for one in (1, 2)])
        one, = self.records()
        self.assertEqual([(fakes.uid(1), 'h1', 'suspend'),
                          (fakes.uid(2), 'h2', 'suspend')], [
            (each.server_id, each.source, each.document['kind'])
            for each in one.operations])

    def test_boot_names_its_server_as_soon_as_there_is_one(self):
        plan = self.plan(self.switch)
        action = objects.Action(
            self.context, uuid=fakes.uid(600), action_plan_id=plan.id,
            action_type='secondary_boot', state='PENDING', parents=[],
            input_parameters={
                'resource_id': LEASE, 'place': f'{LEASE}:1', 'target': 'h1',
                'request': 'leases', 'lease': f'p1:{LEASE}',
                'build': {'name': 'x-1'}})
        action.create()
        one, = self.records()[0].operations
        self.assertEqual((None, 'x-1', LEASE), (
            one.server_id, one.document['server_name'],
            one.document['lease_id']))
        self.cloud.change(1, metadata={
            vocabulary.LEASE_METADATA: LEASE, 'secondary:node': '1'})
        self.seen.refresh()
        one, = self.records()[0].operations
        self.assertEqual(fakes.uid(1), one.server_id)

    def test_empty_plans_and_plans_of_others_are_left_out(self):
        self.plan(self.switch)
        other = objects.Strategy(
            self.context, uuid=fakes.uid(903), name='other',
            display_name='o', goal_id=self.goal.id, parameters_spec={})
        other.create()
        plan = objects.ActionPlan(
            self.context, uuid=fakes.uid(904), audit_id=self.switch.id,
            strategy_id=other.id, state='ONGOING', global_efficacy=[])
        plan.create()
        objects.Action(
            self.context, uuid=fakes.uid(905), action_plan_id=plan.id,
            action_type='migrate', state='PENDING', parents=[],
            input_parameters={'resource_id': fakes.uid(1)}).create()
        self.assertEqual([], self.records())

    def test_operations_are_recorded_as_they_change(self):
        action = self.action(self.plan(self.switch))
        self.recorder.tick()
        action.state = 'ONGOING'
        action.save()
        self.recorder.tick()
        began = recorded_plans.read_plans(self.db)[0].operations[0].began_at
        self.assertIsNotNone(began)
        self.end(action, 'FAILED', 'failed (transient): away')
        self.recorder.tick()
        plan, = recorded_plans.read_plans(self.db)
        one, = plan.operations
        self.assertEqual((began, 'FAILED'),
                         (one.began_at, one.document['state']))
        self.assertIsNotNone(one.ended_at)

    def test_unchanged_plans_are_not_written_again(self):
        self.action(self.plan(self.switch))
        self.recorder.tick()
        with mock.patch.object(recorded_plans, 'write_plans') as write:
            self.recorder.tick()
        self.assertEqual([], write.call_args[0][1])

    def test_operations_that_end_are_counted_once(self):
        measures = decision_measures.DecisionMeasures()
        with mock.patch.object(decision_measures, 'shared',
                               return_value=measures):
            plan = self.plan(self.switch)
            first, second = self.action(plan), self.action(plan, instance=2)
            self.end(self.action(plan, instance=3))    # before the start
            self.recorder.tick()
            self.end(first, message=DurationRecord(3.5, 1801382400.0
                                                   ).to_message())
            self.end(second, 'FAILED', 'failed (transient): away')
            for _ in range(2):
                self.recorder.tick()
        self.assertEqual({('suspend', 'succeeded'): 1,
                          ('suspend', 'failed'): 1}, dict(measures.ended))
        self.assertEqual(3.5, measures.operation_seconds['suspend',].total)
