# SPDX-License-Identifier: Apache-2.0

"""Latest readings of all sensors, and the cost of reading them.

A resource that was not read lately is unknown, and policies on it fail safe.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import threading
import time
import types
import typing

from oslo_log import log as logging

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors.base import Reading, Sensor
from secondary_scheduler.model import units
from secondary_scheduler.policies import language

LOG = logging.getLogger(__name__)

#: Seconds over which reported use is averaged (Boettger 2012, eq. 4.2).
WINDOW_S = 5.0

#: A reading that is older than so many periods is unknown.
_PERIODS = 3.0

#: Number of reads over which the cost of a sensor is averaged.
_COST_READS = 20
#: A sensor that was over its budget is read in every period again when its
#: cost is below this part of the budget.
_RELIEVED = 0.8

#: No sensor can measure so many percent of a host, and no link or disk moves
#: so many MB/s.
_ABSURD = 1e9
_MISSING = 'none of [secondary_agent] sensors measures it'
_MISSING_PROBE = 'there is no such probe among [secondary_agent] probe'


class SensorCost:
    """CPU time of reading a sensor, compared with its budget.

    A sensor that exceeds its budget is read in every second period.  It is not
    read less often, because readings expire after three periods.
    """

    def __init__(self, sensor: Sensor) -> None:
        self._sensor = sensor
        self._reads: deque[float] = deque(maxlen=_COST_READS)
        self._pause = False
        self.over = False

    @property
    def percent(self) -> float:
        """Cost in percent of one CPU."""
        return self._full / (2 if self.over else 1)

    @property
    def _full(self) -> float:
        """Cost in percent of one CPU if it were read in each period."""
        if not self._reads:
            return 0.0
        return 100 * sum(self._reads) / len(self._reads) / self._sensor.period

    def pauses(self) -> bool:
        """Return, once a period, whether to skip this read."""
        self._pause = self.over and not self._pause
        return self._pause

    def note(self, seconds: float) -> bool:
        """Add the CPU time of one read; return whether ``over`` changed."""
        self._reads.append(seconds)
        before, budget = self.over, self._sensor.budget
        if len(self._reads) == _COST_READS:
            self.over = self._full > budget * (_RELIEVED if before else 1)
        return self.over != before


class Gauges:
    """Latest readings of all sensors; safe for threads.

    A sensor is read only while a policy is on one of its resources, which
    ``wanted`` returns.  ``coming`` returns, for some resources, the additional
    use that is expected of primaries, in percent of the host.  It is added to
    the total.
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
        self.costs = {name: SensorCost(one) for name, one in sensors.items()}

    @property
    def problems(self) -> Mapping[str, str]:
        """Reasons why sensors cannot be read, by name.

        Resources that no sensor measures are included by their names.
        """
        named = {*self.sensors, *self._wanted()}
        return {name: problem for name, problem
                in tuple(self._problems.items()) if name in named}

    def _note(self, name: str, problem: str) -> None:
        """Log a problem of a sensor, or its end, once."""
        if problem != self._problems.get(name, ''):
            LOG.warning('Sensor %(name)s: %(problem)s', {
                'name': name, 'problem': problem or 'can be read again'})
        if problem:
            self._problems[name] = problem
        else:
            self._problems.pop(name, None)

    def measure(self, name: str) -> None:
        """Read a sensor, if a policy needs it and it is not to be skipped."""
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
        """Return the present use of the whole host, None if unknown."""
        reading = self.latest(resource)
        return None if reading is None else reading.total

    def coming(self, resource: str) -> float:
        """Return the part of the total that is expected, but not used yet."""
        reading = self.latest(resource)
        return 0.0 if reading is None else reading.coming

    def latest(self, resource: str) -> Reading | None:
        """Return the last reading, None if it is missing or too old."""
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
        """Return the known capacities of links and disks, in MB/s."""
        with self._lock:
            readings = {resource: kept[-1][1]
                        for resource, kept in self._readings.items() if kept}
        return {resource: one.capacity / 1e6
                for resource, one in readings.items()
                if units.UNITS.get(resource) == 'MB/s' and one.capacity
                and 1 / _ABSURD < one.capacity / 1e6 < _ABSURD}

    def recent(self) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Return mean uses over the last ``WINDOW_S`` seconds.

        :returns: use by the primary, by resource, without signals of harm;
            and use by each secondary, by UUID and resource.
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
    """Return a reading without values that cannot be right."""
    def good(value: object) -> typing.TypeGuard[float]:
        return (type(value) in (int, float)
                and 0.0 <= typing.cast(float, value) < _ABSURD)

    total, why = reading.total, reading.why
    if total is not None and not good(total):
        total, why = None, f'{total:g} is not a possible value'
    return Reading(total, {
        uuid: value for uuid, value in reading.instances.items()
        if good(value)}, reading.capacity, why=why)
