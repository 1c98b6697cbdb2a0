# SPDX-License-Identifier: Apache-2.0

"""Health of the lease engines, from their heartbeats."""

from concurrent import futures
import datetime
import threading
import time
import typing

from oslo_config import cfg
from oslo_middleware.healthcheck import pluginbase

from secondary_scheduler.leases.api import routing, schemas
from secondary_scheduler.leases.api.db import schedules
from secondary_scheduler.leases.api.db.session import Database

#: Name of the back end of /healthcheck, as in setup.cfg.
BACKEND = 'secondary_leases'
#: Seconds for which a check waits, and for which its answer is given again.
_WAIT_S, _CACHED_S = 1.0, 1.0
_NEXT_STEP = (
    'Leases wait until an engine processes them: watcher-decision-engine has '
    'to run, and an audit with the parameter leases=true has to be PENDING '
    'or ONGOING. Ask the operator.')


def engine(beat: schedules.EngineHeartbeat, conf: cfg.ConfigOpts, now: float
           ) -> dict[str, typing.Any]:
    """Return the state of the engines: when one has processed leases last.

    :param now: seconds since 1970.
    :returns: ``last_pass``, a time or None; ``stale``, whether that is too
        long ago; ``message``, '' if it is not stale.
    """
    limit = conf.secondary_lease_api.engine_stale_after
    last = schemas.moment(beat.looked_at)
    if beat.looked_at is None:
        message = f'No engine has processed leases yet. {_NEXT_STEP}'
    elif now - beat.looked_at > limit:
        ago = datetime.timedelta(seconds=int(now - beat.looked_at))
        message = f'Leases were last processed {ago} ago, at {last}. ' + (
            f'Since then: {beat.trouble}.' if beat.trouble else _NEXT_STEP)
    else:
        message = ''
    return {'last_pass': last, 'stale': bool(message), 'message': message}


def show_engine(service: 'routing.Service') -> dict[str, typing.Any]:
    """Return the state of the engines, for a response of a service.

    :raises DBError: if the database does not answer.
    """
    return engine(schedules.read_heartbeat(service.database), service.conf,
                  service.store.now)


class LeaseEngine(pluginbase.HealthcheckBaseExtension):
    """Details of /healthcheck: when leases were last processed.

    The service itself is healthy without an engine, so that load balancers
    continue to send requests to it.  They ask often and do not wait long: a
    check reads the database once a second at most, and waits no longer.
    """

    def __init__(self, oslo_conf: cfg.ConfigOpts,
                 conf: dict[str, typing.Any]) -> None:
        super().__init__(oslo_conf, conf)
        self._database = Database(oslo_conf)
        self._lock = threading.Lock()
        self._answer: futures.Future[pluginbase.HealthcheckResult] | None = (
            None)
        self._asked = 0.0

    def healthcheck(self, server_port: int) -> pluginbase.HealthcheckResult:
        """Return the heartbeat of the engines."""
        with self._lock:
            answer, now = self._answer, time.monotonic()
            if answer is None or (
                    answer.done() and now >= self._asked + _CACHED_S):
                answer = self._answer = futures.Future()
                self._asked = now
                threading.Thread(target=self._read, args=(answer,),
                                 daemon=True, name='lease-health').start()
        try:
            return answer.result(_WAIT_S)
        except TimeoutError:
            return _silent(f'no answer within {_WAIT_S:g} s')

    def _read(self, answer: 'futures.Future[typing.Any]') -> None:
        try:
            found = engine(schedules.read_heartbeat_once(self._database),
                           self.oslo_conf, time.time())
        except Exception as exc:    # a driver may raise anything
            answer.set_result(_silent(str(exc).partition('\n')[0]))
            return
        answer.set_result(pluginbase.HealthcheckResult(
            True, 'leases: no engine processes them' if found['stale']
            else 'leases: OK',
            found['message'] or f'last processed at {found["last_pass"]}'))


def _silent(why: str) -> pluginbase.HealthcheckResult:
    return pluginbase.HealthcheckResult(
        True, 'leases: the database does not answer', why)
