# SPDX-License-Identifier: Apache-2.0

"""Heartbeat of the actions that this process carries out.

A worker of the applier may end in the middle of a plan, by a kill or by a
SIGHUP to its parent.  Watcher cancels such a plan only when the whole applier
starts again on the same host, and until then its instances and hosts stay
locked.  So each running action renews its ``updated_at``; the leader cancels
plans without a heartbeat (``AuditManager.cancel_silent_plans``).
"""

from collections.abc import Iterable, Iterator
import contextlib
import threading
import time

from oslo_log import log
from oslo_utils import timeutils
from watcher import objects

LOG = log.getLogger(__name__)

#: Seconds between two heartbeats of an action.
PERIOD_S = 15.0


def renew_actions(actions: Iterable[str]) -> None:
    """Set ``updated_at`` of actions, without a notification."""
    for action in actions:
        try:
            objects.Action.dbapi.update_action(
                action, {'updated_at': timeutils.utcnow()})
        except Exception as exc:    # the database may be back soon
            LOG.warning('Action %(action)s cannot be renewed: %(why)s',
                        {'action': action, 'why': exc})


class Heartbeat:
    """A thread that renews all held actions every ``period`` seconds."""

    def __init__(self, period: float = PERIOD_S) -> None:
        self._period = period
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def hold(self, action: str) -> Iterator[None]:
        """Renew an action (UUID) while the block runs."""
        with self._lock:
            self._held.add(action)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, daemon=True, name='secondary-heartbeat')
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(action)

    def _run(self) -> None:
        while True:
            time.sleep(self._period)
            with self._lock:
                held = sorted(self._held)
            renew_actions(held)
