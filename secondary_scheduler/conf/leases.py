# SPDX-License-Identifier: Apache-2.0

"""Options of the group [secondary_leases]: scheduling of leases."""

from oslo_config import cfg, types

GROUP = cfg.OptGroup(
    'secondary_leases',
    title='Leases of secondary capacity',
    help="""
Scheduling of leases: the queue of best-effort leases, reservations, deadlines,
preemption, and the durations of suspending, resuming and moving memory. The
lease service and the simulator read the same group, so that settings can be
tried on a trace first.
""")

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'backfilling',
        default='aggressive',
        choices=(
            ('off', 'leases start strictly in the order of the queue'),
            ('aggressive', 'only the first waiting lease has a planned '
                           'start'),
            ('intermediate', '``backfilling_reservations`` leases have a '
                             'planned start'),
            ('conservative', 'all waiting leases have a planned start')),
        help="""
Rule by which waiting leases may overtake each other. A lease may begin before
earlier ones if it delays no lease with a planned start; the more leases have
one, the fewer overtake. "aggressive" keeps hosts busiest. With "conservative"
the latest start of every waiting lease is known.
"""),
    cfg.IntOpt(
        'backfilling_reservations',
        default=4,
        min=0,
        help="""
Number of queued leases with a planned start, with ``backfilling`` set to
"intermediate".
"""),
    cfg.StrOpt(
        'order',
        default='priority',
        help="""
Order in which waiting leases are served and preempted ones return: a driver of
the namespace ``secondary_scheduler.lease_policies.order``. It does not select
leases to preempt.

* "priority": the highest priority first; among equals, the earliest arrival. A
  lease of low priority may starve.
* "aged": as "priority", but priorities grow from the arrival of a lease on.
* "fcfs": the earliest arrival first.
"""),
    cfg.FloatOpt(
        'ageing',
        default=1.0,
        min=0.0,
        mutable=True,
        help="""
Points of priority that a lease gains per hour from its arrival, with ``order``
set to "aged". With 1.0, a lease of priority 3 is served before new ones of
priority 5 after two hours.
"""),
    cfg.BoolOpt(
        'suspension',
        default=True,
        help="""
Allow suspensions of best-effort leases. They then also begin before other
bookings of their hosts, are suspended in time and resume later. Otherwise a
best-effort lease begins only if it can end in time, and a preempted one starts
again: its work is lost.
"""),
    cfg.FloatOpt(
        'minimum_run_factor',
        default=1.0,
        min=0.0,
        deprecated_name='worthwhile',
        help="""
Least time to run before a planned suspension, as a multiple of the time to
suspend the lease (and to resume it, if it was suspended). A lease does not
begin if it would run for less.
"""),
    cfg.StrOpt(
        'admission',
        default='accept-all',
        help="""
Policy that admits or rejects leases, regardless of free capacity: a driver of
the namespace ``secondary_scheduler.lease_policies.admission``.

* "accept-all": admit every lease.
* "no-reservations": reject leases with an exact start in the future.
* "notice": reject these unless they are requested ``reservation_notice``
  seconds ahead.
"""),
    cfg.IntOpt(
        'reservation_notice',
        default=86400,
        min=0,
        help="""
Seconds before its start by which a reservation must be requested, with
``admission`` set to "notice". The earlier reservations are known, the fewer
leases are suspended for them.
"""),
    cfg.StrOpt(
        'host_selection',
        default='quietest',
        help="""
Order in which suitable hosts are filled: a driver of the namespace
``secondary_scheduler.lease_policies.host_selection``.

* "quietest": few leases, much free capacity, the lease's image near, and a
  late next change first (as Haizea).
* "fullest": the least free capacity first, to keep few hosts in use.
* "in-order": hosts by their index.
"""),
    cfg.StrOpt(
        'preemption',
        default='least-run',
        help="""
Leases that may be preempted for reservations and deadlines: a driver of the
namespace ``secondary_scheduler.lease_policies.preemption``.

* "none": no leases.
* "least-run": best-effort leases, the least run time first.
* "youngest": best-effort leases, the latest submitted first, and none older
  than a week (as Haizea).
* "most-slack": as "least-run", then leases that still meet their deadline.
"""),
    cfg.StrOpt(
        'pricing',
        default='free',
        help="""
Rate at which leases are offered: a driver of the namespace
``secondary_scheduler.lease_policies.pricing``.

* "free": no charge.
* "constant": ``rate``.
* "random": drawn between ``rate_min`` and ``rate_max``.
* "adaptive": begins with ``rate``, then learns from accepted and refused
  rates.
* "maximum": the highest rate each user accepts; an upper bound for
  experiments.
"""),
    cfg.FloatOpt(
        'rate',
        default=1.0,
        min=0.0,
        help="""
Money per node and second, with ``pricing`` set to "constant"; with "adaptive",
the rate of the first lease.
"""),
    cfg.FloatOpt(
        'rate_min',
        default=0.1,
        min=0.0,
        help="""
Lowest random rate, with ``pricing`` set to "random".
"""),
    cfg.FloatOpt(
        'rate_max',
        default=10.0,
        min=0.0,
        help="""
Highest random rate, with ``pricing`` set to "random".
"""),
    cfg.FloatOpt(
        'rate_quantile',
        default=0.5,
        min=0.0,
        max=1.0,
        help="""
Quantile of the users' estimated acceptable rates that is offered, with
``pricing`` set to "adaptive": 0.5 is the median. A smaller quantile sells more
leases for less.
"""),
    cfg.FloatOpt(
        'slack_threshold',
        default=2.0,
        min=1.0,
        help="""
Highest slack with which a lease with a deadline may preempt others. Slack is
the time from its start to its deadline, divided by its duration.
"""),
    cfg.ListOpt(
        'deadline_replanning_orders',
        default=['slack', 'deadline'],
        item_type=types.String(choices=(
            ('slack', 'the least slack first'),
            ('deadline', 'the earliest deadline first'))),
        deprecated_name='rearranging',
        help="""
Orders in which leases that have not begun are re-planned if a deadline cannot
be met otherwise. The orders are tried one after the other. Haizea uses "slack"
alone, which accepts more leases with tight deadlines. "deadline" rejects no
lease that would be accepted if all were placed by their deadlines without
preemption. An empty list disables re-planning.
"""),
    cfg.FloatOpt(
        'suspend_rate',
        default=50.0,
        min=0.001,
        help="""
MB of memory saved per second when an instance is suspended. Set it to a rate
measured on the site: a reservation begins late if a suspension takes longer
than planned.
"""),
    cfg.FloatOpt(
        'suspend_margin',
        default=0.7,
        min=0.0,
        help="""
Share by which planned suspensions exceed the duration that follows from
``suspend_rate``. A reservation begins late if a suspension takes even longer;
a host whose suspension takes less is free at once. If the durations of
suspensions vary by a fifth (lognormal, two of them before each reservation),
one reservation in two hundred is late with the default, and one in eleven with
0.3. Lower it where durations vary less.
"""),
    cfg.FloatOpt(
        'resume_rate',
        default=50.0,
        min=0.001,
        help="""
MB of memory loaded per second when an instance is resumed.
"""),
    cfg.StrOpt(
        'suspend_serialization',
        default='local',
        choices=(('local', 'one at a time on each host'),
                 ('global', 'one at a time on the whole site')),
        deprecated_name='exclusion',
        help="""
Scope within which suspensions and resumptions run one at a time, since they
share a disk or a link. Choose "local" if each host saves memory to its own
disk, "global" if all save it over the network to one storage.
"""),
    cfg.FloatOpt(
        'command_latency',
        default=0.0,
        min=0.0,
        deprecated_name='enactment_overhead',
        help="""
Seconds from a command to suspend or resume an instance until it takes effect.
The commands for one lease are given one after the other.
"""),
    cfg.IntOpt(
        'shutdown_time',
        default=0,
        min=0,
        help="""
Seconds to shut down the instances of a lease at its end. Their hosts are free
after that.
"""),
    cfg.StrOpt(
        'migration',
        default='yes',
        choices=(('no', 'a suspended lease is resumed on the same hosts'),
                 ('yes', 'its memory is moved over the network'),
                 ('shared', 'its memory is on storage shared by all hosts')),
        help="""
Migration of suspended leases to other hosts, on which they resume.
"""),
    cfg.StrOpt(
        'preparation',
        default='none',
        choices=(('none', 'images are on all hosts, or on storage shared by '
                          'all hosts'),
                 ('transfer', 'images are transferred to hosts before a '
                              'lease begins')),
        help="""
Preparation of hosts before a lease begins. One image is transferred at a time.
A lease begins only on hosts with its image, and a reservation is rejected if
its image would arrive late.
"""),
    cfg.FloatOpt(
        'image_bandwidth',
        default=1000.0,
        min=0.001,
        help="""
Mbit/s at which an image is transferred, to one host or to many, with
``preparation`` set to "transfer".
"""),
    cfg.StrOpt(
        'image_reuse',
        default='pool',
        choices=(('none', 'each lease gets its own copies'),
                 ('transfers', 'leases with the same image share transfers'),
                 ('pool', 'as "transfers", and hosts keep copies for later '
                          'leases')),
        help="""
Sharing of image copies between leases, with ``preparation`` set to "transfer".
"""),
    cfg.IntOpt(
        'image_pool',
        default=20480,
        min=0,
        help="""
MB of each host's disk for copies of images, with ``image_reuse`` set to
"pool". When it is full, unused copies are evicted, the earliest expiry first.
A copy expires at the latest planned end of a lease that has used it.
"""),
    cfg.FloatOpt(
        'migration_rate',
        default=100.0,
        min=0.001,
        help="""
MB of saved memory moved per second from one host to another.
"""),
    cfg.FloatOpt(
        'engine_interval',
        default=2.0,
        min=0.2,
        max=60.0,
        mutable=True,
        help="""
Seconds between two passes of the lease engine, which runs in Watcher for a
CONTINUOUS audit with the parameter ``leases``. Each pass asks Nova for the
servers of secondary flavors, as long as leases have any. The interval does not
limit the precision of starts: operations are handed over ahead of time, with
the second at which they are due (``action_plan_lead_time``).
"""),
    cfg.FloatOpt(
        'action_plan_lead_time',
        default=5.0,
        min=0.0,
        max=60.0,
        deprecated_name='order_lead',
        help="""
Seconds before it is due at which an operation on a server of a lease is handed
to Watcher's applier, in an action plan; the applier waits for the due second.
It must exceed ``engine_interval`` plus the time the applier takes to begin a
plan, about two seconds on a small cloud. An operation cannot be changed once
it is handed over.
"""),
    cfg.IntOpt(
        'boot_time',
        default=15,
        min=0,
        help="""
Seconds for which the hosts of a lease are booked before its duration begins:
the longest time its servers take to boot. The servers of a reservation begin
to boot before its start by the time that recent boots have taken, but never by
more than this option. A reservation with a nearer start is rejected.
"""),
    cfg.IntOpt(
        'image_fetch_time',
        default=0,
        min=0,
        help="""
Longest time, in seconds, in which a host fetches and converts an image of a
lease. 0: images are fetched when servers boot.

Otherwise Nova pre-caches the images of scheduled leases that begin later than
this, up to 50 minutes ahead: one image at a time on each host, and each image
on one host at a time. A server whose image is being fetched boots after these
seconds. Nova does not prevent other servers, primaries for instance, from
booting the same image on the same host meanwhile; both then write one file
(see the documentation of leases).
"""),
    cfg.IntOpt(
        'give_up_after',
        default=1800,
        min=10,
        help="""
Seconds for which operations on the servers of a lease (boot, suspend, resume)
may fail before the lease fails. Until then they are retried with exponential
back-off, at most five minutes. A permanent cause fails the lease at once: a
missing image or an exhausted quota. A lost trust is none, and deletes no
server: running leases end at their planned time, best effort waits for a new
trust, and a lease with a guaranteed start fails at its latest start. The
servers of a failed lease are deleted, so the time must exceed any outage of
Nova, Neutron, Glance or Keystone that leases should survive. An interruption
shorter than this that the owner has not caused extends the lease by the lost
time.
"""),
    cfg.BoolOpt(
        'delete_unknown_servers',
        default=False,
        help="""
Delete servers that have the label of a lease which the database does not know.
Otherwise they are only reported: by a warning in the log of Watcher's decision
engine, and by the metric ``secondary_lease_engine_unknown_servers``.

The record of a lease that is over may have been deleted while a server of it
existed, or an owner has written the label. With a database that is new, or was
restored from a backup, the servers of all leases that it lacks have such
labels. So a server is deleted only if the engine has written its heartbeat to
this database without a gap of two minutes since before the server was created.
An empty or older database deletes none.
"""),
    cfg.FloatOpt(
        'capacity_window',
        default=3600.0,
        min=1.0,
        help="""
Seconds for which the engine remembers the capacity that each host could lend
to secondaries. The forecast for leases follows from it (``capacity_risk``). A
restart discards it (``capacity_learning_time``).
"""),
    cfg.FloatOpt(
        'capacity_learning_time',
        default=300.0,
        min=0.0,
        max=3600.0,
        help="""
Seconds after its start in which the engine rejects no lease for lack of room.
Such a lease stays ``pending`` until there is room or the time is over. Hosts
that an agent has just closed for some seconds would otherwise look full for
days ahead. Leases that fit are accepted at once, and leases that no cloud of
this size could hold are rejected at once.
"""),
    cfg.FloatOpt(
        'capacity_risk',
        default=0.5,
        min=0.0,
        max=1.0,
        help="""
Risk of the capacity forecast by which leases are accepted and begin: the share
of ``capacity_window`` in which a host could lend less than the forecast. 0
forecasts the least capacity of that time. It closes a host for all leases
whenever a guest boots, since agents close their hosts for some seconds then.
0.5 forecasts the median. Running leases are not preempted because of a lower
forecast, but only if a policy is violated.
"""),
    cfg.FloatOpt(
        'notice',
        default=0.0,
        min=0.0,
        max=3600.0,
        help="""
Seconds of notice before a lease is preempted; 0: none. Each of its servers
gets the metadata item ``secondary:preempt_at`` with the time (UTC), which a
guest reads from the metadata service, and the lease gets an event. The notice
is shorter if a reservation is requested later.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group's options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
