# SPDX-License-Identifier: Apache-2.0

"""Latest reports and holds, in this scheduler process.

nova-scheduler creates filters in its parent process and then forks workers.
The parent's threads do not exist in a child, and its connections would be
shared.  So the listener starts in each forked child, and at its first use in a
process that never forks.
"""

import os
import socket
import threading
import uuid

from secondary_scheduler.nova.log_limiter import LIMITED_LOG
from secondary_scheduler.nova.settings import CONF
from secondary_scheduler.reports.book import HoldBook, HostBook
from secondary_scheduler.reports.report_messages import ReportListener


def _stale_after() -> float:
    return float(CONF.secondary_scheduler.report_stale_after)


class ReportBooks:
    """Books of this process, and the listener that fills them."""

    def __init__(self) -> None:
        self.book = HostBook(_stale_after)
        self.holds = HoldBook(_stale_after)
        self._lock = threading.Lock()
        self._listener: ReportListener | None = None

    def start(self) -> HostBook:
        """Return the book; start the listener if there is none yet.

        Neither blocks nor raises: the listener connects in the background.
        """
        if self._listener is None:
            with self._lock:
                if self._listener is None:
                    self._listener = self._listen()
        return self.book

    def _listen(self) -> ReportListener | None:
        try:
            listener = ReportListener(CONF, self.book.accept, server_name(),
                                      hold=self.holds.accept)
            listener.start()
        except Exception:
            LIMITED_LOG.exception(
                'listener', 'No reports from agents; no host takes secondary '
                'instances.')
            return None
        return listener


def server_name() -> str:
    """Return a name unique to this process."""
    return f'{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}'


_books = ReportBooks()


def book() -> HostBook:
    """Return the reports of hosts in this process; starts the listener."""
    return _books.start()


def holds() -> HoldBook:
    """Return the holds of leases; ``book`` starts the listener."""
    return _books.holds


def _start_in_child() -> None:
    # Locks, threads and reports of the parent cannot be used here.
    global _books
    _books = ReportBooks()
    _books.start()


os.register_at_fork(after_in_child=_start_in_child)
