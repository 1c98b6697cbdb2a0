# SPDX-License-Identifier: Apache-2.0

"""RPC calls from Watcher's actions to the agent of a host."""

from collections.abc import Mapping
import typing

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.reports import transport

LOG = logging.getLogger(__name__)

TOPIC = 'secondary_agent'


class AgentUnreachable(Exception):
    """An agent did not answer, or refused, for any reason."""


class AgentClient:
    """Calls an agent from Watcher's actions (see reference/decisions, 6)."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._client = transport.RpcClient(conf, TOPIC)

    def hand_over(self, host: str, uuid: str, timeout: float = 5.0,
                  migrates: bool = False) -> dict[str, typing.Any]:
        """Ask the agent to prepare an instance for Nova's operation.

        :param migrates: whether the operation is a live migration.
        :raises AgentUnreachable: if it does not agree within ``timeout`` s.
        """
        # An agent of an older release rejects an unknown argument.
        more = {'migrates': True} if migrates else {}
        return self._call(host, 'hand_over', timeout, uuid=uuid, **more)

    def get_status(self, host: str, timeout: float = 5.0
                   ) -> dict[str, typing.Any]:
        """Return the agent's status of itself.

        :raises AgentUnreachable: if it does not answer within ``timeout`` s.
        """
        return self._call(host, 'get_status', timeout)

    def thaw_hint(self, host: str, uuid: str) -> None:
        """Announce the end of an operation; the agent lifts the floor."""
        try:
            self._client.prepare(server=host).cast(
                {}, 'thaw_hint', uuid=uuid)
        except Exception as exc:
            LOG.warning('No hint to the agent on %(host)s: %(reason)s',
                        {'host': host, 'reason': exc})

    def await_lease(self, host: str, uuid: str, seconds: float) -> None:
        """Keep an instance that resumes at the floor until its lease runs.

        :param seconds: longest time; 0 ends it.  An agent of an older
            release ignores the call.
        """
        try:
            self._client.prepare(server=host).cast(
                {}, 'await_lease', uuid=uuid, seconds=seconds)
        except Exception as exc:
            LOG.warning('No request to the agent on %(host)s: %(reason)s',
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


class AgentEndpoint:
    """Exposes four methods of an agent's endpoint, and no others."""

    def __init__(self, endpoint: typing.Any) -> None:
        self._endpoint = endpoint

    def hand_over(self, ctxt: Mapping[str, typing.Any], uuid: str,
                  migrates: bool = False) -> dict[str, typing.Any]:
        """Prepare an instance for Nova's operation."""
        return dict(self._endpoint.hand_over(uuid, migrates))

    def thaw_hint(self, ctxt: Mapping[str, typing.Any], uuid: str) -> None:
        """Take the hint that an instance may run again."""
        self._endpoint.thaw_hint(uuid)

    def await_lease(self, ctxt: Mapping[str, typing.Any], uuid: str,
                    seconds: float) -> None:
        """Keep an instance at the floor until its lease runs."""
        self._endpoint.await_lease(uuid, seconds)

    def get_status(self, ctxt: Mapping[str, typing.Any]
                   ) -> dict[str, typing.Any]:
        """Return the agent's status of itself."""
        return dict(self._endpoint.get_status())


class AgentServer:
    """RPC server of an agent.

    ``endpoint`` has ``hand_over(uuid, migrates) -> dict``,
    ``thaw_hint(uuid)``, ``await_lease(uuid, seconds)`` and
    ``get_status() -> dict``; nothing else of it can be reached.  ``start``
    returns at once and never raises.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str, endpoint: object
                 ) -> None:
        self._server = transport.RpcServer(conf, TOPIC, host,
                                           AgentEndpoint(endpoint))

    @property
    def listening(self) -> bool:
        """Whether the server is connected to the broker."""
        return self._server.listening.is_set()

    def start(self) -> None:
        """Begin to answer, in the background."""
        self._server.start()

    def stop(self) -> None:
        """Stop answering and release the connections."""
        self._server.stop()
