# SPDX-License-Identifier: Apache-2.0

"""Notifications of events of leases, by oslo.messaging or by a webhook.

They are off unless ``[secondary_lease_api] notification_url`` or
``webhook_url`` is set, since a queue without a consumer would fill up. If the
receiver is slow, notifications are dropped; the database has all events.
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
from secondary_scheduler.leases.api.db.store import Announce, ignore_event
from secondary_scheduler.model import lease_states

LOG = logging.getLogger(__name__)

#: Notifications that may wait while the receiver is slow or unavailable.
_MOST = 1000


def payload(lease: LeaseRow, event: Event) -> dict[str, typing.Any]:
    """Return the payload of a notification; times in seconds since 1970."""
    return {
        'lease_id': lease.uuid, 'project_id': lease.project_id,
        'user_id': lease.user_id, 'name': lease.name, 'state': event.state,
        'over': event.state in lease_states.FINAL, 'time': event.time,
        'text': event.text, 'revision': lease.revision,
        'servers': [one.uuid for one in lease.servers]}


#: Sends a notification, given its event type and payload.
Send = Callable[[str, dict[str, typing.Any]], object]


class Notifier:
    """Sends events in a thread, which is started by the first event.

    ``announce`` is a callback for ``LeaseStore``.

    :param sender: returns a function that sends one; called in that thread.
    """

    def __init__(self, sender: Callable[[], Send]) -> None:
        self._sender = sender
        self._waiting: queue.Queue[tuple[str, dict[str, typing.Any]]] = (
            queue.Queue(_MOST))
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def announce(self, lease: LeaseRow, event: Event) -> None:
        """Queue an event; does not block and does not raise."""
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
                LOG.warning('%d notifications of leases were dropped so far, '
                            'since the receiver is slow or unavailable.',
                            self.dropped)

    def flush(self) -> None:
        """Wait until each queued event is sent or has failed."""
        self._waiting.join()

    def _run(self) -> None:
        send = self._sender()
        while True:
            event_type, content = self._waiting.get()
            try:
                send(event_type, content)
            except Exception as exc:
                LOG.warning('A notification of lease %(lease)s was not sent: '
                            '%(reason)s', {'lease': content['lease_id'],
                                           'reason': exc})
            finally:
                self._waiting.task_done()


def by_messages(conf: cfg.ConfigOpts, publisher: str) -> Callable[[], Send]:
    """Return a factory of senders of oslo.messaging's notifications.

    :param conf: the process's ``cfg.CONF``, which oslo.messaging needs.
    """
    def sender() -> Send:
        notifier = messaging.Notifier(
            messaging.get_notification_transport(
                conf, conf.secondary_lease_api.notification_url),
            publisher, driver='messagingv2', retry=1)
        return lambda event_type, content: notifier.info(
            {}, event_type, content)
    return sender


def by_webhook(url: str, timeout: float) -> Callable[[], Send]:
    """Return a factory of senders of POST requests with JSON to a URL.

    The URL is a secret, so errors of ``requests``, which contain it, are
    replaced.
    """
    def send(event_type: str, content: dict[str, typing.Any]) -> None:
        try:
            answer = requests.post(
                url, json={'event_type': event_type, 'payload': content},
                timeout=timeout)
        except requests.RequestException as exc:
            raise OSError('the webhook cannot be reached: '
                          + type(exc).__name__) from None
        if answer.status_code >= 400:
            raise OSError(f'the webhook answers {answer.status_code}')
    return lambda: send


def announcer(conf: cfg.ConfigOpts, publisher: str) -> Announce:
    """Return the callback of a store for its events."""
    options = conf.secondary_lease_api
    callbacks: list[Announce] = []
    if options.notification_url:
        callbacks.append(Notifier(by_messages(conf, publisher)).announce)
    if options.webhook_url:
        callbacks.append(Notifier(by_webhook(
            options.webhook_url, options.webhook_timeout)).announce)

    if len(callbacks) < 2:
        return callbacks[0] if callbacks else ignore_event

    def both(lease: LeaseRow, event: Event) -> None:
        for announce in callbacks:
            announce(lease, event)
    return both
