# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from secondary_scheduler.policies import language
from tests.unit.agent.base import AgentTestCase


class PolicySourceTest(AgentTestCase):
    def test_invalid_policy_keeps_the_earlier_ones_and_closes_the_host(self):
        agent = self.make()
        before = agent.parts.policies.current
        self.configure('cpu =< 90%')
        agent.reload()
        self.assertEqual(before.policies,
                         agent.parts.policies.current.policies)
        self.assertIn('column', agent.reporter.closed_reason())
        self.configure('cpu <= 50% for 10s')
        agent.reload()
        self.assertEqual(50.0, agent.parts.policies.current.limit('cpu'))
        self.assertEqual(49.0, agent.reporter.set_point)

    def test_aggregates_survive_a_restart(self):
        self.configure('cpu <= 80% for 10s on aggregate:x')
        self.conf.reload_config_files()
        agent = self.make()
        own = agent.parts.policies.current.policies[-1:]
        self.assertEqual(2, len(agent.parts.policies.current.policies))
        agent._describe(mock.Mock(describe_host=mock.Mock(
            return_value={'aggregates': ['y']})))
        self.assertEqual(own, agent.parts.policies.current.policies)
        again = self.make()
        self.assertEqual(own, again.parts.policies.current.policies)
        self.assertIsNone(again.reporter.set_point)
        self.assertEqual(0, again.reporter.room())

    def test_policy_on_several_hosts_together_does_not_apply_to_one(self):
        texts = ['cpu <= 80% for 10s', 'slots <= 0 in aggregate:x']
        self.configure('\npolicy = '.join(texts))
        self.conf.reload_config_files()
        agent = self.make()
        self.assertIsNone(agent.parts.policies.current.limit('slots'))
        # The fingerprint includes it.
        self.assertEqual(language.fingerprint(language.parse_all(texts)),
                         agent.parts.policies.current.fingerprint)

    def test_agent_does_not_start_with_an_invalid_policy(self):
        self.configure('cpu')
        self.conf.reload_config_files()
        with self.assertRaises(language.PolicyError):
            self.make()
