# SPDX-License-Identifier: Apache-2.0

"""Kinds of CPUs and guests that a search need not tell apart.

On a large host most CPUs have the same guests as others in their cache.  One
of them stands for all.
"""

import bisect
from collections.abc import Collection, Iterator, Sequence
import dataclasses
import typing

from secondary_scheduler.cpu_affinity.assignment import CpuState
from secondary_scheduler.model.topology import Cpus

#: CPU of each vCPU of a guest.
Homes = tuple[int, ...]


class CpuKind(typing.NamedTuple):
    """State of a CPU and of its core; CPUs of a kind are interchangeable.

    :param used: whether its core has a guest
    :param needed: whether a guest could run nowhere without its core
    :param allowed: whether it may be in the pool
    """

    state: CpuState
    used: bool
    needed: bool
    allowed: bool


class GuestKind(typing.NamedTuple):
    """State of a guest; guests of a kind have the same steps.

    :param place: the kind of its CPU, or the CPUs of several vCPUs
    :param counts: whether its move is one of those that are limited
    """

    workload_class: str
    place: CpuKind | Homes
    usable: Cpus
    memory: Cpus | None
    counts: bool


class CpuGroups:
    """CPUs of a host, grouped by their kind."""

    def __init__(self) -> None:
        self._kinds: dict[int, CpuKind] = {}
        self._cpus: dict[CpuKind, list[int]] = {}

    def __iter__(self) -> Iterator[Sequence[int]]:
        """Return the CPUs of each kind, in ascending order."""
        return iter(self._cpus.values())

    def kind(self, cpu: int) -> CpuKind:
        """Return the kind of a CPU."""
        return self._kinds[cpu]

    def put(self, cpu: int, kind: CpuKind) -> None:
        """Set the kind of a CPU."""
        before = self._kinds.get(cpu)
        if before == kind:
            return
        if before is not None:
            self._cpus[before].remove(cpu)
            if not self._cpus[before]:
                del self._cpus[before]
        self._kinds[cpu] = kind
        bisect.insort(self._cpus.setdefault(kind, []), cpu)

    def representatives(self, usable: Cpus, own: Homes) -> list[int]:
        """Return a usable CPU of each kind that has one, in ascending order.

        :param own: CPUs of the guest that looks for another one.  They stand
            for a kind only if no other usable CPU is of it
        """
        found: list[int] = []
        for alike in self._cpus.values():
            last = None
            for cpu in alike:
                if cpu in usable:
                    last = cpu
                    if cpu not in own:
                        break
            if last is not None:
                found.append(last)
        return sorted(found)


@dataclasses.dataclass
class MoveLimit:
    """Guests that may move, and those that have moved.

    :param names: the guests that may move
    :param settled: guests of which at most ``most`` move
    """

    names: Collection[str]
    settled: Collection[str]
    most: int
    moved: set[str] = dataclasses.field(default_factory=set)

    def counts(self, name: str) -> bool:
        """Return whether a move of a guest is one of those that are limited.
        """
        return name in self.settled and name not in self.moved

    def allows(self, *names: str) -> bool:
        """Return whether guests may move together."""
        more = sum(map(self.counts, names))
        return not more or len(self.moved) + more <= self.most

    def note(self, names: Collection[str]) -> None:
        """Count the moves of guests."""
        self.moved.update(name for name in names if name in self.settled)
