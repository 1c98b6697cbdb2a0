# SPDX-License-Identifier: Apache-2.0

"""The whole agent with a secondary that cannot be limited.

It must never report a limit that is not in force.
"""

import os
from unittest import mock

from secondary_scheduler.agent import local_trigger, metrics
from secondary_scheduler.agent.floors import Reason
from secondary_scheduler.model.reports import PolicyState
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase

UUID = fakes.UUIDS[0]
NAME = 'instance-00000000'


class WholeAgent(AgentTestCase):
    """The whole agent with such a guest."""

    version = 2

    def setUp(self):
        super().setUp()
        self.host.guest(0)
        inner = self.host.cpu(self.host.scope(NAME, 1)) + '/libvirt'
        self.file = f'{inner}/vcpu1/cpu.max'
        os.remove(self.host.path(self.file))

    def agent(self, percent=30.0):
        agent = self.make()
        agent.step()
        self.steps(agent, 8, percent, g0=10.0)
        return agent

    def test_file_is_named_in_all_reports_and_host_is_closed(self):
        status = self.agent().reporter.status()
        self.assertFalse(status['admission'])
        for text in (status['reason'], status['problems'][UUID],
                     status['instances'][0]['problem']):
            self.assertIn(self.file, text)
        self.assertIn(UUID, status['reason'])
        self.assertIsNone(status['instances'][0]['cap'])
        self.assertFalse(status['instances'][0]['floored'])
        self.assertEqual({}, status['floors'])
        self.assertIn(self.file, [
            sample.labels['reason']
            for family in metrics.metric_families(status)
            for sample in family.samples
            if sample.name.endswith('instance_limit_failing')][0])

    def check(self, agent, times=12):
        with mock.patch.object(agent.parts.trigger._meter, 'sample') as sample:
            sample.return_value = mock.Mock(total=99.0, primary=20.0)
            for _ in range(times):
                agent.check()

    def test_guest_is_never_counted_as_floored(self):
        agent = self.agent()
        self.check(agent)
        self.assertEqual({Reason.POLICY},
                         agent.parts.floors.reasons(UUID) & {Reason.POLICY})
        self.assertEqual((0, 0), (agent.parts.trigger.counters['floors'],
                                  agent.parts.trigger.counters['floored_s']))
        self.assertIs(PolicyState.INVALID,
                      agent.parts.trigger.reports[0].state)

    def test_local_trigger_freezes_the_guest(self):
        freezer = self.host.cpu(self.host.scope(NAME, 1)) + '/cgroup.freeze'
        self.host.write(freezer, '0')
        agent = self.agent()
        self.check(agent)
        self.assertEqual('1', self.host.read(freezer))
        self.assertEqual(1, agent.parts.trigger.counters['floors'])
        self.assertIs(PolicyState.HELD, agent.parts.trigger.reports[0].state)
        self.assertFalse(agent.reporter.status()['admission'])

    def test_local_trigger_kills_if_configured(self):
        agent = self.agent()
        with mock.patch.object(agent.parts.actuator, 'kill',
                               return_value=True) as kill:
            agent.parts.trigger._options = lambda: (
                local_trigger.TriggerOptions(1.0, 10.0, 5.0, True, {}, False))
            self.check(agent, 9)
            kill.assert_called_once()
        self.assertEqual(1, agent.parts.trigger.counters['kills'])
        self.assertEqual(0, agent.parts.trigger.counters['floors'])
