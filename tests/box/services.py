# SPDX-License-Identifier: Apache-2.0

"""The box's services in the hands of a test: kill them, start them again."""

from collections.abc import Callable, Iterator
import contextlib
import json
import os
import pathlib
import re
import signal
import time
from typing import Any
from unittest import mock

import control
import hosts
import layout
import shell
from tests.box import machine

#: All of Watcher but a second decision engine.
WATCHER = ('watcher-api', 'watcher-engine-1', 'watcher-applier')


def wait_until(predicate: Callable[[], Any], timeout: float,
               message: str | Callable[[], str],
               period: float = 0.5) -> Any:
    """Return the first true value of a predicate.

    :raises AssertionError: with the message, after ``timeout`` seconds in
        which the machine ran.
    """
    deadline = machine.clock() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if machine.clock() > deadline:
            text = message() if callable(message) else message
            raise AssertionError(f'not within {timeout:g} s: {text}')
        time.sleep(period)


def agent_status(host: str) -> dict:
    """Return what an agent last said of itself; empty if it cannot be read.
    """
    try:
        return dict(json.loads((
            hosts.directory(host) / 'agent/status.json').read_text()))
    except (OSError, ValueError):
        return {}


def agent_remarks() -> list[str]:
    """Return what each agent says of its host and of itself."""
    found = []
    for host in layout.host_names(layout.load_settings()):
        status = agent_status(host)
        remarks = {name: status.get(name) for name in (
            'admission', 'reason', 'libvirt', 'problems', 'cpu_total',
            'cpu_primary', 'memory', 'killed')}
        age = time.time() - status.get('time', 0)
        found.append(f'agent of {host}, {age:.0f} s ago: {remarks}')
    return found


@contextlib.contextmanager
def environment(**more: str) -> Iterator[None]:
    """Let services find what "box up" gives them, not what tests have."""
    with mock.patch.dict(os.environ):
        for name in list(os.environ):
            if name == 'PYTHONPATH' or name.startswith(('OS_', 'COV')):
                del os.environ[name]
        os.environ.update(more)
        yield


def start(name: str, **more: str) -> None:
    """Start a service by its name in the box and wait until it listens.

    :param more: further variables of its environment
    """
    with environment(**more):
        kind, _, host = name.rpartition('-')
        if kind == 'secondary-agent':
            hosts.start_agent(host)
        elif kind == 'nova-compute':
            hosts.start_compute(host)
        elif kind == 'postgresql':
            hosts.start_primary(host)
        else:
            control.start_service(name)
            control.wait_service(name)


def kill(*names: str) -> None:
    """End services as a crash would, with all of their processes."""
    for name in names:
        pid = shell.pid_of(name)
        assert pid, f'{name} does not run'
        shell.stop(name, timeout=0, sig=signal.SIGKILL)
        # On a host without CPU that takes a while, and its files are open.
        wait_until(lambda group=pid: not _processes(group), 30,
                   f'all of {name} has ended', 0.05)


def _processes(group: int) -> list[str]:
    """Return the processes of a group that have not ended."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):
            state, _, of, *_ = path.read_text().rpartition(')')[2].split()
            if int(of) == group and state not in 'ZX':
                found.append(path.parent.name)
    return found


def reload(*names: str) -> None:
    """Let services read their options anew; wait for agents to have done.

    Those of OpenStack replace their workers for it.
    """
    before = {}
    for name in names:
        kind, _, host = name.rpartition('-')
        if kind == 'secondary-agent':
            # What the box has started is the nsenter that waits for it.
            before[host] = agent_status(host)
            shell.run([*hosts.enter(host), 'sh', '-c',
                       f'kill -HUP {before[host]["pid"]}'])
        else:
            pid = shell.pid_of(name)
            assert pid, f'{name} does not run'
            os.kill(pid, signal.SIGHUP)
    wait_until(lambda: all(
        agent_status(host).get('policies_hash') != old['policies_hash']
        for host, old in before.items()), 30, 'agents have read their options')
    time.sleep(5)


@contextlib.contextmanager
def another_policy(text: str, *names: str) -> Iterator[None]:
    """Let some services only have one policy more."""
    path = layout.ETC / 'secondary_scheduler/policies.conf'
    original = path.read_text()
    path.write_text(re.sub(r'(?m)^(policy = .*)$', rf'\1\npolicy = {text}',
                           original))
    try:
        reload(*names)
        yield
    finally:
        path.write_text(original)
        reload(*names)


@contextlib.contextmanager
def another_value(option: str, value: object) -> Iterator[None]:
    """Let services that start meanwhile find another value of an option."""
    path = layout.ETC / 'secondary_scheduler/policies.conf'
    original = path.read_text()
    changed = re.sub(rf'(?m)^{option} = .*$', f'{option} = {value}', original)
    assert changed != original, f'{option} is not in {path}'
    path.write_text(changed)
    try:
        yield
    finally:
        path.write_text(original)


@contextlib.contextmanager
def agent_options(host: str, *options: str) -> Iterator[None]:
    """Let a host's agent have further options of [secondary_agent]."""
    path = layout.ETC / f'hosts/{host}/agent.conf'
    original = path.read_text()
    # Of several values of an option the last one counts.
    following = '[placement]\n'
    assert following in original, path
    path.write_text(original.replace(following, ''.join(
        f'{option}\n' for option in options) + following))
    try:
        restart_agent(host)
        yield
    finally:
        path.write_text(original)
        restart_agent(host)


@contextlib.contextmanager
def scheduler_options(*lines: str) -> Iterator[None]:
    """Let nova-scheduler have further lines of options, with their groups.

    It finds the modules of the tests as well.
    """
    path = layout.ETC / 'nova/nova.conf'
    original = path.read_text()
    path.write_text('\n'.join([original, *lines, '']))
    try:
        stop('nova-scheduler')
        start('nova-scheduler', PYTHONPATH=str(layout.SOURCE))
        yield
    finally:
        path.write_text(original)
        stop('nova-scheduler')
        start('nova-scheduler')


def restart_agent(host: str) -> None:
    """Start an agent anew, and wait until it controls."""
    name, began = f'secondary-agent-{host}', time.time()
    stop(name)
    start(name)
    wait_until(lambda: agent_status(host).get('time', 0) > began, 40,
               lambda: f'{name} controls: {agent_status(host)}', 0.1)


def stop(*names: str) -> None:
    """End services politely."""
    for name in names:
        shell.stop(name, timeout=8)


@contextlib.contextmanager
def hung(*names: str) -> Iterator[None]:
    """Run a block while services, with all their processes, do not answer."""
    pids = [pid for name in names for pid in _session(name)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _session(name: str) -> list[int]:
    """Return the processes of a service: the box gives each a session."""
    leader = shell.pid_of(name)
    assert leader, f'{name} does not run'
    found = []
    for stat in pathlib.Path('/proc').glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(')')[2].split()
            if int(fields[3]) == leader:
                found.append(int(stat.parent.name))
    return found


@contextlib.contextmanager
def without(*names: str, how: Callable[..., None] = kill) -> Iterator[None]:
    """Run a block while services are gone; start them again after it."""
    how(*names)
    try:
        yield
    finally:
        for name in names:
            start(name)


def missing() -> list[str]:
    """Return the names of services that do not run."""
    settings = layout.load_settings()
    expected = control.services(settings) + [
        f'{kind}-{host}' for kind in ('nova-compute', 'secondary-agent',
                                      'postgresql')
        for host in layout.host_names(settings)]
    return [name for name in expected if not shell.pid_of(name)]


def start_missing() -> list[str]:
    """Start whatever a test has left dead; return the names."""
    dead = missing()
    for name in dead:
        start(name)
    return dead


def log_size(name: str) -> int:
    """Return where a service's log ends now."""
    return (layout.LOG / name).stat().st_size


def log_since(name: str, offset: int) -> str:
    """Return what a service has logged since then."""
    with open(layout.LOG / name, errors='replace') as log:
        log.seek(offset)
        return log.read()


def libvirtd_pid(host: str) -> str:
    """Return the pid of a host's libvirtd, as the host counts; or ''."""
    done = shell.run([*hosts.enter(host), 'cat', '/run/libvirtd.pid'],
                     check=False)
    return '' if done.returncode else str(done.stdout).strip()


def kill_libvirtd(host: str) -> None:
    """Crash a host's libvirtd and wait until the host has restarted it."""
    before = libvirtd_pid(host)
    shell.run([*hosts.enter(host), 'sh', '-c', f'kill -9 {before}'])
    wait_until(lambda: libvirtd_pid(host) not in ('', before), 20,
               f'a new libvirtd on {host}')


@contextlib.contextmanager
def hung_libvirtd(host: str) -> Iterator[None]:
    """Stop a host's libvirtd from answering, as in a deadlock."""
    command = [*hosts.enter(host), 'kill']
    pid = libvirtd_pid(host)
    shell.run([*command, '-STOP', pid])
    try:
        yield
    finally:
        shell.run([*command, '-CONT', pid])


@contextlib.contextmanager
def without_libvirtd(host: str) -> Iterator[None]:
    """Run a block while a host has no libvirtd, which is not restarted."""
    hold = hosts.directory(host) / 'hold-libvirtd'
    hold.touch()
    try:
        shell.run([*hosts.enter(host), 'kill', '-KILL', libvirtd_pid(host)])
        yield
    finally:
        hold.unlink()
    wait_until(lambda: shell.run(
        [*hosts.enter(host), 'virsh', 'list'], check=False).returncode == 0,
        60, f'libvirtd of {host} answers')
