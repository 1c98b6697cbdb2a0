"""The actions: one operation on one secondary, through Nova.

Each re-checks, right before it acts, that the instance is still a secondary,
in the state and on the host the plan was made for, since Watcher goes on with
the children of a failed action and time has passed since the decision.
"""

from collections.abc import Sequence
import contextlib
import datetime
import time
from typing import Any, NoReturn

from oslo_log import log
from watcher import objects
from watcher._i18n import _
from watcher.applier.actions import base
from watcher.common import context, exception

from secondary_scheduler.leases.engine.values import Nature
from secondary_scheduler.plans import operations
from secondary_scheduler.reports import agent_rpc
from secondary_scheduler.watcher import cloud as clouds
from secondary_scheduler.watcher import (
    cluster_builder,
    heartbeat,
    outcomes,
    per_process,
    poller,
    stages,
)
from secondary_scheduler.watcher import history as histories
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

Kind = operations.OperationKind

#: What a saved guest takes of the disk, as a multiple of its memory.
_SAVED = 1.1

_TEXT = {'type': 'string'}
_SECONDS = {'type': 'number'}
_UUIDS = {'type': 'array', 'items': {'type': 'string', 'format': 'uuid'}}

_agents = per_process.PerProcess(lambda: agent_rpc.AgentClient(CONF))
_heartbeat = per_process.PerProcess(heartbeat.Heartbeat)
_poller = per_process.PerProcess(lambda: poller.Poller(
    clouds.shared, lambda: CONF.secondary_watcher.poll_interval))


def wait_for(uuid: str, done: poller.Predicate,
             timeout: float) -> cluster_builder.NovaServer:
    """Return a server as soon as ``done(server)``; see ``Poller.wait``."""
    return _poller().wait(uuid, done, timeout)


class SecondaryAction(base.BaseAction):
    """What the seven kinds have in common: the flow from start to end.

    ``BEFORE`` are the server's states (the API's) in which it can begin,
    ``AFTER`` those in which it has succeeded.  A kind's docstring is what
    Watcher shows of it.
    """

    KIND: Kind
    BEFORE: tuple[str, ...] = ('ACTIVE',)
    AFTER: tuple[str, ...] = ('ACTIVE',)
    #: What the instance wrote to (``cluster.DirtyMemory``), if it is known.
    dirty: Sequence[float] | None = None
    #: What the host's disk has room for, and what the instance has (MiB).
    save_free_mb: int | None = None
    memory_mb = 0

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
                'place': _TEXT, 'not_before': _SECONDS,
                'not_after': _SECONDS, 'expected': _SECONDS,
            },
            'required': ['resource_id'],
            'additionalProperties': False,
        }

    def get_description(self) -> str:
        """Text for Watcher's list of action types."""
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
        """Host on which it is to run afterwards."""
        return self.input_parameters.get('target')

    # Before

    def pre_condition(self) -> None:
        """Skip the action where it does not fit (any more).

        :raises ActionSkipped: saying why.
        :raises ActionExecutionFailure: if Nova cannot be asked.
        """
        for parent in self.input_parameters.get('parents') or ():
            state = objects.Action.get_by_uuid(
                context.make_context(is_admin=True), parent).state
            if state not in ('SUCCEEDED', 'SKIPPED'):
                self._skip(f'the action it waits for is {state}')
        self._await_turn()
        try:
            server = clouds.shared().server(self.uuid)
        except clouds.NotFound:
            self._skip('the instance does not exist any more')
        except clouds.CloudError as exc:
            self._fail(str(exc))
        if server is None:
            self._skip('the instance is not a secondary')
        if self._is_done(server):
            self._skip(f'the instance is {server.status} already')
        if server.task_state is not None:
            self._skip(f'somebody else is {server.task_state} it')
        if server.status not in self.BEFORE:
            self._skip(f'the instance is {server.status}')
        if self.source is not None and server.host not in (self.source,
                                                           None):
            self._skip(f'the instance is on {server.host} now')
        self.memory_mb = server.memory_mb

    def _await_turn(self) -> None:
        """Wait until its time has come; skip it if that is past."""
        begin = self.input_parameters.get('not_before')
        if begin is not None:
            time.sleep(max(0.0, begin - time.time()))
        end = self.input_parameters.get('not_after')
        if end is not None and time.time() > end:
            self._skip('its time is past')

    def _skip(self, why: str) -> NoReturn:
        raise exception.ActionSkipped(self._message(
            _('%(kind)s of %(uuid)s: %(why)s'), why))

    def _message(self, text: str, why: str) -> str:
        """Return a message that fits, with Watcher's words, its column."""
        return outcomes.shortened(text % {
            'kind': self.KIND.value, 'uuid': self.uuid, 'why': why})

    def _is_done(self, server: cluster_builder.NovaServer) -> bool:
        """Tell whether the server is as it should be afterwards."""
        return server.status in self.AFTER

    # The operation

    def execute(self) -> bool:
        """Carry the operation out; True when the server has arrived.

        :raises ActionExecutionFailure: saying why it failed.
        """
        began, own = time.monotonic(), self.input_parameters.get('action')
        try:
            with _heartbeat().of(own) if own else contextlib.nullcontext():
                server = self._operate(clouds.shared())
        except (clouds.NotFound, poller.Gone) as exc:
            return self._vanished(exc)
        except TimeoutError as exc:
            self.abort()
            self._fail(str(exc))
        except clouds.CloudError as exc:
            self._fail(str(exc), exc.nature)
        self._record(time.monotonic() - began, server.memory_mb)
        return True

    def _vanished(self, exc: Exception) -> bool:
        """Tell whether the operation succeeded although something is gone.

        An instance that its owner deletes meanwhile needs no operation.
        """
        LOG.info('%s: instance %s was deleted meanwhile.', self.KIND,
                 self.uuid)
        return True

    def _record(self, seconds: float, memory_mb: int) -> None:
        """Note how long it took, of which estimates are made later."""
        LOG.info('%(kind)s of %(uuid)s took %(seconds).1f s.', {
            'kind': self.KIND.value, 'uuid': self.uuid, 'seconds': seconds})
        own = self.input_parameters.get('action')
        if own is None:
            return
        try:
            action = objects.Action.get_by_uuid(
                context.make_context(is_admin=True), own, eager=True)
            action.status_message = histories.took(seconds, memory_mb,
                                                   self.dirty)
            action.save()
        except Exception as exc:    # the operation itself has succeeded
            LOG.warning('How long it took cannot be noted: %s', exc)

    def _operate(self, cloud: clouds.Cloud) -> cluster_builder.NovaServer:
        self._hand_over()
        try:
            server = self._have_done(cloud)
        except Exception:
            if self.source is not None:
                _agents().thaw_hint(self.source, self.uuid)
            raise
        if 'ACTIVE' in self.AFTER and server.host is not None:
            _agents().thaw_hint(server.host, self.uuid)
        return server

    def _have_done(self, cloud: clouds.Cloud) -> cluster_builder.NovaServer:
        """Have Nova do it; return the server as it is then."""
        stages.mark_first_call(self.input_parameters.get('batch')
                               or self.uuid)
        self.prepare(cloud)
        refused = ''
        try:
            self.call(cloud)
        except clouds.Conflict as exc:
            # Somebody was faster: it counts if they wanted the same.
            refused = f' ({exc})'
        server = self.complete(cloud, self._ended())
        if not self._is_done(server):
            if server.status in self.BEFORE:
                self.undo(cloud)
            self._fail(f'the instance is {server.status} on '
                       f'{server.host}{refused}')
        self.conclude(cloud, server)
        return server

    def _fail(self, why: str, nature: Nature = Nature.TRANSIENT) -> NoReturn:
        raise exception.ActionExecutionFailure(
            outcomes.failed(self.KIND.value, self.uuid, nature, why))

    def _hand_over(self) -> None:
        """Ask the agent to make way for Nova; its silence is no obstacle.

        What the agent has ended is left alone: Nova would put an instance in
        ERROR that it suspends or moves before it has noticed, and nothing but
        a hard reboot would bring that back.
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
            self._fail(f'the agent has ended it ({answer.get("reason")})')

    def _ended(self) -> cluster_builder.NovaServer:
        return wait_for(
            self.uuid, lambda server: server.task_state is None,
            CONF.secondary_watcher.operation_timeout)

    def prepare(self, cloud: clouds.Cloud) -> None:
        """Do what must be done before the call."""

    def call(self, cloud: clouds.Cloud) -> None:
        """Ask Nova."""
        cloud.act(self.uuid, self.KIND.value)

    def complete(
        self, cloud: clouds.Cloud, server: cluster_builder.NovaServer
    ) -> cluster_builder.NovaServer:
        """Do what is left when Nova has ended; return the server."""
        return server

    def conclude(self, cloud: clouds.Cloud,
                 server: cluster_builder.NovaServer) -> None:
        """Do what follows a success."""

    def undo(self, cloud: clouds.Cloud) -> None:
        """Take back what ``prepare`` did: the server is as it was."""

    def post_condition(self) -> None:
        """Nothing is left to clean up."""

    # Taking it back

    def revert(self) -> None:
        """Do the opposite, if the operation had succeeded."""
        opposite = OPPOSITES[self.KIND](self.config, self._osc)
        parameters = {
            'resource_id': self.uuid, 'source': self.target or self.source,
            'target': self.source,
            'batch': self.input_parameters.get('batch')}
        opposite.input_parameters = {
            name: value for name, value in parameters.items() if value}
        try:
            opposite.pre_condition()
        except exception.ActionSkipped as exc:
            LOG.info('Nothing to revert: %s', exc)
            return
        opposite.execute()

    def abort(self) -> bool:
        """Return False: the operation is short and ends by itself."""
        return False


class _Down(SecondaryAction):
    """Preempts: marks the instance first, so that it is never forgotten.

    Not where the schedule of a lease wants it: that is not forgotten.

    A dead applier then leaves a mark on a running instance, which the
    collector removes, and not an instance that nobody brings back.
    """

    def prepare(self, cloud: clouds.Cloud) -> None:
        reason = self.input_parameters.get('request') or 'preempt'
        if reason == histories.LEASES:
            return      # its schedule says when it comes back
        now = datetime.datetime.now(datetime.UTC)
        cloud.set_metadata(self.uuid, cluster_builder.PREEMPTED,
                           f'{reason}@{now:%Y-%m-%dT%H:%M:%SZ}')

    def undo(self, cloud: clouds.Cloud) -> None:
        cloud.delete_metadata(self.uuid, cluster_builder.PREEMPTED)


class _Up(SecondaryAction):
    """Brings back: the mark goes when the instance runs."""

    def conclude(self, cloud: clouds.Cloud,
                 server: cluster_builder.NovaServer) -> None:
        cloud.delete_metadata(self.uuid, cluster_builder.PREEMPTED)


class Suspend(_Down):
    """Suspend a secondary instance; its memory goes to the host's disk."""

    KIND = Kind.SUSPEND
    AFTER = ('SUSPENDED',)

    def prepare(self, cloud: clouds.Cloud) -> None:
        """Mark it, if there is room for its memory on the host's disk.

        Nova does not look, and a full disk harms whoever writes to it.
        """
        if (self.save_free_mb is not None
                and self.save_free_mb < _SAVED * self.memory_mb):
            self._fail(f'its {self.memory_mb} MiB do not fit on the disk of '
                       f'{self.source}, where {self.save_free_mb} are free')
        super().prepare(cloud)


class Resume(_Up):
    """Resume a secondary instance on the host where it was suspended."""

    KIND = Kind.RESUME
    BEFORE = Suspend.AFTER


class Stop(_Down):
    """Stop a secondary instance; what is only in memory is lost."""

    KIND = Kind.STOP
    AFTER = ('SHUTOFF',)


class Start(_Up):
    """Start a secondary instance on the host where it was stopped."""

    KIND = Kind.START
    BEFORE = Stop.AFTER


class Shelve(_Down):
    """Shelve a secondary instance and free its host; memory is lost."""

    KIND = Kind.SHELVE
    AFTER = ('SHELVED_OFFLOADED',)

    def complete(
        self, cloud: clouds.Cloud, server: cluster_builder.NovaServer
    ) -> cluster_builder.NovaServer:
        """Offload where Nova does not at once (shelved_offload_time)."""
        if server.status != 'SHELVED':
            return server
        cloud.act(self.uuid, 'shelve_offload')
        return self._ended()


class Unshelve(_Up):
    """Unshelve a secondary instance on a host of the scheduler's choice."""

    KIND = Kind.UNSHELVE
    BEFORE = ('SHELVED', *Shelve.AFTER)


class Migrate(SecondaryAction):
    """Live-migrate a secondary instance, noting where it came from."""

    KIND = Kind.MIGRATE

    def _is_done(self, server: cluster_builder.NovaServer) -> bool:
        return super()._is_done(server) and server.host == self.target

    def call(self, cloud: clouds.Cloud) -> None:
        if self.target is None:
            self._fail('no target is given')
        cloud.live_migrate(self.uuid, self.target)

    def conclude(self, cloud: clouds.Cloud,
                 server: cluster_builder.NovaServer) -> None:
        origin = server.metadata.get(cluster_builder.ORIGIN)
        if origin == self.target:
            cloud.delete_metadata(self.uuid, cluster_builder.ORIGIN)
        elif origin is None and self.source is not None:
            cloud.set_metadata(self.uuid, cluster_builder.ORIGIN, self.source)

    def abort(self) -> bool:
        """Abort the migration in Nova; True if there was one."""
        try:
            return clouds.shared().abort_migration(self.uuid)
        except clouds.CloudError as exc:
            LOG.warning('Cannot abort the migration of %(uuid)s: %(why)s',
                        {'uuid': self.uuid, 'why': exc})
            return False

    def check_abort(self) -> bool:
        """A live migration can be aborted."""
        return True


OPPOSITES: dict[Kind, type[SecondaryAction]] = {
    Kind.SUSPEND: Resume, Kind.RESUME: Suspend,
    Kind.STOP: Start, Kind.START: Stop,
    Kind.SHELVE: Unshelve, Kind.UNSHELVE: Shelve,
    Kind.MIGRATE: Migrate,
}
