# SPDX-License-Identifier: Apache-2.0

"""Base class of sensors, their readings, and the drivers that are loaded.

Drivers are stevedore entry points in ``secondary_scheduler.sensors``.  Each is
constructed with the configuration and the control groups of the host.  It is
read on a thread of its own, so that a sensor that hangs delays nothing else.
The built-in ones read files of /proc, /sys and the control groups, a few for
each secondary, and cost well below a millisecond.
"""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import functools
import time
import typing

from oslo_config import cfg
import stevedore

from secondary_scheduler.agent import cgroups, kernel_files
from secondary_scheduler.agent.domains import Secondary

NAMESPACE = 'secondary_scheduler.sensors'


@dataclasses.dataclass(frozen=True)
class Reading:
    """Use of a resource over one interval, in percent of the host.

    ``total`` is the use of the whole host, ``instances`` that of each
    secondary by UUID.  A value that is None or missing was not measured.
    ``why`` is the reason, if it lasts longer than one reading.  ``capacity``
    is the amount that 100 % stands for: bytes a second of a link or of disks.
    ``coming`` is the part of the total that is not used yet, but may be at
    any moment.
    """

    total: float | None
    instances: Mapping[str, float] = dataclasses.field(default_factory=dict)
    capacity: float | None = None
    why: str = dataclasses.field(default='', kw_only=True)
    coming: float = dataclasses.field(default=0.0, kw_only=True)

    @property
    def primary(self) -> float | None:
        """Use of everything but the secondaries, None while unknown."""
        if self.total is None:
            return None
        return max(0.0, self.total - sum(self.instances.values()))


class CounterRates:
    """Rates of counters between two rounds.

    A round is a ``with`` block.  Counters that are not read in a round are
    forgotten.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[object, tuple[float, int]] = {}
        self._now: dict[object, tuple[float, int]] = {}

    def __enter__(self) -> None:
        self._now = {}

    def __exit__(self, *exc: object) -> None:
        self._last = self._now

    def per_second(self, key: object, counter: int) -> float | None:
        """Return the rate of a counter, None if it is not known.

        It is unknown the first time, and after the counter went backwards.
        """
        now = self._clock()
        self._now[key] = now, counter
        if key not in self._last:
            return None
        then, before = self._last[key]
        if now <= then or counter < before:
            return None
        return (counter - before) / (now - then)


class Sensor(abc.ABC):
    """Measures the use of some resources of the policy language.

    ``resources`` are their names, ``period`` the seconds between two reads,
    and ``budget`` the CPU time that reading may cost, in percent of one CPU.
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
        """Measure the use of each of ``resources``.

        An exception makes all of them unknown for this period.

        :param guests: the secondaries of the host.
        :returns: readings in percent of the host by resource.  A resource
            that is left out is unknown.
        """

    def spent(self) -> float:
        """Return the CPU time that reading has taken so far, in seconds.

        It is called before and after ``read``, on the same thread.
        """
        return time.thread_time()


Built = typing.TypeVar('Built', bound=Sensor)
Readings = Mapping[str, Reading]


def damaged_is_unknown(
        read: Callable[[Built, Sequence[Secondary]], Readings]
        ) -> Callable[[Built, Sequence[Secondary]], Readings]:
    """Decorate ``read``: a damaged file makes all resources unknown.

    The reason names the file, its content and the expected content.
    """
    @functools.wraps(read)
    def wrapped(sensor: Built, guests: Sequence[Secondary]) -> Readings:
        try:
            return read(sensor, guests)
        except kernel_files.Damaged as exc:
            return dict.fromkeys(sensor.resources,
                                 Reading(None, why=str(exc)))
    return wrapped


def load_sensors(conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
                 ) -> dict[str, Sensor]:
    """Load the sensors that the option ``sensors`` names.

    :returns: the sensors by name.
    :raises ValueError: if there is no such sensor, or if it cannot be loaded.
    """
    return dict(_load_each(conf, hierarchy))


def _load_each(conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
               ) -> Iterator[tuple[str, Sensor]]:
    for name in dict.fromkeys(conf.secondary_agent.sensors):
        try:
            driver: Sensor = stevedore.DriverManager(
                NAMESPACE, name, invoke_on_load=True,
                invoke_args=(conf, hierarchy)).driver
            yield name, driver
        except Exception as exc:
            raise ValueError(
                f'[secondary_agent] sensors = {name}: there is no such '
                f'sensor among the entry points {NAMESPACE}, or it cannot be '
                f'loaded: {exc}') from exc
