# SPDX-License-Identifier: Apache-2.0

"""Group [secondary_watcher]: collector, strategy, planner and actions."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'secondary_watcher',
    title='Secondary instances in Watcher',
    help="""
Decisions and actions of the part of the plug-in in Watcher (collector,
strategy, planner and actions). Decision engine and applier read this group and
[secondary_scheduler] from watcher.conf or from a further configuration file
given to both.
""")

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'constraints_file',
        default='',
        mutable=True,
        help="""
YAML file with the operator's placement constraints, a list of entries such as
``- spread: {leases: [PROJECT:LEASE]}``, ``- ban: {instances: [UUID], hosts:
[node1]}`` or ``- quarantine: {hosts: [node1]}``. The kinds are spread, gather,
ban, fence, among, lonely, split, root and quarantine: see the documentation of
placement constraints. Each decision of Watcher reads the file again if it has
changed. If it cannot be read, an error is logged and the last valid
constraints stay in force; if there are none since the service started, no
instance is moved to another host. Several decision engines need the same file.
By default there is no file. Constraints by server groups, availability zones
and aggregates need none: they are taken from Nova.
"""),
    cfg.StrOpt(
        'model_directory',
        default='',
        mutable=True,
        help="""
Directory into which each decision of a CONTINUOUS audit writes the model that
it was made for, as a file AUDIT-UUID.json for ``secondary-scheduler plan
decide`` and ``plan optimise``. The file replaces that of the audit's last
decision, and only the user of Watcher's service may read it: it names hosts,
instances, leases and projects, and contains their use of resources. It has no
passwords, tokens or user data. Use a local directory, since the audit waits
until the file is written. By default no file is written.
"""),
    cfg.FloatOpt(
        'request_timeout',
        default=10.0,
        min=1.0,
        max=60.0,
        help="""
Seconds after which a decision engine or applier gives up a request to Nova or
Placement. Nova itself waits 60 seconds for a cell of which the database does
not answer, and a request for the servers of all cells waits with it. After
such a time-out servers are requested one by one. Those of the silent cell
count as unknown, and decisions on the other cells go on. A longer time delays
these once by as much when a cell falls silent. If it is shorter than the
slowest answer of a healthy Nova (a list of all secondaries), every list fails.
Only requests that have to wait, for the states of compute services and for a
new server, are given 90 seconds. This option takes the place of ``timeout`` in
[watcher_clients_auth].
"""),
    cfg.FloatOpt(
        'collect_window',
        default=2.0,
        min=0.0,
        max=60.0,
        mutable=True,
        help="""
Seconds for which violations of several hosts are collected and then handled by
one audit, since a burst often affects many hosts at once and one decision for
all is better than many. The first violation after a quiet time is handled at
once.
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
as violated, and such instances are migrated or suspended where that frees them
or saves their work.
"""),
    cfg.BoolOpt(
        'leave_dynamic_policies_to_agents',
        deprecated_name='agents_first',
        default=False,
        mutable=True,
        help="""
Whether violations of dynamic policies (all but those on slots and cores) cause
no operations until an instance has been at its floor for ``floor_time_limit``
seconds. An agent holds such a policy by throttling, without loss of work, and
most bursts of primaries are over before an operation would be. True, with a
``floor_time_limit`` of some minutes, leads to very few operations, while
instances may stand still for as long. False, the default, moves or suspends
instances at once, so that they run elsewhere or wait without holding memory.
"""),
    cfg.FloatOpt(
        'backoff',
        default=30.0,
        min=0.0,
        mutable=True,
        help="""
Cool-down in seconds: the time for which an instance and the hosts involved are
excluded from decisions after an operation that succeeded, so that operations
do not cause further ones without a change of workloads. A violation on such a
host is meanwhile left to the agent. A violation of a policy that only
operations can relieve, such as slots, is handled in the next round of the
CONTINUOUS audit. A host whose violation led to an audit is not audited again
within this time. After a failed live migration an instance is not migrated
within this time; it may be suspended. A failed preemption or return is retried
after twice this time, and after each further failure on its lease after twice
the time before, up to an hour; its lease is suspended meanwhile.
"""),
    cfg.IntOpt(
        'audits_per_minute',
        default=10,
        min=1,
        mutable=True,
        help="""
Largest number of audits a minute that violations may cause on one scope.
Further violations wait and are merged into the next audit; the agents enforce
the policies meanwhile.
"""),
    cfg.FloatOpt(
        'audit_timeout',
        default=60.0,
        min=5.0,
        mutable=True,
        help="""
Seconds after which a running audit of the plug-in counts as abandoned, because
its decision engine has died, and is cancelled. At most one such audit runs on
a scope, so an abandoned one would block further ones.
"""),
    cfg.FloatOpt(
        'breaker_percent',
        default=10.0,
        min=0.0,
        max=100.0,
        mutable=True,
        help="""
Circuit breaker: largest share of a scope's secondaries, in percent, that may
be preempted (suspended, shelved or stopped) within ``breaker_period``. Further
preemptions are not carried out, an alarm is logged, and only the local means
of the agents protect the primaries. The breaker limits the damage of forged
reports, a broken sensor or a mistaken policy. Migrations and draining are not
counted.
"""),
    cfg.IntOpt(
        'breaker_minimum',
        default=5,
        min=0,
        mutable=True,
        help="""
Number of preemptions within ``breaker_period`` that the circuit breaker always
lets pass, however small the scope is.
"""),
    cfg.FloatOpt(
        'select_breaker_percent',
        default=50.0,
        min=0.0,
        max=100.0,
        mutable=True,
        help="""
Circuit breaker of the request ``select``: largest share of a scope's
secondaries, in percent, that cluster-wide context switches may preempt within
``breaker_period``. These preemptions are not counted for ``breaker_percent``,
so that they never keep a violation from being relieved. ``breaker_minimum``
applies as well.
"""),
    cfg.FloatOpt(
        'default_demand',
        default=100.0,
        min=0.0,
        max=100.0,
        mutable=True,
        help="""
CPU that an instance is taken to want while it is down, in percent of its
vCPUs, if its demand was not stored when it was preempted. The default lets a
lease run only where all of its instances could use all of their vCPUs.
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
        'record_days',
        default=30,
        min=1,
        mutable=True,
        help="""
Days for which records of action plans and their operations are kept in the
database of leases, for GET /operations of the lease service. They are written
while an audit has the parameter leases=true, whether or not Watcher purges its
own.
"""),
    cfg.IntOpt(
        'decision_budget',
        default=100000,
        min=1,
        mutable=True,
        help="""
Largest number of work units (examined alternatives) of one decision. A
decision that has used up its units carries out the best plan found so far. The
unit is work and not time, so that the same situation leads to the same plan.
"""),
    cfg.IntOpt(
        'operations_per_host',
        default=1,
        min=1,
        mutable=True,
        help="""
Largest number of concurrent operations of a plan on one host; further ones
wait for these to end. The default of nova-compute, too, is one live migration
at a time (``max_concurrent_live_migrations``), and two concurrent ones on a
busy host take longer than two consecutive ones. Plans of other audits are not
counted: hosts of a plan in progress are excluded from the next decision.
"""),
    cfg.FloatOpt(
        'snapshot_stale_after',
        default=120.0,
        min=10.0,
        mutable=True,
        help="""
Seconds after which the collector's snapshot of compute services, aggregates
and inventories no longer counts, because Nova or Placement did not answer. It
must be clearly longer than ``period`` of the collector. No decision is based
on an older snapshot. The servers on the hosts of a decision are read again
before it, unless they were read at most 15 seconds ago and the host's agent
reports the same running ones.
"""),
    cfg.FloatOpt(
        'hand_over_timeout',
        default=1.0,
        min=0.1,
        max=60.0,
        mutable=True,
        help="""
Seconds for which an action waits for the agent of the host before it calls
Nova. The agent is asked to lift its limits on the emulator's threads, so that
they do not slow the operation. Nova's operations work without an answer, too.
"""),
    cfg.FloatOpt(
        'operation_timeout',
        default=600.0,
        min=10.0,
        mutable=True,
        help="""
Seconds after which an unfinished operation of Nova counts as failed. A live
migration is then aborted.
"""),
    cfg.FloatOpt(
        'poll_interval',
        default=0.3,
        min=0.05,
        max=30.0,
        mutable=True,
        help="""
Smallest interval in seconds at which the servers of running actions are
polled. One thread in each applier polls for all actions, and polls long
operations less often: the end of an operation is noticed late by at most 5 %
of its duration.
"""),
    cfg.PortOpt(
        'metrics_port',
        default=0,
        help="""
TCP port on which the decision engine serves metrics for Prometheus, for
instance 9920; 0 opens none. Of several decision engines on one machine each
takes the first free port from this one on, up to 7 ports above. It needs
``prometheus_client`` (extra ``metrics``).
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
    """Register this group and its options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
