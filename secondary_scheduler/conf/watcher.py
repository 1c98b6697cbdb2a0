"""Group [secondary_watcher]: what decides and acts in Watcher."""

import typing

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'secondary_watcher',
    title='Secondary instances in Watcher',
    help="""
How the part of the plug-in that lives in Watcher (collector, strategy,
planner and actions) decides and acts. Decision engine and applier read this
group and [secondary_scheduler] from watcher.conf or from a further
configuration file given to both.
""")

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'coordination_url',
        default='file://$state_path/secondary',
        secret=True,
        help="""
Where the decision engines agree on one leader, as a URL of the tooz library.
Only the leader turns violations into audits, and action plans are claimed
under a lock there, so that two engines never act on one violation twice. The
default, files in Watcher's state directory, is right for decision engines on
one machine: the kernel gives the lock to another engine the moment the
leader dies. Engines on several machines need a service that all of them
reach, e.g. ``mysql://user:password@host/watcher`` (the database Watcher has
anyway) or ``etcd3+http://host:2379``.
"""),
    cfg.FloatOpt(
        'collect_window',
        default=2.0,
        min=0.0,
        max=60.0,
        mutable=True,
        help="""
Seconds in which violations of several hosts are collected and then handled by
one audit, since a burst often hits many hosts at once and one decision for
all is better than many. The first violation after a quiet time does not
wait.
"""),
    cfg.FloatOpt(
        'floor_time_limit',
        deprecated_name='floored_bound',
        default=20.0,
        min=1.0,
        mutable=True,
        help="""
Seconds for which an instance may stay at its floor (the smallest limits at
which a guest still lives, the agent's last resort). Then its host is treated
as violated, and such instances are migrated or suspended where that frees
them or saves their work.
"""),
    cfg.BoolOpt(
        'leave_dynamic_policies_to_agents',
        deprecated_name='agents_first',
        default=False,
        mutable=True,
        help="""
Whether violations of dynamic policies (all but those on slots and cores)
cause no operations until an instance has been at its floor for
``floor_time_limit`` seconds. An agent holds such a policy by throttling,
without loss of work, and most bursts of primaries are over before an
operation would be. True, with a ``floor_time_limit`` of some minutes, leads
to very few operations, while instances may stand still for as long. False,
the default, moves or suspends instances at once, so that they run elsewhere
or wait without holding memory.
"""),
    cfg.FloatOpt(
        'backoff',
        default=30.0,
        min=0.0,
        mutable=True,
        help="""
Seconds for which an instance and the hosts involved are left alone after an
operation, so that operations do not cause each other when no workload has
changed. A violation on such a host is meanwhile left to the agent; one of a
policy on what only operations can change, such as slots, is seen to in the
next round of the CONTINUOUS audit. A host whose violation led to an audit is
not audited again within this time. An instance that could not be brought back
is tried again after twice this time, and with each further failure on its
lease after twice the time before, up to an hour; its lease is suspended
meanwhile.
"""),
    cfg.IntOpt(
        'audits_per_minute',
        default=10,
        min=1,
        mutable=True,
        help="""
Largest number of audits a minute that violations may cause on one scope.
Violations beyond it wait and are merged into the next audit; the agents hold
the policies meanwhile.
"""),
    cfg.FloatOpt(
        'audit_timeout',
        default=60.0,
        min=5.0,
        mutable=True,
        help="""
Seconds after which an audit of ours that is still running is taken for
abandoned, because the decision engine that ran it has died, and is
cancelled. At most one such audit runs on a scope, so a dead one would block
those that follow.
"""),
    cfg.FloatOpt(
        'breaker_percent',
        default=10.0,
        min=0.0,
        max=100.0,
        mutable=True,
        help="""
Circuit breaker: largest share of a scope's secondaries, in percent, that may
be preempted (suspended, shelved or stopped) within ``breaker_period``. What
goes beyond is not carried out, an alarm is logged, and the agents' local
means protect the primaries alone. It bounds the damage of forged reports, a
broken sensor or a mistaken policy. Migrations and draining are not counted.
"""),
    cfg.IntOpt(
        'breaker_minimum',
        default=5,
        min=0,
        mutable=True,
        help="""
Number of preemptions within ``breaker_period`` that the circuit breaker
always lets pass, however small the scope is.
"""),
    cfg.FloatOpt(
        'breaker_period',
        default=300.0,
        min=1.0,
        mutable=True,
        help="""
Seconds over which the circuit breaker counts preemptions.
"""),
    cfg.IntOpt(
        'decision_budget',
        default=100000,
        min=1,
        mutable=True,
        help="""
Largest number of work units (alternatives examined) one decision may spend.
A decision that runs out of it carries out the best plan found so far. It is
counted in work and not in seconds so that the same situation leads to the
same plan.
"""),
    cfg.IntOpt(
        'operations_per_host',
        default=1,
        min=1,
        mutable=True,
        help="""
How many operations of a plan may go on at a time on one host; the others wait
for these to end. One live migration at a time is also what nova-compute does
unless its ``max_concurrent_live_migrations`` is raised, and two that share a
busy host take longer than one after the other. Plans of other audits are not
counted: hosts of one that is carried out are left alone by the next.
"""),
    cfg.FloatOpt(
        'snapshot_stale_after',
        default=120.0,
        min=10.0,
        mutable=True,
        help="""
Seconds after which the collector's picture of compute services, aggregates
and inventories no longer counts, because Nova or Placement could not be
asked. It must be clearly longer than ``period`` of the collector. No decision
is made on an older one. Servers on the hosts that a decision is about are
asked for anew before it, unless they were 15 seconds ago at most and the
host's agent sees the same ones run.
"""),
    cfg.FloatOpt(
        'hand_over_timeout',
        default=1.0,
        min=0.1,
        max=60.0,
        mutable=True,
        help="""
Seconds an action waits for the agent of the host before it calls Nova. The
agent is asked to lift its limits on the emulator's threads, so that the
operation is not slowed. Nova's operations work without an answer.
"""),
    cfg.FloatOpt(
        'operation_timeout',
        default=600.0,
        min=10.0,
        mutable=True,
        help="""
Seconds after which an operation that Nova has not ended counts as failed. A
live migration is then aborted.
"""),
    cfg.FloatOpt(
        'poll_interval',
        default=0.3,
        min=0.05,
        max=30.0,
        mutable=True,
        help="""
Least seconds between two looks at the servers that actions wait for. One
thread in each applier looks for all of them, and less often at who has been
waited for long: an end is noticed late by 5 % of the wait at most.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register this group and its options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[typing.Any, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
