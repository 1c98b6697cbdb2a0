# SPDX-License-Identifier: Apache-2.0

"""Speed of guests over seconds: CPU time, run delay and units of work.

Work is counted by a command of the operator, or else in instructions where the
CPU has counters of them.  A number that cannot be read is unknown.
"""

from collections.abc import Callable, Iterable, Mapping
import contextlib
import os
import re
import shlex
import signal
import subprocess  # nosec B404: perf, and the operator's own command
import time
import typing

from secondary_scheduler.agent import kernel_files, processes
from secondary_scheduler.agent.device_use import DeviceMeter
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors.probes import ProbeError, ask_probe
from secondary_scheduler.cpu_affinity.characterisation import Speed
from secondary_scheduler.cpu_affinity.workload_profiles import ResourceUse

#: Names of QEMU's vCPU threads; libvirt makes QEMU name them.
_VCPU_THREAD = re.compile(r'CPU \d+/\w+')
#: Part of the operator's command that stands for the UUID of a guest.
UUID_PLACE = '{uuid}'
#: Seconds in which the operator's command has to answer, and attempts.
_ANSWERS_S = 10.0
_ATTEMPTS = 2
#: Instructions of the guest and of QEMU for it.
_EVENT = 'instructions:HG'

#: Waits for a time in seconds; may raise to end a measurement.
Wait = Callable[[float], None]


class Counts(typing.NamedTuple):
    """Counters of a guest at a time of the monotonic clock; None is unknown.

    :param run_ns: CPU time of its vCPUs
    :param waited_ns: time in which they waited for a CPU
    """

    at: float
    run_ns: int | None
    waited_ns: int | None
    work: float | None


def read_run_times(pid: int, proc: str) -> tuple[int, int] | None:
    """Return the run and waiting times of all vCPUs of a guest.

    :returns: nanoseconds; None if a thread cannot be read, or if there is none
    """
    total = [0, 0]
    found = False
    try:
        for thread in os.listdir(f'{proc}/{pid}/task'):
            folder = f'{proc}/{pid}/task/{thread}'
            if not _VCPU_THREAD.fullmatch(
                    kernel_files.read_line(f'{folder}/comm')):
                continue
            found = True
            for place, value in enumerate(kernel_files.read_counts(
                    f'{folder}/schedstat', 3)[:2]):
                total[place] += value
    except (OSError, ValueError):
        return None
    return (total[0], total[1]) if found else None


def speed_between(before: Counts, after: Counts, use: ResourceUse) -> Speed:
    """Return the speed of a guest between two times.

    :param use: its use of other resources than CPU
    """
    seconds = after.at - before.at
    run = _grown(before.run_ns, after.run_ns)
    waited = _grown(before.waited_ns, after.waited_ns)
    work = _grown(before.work, after.work)
    return Speed(
        use._replace(cpu=None if run is None else 100.0 * run / 1e9
                     / seconds),
        (run + waited) / run if run and waited is not None else None,
        work / seconds if work else None)


def _grown(before: float | None, after: float | None) -> float | None:
    """Return the growth of a counter, None if it is unknown or was reset."""
    if before is None or after is None or after < before:
        return None
    return after - before


class SpeedMeter:
    """Measures the speed of guests.

    :param units: command, or address of an HTTP service, that returns the
        units of work which a guest has done so far; ``{uuid}`` in it stands
        for the guest.  None counts instructions, where that is possible
    """

    def __init__(self, proc: str, devices: DeviceMeter,
                 units: str | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._devices = devices
        self._clock = clock
        self._units = units
        self.instructions = units is None and has_instructions()
        #: Reason why the last units could not be counted, '' if none.
        self.problem = ''

    @property
    def metric(self) -> str:
        """Name of the unit of work."""
        if self._units is not None:
            return 'units'
        return 'instructions' if self.instructions else 'run delay'

    @property
    def counts_work(self) -> bool:
        """Whether work is counted at all."""
        return self._units is not None or self.instructions

    @property
    def unknown(self) -> tuple[str, ...]:
        """Facts that cannot be measured here."""
        if self.counts_work:
            return ()
        return ('work: no counters of instructions here and no --units, so '
                'that only the sharing of time is seen',)

    def measure(self, guests: Iterable[Secondary], seconds: float, wait: Wait
                ) -> Mapping[str, Speed]:
        """Measure the speed of guests at the same time.

        :param wait: passes the time
        :returns: speeds by UUID
        """
        some = list(guests)
        with contextlib.ExitStack() as stack:
            counters = {guest.uuid: stack.enter_context(
                InstructionCounter(guest.pid))
                for guest in some if self.instructions}
            before = {guest.uuid: self._read(guest) for guest in some}
            self._devices.read(some)
            wait(seconds)
            after = {guest.uuid: self._read(guest) for guest in some}
            uses = self._devices.read(some)
            speeds = {uuid: speed_between(before[uuid], after[uuid],
                                          uses[uuid]) for uuid in before}
            return {uuid: speed._replace(work=_rate(
                counters[uuid].stop(), seconds)) if uuid in counters else speed
                for uuid, speed in speeds.items()}

    def _read(self, guest: Secondary) -> Counts:
        work = self._count_units(guest)
        run, waited = read_run_times(guest.pid, self._proc) or (None, None)
        return Counts(self._clock(), run, waited, work)


    def _count_units(self, guest: Secondary) -> float | None:
        """Return the units of work of a guest, None if they are unknown."""
        if self._units is None:
            return None
        asked = self._units.replace(UUID_PLACE, shlex.quote(guest.uuid))
        for _ in range(_ATTEMPTS):
            try:
                return ask_probe(asked, time.monotonic() + _ANSWERS_S)
            except ProbeError as exc:
                self.problem = f'{asked}: {exc}'
        return None


def _rate(count: float | None, seconds: float) -> float | None:
    return count / seconds if count else None


class InstructionCounter:
    """Instructions of a process from now on, counted by perf."""

    def __init__(self, pid: int) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # nosec B603 B607
            ['perf', 'stat', '-x', ',', '-e', _EVENT, '-p',  # noqa: S607
             str(pid)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=processes.dying_with_parent())

    def __enter__(self) -> 'InstructionCounter':
        return self

    def stop(self) -> float | None:
        """Return the instructions so far, None if they are unknown."""
        self._process.send_signal(signal.SIGINT)
        try:
            return parse_perf(self._process.communicate(timeout=_ANSWERS_S)[1])
        except subprocess.TimeoutExpired:
            return None

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def parse_perf(text: str) -> float | None:
    """Return the count in the output of ``perf stat -x,``.

    ``<not supported>`` and ``<not counted>`` are unknown, not 0.
    """
    for line in text.splitlines():
        value, *fields = line.split(',')
        if any(field.startswith('instructions') for field in fields):
            return float(value) if value.isdecimal() else None
    return None


def has_instructions() -> bool:
    """Return whether perf can count instructions here."""
    try:
        with InstructionCounter(os.getpid()) as counter:
            deadline = time.process_time() + 0.05
            while time.process_time() < deadline:
                pass
            return bool(counter.stop())
    except OSError:
        return False        # perf is not installed
