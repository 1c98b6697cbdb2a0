# SPDX-License-Identifier: Apache-2.0

"""Base class of our actions: one operation on one secondary, through Nova.

Right before it acts, each action checks that the instance is still a
secondary, in the state and on the host that the plan assumes.  Time has passed
since the decision, and Watcher runs the children of a failed action.
"""

from collections.abc import Sequence
import contextlib
import time
from typing import Any, NoReturn

from oslo_log import log
from watcher import objects
from watcher._i18n import _
from watcher.applier.actions import base
from watcher.common import context, exception

from secondary_scheduler.leases.engine.values import Nature
from secondary_scheduler.model.cluster import DirtyMemory
from secondary_scheduler.plans import operations
from secondary_scheduler.reports import agent_rpc
from secondary_scheduler.watcher import (
    cloud_connections,
    heartbeat,
    outcomes,
    per_process,
    poller,
    stages,
    terms,
)
from secondary_scheduler.watcher.cloud import Cloud
from secondary_scheduler.watcher.cloud_errors import (
    CloudError,
    Conflict,
    NotFound,
)
from secondary_scheduler.watcher.cloud_snapshot import NovaServer
from secondary_scheduler.watcher.duration_record import DurationRecord
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

Kind = operations.OperationKind

#: Part of Watcher's message about an action that skipped itself.
_AUTOMATIC = 'was skipped automatically'
_TEXT = {'type': 'string'}
_NUMBER = {'type': 'number'}
_UUIDS = {'type': 'array', 'items': {'type': 'string', 'format': 'uuid'}}

_agents = per_process.PerProcess(lambda: agent_rpc.AgentClient(CONF))
_heartbeat = per_process.PerProcess(heartbeat.Heartbeat)
_poller = per_process.PerProcess(lambda: poller.Poller(
    cloud_connections.shared, lambda: CONF.secondary_watcher.poll_interval))


def shared_agents() -> agent_rpc.AgentClient:
    """Return this process's client of the agents."""
    return _agents()


def wait_for(uuid: str, done: poller.Predicate,
             timeout: float) -> NovaServer:
    """Return a server as soon as ``done(server)``; see ``Poller.wait``."""
    return _poller().wait(uuid, done, timeout)


class NothingToDo(exception.ActionSkipped):
    """The instance is in the wanted state already, or deleted.

    ``MARK`` begins its reason, so that actions which wait for this one can
    tell it from an operation that was not possible.
    """

    MARK = 'not needed: '


def _is_harmless(message: str) -> bool:
    """Return whether an action was skipped by an operator, or not needed."""
    return _AUTOMATIC not in message or NothingToDo.MARK in message


class SecondaryAction(base.BaseAction):
    """Flow of an action from its precondition to its record.

    ``BEFORE`` are the server states (of Nova's API) in which it can begin,
    ``AFTER`` those in which it has succeeded.  Watcher shows the docstring of
    a subclass to operators.
    """

    KIND: Kind
    BEFORE: tuple[str, ...] = ('ACTIVE',)
    AFTER: tuple[str, ...] = ('ACTIVE',)
    #: Memory that the instance wrote to (``cluster.DirtyMemory``), if known.
    dirty: Sequence[float] | None = None
    #: Free disk of the host for saved guests (MiB), if known.
    save_free_mb: int | None = None
    #: Memory of the instance (MiB), and its state when it was checked.
    memory_mb = 0
    status = ''

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the input parameters."""
        return {
            'type': 'object',
            'properties': {
                'resource_id': {'type': 'string', 'format': 'uuid',
                                'minLength': 36, 'maxLength': 36},
                'operation_id': {'type': 'integer'},
                'after': {'type': 'array', 'items': {'type': 'integer'}},
                'action': {'type': 'string', 'format': 'uuid'},
                'parents': _UUIDS,
                'lease': _TEXT, 'source': _TEXT, 'target': _TEXT,
                'request': _TEXT, 'batch': _TEXT,
                'term': {'type': 'integer'},
                'place': _TEXT, 'not_before': _NUMBER,
                'not_after': _NUMBER, 'expected': _NUMBER,
                'wanted_cpu': _NUMBER,
                'used': {'type': 'object', 'additionalProperties': _NUMBER},
            },
            'required': ['resource_id'],
            'additionalProperties': False,
        }

    def get_description(self) -> str:
        """Return the text for Watcher's list of action types."""
        return self.__doc__ or self.KIND.value

    @property
    def uuid(self) -> str:
        """UUID of the instance."""
        return str(self.resource_id)

    @property
    def source(self) -> str | None:
        """Host on which the plan expects the instance."""
        return self.input_parameters.get('source')

    @property
    def target(self) -> str | None:
        """Host on which the instance runs afterwards."""
        return self.input_parameters.get('target')

    # Preconditions

    def pre_condition(self) -> None:
        """Skip the action if it does not fit (any more).

        :raises ActionSkipped: with the reason.
        :raises ActionExecutionFailure: if Nova does not answer.
        """
        self._check_parents()
        self._await_turn()
        self.check_server()

    def _check_parents(self) -> None:
        """Skip the action if an action that it waits for has failed.

        So it is if one was skipped because it was not possible.  An operator
        who skips an action lets those that wait for it go on.
        """
        for parent in self.input_parameters.get('parents') or ():
            one = objects.Action.get_by_uuid(
                context.make_context(is_admin=True), parent)
            if one.state != 'SUCCEEDED' and not (
                    one.state == 'SKIPPED' and _is_harmless(
                        one.status_message or '')):
                self._skip(f'the action it waits for is {one.state}')

    def check_server(self) -> None:
        """Skip the action if the server is not as the plan assumes.

        :raises NothingToDo: if the operation is not needed any more.
        :raises ActionSkipped: if it is not possible.
        :raises ActionExecutionFailure: if Nova does not answer.
        """
        try:
            server = cloud_connections.shared().server(self.uuid)
        except NotFound:
            self._skip('the instance does not exist any more', NothingToDo)
        except CloudError as exc:
            self._fail(str(exc), exc.nature)
        if server is None:
            self._skip('the instance is not a secondary')
        if self._is_done(server) and server.task_state is None:
            self._skip(f'the instance is {server.status} already',
                       NothingToDo)
        if server.task_state is not None:
            self._skip(f'another operation is under way ({server.task_state})')
        if server.status not in self.BEFORE:
            self._skip(f'the instance is {server.status}')
        if self.source is not None and server.host not in (self.source,
                                                           None):
            self._skip(f'the instance is on {server.host} now')
        self.memory_mb, self.status = server.memory_mb, server.status

    def _await_turn(self) -> None:
        """Wait until the time of the action, or until it has to be skipped.

        It begins from ``not_before`` on, until ``not_after``, and only while
        the leader that has ordered it leads.
        """
        begin = self.input_parameters.get('not_before')
        if begin is not None:
            time.sleep(max(0.0, begin - time.time()))
        end = self.input_parameters.get('not_after')
        if end is not None and time.time() > end:
            self._skip('its time is past')
        if not terms.await_leader(self.input_parameters):
            self._skip('another decision engine leads than that which ordered '
                       'it')

    def _skip(self, why: str, how: type[exception.ActionSkipped]
              = exception.ActionSkipped) -> NoReturn:
        if how is NothingToDo:
            why = NothingToDo.MARK + why
        raise how(self._message(_('%(kind)s of %(uuid)s: %(why)s'), why))

    def _message(self, text: str, why: str) -> str:
        """Return a message that fits Watcher's column, with its own text."""
        return outcomes.shorten_message(text % {
            'kind': self.KIND.value, 'uuid': self.uuid, 'why': why})

    def _is_done(self, server: NovaServer) -> bool:
        """Return whether the server is in the state that the action wants."""
        return server.status in self.AFTER

    # The operation

    def execute(self) -> bool:
        """Carry out the operation; return True when it has succeeded.

        :raises ActionExecutionFailure: with the reason of the failure.
        """
        began = time.monotonic()
        try:
            with self._keep_alive():
                server = self._operate(cloud_connections.shared())
        except (NotFound, poller.Gone) as exc:
            return self._vanished(exc)
        except TimeoutError as exc:
            self.abort()
            self._fail(str(exc))
        except CloudError as exc:
            self._fail(str(exc), exc.nature)
        self._record(time.monotonic() - began, server.memory_mb)
        return True

    def _keep_alive(self) -> contextlib.AbstractContextManager[None]:
        """Renew this action in Watcher's database while a block runs."""
        own = self.input_parameters.get('action')
        return _heartbeat().hold(own) if own else contextlib.nullcontext()

    def _vanished(self, exc: Exception) -> bool:
        """Return whether the action succeeded although a resource is gone.

        An instance that its owner deletes meanwhile needs no operation.
        """
        LOG.info('%s: instance %s was deleted meanwhile.', self.KIND,
                 self.uuid)
        return True

    def _record(self, seconds: float, memory_mb: int) -> None:
        """Record the duration, from which durations are learned."""
        LOG.info('%(kind)s of %(uuid)s took %(seconds).1f s.', {
            'kind': self.KIND.value, 'uuid': self.uuid, 'seconds': seconds})
        own = self.input_parameters.get('action')
        if own is None:
            return
        try:
            action = objects.Action.get_by_uuid(
                context.make_context(is_admin=True), own, eager=True)
            dirty = (DirtyMemory(self.dirty[0], self.dirty[1])
                     if self.dirty else None)
            action.status_message = DurationRecord(
                seconds, time.time(), memory_mb, dirty).to_message()
            self.add_result(action)
            action.save()
        except Exception as exc:    # the operation itself has succeeded
            LOG.warning('The duration cannot be recorded: %s', exc)

    def add_result(self, action: Any) -> None:
        """Add what the operation has resulted in to its record."""

    def _operate(self, cloud: Cloud) -> NovaServer:
        self._hand_over()
        try:
            server = self._call_nova(cloud)
        except Exception:
            if self.source is not None:
                _agents().thaw_hint(self.source, self.uuid)
            raise
        if 'ACTIVE' in self.AFTER and server.host is not None:
            _agents().thaw_hint(server.host, self.uuid)
        return server

    def _call_nova(self, cloud: Cloud) -> NovaServer:
        """Run the operation in Nova; return the server afterwards."""
        stages.mark_first_call(self.input_parameters.get('batch')
                               or self.uuid)
        self.prepare(cloud)
        refused = ''
        try:
            self.call(cloud)
        except Conflict as exc:
            # Another request came first; the server's state decides.
            refused = f' ({exc})'
        server = self.complete(cloud, self._wait_for_task())
        if not self._is_done(server):
            if server.status in self.BEFORE:
                self.undo(cloud)
            self._fail(f'the instance is {server.status} on '
                       f'{server.host}{refused}')
        self.conclude(cloud, server)
        return server

    def _fail(self, why: str, nature: Nature = Nature.TRANSIENT) -> NoReturn:
        raise exception.ActionExecutionFailure(
            outcomes.format_failure(self.KIND.value, self.uuid, nature, why))

    def _hand_over(self) -> None:
        """Ask the agent to prepare the instance; go on without an answer.

        An instance that the agent has killed is not operated on.  Nova has
        perhaps not noticed yet; its suspend or migration would put the
        instance in ERROR, from which only a hard reboot returns it.
        """
        if self.source is None or 'ACTIVE' not in self.BEFORE:
            return
        try:
            answer = _agents().hand_over(
                self.source, self.uuid,
                CONF.secondary_watcher.hand_over_timeout,
                migrates=self.KIND is Kind.MIGRATE)
            self.dirty = answer.get('dirty_mb')
            free = answer.get('save_free_mb')
            self.save_free_mb = free if isinstance(free, int) else None
        except agent_rpc.AgentUnreachable as exc:
            LOG.warning('No hand-over of %(uuid)s: %(why)s',
                        {'uuid': self.uuid, 'why': exc})
            return
        if answer.get('killed') is True:
            self._fail(f'the agent has killed it ({answer.get("reason")})')

    def _wait_for_task(self) -> NovaServer:
        return wait_for(
            self.uuid, lambda server: server.task_state is None,
            CONF.secondary_watcher.operation_timeout)

    def prepare(self, cloud: Cloud) -> None:
        """Prepare the server before the call."""

    def call(self, cloud: Cloud) -> None:
        """Call Nova."""
        cloud.act(self.uuid, self.KIND.value)

    def complete(
        self, cloud: Cloud, server: NovaServer
    ) -> NovaServer:
        """Do the rest after Nova's operation; return the server."""
        return server

    def conclude(self, cloud: Cloud,
                 server: NovaServer) -> None:
        """Finish after a success."""

    def undo(self, cloud: Cloud) -> None:
        """Undo ``prepare``: the server is in its old state."""

    def post_condition(self) -> None:
        """Do nothing: nothing is left to clean up."""

    def abort(self) -> bool:
        """Return False: the operation is short and cannot be aborted."""
        return False
