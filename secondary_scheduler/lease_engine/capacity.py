"""What hosts may lend to leases: what they could lend lately, conservatively.
"""

from collections import deque
from collections.abc import Mapping
import math

import numpy as np

from secondary_scheduler.lease_engine.values import (
    OFF,
    RESOURCES,
    Amounts,
    Host,
    Sight,
)
from secondary_scheduler.leases.types import Ints


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
        self._seen: dict[str, deque[tuple[float, Amounts]]] = {}

    def note(self, hosts: Mapping[str, Host], now: float) -> None:
        """Take in what hosts may lend now; who is not shown lends nothing."""
        for name in [name for name in self._seen if name not in hosts]:
            del self._seen[name]
        for name, host in hosts.items():
            seen = self._seen.setdefault(name, deque())
            seen.append((now, host.lendable))
            while seen[0][0] < now - self._window:
                seen.popleft()

    def of(self, host: str) -> Amounts:
        """Return what a host can be counted on to lend."""
        seen = self._seen.get(host)
        if not seen:
            return (0,) * len(RESOURCES)    # type: ignore[return-value]
        rank = math.floor(self._risk * (len(seen) - 1))
        return tuple(                       # type: ignore[return-value]
            sorted(amounts[index] for _, amounts in seen)[rank]
            for index in range(len(RESOURCES)))


def taken_by_others(sight: Sight, ours: frozenset[str]
                    ) -> dict[str, list[int]]:
    """Return what secondaries that are no lease's hold of each host.

    ``ours`` are the servers that the schedule counts already.
    """
    found: dict[str, list[int]] = {}
    for server in sight.servers.values():
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
