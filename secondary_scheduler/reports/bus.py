"""Messages between agents, scheduler and Watcher over oslo.messaging.

Reports are RPC casts with fanout (DESIGN.md decision 9): each listener gets
each report, and nothing waits for one who is away.  Notifications would pile
up in a queue that nobody reads (risks.md F8).

Nothing here raises into a control loop or a scheduler: sending happens on a
thread of its own, listening starts on one and is retried for ever.
"""

from collections.abc import Callable, Mapping
import textwrap
import threading
import typing

from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging as messaging
import tenacity

from secondary_scheduler.model.holds import Holds
from secondary_scheduler.model.reports import HostReport

LOG = logging.getLogger(__name__)

EXCHANGE = 'secondary_scheduler'
TOPIC = 'secondary_scheduler'
#: Questions of agents.  Not TOPIC: on a shared topic a broker would hand half
#: of them to schedulers, which cannot answer.
DESCRIBE_TOPIC = 'secondary_scheduler_describe'
AGENT_TOPIC = 'secondary_agent'
#: What is held for leases.  Not TOPIC, on which agents report.
HOLDS_TOPIC = 'secondary_scheduler_holds'

#: Per-queue settings of our own queues (seconds; RabbitMQ).  A listener that
#: dies leaves a fanout queue, which by default would fill for half an hour.
_RABBIT_QUERY = {'rabbit_transient_queues_ttl': '10',
                 'amqp_auto_delete': 'true'}

#: Not 0: kombu reads that as "for ever" when it has no connection, and as
#: "do not reconnect" when it had one.
_RETRIES = 1

#: Longest pause (s) between two attempts to start listening.
_LONGEST_PAUSE = 30


class AgentUnreachable(Exception):
    """An agent did not answer, or refused, for whatever reason."""


def get_transport(conf: cfg.ConfigOpts) -> messaging.Transport:
    """Return a transport to ``[secondary_scheduler] transport_url``.

    Without that option it is the service's own ``transport_url``.  ``conf``
    must be the process's ``cfg.CONF``: oslo.messaging registers what each
    send reads (tracing, metrics) nowhere else.  Never share the transport
    with a forked child.
    """
    url = messaging.TransportURL.parse(
        conf, conf.secondary_scheduler.transport_url or None)
    if url.transport.split('+')[0] in ('rabbit', 'kombu'):
        for key, value in _RABBIT_QUERY.items():
            url.query.setdefault(key, value)
    return messaging.get_rpc_transport(conf, url)


class _Client:
    """An RPC client that connects when it is first used."""

    def __init__(self, conf: cfg.ConfigOpts, topic: str) -> None:
        self._conf = conf
        self._target = messaging.Target(exchange=EXCHANGE, topic=topic)
        self._lock = threading.Lock()
        self._client: typing.Any = None

    def prepare(self, **target: typing.Any) -> typing.Any:
        with self._lock:
            if self._client is None:
                self._client = messaging.get_rpc_client(
                    get_transport(self._conf), self._target)
            client = self._client
        return client.prepare(retry=_RETRIES, **target)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.transport.cleanup()
                self._client = None


class _Server:
    """An RPC server that starts in the background, as often as it takes.

    ``start`` returns at once: with the broker away the driver blocks while
    it connects, and no caller of ours may.
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


class _Sender:
    """Tells all listeners of a topic the newest of something.

    Whoever hands a report over goes on; a thread sends it.  If the broker is
    slow only the newest report waits: an older one is of no use to anybody.

    :param method: what is called with it, by the same name.
    """

    WHAT = ''

    def __init__(self, conf: cfg.ConfigOpts, topic: str, method: str) -> None:
        self._clients = [_Client(conf, topic)]
        self._method = method
        self._changed = threading.Condition()
        self._waiting: HostReport | Holds | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._reached = True
        self.sent = 0
        self.failed = 0

    def send(self, report: HostReport | Holds) -> bool:
        """Hand over a report; never blocks, never raises.

        :returns: False if the report before it did not reach the broker, or
            after ``stop``.
        """
        with self._changed:
            if self._stopping:
                return False
            self._waiting = report
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, daemon=True,
                    name=f'secondary-{self._method}')
                self._thread.start()
            self._changed.notify()
            return self._reached

    def stop(self) -> None:
        """End the thread; a report that still waits is dropped."""
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
                report, self._waiting = self._waiting, None
            reached = self._cast(report)
            with self._changed:
                self._reached = reached
        for client in self._clients:
            client.close()

    def _cast(self, report: HostReport | Holds | None) -> bool:
        if report is None:
            return self._reached
        try:
            self._clients[0].prepare(fanout=True).cast(
                {}, self._method, **{self._method: report.to_dict()})
        except Exception as exc:
            self.failed += 1
            if self._reached:
                LOG.warning('%(what)s do not reach the broker: %(why)s',
                            {'what': self.WHAT, 'why': exc})
            return False
        self.sent += 1
        if not self._reached:
            LOG.info('%s reach the broker again.', self.WHAT)
        return True


class ReportSender(_Sender):
    """The agent's side of the report channel."""

    WHAT = 'Reports'

    def __init__(self, conf: cfg.ConfigOpts, host: str) -> None:
        super().__init__(conf, TOPIC, 'report')
        self.host = host
        self._questions = _Client(conf, DESCRIBE_TOPIC)
        self._clients.append(self._questions)

    def describe_host(self, timeout: float = 5.0
                      ) -> dict[str, typing.Any] | None:
        """Ask Watcher's collector who this host is; None without answer.

        :returns: ``{'aggregates': [names], 'total': {resource: amount}}``.
        """
        try:
            answer = self._questions.prepare(timeout=timeout).call(
                {}, 'describe_host', host=self.host)
        except Exception as exc:
            LOG.debug('Nobody describes host %s: %s', self.host, exc)
            return None
        return answer if isinstance(answer, dict) else None


class HoldSender(_Sender):
    """The side of leases' engine: tells schedulers what is held."""

    WHAT = 'Hosts that are held for leases'

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf, HOLDS_TOPIC, 'holds')


class _MessageReader:
    """Reads what came over the bus; what is nonsense is counted and dropped.
    """

    def __init__(self, read: Callable[[typing.Any], typing.Any],
                 callback: Callable[[typing.Any], object]) -> None:
        self._read = read
        self._callback = callback
        self.received = 0
        self.dropped = 0

    def _take(self, message: object) -> None:
        try:
            read = self._read(message)
        except Exception as exc:
            self.dropped += 1
            # Whoever sends nonsense does not fill the log: told are the
            # first, the second, the fourth ...
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
            LOG.exception('What came over the bus was not processed.')


class _ReportEndpoint(_MessageReader):
    def __init__(self, callback: Callable[[HostReport], object]) -> None:
        super().__init__(HostReport.from_dict, callback)

    def report(self, ctxt: Mapping[str, typing.Any], report: object) -> None:
        self._take(report)


class _HoldEndpoint(_MessageReader):
    def __init__(self, callback: Callable[[Holds], object]) -> None:
        super().__init__(Holds.from_dict, callback)

    def holds(self, ctxt: Mapping[str, typing.Any], holds: object) -> None:
        self._take(holds)


class _DescribeEndpoint:
    """Answers an agent that asks who it is."""

    def __init__(self, describe: Callable[[str], Mapping[str, typing.Any]]
                 ) -> None:
        self._describe = describe

    def describe_host(self, ctxt: Mapping[str, typing.Any], host: str
                      ) -> dict[str, typing.Any] | None:
        try:
            return dict(self._describe(host))
        except Exception:
            LOG.exception('Host %s cannot be described.', host)
            return None


class ReportListener:
    """Calls ``callback(HostReport)`` for each report of each agent.

    :param server: name of this listener, only to tell queues apart.
    :param describe: if given, ``describe(host)`` answers agents that ask for
        their host's aggregates and totals (see ``ReportSender``).
    :param hold: if given, ``hold(Holds)`` is called with what is held for
        leases.

    ``start`` returns at once and never raises; ``listening`` is set when
    reports can arrive.  Start it after the last fork (risks.md F9).
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 callback: Callable[[HostReport], object], server: str,
                 describe: Callable[[str], Mapping[str, typing.Any]]
                 | None = None,
                 hold: Callable[[Holds], object] | None = None) -> None:
        self._endpoint = _ReportEndpoint(callback)
        self._reports = _Server(conf, TOPIC, server, self._endpoint)
        self._servers = [self._reports]
        if describe is not None:
            self._servers.append(_Server(conf, DESCRIBE_TOPIC, server,
                                         _DescribeEndpoint(describe)))
        if hold is not None:
            self._servers.append(_Server(conf, HOLDS_TOPIC, server,
                                         _HoldEndpoint(hold)))

    @property
    def listening(self) -> bool:
        """Whether the broker knows this listener."""
        return all(s.listening.is_set() for s in self._servers)

    @property
    def counters(self) -> dict[str, int]:
        """Reports that were read, and messages that were none."""
        return {'received': self._endpoint.received,
                'dropped': self._endpoint.dropped}

    def start(self) -> None:
        """Begin to listen, in the background."""
        for server in self._servers:
            server.start()

    def stop(self) -> None:
        """Stop listening and release the connections."""
        for server in self._servers:
            server.stop()


class AgentClient:
    """What Watcher's actions may ask of an agent (DESIGN.md decision 6)."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._client = _Client(conf, AGENT_TOPIC)

    def hand_over(self, host: str, uuid: str, timeout: float = 5.0,
                  migrates: bool = False) -> dict[str, typing.Any]:
        """Ask the agent to make an instance ready for Nova's operation.

        ``migrates`` says that it is a live migration.

        :raises AgentUnreachable: if it does not agree within ``timeout`` s.
        """
        # Agents of before refuse what they do not know.
        more = {'migrates': True} if migrates else {}
        return self._call(host, 'hand_over', timeout, uuid=uuid, **more)

    def get_status(self, host: str, timeout: float = 5.0
                   ) -> dict[str, typing.Any]:
        """Return what the agent says about itself.

        :raises AgentUnreachable: if it does not within ``timeout`` s.
        """
        return self._call(host, 'get_status', timeout)

    def thaw_hint(self, host: str, uuid: str) -> None:
        """Tell the agent that an instance may run again; it decides."""
        try:
            self._client.prepare(server=host).cast(
                {}, 'thaw_hint', uuid=uuid)
        except Exception as exc:
            LOG.warning('No hint to the agent on %(host)s: %(reason)s',
                        {'host': host, 'reason': exc})

    def _call(self, host: str, method: str, timeout: float,
              **arguments: str | bool) -> dict[str, typing.Any]:
        try:
            answer = self._client.prepare(server=host, timeout=timeout).call(
                {}, method, **arguments)
        except Exception as exc:
            raise AgentUnreachable(
                f'the agent on {host} did not {method}: {exc}') from exc
        if not isinstance(answer, dict):
            raise AgentUnreachable(
                f'the agent on {host} answered {method} with nonsense')
        return answer


class _AgentEndpoint:
    """All that can be asked of an agent, whatever else its endpoint has."""

    def __init__(self, endpoint: typing.Any) -> None:
        self._endpoint = endpoint

    def hand_over(self, ctxt: Mapping[str, typing.Any], uuid: str,
                  migrates: bool = False) -> dict[str, typing.Any]:
        return dict(self._endpoint.hand_over(uuid, migrates))

    def thaw_hint(self, ctxt: Mapping[str, typing.Any], uuid: str) -> None:
        self._endpoint.thaw_hint(uuid)

    def get_status(self, ctxt: Mapping[str, typing.Any]
                   ) -> dict[str, typing.Any]:
        return dict(self._endpoint.get_status())


class AgentServer:
    """The agent's RPC surface.

    ``endpoint`` has ``hand_over(uuid) -> dict``, ``thaw_hint(uuid)`` and
    ``get_status() -> dict``; nothing else of it can be reached.  ``start``
    returns at once and never raises.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str, endpoint: object
                 ) -> None:
        self._server = _Server(conf, AGENT_TOPIC, host,
                               _AgentEndpoint(endpoint))

    @property
    def listening(self) -> bool:
        """Whether the broker knows this server."""
        return self._server.listening.is_set()

    def start(self) -> None:
        """Begin to answer, in the background."""
        self._server.start()

    def stop(self) -> None:
        """Stop answering and release the connections."""
        self._server.stop()
