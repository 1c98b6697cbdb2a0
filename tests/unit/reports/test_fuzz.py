# SPDX-License-Identifier: Apache-2.0

"""Arbitrary messages, as any account of the broker can send them."""

import dataclasses
import json
import unittest
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st
from oslo_messaging.rpc import dispatcher

from secondary_scheduler.agent import endpoint, service
from secondary_scheduler.model.arrivals import Arrival, fill_unknown
from secondary_scheduler.model.reports import HostReport
from secondary_scheduler.reports import (
    agent_rpc,
    book,
    hold_messages,
    report_messages,
)
from secondary_scheduler.watcher import violations
from tests.unit import fuzzing
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase
from tests.unit.model.test_holds import HOLDS
from tests.unit.model.test_reports import report

NOW = 1000.0
REPORT = report(time=NOW, arrivals={'web': Arrival(1.2, 0.1)}).to_dict()
#: A number that computing stumbles over.
HUGE = 10 ** 400


def with_part(part, **changes):
    return {**REPORT, part: [{**REPORT[part][0], **changes}]}


class Reports(unittest.TestCase):

    def setUp(self):
        self.log = fuzzing.Log(self)

    @fuzzing.fuzzed
    @given(fuzzing.values | fuzzing.changed(json.loads(json.dumps(REPORT))))
    @example({**REPORT, 'time': HUGE})
    @example({**REPORT, 'usage': {'mem': True}})
    @example({**REPORT, 'arrivals': {'web': [float('nan'), 0.1]}})
    @example({**REPORT, 'arrivals': {'web': [1.2, HUGE]}})
    @example({**REPORT, 'arrivals': {5: [1.2, 0.1]}})
    @example(with_part('policies', state=[]))
    @example(with_part('policies', threshold=float('nan')))
    @example(with_part('instances', usage={1: 1.0}))
    @example(with_part('instances', cpu=True))
    def test_accepted_report_can_be_computed_with(self, data):
        heard = book.HostBook(lambda: 30.0, lambda: NOW)
        window = violations.Window()

        def take(read):
            if heard.accept(read):
                window.note(read, NOW)

        endpoint = report_messages.ReportEndpoint(take)
        self.log.lines.clear()
        endpoint.report({}, data)
        self.assertEqual(1, endpoint.received + endpoint.dropped)
        # Only the first dropped message is logged.
        self.assertEqual(endpoint.dropped, len(self.log.lines))
        for name, read in heard.hosts().items():
            self.assertIsInstance(name, str)
            again = json.dumps(read.to_dict(), allow_nan=False)
            self.assertEqual(read, HostReport.from_dict(json.loads(again)))
            sum(one.cpu or 0.0 for one in read.instances)
            max((one.threshold for one in read.policies), default=0.0)
            for one in fill_unknown([None, *(
                    one.performance for one in read.arrivals.values())]):
                self.assertTrue(0.0 <= one <= 1.0)
        window.relief(60.0, NOW)
        window.due(1.0, NOW)


class Held(unittest.TestCase):
    """Arbitrary holds of leases."""

    SAID = json.loads(json.dumps(
        dataclasses.replace(HOLDS, time=NOW).to_dict()))

    def setUp(self):
        self.log = fuzzing.Log(self)

    @fuzzing.fuzzed
    @given(fuzzing.values | fuzzing.changed(SAID))
    @example({**SAID, 'time': HUGE})
    @example({**SAID, 'hosts': {'node1': {'room': {}, 'leases': []}}})
    def test_accepted_holds_can_be_queried(self, data):
        heard = book.HoldBook(lambda: 30.0, lambda: NOW)
        endpoint = hold_messages.HoldEndpoint(heard.accept)
        self.log.lines.clear()
        endpoint.holds({}, data)
        self.assertEqual(1, endpoint.received + endpoint.dropped)
        self.assertEqual(endpoint.dropped, len(self.log.lines))
        for name in ('node1', 'node2'):
            hold = heard.get(name)
            if hold is not None:
                self.assertIn(hold.admits(dict.fromkeys(hold.room, 1), None),
                              (True, False))


class Calls(AgentTestCase):
    """Calls of an agent, as oslo.messaging hands them over."""

    def setUp(self):
        super().setUp()
        self.host.guest(0)
        self.host.guest(1, specs={})
        self.agent = self.make()
        self.agent.step()
        self.before = self.host.fingerprint()
        self.dispatcher = dispatcher.RPCDispatcher(
            [agent_rpc.AgentEndpoint(self.agent.calls)], None)

    def call(self, method, args):
        """Return the answer, None if there is no such call."""
        incoming = type('Incoming', (), {
            'ctxt': {}, 'message': {'method': method, 'args': args},
            'client_timeout': None})()
        try:
            return self.dispatcher.dispatch(incoming)
        except (dispatcher.NoSuchMethod, TypeError):
            return None

    def check(self):
        """Check that nothing was written and no secondary was added."""
        self.assertEqual(self.before, self.host.fingerprint())
        self.assertEqual({fakes.UUIDS[0]}, {
            one.uuid for one in self.agent.parts.domains.secondaries()})

    METHODS = ('hand_over', 'thaw_hint', 'await_lease', 'get_status')

    @fuzzing.fuzzed
    @given(st.sampled_from(METHODS),
           fuzzing.values.filter(lambda one: one != fakes.UUIDS[0])
           | st.just(fakes.UUIDS[1]), fuzzing.values)
    def test_calls_about_other_domains_change_nothing(
            self, method, uuid, migrates):
        args = {} if method == 'get_status' else {'uuid': uuid}
        if method == 'await_lease':
            args['seconds'] = migrates
        if method == 'hand_over':
            args['migrates'] = migrates
        answer = self.call(method, args)
        if method == 'hand_over':
            self.assertFalse(answer['ok'])
            self.assertIn('no secondary', answer['reason'])
            json.dumps(answer)
        elif method in ('thaw_hint', 'await_lease'):
            self.assertIsNone(answer)
        self.assertFalse(self.agent.parts.floors._until)
        self.check()

    @fuzzing.fuzzed
    @given(st.text(max_size=12) | st.sampled_from(
        (*METHODS, *dir(service.Agent), *dir(endpoint.AgentCalls))),
        st.dictionaries(st.sampled_from(('uuid', 'migrates', 'self', 'ctxt'))
                        | st.text(max_size=5), fuzzing.values, max_size=3))
    def test_calls_of_any_method_change_nothing(self, method, args):
        answer = self.call(method, args)
        if method not in self.METHODS:
            self.assertIsNone(answer)
        self.check()

    @fuzzing.fuzzed
    @given(fuzzing.values)
    def test_hand_over_lifts_only_the_emulator_limit(self, migrates):
        answer = self.call('hand_over', {'uuid': fakes.UUIDS[0],
                                         'migrates': migrates})
        self.assertTrue(answer['ok'])
        self.assertEqual('1000 100000', self.host.quota(0))


class Descriptions(AgentTestCase):
    """Arbitrary answers to ``describe_host``."""

    @fuzzing.fuzzed
    @given(fuzzing.values | fuzzing.changed(
        {'aggregates': ['a', 'b'], 'total': {}}))
    def test_any_description_changes_only_aggregate_policies(self, answer):
        if not hasattr(self, 'agent'):
            self.agent = self.make()
        sender = mock.Mock(spec=report_messages.ReportSender)
        # ``describe_host`` returns None for an answer that is no object.
        sender.describe_host.return_value = (
            answer if isinstance(answer, dict) else None)
        self.agent._describe(sender)
        # Policies of named aggregates would be added; these apply anyway.
        self.assertEqual(
            ['cpu <= 90% for 10s', 'mem <= 95% for 60s on host:node1'],
            [one.text for one in self.agent.parts.policies.current.policies])
