# SPDX-License-Identifier: Apache-2.0

"""Actions that suspend or resume the members of one lease together.

An application on several instances survives if these stop and go on within a
short time and in the same order (Hermenier 2009, section 4.1).  So the
operations of the members start one second apart, and overlap.  Single actions
would wait for the few threads that an applier has for a plan.
"""

from collections.abc import Callable, Sequence
import contextlib
import statistics
import threading
import time
from typing import Any

from oslo_log import log
from watcher.common import exception

from secondary_scheduler.watcher import actions, outcomes, secondary_action
from secondary_scheduler.watcher.action_members import (
    START_INTERVAL_S,
    members_of,
)
from secondary_scheduler.watcher.secondary_action import (
    NothingToDo,
    SecondaryAction,
)

LOG = log.getLogger(__name__)

#: Seconds of a resume for which other members stay at the floor.
_RESUME_S = 60.0
#: Parameters of this action that do not apply to each member's operation.
_OWN = frozenset({'action', 'parents', 'operation_id', 'after', 'not_before',
                  'not_after', 'expected', 'place'})
_MEMBER = ('resource_id', 'source', 'target', 'wanted_cpu')


class _LeaseOperation(SecondaryAction):
    """An operation on several members of a lease.

    A member that was deleted or is in the wanted state already is left out.
    If a member is in another state, nothing is started.  If the operation of
    one member fails, those that succeeded are reverted, so that the lease is
    in one state; a failed reversal is left to the next round.

    ``MEMBER`` is the action of one member.
    """

    MEMBER: type[actions.ServerOperation]
    #: Operations of the members that need one, in their order.
    _due: tuple[actions.ServerOperation, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the parameters; the resource is the first member."""
        found = super().schema
        member = found['properties']
        found['properties'] = member | {'members': {
            'type': 'array', 'minItems': 1, 'items': {
                'type': 'object', 'additionalProperties': False,
                'properties': {name: member[name] for name in _MEMBER},
                'required': ['resource_id']}}}
        found['required'] = ['resource_id', 'members', 'lease']
        return found

    @property
    def lease(self) -> str:
        """Id of the lease."""
        return str(self.input_parameters.get('lease', self.uuid))

    def _members(self) -> list[actions.ServerOperation]:
        """Return an action for each member."""
        made = []
        for parameters in members_of(self.input_parameters):
            one = self.MEMBER(self.config, self._osc)
            one.input_parameters = {
                name: value for name, value in parameters.items()
                if name not in _OWN}
            made.append(one)
        return made

    # Preconditions

    def check_server(self) -> None:
        """Determine the members that need the operation.

        :raises ActionSkipped: if none needs it.
        :raises ActionExecutionFailure: if it is not possible for one of them,
            or if Nova does not answer.
        """
        due = []
        for one in self._members():
            try:
                one.check_server()
            except NothingToDo as exc:
                LOG.info('Lease %(lease)s: %(why)s',
                         {'lease': self.lease, 'why': exc})
            except exception.ActionSkipped as exc:
                self._fail(f'nothing was started: {exc}')
            else:
                due.append(one)
        if not due:
            self._skip('no member needs it', NothingToDo)
        self._due = tuple(due)

    # The operation

    def execute(self) -> bool:
        """Carry out the operations of all members.

        :raises ActionExecutionFailure: if one has failed.
        """
        with self._keep_alive():
            took, failed = self._run_all()
            if not failed:
                self._record(statistics.fmean(took.values()), round(
                    statistics.fmean(one.memory_mb for one in took)))
                return True
            restored = _restore(list(took))
        first = next(iter(failed))
        nature, why = outcomes.parse_failure(str(failed[first]))
        self._fail(
            f'{len(failed)} of {len(self._due)} members failed, {restored} of '
            f'{len(took)} others are as before; {first.uuid}: {why}', nature)

    def _run_all(self) -> tuple[dict[actions.ServerOperation, float],
                                dict[actions.ServerOperation, Exception]]:
        """Run the operations of the members, started one after another.

        None is started any more as soon as one has failed.

        :returns: seconds of those that succeeded, and reasons of the others.
        """
        took: dict[actions.ServerOperation, float] = {}
        failed: dict[actions.ServerOperation, Exception] = {}
        over = threading.Event()

        def run(one: actions.ServerOperation) -> None:
            began = time.monotonic()
            try:
                one.execute()
            except Exception as exc:
                failed[one] = exc
                over.set()
            else:
                took[one] = time.monotonic() - began

        self._prepare_members()
        try:
            _pipeline(run, self._due, over)
        finally:
            self._release_members()
        return took, failed

    def _prepare_members(self) -> None:
        """Prepare the members before the first operation starts."""

    def _release_members(self) -> None:
        """Undo the preparation after the last operation has ended."""

    def revert(self) -> None:
        """Do the opposite for each member, in the same order."""
        _restore(self._members())


def _pipeline(run: Callable[[actions.ServerOperation], None],
              due: Sequence[actions.ServerOperation],
              over: threading.Event) -> None:
    """Run operations in threads that start one after another.

    :param over: once it is set, none is started any more.
    """
    began, threads = time.monotonic(), []
    for number, one in enumerate(due):
        start = began + number * START_INTERVAL_S
        if over.wait(max(0.0, start - time.monotonic())):
            break
        threads.append(threading.Thread(
            target=run, args=(one,), daemon=True,
            name=f'secondary-{one.KIND}-{one.uuid}'))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _restore(done: Sequence[actions.ServerOperation]) -> int:
    """Revert operations together; return how many instances are as before.

    An instance counts if it was seen in its old state, or is deleted.
    """
    restored = []

    def run(one: actions.ServerOperation) -> None:
        opposite = one.make_opposite()
        try:
            with contextlib.suppress(NothingToDo):
                opposite.check_server()
                opposite.execute()
        except Exception as exc:
            LOG.warning('Not reverted: %s', exc)
        else:
            restored.append(one)

    _pipeline(run, done, threading.Event())
    return len(restored)


class SuspendLease(_LeaseOperation):
    """Suspend the members of a lease together, in the order of their names."""

    KIND = actions.Suspend.KIND
    MEMBER = actions.Suspend

    def _prepare_members(self) -> None:
        """Let each member ask for the disk of those saved before it, too."""
        saved: dict[str | None, int] = {}
        for one in self._due:
            assert isinstance(one, actions.Suspend)
            one.saved_before_mb = saved.get(one.source, 0)
            saved[one.source] = one.saved_before_mb + one.memory_mb


class ResumeLease(_LeaseOperation):
    """Resume the members of a lease together, in the order of their names."""

    KIND = actions.Resume.KIND
    MEMBER = actions.Resume

    def _prepare_members(self) -> None:
        """Keep members that resume first at the floor until the last runs.

        The floor ends by itself if this process dies.
        """
        self._await_lease(_RESUME_S + len(self._due) * START_INTERVAL_S)

    def _release_members(self) -> None:
        self._await_lease(0)

    def _await_lease(self, seconds: float) -> None:
        for one in self._due:
            if one.source is not None:
                secondary_action.shared_agents().await_lease(
                    one.source, one.uuid, seconds)
