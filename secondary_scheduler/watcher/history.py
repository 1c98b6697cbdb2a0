# SPDX-License-Identifier: Apache-2.0

"""Queries of Watcher's database about our audits, plans and actions.

All state that must outlive an audit, a decision engine or its leader is read
from that database.  So all engines see the same:

* scopes that are switched on, and audits in flight,
* locked instances and hosts, and back-off after failures,
* recent preemptions, for the circuit breaker.

``audits`` has the operations that write to it.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
import dataclasses
import datetime
from typing import Any

from oslo_config import cfg
from oslo_utils import timeutils
from watcher import objects
from watcher.common import context

from secondary_scheduler.estimation import durations, learning
from secondary_scheduler.model import cluster, vocabulary
from secondary_scheduler.plans import operations
from secondary_scheduler.watcher.action_members import (
    ACTION_PREFIX,
    START_INTERVAL_S,
    hosts_of,
    instances_of,
    kind_of,
    members_of,
    single_operations,
)
from secondary_scheduler.watcher.duration_record import DurationRecord
from secondary_scheduler.watcher.locks import Begun, Locks
from secondary_scheduler.watcher.scope import ScopeRules

#: Kinds that decisions plan; the lease engine has more, such as boot.
_DECIDED = frozenset(operations.KINDS)
#: Request of an operation that the lease engine orders.
LEASE_REQUEST = 'leases'
#: Request of a plan that decides on all leases anew.
SELECT_REQUEST = 'select'
#: Requests whose preemptions do not count for the circuit breaker.
_UNCOUNTED = frozenset({'drain', 'return', LEASE_REQUEST})
#: States of launched plans, and of actions, before their end.
UNFINISHED = ('PENDING', 'ONGOING')
_FINISHED = ('SUCCEEDED', 'FAILED')
#: Seconds for which a plan that Watcher is about to launch holds locks.
_LAUNCH_GRACE = 30
#: Longest duration (s) of a plan; unfinished actions that are older hold no
#: locks.
_LONGEST = 6600
#: Longest back-off (s) after repeated failures.
_LONGEST_BACKOFF = 3600
#: Age (s) at which a failure no longer counts, and number of failures read.
_REMEMBERED = 8 * _LONGEST_BACKOFF
_FAILURES = 500
#: Status messages of the plans that we cancel; ``GIVEN_UP`` is a prefix.
DROPPED = 'Dropped: another plan works on the same instances or hosts'
GIVEN_UP = 'Given up'
#: Longest time that Watcher takes at its start to synchronize its database
#: with the installed goals and strategies.
_SYNC = datetime.timedelta(seconds=30)
#: Number of succeeded actions from which durations are learned.
_OBSERVED = 300


@dataclasses.dataclass(frozen=True)
class Switch:
    """A CONTINUOUS audit of our goal: the feature's switch on its scope.

    * On: PENDING, ONGOING, and FAILED (by an exception; it is revived).
    * Paused: SUSPENDED, and ``orphaned``.
    * Off: CANCELLED, and SUCCEEDED (its end time has passed).

    ``orphaned``: Watcher itself cancelled the audit, as it does at its start
    when a package brings another goal or strategy.  No operator asked for it.

    ``leases``: whether the lease engine runs leases on its scope.
    """

    uuid: str
    scope: ScopeRules
    state: str
    begun: bool = True
    orphaned: bool = False
    decision: str | None = None
    leases: bool = False

    @property
    def on(self) -> bool:
        """Whether violations on the scope are acted upon."""
        return self.begun and self.state in ('PENDING', 'ONGOING', 'FAILED')

    @property
    def off(self) -> bool:
        """Whether the scope is to be closed and drained."""
        return (self.state in ('CANCELLED', 'SUCCEEDED')
                and not self.orphaned)


@dataclasses.dataclass(frozen=True)
class OneShotAudit:
    """A ONESHOT audit of our goal.

    * ``age``: seconds since its creation.
    * ``adopted``: a decision engine has begun to run it.
    * ``switch``: the CONTINUOUS audit for which the leader created it.
    * ``hosts``: hosts that it handles; none if it is a dry run.
    * ``failed``: an action failed or was skipped, or its plan was dropped or
      given up.
    """

    uuid: str
    state: str
    age: float
    adopted: bool
    request: str
    switch: str | None
    hosts: frozenset[str]
    failed: bool = False


def age_of(moment: datetime.datetime | None) -> float:
    """Return the seconds since a time in the database (UTC)."""
    if moment is None:
        return 0.0
    return (timeutils.utcnow() - timeutils.normalize_time(moment)
            ).total_seconds()


def _is_orphaned(audit: Any) -> bool:
    """Return whether Watcher cancelled an audit as it synchronized."""
    made = max(audit.goal.created_at, audit.strategy.created_at)
    return bool(
        audit.state == 'CANCELLED' and audit.created_at < made
        and audit.updated_at and abs(audit.updated_at - made) < _SYNC)


def _since(seconds: float) -> datetime.datetime:
    return timeutils.utcnow() - datetime.timedelta(seconds=seconds)


def _in_backoff(failed: Sequence[Any], kinds: Collection[str],
                backoff: float) -> frozenset[str]:
    """Return the instances in back-off for operations of some kinds.

    The back-off doubles with each plan in which an operation on the same
    lease failed, whichever member it was: ``backoff`` times 2, 4, 8 ...,
    counted from the last failure on the instance, up to one hour.

    :param failed: failed actions, the latest first.
    """
    plans: dict[str, set[int]] = defaultdict(set)
    last: dict[str, tuple[str, float]] = {}
    for action, kind, parameters in single_operations(failed):
        if kind in kinds:
            uuid = parameters['resource_id']
            lease = parameters.get('lease', uuid)
            plans[lease].add(action.action_plan_id)
            last.setdefault(uuid, (lease, age_of(action.updated_at)))
    return frozenset(
        uuid for uuid, (lease, age) in last.items()
        if age < min(_LONGEST_BACKOFF, backoff * 2 ** len(plans[lease])))


class AuditHistory:
    """Reads our audits, plans and actions; never writes them."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf: Any = conf

    @staticmethod
    def _context() -> Any:
        return context.make_context(is_admin=True)

    # Audits

    def switches(self) -> list[Switch]:
        """Return the CONTINUOUS audits of our goal."""
        now = timeutils.utcnow()
        return [
            Switch(audit.uuid, audit.scope, audit.state,
                   begun=not (audit.start_time and timeutils.normalize_time(
                       audit.start_time) > now),
                   orphaned=_is_orphaned(audit),
                   decision=(audit.parameters or {}).get('decision'),
                   leases=bool((audit.parameters or {}).get('leases')))
            for audit in objects.Audit.list(
                self._context(), eager=True, filters={
                    'goal_name': vocabulary.GOAL,
                    'audit_type': 'CONTINUOUS'})]

    def one_shot_audits(self, seconds: float) -> list[OneShotAudit]:
        """Return the ONESHOT audits of our goal of the last seconds."""
        found = []
        failed = {action.action_plan.audit_id for action in self._actions(
            state__in=('FAILED', 'SKIPPED'), created_at__gt=_since(seconds))}
        failed.update(
            plan.audit_id for plan in objects.ActionPlan.list(
                self._context(), filters={
                    'strategy_name': vocabulary.STRATEGY, 'state': 'CANCELLED',
                    'created_at__gt': _since(seconds)})
            if (plan.status_message or '').startswith((DROPPED, GIVEN_UP)))
        for audit in objects.Audit.list(self._context(), filters={
                'goal_name': vocabulary.GOAL, 'audit_type': 'ONESHOT',
                'created_at__gt': _since(seconds)}):
            parameters = audit.parameters or {}
            found.append(OneShotAudit(
                audit.uuid, audit.state, age_of(audit.created_at),
                audit.hostname is not None,
                parameters.get('request', 'auto'), parameters.get('switch'),
                frozenset(audit.auto_trigger and parameters.get('hosts')
                          or ()),
                failed=audit.id in failed))
        return found

    def has_plan(self, audit_uuid: str) -> bool:
        """Return whether an audit has an action plan."""
        return bool(objects.ActionPlan.list(
            self._context(), limit=1, filters={'audit_uuid': audit_uuid}))

    def has_actions(self, audit_uuid: str) -> bool:
        """Return whether an audit has an action."""
        return bool(objects.Action.list(
            self._context(), limit=1, filters={'audit_uuid': audit_uuid}))

    # Plans and actions

    def _actions(self, **filters: Any) -> list[Any]:
        return [action for action in objects.Action.list(
                    self._context(), filters=filters, eager=True)
                if (action.action_type or '').startswith(ACTION_PREFIX)]

    def _failed(self) -> list[Any]:
        """Return the latest failed actions, at most ``_FAILURES``."""
        return [action for action in objects.Action.list(
                    self._context(), limit=_FAILURES, sort_key='id',
                    sort_dir='desc', filters={
                        'state': 'FAILED',
                        'updated_at__gt': _since(_REMEMBERED)})
                if (action.action_type or '').startswith(ACTION_PREFIX)]

    def _triggered(self, seconds: float) -> set[int]:
        """Return the plans of the last seconds that Watcher launches itself.

        Watcher launches a plan if its audit has auto_trigger.  Any other plan
        is a dry run until an operator launches it.
        """
        return {plan.id for plan in objects.ActionPlan.list(
                    self._context(), eager=True, filters={
                        'strategy_name': vocabulary.STRATEGY,
                        'state': 'RECOMMENDED',
                        'created_at__gt': _since(seconds)})
                if plan.audit.auto_trigger}

    def locks(self) -> Locks:
        """Return the instances and hosts that decisions must not touch.

        An unfinished action locks its instance and hosts, for at most
        ``_LONGEST`` seconds after it was planned

        * while its plan is unfinished: a plan of a dead applier is cancelled
          by that applier at its next start, or by ``cancel_silent_plans``;
        * for ``_LAUNCH_GRACE`` seconds if Watcher is about to launch its plan.

        A succeeded action starts a cool-down of its instance and hosts.

        A failed action starts none, since it has relieved no host.  After a
        failed preemption the next decisions leave out the instance, after a
        failed migration only its migration.  Failed preemptions and returns
        also start an exponential back-off.
        """
        backoff = self._conf.secondary_watcher.backoff
        triggered = self._triggered(_LAUNCH_GRACE)
        held = [
            action for action in self._actions(
                state__in=UNFINISHED, created_at__gt=_since(_LONGEST))
            if action.action_plan.state in UNFINISHED
            or action.action_plan_id in triggered]
        lately, failed = {'updated_at__gt': _since(backoff)}, self._failed()
        done = self._actions(state='SUCCEEDED', **lately)
        just_now = self._actions(state='FAILED', **lately)
        return Locks(
            busy_instances=instances_of(held),
            busy_hosts=hosts_of(held),
            cooling_down_instances=instances_of(done),
            cooling_down_hosts=hosts_of(done),
            just_failed_instances=instances_of(
                just_now, operations.PREEMPTIONS),
            migration_failed_instances=instances_of(
                just_now, (operations.OperationKind.MIGRATE,)),
            return_failed_instances=_in_backoff(
                failed, operations.RETURNS, backoff),
            preempt_failed_instances=_in_backoff(
                failed, operations.PREEMPTIONS, backoff),
            begun=tuple(
                Begun(kind=kind, instance=parameters['resource_id'],
                      source=parameters.get('source'),
                      target=parameters.get('target'),
                      age=age_of(action.created_at))
                for action, kind, parameters in single_operations(held)
                if action.action_plan.state in UNFINISHED
                and kind in _DECIDED))

    def observed(self) -> list[learning.Observed]:
        """Return the last succeeded operations, the oldest first.

        ``begin`` and ``end`` are seconds since the epoch.
        """
        found = []
        for action in objects.Action.list(
                self._context(), limit=_OBSERVED, sort_key='id',
                sort_dir='desc', filters={'state': 'SUCCEEDED'}):
            record = DurationRecord.from_message(action.status_message)
            if record is None or kind_of(action.action_type) not in _DECIDED:
                continue
            members = list(members_of(action.input_parameters or {}))
            # A record of several members has their mean; they began one
            # after the other, and the last one ended last.
            for number, parameters in enumerate(reversed(members)):
                end = record.end - number * START_INTERVAL_S
                found.append(
                    learning.Observed(
                        durations.DurationInput(
                            kind_of(action.action_type),
                            parameters.get('source'),
                            parameters.get('target'),
                            record.memory_mb or 0,
                            record.dirty or cluster.CLEAN,
                        ),
                        end - record.seconds,
                        end,
                    )
                )
        return found[::-1]

    def preempted_lately(self, select: bool = False) -> set[str]:
        """Return the instances preempted within ``breaker_period``.

        These do not count:

        * drains, which an operator asks for;
        * suspends of leases that cannot return as a whole (request
          ``return``);
        * operations that the lease engine orders;
        * operations of plans that were not launched.

        :param select: count only those of request ``select``, which has a
            limit of its own, and no others otherwise.
        """
        period = self._conf.secondary_watcher.breaker_period
        triggered = self._triggered(period)
        return {
            parameters['resource_id']
            for action, kind, parameters in single_operations(self._actions(
                state__in=UNFINISHED + _FINISHED,
                created_at__gt=_since(period)))
            if kind in operations.PREEMPTIONS
            and (action.state != 'PENDING'
                 or action.action_plan.state in UNFINISHED
                 or action.action_plan_id in triggered)
            and parameters.get('request') not in _UNCOUNTED
            and (parameters.get('request') == SELECT_REQUEST) is select}

    def returned_lately(self, seconds: float) -> dict[str, float]:
        """Return the age in seconds of each instance's last return.

        :param seconds: age above which returns are not read.
        """
        found: dict[str, float] = {}
        for action, kind, parameters in single_operations(self._actions(
                state='SUCCEEDED', updated_at__gt=_since(seconds))):
            if kind in operations.RETURNS:
                uuid, age = parameters['resource_id'], age_of(
                    action.updated_at)
                found[uuid] = min(age, found.get(uuid, age))
        return found
