"""The box's own part of the machine's cgroup tree (v1 controllers).

    box/control          control plane: Keystone, Nova, Watcher, databases ...
    box/clients          load generators of the primaries; who asks or measures
    box/neighbours       runs where nothing else of the box wants to
    box/hosts/NAME       one compute host: its limit makes it a host
        system.slice     what systemd would start: the primary service, the
                         agent, libvirtd (its CPU time is charged to control)
        machine          what libvirt makes for its guests

Weights act only between siblings, which is why the primary and the guests
are laid out as systemd lays them out (see doc/source/box.rst).
"""

import os
import pathlib

import layout
from shell import BoxError

ROOT = pathlib.Path('/sys/fs/cgroup')
#: Weights of the groups: the clients' machines are never short of CPU, the
#: hosts come next, and the control plane takes what is left. (To give way
#: at once, by cpu.idle, would double the time from a trigger to a plan.)
SHARES = {'control': 2048, 'clients': 16384, 'hosts': 8192}
#: The group that gives way to all of these.
IDLE = 'neighbours'
#: The whole box against whatever else the machine does: a busy neighbour
#: must not look like a busy host.
BOX_SHARES = 131072


def _own(controller: str) -> str:
    for line in pathlib.Path('/proc/self/cgroup').read_text().splitlines():
        _, names, path = line.split(':', 2)
        if controller in names.split(','):
            # Repeated calls from inside the box must not nest.
            return path.split('/secondary-box')[0].rstrip('/')
    raise BoxError(f'no cgroup v1 controller "{controller}" is mounted here; '
                   'the box needs each on its own, at '
                   f'{ROOT}/CONTROLLER (the plug-in itself does not). See '
                   '"grep cgroup /proc/mounts"')


def check() -> None:
    """Refuse a machine whose control groups the box cannot use."""
    for controller in layout.CONTROLLERS:
        _own(controller)
        if not (ROOT / controller / 'cgroup.procs').exists():
            raise BoxError(
                f'{ROOT / controller} is no control group: the box needs '
                'each cgroup v1 controller mounted on its own')


def path(controller: str, group: str = '') -> pathlib.Path:
    """Return the directory of a group of the box in one controller."""
    base = pathlib.Path(f'{ROOT}/{controller}{_own(controller)}')
    return base / 'secondary-box' / group


def groups(group: str) -> list[pathlib.Path]:
    """Return a group's directories in every controller."""
    return [path(controller, group) for controller in layout.CONTROLLERS]


def inside(group: str, command: list) -> list:
    """Return a command that joins a group and then becomes ``command``."""
    joins = ''.join(f'echo $$ > {directory}/cgroup.procs; '
                    for directory in groups(group))
    return ['sh', '-c', joins + 'exec "$@"', 'sh', *command]


def make(group: str) -> None:
    """Make a group, and those above it, in every controller."""
    for controller in layout.CONTROLLERS:
        directory = path(controller)
        for part in ('', *pathlib.PurePath(group).parts):
            directory = directory / part
            directory.mkdir(exist_ok=True)
            if controller == 'cpuset':
                for name in ('cpuset.cpus', 'cpuset.mems'):
                    if not (directory / name).read_text().strip():
                        inherited = (directory.parent / name).read_text()
                        (directory / name).write_text(inherited)


def make_all(hosts: list[str]) -> None:
    """Make the whole tree and set its weights and limits."""
    for group in (*SHARES, IDLE):
        make(group)
    (path('cpu', IDLE) / 'cpu.idle').write_text('1')
    (path('cpu') / 'cpu.shares').write_text(str(BOX_SHARES))
    for group, shares in SHARES.items():
        (path('cpu', group) / 'cpu.shares').write_text(str(shares))
    for host in hosts:
        make(f'hosts/{host}/system.slice')
        limits = path('cpu', f'hosts/{host}')
        quota = int(layout.HOST_CPUS * layout.HOST_PERIOD_US)
        # A burst above the quota is refused, so take the old limit off first.
        for name, value in (('burst', 0), ('quota', -1),
                            ('period', layout.HOST_PERIOD_US),
                            ('quota', quota), ('burst', quota)):
            (limits / f'cpu.cfs_{name}_us').write_text(str(value))


def kill_all(group: str) -> None:
    """Kill every process in a group; only ours can be in it."""
    for directory in sorted(path('cpu', group).rglob('cgroup.procs')):
        for pid in directory.read_text().split():
            try:
                os.kill(int(pid), 9)
            except ProcessLookupError:
                pass


def remove() -> None:
    """Remove the whole tree, deepest groups first."""
    for controller in layout.CONTROLLERS:
        top = path(controller)
        for directory in sorted(top.rglob('*'), reverse=True):
            if directory.is_dir():
                try:
                    directory.rmdir()
                except OSError:
                    pass
        if top.exists():
            try:
                top.rmdir()
            except OSError:
                pass
