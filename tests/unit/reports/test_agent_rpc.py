# SPDX-License-Identifier: Apache-2.0

"""RPC calls of agents."""

from unittest import mock

from secondary_scheduler.reports import agent_rpc
from tests.unit.reports.broker import BrokerCase, wait_for


class FakeEndpoint:

    def __init__(self):
        self.hints = []

    def hand_over(self, uuid, migrates):
        if uuid == 'foreign':
            raise ValueError('not a secondary')
        return {'uuid': uuid, 'migrates': migrates}

    def thaw_hint(self, uuid):
        self.hints.append(uuid)

    def await_lease(self, uuid, seconds):
        self.hints.append((uuid, seconds))

    def get_status(self):
        return {'priority': 'effective'}

    def destroy(self, uuid):
        self.hints.append('destroyed')


class AgentTest(BrokerCase):

    def setUp(self):
        super().setUp()
        self.endpoint = FakeEndpoint()
        self.serve(self.endpoint)
        self.client = agent_rpc.AgentClient(self.conf)

    def test_calls_reach_the_agent(self):
        for migrates in (False, True):
            self.assertEqual(
                {'uuid': 'u1', 'migrates': migrates},
                self.client.hand_over('node1', 'u1', migrates=migrates))
        self.assertEqual({'priority': 'effective'},
                         self.client.get_status('node1'))
        self.client.thaw_hint('node1', 'u2')
        wait_for(lambda: self.endpoint.hints == ['u2'])
        self.client.await_lease('node1', 'u3', 30.0)
        wait_for(lambda: self.endpoint.hints == ['u2', ('u3', 30.0)])

    def test_refusal_silence_and_unreadable_answers_raise(self):
        with self.assertRaisesRegex(agent_rpc.AgentUnreachable, 'node1'):
            self.client.hand_over('node1', 'foreign')
        with self.assertRaises(agent_rpc.AgentUnreachable):
            self.client.hand_over('node9', 'u1', timeout=0.05)
        with mock.patch.object(self.client._client, 'prepare') as prepare:
            prepare.return_value.call.return_value = None
            with self.assertRaisesRegex(agent_rpc.AgentUnreachable,
                                        'nonsense'):
                self.client.get_status('node1')

    def test_no_other_method_can_be_called(self):
        with self.assertRaises(agent_rpc.AgentUnreachable):
            self.client._call('node1', 'destroy', 5, uuid='u1')
        self.assertEqual([], self.endpoint.hints)

    def test_hint_never_raises(self):
        with mock.patch.object(self.client._client, 'prepare',
                               side_effect=OSError('away')):
            self.client.thaw_hint('node1', 'u1')
