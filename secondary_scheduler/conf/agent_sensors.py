# SPDX-License-Identifier: Apache-2.0

"""Options of the group [secondary_agent] for its sensors."""

from oslo_config import cfg

from secondary_scheduler.model import resources

_LISTED_SENSORS = '\n'.join(
    f'* {sensor}: {", ".join(names)}'
    for sensor, names in resources.SENSORS.items())

OPTS: list[cfg.Opt] = [
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
Interfaces of the host's link, for policies on net_in and net_out, for
instance ``bond0``. Together they count as one link. By default all interfaces
with hardware count, even those of other networks. Virtual functions of a card
do not count, since they share its port, nor do interfaces on USB, since they
belong to a management controller. A bond counts once, in place of its ports.
"""),
    cfg.IntOpt(
        'link_speed',
        default=0,
        min=0,
        max=10**7,
        help="""
Speed of the host's link in Mbit/s for each direction, which is 100 % of
net_in and of net_out. With 0 it is the sum of the speeds that the kernel
shows for ``network_interfaces``. Virtual interfaces have none: an interface
of unknown speed adds nothing to the link.
"""),
    cfg.ListOpt(
        'disks',
        default=[],
        help="""
Disks that secondaries and primaries share, for policies on disk_in and
disk_out, by their names in /sys/block, for instance ``nvme0n1``. Together
they count as one disk. By default all disks with hardware count that are not
part of another one. A RAID, a logical volume or a multipath disk counts in
place of its members, so that each byte counts once.
"""),
    cfg.IntOpt(
        'disk_read_speed',
        default=0,
        min=0,
        max=10**6,
        help="""
Read speed of ``disks`` in MiB/s, which is 100 % of disk_out. Measure it with
the block size of the primary. While it is 0, disk_out is unknown and a policy
on it fails.
"""),
    cfg.IntOpt(
        'disk_write_speed',
        default=0,
        min=0,
        max=10**6,
        help="""
Write speed of ``disks`` in MiB/s, which is 100 % of disk_in. While it is 0,
disk_in is unknown and a policy on it fails.
"""),
    cfg.IntOpt(
        'disk_read_iops',
        default=0,
        min=0,
        max=10**8,
        help="""
Number of reads that ``disks`` can do in a second. Set it for disks on which
small requests reach this limit before ``disk_read_speed``. disk_out is then
the larger percentage of the two, and a secondary is limited to its share of
both. With 0, reads are neither counted nor limited.
"""),
    cfg.IntOpt(
        'disk_write_iops',
        default=0,
        min=0,
        max=10**8,
        help="""
Number of writes that ``disks`` can do in a second, for disk_in. With 0,
writes are neither counted nor limited.
"""),
    cfg.ListOpt(
        'primary_groups',
        default=[],
        help="""
Control groups of primary services, for policies on pressure, as paths below
the topmost group of the CPU controller, for instance
``system.slice/postgresql.service``. By default all groups without a secondary
count: the slices of the host's services, and primary guests. If a group of
this list is missing, the pressure is unknown.
"""),
    cfg.IntOpt(
        'memory_bandwidth',
        default=0,
        min=0,
        max=10**8,
        help="""
Bandwidth of all memory of the host in MiB/s, which is 100 % of membw. While
it is 0, membw is unknown and a policy on it fails.
"""),
    cfg.ListOpt(
        'resctrl_groups',
        default=[],
        help="""
Groups below ``/sys/fs/resctrl`` whose memory bandwidth and cache are measured
for membw and llc, for instance ``mon_groups/secondaries``. The operator
creates them and assigns tasks to them. By default the whole machine is
measured. A cache is always full, so a policy on llc needs such a group.
"""),
    cfg.MultiStrOpt(
        'probe',
        default=[],
        sample_default=['p99_ms = /usr/local/bin/p99-ms --database orders',
                        'queue = http://127.0.0.1:9000/queue-length'],
        help="""
Probe of the primary, for policies such as ``probe:p99_ms <= 20 for 5s``. The
value is a name and, after ``=``, a command or the address of an HTTP service.
The option may be repeated. The last line of the answer must be one number
that is not negative, and the answer must not exceed 4 kB. A command is run
without a shell, as the user and with the rights of the agent, and must exit
with code 0. In all other cases the number is unknown, and policies on it
fail.
"""),
    cfg.FloatOpt(
        'probe_period',
        default=1.0,
        min=0.5,
        max=60.0,
        help="""
Seconds between two requests to the probes. A probe has four fifths of this
time to answer; then a command is killed with its process group. A policy sees
each answer until the next one, so its timelimit should be several times
longer.
"""),
]
