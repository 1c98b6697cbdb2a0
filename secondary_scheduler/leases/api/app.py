# SPDX-License-Identifier: Apache-2.0

"""Configuration and assembly of the service and its middleware."""

import socket
import typing

from microversion_parse import middleware as microversion
from oslo_config import cfg
from oslo_log import log as logging
import oslo_middleware
from oslo_middleware.healthcheck import opts as checks

from secondary_scheduler.conf import lease_api as options
from secondary_scheduler.leases.api import (
    auth,
    errors,
    events,
    health,
    metrics,
    microversions,
    policies,
    resources,
    routing,
    standing_trusts,
    verification,
)
from secondary_scheduler.leases.api.db import urls
from secondary_scheduler.leases.api.db.quotes import Quotes
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.leases.api.db.store import LeaseStore
from secondary_scheduler.reading.options import load_options

PROG = 'secondary-lease-api'
#: Path for load balancers; it needs neither token nor version.
HEALTH = '/healthcheck'


def configure(arguments: list[str], conf: cfg.ConfigOpts = cfg.CONF,
              files: list[str] | None = None) -> cfg.ConfigOpts:
    """Read the configuration files and set up logging.

    :raises InputError: naming a fault in a file.
    """
    logging.register_options(conf)
    options.register_opts(conf)
    load_options(conf, arguments, project='secondary_scheduler', prog=PROG,
                 default_config_files=files)
    urls.check_url(conf)
    logging.setup(conf, PROG)
    return conf


def service(conf: cfg.ConfigOpts) -> routing.Service:
    """Return the parts of the service, without any connection yet."""
    database = Database(conf)
    publisher = f'{PROG}.{socket.gethostname()}'
    return routing.Service(
        conf, database, LeaseStore(
            database, events.announcer(conf, publisher)),
        Quotes(database), policies.make_enforcer(conf),
        standing_trusts.StandingTrusts(conf, database),
        verification.Verifier.from_options(conf), resources.TABLE)


def application(found: routing.Service) -> auth.Wsgi:
    """Return the WSGI application with its middleware.

    The middleware is built from the inside out. A request passes it in
    reverse order: the client's address behind proxies, the request id, errors
    as JSON, the size limit, the token, the microversion. Requests are counted
    before all of that.
    """
    conf = found.conf
    inner: auth.Wsgi = microversion.MicroversionMiddleware(
        routing.Application(found), microversions.SERVICE_TYPE,
        microversions.VERSIONS)
    inner = auth.middleware(inner, conf)
    inner = oslo_middleware.RequestBodySizeLimiter(inner, conf)
    inner = errors.JsonErrors(inner)
    inner = oslo_middleware.RequestId(inner, conf)
    inner = oslo_middleware.HTTPProxyToWSGI(inner, conf)
    measured = metrics.MeasuredRequests(inner)
    metrics.start_metrics(found, measured)
    conf.register_opts(checks.HEALTHCHECK_OPTS, group='healthcheck')
    conf.set_default('backends', [health.BACKEND], group='healthcheck')
    health_check = oslo_middleware.Healthcheck(None, conf)

    def outer(environ: dict[str, typing.Any], start_response: auth.Wsgi
              ) -> typing.Any:
        chosen = (health_check if environ.get('PATH_INFO') == HEALTH
                  else measured)
        return chosen(environ, start_response)

    return outer


