# SPDX-License-Identifier: Apache-2.0

"""Free amounts of hosts, with an index of the first host with room.

A demand of zero fits wherever the other demands fit, also where its dimension
is overdrawn.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from secondary_scheduler.model.configuration import (
    Amounts,
    Configuration,
    Member,
)


class FreeRoom:
    """Free amounts of each host, which may be negative.

    Amounts on a host without a known capacity are ignored.

    The index is a binary tree of the largest free amounts.  It is brought up
    to date when a host is looked for, and so costs nothing otherwise.

    :param capacity: capacity of each host, in the order of the search
    :param closed: hosts that ``find_first`` never returns
    """

    def __init__(self, capacity: Mapping[str, Amounts],
                 closed: frozenset[str] = frozenset()) -> None:
        self.free = {host: list(amounts)
                     for host, amounts in capacity.items()}
        self.closed = closed
        self._hosts = [host for host in capacity if host not in closed]
        self._leaf = {host: number
                      for number, host in enumerate(self._hosts)}
        self._size = 1 << max(len(self._hosts) - 1, 0).bit_length()
        self._best: list[list[int]] = []
        self._stale: set[str] = set()
        self._ordered: dict[frozenset[str], list[str]] = {}

    @classmethod
    def of(cls, configuration: Configuration,
           members: Iterable[Member] | None = None) -> 'FreeRoom':
        """Return the room that is left by members, by default by all."""
        room = cls(configuration.capacity, configuration.closed)
        for member in (configuration.members.values() if members is None
                       else members):
            if member.held is not None:
                room.take(str(member.host), member.held)
        return room

    def take(self, host: str, amounts: Amounts) -> None:
        """Subtract amounts from the free ones of a host."""
        self._add(host, amounts, -1)

    def give(self, host: str, amounts: Amounts) -> None:
        """Add amounts to the free ones of a host."""
        self._add(host, amounts, 1)

    def _add(self, host: str, amounts: Amounts, sign: int) -> None:
        free = self.free.get(host)
        if free is not None:
            for number, amount in enumerate(amounts):
                free[number] += sign * amount
            self._stale.add(host)

    def fits(self, host: str, need: Amounts) -> bool:
        """Return whether a host has room for a need."""
        free = self.free.get(host)
        if free is None:
            return False
        for amount, most in zip(need, free, strict=True):
            if amount > most and amount > 0:
                return False
        return True

    def find_first(self, need: Amounts,
                   accepts: Callable[[str], bool] | None = None,
                   within: frozenset[str] | None = None) -> str | None:
        """Return the first open host with room, None without one.

        :param accepts: tells whether a host with room may be returned
        :param within: the only hosts that may be returned; None for any
        """
        if within is not None:
            return next((host for host in self._in_order(within)
                         if self.fits(host, need)
                         and (accepts is None or accepts(host))), None)
        self._refresh()
        wanted = [(best, amount) for best, amount
                  in zip(self._best, need, strict=False) if amount > 0]
        nodes = [1]
        while nodes:
            node = nodes.pop()
            for best, amount in wanted:
                if best[node] < amount:
                    break
            else:
                if node < self._size:
                    nodes += (2 * node + 1, 2 * node)
                elif node - self._size < len(self._hosts):
                    host = self._hosts[node - self._size]
                    if accepts is None or accepts(host):
                        return host
        return None

    def _in_order(self, hosts: frozenset[str]) -> list[str]:
        """Return open hosts in the order of the search."""
        if hosts not in self._ordered:
            self._ordered[hosts] = sorted(
                self._leaf.keys() & hosts, key=self._leaf.__getitem__)
        return self._ordered[hosts]

    def _refresh(self) -> None:
        """Bring the index up to date."""
        if not self._best or len(self._stale) * 8 > len(self._hosts):
            columns: Sequence[Sequence[int]] = list(
                zip(*(self.free[host] for host in self._hosts), strict=True))
            self._best = [self._tree(column) for column in columns]
        else:
            for host in self._stale & self._leaf.keys():
                node = self._leaf[host] + self._size
                for best, amount in zip(self._best, self.free[host],
                                        strict=True):
                    _set_leaf(best, node, amount)
        self._stale.clear()

    def _tree(self, amounts: Sequence[int]) -> list[int]:
        low = min(amounts) - 1
        best = [low] * self._size + list(amounts)
        best += [low] * (2 * self._size - len(best))
        for node in range(self._size - 1, 0, -1):
            best[node] = max(best[2 * node], best[2 * node + 1])
        return best


def _set_leaf(best: list[int], node: int, amount: int) -> None:
    """Change a leaf of a tree of maxima, and the nodes above it."""
    best[node] = amount
    node //= 2
    while node:
        largest = max(best[2 * node], best[2 * node + 1])
        if best[node] == largest:
            return
        best[node] = largest
        node //= 2
