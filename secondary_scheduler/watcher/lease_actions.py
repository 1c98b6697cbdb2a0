# SPDX-License-Identifier: Apache-2.0

"""Actions that suspend or resume the members of one lease together.

An application on several instances survives if these stop and go on within a
short time and in the same order (Hermenier 2009, section 4.1).  So the
operations of the members start one second apart, and overlap.  Single actions
would wait for the few threads that an applier has for a plan.
"""

from collections.abc import Callable, Iterator, Sequence
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

#: Seconds for which members stay at the floor after the last request, and
#: between requests.  The former is below the default of floor_time_limit, so
#: that a lost message does not look like a violation.
_FLOOR_S, _RENEWAL_S = 15.0, 5.0
#: Most operations on one host at the same time: a saved guest is written to
#: the host's disk beside primaries.
_MOST_ON_A_HOST = 4
#: Parameters of this action that do not apply to each member's operation.
_OWN = frozenset({'action', 'parents', 'operation_id', 'after', 'not_before',
                  'not_after', 'expected', 'place'})
_MEMBER = ('resource_id', 'source', 'target', 'wanted_cpu', 'used')


class _LeaseOperation(SecondaryAction):
    """An operation on several members of a lease.

    A member that was deleted or is in the wanted state already is left out.
    If a member is in another state, nothing is started.  If the operation of
    one member fails, those that succeeded are reverted, so that the lease is
    in one state.  If a reversal fails, a later round makes the lease whole,
    after the back-off of its failed members.

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

        :raises NothingToDo: if none needs it.
        :raises ActionSkipped: if it is not possible for one of them.
        :raises ActionExecutionFailure: if Nova does not answer.
        """
        due = []
        with self._keep_alive():
            for one in self._members():
                try:
                    one.check_server()
                except NothingToDo as exc:
                    LOG.info('Lease %(lease)s: %(why)s',
                             {'lease': self.lease, 'why': exc})
                except exception.ActionSkipped as exc:
                    self._skip(f'nothing was started: {exc}')
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
            if over.is_set():
                return
            try:
                one.execute()
            except Exception as exc:
                failed[one] = exc
                over.set()
            else:
                took[one] = time.monotonic() - began

        with self._prepared():
            _pipeline(run, self._due, over)
        if not failed and len(took) < len(self._due):
            lost = next(one for one in self._due if one not in took)
            failed[lost] = RuntimeError('its thread ended without a result')
        return took, failed

    def _prepared(self) -> contextlib.AbstractContextManager[None]:
        """Prepare the members for as long as their operations run."""
        return contextlib.nullcontext()

    def revert(self) -> None:
        """Do the opposite for members of this operation, in their order."""
        _restore(self._due)


def _pipeline(run: Callable[[actions.ServerOperation], None],
              due: Sequence[actions.ServerOperation],
              over: threading.Event) -> None:
    """Run operations in threads that start one after another.

    On a host, an operation waits while as many run as ``_MOST_ON_A_HOST``.

    :param over: once it is set, none is started any more.
    """
    gates = {one.source: threading.BoundedSemaphore(_MOST_ON_A_HOST)
             for one in due}

    def wait_and_run(one: actions.ServerOperation) -> None:
        with gates[one.source]:
            run(one)

    began, threads = time.monotonic(), []
    for number, one in enumerate(due):
        start = began + number * START_INTERVAL_S
        if over.wait(max(0.0, start - time.monotonic())):
            break
        thread = threading.Thread(
            target=wait_and_run, args=(one,), daemon=True,
            name=f'secondary-{one.KIND}-{one.uuid}')
        try:
            thread.start()
        except RuntimeError as exc:     # the system allows no more threads
            LOG.warning('%(kind)s of %(uuid)s is not started: %(why)s', {
                'kind': one.KIND, 'uuid': one.uuid, 'why': exc})
            over.set()
            break
        threads.append(thread)
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

    def _prepared(self) -> contextlib.AbstractContextManager[None]:
        """Let each member ask for the disk of those saved before it, too."""
        saved: dict[str | None, int] = {}
        for one in self._due:
            if isinstance(one, actions.Suspend):
                one.saved_before_mb = saved.get(one.source, 0)
                saved[one.source] = one.saved_before_mb + one.memory_mb
        return super()._prepared()


class ResumeLease(_LeaseOperation):
    """Resume the members of a lease together, in the order of their names."""

    KIND = actions.Resume.KIND
    MEMBER = actions.Resume

    @contextlib.contextmanager
    def _prepared(self) -> Iterator[None]:
        """Keep members that resume first at the floor until the last runs.

        The floor ends by itself if this process dies.
        """
        over = threading.Event()

        def renew() -> None:
            while not over.wait(_RENEWAL_S):
                self._await_lease(_FLOOR_S)

        self._await_lease(_FLOOR_S)
        renewal = threading.Thread(target=renew, daemon=True)
        renewal.start()
        try:
            yield
        finally:
            over.set()
            renewal.join()
            self._await_lease(0)

    def _await_lease(self, seconds: float) -> None:
        for one in self._due:
            if one.source is not None:
                secondary_action.shared_agents().await_lease(
                    one.source, one.uuid, seconds)
