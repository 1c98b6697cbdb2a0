# SPDX-License-Identifier: Apache-2.0

"""Rate-limited log messages."""

import unittest

from secondary_scheduler.nova import log_limiter


class LogLimiterTest(unittest.TestCase):

    def test_each_kind_is_logged_once_a_minute(self):
        now = [0.0]
        limiter = log_limiter.LogLimiter(clock=lambda: now[0])
        with self.assertLogs('secondary_scheduler.nova.log_limiter') as logs:
            for _ in range(3):
                limiter.critical('a', 'first')
            limiter.exception('b', 'second')
            now[0] = log_limiter.INTERVAL
            limiter.critical('a', 'third')
        self.assertEqual(3, len(logs.output))
