# SPDX-License-Identifier: Apache-2.0

"""Sensor of the operator's probes of the primary.

A probe is a command or the address of an HTTP service that returns one number,
for example the 99th percentile of the primary's latency.  All probes are
queried once a period, at the same time, each on a thread of its own.  A probe
that fails, is late or returns anything else makes its number unknown.
"""

from collections.abc import Mapping, Sequence
from concurrent import futures
import contextlib
import os
import re
import resource
import select
import shlex
import signal
import subprocess  # nosec B404: the operator's own commands, without a shell
import threading
import time

from oslo_config import cfg

from secondary_scheduler.agent import cgroups
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors.base import Reading, Sensor
from secondary_scheduler.policies import language

#: Largest valid answer.
_BYTES = 4096
#: Part of the period in which a probe has to answer.
_TIME_LIMIT = 0.8

_LATE = 'it does not answer in time'

_NUMBER = re.compile(r'[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?', re.ASCII)
_SETTING = re.compile(rf'\s*({language.PROBE_NAME})\s*=\s*(\S.*)', re.DOTALL)


class ProbeError(Exception):
    """A probe has not returned a number."""


def parse_answer(answer: bytes) -> float:
    """Return the number in the last line of an answer that is not empty.

    :raises ProbeError: if there is no number, or if the answer is too long.
    """
    if len(answer) > _BYTES:
        raise ProbeError(f'it returns more than {_BYTES} bytes')
    lines = answer.decode(errors='replace').split('\n')
    last = next(filter(None, map(str.strip, reversed(lines))), '')
    if not _NUMBER.fullmatch(last):
        raise ProbeError(f'its last line is not a number: {last[:40]!r}')
    return float(last)


def parse_probe_option(values: Sequence[str]) -> dict[str, str]:
    """Parse the option ``probe``.

    :returns: commands or addresses by the names of probes.
    :raises ValueError: if a value is not valid.
    """
    found: dict[str, str] = {}
    for value in values:
        setting = _SETTING.fullmatch(value)
        if setting is None or setting[1] in found:
            raise ValueError(
                f'[secondary_agent] probe = {value}: expected NAME = COMMAND '
                'or NAME = http://ADDRESS, each name once, in letters, digits '
                'and underscores')
        name, asked = setting[1], setting[2].strip()
        if not _is_address(asked):
            shlex.split(asked)      # raises ValueError for an open quotation
        found[name] = asked
    return found


def _is_address(asked: str) -> bool:
    return asked.startswith(('http://', 'https://'))


class ProbeSensor(Sensor):
    """``probe:NAME``: number that the operator's probe NAME returns."""

    budget = 5.0    # starting a command takes some milliseconds

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
                 ) -> None:
        super().__init__(conf, hierarchy)
        self.period = conf.secondary_agent.probe_period
        asked = parse_probe_option(conf.secondary_agent.probe)
        self._asked = {f'{language.PROBE}:{name}': one
                       for name, one in asked.items()}
        self.resources = tuple(self._asked)
        self._pending: dict[str, futures.Future[float]] = {}
        self._lock = threading.Lock()
        self._worked = 0.0

    def spent(self) -> float:
        """Return CPU time, including that of commands that have ended."""
        commands = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (super().spent() + self._worked
                + commands.ru_utime + commands.ru_stime)

    def read(self, guests: Sequence[Secondary]) -> Mapping[str, Reading]:
        """Query all probes, and wait for them for most of a period."""
        time_limit = _TIME_LIMIT * self.period
        deadline = time.monotonic() + time_limit
        for name, asked in self._asked.items():
            if name not in self._pending:
                self._pending[name] = futures.Future()
                # Not a pool: the agent could not exit while a probe hangs.
                threading.Thread(
                    target=self._ask, name=name, daemon=True,
                    args=(self._pending[name], asked, deadline)).start()
        # A thread that reaches its time limit needs a moment to return.
        futures.wait(self._pending.values(), time_limit + 0.1 * self.period)
        found = {}
        for name, answer in list(self._pending.items()):
            if not answer.done():   # a service that sends a byte now and then
                found[name] = Reading(None, why=_LATE)
                continue
            del self._pending[name]
            error = answer.exception()
            found[name] = (Reading(answer.result()) if error is None else
                           Reading(None, why=f'{error}'
                                   or type(error).__name__))
        return found

    def _ask(self, answer: futures.Future[float], asked: str,
             deadline: float) -> None:
        number, error = 0.0, None
        try:
            number = ask_probe(asked, deadline)
        except Exception as exc:
            error = exc
        with self._lock:
            self._worked += time.thread_time()
        if error is None:
            answer.set_result(number)
        else:
            answer.set_exception(error)


def ask_probe(asked: str, deadline: float) -> float:
    """Query a probe.

    :param asked: a command or an address.
    :param deadline: time of the monotonic clock.
    :raises ProbeError: if it does not return a number by then.
    """
    return parse_answer(_fetch(asked, deadline) if _is_address(asked)
                 else _run(shlex.split(asked), deadline))


def _fetch(address: str, deadline: float) -> bytes:
    """Return the answer of an HTTP service, without following redirections.

    :raises ProbeError: if it does not answer.
    """
    # Imported here, because only this kind of probe needs it.
    import http.client
    from urllib import request
    opener = request.OpenerDirector()
    for handler in (request.HTTPHandler, request.HTTPSHandler,
                    request.HTTPDefaultErrorHandler,
                    request.HTTPErrorProcessor):
        opener.add_handler(handler())
    answer = b''
    try:
        with opener.open(address, timeout=max(
                0.01, deadline - time.monotonic())) as response:
            while len(answer) <= _BYTES and (
                    part := response.read1(_BYTES + 1 - len(answer))):
                answer += part
                if time.monotonic() > deadline:
                    raise TimeoutError
            if len(answer) <= _BYTES and response.length:
                raise ProbeError('its answer is incomplete')
    except TimeoutError as exc:
        raise ProbeError(_LATE) from exc
    except (OSError, http.client.HTTPException, ValueError) as exc:
        raise ProbeError(f'{exc}' or type(exc).__name__) from exc
    return answer


def _run(command: Sequence[str], deadline: float) -> bytes:
    """Return the output of a command.

    At the deadline the command is killed with its own process group.

    :raises ProbeError: if it cannot be run, fails or hangs.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  # nosec B603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, cwd='/', start_new_session=True)
    except (OSError, ValueError) as exc:
        raise ProbeError(f'{exc}') from exc
    assert process.stdout is not None  # noqa: S101  # nosec B101
    with process.stdout as output:
        try:
            answer = _read(output.fileno(), deadline)
            if len(answer) > _BYTES:
                return answer
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired) as exc:
            raise ProbeError(_LATE) from exc
        finally:
            if process.returncode is None:
                # It was not waited for, so its number is not used again yet.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code:
        raise ProbeError(f'it exits with code {code}')
    return answer


def _read(fd: int, deadline: float) -> bytes:
    """Read to the end, at most one byte more than ``_BYTES``.

    :raises TimeoutError: at the deadline.
    """
    answer = b''
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while len(answer) <= _BYTES:
        if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            raise TimeoutError
        part = os.read(fd, _BYTES + 1 - len(answer))
        if not part:
            break
        answer += part
    return answer
