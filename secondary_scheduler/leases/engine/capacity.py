# SPDX-License-Identifier: Apache-2.0

"""Capacity of hosts that leases can count on, estimated conservatively."""

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

#: Samples kept of a host, at most; beyond that every other one is dropped.
_SAMPLES = 128
_NOTHING: Amounts = (0, 0, 0, 0)


class _Samples:
    """Lendable amounts of one host, sampled evenly over a window."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Amounts]] = deque()
        self._apart = 0.0
        self.counted = _NOTHING

    def push(self, now: float, amounts: Amounts, window: float, risk: float
             ) -> None:
        """Add a sample, unless the last one is too recent."""
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


class LendableCapacity:
    """Amounts that each host can be counted on to lend.

    That is the ``risk`` quantile of the lendable amounts in the last
    ``window`` seconds.  An agent closes its host for some seconds whenever an
    instance arrives, so the present amount alone is no forecast.
    """

    def __init__(self, window: float, risk: float) -> None:
        self._window = window
        self._risk = risk
        self._seen: dict[str, _Samples] = {}
        self._since: float | None = None

    def add_samples(self, hosts: Mapping[str, LeaseHost], now: float) -> None:
        """Sample the given hosts; forget all others."""
        if self._since is None:
            self._since = now
        for name in [name for name in self._seen if name not in hosts]:
            del self._seen[name]
        for name, host in hosts.items():
            self._seen.setdefault(name, _Samples()).push(
                now, host.lendable, self._window, self._risk)

    def observed_s(self, now: float) -> float:
        """Return the seconds since the first sample."""
        return 0.0 if self._since is None else now - self._since

    def amounts_of(self, host: str) -> Amounts:
        """Return the amounts that a host can be counted on to lend."""
        seen = self._seen.get(host)
        return _NOTHING if seen is None else seen.counted


def sum_used(cloud_state: CloudState, ours: frozenset[str]
             ) -> dict[str, list[int]]:
    """Return the amounts that secondaries use, by host.

    :param ours: servers to leave out, since the schedule counts them.
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


def withheld_amounts(capacity: Ints, names: list[str],
                     lendable: LendableCapacity,
                     others: Mapping[str, list[int]], free: Ints) -> Ints:
    """Return the amounts, (hosts, resources), to withhold from leases.

    They never exceed ``free``, the amounts that no booking uses at any time:
    a smaller forecast cancels no booking.  Only the policies of a host
    preempt its instances.
    """
    wanted = np.array([
        [total - may + there for total, may, there in zip(
            row, lendable.amounts_of(name),
            others.get(name, (0,) * len(row)), strict=True)]
        for name, row in zip(names, capacity.tolist(), strict=True)],
        dtype=np.int64).reshape(capacity.shape)
    found: Ints = np.clip(wanted, 0, np.maximum(free, 0))
    return found
