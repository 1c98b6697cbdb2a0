# SPDX-License-Identifier: Apache-2.0

"""``secondary-agent characterise``: measure profiles of workload classes."""

import argparse
from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import platform
import signal
import sys
import threading
import time
import typing

from oslo_config import cfg

from secondary_scheduler.agent import (
    cgroups,
    cpu_topology,
    generators,
    host_lock,
    wiring,
)
from secondary_scheduler.agent.characterisation import (
    Characterisation,
    CharacterisationError,
    Interrupted,
    Timing,
    usable_cpus,
)
from secondary_scheduler.agent.cpu_model import read_cpu_model
from secondary_scheduler.agent.cpu_pins import CpuPins, PinError
from secondary_scheduler.agent.device_use import DeviceMeter
from secondary_scheduler.agent.domains import Domains, Secondary
from secondary_scheduler.agent.libvirt_connection import libvirt_opener
from secondary_scheduler.agent.sensors.base import load_sensors
from secondary_scheduler.agent.speeds import UUID_PLACE, SpeedMeter
from secondary_scheduler.cmd.arguments import Groups, whole_number
from secondary_scheduler.cmd.console import INTERRUPTED, CommandError
from secondary_scheduler.cmd.profiles import replaced_file, write_profiles
from secondary_scheduler.cpu_affinity import characterisation as plan
from secondary_scheduler.cpu_affinity.measurements import Measurement, Place
from secondary_scheduler.cpu_affinity.workload_keys import class_name
from secondary_scheduler.cpu_affinity.workload_profiles import (
    ResourceUse,
    WorkloadProfiles,
)
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.topology import Topology

DESCRIPTION = """\
Measure how much running secondaries slow down beside generators of load, or
beside each other (--pairs), and write profiles of their workload classes.

Each secondary is confined to one CPU, alone and then with a neighbour on the
same CPU, on its SMT sibling, on another core of the same cache, and on a core
of another cache. What this host cannot show is "unknown". Meanwhile all other
secondaries are at the floor. Slow-downs are medians of the repeats.

The host must be closed for new secondaries, without primaries, and without a
running agent. CPU limits and CPU sets of an agent are released first; run
"secondary-agent release" if disks or links have limits. At the end,
after an error and after an interrupt, all secondaries have their first limits
and CPU sets again. If the command is killed, "secondary-agent release", the
next start of the agent, or the next "characterise" restores them; generators
die with the command.
"""


@dataclasses.dataclass(frozen=True)
class Request:
    """Arguments of the command.

    :param guests: UUIDs, each with ``=CLASS`` or without
    :param units: command or address that counts units of work
    """

    guests: tuple[str, ...]
    output: str
    pairs: bool = False
    units: str | None = None
    seconds: int = 10
    settle: int = 2
    repeats: int = 3


def add_parser(commands: Groups, summary: str) -> None:
    """Add the command ``characterise``."""
    parser = commands.add_parser(
        'characterise', help=summary, description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        'guests', nargs='+', metavar='UUID[=CLASS]',
        help='a running secondary, and the name of its class (default: the '
             'one that its flavor names, else its image and flavor)')
    parser.add_argument('--output', required=True, metavar='FILE',
                        help='file for the profiles, in JSON')
    parser.add_argument(
        '--pairs', action='store_true',
        help='measure each pair of the secondaries, on the same CPU and on '
             'two cores of one cache, instead of generators of load. A class '
             'beside itself needs two secondaries of it')
    parser.add_argument(
        '--units', metavar='COMMAND',
        help='command, or address of an HTTP service, that returns the units '
             'of work which a secondary has done so far, as one number; '
             f'{UUID_PLACE} in it stands for the UUID. It runs with the '
             'rights of this command, without a shell. Without it, '
             'instructions are counted where the CPU can, or else only the '
             'waiting for a CPU is measured')
    for name, default, least, text in (
            ('--seconds', 10, 1, 'length of each run'),
            ('--settle', 2, 0, 'seconds before each run that do not count'),
            ('--repeats', 3, 1, 'number of repeats')):
        parser.add_argument(name, type=whole_number(least, 3600), metavar='N',
                            default=default,
                            help=f'{text} (default: {default})')


def characterise(conf: cfg.ConfigOpts, request: Request) -> int:
    """Measure profiles of workload classes, and write them to a file.

    :returns: the exit code
    :raises CommandError: if the host or a guest cannot be measured
    """
    if not request.pairs:
        _find_generators()
    store = wiring.open_store(conf)
    try:
        with (host_lock.acquire_host_lock(store),
              replaced_file(request.output) as file):
            check_closed(store.load(wiring.STATUS),
                         conf.secondary_scheduler.report_stale_after)
            found = _Command(conf, store, request).run()
            write_profiles(found, file)
    except Interrupted:
        print('secondary-agent: interrupted; CPU sets and limits are restored '
              'and nothing is written', file=sys.stderr)
        return INTERRUPTED
    except (host_lock.AlreadyRunning, CharacterisationError, PinError,
            generators.GeneratorError, ImportError,
            ValueError) as exc:
        raise CommandError(str(exc)) from exc
    print(f'{request.output}: profiles of {len(found.uses)} classes. '
          f'"secondary-agent profiles list {request.output}" shows them.')
    return 0


def _find_generators() -> None:
    try:
        generators.find_program()
    except generators.GeneratorError as exc:
        raise CommandError(str(exc)) from None


def check_closed(status: Mapping[str, typing.Any], stale_after_s: float,
                 clock: typing.Callable[[], float] = time.time) -> None:
    """Check that schedulers admit no secondary to this host.

    They do while the last report of the agent is fresh and says so.

    :param status: the last status of the agent, empty if there is none
    :raises CharacterisationError: if they may admit one
    """
    written = status.get('time')
    if not status.get('admission') or not isinstance(written, int | float):
        return
    left = written + stale_after_s - clock()
    if left > 0:
        raise CharacterisationError(
            'admission of secondaries is open: close the host with '
            '"secondary-scheduler host disable", and stop the agent; its last '
            f'report counts for {left:.0f} s more')


class _Command:
    """A characterisation with its parts, made from the configuration."""

    def __init__(self, conf: cfg.ConfigOpts, store: typing.Any,
                 request: Request) -> None:
        hierarchy = cgroups.Hierarchy()
        options = conf.secondary_agent
        actuator = wiring.make_actuator(conf, hierarchy, store)
        self._request = request
        self._hierarchy = hierarchy
        self._stop = threading.Event()
        self._domains = Domains(
            libvirt_opener(options.libvirt_uri, read_only=True), store,
            options.libvirt_run_dir, proc=hierarchy.proc)
        self._meter = SpeedMeter(
            hierarchy.proc, DeviceMeter(
                load_sensors(conf, hierarchy).values()), request.units)
        self._runner = Characterisation(
            self._domains, CpuPins(wiring.make_dedicated_cpus(
                actuator, hierarchy, store)), actuator, self._meter,
            Timing(request.settle, request.seconds), self._stop)

    def run(self) -> WorkloadProfiles:
        """Measure; SIGINT, SIGTERM and SIGHUP end it.

        :raises CommandError: if the classes are not known
        """
        uuids = [one.partition('=')[0] for one in self._request.guests]
        if len(set(uuids)) < len(uuids):
            raise CommandError('each secondary may be named once')
        if self._request.pairs and len(uuids) < 2:
            raise CommandError('--pairs needs at least two secondaries')
        guests = self._runner.present_guests(uuids)
        if limited := [one.uuid for one in guests if one.limited]:
            raise CommandError(
                f'disks or links of {", ".join(limited)} have limits of an '
                'agent: run "secondary-agent release" first')
        self._runner.restore()
        classes = self._classes(guests)
        topology = self._read_topology()
        seats = plan.choose_seats(topology, usable_cpus(
            guests, topology.cpus, self._hierarchy.proc))
        runs = plan.plan_runs(uuids, seats, self._request.repeats,
                              self._request.pairs)
        progress = _Progress(runs, classes, self._request.seconds
                             + self._request.settle)
        with self._signals():
            results = self._runner.execute(runs, progress.note)
        return self._profiles(results, classes, (
            *seats.unknown, *self._meter.unknown))

    def _classes(self, guests: Sequence[Secondary]) -> dict[str, str]:
        """Return the class of each guest."""
        found = {}
        for guest, given in zip(guests, self._request.guests, strict=True):
            name = given.partition('=')[2] or class_name(
                {vocabulary.WORKLOAD_CLASS: guest.workload_class},
                guest.image, guest.flavor)
            if not name:
                raise CommandError(f'the class of {guest.uuid} is not known: '
                                   f'say {guest.uuid}=CLASS')
            found[guest.uuid] = name
        return found

    def _read_topology(self) -> Topology:
        with contextlib.closing(cgroups.Group(
                self._hierarchy.root('cpuset'))) as root:
            cpus = cgroups.effective_cpus(root)
        return cpu_topology.read_topology(cpus=cpus or None)

    @contextlib.contextmanager
    def _signals(self) -> typing.Iterator[None]:
        """Let signals end the runs."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, lambda *_: self._stop.set())
                  for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _profiles(self, results: Sequence[plan.Result],
                    classes: Mapping[str, str], unknown: tuple[str, ...]
                  ) -> WorkloadProfiles:
        """Return the profiles that the runs have shown.

        :raises CommandError: if they have shown no slow-down
        """
        slowdowns = plan.measured_slowdowns(results, classes)
        uses = plan.measured_uses(results, classes)
        unknown += tuple(
            f'{metric}: no sensor measures the use of it here'
            for metric in ResourceUse._fields if all(
                getattr(uses[name], metric) is None
                for name in classes.values()))
        names = tuple(uses)
        time_sharing = plan.slowdown_matrix('time_sharing', names, slowdowns,
                                            Place.SAME_CPU)
        if time_sharing is None:
            raise CommandError('no slow-down was measured: beside others the '
                               'speed of the secondaries was not known')
        return WorkloadProfiles(
            uses, time_sharing, plan.slowdown_matrix(
                'space_sharing', names, slowdowns, Place.SAME_CACHE),
            Measurement(
                read_cpu_model(self._hierarchy.proc), platform.release(),
                self._meter.metric, self._request.seconds, slowdowns,
                unknown))


class _Progress:
    """Prints an estimate of the total time first, and then each run."""

    def __init__(self, runs: Sequence[plan.Run], classes: Mapping[str, str],
                 seconds: float) -> None:
        self._classes = classes
        self._seconds = seconds
        self._left = self._all = len(runs)
        self._alone: dict[str, plan.Speed] = {}
        print(f'{self._all} runs of {seconds:g} s: '
              f'{self._minutes()} in all', file=sys.stderr)

    def _minutes(self) -> str:
        return f'about {self._left * self._seconds / 60:.1f} minutes'

    def note(self, run: plan.Run, speeds: Mapping[str, plan.Speed]) -> None:
        """Print a run that has ended, and the slow-downs in it."""
        self._left -= 1
        if run.place is None:
            self._alone.update(speeds)
            values = []
        else:
            values = [self._alone[uuid].slowdown_beside(speed, run.place)
                      for uuid, speed in speeds.items()]
        shown = ''.join(', slow-down ' + (
            'unknown' if value is None else f'{value:.2f}')
            for value in values)
        print(f'[{self._all - self._left}/{self._all}] '
              f'{run.describe(self._classes)}{shown}; {self._minutes()} left',
              file=sys.stderr, flush=True)
