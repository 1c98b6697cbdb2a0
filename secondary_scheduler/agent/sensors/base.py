"""Sensors of what is not CPU use: memory, links and disks; and their gauges.

The signals of interference have modules of their own (``interference``,
``probes``).

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
import functools
import threading
import time
import types
import typing

from oslo_config import cfg
from oslo_log import log as logging
import stevedore

from secondary_scheduler.agent import (
    cgroups,
    devices,
    kernel_files,
    processes,
)
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors.cpu import Rates, Reading
from secondary_scheduler.model import units
from secondary_scheduler.policies import language

LOG = logging.getLogger(__name__)

NAMESPACE = 'secondary_scheduler.sensors'

#: Over how many seconds what is reported is averaged (Boettger Eq. 4.2).
WINDOW_S = 5.0

#: A reading is unknown when it is older than so many periods.
_PERIODS = 3.0

#: So many reads say what a sensor costs.
_COUNTED = 20
#: One that was over its budget is read as often as before when its cost has
#: come down to so much of it.
_RELIEVED = 0.8

#: The agent writes its status to a file each second, so of all figures of the
#: host's memory some change; after so many reads without one they are stuck.
_MEMORY_READS = 60

_SECTOR = 512
#: So many percent of a host no sensor can have measured; nor are so many
#: MB/s what a link or a disk can do.
_ABSURD = 1e9
_MISSING = 'none of [secondary_agent] sensors measures it'
_MISSING_PROBE = 'there is no such probe among [secondary_agent] probe'


class Sensor(abc.ABC):
    """Measures the use of some resources of the policy language.

    ``resources`` are their names, ``period`` the seconds between two reads,
    and ``budget`` what these may cost, in percent of one CPU.
    """

    resources: tuple[str, ...]
    period: float = 1.0
    budget: float = 0.5

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

    def spent(self) -> float:
        """Return the CPU time that reading has taken so far, in seconds.

        It is asked for before and after, on the thread that reads.
        """
        return time.thread_time()


Built = typing.TypeVar('Built', bound=Sensor)
Readings = Mapping[str, Reading]


def damaged_is_unknown(
        read: Callable[[Built, Sequence[Secondary]], Readings]
        ) -> Callable[[Built, Sequence[Secondary]], Readings]:
    """Have a sensor's ``read`` take a damaged file for an unknown use.

    What the file says, and what was expected, is the reason.
    """
    @functools.wraps(read)
    def wrapped(sensor: Built, guests: Sequence[Secondary]) -> Readings:
        try:
            return read(sensor, guests)
        except kernel_files.Damaged as exc:
            return dict.fromkeys(sensor.resources,
                                 Reading(None, why=str(exc)))
    return wrapped


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
        self._figures, self._same = '', 0

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Return the use of memory."""
        total, available = self._measured()
        held = {guest.uuid: 100.0 * size / total for guest in guests
                if (size := processes.resident(
                    guest.pid, self.hierarchy.proc)) is not None}
        return {'mem': Reading(100.0 * (total - available) / total, held)}

    def _measured(self) -> tuple[int, int]:
        """Return the host's memory and what is available, in bytes."""
        sizes = self._host.read()
        figures = self._host.figures
        self._same = self._same + 1 if figures == self._figures else 0
        self._figures = figures
        if self._same >= _MEMORY_READS:
            raise OSError('no figure of /proc/meminfo changes')
        return sizes


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

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Return the use of the link."""
        options = self.conf.secondary_agent
        ports = devices.ports(self._root, options.network_interfaces)
        # A port whose speed is not known adds nothing to the link: what goes
        # through it is then taken for a larger part than it is.
        link = options.link_speed or sum(
            devices.speed(self._root, port) or 0 for port in ports)
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
                     is not None}, link * 1e6 / 8)
        return found

    def _of_guest(self, guest: Secondary, name: str, link: float
                  ) -> float | None:
        try:
            return self._percent((guest.uuid, guest.pid, guest.started),
                                 guest.taps, name, link)
        except (OSError, ValueError):
            return None     # it has just ended, or its owner took it a port

    def _percent(self, whose: object, ports: Iterable[str], name: str,
                 link: float) -> float | None:
        rates = [self._rates.per_second(
            (whose, port, name), kernel_files.read_count(
                f'{self._root}/{port}/statistics/{name}')) for port in ports]
        known = [rate for rate in rates if rate is not None]
        if not rates or len(known) < len(rates):
            return None
        return 100.0 * sum(known) * 8 / 1e6 / link


class DiskSensor(Sensor):
    """``disk_in`` (written) and ``disk_out`` (read): all disks together.

    In bytes, or in operations where these are more of what the disks can do.
    Of each secondary it is the bytes that its QEMU has moved from and to the
    disks; operations are not known of it, and count as the primary's.
    """

    resources = ('disk_in', 'disk_out')

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy,
                 root: str = '/sys/block') -> None:
        super().__init__(conf, hierarchy)
        self._root = root
        self._rates = Rates()

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Return the use of the disks."""
        options = self.conf.secondary_agent
        disks = devices.disks(self._root, options.disks)
        moved = [_moved(disk) for disk in disks]
        guests_moved = {
            (guest.uuid, guest.pid, guest.started): own for guest in guests
            if (own := self._moved_by(guest)) is not None}
        found = {}
        with self._rates:
            for place, (resource, speed, iops) in enumerate((
                    ('disk_out', options.disk_read_speed,
                     options.disk_read_iops),
                    ('disk_in', options.disk_write_speed,
                     options.disk_write_iops))):
                if not speed:
                    continue
                host = [[self._rates.per_second((disk.name, which), one[which])
                         for disk, one in zip(disks, moved, strict=True)]
                        for which in (place, place + 2)]
                parts = [100.0 * sum(known) / full
                         for rates, full in zip(host, (speed << 20, iops),
                                                strict=True)
                         if full and len(known := [
                             rate for rate in rates if rate is not None])
                         == len(rates) > 0]
                found[resource] = Reading(
                    max(parts) if len(parts) == 1 + bool(iops) else None,
                    {str(key[0]): 100.0 * rate / (speed << 20)
                     for key, one in guests_moved.items()
                     if (rate := self._rates.per_second(
                         (key, place), one[place])) is not None},
                    speed << 20)
        return found

    def _moved_by(self, guest: Secondary) -> tuple[int, int] | None:
        try:
            read, written = kernel_files.read_table(
                f'{self.hierarchy.proc}/{guest.pid}/io', 'read_bytes',
                'write_bytes')
        except (OSError, ValueError):
            return None     # it has just ended
        return read, written


def _moved(disk: devices.BlockDevice) -> tuple[int, ...]:
    """Return the bytes read and written so far, and how often that was.

    :raises OSError: if a file that counts them is not there.
    :raises Damaged: if it does not.
    """
    counted = [[sum(column) for column in zip(*(
        _counters(path) for path in paths), strict=True)]
        for paths in disk.counters]
    return tuple(map(max, *counted)) if len(counted) > 1 else tuple(
        counted[0])


def _counters(path: str) -> tuple[int, int, int, int]:
    fields = kernel_files.read_counts(path, 7)
    return (fields[2] * _SECTOR, fields[6] * _SECTOR, fields[0], fields[4])


class Cost:
    """What it costs to read a sensor, and whether that is within its budget.

    One that takes more than its budget is read half as often.  No less: what
    was read is unknown after three periods, and that must not come of it.
    """

    def __init__(self, sensor: Sensor) -> None:
        self._sensor = sensor
        self._reads: deque[float] = deque(maxlen=_COUNTED)
        self._pause = False
        self.over = False

    @property
    def percent(self) -> float:
        """What it takes of one CPU, in percent."""
        return self._full / (2 if self.over else 1)

    @property
    def _full(self) -> float:
        """The same if it were read in each period."""
        if not self._reads:
            return 0.0
        return 100 * sum(self._reads) / len(self._reads) / self._sensor.period

    def pauses(self) -> bool:
        """Tell, once a period, whether not to read this time."""
        self._pause = self.over and not self._pause
        return self._pause

    def note(self, seconds: float) -> bool:
        """Take in the CPU time of one read; tell whether ``over`` changed."""
        self._reads.append(seconds)
        before, budget = self.over, self._sensor.budget
        if len(self._reads) == _COUNTED:
            self.over = self._full > budget * (_RELIEVED if before else 1)
        return self.over != before


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
        self.costs = {name: Cost(one) for name, one in sensors.items()}

    @property
    def problems(self) -> Mapping[str, str]:
        """Why sensors cannot be read, by name.

        And why a resource is not known that no sensor measures.
        """
        named = {*self.sensors, *self._wanted()}
        return {name: problem for name, problem
                in tuple(self._problems.items()) if name in named}

    def _note(self, name: str, problem: str) -> None:
        """Say in the log, once, what is wrong with a sensor, or no more."""
        if problem != self._problems.get(name, ''):
            LOG.warning('Sensor %(name)s: %(problem)s', {
                'name': name, 'problem': problem or 'can be read again'})
        if problem:
            self._problems[name] = problem
        else:
            self._problems.pop(name, None)

    def measure(self, name: str) -> None:
        """Read a sensor, if anybody wants to know and it is its turn."""
        sensor, cost = self.sensors[name], self.costs[name]
        wanted = set(self._wanted()).intersection(sensor.resources)
        if wanted and cost.pauses():
            return
        found: Mapping[str, Reading] = {}
        problem = ''
        if wanted:
            begun = sensor.spent()
            try:
                found = {resource: _sane(reading) for resource, reading
                         in sensor.read(self._guests()).items()}
                problem = '; '.join(
                    f'{resource}: {found[resource].why}'
                    for resource in sorted(wanted & found.keys())
                    if found[resource].why)
                if unknown := sorted(wanted - found.keys()):
                    problem = (f'{", ".join(unknown)} cannot be measured: '
                               'see the options of [secondary_agent]')
            except Exception as exc:
                problem = f'{exc}' or type(exc).__name__
            if cost.note(sensor.spent() - begun):
                LOG.warning(
                    'Sensor %(name)s is read %(often)s: its budget is '
                    '%(budget).2f%% of one CPU', {
                        'name': name, 'budget': sensor.budget,
                        'often': 'half as often, since it costs too much'
                        if cost.over else 'in every period again'})
        self._note(name, problem)
        now = self._clock()
        with self._lock:
            for resource in sensor.resources:
                kept = self._readings[resource]
                if resource in wanted and resource in found:
                    kept.append((now, self._expected(
                        resource, found[resource])))
                while kept and kept[0][0] < now - WINDOW_S:
                    kept.popleft()

    def _expected(self, resource: str, reading: Reading) -> Reading:
        if resource not in self._coming or reading.total is None:
            return reading
        coming = self._coming[resource]()
        return dataclasses.replace(reading, total=reading.total + coming,
                                   coming=coming)

    def total(self, resource: str) -> float | None:
        """Return the whole host's use now, None if it is not known."""
        reading = self.latest(resource)
        return None if reading is None else reading.total

    def coming(self, resource: str) -> float:
        """Return what of the total is not used yet."""
        reading = self.latest(resource)
        return 0.0 if reading is None else reading.coming

    def latest(self, resource: str) -> Reading | None:
        """Return the last reading, None if it is too old to tell of now."""
        if resource not in self._periods:
            self._note(resource, _MISSING_PROBE if language.kind_of(
                resource) == language.PROBE else _MISSING)
        fresh = self._clock() - _PERIODS * self._periods.get(resource, 0.0)
        with self._lock:
            kept = self._readings.get(resource)
            if not kept or kept[-1][0] < fresh:
                return None
            return kept[-1][1]

    def capacities(self) -> dict[str, float]:
        """Return what links and disks can do, in MB/s, as far as known."""
        with self._lock:
            readings = {resource: kept[-1][1]
                        for resource, kept in self._readings.items() if kept}
        return {resource: one.capacity / 1e6
                for resource, one in readings.items()
                if units.UNITS.get(resource) == 'MB/s' and one.capacity
                and 1 / _ABSURD < one.capacity / 1e6 < _ABSURD}

    def recent(self) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Return mean uses of the last seconds, of what is known.

        That of everything but the secondaries, by resource; and that of each
        secondary, by UUID and resource.  Signals are nobody's use.
        """
        primary: dict[str, float] = {}
        instances: dict[str, dict[str, float]] = defaultdict(dict)
        since = self._clock() - WINDOW_S
        with self._lock:
            readings = {resource: [one for at, one in kept if at >= since]
                        for resource, kept in self._readings.items()}
        for resource, those in readings.items():
            if (not language.is_signal(resource) and (mean := _mean(
                    one.primary for one in those)) is not None):
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
    def good(value: object) -> typing.TypeGuard[float]:
        return type(value) in (int, float) and 0.0 <= value < _ABSURD

    total, why = reading.total, reading.why
    if total is not None and not good(total):
        total, why = None, f'{total:g} is nothing that it can be'
    return Reading(total, {
        uuid: value for uuid, value in reading.instances.items()
        if good(value)}, reading.capacity, why=why)


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
