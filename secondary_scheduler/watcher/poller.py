"""One thread that looks at all servers that actions wait for."""

from collections.abc import Callable
import threading
import time

from oslo_log import log

from secondary_scheduler.watcher import cloud as clouds
from secondary_scheduler.watcher import cluster_builder

LOG = log.getLogger(__name__)

#: Up to so many servers are asked for one by one, more by one list query.
_SINGLY = 4
#: Who has waited long is looked at less often: an answer is late by at most
#: this part of the wait.  (A migration of minutes would cost Nova's API
#: hundreds of requests, while the cloud is busiest.)
_LATENESS = 0.05

Predicate = Callable[[cluster_builder.NovaServer], bool]


class Gone(Exception):
    """The server does not exist any more, or is no secondary now."""


class _Waiter:
    def __init__(self, uuid: str, done: Predicate) -> None:
        self.uuid = uuid
        self.done = done
        self.server: cluster_builder.NovaServer | None = None
        self.gone = False
        self.event = threading.Event()
        self.began = self.due = time.monotonic()

    def looked(self, interval: float) -> None:
        """Say when to look again."""
        now = time.monotonic()
        self.due = now + max(interval, _LATENESS * (now - self.began))


class Poller:
    """Waits for servers on behalf of any number of threads.

    :param connect: returns the ``cloud.Cloud``.
    :param interval: returns the least seconds between two looks.
    """

    def __init__(self, connect: Callable[[], clouds.Cloud],
                 interval: Callable[[], float]) -> None:
        self._connect = connect
        self._interval = interval
        self._changed = threading.Condition()
        self._waiters: list[_Waiter] = []
        self._thread: threading.Thread | None = None

    def wait(self, uuid: str, done: Predicate,
             timeout: float) -> cluster_builder.NovaServer:
        """Return the server as soon as ``done(server)``.

        Answers that Nova fails to give meanwhile only take time.

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
                    self._look(due)
            except Exception as exc:
                LOG.warning('Cannot look at servers now: %s', exc)
            interval = self._interval()
            for waiter in due:
                waiter.looked(interval)
            time.sleep(interval)

    def _look(self, waiters: list[_Waiter]) -> None:
        cloud = self._connect()
        uuids = {w.uuid for w in waiters}
        servers = cloud.servers() if len(uuids) > _SINGLY else {}
        # One that a list does not show may be new, or gone: ask for it.
        servers.update(clouds.look_up(cloud, sorted(uuids - set(servers))))
        for waiter in waiters:
            server = servers.get(waiter.uuid)
            waiter.server, waiter.gone = server, server is None
            if server is None or waiter.done(server):
                waiter.event.set()
