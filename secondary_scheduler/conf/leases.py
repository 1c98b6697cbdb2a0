"""Group [secondary_leases]: how leases are scheduled."""

import typing

from oslo_config import cfg, types

GROUP = cfg.OptGroup(
    'secondary_leases',
    title='Leases of secondary capacity',
    help="""
How leases get their hosts: the queue of those without a time, reservations
and deadlines, who gives way to whom, and how long suspending, resuming and
moving memory takes. The lease service and the simulator read the same group,
so that what an operator sets can be tried on a trace before.
""")

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'backfilling',
        default='aggressive',
        choices=(
            ('off', 'strictly in the order of the queue'),
            ('aggressive', 'only the first that waits is promised a time'),
            ('intermediate', '``backfilling_reservations`` are'),
            ('conservative', 'all that wait are')),
        help="""
How leases that wait may overtake each other. A lease may begin before others
that came earlier if it delays none that was promised a time; the more are
promised one, the less is overtaken. "aggressive" keeps hosts busiest, with
"conservative" every waiting lease can be told when it will begin at the
latest.
"""),
    cfg.IntOpt(
        'backfilling_reservations',
        default=4,
        min=0,
        help="""
How many leases of the queue are promised a time ahead, with ``backfilling``
set to "intermediate".
"""),
    cfg.StrOpt(
        'order',
        default='priority',
        help="""
In which order leases that wait are served, and preempted ones brought back: a
driver of the namespace ``secondary_scheduler.lease_policies.order``.
"priority": the highest priority first, among equals who waits longest; a lease
of low priority may so wait for ever where others keep coming and going.
"aged": as "priority", but a priority grows while its lease waits. "fcfs": who
waits longest. It says nothing about who has to give way.
"""),
    cfg.FloatOpt(
        'ageing',
        default=1.0,
        min=0.0,
        mutable=True,
        help="""
Points of priority that a lease gains for each hour in which it waits, with
``order`` set to "aged". With 1.0 one of priority 3 is served before those of
priority 5 after two hours.
"""),
    cfg.BoolOpt(
        'suspension',
        default=True,
        help="""
Whether best-effort leases may be suspended and resumed. They then begin
although something reserved is in their way, are suspended before that and go
on afterwards. Without it a best-effort lease begins only where it can end in
time, and one that has to give way begins from the start: its work is lost.
"""),
    cfg.FloatOpt(
        'worthwhile',
        default=1.0,
        min=0.0,
        help="""
How long a stretch of running that ends in a suspension has to be, as a
multiple of what it costs: a lease begins before something reserved only if it
can run at least this many times as long as it takes to suspend it (and to
resume it, if it was suspended).
"""),
    cfg.StrOpt(
        'admission',
        default='accept-all',
        help="""
Who may have a lease at all, whether or not there is room for it: a driver of
the namespace ``secondary_scheduler.lease_policies.admission``. "accept-all":
everybody; "no-reservations": no lease with an exact start that is to come;
"notice": these only if they are asked for ``reservation_notice`` seconds
ahead.
"""),
    cfg.IntOpt(
        'reservation_notice',
        default=86400,
        min=0,
        help="""
How many seconds before its start a reservation has to be asked for, with
``admission`` set to "notice". The earlier reservations are known, the less has
to be suspended for them.
"""),
    cfg.StrOpt(
        'host_selection',
        default='quietest',
        help="""
Which hosts are filled first, of those that will do: a driver of the namespace
``secondary_scheduler.lease_policies.host_selection``. "quietest": few leases,
much that is free, the lease's image near, and no change for long (Haizea's);
"fullest": as few hosts as can be are in use; "in-order": hosts as they come.
"""),
    cfg.StrOpt(
        'preemption',
        default='least-run',
        help="""
Who gives way to reservations and to deadlines: a driver of the namespace
``secondary_scheduler.lease_policies.preemption``. "none": nobody;
"least-run": best-effort leases, those first that have run least; "youngest":
those first that were submitted last, and none older than a week (as Haizea);
"most-slack": as least-run, and then leases with a deadline that they will
still meet.
"""),
    cfg.StrOpt(
        'pricing',
        default='free',
        help="""
At which rate leases are offered: a driver of the namespace
``secondary_scheduler.lease_policies.pricing``. "free": nothing is asked;
"constant": ``rate``; "random": drawn between ``rate_min`` and ``rate_max``;
"adaptive": begins with ``rate`` and follows what users accept and refuse;
"maximum": each user pays what they would at most, a bound for experiments.
"""),
    cfg.FloatOpt(
        'rate',
        default=1.0,
        min=0.0,
        help="""
Money for a node and a second, with ``pricing`` set to "constant"; with
"adaptive" the rate of the first lease.
"""),
    cfg.FloatOpt(
        'rate_min',
        default=0.1,
        min=0.0,
        help="""
The lowest rate that is drawn, with ``pricing`` set to "random".
"""),
    cfg.FloatOpt(
        'rate_max',
        default=10.0,
        min=0.0,
        help="""
The highest rate that is drawn, with ``pricing`` set to "random".
"""),
    cfg.FloatOpt(
        'rate_quantile',
        default=0.5,
        min=0.0,
        max=1.0,
        help="""
Which of the rates that users are thought to accept is the one offered, with
``pricing`` set to "adaptive": 0.5 is the median. A smaller one sells more
leases for less.
"""),
    cfg.FloatOpt(
        'slack_threshold',
        default=2.0,
        min=1.0,
        help="""
A lease with a deadline may make others give way only if it has no more slack
than this: the time from its start to its deadline, divided by its duration.
"""),
    cfg.ListOpt(
        'rearranging',
        default=['slack', 'deadline'],
        item_type=types.String(choices=(
            ('slack', 'who has least slack is placed first'),
            ('deadline', 'whose deadline is first'))),
        help="""
In which orders leases that have not begun are placed anew, one after the other
until one fits, where a deadline cannot be met beside what is planned. "slack"
alone is what Haizea does, and takes more leases with tight deadlines; with
"deadline" none is refused that would be taken if all were placed by their
deadlines and nobody gave way. Without any, what is planned stays.
"""),
    cfg.FloatOpt(
        'suspend_rate',
        default=50.0,
        min=0.001,
        help="""
MB of memory that are saved in a second when an instance is suspended. Set it
to what was measured on the site: what is reserved begins late if a suspension
takes longer than was planned for.
"""),
    cfg.FloatOpt(
        'suspend_margin',
        default=0.7,
        min=0.0,
        help="""
The share by which suspensions are planned to take longer than ``suspend_rate``
says. What is reserved begins late if a suspension takes longer than planned
nevertheless; a host whose suspension took less is free at once. With the
default one reservation in two hundred is late if the times that suspensions
take vary by a fifth (lognormal, with two of them before each reservation);
with 0.3 it is one in eleven. Lower it where they vary less.
"""),
    cfg.FloatOpt(
        'resume_rate',
        default=50.0,
        min=0.001,
        help="""
MB of memory that are loaded in a second when an instance is resumed.
"""),
    cfg.StrOpt(
        'exclusion',
        default='local',
        choices=(('local', 'on each host'), ('global', 'on the whole site')),
        help="""
Where one suspension or resumption waits for another, since they share what
limits them: on each host if memory is saved on its own disk, on the whole site
if it is saved over the network in one place.
"""),
    cfg.FloatOpt(
        'enactment_overhead',
        default=0.0,
        min=0.0,
        help="""
Seconds from a command to suspend or resume an instance until it has an
effect; commands of one lease are given one after the other.
"""),
    cfg.IntOpt(
        'shutdown_time',
        default=0,
        min=0,
        help="""
Seconds that it takes to shut down the instances of a lease at its end. Their
hosts are free only then.
"""),
    cfg.StrOpt(
        'migration',
        default='yes',
        choices=(('no', 'a suspended lease is resumed where it is'),
                 ('yes', 'its memory is moved over the network'),
                 ('shared', 'its memory is on a storage that all hosts see')),
        help="""
Whether a suspended lease may be resumed on other hosts.
"""),
    cfg.StrOpt(
        'preparation',
        default='none',
        choices=(('none', 'images are on all hosts, or come from a storage '
                          'that all hosts see'),
                 ('transfer', 'images are sent to hosts before a lease '
                              'begins')),
        help="""
Whether the images of leases have to be sent to their hosts first. It takes its
time, and one image is sent at a time; a lease begins only where its image is,
and a reservation whose image cannot be there in time is refused.
"""),
    cfg.FloatOpt(
        'image_bandwidth',
        default=1000.0,
        min=0.001,
        help="""
Mbit/s at which an image is sent, to one host or to many, with ``preparation``
set to "transfer".
"""),
    cfg.StrOpt(
        'image_reuse',
        default='pool',
        choices=(('none', 'each lease is sent its own copies'),
                 ('transfers', 'leases with the same image share transfers'),
                 ('pool', 'and hosts keep copies for later leases')),
        help="""
Who shares copies of an image, with ``preparation`` set to "transfer".
"""),
    cfg.IntOpt(
        'image_pool',
        default=20480,
        min=0,
        help="""
MB of each host's disk for copies of images, with ``image_reuse`` set to
"pool". When it is full, copies that no lease uses make way, those first on
which leases counted least long.
"""),
    cfg.FloatOpt(
        'migration_rate',
        default=100.0,
        min=0.001,
        help="""
MB of saved memory that move from one host to another in a second.
"""),
    cfg.FloatOpt(
        'engine_interval',
        default=2.0,
        min=0.2,
        max=60.0,
        mutable=True,
        help="""
Seconds between two looks of the engine that runs leases in Watcher, where a
CONTINUOUS audit has the parameter ``leases``. Each look asks Nova for the
servers of secondary flavors, as long as leases have any. It is not how exactly
leases begin: operations are ordered ahead, with the second at which they are
due (``order_lead``).
"""),
    cfg.FloatOpt(
        'order_lead',
        default=5.0,
        min=0.0,
        max=60.0,
        help="""
Seconds before its time at which an operation on a server of a lease is handed
to Watcher's applier, which then waits for its second. It must be longer than
``engine_interval`` and what the applier takes to begin a plan together, about
two seconds on a small cloud; what is handed over cannot be changed any more.
"""),
    cfg.IntOpt(
        'boot_time',
        default=15,
        min=0,
        help="""
Seconds for which the hosts of a lease are held before its duration begins,
since its servers take as long to boot, at most. A reservation's servers begin
to boot as long before its start as boots have taken lately, but never before
that. A reservation with a start that is nearer than this is refused.
"""),
    cfg.IntOpt(
        'image_fetch_time',
        default=0,
        min=0,
        help="""
Seconds in which a host has fetched the largest image of leases and converted
it, at most. With it, Nova is asked to have the images of leases on their hosts
before servers boot: of those that are scheduled and begin later than that, up
to 50 minutes ahead, one image at a time on each host and each image on one
host at a time. A server whose image is on its way to its host boots when these
seconds are over. 0: images are fetched when servers boot. Nova does not keep
others, primaries for instance, from booting from the same image on the same
host meanwhile, both of which then write one file (see the documentation of
leases).
"""),
    cfg.IntOpt(
        'give_up_after',
        default=1800,
        min=10,
        help="""
Seconds for which operations on the servers of a lease (boot, suspend, resume)
may fail before the lease ends as failed. Until then they are tried again with
growing pauses, of five minutes at most. A reason that does not go away ends a
lease at once: an image that does not exist, a full quota, a withdrawn trust.
The servers of a lease that has failed are deleted, so the time has to exceed
any outage of Nova, Neutron, Glance or Keystone that leases are to outlive. For
as long, a lease that is interrupted without its owner's doing stays on its
hosts to make up for it.
"""),
    cfg.FloatOpt(
        'capacity_window',
        default=3600.0,
        min=1.0,
        help="""
Seconds over which the engine watches how much each host may lend to
secondaries; from that follows what is promised (``capacity_risk``). After a
restart it begins anew.
"""),
    cfg.FloatOpt(
        'capacity_risk',
        default=0.5,
        min=0.0,
        max=1.0,
        help="""
How conservative the forecast is against which leases are accepted and begin:
the share of ``capacity_window`` in which a host may have lent less than what
is counted on. 0 counts on the least that it has ever lent in that time, which
closes hosts for everybody whenever a guest boots, since agents close their
hosts for some seconds then; 0.5 on what it could lend half of the time. Leases
that run are not ended because a host may lend less: that happens where a
policy is violated.
"""),
    cfg.FloatOpt(
        'notice',
        default=0.0,
        min=0.0,
        max=3600.0,
        help="""
Seconds before a lease has to give way at which its servers are told: each gets
the metadata item ``secondary:preempt_at`` with the time (UTC), which a guest
reads from the metadata service, and the lease an event. 0: they are not told.
A reservation that is asked for later than that leaves them less.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group's options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[typing.Any, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
