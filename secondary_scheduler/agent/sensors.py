"""From counters to percent of the host (Boettger 3.1, 3.11)."""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import time

from secondary_scheduler.agent.cgroups import HostCpu
from secondary_scheduler.agent.domains import Secondary


@dataclasses.dataclass(frozen=True)
class Usage:
    """CPU use over one interval, in percent of the host's capacity.

    ``total`` is the whole host, ``instances`` each secondary by UUID; what is
    missing there was not measured.  ``capacity`` is in CPUs.
    """

    total: float | None
    capacity: float
    instances: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def primary(self) -> float | None:
        """Use of everything but the secondaries, None while unknown."""
        if self.total is None:
            return None
        return max(0.0, self.total - sum(self.instances.values()))


class Meter:
    """Differences of the host's and the secondaries' counters.

    Each consumer has its own, since an interval begins where its last one
    ended.
    """

    def __init__(self, host: HostCpu,
                 guest_ns: Callable[[Secondary], int | None],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._guest_ns = guest_ns
        self._clock = clock
        self._last: dict[object, tuple[float, int]] = {}

    def sample(self, guests: Iterable[Secondary]) -> Usage:
        """Return the use since the last sample; unknown the first time."""
        capacity = self._host.capacity()
        last, self._last = self._last, {}
        total = self._rate(last, 'host', self._host.usage_ns(), capacity)
        instances = {}
        for guest in guests:
            # A process that is another one counts from zero.
            rate = self._rate(last, (guest.uuid, guest.pid, guest.started),
                              self._guest_ns(guest), capacity)
            if rate is not None:
                instances[guest.uuid] = rate
        return Usage(total, capacity, instances)

    def _rate(self, last: Mapping[object, tuple[float, int]], key: object,
              counter: int | None, capacity: float) -> float | None:
        if counter is None:
            return None
        now = self._clock()
        self._last[key] = now, counter
        if key not in last:
            return None
        then, before = last[key]
        if now <= then or counter < before:
            return None
        return (counter - before) / 1e7 / (now - then) / capacity
