# SPDX-License-Identifier: Apache-2.0

"""Action plans in Watcher for operations on servers of leases."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import datetime
from typing import Any, NamedTuple

from oslo_log import log
from oslo_utils import timeutils
from watcher import objects
from watcher.applier import rpcapi
from watcher.common import context, utils

from secondary_scheduler.estimation.learning import Point
from secondary_scheduler.leases.engine.values import (
    Copy,
    Failure,
    LeaseNode,
    LeaseOperation,
    OperationRequest,
)
from secondary_scheduler.watcher import (
    leader,
    outcomes,
    per_process,
    settings,
    stages,
)
from secondary_scheduler.watcher.action_members import ACTION_PREFIX
from secondary_scheduler.watcher.audits import cancel_plan
from secondary_scheduler.watcher.duration_record import DurationRecord
from secondary_scheduler.watcher.history import (
    DROPPED,
    LEASE_REQUEST,
    AuditHistory,
)

LOG = log.getLogger(__name__)

#: Seconds for which ended operations count.
_REMEMBERED_S = 3600
#: Most by which clocks of appliers differ and transactions are delayed.
_OVERLAP = datetime.timedelta(seconds=60)
#: Operations of one plan, at most: the applier's threads are few.
_TOGETHER = 8
#: Workers of each applier that plans of leases leave to relief of hosts.
RELIEF_WORKERS = 2
_UNFINISHED = ('PENDING', 'ONGOING')
#: Parameter that a boot adds to its action: the UUID of the server.
CREATED = 'created'
_KINDS = {ACTION_PREFIX + kind.value: kind for kind in LeaseOperation}


def _updated(action: Any) -> datetime.datetime:
    """Return the time of an action's last change, in UTC."""
    found: datetime.datetime = timeutils.normalize_time(action.updated_at)
    return found


def _seconds(moment: datetime.datetime) -> float:
    """Return a time of the database (UTC) in seconds since 1970."""
    found: datetime.datetime = timeutils.normalize_time(moment)
    return found.replace(tzinfo=datetime.UTC).timestamp()


def _copy(action: Any) -> Copy:
    """Return the copy of an image that an action fetches or boots from.

    The image is '' if a server boots without one.
    """
    parameters = action.input_parameters
    if 'build' in parameters:
        return parameters['target'], parameters['build'].get('image', '')
    return parameters['host'], parameters['image']


def node_of(action: Any) -> LeaseNode | None:
    """Return the node of a lease on whose server an action works."""
    lease, _, node = (action.input_parameters or {}).get(
        'place', '').partition(':')
    return (lease, int(node)) if node else None


class Pending(NamedTuple):
    """Unfinished operations.

    :ivar nodes: nodes of leases on which they work.
    :ivar asked: copies of images that hosts are asked to fetch, with the time
        of the request.
    :ivar free: number of operations that may be ordered in addition.
    """

    nodes: frozenset[LeaseNode]
    asked: dict[Copy, float]
    free: int


@dataclasses.dataclass
class Ended:
    """Operations that have ended recently; see ``values.CloudState``."""

    failures: dict[tuple[LeaseNode, LeaseOperation], Failure] = (
        dataclasses.field(default_factory=dict)
    )
    took: list[Point] = dataclasses.field(default_factory=list)
    asked: dict[Copy, float] = dataclasses.field(default_factory=dict)
    used: set[Copy] = dataclasses.field(default_factory=set)
    verified: set[str] = dataclasses.field(default_factory=set)
    booted: dict[LeaseNode, str] = dataclasses.field(default_factory=dict)


class LeaseActionPlans:
    """Creates action plans for operations of leases, and reads outcomes."""

    def __init__(self, history: AuditHistory) -> None:
        self._history = history
        #: Term of the leadership under which plans are made.
        self.term = 0
        self._applier = per_process.PerProcess(rpcapi.ApplierAPI)
        self._warned = False
        #: Actions that have ended recently, by id.
        self._ended: dict[int, Any] = {}

    @staticmethod
    def _context() -> Any:
        return context.make_context(is_admin=True)

    def _actions(self, eager: bool = False, **filters: Any) -> list[Any]:
        """Return actions of leases, the newest first.

        Without a limit, which would count the actions of others.
        """
        return [action for action in objects.Action.list(
                    self._context(), sort_key='id', sort_dir='desc',
                    filters=filters, eager=eager)
                if action.action_type in _KINDS and node_of(action)]

    def find_pending(self) -> Pending:
        """Return the unfinished operations."""
        places, asked, plans = set(), {}, set()
        for action in self._actions(eager=True, state__in=_UNFINISHED):
            where = node_of(action)
            if where is None or (
                    action.action_plan.state not in _UNFINISHED):
                continue
            plans.add(action.action_plan_id)
            if _KINDS[action.action_type] is LeaseOperation.CACHE_IMAGE:
                asked[_copy(action)] = _seconds(action.created_at)
            else:
                places.add(where)
        return Pending(frozenset(places), asked,
                       _TOGETHER * max(0, self._most_plans() - len(plans)))

    def _most_plans(self) -> int:
        """Return the most plans of leases that are launched together.

        An applier has one queue for all plans, and a number of workers.
        Launches are distributed anyhow, so one applier may get all of them.
        """
        workers = settings.CONF.watcher_applier.workers
        most = workers - RELIEF_WORKERS
        if most < 1 and not self._warned:
            self._warned = True
            LOG.error('Operations of leases delay the relief of hosts: '
                      '[watcher_applier] workers is %(now)d. Set it to '
                      '%(least)d or more.', {
                          'now': workers, 'least': RELIEF_WORKERS + 1})
        return max(1, most)

    def find_ended(self) -> Ended:
        """Return failures since the last success, and durations.

        Durations are in the order of the actions' ids.
        """
        found = Ended()
        failures = found.failures
        self._read_ended()
        for _, action in sorted(self._ended.items()):
            kind, where = _KINDS[action.action_type], node_of(action)
            assert where is not None
            if action.state == 'SUCCEEDED':
                failures.pop((where, kind), None)
                record = DurationRecord.from_message(action.status_message)
                if record is not None and record.memory_mb is not None:
                    found.took.append(
                        Point(kind, 1, record.seconds, record.memory_mb))
                if kind is LeaseOperation.CACHE_IMAGE:
                    found.asked[_copy(action)] = _seconds(action.updated_at)
                elif kind is LeaseOperation.VERIFY:
                    found.verified.add(where[0])
                elif kind is LeaseOperation.BOOT:
                    if _copy(action)[1]:
                        found.used.add(_copy(action))
                    if action.input_parameters.get(CREATED):
                        found.booted[where] = action.input_parameters[CREATED]
                continue
            if action.state == 'SKIPPED' and (
                    action.input_parameters.get('term', self.term)
                    < self.term):
                continue    # ordered by an earlier leader
            before = failures.get((where, kind))
            nature, why = outcomes.parse_failure(action.status_message)
            trust = action.input_parameters.get('trust')
            failures[where, kind] = Failure(
                1 + (before.count if before and before.trust == trust
                     else 0),
                _seconds(action.updated_at),
                action.input_parameters.get('target'), why, nature, trust)
        return found

    def _read_ended(self) -> None:
        """Read actions that have ended since the last call; forget old ones.

        Passes are too frequent to read all actions of an hour each time.
        """
        since = timeutils.utcnow() - datetime.timedelta(seconds=_REMEMBERED_S)
        kept = {row: action for row, action in self._ended.items()
                if _updated(action) > since}
        newest = max(map(_updated, kept.values()), default=since)
        self._ended = kept | {
            action.id: action for action in self._actions(
                state__in=('SUCCEEDED', 'FAILED', 'SKIPPED'),
                updated_at__gt=max(since, newest - _OVERLAP))}

    def create_plans(self, orders: Sequence[OperationRequest], switch: str
                     ) -> None:
        """Create and launch plans for operations, in the switch's audit.

        An audit of their own would delay operations that are due on a
        second.  Servers on which another plan works are left out; a later
        pass orders the operation again if it is still due.

        :param orders: at most ``Pending.free`` ones.

        :raises RuntimeError: if another engine leads, or claims plans.
        """
        ctx = self._context()
        audit = objects.Audit.get_by_uuid(ctx, switch, eager=True)
        coordination = leader.shared()
        with coordination.claiming() as check_claim:
            coordination.confirm_term(self.term)
            busy = self._history.locks().busy_instances
            free = [one for one in orders if one.server not in busy]
            plans = [self._plan(ctx, audit, free[first:first + _TOGETHER])
                     for first in range(0, len(free), _TOGETHER)]
            try:
                check_claim()
            except RuntimeError:
                for plan in plans:
                    cancel_plan(plan, DROPPED)
                raise
        for plan in plans:
            self._applier().launch_action_plan(ctx, plan.uuid)

    def _plan(self, ctx: Any, audit: Any, orders: Iterable[OperationRequest]
              ) -> Any:
        plan = objects.ActionPlan(
            ctx, uuid=utils.generate_uuid(), audit_id=audit.id,
            strategy_id=audit.strategy_id, global_efficacy=[],
            # As if an operator had started it: the audit's next run cancels
            # plans that were not started.
            state=objects.action_plan.State.PENDING)
        plan.create()
        for number, one in enumerate(orders):
            own = utils.generate_uuid()
            objects.Action(
                ctx, uuid=own, action_plan_id=plan.id, parents=[],
                action_type=ACTION_PREFIX + one.kind.value,
                input_parameters={
                    **action_parameters(one, number, plan.uuid, own),
                    'term': self.term}).create()
        stages.mark(plan.uuid, stages.PLAN_CREATED)
        return plan


def action_parameters(order: OperationRequest, number: int, batch: str,
                      own: str) -> dict[str, Any]:
    """Return the parameters of an action; Watcher accepts no None."""
    lease, node = order.place
    found = {
        'resource_id': order.server or lease, 'operation_id': number,
        'lease': f'{order.project}:{lease}', 'place': f'{lease}:{node}',
        'request': LEASE_REQUEST, 'batch': batch, 'action': own,
        'not_before': order.at, 'not_after': order.until,
        'expected': round(order.expected, 2)}
    if order.kind is LeaseOperation.CACHE_IMAGE and order.build is not None:
        # Not ``target``: the target of an operation cools down afterwards.
        found |= {'host': order.host, 'image': order.build.image,
                  'trust': order.build.trust}
    elif order.build is not None:
        build = order.build
        found |= {
            'node': node, 'project': build.project, 'target': order.host,
            'trust': build.trust, 'build': _without_none({
                'name': build.name, 'flavor': build.flavor,
                'image': build.image, 'network': build.network,
                'key_name': build.key_name})}
    else:
        found['source'] = order.host
        if order.kind is LeaseOperation.RESUME:
            found['target'] = order.host
    if order.text:
        found['text'] = order.text
    return _without_none(found)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items()
            if value is not None}
