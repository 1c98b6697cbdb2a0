# SPDX-License-Identifier: Apache-2.0

"""The box's own part of the machine's cgroup tree, versions 1 and 2.

    box/control          control plane: Keystone, Nova, Watcher, databases ...
    box/clients          load generators of the primaries; measurements
    box/hosts/NAME       one compute host: its limit makes it a host
        system.slice     what systemd would start: the primary service, the
                         agent, libvirtd (its CPU time is charged to control)
        machine          what libvirt makes for its guests
    box/hosts/neighbours guests of no host, in a group "machine" as well, show
                         what guests of other hosts do on the same machine

Weights act only between siblings, which is why the primary and the guests
are laid out as by systemd (see doc/source/contributor/box.rst).

In version 2 a group has either processes or controllers for groups below:
the box is at the top there, not below the caller's group, and a host has
processes in its system.slice and in its guests only.
"""

from collections.abc import Iterator
import contextlib
import functools
import os
import pathlib
import signal

import layout
from shell import BoxError

NAME = layout.NAME
#: Weights of the groups: the clients' machines are never short of CPU, the
#: hosts come next, and the control plane takes what is left.
#: (With cpu.idle the time from a trigger to a plan would double.)
#: A group's weight is divided among its CPUs, and one host has a CPU to
#: itself: a third of the hosts' weight must outweigh a busy control plane.
SHARES = {'control': 256, 'clients': 16384, 'hosts': 8192}
#: Guests of no host: they compete as another host's do.
NEIGHBOURS = 'hosts/neighbours/machine'
#: The whole box against whatever else the machine does: a busy neighbour
#: must not look like a busy host.
BOX_SHARES = 131072
#: Of each second and CPU, for the watch of the machine (pauses.py), in
#: microseconds; version 1 gives a group none unless it is told to.
REAL_TIME_US = 50_000

#: Quota (None: no limit) and period, in microseconds.
Limit = tuple[int | None, int]


@functools.cache
def _tops(proc: str = '/proc/self') -> dict[str, pathlib.Path]:
    """Return the box's topmost group in the tree of each controller."""
    own = {}
    for line in pathlib.Path(proc, 'cgroup').read_text().splitlines():
        _, names, group = line.split(':', 2)
        # Repeated calls from inside the box must not nest.
        own |= dict.fromkeys(names.split(','), group.split(f'/{NAME}')[0])
    tops = {}
    for line in pathlib.Path(proc, 'mountinfo').read_text().splitlines():
        left, _, right = line.partition(' - ')
        point = left.split()[4]
        kind, _, options = right.split(None, 2)
        if kind == 'cgroup':
            for name in set(options.split(',')) & set(own):
                tops[name] = pathlib.Path(f'{point}{own[name]}', NAME)
        elif kind == 'cgroup2':
            names = pathlib.Path(
                point, 'cgroup.controllers').read_text().split()
            # With the CPU elsewhere nothing of ours is in version 2.  It
            # counts CPU time without a controller.
            if 'cpu' in names:
                tops |= dict.fromkeys([*names, 'cpuacct'],
                                      pathlib.Path(point, NAME))
    return {name: tops[name] for name in layout.CONTROLLERS if name in tops}


def is_v2(group: pathlib.Path) -> bool:
    """Return whether a group is of version 2."""
    return (group / 'cgroup.controllers').exists()


def check() -> None:
    """Refuse a machine whose control groups the box cannot use."""
    if missing := {'cpu', 'cpuset', 'memory'} - set(_tops()):
        raise BoxError(
            f'the box needs the cgroup controllers {", ".join(missing)}: '
            'neither version 1 nor version 2 has them here. See "grep '
            'cgroup /proc/mounts"; in a container, give it a cgroup '
            'namespace of its own and write access to /sys/fs/cgroup')


def path(controller: str, group: str = '') -> pathlib.Path:
    """Return the directory of a group of the box in one controller."""
    return _tops()[controller] / group


def groups(group: str) -> list[pathlib.Path]:
    """Return a group's directories in every tree of controllers."""
    return [top / group for top in dict.fromkeys(_tops().values())]


def inside(group: str, command: list) -> list:
    """Return a command that joins a group and then becomes ``command``."""
    joins = ''.join(f'echo $$ > {directory}/cgroup.procs; '
                    for directory in groups(group))
    return ['sh', '-c', joins + 'exec "$@"', 'sh', *command]


def make(group: str) -> None:
    """Make a group, and those above it, in every tree of controllers."""
    for top in groups(''):
        directory = top
        for part in ('', *pathlib.PurePath(group).parts):
            directory = directory / part
            directory.mkdir(exist_ok=True)
            if top == _tops()['cpuset'] and not is_v2(top):
                for name in ('cpuset.cpus', 'cpuset.mems'):
                    if not (directory / name).read_text().strip():
                        inherited = (directory.parent / name).read_text()
                        (directory / name).write_text(inherited)


def _delegate(group: pathlib.Path) -> None:
    """Let the groups below one of version 2 have all its controllers."""
    if not is_v2(group):
        return
    names = set((group / 'cgroup.controllers').read_text().split())
    try:
        for name in sorted(names & set(layout.CONTROLLERS)):
            (group / 'cgroup.subtree_control').write_text(f'+{name}')
    except OSError as exc:
        raise BoxError(
            f'cannot hand cgroup controllers on in {group}: {exc}. It may '
            'have processes of its own; in a container, move them to a group '
            'below it') from exc


def share(group: pathlib.Path, shares: int) -> None:
    """Set a group's weight, in shares: 1024 is what a new group has."""
    if is_v2(group):
        (group / 'cpu.weight').write_text(str(min(shares * 100 // 1024,
                                                  10_000)))
    else:
        (group / 'cpu.shares').write_text(str(shares))


def limit(group: pathlib.Path, quota: int | None,
          period: int = layout.HOST_PERIOD_US, burst: int = 0) -> None:
    """Limit a group's CPU time, all in microseconds; None: no limit."""
    if is_v2(group):
        bursts = 'cpu.max.burst'
        steps = [('cpu.max', f'{quota or "max"} {period}')]
    else:
        bursts = 'cpu.cfs_burst_us'
        steps = [('cpu.cfs_quota_us', '-1'),
                 ('cpu.cfs_period_us', str(period)),
                 ('cpu.cfs_quota_us', str(quota or -1))]
    # A burst above the quota is refused: take the old one off first.
    for file, value in ((bursts, '0'), *steps, (bursts, str(burst))):
        (group / file).write_text(value)


def limit_of(group: pathlib.Path) -> Limit:
    """Return a group's quota (None: no limit) and period, in microseconds."""
    if is_v2(group):
        quota, period = (group / 'cpu.max').read_text().split()
    else:
        quota, period = ((group / f'cpu.cfs_{name}_us').read_text().strip()
                         for name in ('quota', 'period'))
    return (None if quota in ('max', '-1') else int(quota)), int(period)


def threads(group: pathlib.Path) -> list[int]:
    """Return the threads of a group that may hold single threads."""
    return [int(thread) for thread in (
        group / ('cgroup.threads' if is_v2(group) else 'tasks')
        ).read_text().split()]


def usage_ns(group: pathlib.Path) -> int:
    """Return the CPU time that a group of cpuacct has used."""
    if is_v2(group):
        return _cpu_stat(group)['usage_usec'] * 1000
    return int((group / 'cpuacct.usage').read_text())


def throttled(group: pathlib.Path) -> int:
    """Return the number of periods in which a group was throttled."""
    return _cpu_stat(group)['nr_throttled']


def throttled_ns(group: pathlib.Path) -> int:
    """Return for how long a group was throttled, in ns."""
    stat = _cpu_stat(group)
    return (stat['throttled_usec'] * 1000 if is_v2(group)
            else stat['throttled_time'])


def _cpu_stat(group: pathlib.Path) -> dict[str, int]:
    return {name: int(value) for name, value in map(
        str.split, (group / 'cpu.stat').read_text().splitlines())}


def make_tree() -> None:
    """Make the groups but the hosts'; below them hosts can be made."""
    make('')
    for top in groups(''):
        _delegate(top.parent)
        _delegate(top)
    for group in (*SHARES, NEIGHBOURS):
        make(group)
    for hosts in (*groups('hosts'), *groups('hosts/neighbours')):
        _delegate(hosts)


def make_all() -> None:
    """Make the groups but the hosts', and set their weights."""
    make_tree()
    (path('cpu', NEIGHBOURS) / 'cpu.idle').write_text('1')
    share(path('cpu'), BOX_SHARES)
    for group, shares in SHARES.items():
        share(path('cpu', group), shares)
    for group in ('', 'clients'):
        _allow_real_time(path('cpu', group))


def _allow_real_time(group: pathlib.Path) -> None:
    """Let a group have a little real time, if the machine has some left."""
    with contextlib.suppress(OSError):
        # To be opened, not made: a kernel may have no such limit.
        with open(group / 'cpu.rt_runtime_us', 'r+') as file:
            file.write(str(REAL_TIME_US))


def make_host(host: str, cpus: list[int], size: float) -> None:
    """Make the groups of a host that is to boot, and set its limits.

    ``cpus`` are those of the machine that it may use, ``size`` is how much
    of them.
    """
    remove(f'hosts/{host}')
    make(f'hosts/{host}')
    # What is made below it later has the same.
    (path('cpuset', f'hosts/{host}') / 'cpuset.cpus').write_text(
        ','.join(map(str, cpus)))
    make(f'hosts/{host}/system.slice')
    resize_host(host, size)


def resize_host(host: str, size: float) -> None:
    """Give a host so many CPUs."""
    quota = round(size * layout.HOST_PERIOD_US)
    limit(path('cpu', f'hosts/{host}'), quota, burst=quota)


def host_cpus(host: str) -> float:
    """Return the CPUs that a host has now; those of the machine, at most."""
    quota, period = limit_of(path('cpu', f'hosts/{host}'))
    return len(os.sched_getaffinity(0)) if quota is None else quota / period


def processes(group: str) -> set[int]:
    """Return the processes in a group and in those below it."""
    found: set[int] = set()
    for directory, _, _ in os.walk(path('cpu', group)):
        # It may be gone by now, or have threads only.
        with contextlib.suppress(OSError):
            found.update(map(int, pathlib.Path(
                directory, 'cgroup.procs').read_text().split()))
    return found


@contextlib.contextmanager
def held(*groups: str) -> Iterator[None]:
    """Hold all processes of some groups still for a while."""
    pids = set().union(*map(processes, groups))
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def kill_all(group: str) -> None:
    """Kill every process in a group; only ours can be in it."""
    for pid in processes(group):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass


def remove(group: str = '') -> None:
    """Remove a group, or the whole tree, deepest groups first.

    Groups that are gone, or go meanwhile, are no hindrance: libvirt removes
    those of its guests as well.
    """
    for top in groups(group):
        for directory, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
