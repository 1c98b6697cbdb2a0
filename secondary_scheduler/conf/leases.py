"""Group [secondary_leases]: how leases are scheduled."""

import typing

from oslo_config import cfg

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
    cfg.FloatOpt(
        'migration_rate',
        default=100.0,
        min=0.001,
        help="""
MB of saved memory that move from one host to another in a second.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group's options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[typing.Any, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
