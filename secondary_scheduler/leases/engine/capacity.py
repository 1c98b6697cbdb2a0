"""What hosts may lend to leases: what they could lend lately, conservatively.
"""

from collections import deque
from collections.abc import Mapping
import math

import numpy as np

from secondary_scheduler.leases.engine.values import (
    OFF,
    RESOURCES,
    Amounts,
    CloudState,
    LeaseHost,
)
from secondary_scheduler.leases.scheduling.types import Ints

#: Samples of a host that are kept at most; then every other one is.
_SAMPLES = 128
_NOTHING: Amounts = (0, 0, 0, 0)


class _Samples:
    """What one host could lend at some times, evenly spread over a window."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Amounts]] = deque()
        self._apart = 0.0
        self.counted = _NOTHING

    def push(self, now: float, amounts: Amounts, window: float, risk: float
             ) -> None:
        """Take in what there is now, if that is to be a sample."""
        seen = self._seen
        if seen and now < seen[-1][0] + self._apart:
            return
        seen.append((now, amounts))
        while seen[0][0] < now - window:
            seen.popleft()
        if len(seen) > _SAMPLES:
            seen = self._seen = deque(list(seen)[::2])
            self._apart = (now - seen[0][0]) / len(seen)
        rank = math.floor(risk * (len(seen) - 1))
        self.counted = tuple(               # type: ignore[assignment]
            sorted(one[index] for _, one in seen)[rank]
            for index in range(len(RESOURCES)))


class Lendable:
    """What each host can be counted on to lend.

    That is the most of which it could lend as much or more for all but a
    share ``risk`` of the last ``window`` seconds.  An agent closes its host
    for some seconds whenever somebody comes, which says nothing of the time
    ahead.
    """

    def __init__(self, window: float, risk: float) -> None:
        self._window = window
        self._risk = risk
        self._seen: dict[str, _Samples] = {}

    def note(self, hosts: Mapping[str, LeaseHost], now: float) -> None:
        """Take in what hosts may lend now; who is not shown lends nothing."""
        for name in [name for name in self._seen if name not in hosts]:
            del self._seen[name]
        for name, host in hosts.items():
            self._seen.setdefault(name, _Samples()).push(
                now, host.lendable, self._window, self._risk)

    def of(self, host: str) -> Amounts:
        """Return what a host can be counted on to lend."""
        seen = self._seen.get(host)
        return _NOTHING if seen is None else seen.counted


def taken_by_others(cloud_state: CloudState, ours: frozenset[str]
                    ) -> dict[str, list[int]]:
    """Return what secondaries that are no lease's hold of each host.

    ``ours`` are the servers that the schedule counts already.
    """
    found: dict[str, list[int]] = {}
    for server in cloud_state.servers.values():
        if (server.host is None or server.uuid in ours
                or server.status in OFF and not server.busy):
            continue
        held = found.setdefault(server.host, [0] * len(RESOURCES))
        for index, amount in enumerate(server.need):
            held[index] += amount
    return found


def withheld(capacity: Ints, names: list[str], lendable: Lendable,
             others: Mapping[str, list[int]], free: Ints) -> Ints:
    """Return how much of each host, (hosts, resources), is kept from leases.

    Never more than is ``free`` of them for ever: what was promised is kept,
    and who has to go because a policy is violated is said where policies are
    watched over.
    """
    wanted = np.array([
        [total - may + there for total, may, there in zip(
            row, lendable.of(name), others.get(name, (0,) * len(row)),
            strict=True)]
        for name, row in zip(names, capacity.tolist(), strict=True)],
        dtype=np.int64).reshape(capacity.shape)
    found: Ints = np.clip(wanted, 0, np.maximum(free, 0))
    return found
