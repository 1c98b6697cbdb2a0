# SPDX-License-Identifier: Apache-2.0

"""Test case for actions on a cloud that is a dictionary."""

from unittest import mock

from watcher.common import exception

from secondary_scheduler.watcher import (
    cloud_connections,
    poller,
    secondary_action,
    settings,
)
from tests.unit.watcher import fakes

ONE = fakes.uid(1)


class ActionCase(fakes.WatcherTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = fakes.FakeCloud([fakes.server(1, 'h1')])
        self.agents = mock.Mock()
        self.agents.hand_over.return_value = {'ok': True}
        waiting = poller.Poller(lambda: self.cloud, lambda: 0.01)
        for target, value in ((cloud_connections, 'shared'),
                              (secondary_action, '_agents'),
                              (secondary_action, '_poller')):
            patcher = mock.patch.object(target, value, {
                'shared': lambda: self.cloud,
                '_agents': lambda: self.agents,
                '_poller': lambda: waiting}[value])
            patcher.start()
            self.addCleanup(patcher.stop)
        settings.CONF.set_override('operation_timeout', 10,
                                   'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override, 'operation_timeout',
                        'secondary_watcher')

    def make(self, cls, **parameters):
        made = cls({})
        made.input_parameters = {
            'resource_id': ONE, 'source': 'h1', 'batch': 'b',
            'operation_id': 1, 'after': [], 'request': 'preempt',
            'lease': 'l', **parameters}
        self.assertTrue(made.validate_parameters())
        return made

    def run_action(self, cls, **parameters):
        made = self.make(cls, **parameters)
        made.pre_condition()
        self.assertTrue(made.execute())
        made.post_condition()
        return self.cloud.known.get(ONE)

    def assert_skipped(self, cls, why, **parameters):
        with self.assertRaises(exception.ActionSkipped) as caught:
            self.make(cls, **parameters).pre_condition()
        self.assertIn(why, str(caught.exception))
        self.assertEqual([], self.cloud.calls)

    def assert_fails(self, cls, why, **parameters):
        made = self.make(cls, **parameters)
        with self.assertRaises(exception.ActionExecutionFailure) as caught:
            made.execute()
        self.assertIn(why, str(caught.exception))
