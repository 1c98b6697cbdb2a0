# SPDX-License-Identifier: Apache-2.0

"""Containers with a real systemd: a root file system in namespaces.

A container is an overlay over a root file system that several can share, in
namespaces (mount, UTS, IPC, PID, control groups) and control groups of its
own; its network namespace is the caller's to make.  Its first process is
systemd, so packages and units work in it as on a machine.  It is no
protection against its own root user.

State is below ``layout.STATE``: roots/NAME, and containers/NAME with the
upper directory of the overlay.
"""

from collections.abc import Iterable
import dataclasses
import pathlib
import re
import shutil
import subprocess
import time

import cgroups
import layout
import shell
from shell import BoxError, run

INIT = pathlib.Path(__file__).with_name('container-init.sh')
ROOTS = layout.STATE / 'roots'
CONTAINERS = layout.STATE / 'containers'
ARCHIVES = layout.STATE / 'archives'

SUITE = 'bookworm'
#: What a container has beyond Debian's smallest system.
PACKAGES = (
    'apt-utils', 'ca-certificates', 'curl', 'dbus', 'gettext-base', 'git',
    'iproute2', 'iptables', 'locales', 'lsb-release', 'openssh-server',
    'openssl', 'procps', 'python3', 'python3-dev', 'python3-venv', 'gcc',
    'libc6-dev', 'sudo', 'systemd', 'systemd-sysv', 'wget')
#: Units that a container has no use for, or that no container can run.
MASKED = (
    'apt-daily.timer', 'apt-daily-upgrade.timer', 'console-getty.service',
    'getty.target', 'systemd-networkd-wait-online.service',
    'systemd-timesyncd.service', 'systemd-udevd.service')
#: Files of the machine that let a container reach the same mirrors.
MIRROR_FILES = (
    '/etc/pip.conf', '/etc/apt/sources.list',
    '/etc/apt/sources.list.d/debian.sources')

_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
BOOT_S = 120.0


@dataclasses.dataclass(frozen=True)
class Mount:
    """A directory of the machine that a container sees."""

    source: pathlib.Path
    target: str
    writable: bool = False


def _mirror() -> str:
    """Return the address of the mirror that the machine itself uses."""
    for path in map(pathlib.Path, MIRROR_FILES[1:]):
        text = path.read_text() if path.exists() else ''
        if found := re.search(r'^(?:URIs:|deb )\s*(https?://\S+/debian/?)\s',
                              text, re.MULTILINE):
            return found[1]
    return 'http://deb.debian.org/debian'


def _resolver() -> str:
    """Return a resolv.conf that holds in another network namespace."""
    for path in ('/etc/resolv.conf', '/run/systemd/resolve/resolv.conf'):
        text = pathlib.Path(path).read_text() if pathlib.Path(
            path).exists() else ''
        if re.search(r'^nameserver (?!127\.|::1)', text, re.MULTILINE):
            return text
    raise BoxError('no name server but one on this machine itself is in '
                   '/etc/resolv.conf; containers cannot reach it: name '
                   'another')


def make_root(name: str, packages: Iterable[str] = PACKAGES) -> pathlib.Path:
    """Make a root file system of Debian, unless it is there; return it.

    :param packages: Debian packages beyond the smallest system.
    :raises BoxError: if a program or a mirror is missing.
    """
    root = ROOTS / name
    packages = sorted(set(packages))
    shell.once(f'root file system {name}', _debootstrap, root, packages,
               key=' '.join(packages))
    return root


def _debootstrap(root: pathlib.Path, packages: list[str]) -> None:
    if not shutil.which('debootstrap'):
        run(['apt-get', 'update'], log='apt')
        run(['apt-get', 'install', '-y', '--no-install-recommends',
             'debootstrap'], log='apt')
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    run(['debootstrap', '--variant=minbase', f'--cache-dir={ARCHIVES}',
         f'--include={",".join(packages)}', SUITE, root, _mirror()],
        log='debootstrap')
    (root / 'etc/apt/sources.list').unlink(missing_ok=True)
    for path in map(pathlib.Path, MIRROR_FILES):
        if path.exists():
            shutil.copy(path, root / path.relative_to('/'))
    # Proxies and the like.
    for path in pathlib.Path('/etc/apt/apt.conf.d').iterdir():
        if 'Acquire::' in path.read_text(errors='replace'):
            shutil.copy(path, root / path.relative_to('/'))
    own = pathlib.Path('/usr/local/share/ca-certificates')
    if own.is_dir():
        shutil.copytree(own, root / own.relative_to('/'), dirs_exist_ok=True)
        run(['chroot', root, 'update-ca-certificates'], log='debootstrap')
    # Packages are installed in a third of the time; a container that a crash
    # of the machine has damaged is made anew.
    (root / 'etc/dpkg/dpkg.cfg.d/container').write_text('force-unsafe-io\n')
    for unit in MASKED:
        (root / 'etc/systemd/system' / unit).symlink_to('/dev/null')
    # Empty: each container gets one at its first boot.
    (root / 'etc/machine-id').write_text('')
    for path in root.glob('etc/ssh/ssh_host_*'):
        path.unlink()


def directory(name: str) -> pathlib.Path:
    """Return the state directory of a container."""
    return CONTAINERS / name


def outer_pid(name: str) -> int | None:
    """Return the pid of a container's systemd, or None if it is down."""
    try:
        return shell.pid_of(f'container-{name}') and int(
            (directory(name) / 'pid').read_text())
    except OSError:
        return None


def boot(name: str, root: pathlib.Path, netns: str,
         mounts: Iterable[Mount] = (),
         hosts: dict[str, str] | None = None) -> None:
    """Start a container and wait until its units have started.

    What it has written before is still there; :func:`remove` forgets it.

    :param root: of :func:`make_root`.
    :param netns: the name of a network namespace that is there.
    :param mounts: of directories of the machine.
    :param hosts: addresses by name, for its /etc/hosts.
    :raises BoxError: if it does not come up.
    """
    if outer_pid(name):
        return
    state = directory(name)
    for part in ('upper/etc', 'work', 'root', 'tree'):
        (state / part).mkdir(parents=True, exist_ok=True)
    (state / 'pid').unlink(missing_ok=True)
    (state / 'mounts').write_text(''.join(
        f'{"rw" if one.writable else "ro"} {one.source} {one.target}\n'
        for one in mounts))
    etc = state / 'upper/etc'
    (etc / 'hostname').write_text(f'{name}\n')
    (etc / 'resolv.conf').write_text(_resolver())
    (etc / 'hosts').write_text('127.0.0.1 localhost\n' + ''.join(
        f'{address} {other}\n' for other, address in (hosts or {}).items()))
    group = f'hosts/{name}'
    cgroups.make(group)
    version = 2 if cgroups.is_v2(cgroups.path('cpu', group)) else 1
    shell.start(f'container-{name}', cgroups.inside(group, [
        'nsenter', f'--net=/run/netns/{netns}', '--', 'unshare', '--mount',
        INIT, 'outside', name, state, root, version]))
    deadline = time.monotonic() + BOOT_S
    while _state(name) not in ('running', 'degraded'):
        if (time.monotonic() > deadline
                or not shell.pid_of(f'container-{name}')):
            raise BoxError(
                f'container {name} does not come up ({_state(name)}): read '
                f'{layout.LOG}/container-{name}.log')
        time.sleep(0.5)


def _state(name: str) -> str:
    """Return what systemd says of itself, nothing before it can be asked."""
    if not outer_pid(name):
        return ''
    return run_in(name, ['systemctl', 'is-system-running'],
                  check=False).stdout.strip()


def enter(name: str, user: str = 'root', **environment: str) -> list[str]:
    """Return the prefix that runs a command inside a container.

    :param user: one of the container's; the command runs in its home.
    :param environment: further variables.
    :raises BoxError: if the container is down.
    """
    pid = outer_pid(name)
    if not pid:
        raise BoxError(f'container {name} is down')
    variables = {'PATH': _PATH, 'LANG': 'C.UTF-8', 'TERM': 'dumb',
                 **environment}
    prefix = ['nsenter', '-t', str(pid), '-m', '-u', '-i', '-n', '-p', '-C',
              '--', 'env', '-i']
    prefix += [f'{key}={value}' for key, value in variables.items()]
    # A login makes the home directory the working directory.
    return [*prefix, 'su', '--login', '--shell', '/bin/sh',
            f'--whitelist-environment={",".join(variables)}',
            '--command', 'exec "$0" "$@"', '--', user]


def run_in(name: str, command: list, user: str = 'root', *,
           log: str | None = None, check: bool = True,
           environment: dict[str, str] | None = None,
           **kwargs) -> subprocess.CompletedProcess:
    """Run a command inside a container to its end, as :func:`shell.run`."""
    return run([*enter(name, user, **(environment or {})), *command],
               log=log, check=check, **kwargs)


def shut_down(name: str, timeout: float = 60.0) -> None:
    """Stop a container: its units first, then whatever is left in it."""
    if outer_pid(name):
        run_in(name, ['systemctl', '--no-block', 'poweroff'], check=False)
        deadline = time.monotonic() + timeout
        while outer_pid(name) and time.monotonic() < deadline:
            time.sleep(0.2)
    shell.stop(f'container-{name}', timeout=0)
    cgroups.kill_all(f'hosts/{name}')


def remove(name: str) -> None:
    """Forget all that a container has written; it must be down."""
    if outer_pid(name):
        raise BoxError(f'container {name} runs; shut it down first')
    cgroups.remove(f'hosts/{name}')
    shutil.rmtree(directory(name), ignore_errors=True)
