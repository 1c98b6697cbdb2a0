"""What Watcher's database says of the operations on servers of leases."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import datetime
import re
from typing import Any

from oslo_log import log
from oslo_utils import timeutils
from watcher import objects
from watcher.applier import rpcapi
from watcher.common import context, utils

from secondary_scheduler.leases.engine.values import (
    Copy,
    Failure,
    LeaseNode,
    LeaseOperation,
    OperationRequest,
    Took,
)
from secondary_scheduler.watcher import history as histories
from secondary_scheduler.watcher import leader, outcomes, per_process, stages

LOG = log.getLogger(__name__)

#: Seconds for which a failure counts, and how many operations are looked at.
_REMEMBERED_S, _LATEST = 3600, 500
#: What clocks of appliers may differ by, and a transaction take to be seen.
_OVERLAP = datetime.timedelta(seconds=60)
#: Operations of one plan: Watcher's applier has a thread for each of a few.
_TOGETHER = 8
_UNFINISHED = ('PENDING', 'ONGOING')
_KINDS = {histories.PREFIX + kind.value: kind for kind in LeaseOperation}
_TOOK = re.compile(r'Took (\d+\.\d+) s .* for (\d+) MiB')


def _updated(action: Any) -> datetime.datetime:
    """Return when an action was changed last, in UTC."""
    found: datetime.datetime = timeutils.normalize_time(action.updated_at)
    return found


def _seconds(moment: datetime.datetime) -> float:
    """Return a time of the database (UTC) in seconds since 1970."""
    found: datetime.datetime = timeutils.normalize_time(moment)
    return found.replace(tzinfo=datetime.UTC).timestamp()


def _copy(action: Any) -> Copy:
    """Return which copy of an image is asked for, or booted from.

    The image is '' if a server boots from none.
    """
    said = action.input_parameters
    if 'build' in said:
        return said['target'], said['build'].get('image', '')
    return said['host'], said['image']


def place(action: Any) -> LeaseNode | None:
    """Return which server of which lease an action is about."""
    lease, _, node = (action.input_parameters or {}).get(
        'place', '').partition(':')
    return (lease, int(node)) if node else None


@dataclasses.dataclass
class Ended:
    """What has become of operations lately; see ``values.Sight``."""

    failures: dict[tuple[LeaseNode, LeaseOperation], Failure] = (
        dataclasses.field(default_factory=dict)
    )
    took: list[Took] = dataclasses.field(default_factory=list)
    asked: dict[Copy, float] = dataclasses.field(default_factory=dict)
    used: set[Copy] = dataclasses.field(default_factory=set)


class LeaseHistory:
    """Reads actions on servers of leases, and has such carried out."""

    def __init__(self, history: histories.AuditHistory) -> None:
        self._history = history
        self._applier = per_process.PerProcess(rpcapi.ApplierAPI)
        #: What has ended and is remembered, by its row.
        self._ended: dict[int, Any] = {}

    @staticmethod
    def _context() -> Any:
        return context.make_context(is_admin=True)

    def _actions(self, eager: bool = False, **filters: Any) -> list[Any]:
        """Return actions of leases, the newest first."""
        return [action for action in objects.Action.list(
                    self._context(), limit=_LATEST, sort_key='id',
                    sort_dir='desc', filters=filters, eager=eager)
                if action.action_type in _KINDS and place(action)]

    def pending(self) -> tuple[frozenset[LeaseNode], dict[Copy, float]]:
        """Return where an operation on a server has not ended.

        And which copies of images are about to be asked for, since when.
        """
        places, asked = set(), {}
        for action in self._actions(eager=True, state__in=_UNFINISHED):
            where = place(action)
            if where is None or (
                    action.action_plan.state not in _UNFINISHED):
                continue
            if _KINDS[action.action_type] is LeaseOperation.CACHE_IMAGE:
                asked[_copy(action)] = _seconds(action.created_at)
            else:
                places.add(where)
        return frozenset(places), asked

    def ended(self) -> Ended:
        """Return what has failed since it has succeeded, and what took how
        long, the oldest first.
        """
        found = Ended()
        failures = found.failures
        self._look_for_ended()
        for _, action in sorted(self._ended.items()):
            kind, where = _KINDS[action.action_type], place(action)
            assert where is not None
            if action.state == 'SUCCEEDED':
                failures.pop((where, kind), None)
                said = _TOOK.match(action.status_message or '')
                if said:
                    found.took.append(
                        Took(kind, int(said[2]), float(said[1])))
                if kind is LeaseOperation.CACHE_IMAGE:
                    found.asked[_copy(action)] = _seconds(action.updated_at)
                elif kind is LeaseOperation.BOOT and _copy(action)[1]:
                    found.used.add(_copy(action))
                continue
            before = failures.get((where, kind))
            nature, why = outcomes.failure(action.status_message)
            failures[where, kind] = Failure(
                1 + (before.count if before else 0),
                _seconds(action.updated_at),
                action.input_parameters.get('target'), why, nature)
        return found

    def _look_for_ended(self) -> None:
        """Read what has ended since the last look, and forget the oldest.

        A pass every other second cannot read all of an hour anew.
        """
        since = timeutils.utcnow() - datetime.timedelta(seconds=_REMEMBERED_S)
        kept = {row: action for row, action in self._ended.items()
                if _updated(action) > since}
        newest = max(map(_updated, kept.values()), default=since)
        self._ended = kept | {
            action.id: action for action in self._actions(
                state__in=('SUCCEEDED', 'FAILED', 'SKIPPED'),
                updated_at__gt=max(since, newest - _OVERLAP))}

    def order(self, orders: Sequence[OperationRequest], switch: str) -> None:
        """Have operations carried out, as plans of the switch's audit.

        They are not an audit's of their own: what is due on a second cannot
        wait for one.  Whoever is worked on by another plan is left out, and
        ordered again if that is still needed then.
        """
        ctx = self._context()
        audit = objects.Audit.get_by_uuid(ctx, switch, eager=True)
        with leader.shared().claiming():
            busy = self._history.locks().busy_instances
            free = [one for one in orders if one.server not in busy]
            plans = [self._plan(ctx, audit, free[first:first + _TOGETHER])
                     for first in range(0, len(free), _TOGETHER)]
        for plan in plans:
            self._applier().launch_action_plan(ctx, plan)

    @staticmethod
    def _plan(ctx: Any, audit: Any, orders: Iterable[OperationRequest]) -> str:
        plan = objects.ActionPlan(
            ctx, uuid=utils.generate_uuid(), audit_id=audit.id,
            strategy_id=audit.strategy_id, global_efficacy=[],
            # As one that an operator has started: the audit's next run
            # cancels those that nobody has.
            state=objects.action_plan.State.PENDING)
        plan.create()
        for number, one in enumerate(orders):
            own = utils.generate_uuid()
            objects.Action(
                ctx, uuid=own, action_plan_id=plan.id, parents=[],
                action_type=histories.PREFIX + one.kind.value,
                input_parameters=parameters(one, number, plan.uuid, own)
                ).create()
        stages.mark(plan.uuid, stages.PLAN_CREATED)
        return str(plan.uuid)


def parameters(order: OperationRequest, number: int, batch: str, own: str
               ) -> dict[str, Any]:
    """Return an action's parameters; Watcher takes none that are None."""
    lease, node = order.place
    found = {
        'resource_id': order.server or lease, 'operation_id': number,
        'lease': f'{order.project}:{lease}', 'place': f'{lease}:{node}',
        'request': histories.LEASES, 'batch': batch, 'action': own,
        'not_before': order.at, 'not_after': order.until,
        'expected': round(order.expected, 2)}
    if order.kind is LeaseOperation.CACHE_IMAGE and order.build is not None:
        # What is the target of an operation would be left alone for a while.
        found |= {'host': order.host, 'image': order.build.image,
                  'trust': order.build.trust}
    elif order.build is not None:
        of = order.build
        found |= {'node': node, 'project': of.project, 'target': order.host,
                  'trust': of.trust, 'build': _said({
                      'name': of.name, 'flavor': of.flavor, 'image': of.image,
                      'network': of.network, 'key_name': of.key_name})}
    else:
        found['source'] = order.host
        if order.kind is LeaseOperation.RESUME:
            found['target'] = order.host
    if order.text:
        found['text'] = order.text
    return _said(found)


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items()
            if value is not None}
