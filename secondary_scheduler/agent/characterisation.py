# SPDX-License-Identifier: Apache-2.0

"""Runs of a characterisation on this host.

In a run some secondaries have one CPU each and their full speed, and all
others are at the floor.  At the end, and after any error or interrupt, all of
them have their first CPU sets and limits again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import threading
import time

from secondary_scheduler.agent import generators, pins
from secondary_scheduler.agent.actuator import Actuator
from secondary_scheduler.agent.cpu_pins import CpuPins
from secondary_scheduler.agent.domains import Domains, Secondary
from secondary_scheduler.agent.pins import Cpus
from secondary_scheduler.agent.speeds import SpeedMeter
from secondary_scheduler.cpu_affinity.characterisation import (
    Result,
    Run,
    Speed,
)

#: Seconds between two looks for primaries.
_LOOK_S = 2.0
#: Seconds for which a generator may run after its run, if nothing ends it.
_MARGIN_S = 60.0


class CharacterisationError(Exception):
    """A host or a guest that cannot be measured; the text names the remedy."""


class Interrupted(Exception):
    """The operator has ended the characterisation."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """Times of a run in seconds.

    :param settle: between the start of a run and its measurement
    :param run: the measurement
    """

    settle: float
    run: float


def usable_cpus(guests: Sequence[Secondary], cpus: Cpus, proc: str) -> Cpus:
    """Return the CPUs on which all vCPUs of all guests may run.

    :param cpus: those of the host
    :raises CharacterisationError: if there is none, or if it is not known
    """
    masks = [mask for guest in guests
             for mask in pins.read_threads(guest.pid, proc)[0].vcpus]
    if not masks or not (common := cpus.intersection(*masks)):
        raise CharacterisationError('the guests have no CPU in common: '
                                    'measure them one by one')
    return common


class Characterisation:
    """Executes runs, and restores the host.

    :param stop: ends the runs when it is set
    """

    def __init__(self, domains: Domains, cpu_pins: CpuPins,
                 actuator: Actuator, meter: SpeedMeter, timing: Timing,
                 stop: threading.Event,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._domains = domains
        self._pins = cpu_pins
        self._actuator = actuator
        self._meter = meter
        self._timing = timing
        self._stop = stop
        self._clock = clock

    def execute(self, runs: Sequence[Run],
                done: Callable[[Run, Mapping[str, Speed]], None]
                ) -> list[Result]:
        """Execute runs in order.

        :param done: called after each run
        :returns: speeds of the guests of each run
        :raises CharacterisationError: if a primary starts, if a guest ends,
            or if its speed is not known
        :raises GeneratorError: if a generator does not run
        :raises PinError: if a guest cannot be confined
        :raises Interrupted: if ``stop`` is set
        """
        results: list[Result] = []
        with self._restored():
            for run in runs:
                speeds = self._execute(run)
                if run.place is None:
                    self._check_speeds(speeds)
                results.append((run, speeds))
                done(run, speeds)
        return results

    def _execute(self, run: Run) -> Mapping[str, Speed]:
        guests = self.present_guests(run.guests)
        for guest in self._domains.secondaries():
            if guest.uuid not in run.guests:
                self._check_limited(guest, self._actuator.floor(guest))
        for guest in guests:
            self._pins.pin(guest, frozenset({run.guests[guest.uuid]}))
            # A quota of a whole CPU for each vCPU is none.
            self._check_limited(guest, self._actuator.set_share(
                guest, 100.0, max(1, guest.vcpus)))
        with contextlib.ExitStack() as stack:
            if run.generator:
                stack.enter_context(generators.running(
                    *run.generator, self._timing.settle + self._timing.run
                    + _MARGIN_S))
            self._wait(self._timing.settle)
            speeds = self._meter.measure(guests, self._timing.run, self._wait)
        self.present_guests(run.guests)
        return speeds

    def _check_speeds(self, speeds: Mapping[str, Speed]) -> None:
        """Check that guests that run alone show their speed.

        :raises CharacterisationError: if one does not
        """
        for uuid, speed in speeds.items():
            if speed.work is None and (self._meter.counts_work
                                       or speed.stretch is None):
                raise CharacterisationError(
                    f'the speed of {uuid} is not known: ' + (
                        self._meter.problem or 'it was idle, or the kernel '
                        'does not show how long its vCPUs run and wait. Start '
                        'its load, or count its work with --units.'))

    def present_guests(self, uuids: Sequence[str] | Mapping[str, int]
                       ) -> list[Secondary]:
        """Return the running secondaries of these UUIDs.

        :raises CharacterisationError: if a primary runs, if libvirt does not
            answer, or if one of them does not run
        """
        try:
            self._domains.refresh()
        except Exception as exc:
            raise CharacterisationError('libvirt does not answer, so that '
                                        f'primaries are not known: {exc}'
                                        ) from exc
        if self._domains.unmarked:
            raise CharacterisationError(
                'primaries run here, and would be harmed: '
                + ', '.join(sorted(self._domains.unmarked))
                + '. Move them away, and close the host for new ones.')
        known = {guest.uuid: guest for guest in self._domains.secondaries()}
        for uuid in uuids:
            if uuid not in known or known[uuid].paused:
                raise CharacterisationError(f'{uuid} is no running secondary '
                                            'of this host')
        return [known[uuid] for uuid in uuids]

    def _check_limited(self, guest: Secondary, done: bool) -> None:
        """Check that the limits of a guest were set.

        :raises CharacterisationError: if it was not
        """
        if not done:
            raise CharacterisationError(
                f'the limits of {guest.uuid} cannot be set: '
                + self._actuator.problems.get(guest.uuid, 'it has ended'))

    def _wait(self, seconds: float) -> None:
        """Pass time, and look for primaries.

        :raises Interrupted: if ``stop`` is set
        :raises CharacterisationError: if a primary starts
        """
        end = self._clock() + seconds
        left = seconds
        while True:
            if self._stop.wait(min(left, _LOOK_S)):
                raise Interrupted
            if self._clock() >= end:
                return
            self.present_guests(())
            left = max(0.0, end - self._clock())

    @contextlib.contextmanager
    def _restored(self) -> Iterator[None]:
        """Restore the host at the end, in any case."""
        try:
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """Restore the first CPU sets and limits of all secondaries.

        :raises CharacterisationError: if that fails
        """
        failed = [guest.uuid for guest in self._domains.secondaries()
                  if not all([self._pins.release(guest),
                              self._actuator.release(guest)])]
        self._actuator.free_slice()
        if failed:
            raise CharacterisationError(
                f'CPU sets or limits of {", ".join(failed)} were not '
                'restored: run "secondary-agent release"')
