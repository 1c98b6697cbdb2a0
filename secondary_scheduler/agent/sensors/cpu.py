# SPDX-License-Identifier: Apache-2.0

"""CPU meter: use of the host by the primary and by secondaries.

It converts counters to percent of the host (Boettger 2012, section 5.4).
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import time

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.host_capacity import HostCpu
from secondary_scheduler.agent.sensors.base import CounterRates, Reading

#: A process first sampled within this many seconds of its start counts as new.
#: Its entry is kept for as long.
_STARTS_S = 60.0

#: CPU time in seconds after which the host's counter must have moved, even in
#: a kernel that counts by ticks.
_UNSEEN_S = 0.1


@dataclasses.dataclass(frozen=True)
class Arrival:
    """Use by a secondary that has just started, before it was known.

    ``age`` is the time in seconds since its process started.  ``percent`` is
    its mean use in that time, in percent of the host.
    """

    age: float
    percent: float


@dataclasses.dataclass(frozen=True)
class CpuUsage(Reading):
    """Use of the CPU; ``capacity`` is the number of CPUs of the host.

    ``arrivals`` are the secondaries that have just started.
    """

    capacity: float = 1.0
    arrivals: Sequence[Arrival] = ()


class CpuMeter:
    """Measures CPU use since its last sample, by the counters of the host.

    Control and the local trigger each have their own meter, because an
    interval begins at the last sample.

    The host's counter must move while secondaries or this process
    (``own_time`` in seconds) run.  If it does not, it is stuck and the use is
    unknown.  The counter of an idle guest may stand still.  If it is stuck
    instead, the use by the guest counts as the primary's, which is safe.
    """

    def __init__(self, host: HostCpu,
                 guest_ns: Callable[[Secondary], int | None],
                 guest_age: Callable[[Secondary], float | None],
                 clock: Callable[[], float] = time.monotonic, *,
                 own_time: Callable[[], float] = time.process_time) -> None:
        self._host = host
        self._guest_ns = guest_ns
        self._guest_age = guest_age
        self._clock = clock
        self._rates = CounterRates(clock)
        #: Time of the last sample of each process of the last minute.
        self._met: dict[object, float] = {}
        self._own_time = own_time
        #: Time of the last sample, and the CPU time of this process then.
        self._sampled = clock(), own_time()
        #: CPU seconds spent since the host's counter has moved.
        self._unseen = 0.0

    def sample(self, guests: Iterable[Secondary]) -> CpuUsage:
        """Return the use since the last sample; unknown the first time."""
        with self._rates:
            return self._sample(guests, self._host.capacity())

    def _sample(self, guests: Iterable[Secondary],
                capacity: float) -> CpuUsage:
        total = self._percent('host', self._host.usage_ns(), capacity)
        instances, arrivals = {}, []
        for guest in guests:
            # The counter of another process starts from zero.
            key = guest.uuid, guest.pid, guest.started
            counter = self._guest_ns(guest)
            rate = self._percent(key, counter, capacity)
            if rate is not None:
                instances[guest.uuid] = rate
            if counter is not None and self._is_new(key):
                age = self._guest_age(guest)
                if age and age < _STARTS_S:
                    arrivals.append(
                        Arrival(age, counter / 1e7 / age / capacity))
        if self._is_stuck(total, sum(instances.values()) * capacity / 100):
            total = None
        return CpuUsage(total, instances, capacity, arrivals)

    def _is_stuck(self, total: float | None, guests: float) -> bool:
        """Return whether the host's counter should have moved, and has not.

        :param guests: use by secondaries since the last sample, in CPUs.
        """
        (before, own_before), self._sampled = self._sampled, (
            self._clock(), self._own_time())
        now, own = self._sampled
        self._unseen += (own - own_before) + guests * (now - before)
        if total != 0.0:    # it has moved, or is unknown
            self._unseen = 0.0
        return self._unseen > _UNSEEN_S

    def _is_new(self, key: object) -> bool:
        """Record the sample of a process; return whether it is the first."""
        now, known = self._clock(), key in self._met
        self._met[key] = now
        if not known:   # rare, so this is a good time to drop old entries
            self._met = {one: at for one, at in self._met.items()
                         if now - at < _STARTS_S}
        return not known

    def _percent(self, key: object, counter: int | None, capacity: float
                 ) -> float | None:
        if counter is None:
            return None
        rate = self._rates.per_second(key, counter)
        return None if rate is None else rate / 1e7 / capacity
