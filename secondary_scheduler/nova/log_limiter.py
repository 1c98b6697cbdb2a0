"""Complaints that do not flood the scheduler's log.

A scheduler looks at thousands of hosts for each request: what goes wrong
once goes wrong for each of them.
"""

from collections.abc import Callable
import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: Seconds between two complaints about the same thing.
INTERVAL = 60.0


class Complaints:
    """Logs each kind of complaint at most once a minute; never raises."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}

    def exception(self, kind: str, message: str) -> None:
        """Log the exception that is being handled."""
        if self._due(kind):
            LOG.exception(message)

    def critical(self, kind: str, message: str) -> None:
        """Log something that an operator must repair."""
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


COMPLAINTS = Complaints()
