"""From counters to percent of the host (Boettger 3.1, 3.11)."""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import time

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.host_capacity import HostCpu
from secondary_scheduler.agent.sensors.base import CounterRates, Reading

#: Who is older when it is measured for the first time has not just started, in
#: seconds; and who is younger is remembered for so long.
_STARTS_S = 60.0

#: While so much CPU time is spent the host's counter cannot stand still, even
#: of a kernel that counts by ticks, in seconds.
_UNSEEN_S = 0.1


@dataclasses.dataclass(frozen=True)
class Arrival:
    """What a secondary that has just started used before it was known.

    ``age`` is the time since its process started in seconds, ``percent`` its
    mean use of the host's capacity in that time.
    """

    age: float
    percent: float


@dataclasses.dataclass(frozen=True)
class CpuUsage(Reading):
    """CPU use; ``capacity`` is the host's in CPUs.

    ``arrivals`` are the secondaries that have just started.
    """

    capacity: float = 1.0
    arrivals: Sequence[Arrival] = ()


class CpuMeter:
    """Differences of the host's and the secondaries' counters.

    Each consumer has its own, since an interval begins where its last one
    ended.

    A host's counter that stands still is no idle host while secondaries, or
    this process itself (``own_time`` in seconds), run on it: it is stuck, and
    the use unknown.  One guest's that stands still may be an idle guest's;
    what it uses is then taken for the primary's, which is the safe side.
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
        #: When each process of the last minute was measured last.
        self._met: dict[object, float] = {}
        self._own_time = own_time
        #: When the last sample was, and what this process had used by then.
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
            # A process that is another one counts from zero.
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
        """Tell whether the host's counter must have moved, and has not.

        ``guests`` is what secondaries have used in the meantime, in CPUs.
        """
        (before, own_before), self._sampled = self._sampled, (
            self._clock(), self._own_time())
        now, own = self._sampled
        self._unseen += (own - own_before) + guests * (now - before)
        if total != 0.0:    # it has moved, or is unknown anyway
            self._unseen = 0.0
        return self._unseen > _UNSEEN_S

    def _is_new(self, key: object) -> bool:
        """Note that a process was measured; tell whether it never was."""
        now, known = self._clock(), key in self._met
        self._met[key] = now
        if not known:   # they are few, and a good time to forget the others
            self._met = {one: at for one, at in self._met.items()
                         if now - at < _STARTS_S}
        return not known

    def _percent(self, key: object, counter: int | None, capacity: float
                 ) -> float | None:
        if counter is None:
            return None
        rate = self._rates.per_second(key, counter)
        return None if rate is None else rate / 1e7 / capacity
