"""What Watcher's database says of our audits and actions.

Everything that must outlive an audit, a decision engine or its leader is read
from there instead of being kept in memory: which scopes are switched on, which
audit is in flight, which instances and hosts are locked or in their back-off,
and how many instances were preempted lately. All engines see the same.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
import dataclasses
import datetime
import re
from typing import Any
import uuid

from oslo_config import cfg
from oslo_log import log
from oslo_utils import timeutils
from watcher import objects
from watcher.common import context
from watcher.decision_engine import rpcapi

from secondary_scheduler.estimation import durations, learning
from secondary_scheduler.model import cluster, vocabulary
from secondary_scheduler.plans import operations
from secondary_scheduler.watcher import per_process, stages
from secondary_scheduler.watcher import scope as scopes
from secondary_scheduler.watcher.locks import Begun, Locks

LOG = log.getLogger(__name__)

PREFIX = 'secondary_'
#: What decisions reckon with; leases are also booted and deleted, say.
DECIDED = tuple(PREFIX + kind for kind in operations.OperationKind)
PREEMPTING = tuple(PREFIX + kind for kind in operations.PREEMPTIONS)
MIGRATING = PREFIX + operations.OperationKind.MIGRATE
RETURNING = tuple(PREFIX + kind for kind in operations.RETURNS)
#: The request of operations that the schedule of leases orders.
LEASES = 'leases'
_UNFINISHED = ('PENDING', 'ONGOING')
_FINISHED = ('SUCCEEDED', 'FAILED')
#: Seconds a plan that Watcher is about to launch holds its locks.
_LAUNCH_GRACE = 30
#: Seconds after the last sign of life of a plan (see ``heartbeat``) in which
#: its applier may be about to begin the next action.
_SILENT = 90
#: No plan takes longer; what an older one has left unfinished holds nothing.
_LONGEST = 6600
#: Seconds at most until what has failed again and again is tried again; for
#: how long a failure counts, and how many do.
_LONGEST_WAIT = 3600
_REMEMBERED = 8 * _LONGEST_WAIT
_FAILURES = 500
#: What plans are cancelled by us for.
DROPPED = 'Dropped: another plan works on the same instances or hosts'
_GIVEN_UP = 'Given up'
#: How long Watcher takes to bring its database in line with the goals and
#: strategies that are installed.
_SYNC = datetime.timedelta(seconds=30)
#: Succeeded actions that estimates are made of, and what they say.
_OBSERVED = 300
_TOOK = re.compile(r'Took (\d+\.\d+) s until (\S+)'
                   r'(?: for (\d+) MiB(?:, (\d+\.\d+) MiB written in 1 s, '
                   r'(\d+\.\d+) in 5 s)?)?')


@dataclasses.dataclass(frozen=True)
class Switch:
    """A CONTINUOUS audit of our goal: the feature's switch on its scope.

    PENDING, ONGOING and FAILED (by an accident, it will be revived) mean on,
    SUSPENDED means paused, CANCELLED and SUCCEEDED (ended) mean off.

    Where it has ``leases``, those are run on its scope.

    When a package brings another goal or strategy, Watcher cancels all their
    audits as it starts.  Such an ``orphaned`` switch tells nothing of what
    its operator wants and counts as paused.
    """

    uuid: str
    scope: scopes.ScopeRules
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
    """A ONESHOT audit of ours; ``age`` in seconds.

    ``hosts`` are those it does something for: none if it is a dry run.
    ``failed`` tells that its plan was dropped or given up, or that an action
    of it has failed or was skipped: it has not done what it was for.
    """

    uuid: str
    state: str
    age: float
    adopted: bool
    request: str
    switch: str | None
    hosts: frozenset[str]
    failed: bool = False


def _age(moment: datetime.datetime | None) -> float:
    """Return the seconds since a time of the database (UTC)."""
    if moment is None:
        return 0.0
    return (timeutils.utcnow() - timeutils.normalize_time(moment)
            ).total_seconds()


def took(seconds: float, memory_mb: int,
         dirty: Sequence[float] | None) -> str:
    """Return what an action that ends now says of its duration."""
    now = datetime.datetime.now(datetime.UTC)
    return (f'Took {seconds:.2f} s until {now:%Y-%m-%dT%H:%M:%S.%f%z} '
            f'for {memory_mb} MiB'
            + ('' if dirty is None else
               ', {:.1f} MiB written in 1 s, {:.1f} in 5 s'.format(*dirty)))


def _is_orphaned(audit: Any) -> bool:
    made = max(audit.goal.created_at, audit.strategy.created_at)
    return bool(
        audit.state == 'CANCELLED' and audit.created_at < made
        and audit.updated_at and abs(audit.updated_at - made) < _SYNC)


def _since(seconds: float) -> datetime.datetime:
    return timeutils.utcnow() - datetime.timedelta(seconds=seconds)


def _stuck(failed: Sequence[Any], kinds: Collection[str],
           backoff: float) -> frozenset[str]:
    """Return who is not to be tried again yet with operations of some kinds.

    ``failed`` has the last one first.  The wait doubles with each plan in
    which one on the lease has failed: so attempts become rare (Boettger R37),
    whichever member it is that fails.
    """
    plans: dict[str, set[int]] = defaultdict(set)
    last: dict[str, tuple[str, float]] = {}
    for action in failed:
        if action.action_type in kinds:
            uuid = action.input_parameters['resource_id']
            lease = action.input_parameters.get('lease', uuid)
            plans[lease].add(action.action_plan_id)
            last.setdefault(uuid, (lease, _age(action.updated_at)))
    return frozenset(
        uuid for uuid, (lease, age) in last.items()
        if age < min(_LONGEST_WAIT, backoff * 2 ** len(plans[lease])))


def _hosts_of(parameters: Mapping[str, Any]) -> set[str]:
    return {host for host in (parameters.get('source'),
                              parameters.get('target')) if host}


class AuditHistory:
    """Queries, and the creation of audits."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf: Any = conf
        self._engine_api = per_process.PerProcess(rpcapi.DecisionEngineAPI)

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

    def children(self, seconds: float) -> list[OneShotAudit]:
        """Return the ONESHOT audits of ours of the last seconds."""
        found = []
        failed = {action.action_plan.audit_id for action in self._actions(
            state__in=('FAILED', 'SKIPPED'), created_at__gt=_since(seconds))}
        failed.update(
            plan.audit_id for plan in objects.ActionPlan.list(
                self._context(), filters={
                    'strategy_name': vocabulary.STRATEGY, 'state': 'CANCELLED',
                    'created_at__gt': _since(seconds)})
            if (plan.status_message or '').startswith((DROPPED, _GIVEN_UP)))
        for audit in objects.Audit.list(self._context(), filters={
                'goal_name': vocabulary.GOAL, 'audit_type': 'ONESHOT',
                'created_at__gt': _since(seconds)}):
            parameters = audit.parameters or {}
            found.append(OneShotAudit(
                audit.uuid, audit.state, _age(audit.created_at),
                audit.hostname is not None,
                parameters.get('request', 'auto'), parameters.get('switch'),
                frozenset(audit.auto_trigger and parameters.get('hosts')
                          or ()),
                failed=audit.id in failed))
        return found

    def has_plan(self, audit_uuid: str) -> bool:
        """Tell whether an audit has led to an action plan already."""
        return bool(objects.ActionPlan.list(
            self._context(), limit=1, filters={'audit_uuid': audit_uuid}))

    def has_actions(self, audit_uuid: str) -> bool:
        """Tell whether an audit has led to anything to do."""
        return bool(objects.Action.list(
            self._context(), limit=1, filters={'audit_uuid': audit_uuid}))

    def submit(self, request: str, hosts: Iterable[str],
               switch: Switch | None, batch: str) -> str:
        """Create a ONESHOT audit and have a decision engine run it.

        :returns: the audit's UUID.
        """
        ctx = self._context()
        strategy = objects.Strategy.get_by_name(ctx, vocabulary.STRATEGY)
        parameters: dict[str, Any] = {
            'request': request, 'hosts': sorted(hosts), 'batch': batch,
            'switch': switch and switch.uuid}
        if switch and switch.decision:
            parameters['decision'] = switch.decision
        audit = objects.Audit(
            ctx, uuid=str(uuid.uuid4()), name=f'secondary-{request}-{batch}',
            audit_type=objects.audit.AuditType.ONESHOT.value,
            state=objects.audit.State.PENDING,
            goal_id=strategy.goal_id, strategy_id=strategy.id,
            scope=list(switch.scope or ()) if switch else [],
            auto_trigger=True, force=True,
            parameters=parameters)
        audit.create()
        stages.mark(batch, stages.AUDIT_CREATED)
        LOG.info('Audit %(audit)s (%(request)s) on %(hosts)s, batch '
                 '%(batch)s.', {'audit': audit.uuid, 'request': request,
                                'hosts': ', '.join(sorted(hosts)),
                                'batch': batch})
        self._engine_api().trigger_audit(ctx, audit.uuid)
        return str(audit.uuid)

    def trigger_again(self, child: OneShotAudit) -> None:
        """Have an audit run whose trigger was lost with its engine."""
        LOG.warning('Audit %s was never begun, triggering it again.',
                    child.uuid)
        self._engine_api().trigger_audit(self._context(), child.uuid)

    def _set_state(self, audit_uuid: str, **changes: Any) -> None:
        # Saving it sends a notification with its goal.
        audit = objects.Audit.get_by_uuid(self._context(), audit_uuid,
                                          eager=True)
        for name, value in changes.items():
            setattr(audit, name, value)
        audit.save()

    def abandon(self, child: OneShotAudit) -> None:
        """Cancel an audit whose engine has died."""
        LOG.warning('Audit %s is %s for %.0f s, cancelling it.',
                    child.uuid, child.state, child.age)
        self._set_state(child.uuid, state=objects.audit.State.CANCELLED)

    def revive(self, switch: Switch) -> None:
        """Set a failed switch going again.

        Watcher sets a CONTINUOUS audit FAILED for ever when one run of it
        meets an exception, e.g. because the database was away.
        """
        LOG.warning('Audit %s had failed, setting it going again.',
                    switch.uuid)
        self._set_state(switch.uuid, hostname=None,
                        state=objects.audit.State.PENDING)

    # Plans and actions

    def give_up_silent_plans(self) -> None:
        """Cancel plans whose applier has died, with their actions.

        An applier does so too when it starts again, but not with one that
        only its worker has left.  One that lives all the same, cut off from
        the database, finds its plan cancelled and begins no more of it.
        """
        for plan in objects.ActionPlan.list(self._context(), eager=True,
                                            filters={
                'strategy_name': vocabulary.STRATEGY,
                'state__in': _UNFINISHED}):
            actions = objects.Action.list(self._context(), eager=True,
                                          filters={'action_plan_id': plan.id})
            silent = min(_age(one.updated_at or one.created_at)
                         for one in (plan, *actions))
            if silent < _SILENT:
                continue
            why = (f'{_GIVEN_UP}: its applier has been silent for '
                   f'{silent:.0f} s')
            LOG.warning('Plan %(plan)s: %(why)s.',
                        {'plan': plan.uuid, 'why': why})
            unfinished = [one for one in actions if one.state in _UNFINISHED]
            for one in (plan, *unfinished):
                one.state, one.status_message = 'CANCELLED', why
                one.save()

    def _actions(self, **filters: Any) -> list[Any]:
        return [action for action in objects.Action.list(
                    self._context(), filters=filters, eager=True)
                if (action.action_type or '').startswith(PREFIX)]

    def _failed(self) -> list[Any]:
        """Return the last actions that have failed, in a bounded number."""
        return [action for action in objects.Action.list(
                    self._context(), limit=_FAILURES, sort_key='id',
                    sort_dir='desc', filters={
                        'state': 'FAILED',
                        'updated_at__gt': _since(_REMEMBERED)})
                if (action.action_type or '').startswith(PREFIX)]

    def _triggered(self, seconds: float) -> set[int]:
        """Return the plans of the last seconds that Watcher launches.

        That is where the audit has auto_trigger; any other plan is a dry
        run until an operator launches it.
        """
        return {plan.id for plan in objects.ActionPlan.list(
                    self._context(), eager=True, filters={
                        'strategy_name': vocabulary.STRATEGY,
                        'state': 'RECOMMENDED',
                        'created_at__gt': _since(seconds)})
                if plan.audit.auto_trigger}

    def locks(self) -> Locks:
        """Return what is operated on now or was a moment ago.

        An unfinished action holds its locks until its plan is given up, by
        its applier when that starts again or by ``give_up_silent_plans``; one
        of a plan that Watcher is about to launch, for a moment.  A failed one
        has relieved no host, so none rests: the next decision finds another
        way, without what has just failed.  Who should have come up is stuck
        for a time that grows with each failure.
        """
        backoff = self._conf.secondary_watcher.backoff
        triggered = self._triggered(_LAUNCH_GRACE)
        held = [
            action for action in self._actions(
                state__in=_UNFINISHED, created_at__gt=_since(_LONGEST))
            if action.action_plan.state in _UNFINISHED
            or action.action_plan_id in triggered]
        busy = [action.input_parameters for action in held]
        resting = [action.input_parameters for action in self._actions(
            state='SUCCEEDED', updated_at__gt=_since(backoff))]
        failed = self._failed()
        just_now = [(action.action_type, action.input_parameters[
            'resource_id']) for action in self._actions(
                state='FAILED', updated_at__gt=_since(backoff))]
        return Locks(
            frozenset(p['resource_id'] for p in busy),
            frozenset().union(*map(_hosts_of, busy)),
            frozenset(p['resource_id'] for p in resting),
            frozenset().union(*map(_hosts_of, resting)),
            frozenset(uuid for kind, uuid in just_now if kind in PREEMPTING),
            frozenset(uuid for kind, uuid in just_now if kind == MIGRATING),
            _stuck(failed, RETURNING, backoff),
            _stuck(failed, PREEMPTING, backoff),
            tuple(Begun(action.action_type.removeprefix(PREFIX),
                        action.input_parameters['resource_id'],
                        action.input_parameters.get('source'),
                        action.input_parameters.get('target'),
                        _age(action.created_at))
                  for action in held
                  if action.action_plan.state in _UNFINISHED
                  and action.action_type in DECIDED))

    def observed(self) -> list[learning.Observed]:
        """Return the last operations that have succeeded, oldest first.

        ``begin`` and ``end`` are seconds since the epoch.
        """
        found = []
        for action in objects.Action.list(
                self._context(), limit=_OBSERVED, sort_key='id',
                sort_dir='desc', filters={'state': 'SUCCEEDED'}):
            said = _TOOK.fullmatch(action.status_message or '')
            if not said or action.action_type not in DECIDED:
                continue
            try:
                end = datetime.datetime.fromisoformat(said[2]).timestamp()
            except ValueError:      # somebody else has written there
                continue
            parameters = action.input_parameters or {}
            found.append(
                learning.Observed(
                    durations.DurationInput(
                        action.action_type.removeprefix(PREFIX),
                        parameters.get('source'),
                        parameters.get('target'),
                        int(said[3] or 0),
                        cluster.DirtyMemory(
                            float(said[4] or 0), float(said[5] or 0)
                        ),
                    ),
                    end - float(said[1]),
                    end,
                )
            )
        return found[::-1]

    def preempted_lately(self) -> set[str]:
        """Return the instances preempted within the breaker's period.

        Draining, which an operator asks for, does not count, nor what cannot
        come back as a whole, nor what nobody has launched.
        """
        period = self._conf.secondary_watcher.breaker_period
        triggered = self._triggered(period)
        return {
            action.input_parameters['resource_id']
            for action in self._actions(
                state__in=_UNFINISHED + _FINISHED,
                created_at__gt=_since(period))
            if action.action_type in PREEMPTING
            and (action.state != 'PENDING'
                 or action.action_plan.state in _UNFINISHED
                 or action.action_plan_id in triggered)
            and action.input_parameters.get('request') not in (
                'drain', 'return', LEASES)}
