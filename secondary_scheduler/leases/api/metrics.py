# SPDX-License-Identifier: Apache-2.0

"""Metrics of the lease service for Prometheus.

Requests are those of one process. All other values are read from the database
at each scrape, so they are the same for all processes.
"""

import collections
from collections.abc import Iterator
import threading
import time
import typing

from oslo_db import exception as db_exception
from oslo_log import log as logging
import sqlalchemy as sa
import webob
import webob.dec

from secondary_scheduler.leases.api import health, routing
from secondary_scheduler.leases.api.db import models, record_models, schedules
from secondary_scheduler.leases.api.db.store import OPEN
from secondary_scheduler.model import measures

LOG = logging.getLogger(__name__)

PREFIX = 'secondary_lease_api_'
#: Ports that the processes of a service use, from ``metrics_port`` on.
PORTS = 32
#: Operation of requests that were refused before they were routed.
_OTHER = 'other'


class MeasuredRequests:
    """WSGI middleware that counts requests and measures their durations.

    :param inner: the service with its other middleware.
    """

    def __init__(self, inner: typing.Any) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        #: Requests by operation and status.
        self.counts: collections.Counter[tuple[str, str]] = (
            collections.Counter())
        #: Durations by operation.
        self.seconds = measures.make_histograms()

    @webob.dec.wsgify
    def __call__(self, request: webob.Request) -> webob.Response:
        began = time.monotonic()
        response = request.get_response(self._inner)
        operation = request.environ.get(routing.OPERATION, _OTHER)
        with self._lock:
            self.counts[operation, str(response.status_int)] += 1
            self.seconds[operation,].note(time.monotonic() - began)
        return response


def metric_families(service: routing.Service, requests: MeasuredRequests
                    ) -> Iterator[typing.Any]:
    """Yield the metrics of a service.

    Values that the database does not tell are left out.
    """
    from secondary_scheduler import exposition as families
    yield families.make_counter(
        PREFIX + 'requests', 'Requests by operation and status',
        ['operation', 'status'], dict(requests.counts))
    yield families.make_histogram(
        PREFIX + 'request_seconds', 'Duration of requests by operation',
        ['operation'], dict(requests.seconds))
    try:
        found = list(_stored_families(service, families))
    except db_exception.DBError as exc:
        LOG.warning('The database of leases does not answer: %s',
                    str(exc).partition('\n')[0])
        found = []
    yield families.make_gauge(
        PREFIX + 'database_answers', 'Whether the database answers',
        bool(found))
    yield from found


def _stored_families(service: routing.Service, families: typing.Any
                     ) -> Iterator[typing.Any]:
    database, now = service.database, service.store.now
    beat = schedules.read_heartbeat(database)
    with database.reader() as session:
        leases = dict(session.execute(
            sa.select(models.LeaseRow.state, sa.func.count()).where(
                models.LeaseRow.state.in_(OPEN)).group_by(
                models.LeaseRow.state)).tuples().all())
        quotes = session.scalar(
            sa.select(sa.func.count()).select_from(models.Quote).where(
                models.Quote.accepted.is_(None),
                models.Quote.expires_at > now))
        observed = session.scalar(sa.select(sa.func.max(
            record_models.HostState.observed_at)))
    yield families.make_gauges(
        PREFIX + 'leases', 'Leases that are not over, by state', 'state',
        {str(state): leases.get(state, 0) for state in sorted(OPEN)})
    yield families.make_gauge(
        PREFIX + 'unanswered_quotes', 'Quotes without an answer', quotes)
    yield families.make_gauge(
        PREFIX + 'engine_stale', 'Whether the last pass of an engine over '
        'all leases is too long ago',
        health.show_engine(service)['stale'])
    yield families.make_gauge(
        PREFIX + 'engine_last_pass_timestamp_seconds', 'Time of the last '
        'pass of an engine', beat.looked_at)
    yield families.make_gauge(
        PREFIX + 'records_timestamp_seconds', 'Time of the last record of a '
        'host', observed)


def start_metrics(service: routing.Service, requests: MeasuredRequests
                  ) -> None:
    """Serve metrics, if ``metrics_port`` is set; log why that fails."""
    options = service.conf.secondary_lease_api
    if not options.metrics_port:
        return
    try:
        from secondary_scheduler import exposition
        port = exposition.serve_metrics(
            str(options.metrics_address), options.metrics_port,
            lambda: metric_families(service, requests), PORTS)
    except ImportError:
        LOG.error('There are no metrics: prometheus_client is missing. '
                  'Install it by "pip install '
                  'secondary-scheduler[metrics]".')
    except OSError as exc:
        LOG.error('There are no metrics on port %(port)d of %(address)s: '
                  '%(why)s', {'port': options.metrics_port,
                              'address': options.metrics_address, 'why': exc})
    else:
        LOG.info('Metrics of this process are on port %d.', port)
