# SPDX-License-Identifier: Apache-2.0

"""Group [secondary_scheduler]: options of agent, scheduler and Watcher."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'secondary_scheduler',
    title='Secondary (preemptible) instances',
    help="""
Options that must be equal in all parts of the plug-in: the agent on each
compute host, the filters and weighers in nova-scheduler, and the collector and
strategies in Watcher read this group from the same file or from copies of it.
Each report of an agent carries a fingerprint of its policies; a fingerprint
that differs from the reader's raises an alarm.
""")

OPTS: list[cfg.Opt] = [
    cfg.MultiStrOpt(
        'policy',
        default=[],
        mutable=True,
        help="""
One policy that limits the harm by secondary instances; the option may be
repeated. A policy names a resource of a host, a threshold, and a time limit.
While a secondary contributes to the use of the resource, the use must not
exceed the threshold for longer than the time limit:

    policy = cpu <= 90% for 10s
    policy = cpu <= 80% for 25s on aggregate:secondary
    policy = slots <= 3 on host:node1
    policy = slots <= 40 in aggregate:rack1

``cpu`` is the use of the whole host (primary and secondaries) in percent of
its CPUs and is checked once a second; ``for`` is the time limit in seconds (3
to 3600), which is never exceeded: the agent limits the host's secondaries to
their floor one second before. ``slots`` is the number of secondaries that run
on the host; its time limit may be left out (60s) and is the time in which
surplus secondaries are migrated or suspended. Without ``on`` a policy applies
to every host; all policies of a host must hold. ``in`` an aggregate, ``slots``
is the total number on all of its hosts: nova-scheduler rejects further ones
there, and Watcher migrates or suspends surplus ones. Further resources are
mem, net_in, net_out, disk_in, disk_out, cores, and as signals of harm to the
primary pressure, steal, membw, llc and probe:NAME: see the documentation.

Without any policy no host takes secondaries. For an invalid policy, agent and
status check end with an error that names the column and a correct example, and
nova-scheduler rejects secondaries; primaries are never affected.
"""),
    cfg.FloatOpt(
        'set_point_margin',
        default=1.0,
        min=0.0,
        max=50.0,
        mutable=True,
        help="""
Margin below a policy's threshold, in percent of the host's capacity. The set
point of the usage controller is the threshold minus this margin, and so is the
limit up to which decisions fill a host. A larger margin causes fewer short
failures of a policy and leaves more capacity unused.
"""),
    cfg.FloatOpt(
        'minimum_share',
        default=5.0,
        min=0.0,
        max=100.0,
        mutable=True,
        help="""
Share of every running secondary under normal control, in percent of its host's
CPU capacity, so that its peers and its owner do not consider it dead.
Secondaries are not throttled below it when the primary is busy. When the
primary's use plus this share for each secondary exceeds the threshold of a
policy, throttling does not suffice: the policy is violated, and secondaries
are migrated or preempted until the remaining ones have ``useful_share``. The
floor, the last resort, is below this share.
"""),
    cfg.FloatOpt(
        'useful_share',
        default=10.0,
        min=0.0,
        max=100.0,
        mutable=True,
        help="""
Smallest share with which a secondary makes useful progress, in percent of its
host's CPU capacity. An instance is placed, migrated, resumed or started on a
host only if every secondary there would have this share below the set point.
When a policy on CPU is violated, secondaries are migrated or preempted, at
least one, until each remaining one has this share. It should be larger than
``minimum_share``: the gap between the two prevents an instance from leaving
and returning repeatedly under a constant load.
"""),
    cfg.DictOpt(
        'trigger_sensitivity',
        default={'25': '7', '20': '6', '15': '5', '10': '4', '8': '3',
                 '6': '2'},
        mutable=True,
        help="""
Number of consecutive failed checks (one a second) after which a policy counts
as violated and the cloud is asked for help, by the policy's time limit in
seconds, as ``timelimit:checks`` pairs. Between two time limits the number is
interpolated, outside the nearest one is used, and it is always between 1 and
timelimit - 1. Few checks cause many, often needless, operations; many checks
leave too little time for operations without loss of work. Policies on
``slots`` are violated at once.
"""),
    cfg.BoolOpt(
        'trigger_sensitivity_adapts',
        default=False,
        mutable=True,
        help="""
Whether each agent learns how long to wait before it asks the cloud for help.
It remembers, for each policy, the last 40 runs of failed checks that ended
before any operation could have ended them: by the agent's own throttling, or
because the primary was busy only for a moment. From the eighth run on a policy
is violated when a run lasts longer than nine in ten of them did, and at the
latest after half its time limit, so that operations have the other half. Until
then ``trigger_sensitivity`` applies. Learning avoids needless operations for a
primary with many short peaks, and asks earlier if peaks last long. The learned
values are lost when the agent restarts.
"""),
    cfg.StrOpt(
        'transport_url',
        secret=True,
        help="""
The message broker through which agents report to nova-scheduler and Watcher,
in the form of ``[DEFAULT] transport_url``. The default is the service's own.
All three must use the same broker and virtual host. With a separate account
for each compute host, set in the agent's own file and not in the shared one, a
single host can be locked out. But any account that may report may report for
any host.
"""),
    cfg.FloatOpt(
        'report_interval',
        default=5.0,
        min=0.5,
        max=60.0,
        mutable=True,
        help="""
Seconds between two regular reports of an agent. A policy that becomes
violated, or holds again, is reported at once. The interval must be clearly
shorter than ``report_stale_after``.
"""),
    cfg.FloatOpt(
        'report_stale_after',
        default=15.0,
        min=1.0,
        max=600.0,
        mutable=True,
        help="""
Seconds after which the last report of an agent no longer counts. A host with
stale data takes no new secondaries and is no target of a migration; running
secondaries stay there under the control of its agent. The clocks of the hosts
must agree to within a few seconds.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register this group and its options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
