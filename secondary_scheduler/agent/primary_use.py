# SPDX-License-Identifier: Apache-2.0

"""Recent and expected use of a resource by the primary, for admission."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
import math
import threading
import time

from secondary_scheduler.agent.forecasts import Forecast
from secondary_scheduler.agent.sensors.cpu import Arrival

#: Seconds over which use is averaged.  It is no longer than the shortest wait
#: of a trigger, so that the calm before a burst is not averaged with it.
RECENT_S = 3.0


class RecentPrimaryUse:
    """Recent use of a resource by the primary, in percent of the host.

    One sample of a busy host is noise: decisions on it would keep too many
    secondaries at one time and too few at the next.  So ``recent`` is a mean
    over ``RECENT_S``, by which secondaries are preempted.  ``forecast`` is
    predicted from all such means within the window of the forecast, and
    decides on admission.

    A secondary that has just started is unknown until the next listing of
    domains, and until then its use counts as the primary's.  It is subtracted
    afterwards: otherwise each start would close the host for a minute.
    """

    def __init__(self, forecast: Forecast,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._predict = forecast
        self._clock = clock
        self._samples: deque[tuple[float, float]] = deque()
        self._forecast: float | None = None
        self._lock = threading.Lock()

    def push(self, primary: float | None,
             arrivals: Iterable[Arrival] = ()) -> None:
        """Add a sample.

        :param primary: use by the primary in percent of the host, None if it
            is unknown.
        :param arrivals: secondaries that are new since the last sample.
        """
        now = self._clock()
        with self._lock:
            if primary is not None:
                self._samples.append((now, primary))
            for one in arrivals:
                self._samples = deque(
                    _without(self._samples, now - one.age, one.percent))
            window = self._predict.window
            _forget(self._samples, now - window - RECENT_S)
            self._forecast = self._predict([
                mean for at, mean in _means(self._samples)
                if at >= now - window])

    @property
    def recent(self) -> float | None:
        """Mean use in the last ``RECENT_S`` seconds, None if unknown."""
        with self._lock:
            since = self._clock() - RECENT_S
            values = [value for at, value in self._samples if at >= since]
        return sum(values) / len(values) if values else None

    @property
    def forecast(self) -> float | None:
        """Expected use by the primary, None if it is unknown."""
        return self._forecast


def _without(samples: Iterable[tuple[float, float]], since: float,
             percent: float) -> Iterator[tuple[float, float]]:
    """Subtract a use since a time from samples.

    Each sample is a mean since the sample before it.  Nothing is subtracted
    from the first, because the beginning of its interval is unknown.
    """
    before = math.inf
    for at, value in samples:
        if at > max(before, since):
            share = (at - max(before, since)) / (at - before)
            value = max(0.0, value - percent * share)
        yield at, value
        before = at


def _means(samples: Iterable[tuple[float, float]]
           ) -> Iterator[tuple[float, float]]:
    """Yield, with its time, the mean of the seconds before each sample."""
    recent: deque[tuple[float, float]] = deque()
    for at, value in samples:
        recent.append((at, value))
        _forget(recent, at - RECENT_S)
        yield at, sum(one for _, one in recent) / len(recent)


def _forget(seen: deque[tuple[float, float]], before: float) -> None:
    while seen and seen[0][0] < before:
        seen.popleft()
