"""Group [secondary_lease_api]: the lease service and its database."""

import typing

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'secondary_lease_api',
    title='Lease service',
    help="""
The HTTP service by which users ask for leases of secondary capacity, and the
database in which leases are kept. The service reads
/etc/secondary_scheduler/secondary_scheduler.conf and secondary-lease-api.conf
there. The scheduler of leases in Watcher's decision engine reads the options
of the database, so give it those as well.
""")

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'database_url',
        default='sqlite:////var/lib/secondary_scheduler/leases.sqlite',
        secret=True,
        help="""
Where leases are kept, as a URL of SQLAlchemy. The default, one SQLite file, is
enough for a service on one machine, with any number of processes. For several
machines take MariaDB or MySQL
(``mysql+pymysql://user:password@host/secondary_lease``) or PostgreSQL
(``postgresql+psycopg2://user:password@host/secondary_lease``), with a database
of its own. Make and upgrade the tables by "secondary-scheduler lease-db sync"
before the service starts. A change needs a restart.
"""),
    cfg.IntOpt(
        'database_pool_size',
        default=10,
        min=1,
        help="""
How many connections to the database one process keeps open once it has needed
them: as many as it has threads. When more are needed for a moment, up to ten
times as many are opened and closed again; beyond that threads wait. Keep
processes times connections below what the server allows (``max_connections``).
SQLite has no use for it.
"""),
    cfg.StrOpt(
        'auth_strategy',
        default='keystone',
        choices=(
            ('keystone', 'tokens are checked by keystonemiddleware'),
            ('noauth', 'for development only: whoever asks is believed')),
        help="""
How the service knows who asks. "keystone" checks the token with the options of
[keystone_authtoken]. "noauth" is for development and tests: a token
"USER:PROJECT" is believed, and the user "admin" has the role admin. Never use
it where somebody else can connect.
"""),
    cfg.IntOpt(
        'quota_leases',
        default=100,
        min=-1,
        mutable=True,
        help="""
How many leases that are not over a project may have at once; -1 is unlimited.
"secondary-scheduler lease-db quota" sets another number for one project. A
quota bounds what is asked for, not what is got: that is the scheduler's to
decide. The other bound is ``quota_nodes``.
"""),
    cfg.IntOpt(
        'quota_nodes',
        default=1000,
        min=-1,
        mutable=True,
        help="""
How many nodes all leases of a project that are not over may ask for together;
-1 is unlimited. "secondary-scheduler lease-db quota" sets another number for
one project.
"""),
    cfg.IntOpt(
        'quota_quotes',
        default=20,
        min=-1,
        mutable=True,
        help="""
How many quotes of a project may wait for the scheduler's answer at once; -1 is
unlimited. Each costs the scheduler about as much as a lease.
"""),
    cfg.IntOpt(
        'quote_lifetime',
        default=600,
        min=10,
        mutable=True,
        help="""
Seconds after which a quote is forgotten, answered or not. The later it is read
the less it is worth: a quote promises nothing, and others ask for leases
meanwhile.
"""),
    cfg.StrOpt(
        'notification_url',
        secret=True,
        help="""
Where a notification of each event of a lease is sent, as a transport URL of
oslo.messaging (``rabbit://user:password@host:5672/``), with the topics of
[oslo_messaging_notifications]. Their types are ``secondary_lease.created``,
``.paused`` and so on. Without it, the default, none is sent: set it where
somebody reads that topic, or a queue fills up. Nothing waits for the broker;
while it is away notifications are dropped, and events are found in GET
/leases/{id}/events all the same. Service and scheduler each send their own.
"""),
    cfg.URIOpt(
        'webhook_url',
        schemes=['http', 'https'],
        secret=True,
        help="""
Where each event of a lease is sent by a POST request, as JSON:
``{"event_type": "secondary_lease.active", "payload": {...}}``, with what a
notification has. Without it, the default, nothing is sent. Service and
scheduler each send their own, one after the other, in the background; one that
is refused is logged and not sent again, and while nobody answers they are
dropped.
"""),
    cfg.FloatOpt(
        'webhook_timeout',
        default=5.0,
        min=0.1,
        help="""
Seconds after which a request to ``webhook_url`` is given up.
"""),
    cfg.StrOpt(
        'trustee_user_id',
        help="""
The id of the user that [watcher_clients_auth] of Watcher names. Whoever asks
for a lease then gives this user a trust, by which the lease's servers are made
in the owner's name and project; without it, the default, they are made in that
user's own project, where owners cannot see them. Nothing but making servers is
done by the trust. If it is lost, because its owner was disabled or has no role
in the project any more, the lease is paused, and its events say so. Restricted
application credentials cannot give trusts: who uses one is refused.
"""),
    cfg.ListOpt(
        'trust_roles',
        default=['member'],
        help="""
The roles that a trust carries (``trustee_user_id``): those that somebody needs
to make a server. An owner who lacks one of them is refused.
"""),
    cfg.FloatOpt(
        'verify_timeout',
        default=5.0,
        min=0.1,
        help="""
Seconds for which a request for a lease waits for Nova, Glance, Neutron and
Cinder, which are asked side by side, with the token of the request, whether
flavor, image, networks and the like exist and fit, and what Nova's limits
leave. A lease for which one has not answered by then is accepted, shows in
``unverified`` what could not be verified, and is verified before it begins.
"""),
    cfg.ListOpt(
        'verify_limits',
        default=['instances', 'cores', 'ram'],
        item_type=cfg.types.String(choices=['instances', 'cores', 'ram']),
        help="""
The limits of Nova that a lease has to keep within to be accepted. What the
servers of the project's other leases use of them counts as free, since these
leases will be over. Leave out ``cores`` and ``ram`` where Nova has the driver
of unified limits: it does not count those of secondaries.
"""),
    cfg.StrOpt(
        'region_name',
        help="""
The region of the services that are asked (``verify_timeout``). Without it,
the default, the first one in the catalogue is taken: set it if the catalogue
has several.
"""),
    cfg.ListOpt(
        'valid_interfaces',
        default=['internal', 'public'],
        help="""
The interfaces of these services' endpoints in the catalogue, the preferred
one first.
"""),
    cfg.IntOpt(
        'engine_stale_after',
        default=60,
        min=10,
        mutable=True,
        help="""
Seconds after which answers, and the details of /healthcheck, warn that no
engine has looked at leases. An engine does so every ``engine_interval``
seconds (group [secondary_leases]) and tells it at most every ten.
"""),
    cfg.IntOpt(
        'max_limit',
        default=1000,
        min=1,
        mutable=True,
        help="""
How many leases or events one answer lists at most, whatever ``limit`` asks
for. A list of leases ends with a link to its next page.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group's options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[typing.Any, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
