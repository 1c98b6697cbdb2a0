# SPDX-License-Identifier: Apache-2.0

"""Polling of servers by one thread, for all waiting actions."""

from collections.abc import Callable
import contextlib
import threading
import time

from oslo_log import log

from secondary_scheduler.watcher.cloud import Cloud
from secondary_scheduler.watcher.cloud_errors import TimedOut
from secondary_scheduler.watcher.cloud_snapshot import NovaServer
from secondary_scheduler.watcher.server_lookup import look_up_servers

LOG = log.getLogger(__name__)

#: Largest number of servers that are requested one by one; more are listed.
_SINGLY = 4
#: Largest delay of an answer, as part of the wait: long operations are polled
#: less often.  A migration of minutes would otherwise cost Nova's API hundreds
#: of requests, when the cloud is busiest.
_LATENESS = 0.05
#: Least seconds until a server is requested again whose cell did not answer:
#: such a request may delay all others.
_UNSEEN_S = 15.0

Predicate = Callable[[NovaServer], bool]


class Gone(Exception):
    """The server no longer exists, or is not a secondary any more."""


class _Waiter:
    def __init__(self, uuid: str, done: Predicate) -> None:
        self.uuid = uuid
        self.done = done
        self.server: NovaServer | None = None
        self.gone = self.unseen = False
        self.event = threading.Event()
        self.began = self.due = time.monotonic()

    def reschedule(self, interval: float) -> None:
        """Set the time of the next poll."""
        now = time.monotonic()
        self.due = now + max(interval, _LATENESS * (now - self.began),
                             _UNSEEN_S if self.unseen else 0.0)


class Poller:
    """Waits for servers on behalf of any number of threads.

    :param connect: returns the ``cloud.Cloud``.
    :param interval: returns the least seconds between two polls.
    """

    def __init__(self, connect: Callable[[], Cloud],
                 interval: Callable[[], float]) -> None:
        self._connect = connect
        self._interval = interval
        self._changed = threading.Condition()
        self._waiters: list[_Waiter] = []
        self._thread: threading.Thread | None = None

    def wait(self, uuid: str, done: Predicate,
             timeout: float) -> NovaServer:
        """Return the server as soon as ``done(server)``.

        Errors of Nova meanwhile are retried.

        :raises Gone: if it was deleted.
        :raises TimeoutError: if it is not done in time.
        """
        waiter = _Waiter(uuid, done)
        with self._changed:
            self._waiters.append(waiter)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, daemon=True, name='secondary-poller')
                self._thread.start()
            self._changed.notify()
        finished = waiter.event.wait(timeout)
        with self._changed:
            self._waiters.remove(waiter)
        if waiter.gone:
            raise Gone(uuid)
        if not finished or waiter.server is None:
            raise TimeoutError(f'{uuid} is not done after {timeout:.0f} s')
        return waiter.server

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiters:
                    self._changed.wait()
                now = time.monotonic()
                due = [w for w in self._waiters
                       if not w.event.is_set() and w.due <= now]
            try:
                if due:
                    self._poll(due)
            except Exception as exc:
                LOG.warning('Cannot poll servers now: %s', exc)
            interval = self._interval()
            for waiter in due:
                waiter.reschedule(interval)
            time.sleep(interval)

    def _poll(self, waiters: list[_Waiter]) -> None:
        cloud = self._connect()
        uuids = {w.uuid for w in waiters}
        servers: dict[str, NovaServer] = {}
        if len(uuids) > _SINGLY:
            with contextlib.suppress(TimedOut):
                servers = cloud.servers()
        # A server that is not listed may be new, deleted, or in a cell that
        # does not answer: request it.  Requests that may wait come last.
        answer = look_up_servers(cloud, dict.fromkeys(
            one.uuid for one in sorted(
                waiters, key=lambda one: (one.unseen, one.uuid))
            if one.uuid not in servers))
        servers |= answer.found
        away = {one.server.host for one in waiters
                if one.server and one.uuid in answer.unseen} - {None}
        for waiter in waiters:
            server = servers.get(waiter.uuid)
            waiter.gone = waiter.uuid in answer.gone | answer.strangers
            # One that was not requested stays as it was.
            waiter.unseen = server is None and (
                waiter.unseen or waiter.uuid in answer.unseen
                or waiter.server is not None and waiter.server.host in away)
            waiter.server = server or waiter.server
            if waiter.gone or server is not None and waiter.done(server):
                waiter.event.set()
