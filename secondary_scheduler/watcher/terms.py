# SPDX-License-Identifier: Apache-2.0

"""Terms of leaders in the actions that they have ordered.

An action begins only while its leader leads.  The next leader takes over the
actions that relieve a host, which gives them its own term.
"""

from collections.abc import Mapping
import dataclasses
import time
from typing import Any

from oslo_db import exception as db_exception
from oslo_log import log
from watcher import objects
from watcher.common import context

from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import leader
from secondary_scheduler.watcher.action_members import ACTION_PREFIX
from secondary_scheduler.watcher.audits import cancel_plan
from secondary_scheduler.watcher.history import GIVEN_UP, UNFINISHED, age_of

LOG = log.getLogger(__name__)

#: Requests whose operations relieve a host for its primaries.
RELIEF = frozenset({'preempt', 'drain'})
#: Seconds in which a new leader takes over the plans of earlier ones.
TAKEOVER_S = 15.0
#: Seconds between two reads of an action that waits for a leader.
_POLL_S = 0.5


@dataclasses.dataclass(frozen=True)
class WaitingOperations:
    """Operations of launched plans that have not begun.

    :ivar relief: number of those that relieve a host for its primaries.
    :ivar other: number of all others.
    :ivar oldest_relief: seconds since the oldest of the former was planned.
    """

    relief: int
    other: int
    oldest_relief: float | None


def _context() -> Any:
    return context.make_context(is_admin=True)


def find_waiting() -> WaitingOperations:
    """Return the operations that wait to begin."""
    waiting = [
        one for one in objects.Action.list(
            _context(), eager=True, filters={'state': 'PENDING'})
        if (one.action_type or '').startswith(ACTION_PREFIX)
        and one.action_plan.state in UNFINISHED]
    relief = [age_of(one.created_at) for one in waiting
              if one.input_parameters.get('request') in RELIEF]
    return WaitingOperations(len(relief), len(waiting) - len(relief),
                             max(relief, default=None))


def await_leader(parameters: Mapping[str, Any]) -> bool:
    """Return whether the leader that has ordered an action leads.

    An action that relieves a host waits until a new leader has taken it over.

    :param parameters: input parameters of the action.  Without a term an
        operator has launched it, and it depends on no leader.
    :raises oslo_db.exception.DBError: if the database fails for as long.
    """
    term = parameters.get('term')
    if term is None:
        return True
    until = time.monotonic() + TAKEOVER_S
    while True:
        try:
            if leader.shared().read_leader().term <= term:
                return True
            if (parameters.get('request') not in RELIEF
                    or time.monotonic() >= until):
                return False
            term = objects.Action.get_by_uuid(
                _context(), parameters['action']).input_parameters['term']
        except db_exception.DBError as exc:
            if time.monotonic() >= until:
                raise
            LOG.warning('The leader cannot be read: %s', exc)
        time.sleep(_POLL_S)


def take_over_plans(term: int) -> None:
    """Take over or cancel the plans of earlier leaders.

    Actions that relieve a host get the new term.  A plan of other actions,
    none of which has begun, is cancelled, and decided again.  Of one that has
    begun, no further action begins.

    :param term: term of the present leadership.
    """
    for plan in objects.ActionPlan.list(_context(), filters={
            'strategy_name': vocabulary.STRATEGY,
            'state__in': ('RECOMMENDED', *UNFINISHED)}):
        # Eager: saving one sends a notification, which contains its plan.
        old = [one for one in objects.Action.list(
                   _context(), eager=True, filters={'action_plan_id': plan.id})
               if one.state in UNFINISHED
               and one.input_parameters.get('term', term) < term]
        relief = [one for one in old
                  if one.input_parameters.get('request') in RELIEF]
        for one in relief:
            one.input_parameters = {**one.input_parameters, 'term': term}
            one.save()
        if relief:
            LOG.info('Plan %s, which relieves hosts, is taken over.',
                     plan.uuid)
        elif old and all(one.state == 'PENDING' for one in old):
            LOG.info('Plan %s of an earlier leader is cancelled.', plan.uuid)
            cancel_plan(plan, f'{GIVEN_UP}: another decision engine leads')
