# SPDX-License-Identifier: Apache-2.0

"""Group [secondary_agent]: the agent on each compute host."""

import socket

from oslo_config import cfg

from secondary_scheduler.conf import (
    agent_admission,
    agent_affinity,
    agent_sensors,
    agent_suspects,
)

GROUP = cfg.OptGroup(
    'secondary_agent',
    title='Agent on a compute host',
    help="""
``secondary-agent`` runs on each compute host as root. It throttles the
secondaries of the host so that the policies of [secondary_scheduler] hold. It
does so without the message bus, Keystone, Placement and libvirtd: these are
only needed to discover new guests and to report to the cloud. Its own file
should be readable by root only, since [placement] contains a password.
""")

OPTS: list[cfg.Opt] = [
    cfg.HostAddressOpt(
        'host',
        default=socket.gethostname(),
        sample_default='<current_hostname>',
        help="""
Name of this compute host in reports and in the scope ``host:`` of policies.
It must equal ``[DEFAULT] host`` of nova-compute on the same machine, since
nova-scheduler and Watcher look up reports by that name.
"""),
    cfg.StrOpt(
        'hypervisor_hostname',
        help="""
Name of this host's root resource provider in Placement, which is Nova's
hypervisor hostname. By default it is the host name that libvirt returns, as
in Nova's libvirt driver; until libvirt has answered, ``host`` is used. Set it
only where the two differ.
"""),
    cfg.StrOpt(
        'libvirt_uri',
        default='qemu:///system',
        help="""
Address of libvirt. The connection is read-only: the agent lists domains,
reads their XML and waits for events. ``dirty_rate_interval``,
``balloon_minimum`` and policies on links or disks use separate connections
that can change domains. libvirt's setters block for 30 s while a migration
job runs, and nothing else waits for them.
"""),
    cfg.StrOpt(
        'libvirt_run_dir',
        default='/run/libvirt/qemu',
        help="""
Directory in which libvirt keeps a ``<domain>.pid`` file for each running
QEMU. The process number in it is used only if the command line of that
process contains the domain's UUID and name.
"""),
    cfg.StrOpt(
        'save_dir',
        default='/var/lib/libvirt/qemu/save',
        help="""
Directory to which libvirt saves the memory of suspended guests (its
``managedsave``). The agent reports the free space of its disk, and Watcher
suspends no instance whose memory would not fit. If the agent cannot see the
directory, the space is unknown and not checked.
"""),
    cfg.StrOpt(
        'state_path',
        default='/var/lib/secondary-agent',
        help="""
Directory for the state that must survive a restart of the agent. It holds:

* the known secondaries, and the original limits and CPU sets of their cgroups
* the controllers that the agent has enabled for their groups
* the last policies
* the lock against a second agent
* ``status.json`` for ``secondary-agent status``

It should be on a local disk and writable by root only.
"""),
    cfg.FloatOpt(
        'control_period',
        default=0.5,
        min=0.1,
        max=5.0,
        help="""
Seconds between two steps of the usage controller. Each step measures the use
by the host and its secondaries since the last one and sets new limits. A
shorter period reacts faster and costs more CPU; measurements get noisy when
it comes near ``quota_period_ms``.
"""),
    cfg.FloatOpt(
        'controller_gain',
        default=1.0,
        min=0.05,
        max=1.9,
        help="""
Gain of the usage controller: the part of the deviation from the set point by
which the secondaries' common share changes in one step. 1 removes a deviation
in one step; the loop is stable below 2 and overshoots above 1. Lower it on
hosts whose primary varies faster than ``control_period``.
"""),
    cfg.FloatOpt(
        'probe_share',
        default=2.0,
        min=0.1,
        max=50.0,
        help="""
Share by which an idle secondary recovers, in percent of the host's CPU
capacity. Shares follow present use, so the share of an idle guest decays to
the minimum. Each guest's use counts as this much larger when shares are
split, so that its share can grow again. A larger value makes the split more
equal.
"""),
    cfg.IntOpt(
        'quota_period_ms',
        default=20,
        min=5,
        max=100,
        help="""
Period of the bandwidth limits for vCPU threads, in milliseconds. With a short
period a guest neither bursts nor stalls for long, but the host has more timer
interrupts. The kernel grants no less than 1 ms a period. For a smaller share
the period is longer, up to 100 ms, so that 1 ms is that share.
"""),
    cfg.IntOpt(
        'service_quota_ms',
        default=10,
        min=1,
        max=100,
        help="""
CPU time for the emulator thread and each I/O thread of a guest at the floor,
in milliseconds of one CPU in 100 ms; vCPU threads get less. When
Watcher announces an operation of Nova on the guest, ``operation_share``
applies in its place for ``operation_grace``, since suspend and migration run
in these threads.
"""),
    cfg.IntOpt(
        'floor_period_ms',
        default=100,
        min=100,
        max=1000,
        help="""
Period in milliseconds in which each vCPU of a guest at the floor may run for
1 ms. With 100 it gets 1 % of a CPU, and Nova's operations on it take no
longer than on a guest without limits. With 1000, the kernel's longest period,
it gets 0.1 %. Choose 1000 if the floor must work like a pause. This is the
case on a host with too many guests for 1 % of a CPU each, or if their caches
and memory traffic harm the primary. A vCPU that holds QEMU's lock then delays
an operation by up to a second at a time. The guest's kernel may report stalls
afterwards. The agent never pauses a guest through libvirt, because Nova could
not tell that from a pause by its owner.
"""),
    cfg.StrOpt(
        'last_resort',
        default='floor',
        choices=[
            ('floor', 'take every secondary of the host to its floor'),
            ('kill', 'kill the QEMU process of every secondary of the host'),
        ],
        help="""
Action one second before a policy would become invalid. The floor is instant,
loses no work and is invisible to Nova. A kill loses the memory of the guest,
and Nova finds it stopped; it is for hosts on which the floor does not
suffice. The floor cannot be set if the control group of a guest lacks the CPU
controller. Then the agent freezes that group (version 2) while Nova does not
operate on the guest. If that is not possible either, only ``kill``
stops its harm to the primary. ``secondary-agent status`` names the guest and
the file, and the host admits no more.
"""),
    cfg.IntOpt(
        'memory_headroom_mb',
        min=0,
        help="""
Memory of the host in MiB that is kept free for primaries. If the largest
primary flavor must be able to start at any time on a host that secondaries
fill, it should be at least the memory of this flavor. Unset, it is 5 % of the
host; 0 keeps none, and leaves memory to the policies on mem and to the
kernel.

The headroom is not offered in Placement. This host gets the additional policy
``mem <= (100 % - headroom) for 60s``, so that secondaries are moved or
suspended when the headroom is used. If memory shrinks faster, the agent acts
by itself, in three stages:

* first, the kernel reclaims pages of secondaries before others
* when half of the headroom is gone, secondaries go to the floor
* when three quarters are gone, ``memory_last_resort`` follows
"""),
    cfg.StrOpt(
        'memory_last_resort',
        default='kill',
        choices=[
            ('kill', 'kill the secondary of the lowest priority, and the next '
             'one if its memory did not suffice'),
            ('none', 'leave it to the kernel, which kills secondaries first'),
        ],
        help="""
Action when three quarters of ``memory_headroom_mb`` are gone. The kernel's
OOM killer would kill the same secondary a moment later. But before that,
every process that needs memory would search for pages, primaries included. A
killed secondary loses its memory. Nova shows it as stopped, the report names
it, and Watcher starts it when there is room. Instances that are being
suspended or migrated are killed last, since their memory is being moved.
"""),
    cfg.FloatOpt(
        'balloon_minimum',
        deprecated_name='balloon_least',
        default=100.0,
        min=10.0,
        max=100.0,
        help="""
Part of its memory that a secondary keeps when its balloon is filled because
the headroom is in use, in percent. 100 leaves balloons alone. A smaller value
returns memory that guests do not use, if they have a virtio balloon driver. A
guest that uses all of its memory may then swap, or kill programs of its
owner; therefore it is off by default. The secondary gets all of its memory
back when there is room again. This needs a libvirt connection that can change
domains.
"""),
    cfg.FloatOpt(
        'floor_lift_delay',
        deprecated_name='calm_after',
        default=5.0,
        min=1.0,
        max=600.0,
        help="""
Seconds for which a host must have room for a guest at the floor before the
floor is lifted. There is room while the primary's use plus ``useful_share``
for each guest above the floor is below the set point. Guests are lifted
highest priority first, as many as there is room for. A floor that was set
because memory was short is lifted when memory has been sufficient for as
long.
"""),
    cfg.FloatOpt(
        'operation_share',
        default=15.0,
        min=1.0,
        max=100.0,
        help="""
Limit of each emulator or I/O thread of a secondary, in percent of the host,
except at the floor without an operation. Suspends and live migrations run in
these threads: without a limit, the operation that is to relieve a busy primary
would take CPU from it. While Nova operates on n secondaries the limit is
divided by n, for every secondary. A larger value
makes operations faster, a smaller one disturbs the primary less.
"""),
    cfg.FloatOpt(
        'operation_grace',
        default=120.0,
        min=1.0,
        max=3600.0,
        help="""
Seconds after the announcement of an operation in which the emulator and I/O
threads of a guest run without the floor's limit (``operation_share`` applies).
Its vCPUs stay at the floor
for as long if a policy was failing. This limits the effect of a lost message;
an operation that takes longer continues more slowly. For a migration that
would not end otherwise, it is twice the time in which the memory is copied,
if that is longer.
"""),
    cfg.FloatOpt(
        'domain_period',
        default=2.0,
        min=0.5,
        max=60.0,
        help="""
Seconds between two listings of domains. libvirt's events, and changes in
``libvirt_run_dir``, cause a listing at once; the periodic one finds changes
without an event, such as a restart of libvirtd.
"""),
    cfg.FloatOpt(
        'dirty_rate_interval',
        default=30.0,
        min=0.0,
        max=3600.0,
        help="""
Seconds between two measurements of the memory that each secondary writes to.
From these, Watcher predicts the duration of a live migration. The agent
decides whether it would end at all: if not, the instance goes to the floor
for it. QEMU compares a sample of the guest's pages (2 MiB of each GiB) after
one second and after five. Measurements need a libvirt connection that can
change domains; 0 opens none, and nothing is known of these writes.
"""),
    cfg.BoolOpt(
        'cpu_idle',
        default=True,
        help="""
Whether secondaries get the kernel's lowest priority. The agent sets
``cpu.idle`` (or the smallest weight, on kernels before 5.15) on each
secondary's cgroup, so that a primary VM goes first. It also sets ``cpu.idle``
on libvirt's machine slice while all guests in it are secondaries, so that a
primary service of the host goes first. Weights act between siblings only;
``secondary-agent status`` shows for which kind of primary the priority is
effective.
"""),
    cfg.FloatOpt(
        'minimum_rate',
        default=1.0,
        min=0.01,
        max=100.0,
        help="""
Minimum share of a link or of the disks for each secondary under normal
control, in percent of their capacity. It applies while a policy is on them.
It can be lower than ``minimum_share`` of the CPU, because a hundredth of a
link is still much. The minimum shares of all secondaries together are not
available to the primary.
"""),
    cfg.PortOpt(
        'metrics_port',
        default=0,
        help="""
TCP port on which the agent serves metrics for Prometheus, for instance 9911;
0 opens none. The metrics show the secondaries of this host and its load, as
``secondary-agent status`` does, to every client that can reach the port.
"""),
    cfg.HostAddressOpt(
        'metrics_address',
        default='127.0.0.1',
        help="""
Address of ``metrics_port``. Only the host itself can reach the default.
Metrics are neither encrypted nor protected, so use an address of the
management network.
"""),
    *agent_admission.OPTS,
    *agent_affinity.OPTS,
    *agent_sensors.OPTS,
    *agent_suspects.OPTS,
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register this group and its options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def register_placement_opts(conf: cfg.ConfigOpts) -> None:
    """Register [placement], the credentials for the inventory.

    It is separate from ``register_opts``, because Nova's services have a
    group [placement] of their own, and because ``secondary-agent floor`` must
    start without an HTTP library.
    """
    from secondary_scheduler.conf import keystone
    keystone.register_opts(conf, 'placement', 'placement')


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
