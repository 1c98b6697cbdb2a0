# SPDX-License-Identifier: Apache-2.0

"""Efficacy of plans."""

from unittest import TestCase

from secondary_scheduler.model import (
    cluster,
)
from secondary_scheduler.plans import operations
from secondary_scheduler.watcher import (
    goal,
)


class GoalTest(TestCase):
    def test_indicators_are_valid_and_give_the_ratio(self):
        spec = goal.SecondaryWorkloadsGoal.get_efficacy_specification()
        names = {i.name for i in spec.indicators_specs}
        self.assertIn('preempted_instances_count', names)
        spec.validate_efficacy_indicators(dict.fromkeys(names, 0))
        self.assertEqual(
            100.0, spec.get_global_efficacy_indicator({})[0].value)
        self.assertEqual(50.0, spec.get_global_efficacy_indicator({
            'preempted_instances_count': 2,
            'migrated_instances_count': 2})[0].value)

    def test_cpu_use_is_predicted_for_concerned_hosts(self):
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

    def test_returning_instance_is_predicted_to_use_a_share(self):
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

    def test_resume_followed_by_a_migration_is_remote(self):
        kinds = operations.OperationKind
        effect = goal.Effect(cluster.Cluster({}, {}), operations.Plan(tuple(
            operations.Operation(number, kind, uuid, 'l', 'h1', 'h1',
                                 start_s=number, duration_s=5.0)
            for number, (kind, uuid) in enumerate((
                (kinds.RESUME, 'a'), (kinds.RESUME, 'b'), (kinds.RESUME, 'c'),
                (kinds.MIGRATE, 'b'), (kinds.MIGRATE, 'd'))))), (), 10.0)
        self.assertEqual((2, 1), effect.resumes)
        self.assertEqual(9.0, effect.predicted_s)
        self.assertEqual(0.0, effect.claimed(lambda claim: claim.value))
