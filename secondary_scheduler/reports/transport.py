# SPDX-License-Identifier: Apache-2.0

"""RPC clients, servers and senders over oslo.messaging.

Reports and holds are RPC casts with fanout (see reference/decisions, 9): each
listener gets each message, and no sender waits for a listener.  Notifications
would pile up in a queue that no process reads.

No failure of the broker raises into a control loop or a scheduler: each sender
and each server that starts has a thread of its own.
"""

from collections.abc import Callable
import textwrap
import threading
import typing

from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging as messaging
import tenacity

LOG = logging.getLogger(__name__)

EXCHANGE = 'secondary_scheduler'

#: Settings of our queues (seconds; RabbitMQ).  A listener that dies leaves a
#: fanout queue, which by default would fill for half an hour.
_RABBIT_QUERY = {'rabbit_transient_queues_ttl': '10',
                 'amqp_auto_delete': 'true'}

#: Not 0: kombu reads that as "for ever" when it has no connection, and as
#: "do not reconnect" when it had one.
_RETRIES = 1

#: Longest pause (s) between two attempts to start listening.
_LONGEST_PAUSE = 30


class Message(typing.Protocol):
    """A value that is sent as a dictionary."""

    def to_dict(self) -> dict[str, typing.Any]:
        """Return the message as JSON takes it."""


def get_transport(conf: cfg.ConfigOpts) -> messaging.Transport:
    """Return a transport to ``[secondary_scheduler] transport_url``.

    Without that option it is the service's own ``transport_url``.  ``conf``
    must be the process's ``cfg.CONF``: oslo.messaging registers the options
    of each send (tracing, metrics) nowhere else.  Never share the transport
    with a forked child.
    """
    url = messaging.TransportURL.parse(
        conf, conf.secondary_scheduler.transport_url or None)
    if url.transport.split('+')[0] in ('rabbit', 'kombu'):
        for key, value in _RABBIT_QUERY.items():
            url.query.setdefault(key, value)
    return messaging.get_rpc_transport(conf, url)


class RpcClient:
    """An RPC client that connects when it is first used."""

    def __init__(self, conf: cfg.ConfigOpts, topic: str) -> None:
        self._conf = conf
        self._target = messaging.Target(exchange=EXCHANGE, topic=topic)
        self._lock = threading.Lock()
        self._client: typing.Any = None

    def prepare(self, **target: typing.Any) -> typing.Any:
        """Return a call context of oslo.messaging for a target."""
        with self._lock:
            if self._client is None:
                self._client = messaging.get_rpc_client(
                    get_transport(self._conf), self._target)
            client = self._client
        return client.prepare(retry=_RETRIES, **target)

    def close(self) -> None:
        """Release the connection; the next use makes another one."""
        with self._lock:
            if self._client is not None:
                self._client.transport.cleanup()
                self._client = None


class RpcServer:
    """An RPC server that starts in the background and retries for ever.

    ``start`` returns at once: without a broker the driver blocks while it
    connects, and no caller may be blocked.
    """

    def __init__(self, conf: cfg.ConfigOpts, topic: str, server: str,
                 endpoint: object) -> None:
        self._conf = conf
        self._target = messaging.Target(exchange=EXCHANGE, topic=topic,
                                        server=server)
        self._endpoint = endpoint
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._server: typing.Any = None
        self.listening = threading.Event()

    def start(self) -> None:
        """Begin to listen, on a thread of its own."""
        threading.Thread(target=self._start, daemon=True,
                         name=f'secondary-{self._target.topic}').start()

    def _start(self) -> None:
        retrying = tenacity.Retrying(
            wait=tenacity.wait_random_exponential(max=_LONGEST_PAUSE),
            stop=tenacity.stop_when_event_set(self._stopping),
            sleep=tenacity.sleep_using_event(self._stopping),
            before_sleep=self._log_failure)
        try:
            retrying(self._listen)
        except tenacity.RetryError:
            LOG.debug('Stopped before listening on %s.', self._target.topic)

    def _log_failure(self, state: tenacity.RetryCallState) -> None:
        LOG.warning('Cannot listen on %(topic)s yet: %(reason)s',
                    {'topic': self._target.topic,
                     'reason': state.outcome and state.outcome.exception()})

    def _listen(self) -> None:
        transport = get_transport(self._conf)
        try:
            server = messaging.get_rpc_server(
                transport, self._target, [self._endpoint])
            # One worker keeps the order of messages and costs one thread.
            server.start(override_pool_size=1)
        except Exception:
            transport.cleanup()     # the next attempt makes its own
            raise
        with self._lock:
            if not self._stopping.is_set():
                self._server = server
                self.listening.set()
                return
        _close(server)

    def stop(self) -> None:
        """Stop listening, or trying to, and release the connection."""
        with self._lock:
            self._stopping.set()
            server, self._server = self._server, None
            self.listening.clear()
        if server is not None:
            _close(server)


def _close(server: typing.Any) -> None:
    try:
        server.stop()
        server.wait()
        server.transport.cleanup()
    except Exception:
        LOG.exception('An RPC server did not stop in order.')


class LatestSender:
    """Sends the newest message to all listeners of a topic.

    ``send`` does not block: a thread sends.  With a slow broker only the
    newest message waits, since an older one is of no use.

    :param method: name of the remote method and of its one argument.
    """

    CONTENT = ''

    def __init__(self, conf: cfg.ConfigOpts, topic: str, method: str) -> None:
        self._clients = [RpcClient(conf, topic)]
        self._method = method
        self._changed = threading.Condition()
        self._waiting: Message | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._reached = True
        self.sent = 0
        self.failed = 0

    def send(self, message: Message) -> bool:
        """Hand over a message; never blocks, never raises.

        :returns: False if the last finished attempt failed (one in progress
            does not count), or after ``stop``.
        """
        with self._changed:
            if self._stopping:
                return False
            self._waiting = message
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, daemon=True,
                    name=f'secondary-{self._method}')
                self._thread.start()
            self._changed.notify()
            return self._reached

    def stop(self) -> None:
        """Stop the thread; a message that still waits is dropped."""
        with self._changed:
            self._stopping = True
            self._waiting = None
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._waiting is None and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    break
                message, self._waiting = self._waiting, None
            reached = self._cast(message)
            with self._changed:
                self._reached = reached
        for client in self._clients:
            client.close()

    def _cast(self, message: Message | None) -> bool:
        if message is None:
            return self._reached
        try:
            self._clients[0].prepare(fanout=True).cast(
                {}, self._method, **{self._method: message.to_dict()})
        except Exception as exc:
            self.failed += 1
            if self._reached:
                LOG.warning('%(content)s do not reach the broker: %(why)s',
                            {'content': self.CONTENT, 'why': exc})
            return False
        self.sent += 1
        if not self._reached:
            LOG.info('%s reach the broker again.', self.CONTENT)
        return True


Parsed = typing.TypeVar('Parsed')


class MessageReader(typing.Generic[Parsed]):
    """Parses received messages; counts and drops unreadable ones.

    :param read: parses a message; raises if it cannot be read.
    :param callback: gets the parsed value.
    """

    def __init__(self, read: Callable[[typing.Any], Parsed],
                 callback: Callable[[Parsed], object]) -> None:
        self._read = read
        self._callback = callback
        self.received = 0
        self.dropped = 0

    def _take(self, message: object) -> None:
        try:
            read = self._read(message)
        except Exception as exc:
            self.dropped += 1
            # A sender of unreadable messages must not fill the log: the
            # first, second, fourth, eighth ... are logged.
            if self.dropped & (self.dropped - 1) == 0:
                LOG.warning('Dropped %(number)d reports so far that cannot be '
                            'read, the last one: %(reason)s',
                            {'number': self.dropped,
                             'reason': textwrap.shorten(str(exc), 200)})
            return
        self.received += 1
        try:
            self._callback(read)
        except Exception:
            LOG.exception('A received message was not processed.')
