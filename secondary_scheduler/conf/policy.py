"""Group [secondary_scheduler]: what agent, scheduler and Watcher share."""

import typing

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'secondary_scheduler',
    title='Secondary (preemptible) instances',
    help="""
What all parts of the plug-in must agree on: the agent on each compute host,
the filters and weighers in nova-scheduler, and the collector and strategies
in Watcher read this group from the same file or from copies of it. Each
report of an agent carries a fingerprint of its policies; one that differs
from the reader's raises an alarm.
""")

OPTS: list[cfg.Opt] = [
    cfg.MultiStrOpt(
        'policy',
        default=[],
        mutable=True,
        help="""
One policy that bounds the harm secondary instances may do; the option may be
repeated. A policy says which resource of a host must stay at or below which
threshold while a secondary contributes to its use, and how long it may be
above:

    policy = cpu <= 90% for 10s
    policy = cpu <= 80% for 25s on aggregate:secondary
    policy = slots <= 3 on host:node1
    policy = slots <= 40 in aggregate:rack1

``cpu`` is the use of the whole host (primary and secondaries) in percent of
its CPUs and is checked once a second; ``for`` is the timelimit in seconds
(3 to 3600), which is never overrun: the agent takes the host's secondaries
to their floor one second before. ``slots`` is the number of secondaries that
run on the host; its timelimit may be left out (60s) and is the time in which
surplus ones are moved or suspended. Without ``on`` a policy applies to every
host; all that apply to a host must hold. ``in`` an aggregate, ``slots`` is
the number on all of its hosts together: nova-scheduler lets no more be booted
there, and Watcher moves or suspends surplus ones. Further resources are mem,
net_in, net_out, disk_in, disk_out, cores, and as signals of harm to the
primary pressure, steal, membw, llc and probe:NAME: see the documentation.

Without any policy no host takes secondaries. A policy that cannot be read
stops the agent and the status check with its column and a correct example,
and closes admission for secondaries in nova-scheduler; primaries are never
affected.
"""),
    cfg.FloatOpt(
        'set_point_margin',
        default=1.0,
        min=0.0,
        max=50.0,
        mutable=True,
        help="""
How far below a policy's threshold the host is kept, in percent of the host's
capacity. The usage controller's set point is the threshold minus this margin,
and so is the limit up to which decisions fill a host. A larger margin lets
through fewer short failures of a policy and leaves more capacity unused.
"""),
    cfg.FloatOpt(
        'minimum_share',
        default=5.0,
        min=0.0,
        max=100.0,
        mutable=True,
        help="""
What every running secondary keeps under normal control, in percent of its
host's CPU capacity, so that its peers and its owner do not take it for dead.
It bounds how far they are throttled when the primary is busy: when the
primary's use plus this share for each secondary exceeds the threshold of a
policy, local means do not suffice, the policy is violated, and secondaries
have to leave until those that stay have ``useful_share``. The floor that is
the last resort lies below this share.
"""),
    cfg.FloatOpt(
        'useful_share',
        default=10.0,
        min=0.0,
        max=100.0,
        mutable=True,
        help="""
What a secondary needs to be worth running, in percent of its host's CPU
capacity. An instance is placed, migrated, resumed or started on a host only
if every secondary there would have this much below the set point. When a
policy on CPU is violated, at least one secondary leaves the host, and more of
them until this much is left for each that stays. It should be larger than
``minimum_share``: the gap between the two is what keeps an instance from
leaving and returning over and over under a constant load.
"""),
    cfg.DictOpt(
        'trigger_sensitivity',
        default={'25': '7', '20': '6', '15': '5', '10': '4', '8': '3',
                 '6': '2'},
        mutable=True,
        help="""
After how many failed checks in a row (one a second) a policy counts as
violated and the cloud is asked for help, by the policy's timelimit in
seconds, as ``timelimit:checks`` pairs. Between two timelimits the number is
interpolated, outside the nearest one is taken, and it is always between 1 and
timelimit - 1. Few checks mean many, often needless, operations; many checks
leave too little time for the gentle ones. Policies on ``slots`` are violated
at once.
"""),
    cfg.BoolOpt(
        'trigger_sensitivity_adapts',
        default=False,
        mutable=True,
        help="""
Whether each agent learns how long to wait before it asks the cloud for help.
It remembers, for each policy, the last 40 runs of failed checks that ended
before any operation could have ended them: by the agent's own throttling, or
because the primary was busy for a moment only. From the eighth on a policy is
violated when a run lasts longer than nine in ten of them did, and no later
than after half its timelimit, so that operations have the other half;
``trigger_sensitivity`` says what holds until then. It spares a primary with
many short peaks needless operations, and asks earlier where peaks, once
there, last. What was learned is lost when the agent restarts.
"""),
    cfg.StrOpt(
        'transport_url',
        secret=True,
        help="""
The message broker through which agents report to nova-scheduler and Watcher,
in the form of ``[DEFAULT] transport_url``. By default the service's own is
used. All three must meet on the same broker and virtual host. A separate
account per compute host, set in the agent's own file and not in the shared
one, lets you lock one host out; any account that may report may do so for any
host.
"""),
    cfg.FloatOpt(
        'report_interval',
        default=5.0,
        min=0.5,
        max=60.0,
        mutable=True,
        help="""
Seconds between two reports of an agent when nothing happens. A policy that
becomes violated, or holds again, is reported at once. It must be clearly
shorter than ``report_stale_after``.
"""),
    cfg.FloatOpt(
        'report_stale_after',
        default=15.0,
        min=1.0,
        max=600.0,
        mutable=True,
        help="""
Seconds after which the last report of an agent no longer counts. A host whose
data is stale takes no new secondaries and is no target of a migration; what
runs there stays and remains under the control of its agent. The clocks of
the hosts must agree to within a few seconds.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register this group and its options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[typing.Any, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
