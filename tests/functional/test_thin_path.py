# SPDX-License-Identifier: Apache-2.0

"""Path from agents' reports to Watcher's actions and to Nova.

Everything between is the real thing: policies, the collector's snapshot, the
decision, the plan and its checker, strategy, planner, actions, and Watcher's
objects in a database.  Nova is a dictionary of servers.
"""

import time
from unittest import mock

from watcher import objects
from watcher.common import exception

from secondary_scheduler.model import reports
from secondary_scheduler.model.reports import PolicyState
from secondary_scheduler.plans import checker
from secondary_scheduler.policies import language, triggers
from secondary_scheduler.watcher import (
    actions,
    cloud_connections,
    cloud_snapshot,
    cluster_state,
    goal,
    leader,
    planner,
    policy_watch,
    poller,
    secondary_action,
    settings,
    strategy,
)
from tests.unit.watcher import fakes

TEXT = 'cpu <= 90% for 10s on aggregate:agg'


class ThinPath(fakes.WatcherTestCase):
    """A cloud of three hosts whose agents follow one policy."""

    def setUp(self):
        super().setUp()
        settings.CONF.set_override('policy', [TEXT], 'secondary_scheduler')
        settings.CONF.set_override('operation_timeout', 10,
                                   'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override, 'operation_timeout',
                        'secondary_watcher')
        self.policy = language.parse(TEXT)
        self.hash = language.fingerprint([self.policy])
        self.triggers = {name: triggers.Trigger(self.policy, 4)
                         for name in ('h1', 'h2', 'h3')}
        self.seq = 0
        self.passed = 0.0       # simulated seconds
        # Slots leave room for one more on h2 and none on h3.
        self.cloud = fakes.FakeCloud(
            [fakes.server(n, 'h1', priority=n) for n in (2, 4, 6)]
            + [fakes.server(n, 'h2') for n in (11, 12)]
            + [fakes.server(n, 'h3') for n in (21, 22, 23)],
            [fakes.host(name, total={**fakes.TOTAL,
                                     'CUSTOM_SECONDARY_SLOT': 3})
             for name in self.triggers])
        self.seen = cluster_state.ClusterState(
            settings.CONF, lambda: self.cloud, self.history,
            clock=lambda: time.monotonic() + self.passed)
        self.patch(strategy.SecondaryWorkloads, 'get_goal',
                   return_value=goal.SecondaryWorkloadsGoal({}))
        self.patch(strategy.SecondaryWorkloads, 'cluster_state', self.seen)
        self.coordination = fakes.coordinate(self)
        self.coordination.renew()
        self.patch(leader, 'shared', lambda: self.coordination)
        self.patch(planner.leader, 'shared', lambda: self.coordination)
        self.patch(cloud_connections, 'shared', lambda: self.cloud)
        self.agents = mock.Mock()
        self.patch(secondary_action, '_agents', lambda: self.agents)
        waiting = poller.Poller(lambda: self.cloud, lambda: 0.01)
        self.patch(secondary_action, '_poller', lambda: waiting)
        self.switch = self.audit(1)
        self.watch = policy_watch.PolicyWatch(
            settings.CONF, self.seen, self.coordination)
        self.report_all(h1=20.0)
        self.seen.refresh()

    def patch(self, target, name, *args, **kwargs):
        patcher = mock.patch.object(target, name, *args, **kwargs)
        patcher.start()
        self.addCleanup(patcher.stop)

    def report(self, name, primary):
        """Check the policy as an agent does and send its report."""
        here = [s for s in self.cloud.known.values()
                if s.host == name and s.status == 'ACTIVE']
        total = primary + 5.0 * len(here)
        trigger = self.triggers[name]
        state = trigger.check(total, bool(here))
        self.seq += 1
        self.seen.accept(reports.HostReport.from_dict(fakes.report(
            name, here, primary, seq=self.seq, time=time.time(),
            policies_hash=self.hash, cpu_total=total,
            policies=(reports.PolicyReport(
                TEXT, 'cpu', 90.0, 10, total, trigger.failed, state),),
        ).to_dict()))
        return state

    def report_all(self, **primaries):
        return {name: self.report(name, primaries.get(name, 20.0))
                for name in self.triggers}

    def children(self):
        return [a for a in objects.Audit.list(self.context)
                if a.audit_type == 'ONESHOT']

    def decide(self, audit):
        """Run an audit as the decision engine does; return its plan."""
        ran = strategy.SecondaryWorkloads({})
        ran.audit_scope = audit.scope
        ran.input_parameters.update(audit.parameters)
        with mock.patch.object(checker, 'check',
                               side_effect=checker.check) as checked:
            solution = ran.execute(audit)
        self.assertEqual(1, checked.call_count)
        plan = planner.SecondaryPlanner({}).schedule(
            self.context, audit.id, solution)
        return [a for a in objects.Action.list(self.context, eager=True)
                if a.action_plan_id == plan.id]

    def carry_out(self, rows):
        """Run a plan's actions as the applier does, parents first."""
        done = set()
        while left := [a for a in rows if a.uuid not in done]:
            action = next(a for a in left if set(a.parents or ()) <= done)
            kind = action.action_type.removeprefix('secondary_')
            made = getattr(actions, kind.capitalize())({})
            made.input_parameters = action.input_parameters
            self.assertTrue(made.validate_parameters())
            try:
                made.pre_condition()
                action.state = ('SUCCEEDED' if made.execute() else 'FAILED')
            except exception.ActionSkipped:
                action.state = 'SKIPPED'
            action.save()
            done.add(action.uuid)

    def on(self, name):
        return {s.uuid for s in self.cloud.known.values()
                if s.host == name and s.status == 'ACTIVE'}

    def violate(self):
        """Let the primary on h1 be busy until the trigger fires."""
        states = [self.report_all(h1=85.0)['h1'] for _ in range(4)]
        self.assertEqual([PolicyState.FAILING] * 3 + [PolicyState.VIOLATED],
                         states)

    def preempt(self):
        self.violate()
        self.watch.tick()
        audit, = self.children()
        rows = self.decide(audit)
        self.carry_out(rows)
        return audit, rows

    def test_no_violation_no_audit(self):
        for _ in range(3):
            self.report_all(h1=85.0)
            self.watch.tick()
        self.report_all(h1=20.0)
        self.watch.tick()
        self.assertEqual([], self.children())

    def test_a_violation_becomes_moves_on_the_cloud(self):
        audit, rows = self.preempt()
        self.assertEqual(['h1'], audit.parameters['hosts'])
        self.assertIn(audit.parameters['batch'], audit.name)
        # No room is left on h1 at 85 %: the highest goes to the one free
        # place, the others are suspended, no other instance is touched.
        self.assertEqual(set(), self.on('h1'))
        self.assertEqual({fakes.uid(n) for n in (6, 11, 12)}, self.on('h2'))
        self.assertEqual({fakes.uid(n) for n in (21, 22, 23)}, self.on('h3'))
        for number in (2, 4):
            server = self.cloud.known[fakes.uid(number)]
            self.assertEqual('SUSPENDED', server.status)
            self.assertIn(cloud_snapshot.PREEMPTED, server.metadata)
        self.assertEqual({'SUCCEEDED'}, {a.state for a in rows})
        self.assertEqual({('h1', fakes.uid(n)) for n in (2, 4, 6)}, {
            call.args[:2]
            for call in self.agents.hand_over.call_args_list})

    def test_one_violation_one_audit(self):
        self.violate()
        for _ in range(5):
            self.watch.tick()
            self.report_all(h1=85.0)
        self.assertEqual(1, len(self.children()))

    def test_calm_brings_all_back(self):
        self.preempt()
        self.passed += 2.0           # rounds give way to a plan's first calls
        self.report_all(h1=10.0)     # home is the emptier host
        # Their rest after the operation must be over.
        settings.CONF.set_override('backoff', 0.0, 'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override, 'backoff',
                        'secondary_watcher')
        for _ in range(3):      # as the switch does every few seconds
            self.carry_out(self.decide(self.switch))
            self.report_all(h1=10.0)
        self.assertEqual({fakes.uid(n) for n in (2, 4, 6)}, self.on('h1'))
        for server in self.cloud.known.values():
            self.assertEqual('ACTIVE', server.status)
            self.assertNotIn(cloud_snapshot.PREEMPTED, server.metadata)
            self.assertNotIn(cloud_snapshot.ORIGIN, server.metadata)
        # And then there is nothing more to do.
        self.assertEqual([], self.decide(self.switch))

    def test_agents_with_other_policies_are_no_targets(self):
        right, self.hash = self.hash, 'other'
        self.report('h2', 20.0)
        self.report('h3', 20.0)
        self.hash = right
        for _ in range(4):
            self.report('h1', 85.0)
        self.watch.tick()
        audit, = self.children()
        rows = self.decide(audit)
        self.assertEqual({'secondary_suspend'},
                         {a.action_type for a in rows})

    def test_what_changes_meanwhile_is_left_alone(self):
        self.violate()
        self.watch.tick()
        audit, = self.children()
        rows = self.decide(audit)
        # The owner deletes one, and another's flavor is no secondary's.
        gone = fakes.uid(2)
        del self.cloud.known[gone]
        primary = fakes.uid(4)
        with mock.patch.object(
                self.cloud, 'server', wraps=lambda key, ask=self.cloud.server:
                None if key == primary else ask(key)):
            self.carry_out(rows)
        states = {a.input_parameters['resource_id']: a.state for a in rows}
        self.assertEqual('SKIPPED', states[gone])
        self.assertEqual('SKIPPED', states[primary])
        self.assertFalse([call for call in self.cloud.calls
                          if call[1] in (gone, primary)])

    def test_off_means_nothing_is_decided(self):
        self.violate()
        self.watch.tick()
        audit, = self.children()
        self.switch.state = 'CANCELLED'
        self.switch.save()
        ran = strategy.SecondaryWorkloads({})
        ran.audit_scope = audit.scope
        ran.input_parameters.update(audit.parameters)
        self.assertEqual([], ran.execute(audit).actions)
