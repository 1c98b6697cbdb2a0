"""What the operator's own probes say of the primary.

A probe is a command or the address of an HTTP service that says one number:
the primary's latency at its 99th percentile, say.  It is asked once a period,
all at the same time and each on a thread of its own; one that fails, says
anything else or nothing in time makes its number unknown.
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

#: A longer answer is none.
_BYTES = 4096
#: The part of its period in which a probe has to answer.
_PATIENCE = 0.8

_LATE = 'it does not answer in time'

_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?', re.ASCII)
_SETTING = re.compile(rf'\s*({language.PROBE_NAME})\s*=\s*(\S.*)', re.DOTALL)


class ProbeError(Exception):
    """A probe that did not say a number."""


def parse_answer(answer: bytes) -> float:
    """Return the number in the last line of an answer that is not empty.

    :raises ProbeError: if there is none, or the answer is too long.
    """
    if len(answer) > _BYTES:
        raise ProbeError(f'it says more than {_BYTES} bytes')
    lines = answer.decode(errors='replace').split('\n')
    last = next(filter(None, map(str.strip, reversed(lines))), '')
    if not _NUMBER.fullmatch(last):
        raise ProbeError(f'its last line is no number: {last[:40]!r}')
    return float(last)


def parse_probe_option(values: Sequence[str]) -> dict[str, str]:
    """Read the option ``probe``: what to ask, by the names of probes.

    :raises ValueError: if one of them cannot be read.
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
            shlex.split(asked)      # a quotation may lack its end
        found[name] = asked
    return found


def _is_address(asked: str) -> bool:
    return asked.startswith(('http://', 'https://'))


class ProbeSensor(Sensor):
    """``probe:NAME``: what the operator's probe of that name says."""

    budget = 5.0    # to start a command takes some milliseconds

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
                 ) -> None:
        super().__init__(conf, hierarchy)
        self.period = conf.secondary_agent.probe_period
        self._asked = {f'{language.PROBE}:{name}': asked for name, asked in
                       parse_probe_option(conf.secondary_agent.probe).items()}
        self.resources = tuple(self._asked)
        self._pending: dict[str, futures.Future[float]] = {}
        self._lock = threading.Lock()
        self._worked = 0.0

    def spent(self) -> float:
        """Return CPU time including that of the commands that have ended."""
        commands = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (super().spent() + self._worked
                + commands.ru_utime + commands.ru_stime)

    def read(self, guests: Sequence[Secondary]) -> Mapping[str, Reading]:
        """Ask all probes, and wait for them no longer than most of a period.
        """
        patience = _PATIENCE * self.period
        deadline = time.monotonic() + patience
        for name, asked in self._asked.items():
            if name not in self._pending:
                self._pending[name] = futures.Future()
                # No pool: the agent's end would wait for what hangs.
                threading.Thread(
                    target=self._ask, name=name, daemon=True,
                    args=(self._pending[name], asked, deadline)).start()
        # A thread that gives up in time has a moment to say so.
        futures.wait(self._pending.values(), patience + 0.1 * self.period)
        found = {}
        for name, answer in list(self._pending.items()):
            if not answer.done():   # a service that says a byte now and then
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
    """Ask a probe until a time of the monotonic clock.

    :raises ProbeError: if it does not say a number by then.
    """
    return parse_answer(_fetch(asked, deadline) if _is_address(asked)
                 else _run(shlex.split(asked), deadline))


def _fetch(address: str, deadline: float) -> bytes:
    """Return what an HTTP service answers; it follows no redirection.

    :raises ProbeError: if it does not.
    """
    # Here, since an agent without such a probe needs none of it.
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
                raise ProbeError('it breaks off in the middle')
    except TimeoutError as exc:
        raise ProbeError(_LATE) from exc
    except (OSError, http.client.HTTPException, ValueError) as exc:
        raise ProbeError(f'{exc}' or type(exc).__name__) from exc
    return answer


def _run(command: Sequence[str], deadline: float) -> bytes:
    """Return what a command writes; at the deadline it is killed.

    With it go all of its process group, which is its own.

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
                # Nobody has waited for it: its number is nobody else's yet.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code:
        raise ProbeError(f'it ends with {code}')
    return answer


def _read(fd: int, deadline: float) -> bytes:
    """Read to the end, or one byte too many.

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
