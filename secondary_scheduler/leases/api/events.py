"""Notifications of what happens to leases: by oslo.messaging, by a webhook.

Off unless ``[secondary_lease_api] notification_url`` or ``webhook_url`` is
set: a queue that nobody reads would fill.  Events are in the database anyway;
a notification is dropped rather than waited for.
"""

from collections.abc import Callable
import queue
import threading
import typing

from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging as messaging
import requests

from secondary_scheduler.leases.api.db.models import Event, LeaseRow
from secondary_scheduler.leases.api.db.store import Announce, nothing
from secondary_scheduler.model import lease_states

LOG = logging.getLogger(__name__)

#: How many may wait while the broker is slow or away.
_MOST = 1000


def payload(lease: LeaseRow, event: Event) -> dict[str, typing.Any]:
    """Return what a notification tells; times in seconds since 1970."""
    return {
        'lease_id': lease.uuid, 'project_id': lease.project_id,
        'user_id': lease.user_id, 'name': lease.name, 'state': event.state,
        'over': event.state in lease_states.FINAL, 'time': event.time,
        'text': event.text, 'revision': lease.revision,
        'servers': [one.uuid for one in lease.servers]}


#: Sends what a notification tells, of a kind.
Send = Callable[[str, dict[str, typing.Any]], object]


class Notifier:
    """Sends events, in a thread that begins with the first one.

    ``announce`` is what a ``Store`` is given.

    :param sender: returns what sends one; called in that thread.
    """

    def __init__(self, sender: Callable[[], Send]) -> None:
        self._sender = sender
        self._waiting: queue.Queue[tuple[str, dict[str, typing.Any]]] = (
            queue.Queue(_MOST))
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def announce(self, lease: LeaseRow, event: Event) -> None:
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
                            'since whoever takes them is slow or away.',
                            self.dropped)

    def flush(self) -> None:
        """Wait until what was announced is sent, or has failed."""
        self._waiting.join()

    def _run(self) -> None:
        send = self._sender()
        while True:
            kind, told = self._waiting.get()
            try:
                send(kind, told)
            except Exception as exc:
                LOG.warning('A notification of lease %(lease)s was not sent: '
                            '%(reason)s', {'lease': told['lease_id'],
                                           'reason': exc})
            finally:
                self._waiting.task_done()


def by_messages(conf: cfg.ConfigOpts, publisher: str) -> Callable[[], Send]:
    """Return what makes a sender of notifications of oslo.messaging.

    ``conf`` is the process's ``cfg.CONF``, as for all of it.
    """
    def sender() -> Send:
        notifier = messaging.Notifier(
            messaging.get_notification_transport(
                conf, conf.secondary_lease_api.notification_url),
            publisher, driver='messagingv2', retry=1)
        return lambda kind, told: notifier.info({}, kind, told)
    return sender


def by_webhook(url: str, timeout: float) -> Callable[[], Send]:
    """Return what makes a sender of POST requests with JSON to a URL.

    The URL is a secret, which the errors of requests would tell.
    """
    def send(kind: str, told: dict[str, typing.Any]) -> None:
        try:
            answer = requests.post(
                url, json={'event_type': kind, 'payload': told},
                timeout=timeout)
        except requests.RequestException as exc:
            raise OSError('the webhook cannot be reached: '
                          + type(exc).__name__) from None
        if answer.status_code >= 400:
            raise OSError(f'the webhook answers {answer.status_code}')
    return lambda: send


def announcer(conf: cfg.ConfigOpts, publisher: str) -> Announce:
    """Return what a store is to announce its events with."""
    options = conf.secondary_lease_api
    ways: list[Announce] = []
    if options.notification_url:
        ways.append(Notifier(by_messages(conf, publisher)).announce)
    if options.webhook_url:
        ways.append(Notifier(by_webhook(
            options.webhook_url, options.webhook_timeout)).announce)

    if len(ways) < 2:
        return ways[0] if ways else nothing

    def both(lease: LeaseRow, event: Event) -> None:
        for way in ways:
            way(lease, event)
    return both
