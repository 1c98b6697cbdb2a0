# SPDX-License-Identifier: Apache-2.0

"""Messages from agents: reports of hosts, and the query of host details."""

from collections.abc import Callable, Mapping
import typing

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.model.holds import Holds
from secondary_scheduler.model.reports import HostReport
from secondary_scheduler.reports import hold_messages, transport

LOG = logging.getLogger(__name__)

TOPIC = 'secondary_scheduler'
#: Queries of agents.  Not TOPIC: on a shared topic a broker would deliver half
#: of them to schedulers, which cannot answer.
DESCRIBE_TOPIC = 'secondary_scheduler_describe'


class ReportSender(transport.LatestSender):
    """Broadcasts the reports of an agent, and queries its host's details."""

    CONTENT = 'Reports'

    def __init__(self, conf: cfg.ConfigOpts, host: str) -> None:
        super().__init__(conf, TOPIC, 'report')
        self.host = host
        self._queries = transport.RpcClient(conf, DESCRIBE_TOPIC)
        self._clients.append(self._queries)

    def describe_host(self, timeout: float = 5.0
                      ) -> dict[str, typing.Any] | None:
        """Query aggregates and totals of this host; None without an answer.

        :param timeout: seconds to wait for Watcher's collector.
        :returns: ``{'aggregates': [names], 'total': {resource: amount}}``.
        """
        try:
            answer = self._queries.prepare(timeout=timeout).call(
                {}, 'describe_host', host=self.host)
        except Exception as exc:
            LOG.debug('No description of host %s: %s', self.host, exc)
            return None
        return answer if isinstance(answer, dict) else None


class ReportEndpoint(transport.MessageReader[HostReport]):
    """RPC endpoint for the reports of ``ReportSender``."""

    def __init__(self, callback: Callable[[HostReport], object]) -> None:
        super().__init__(HostReport.from_dict, callback)

    def report(self, ctxt: Mapping[str, typing.Any], report: object) -> None:
        """Take in a report."""
        self._take(report)


class _DescribeEndpoint:
    """RPC endpoint for ``ReportSender.describe_host``."""

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
    """Calls ``callback(HostReport)`` for each readable report of an agent.

    :param server: unique name of this listener's queues.
    :param describe: if given, ``describe(host)`` answers the query of
        ``ReportSender.describe_host``.
    :param hold: if given, ``hold(Holds)`` is called with the holds of leases.

    ``start`` returns at once and never raises; ``listening`` is set when
    reports can arrive.  Start it after the last fork: a child inherits neither
    the threads nor a usable connection of its parent.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 callback: Callable[[HostReport], object], server: str,
                 describe: Callable[[str], Mapping[str, typing.Any]]
                 | None = None,
                 hold: Callable[[Holds], object] | None = None) -> None:
        self._endpoint = ReportEndpoint(callback)
        self._servers = [transport.RpcServer(conf, TOPIC, server,
                                             self._endpoint)]
        if describe is not None:
            self._servers.append(transport.RpcServer(
                conf, DESCRIBE_TOPIC, server, _DescribeEndpoint(describe)))
        if hold is not None:
            self._servers.append(transport.RpcServer(
                conf, hold_messages.TOPIC, server,
                hold_messages.HoldEndpoint(hold)))

    @property
    def listening(self) -> bool:
        """Whether all servers are connected to the broker."""
        return all(s.listening.is_set() for s in self._servers)

    @property
    def counters(self) -> dict[str, int]:
        """Number of reports received, and of unreadable messages dropped."""
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
