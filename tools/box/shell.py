# SPDX-License-Identifier: Apache-2.0

"""Running things: commands, steps that are done once, long-lived processes.

Every service runs in a session of its own, is remembered by a pid file that
also holds the process's start time, and is ended by that pid only: the box
never searches for processes by name.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import layout

_START = time.monotonic()


def say(text: str) -> None:
    """Print one line of progress with the seconds since the start."""
    print(f'[{time.monotonic() - _START:6.1f} s] {text}', flush=True)


class BoxError(Exception):
    """Something the user must know; the text says what to do next."""


def run(command: list, *, log: str | None = None, env: dict | None = None,
        netns: bool = False, check: bool = True, **kwargs):
    """Run a command to its end; output goes to a log file if one is named.

    :raises BoxError: with the end of the output, if the command fails, or
        is not done when a ``timeout`` has passed.
    """
    command = [str(part) for part in command]
    if netns:
        command = inside_netns(command)
    full_env = {**os.environ, **(env or {})}
    tail = layout.LOG / f'{log}.log' if log else None
    try:
        if tail:
            tail.parent.mkdir(parents=True, exist_ok=True)
            with open(tail, 'ab') as out:
                done = subprocess.run(command, stdout=out, stderr=out,
                                      stdin=subprocess.DEVNULL, env=full_env,
                                      **kwargs)
        else:
            done = subprocess.run(command, env=full_env, text=True,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, **kwargs)
    except subprocess.TimeoutExpired as exc:
        raise BoxError(f'"{" ".join(command[:6])} ..." was not done after '
                       f'{exc.timeout:g} s') from exc
    if check and done.returncode:
        text = (tail.read_text(errors='replace') if tail
                else done.stdout or '')
        lines = '\n'.join(text.splitlines()[-15:])
        where = f' (all of it: {tail})' if tail else ''
        raise BoxError(f'"{" ".join(command[:6])} ..." ended with '
                       f'{done.returncode}{where}:\n{lines}')
    return done


def inside_netns(command: list, netns: str = layout.NETNS) -> list:
    """Wrap a command so that it runs in a network namespace of the box."""
    return ['nsenter', f'--net=/run/netns/{netns}', '--', *command]


def once(name: str, function, *args, key: str = '') -> None:
    """Do a step of the set-up unless it was done before with the same key.

    The stamp is written after the step, so an interrupted step is repeated.
    """
    stamp = layout.STAMPS / name
    if stamp.exists() and stamp.read_text() == key:
        return
    say(f'{name} ...')
    began = time.monotonic()
    function(*args)
    layout.STAMPS.mkdir(parents=True, exist_ok=True)
    stamp.write_text(key)
    say(f'{name} done in {time.monotonic() - began:.1f} s')


def _pid_file(name: str) -> pathlib.Path:
    return layout.RUN / f'{name}.pid'


def _start_time(pid: int) -> str | None:
    try:
        stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return None
    fields = stat.rpartition(')')[2].split()
    return None if fields[0] == 'Z' else fields[19]


def pid_of(name: str) -> int | None:
    """Return the pid of a service of ours, or None if it does not run."""
    try:
        pid, started = _pid_file(name).read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if _start_time(int(pid)) == started else None


def start(name: str, command: list, *, env: dict | None = None,
          cwd: str | None = None) -> None:
    """Start a service in its own session."""
    if pid_of(name):
        return
    layout.RUN.mkdir(parents=True, exist_ok=True)
    layout.LOG.mkdir(parents=True, exist_ok=True)
    with open(layout.LOG / f'{name}.log', 'ab') as out:
        process = subprocess.Popen(
            [str(part) for part in command], stdout=out, stderr=out,
            stdin=subprocess.DEVNULL, start_new_session=True, cwd=cwd,
            env={**os.environ, 'PYTHONWARNINGS': 'ignore', **(env or {})})
    _pid_file(name).write_text(f'{process.pid} {_start_time(process.pid)}')


def stop(name: str, *, timeout: float = 10.0,
         sig: int = signal.SIGTERM) -> None:
    """End a service: politely, then surely; only what we started."""
    pid = pid_of(name)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, sig)
        deadline = time.monotonic() + timeout
        while pid_of(name) and time.monotonic() < deadline:
            _reap(pid)
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _reap(pid)
    _pid_file(name).unlink(missing_ok=True)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def running() -> list[str]:
    """Return the names of all services of ours that run."""
    return sorted(path.stem for path in layout.RUN.glob('*.pid')
                  if pid_of(path.stem))


def wait_for(what: str, ready, timeout: float = 60.0,
             service: str | None = None) -> None:
    """Wait until ``ready()`` is true; name the log to read if it is not."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if ready():
            return
        if service and not pid_of(service):
            break
        time.sleep(0.1)
    raise BoxError(f'{what} is not ready; read '
                   f'{layout.LOG / (service or "")}.log, then run '
                   '"python3 tools/box up" again')


def port_open(port: int, address: str = layout.CONTROL) -> bool:
    """Return whether something listens on a port inside the box."""
    probe = ('import socket,sys;s=socket.socket();s.settimeout(1);'
             'sys.exit(s.connect_ex((sys.argv[1],int(sys.argv[2])))!=0)')
    return subprocess.run(
        inside_netns([sys.executable, '-c', probe, address, str(port)]),
        stderr=subprocess.DEVNULL).returncode == 0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let no other command change the box meanwhile; wait for one that does.

    What is started inside does not inherit the lock.
    """
    need_root()
    with open(f'/run/lock/{layout.NAME}.lock', 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say('another command is changing the box: waiting for its end')
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _use_lock() -> str:
    return f'/run/lock/{layout.NAME}.use.lock'


@contextlib.contextmanager
def in_use() -> Iterator[None]:
    """Let no command with other code stop the box meanwhile."""
    with open(_use_lock(), 'w') as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def check_unused() -> None:
    """Check that neither a demo nor tests run on the box.

    :raises BoxError: a demo or tests run on it.
    """
    with open(_use_lock(), 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BoxError(
                'a demo or tests run on the box, with other code than this: '
                'wait for their end, or stop them, and run this again'
                ) from None


def need_root() -> None:
    """Namespaces and cgroups need root; say so before anything is done."""
    if os.geteuid() != 0:
        raise BoxError('run this as root: it makes namespaces and cgroups')
    if not shutil.which('apt-get'):
        raise BoxError('this needs Debian 12 (apt-get was not found)')
