# SPDX-License-Identifier: Apache-2.0

"""Signs of life of actions."""

import time
from unittest import TestCase, mock

from secondary_scheduler.watcher import heartbeat


class HeartbeatTest(TestCase):
    def setUp(self):
        super().setUp()
        heartbeat.objects.register_all()
        patcher = mock.patch.object(heartbeat.objects.Action, 'dbapi')
        self.update = patcher.start().update_action
        self.addCleanup(patcher.stop)

    def renewed(self):
        return {call[0][0] for call in self.update.call_args_list}

    def wait(self, *actions):
        end = time.monotonic() + 10
        while not self.renewed().issuperset(actions):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)

    def test_held_actions_are_renewed(self):
        heart = heartbeat.Heartbeat(0.01)
        with heart.hold('a'), heart.hold('b'):
            self.wait('a', 'b')
        self.update.reset_mock()
        with heart.hold('c'):
            self.wait('c')
            # One renewal may have begun before a and b were released.
            self.update.reset_mock()
            self.wait('c')
        self.assertEqual({'c'}, self.renewed())

    def test_failed_renewals_are_retried(self):
        self.update.side_effect = [OSError, OSError, *[None] * 10000]
        with (self.assertLogs(heartbeat.__name__, 'WARNING') as logs,
              heartbeat.Heartbeat(0.01).hold('a')):
            end = time.monotonic() + 10
            while self.update.call_count < 3:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.005)
        self.assertEqual(2, len(logs.output))
