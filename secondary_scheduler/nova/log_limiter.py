# SPDX-License-Identifier: Apache-2.0

"""Rate-limited log messages.

A scheduler checks thousands of hosts for each request, and an error usually
occurs for each of them.
"""

from collections.abc import Callable
import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: Seconds between two messages of the same kind.
INTERVAL = 60.0


class LogLimiter:
    """Logs each kind of message at most once a minute; never raises."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}

    def exception(self, kind: str, message: str) -> None:
        """Log the exception being handled."""
        if self._due(kind):
            LOG.exception(message)

    def critical(self, kind: str, message: str) -> None:
        """Log an error that an operator must repair."""
        if self._due(kind):
            LOG.critical(message)

    def _due(self, kind: str) -> bool:
        now = self._clock()
        with self._lock:
            last = self._last.get(kind)
            if last is not None and now - last < INTERVAL:
                return False
            self._last[kind] = now
            return True


LIMITED_LOG = LogLimiter()
