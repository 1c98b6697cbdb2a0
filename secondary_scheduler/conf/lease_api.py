# SPDX-License-Identifier: Apache-2.0

"""Group [secondary_lease_api]: lease service and database of leases."""

from oslo_config import cfg, types

GROUP = cfg.OptGroup(
    'secondary_lease_api',
    title='Lease service',
    help="""
The HTTP service with which users request leases of secondary capacity, and the
database of leases. The service reads secondary_scheduler.conf and
secondary-lease-api.conf in /etc/secondary_scheduler. The scheduler of leases
in Watcher's decision engine needs the options of the database, too.
""")

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'database_url',
        default='sqlite:////var/lib/secondary_scheduler/leases.sqlite',
        secret=True,
        help="""
Database of leases, as a URL of SQLAlchemy. The default, one SQLite file, is
sufficient for a service on one machine, with any number of processes. For
several machines use MariaDB or MySQL
(``mysql+pymysql://user:password@host/secondary_lease``) or PostgreSQL
(``postgresql+psycopg2://user:password@host/secondary_lease``), with a separate
database. Make or upgrade the tables with "secondary-scheduler lease-db sync"
before the service starts. A change needs a restart.
"""),
    cfg.IntOpt(
        'database_pool_size',
        default=10,
        min=1,
        help="""
Number of connections to the database that one process keeps open after their
first use; set it to the number of its threads. For a peak up to ten times as
many are opened and closed again; further threads wait. Keep processes times
connections below the limit of the server (``max_connections``). SQLite ignores
it.
"""),
    cfg.StrOpt(
        'auth_strategy',
        default='keystone',
        choices=(
            ('keystone', 'tokens are checked by keystonemiddleware'),
            ('noauth', 'for development only: any token is accepted')),
        help="""
Authentication of users. "keystone" checks the token with the options of
[keystone_authtoken]. "noauth" is for development and tests: any token
"USER:PROJECT" is accepted, and the user "admin" has the role admin. Never use
it if others can connect.
"""),
    cfg.IntOpt(
        'quota_leases',
        default=100,
        min=-1,
        mutable=True,
        help="""
Largest number of leases of a project that are not over; -1 is unlimited.
"secondary-scheduler lease-db quota" sets another limit for one project. A
quota limits requests; the scheduler decides which of them get capacity. The
other limit is ``quota_nodes``.
"""),
    cfg.IntOpt(
        'quota_nodes',
        default=1000,
        min=-1,
        mutable=True,
        help="""
Largest number of nodes of all leases of a project that are not over; -1 is
unlimited. "secondary-scheduler lease-db quota" sets another limit for one
project.
"""),
    cfg.IntOpt(
        'quota_quotes',
        default=20,
        min=-1,
        mutable=True,
        help="""
Largest number of unanswered quotes of a project; -1 is unlimited. A quote
costs the scheduler about as much work as a lease.
"""),
    cfg.IntOpt(
        'quote_lifetime',
        default=600,
        min=10,
        mutable=True,
        help="""
Seconds after which a quote expires, answered or not. A quote is without
obligation, and its value decreases as other leases are requested.
"""),
    cfg.StrOpt(
        'notification_url',
        secret=True,
        help="""
Transport URL of oslo.messaging (``rabbit://user:password@host:5672/``) for
notifications of events of leases, with the topics of
[oslo_messaging_notifications]. The types are ``secondary_lease.created``,
``.paused`` and so on. Without it, the default, none is sent: set it only if a
consumer reads the topic, or a queue fills up. Nothing waits for the broker;
while it is unavailable notifications are dropped, and GET /leases/{id}/events
still lists the events. Service and scheduler each send their own.
"""),
    cfg.URIOpt(
        'webhook_url',
        schemes=['http', 'https'],
        secret=True,
        help="""
URL to which each event of a lease is sent as JSON by a POST request:
``{"event_type": "secondary_lease.active", "payload": {...}}``, with the
payload of a notification. Without it, the default, nothing is sent. Service
and scheduler each send their own events, one after the other, in the
background. A refused request is logged and not repeated; while the receiver
does not answer, events are dropped.
"""),
    cfg.FloatOpt(
        'webhook_timeout',
        default=5.0,
        min=0.1,
        help="""
Timeout of a request to ``webhook_url`` in seconds.
"""),
    cfg.StrOpt(
        'trustee_user_id',
        help="""
Id of the user in [watcher_clients_auth] of Watcher. With it, the servers of
leases are made in the name and project of their owners, by a standing trust
for this user: one of each owner in each project, with ``trust_roles`` and for
``trust_lifetime`` seconds. The owner's first request with a password makes it.
Application credentials cannot (Keystone refuses them all trusts), but use it
from then on. Without this option, the default, servers are made in the project
of that user, where owners cannot see them. The trust is used only to make
servers and to look their images up. If it becomes invalid, because its owner
was disabled, lost a role or revoked it, no server is deleted: running leases
end at their planned time, and the reason of waiting ones says so. Best effort
waits for a new trust; a lease with a guaranteed start fails at its latest
start. A wrong password of Watcher's own user is not taken for a lost trust.
"""),
    cfg.ListOpt(
        'trust_roles',
        default=['member'],
        help="""
Roles of a standing trust (``trustee_user_id``): the roles that are needed to
make a server. Requests by tokens without one of them are refused, so that no
credential gets more than it has. After a change, an owner's next request with
a password renews the trust; those with other credentials are refused until
then.
"""),
    cfg.IntOpt(
        'trust_lifetime',
        default=31_536_000,
        min=60,
        mutable=True,
        help="""
Seconds after which a standing trust (``trustee_user_id``) ends. A request with
a password renews it if less than a tenth is left at the lease's latest start.
Requests with application credentials cannot renew it: after its end they are
refused until its owner runs "openstack secondary lease trust create". A lease
that may start later than this time from now is refused. The shorter the time,
the sooner a forgotten trust ends, and the more often programs wait for their
owner. The default is a year.
"""),
    cfg.FloatOpt(
        'verify_timeout',
        default=5.0,
        min=0.1,
        help="""
Seconds for which a request for a lease waits for its verification by Nova,
Glance, Neutron and Cinder: whether flavor, image, networks and other objects
exist and fit, and whether Nova's limits leave room. The services are accessed
concurrently, with the token of the request. If one does not answer in time,
the lease is accepted, lists the unverified fields in ``unverified``, and is
verified before it begins.
"""),
    cfg.ListOpt(
        'verify_limits',
        default=['instances', 'cores', 'ram'],
        item_type=types.String(choices=['instances', 'cores', 'ram']),
        help="""
Limits of Nova that a lease must not exceed. The usage by servers of the
project's other leases counts as free, since these leases will be over. Leave
out ``cores`` and ``ram`` if Nova uses the driver of unified limits, which does
not count those of secondaries.
"""),
    cfg.StrOpt(
        'region_name',
        help="""
Region of the services that verify leases (``verify_timeout``). Without it, the
default, the first region in the catalogue is used: set it if the catalogue has
several.
"""),
    cfg.ListOpt(
        'valid_interfaces',
        default=['internal', 'public'],
        help="""
Interfaces of the endpoints of these services in the catalogue, the preferred
one first.
"""),
    cfg.IntOpt(
        'engine_stale_after',
        default=60,
        min=10,
        mutable=True,
        help="""
Seconds without a pass of an engine after which responses, and the details of
/healthcheck, contain a warning. An engine makes a pass over all leases every
``engine_interval`` seconds (group [secondary_leases]) and records it at most
every ten seconds.
"""),
    cfg.IntOpt(
        'max_limit',
        default=1000,
        min=1,
        mutable=True,
        help="""
Largest number of leases or events in one response, even for a larger
``limit``. A list of leases ends with a link to its next page.
"""),
    cfg.PortOpt(
        'metrics_port',
        default=0,
        help="""
TCP port on which the service serves metrics for Prometheus, for
instance 9930; 0 opens none. Each process of the service takes the first free
port from this one on, with its first request, up to 31 ports above: a scrape
of all of them has all requests. It needs ``prometheus_client`` (extra
``metrics``).
"""),
    cfg.HostAddressOpt(
        'metrics_address',
        default='127.0.0.1',
        help="""
Address of ``metrics_port``. Only the host itself can reach the default.
Metrics are neither encrypted nor protected, so use an address of the
management network.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group's options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
