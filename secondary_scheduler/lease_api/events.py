"""Notifications of what happens to leases, through oslo.messaging.

Off unless ``[secondary_lease_api] notification_url`` is set: a queue that
nobody reads would fill.  Events are in the database anyway; a notification is
dropped rather than waited for.
"""

import queue
import threading
import typing

from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging as messaging

from secondary_scheduler.lease_api.db.models import Event, Lease
from secondary_scheduler.lease_api.db.store import Announce, nothing
from secondary_scheduler.leases import states

LOG = logging.getLogger(__name__)

#: How many may wait while the broker is slow or away.
_MOST = 1000


def payload(lease: Lease, event: Event) -> dict[str, typing.Any]:
    """Return what a notification tells; times in seconds since 1970."""
    return {
        'lease_id': lease.uuid, 'project_id': lease.project_id,
        'user_id': lease.user_id, 'name': lease.name, 'state': event.state,
        'over': event.state in states.FINAL, 'time': event.time,
        'text': event.text, 'revision': lease.revision,
        'servers': [one.uuid for one in lease.servers]}


class Notifier:
    """Sends events, in a thread that begins with the first one.

    ``announce`` is what a ``Store`` is given.  ``conf`` is the process's
    ``cfg.CONF``, as for all of oslo.messaging.
    """

    def __init__(self, conf: cfg.ConfigOpts, publisher: str) -> None:
        self._conf = conf
        self._publisher = publisher
        self._waiting: queue.Queue[tuple[str, dict[str, typing.Any]]] = (
            queue.Queue(_MOST))
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def announce(self, lease: Lease, event: Event) -> None:
        """Send an event; never waits, never raises."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, daemon=True, name='lease-events')
                self._thread.start()
        try:
            self._waiting.put_nowait((f'secondary_lease.{event.kind}',
                                      payload(lease, event)))
        except queue.Full:
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:
                LOG.warning('%d notifications of leases so far were dropped, '
                            'since the broker is slow or away.', self.dropped)

    def flush(self) -> None:
        """Wait until what was announced is sent, or has failed."""
        self._waiting.join()

    def _run(self) -> None:
        notifier = messaging.Notifier(
            messaging.get_notification_transport(
                self._conf, self._conf.secondary_lease_api.notification_url),
            self._publisher, driver='messagingv2', retry=1)
        while True:
            kind, told = self._waiting.get()
            try:
                notifier.info({}, kind, told)
            except Exception as exc:
                LOG.warning('A notification of lease %(lease)s was not sent: '
                            '%(reason)s', {'lease': told['lease_id'],
                                           'reason': exc})
            finally:
                self._waiting.task_done()


def announcer(conf: cfg.ConfigOpts, publisher: str) -> Announce:
    """Return what a store is to announce its events with."""
    if not conf.secondary_lease_api.notification_url:
        return nothing
    return Notifier(conf, publisher).announce
