"""Group [secondary_agent]: the per-compute service."""

import socket
import typing

from oslo_config import cfg

from secondary_scheduler.model import resources

_LISTED_SENSORS = '\n'.join(
    f'* {sensor}: {", ".join(names)}'
    for sensor, names in resources.SENSORS.items())

GROUP = cfg.OptGroup(
    'secondary_agent',
    title='Agent on a compute host',
    help="""
``secondary-agent`` runs on each compute host as root. It throttles the
secondaries of the host so that the policies of [secondary_scheduler] hold,
and it does so without the message bus, Keystone, Placement and libvirtd:
those are only needed to learn of new guests and to tell others. Its own file
should be readable by root only, since [placement] holds a password.
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
hypervisor hostname. By default it is what libvirt says (its host name), as
Nova's libvirt driver does; until libvirt has answered, ``host`` is used. Set
it only where the two differ.
"""),
    cfg.StrOpt(
        'libvirt_uri',
        default='qemu:///system',
        help="""
Where libvirt is asked which domains run. The connection is opened read-only:
the agent lists domains, reads their XML and waits for events. What
``dirty_rate_interval`` asks for, and the limits of disks and interfaces that
policies on them need, have connections of their own; libvirt's setters block
for 30 s while a migration job runs, and nothing else waits for them.
"""),
    cfg.StrOpt(
        'libvirt_run_dir',
        default='/run/libvirt/qemu',
        help="""
Directory in which libvirt keeps a ``<domain>.pid`` file for each running
QEMU. The number found there is believed only if that process's command line
carries the domain's UUID and name.
"""),
    cfg.StrOpt(
        'save_dir',
        default='/var/lib/libvirt/qemu/save',
        help="""
Directory to which libvirt saves the memory of suspended guests (its
``managedsave``). The agent tells how much room there is on its disk: Watcher
suspends no instance whose memory would not fit. Where the agent does not see
the directory that is not known, and not checked.
"""),
    cfg.StrOpt(
        'state_path',
        default='/var/lib/secondary-agent',
        help="""
Directory of what must survive a restart of the agent: the secondaries it
knows, the limits and CPU sets their cgroups had before it touched them, the
controllers that it has their groups hand on, the last resolved policies, the
lock that keeps a second agent away, and ``status.json`` for
``secondary-agent status``. It should be on a local disk and writable by root
only.
"""),
    cfg.FloatOpt(
        'control_period',
        default=0.5,
        min=0.1,
        max=5.0,
        help="""
Seconds between two steps of the usage controller. Each step measures the
host and its secondaries since the last one and sets new limits. A shorter
period reacts faster and costs more CPU; measurements get noisy when it comes
near ``quota_period_ms``.
"""),
    cfg.FloatOpt(
        'controller_gain',
        default=1.0,
        min=0.05,
        max=1.9,
        help="""
Gain of the usage controller: by which part of the deviation from the set
point the secondaries' common share changes in one step. 1 removes a
deviation in one step; the loop is stable below 2 and overshoots above 1.
Lower it on hosts whose primary swings faster than ``control_period``.
"""),
    cfg.FloatOpt(
        'probe_share',
        default=2.0,
        min=0.1,
        max=50.0,
        help="""
How an idle secondary gets its share back, in percent of the host's CPU
capacity. Shares follow present use, so a guest that does nothing decays to
the minimum; each guest's use is taken to be this much larger when shares are
split, so that it can grow again. A larger value makes the split more equal.
"""),
    cfg.IntOpt(
        'quota_period_ms',
        default=20,
        min=5,
        max=100,
        help="""
Period of the bandwidth limits written for vCPU threads, in milliseconds. A
short period spreads what a guest may use, so it neither bursts nor stalls
for long; it costs more timer interrupts. The kernel grants no less than 1 ms
a period, so the period of a smaller share is as long as that 1 ms takes to be
its share, up to 100 ms.
"""),
    cfg.IntOpt(
        'service_quota_ms',
        default=10,
        min=1,
        max=100,
        help="""
What the emulator and each I/O thread of a guest at the floor may use, in
milliseconds of one CPU in 100 ms; vCPU threads get less. It is
lifted for ``operation_grace`` when Watcher announces an operation of Nova's
on the guest, since suspend and migration run in these threads.
"""),
    cfg.IntOpt(
        'floor_period_ms',
        default=100,
        min=100,
        max=1000,
        help="""
In how many milliseconds each vCPU of a guest at the floor may run for 1 ms.
With 100 it gets 1 % of a CPU, and Nova's operations on it take no longer than
on one that runs freely. With 1000, the kernel's longest period, it gets 0.1 %:
choose that where the floor has to do what a pause would, as on a host with
more guests than it has percent of a CPU to spare, or whose primary suffers
from what their caches and memory traffic cost it. A vCPU that holds QEMU's
lock then makes an operation wait for up to a second at a time, and the guest's
own kernel may complain of stalls afterwards. No guest is ever paused through
libvirt: Nova could not tell that from a pause of its owner's.
"""),
    cfg.StrOpt(
        'last_resort',
        default='floor',
        choices=[
            ('floor', 'take every secondary of the host to its floor'),
            ('kill', 'end the QEMU process of every secondary of the host'),
        ],
        help="""
What is done one second before a policy would become invalid. The floor is
instant, loses no work and is invisible to Nova. A kill loses what the guest
had in memory, and Nova finds it stopped; it is there for hosts on which the
floor does not suffice. A guest whose floor cannot be set, since its control
group lacks the CPU controller, is held still in the freezer of that group
(version 2) while Nova does not operate on it. Where that is missing, too, only
``kill`` ends what it does to the primary; ``secondary-agent status`` names the
guest and the file, and the host admits no more.
"""),
    cfg.IntOpt(
        'memory_headroom_mb',
        min=0,
        help="""
Memory of the host in MiB that is kept free for primaries, beside what they
have: at least what the largest primary flavor has, if one of them is to start
at any time on a host that secondaries fill. It is not offered in Placement,
and ``mem <= (100 % - headroom) for 60s`` is added to the policies of this
host, so that secondaries are moved or suspended when it is touched. Where it
goes faster than that, the agent helps itself: it has the kernel take back
secondaries' pages first, takes them to the floor when half of the headroom is
gone, and does what ``memory_last_resort`` says when three quarters are. Unset
it is 5 % of the host; 0 keeps none, and leaves all of this to the policies on
mem and to the kernel.
"""),
    cfg.StrOpt(
        'memory_last_resort',
        default='kill',
        choices=[
            ('kill', 'end the secondary of the lowest priority, and the next '
             'one if its memory did not suffice'),
            ('none', 'leave it to the kernel, which ends secondaries first'),
        ],
        help="""
What is done when three quarters of ``memory_headroom_mb`` are gone. The
kernel's OOM killer would end the same secondary a moment later, but only after
it has had whoever needs memory, primaries included, search for pages that can
go. One that is ended loses what it had in memory; Nova shows it as stopped,
the report names it, and Watcher starts it when there is room. Instances that
are being suspended or migrated go last, since their memory is on its way.
"""),
    cfg.FloatOpt(
        'balloon_least',
        default=100.0,
        min=10.0,
        max=100.0,
        help="""
To how much of its memory a secondary's balloon may be filled while the
headroom is touched, in percent. 100 leaves balloons alone. Less gives back
what guests do not use, if they have a driver for it (virtio), and lets one
that uses all of its memory swap or end programs of its owner: hence it is off.
A secondary whose balloon is filled gets all of its memory when there is room
again. This needs a connection on which libvirt takes orders.
"""),
    cfg.FloatOpt(
        'calm_after',
        default=5.0,
        min=1.0,
        max=600.0,
        help="""
For how many seconds a host must have room for a guest at the floor before
the floor is lifted: the primary's use plus ``useful_share`` for each guest
above the floor must stay below the set point. Guests are lifted highest
priority first, as many as there is room for.
"""),
    cfg.FloatOpt(
        'operation_share',
        default=15.0,
        min=1.0,
        max=100.0,
        help="""
What the emulator and I/O threads of a secondary may use, in percent of the
host, while it is not at the floor. A suspend and a live migration run in these
threads: without a bound the operation that is to help a busy primary takes the
CPU from it. Instances that are operated on at the same time share it. A larger
value makes operations faster, a smaller one makes them quieter.
"""),
    cfg.FloatOpt(
        'operation_grace',
        default=120.0,
        min=1.0,
        max=3600.0,
        help="""
For how many seconds after a hand-over the emulator and I/O threads of a
guest run without the floor's limit, and its vCPUs stay at the floor if a
policy was failing. It bounds what a lost message can do: an operation that
takes longer goes on more slowly. Where a migration would not end otherwise, it
is twice the time in which the memory is copied, if that is longer.
"""),
    cfg.FloatOpt(
        'domain_period',
        default=2.0,
        min=0.5,
        max=60.0,
        help="""
Seconds between two listings of domains. libvirt's events, and whatever changes
in ``libvirt_run_dir``, make the agent look at once; the listing finds what
these do not tell, such as a restart of libvirtd.
"""),
    cfg.FloatOpt(
        'dirty_rate_interval',
        default=30.0,
        min=0.0,
        max=3600.0,
        help="""
Seconds between two measurements of how much of its memory each secondary
writes to. Watcher expects from it how long a live migration takes, and the
agent whether it would end: if not, the instance is taken to the floor for it.
QEMU compares a sample of the guest's pages (2 MiB of each GiB) after one
second and after five. libvirt lets only a connection that takes orders start
that; 0 opens none, and nothing is known of what guests write.
"""),
    cfg.BoolOpt(
        'cpu_idle',
        default=True,
        help="""
Whether secondaries get the kernel's lowest priority: ``cpu.idle`` (or the
smallest weight, on kernels before 5.15) on each secondary's cgroup, so that
a primary VM goes first, and ``cpu.idle`` on libvirt's machine slice while
nothing but secondaries is in it, so that a primary service of the host goes
first. Weights act between siblings only; ``secondary-agent status`` says for
which kind of primary the priority is effective.
"""),
    cfg.ListOpt(
        'sensors',
        default=list(resources.SENSORS),
        help=f"""
Sensors of resources other than CPU, by the names of entry points in
``secondary_scheduler.sensors``. By default, each with its resources:

{_LISTED_SENSORS}

A sensor is read only while a policy of this host is on one of its resources.
A policy on a resource that no sensor measures, or that cannot be measured at
the moment, counts as failing: the secondaries come to their floor and the
host admits no more.
"""),
    cfg.ListOpt(
        'network_interfaces',
        default=[],
        help="""
The interfaces that are the host's link, for policies on net_in and net_out,
for instance ``bond0``; together they are one link. By default all that have
hardware behind them, also those that another network uses, but neither virtual
functions of a card, which share its port, nor interfaces on USB, which belong
to a management controller. A bond counts once, in the place of its ports.
"""),
    cfg.IntOpt(
        'link_speed',
        default=0,
        min=0,
        max=10**7,
        help="""
Speed of the host's link in Mbit/s and direction, which is 100 % of net_in and
of net_out. 0 takes the sum of what ``network_interfaces`` say of themselves,
which virtual ones do not. One whose speed is not known adds nothing to it.
"""),
    cfg.ListOpt(
        'disks',
        default=[],
        help="""
Disks on which secondaries and primaries meet, for policies on disk_in and
disk_out, by their names in /sys/block, for instance ``nvme0n1``; together they
are one disk. By default all that have hardware behind them and of which no
other one is made: a RAID, a logical volume or a multipath disk counts in the
place of its members, so that each byte counts once.
"""),
    cfg.IntOpt(
        'disk_read_speed',
        default=0,
        min=0,
        max=10**6,
        help="""
How much ``disks`` can read in a second, in MiB, which is 100 % of disk_out:
measure it with the block size of the primary. While it is 0 nothing is known
of disk_out, and a policy on it fails.
"""),
    cfg.IntOpt(
        'disk_write_speed',
        default=0,
        min=0,
        max=10**6,
        help="""
How much ``disks`` can write in a second, in MiB, which is 100 % of disk_in.
While it is 0 nothing is known of disk_in, and a policy on it fails.
"""),
    cfg.ListOpt(
        'primary_groups',
        default=[],
        help="""
The control groups of primary services, for policies on pressure, as paths
below the topmost group of the CPU controller, for instance
``system.slice/postgresql.service``. By default all count in which no secondary
is: the slices of the host's services, and guests that are no secondaries. A
group that is named and is not there makes the pressure unknown.
"""),
    cfg.IntOpt(
        'memory_bandwidth',
        default=0,
        min=0,
        max=10**8,
        help="""
What all memory of the host can move in a second, in MiB, which is 100 % of
membw. While it is 0 nothing is known of membw, and a policy on it fails.
"""),
    cfg.ListOpt(
        'resctrl_groups',
        default=[],
        help="""
Whose memory bandwidth and cache membw and llc are: groups below
``/sys/fs/resctrl``, for instance ``mon_groups/secondaries``, which the
operator has made and put tasks in. By default it is the whole machine's. A
cache is always full, so a policy on llc needs such a group.
"""),
    cfg.MultiStrOpt(
        'probe',
        default=[],
        sample_default=['p99_ms = /usr/local/bin/p99-ms --database orders',
                        'queue = http://127.0.0.1:9000/queue-length'],
        help="""
What says how the primary fares, for policies such as ``probe:p99_ms <= 20 for
5s``: a name and, after ``=``, a command or the address of an HTTP service; the
option may be repeated. The last line of what it answers must be one number
that is not negative, the whole at most 4 kB. A command is run without a shell,
as the user and with the rights of the agent, and must end with exit code 0.
Whatever else happens, the number is unknown, and policies on it fail.
"""),
    cfg.FloatOpt(
        'probe_period',
        default=1.0,
        min=0.5,
        max=60.0,
        help="""
Seconds between two times that the probes are asked. One that has not answered
after four fifths of it is given up, a command killed with all of its process
group. A policy sees each answer until the next, so its timelimit should be
some times longer.
"""),
    cfg.IntOpt(
        'disk_read_iops',
        default=0,
        min=0,
        max=10**8,
        help="""
How many reads ``disks`` can do in a second, for disks that small requests fill
before the bytes do. disk_out is then the larger part of the two, and the limit
of a secondary its share of both. 0 leaves operations uncounted and without
limit.
"""),
    cfg.IntOpt(
        'disk_write_iops',
        default=0,
        min=0,
        max=10**8,
        help="""
How many writes ``disks`` can do in a second, for disk_in. 0 leaves operations
uncounted and without limit.
"""),
    cfg.FloatOpt(
        'minimum_rate',
        default=1.0,
        min=0.01,
        max=100.0,
        help="""
What every secondary keeps of a link or of the disks under normal control, in
percent of what they can do, while a policy is on them. It can be lower than
``minimum_share``, that of the CPU: a hundredth of a link is still a lot, and
what all secondaries keep together is not the primary's.
"""),
    cfg.PortOpt(
        'metrics_port',
        default=0,
        help="""
TCP port on which the agent answers Prometheus, for instance 9911; 0 opens
none. It tells what ``secondary-agent status`` tells, to whoever can reach it:
which secondaries run here, and how busy the host is.
"""),
    cfg.HostAddressOpt(
        'metrics_address',
        default='127.0.0.1',
        help="""
Address of ``metrics_port``. Others than the host itself can ask only if it is
another one; the answer is neither encrypted nor protected, so take one of the
management network.
"""),
    cfg.BoolOpt(
        'manage_inventory',
        default=True,
        help="""
Whether the agent keeps the ``reserved`` amounts of this host's secondary
provider in Placement in step with what the policies allow. Without it the
inventory stays as ``secondary-scheduler host enable`` made it, closed.
"""),
    cfg.StrOpt(
        'forecast',
        default='percentile',
        help="""
How it is foretold what the primary is going to use of CPU and memory, which
is not offered in Placement: the name of an entry point in
``secondary_scheduler.forecasts``. ``percentile`` is what it did not exceed in
``forecast_percentile`` of the last ``forecast_window`` seconds, ``peak`` the
most that it has used in them; both take means over three seconds.
"""),
    cfg.FloatOpt(
        'forecast_window',
        default=60.0,
        min=3.0,
        max=3600.0,
        help="""
For how many seconds the primary's use is remembered for ``forecast``. Longer
means that a burst keeps the host closed for longer, and that primaries whose
bursts are rare are met by fewer secondaries.
"""),
    cfg.FloatOpt(
        'forecast_percentile',
        default=95.0,
        min=0.0,
        max=100.0,
        help="""
Which percentile of the primary's use the forecast ``percentile`` takes: 95 is
what was exceeded one time in twenty.
"""),
    cfg.FloatOpt(
        'forecast_margin',
        default=0.0,
        min=0.0,
        max=100.0,
        help="""
What is added to the forecast, in percent of the host.
"""),
    cfg.FloatOpt(
        'open_after',
        default=10.0,
        min=0.0,
        max=3600.0,
        help="""
For how many seconds there must have been room before Placement is told so.
Less room is told at once. A larger value means fewer instances admitted into
a short lull of the primary.
"""),
    cfg.FloatOpt(
        'inventory_interval',
        default=2.0,
        min=1.0,
        max=60.0,
        help="""
Least number of seconds between two changes of the inventory in Placement,
which bounds the load of many hosts on it.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register this group and its options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def register_placement_opts(conf: cfg.ConfigOpts) -> None:
    """Register [placement], the credentials for the inventory.

    Apart from ``register_opts``: Nova's services have a [placement] of their
    own, and ``secondary-agent floor`` must start without an HTTP library.
    """
    from secondary_scheduler.conf import keystone
    keystone.register_opts(conf, 'placement', 'placement')


def list_opts() -> list[tuple[typing.Any, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
