"""Sensors of what is not CPU: memory, links and disks.

Drivers are stevedore entry points in ``secondary_scheduler.sensors``; they
are constructed with the configuration and the control groups of the host.
Each is read on a thread of its own, so that one which hangs holds up nothing:
what it has not said lately is unknown, and policies on it fail safe.  The
built-in ones read files of /proc, /sys and the control groups, a few for each
secondary, and cost well below a millisecond.
"""

import abc
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import math
import os
import threading
import time
import types
import typing

from oslo_config import cfg
from oslo_log import log as logging
import stevedore

from secondary_scheduler.agent import cgroups
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors import Rates, Reading

LOG = logging.getLogger(__name__)

NAMESPACE = 'secondary_scheduler.sensors'

#: Over how many seconds what is reported is averaged (Boettger Eq. 4.2).
WINDOW_S = 5.0

#: A reading is unknown when it is older than so many periods.
_PERIODS = 3.0

_SECTOR = 512


class Sensor(abc.ABC):
    """Measures the use of some resources of the policy language.

    ``resources`` are their names, ``period`` the seconds between two reads.
    """

    resources: typing.ClassVar[tuple[str, ...]]
    period: typing.ClassVar[float] = 1.0

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
                 ) -> None:
        self.conf = conf
        self.hierarchy = hierarchy

    @abc.abstractmethod
    def read(self, guests: Sequence[Secondary]) -> Mapping[str, Reading]:
        """Return what each of ``resources`` is used now.

        In percent of the host; what is left out or None is unknown.  It may
        raise, and then all are.
        """


class Memory(Sensor):
    """``mem``: memory that is not available, and what each QEMU holds of it.

    Of a host that is a part of the machine (a container) it is what its
    control group is charged with, less the pages of files that can go.
    """

    resources = ('mem',)

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
                 ) -> None:
        super().__init__(conf, hierarchy)
        self._host = cgroups.HostMemory(hierarchy)

    def read(self, guests: Sequence[Secondary]) -> Mapping[str, Reading]:
        """Return the use of memory."""
        total, available = self._host.read()
        page = os.sysconf('SC_PAGE_SIZE')
        held = {}
        for guest in guests:
            try:
                with open(f'{self.hierarchy.proc}/{guest.pid}/statm') as file:
                    held[guest.uuid] = (
                        100.0 * int(file.read().split()[1]) * page / total)
            except OSError:
                continue    # it has just ended
        return {'mem': Reading(100.0 * (total - available) / total, held)}


class Network(Sensor):
    """``net_in`` and ``net_out``: the host's link, all its ports together.

    Of each secondary it is what goes through its taps: what the host sends to
    a tap, the guest receives.
    """

    resources = ('net_in', 'net_out')

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy,
                 root: str = '/sys/class/net') -> None:
        super().__init__(conf, hierarchy)
        self._root = root
        self._rates = Rates()

    def read(self, guests: Sequence[Secondary]) -> Mapping[str, Reading]:
        """Return the use of the link."""
        ports = self.conf.secondary_agent.network_interfaces or [
            name for name in sorted(os.listdir(self._root))
            if os.path.exists(f'{self._root}/{name}/device')]
        link = self.conf.secondary_agent.link_speed or sum(
            map(self._speed, ports))
        if link <= 0:
            raise OSError('the speed of the link is not known: set '
                          '[secondary_agent] link_speed')
        found = {}
        with self._rates:
            for resource, host_file, guest_file in (
                    ('net_in', 'rx_bytes', 'tx_bytes'),
                    ('net_out', 'tx_bytes', 'rx_bytes')):
                found[resource] = Reading(
                    self._percent('host', ports, host_file, link),
                    {guest.uuid: rate for guest in guests
                     if (rate := self._of_guest(guest, guest_file, link))
                     is not None})
        return found

    def _speed(self, port: str) -> int:
        """Return the speed of a port in Mbit/s, 0 if it does not say."""
        try:
            return max(0, int(self._file(port, 'speed')))
        except (OSError, ValueError):
            return 0    # it is down, or a virtual one

    def _of_guest(self, guest: Secondary, name: str, link: float
                  ) -> float | None:
        try:
            return self._percent((guest.uuid, guest.pid, guest.started),
                                 guest.taps, name, link)
        except OSError:
            return None     # it has just ended, or its owner took it a port

    def _percent(self, whose: object, ports: Iterable[str], name: str,
                 link: float) -> float | None:
        rates = [self._rates.per_second((whose, port, name), int(self._file(
            port, f'statistics/{name}'))) for port in ports]
        known = [rate for rate in rates if rate is not None]
        if not rates or len(known) < len(rates):
            return None
        return 100.0 * sum(known) * 8 / 1e6 / link

    def _file(self, port: str, name: str) -> str:
        with open(f'{self._root}/{port}/{name}') as file:
            return file.read()


class Disk(Sensor):
    """``disk_in`` (written) and ``disk_out`` (read): all disks together.

    Of each secondary it is what its QEMU has moved from and to the disks.
    """

    resources = ('disk_in', 'disk_out')

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy,
                 root: str = '/sys/block') -> None:
        super().__init__(conf, hierarchy)
        self._root = root
        self._rates = Rates()

    def read(self, guests: Sequence[Secondary]) -> Mapping[str, Reading]:
        """Return the use of the disks."""
        options = self.conf.secondary_agent
        disks = options.disks or [
            name for name in sorted(os.listdir(self._root))
            if os.path.exists(f'{self._root}/{name}/device')]
        moved = [self._moved(disk) for disk in disks]
        guests_moved = {
            (guest.uuid, guest.pid, guest.started): found for guest in guests
            if (found := self._moved_by(guest)) is not None}
        found = {}
        with self._rates:
            for place, (resource, speed) in enumerate((
                    ('disk_out', options.disk_read_speed),
                    ('disk_in', options.disk_write_speed))):
                if not speed:
                    continue
                host = [self._rates.per_second((disk, place), one[place])
                        for disk, one in zip(disks, moved, strict=True)]
                known = [rate for rate in host if rate is not None]
                found[resource] = Reading(
                    100.0 * sum(known) / (speed << 20)
                    if host and len(known) == len(host) else None,
                    {str(key[0]): 100.0 * rate / (speed << 20)
                     for key, one in guests_moved.items()
                     if (rate := self._rates.per_second(
                         (key, place), one[place])) is not None})
        return found

    def _moved(self, disk: str) -> tuple[int, int]:
        """Return the bytes read from and written to a disk so far."""
        with open(f'{self._root}/{disk}/stat') as file:
            fields = file.read().split()
        return int(fields[2]) * _SECTOR, int(fields[6]) * _SECTOR

    def _moved_by(self, guest: Secondary) -> tuple[int, int] | None:
        try:
            with open(f'{self.hierarchy.proc}/{guest.pid}/io') as file:
                values = dict(line.split(': ') for line in file)
            return int(values['read_bytes']), int(values['write_bytes'])
        except (OSError, ValueError, KeyError):
            return None     # it has just ended


class Gauges:
    """The latest readings of all sensors; safe for threads.

    A sensor is read only while a policy is on one of its resources.
    ``coming`` returns, for some resources, what primaries are about to use
    beside what they do, in percent of the host: it counts as used.
    """

    def __init__(self, sensors: Mapping[str, Sensor],
                 wanted: Callable[[], Iterable[str]],
                 guests: Callable[[], Sequence[Secondary]],
                 clock: Callable[[], float] = time.monotonic,
                 coming: Mapping[str, Callable[[], float]]
                 = types.MappingProxyType({})) -> None:
        self.sensors = sensors
        self._coming = coming
        self._wanted = wanted
        self._guests = guests
        self._clock = clock
        self._lock = threading.Lock()
        self._readings: dict[str, deque[tuple[float, Reading]]] = (
            defaultdict(deque))
        self._periods = {resource: sensor.period for sensor
                         in sensors.values() for resource in sensor.resources}
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> Mapping[str, str]:
        """Why sensors cannot be read, by name."""
        return dict(self._problems)

    def measure(self, name: str) -> None:
        """Read a sensor, if anybody wants to know."""
        sensor = self.sensors[name]
        wanted = set(self._wanted()).intersection(sensor.resources)
        found: Mapping[str, Reading] = {}
        problem = ''
        if wanted:
            try:
                found = sensor.read(self._guests())
                if unknown := sorted(wanted - found.keys()):
                    problem = (f'{", ".join(unknown)} cannot be measured: '
                               'see the options of [secondary_agent]')
            except Exception as exc:
                problem = f'{exc}' or type(exc).__name__
        if problem != self._problems.get(name, ''):
            LOG.warning('Sensor %(name)s: %(problem)s', {
                'name': name, 'problem': problem or 'can be read again'})
        if problem:
            self._problems[name] = problem
        else:
            self._problems.pop(name, None)
        now = self._clock()
        with self._lock:
            for resource in sensor.resources:
                kept = self._readings[resource]
                if resource in wanted and resource in found:
                    kept.append((now, self._expected(
                        resource, _sane(found[resource]))))
                while kept and kept[0][0] < now - WINDOW_S:
                    kept.popleft()

    def _expected(self, resource: str, reading: Reading) -> Reading:
        coming = self._coming.get(resource)
        if coming is None or reading.total is None:
            return reading
        return dataclasses.replace(reading, total=reading.total + coming())

    def total(self, resource: str) -> float | None:
        """Return the whole host's use now, None if it is not known."""
        fresh = self._clock() - _PERIODS * self._periods.get(resource, 0.0)
        with self._lock:
            kept = self._readings.get(resource)
            if not kept or kept[-1][0] < fresh:
                return None
            return kept[-1][1].total

    def recent(self) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Return mean uses of the last seconds, of what is known.

        That of everything but the secondaries, by resource; and that of each
        secondary, by UUID and resource.
        """
        primary: dict[str, float] = {}
        instances: dict[str, dict[str, float]] = defaultdict(dict)
        since = self._clock() - WINDOW_S
        with self._lock:
            readings = {resource: [one for at, one in kept if at >= since]
                        for resource, kept in self._readings.items()}
        for resource, those in readings.items():
            if (mean := _mean(one.primary for one in those)) is not None:
                primary[resource] = mean
            for uuid in {uuid for one in those for uuid in one.instances}:
                instances[uuid][resource] = _mean(
                    one.instances.get(uuid) for one in those) or 0.0
        return primary, instances


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sane(reading: Reading) -> Reading:
    """Return a reading without what no sensor can have measured."""
    def good(value: float | None) -> typing.TypeGuard[float]:
        return value is not None and math.isfinite(value) and value >= 0.0

    return Reading(
        reading.total if good(reading.total) else None,
        {uuid: value for uuid, value in reading.instances.items()
         if good(value)})


def load(conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
         ) -> dict[str, Sensor]:
    """Return the sensors that the configuration names.

    :raises ValueError: if one of them is not there.
    """
    return dict(_load(conf, hierarchy))


def _load(conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
          ) -> Iterator[tuple[str, Sensor]]:
    for name in dict.fromkeys(conf.secondary_agent.sensors):
        try:
            yield name, stevedore.DriverManager(
                NAMESPACE, name, invoke_on_load=True,
                invoke_args=(conf, hierarchy)).driver
        except Exception as exc:
            raise ValueError(
                f'[secondary_agent] sensors = {name}: there is no such '
                f'sensor among the entry points {NAMESPACE}, or it cannot be '
                f'loaded: {exc}') from exc
