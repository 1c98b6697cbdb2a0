"""Signs of life of the actions that this process works on.

A worker of the applier may end in the middle of a plan: it is killed, or a
SIGHUP to its parent replaces it.  Watcher gives such a plan up only when the
whole applier starts again on the same host; until then nobody may touch its
instances and hosts.  So that others can tell, an action that goes on for long
renews the time of its last change.
"""

from collections.abc import Iterable, Iterator
import contextlib
import threading
import time

from oslo_log import log
from oslo_utils import timeutils
from watcher import objects

LOG = log.getLogger(__name__)

#: Seconds between two signs of an action.
PERIOD_S = 15.0


def beat(actions: Iterable[str]) -> None:
    """Renew actions; nothing else changes, so nobody is notified."""
    for action in actions:
        try:
            objects.Action.dbapi.update_action(
                action, {'updated_at': timeutils.utcnow()})
        except Exception as exc:    # the database may be back soon
            LOG.warning('Action %(action)s cannot be renewed: %(why)s',
                        {'action': action, 'why': exc})


class Heartbeat:
    """One thread that renews all actions that are held, each ``period`` s."""

    def __init__(self, period: float = PERIOD_S) -> None:
        self._period = period
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def of(self, action: str) -> Iterator[None]:
        """Hold an action (its UUID) while the block runs."""
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
            beat(held)
