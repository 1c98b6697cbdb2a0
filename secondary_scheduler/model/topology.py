# SPDX-License-Identifier: Apache-2.0

"""CPUs of a host, and the hardware that they share.

A topology is a value.  CPUs have the kernel's numbers.
"""

from collections.abc import Iterable
import dataclasses
import functools
import typing

Cpus = frozenset[int]
#: Disjoint sets whose union is all CPUs.
Partition = tuple[Cpus, ...]


class SharedCache(typing.NamedTuple):
    """Cache that some CPUs share; ``level`` 1 is the nearest to a core."""

    level: int
    cpus: Cpus


@dataclasses.dataclass(frozen=True)
class Topology:
    """CPUs of a host, and the hardware that they share.

    :param cores: SMT siblings: the CPUs of each physical core
    :param caches: caches that at least two CPUs share; None if they are not
        known
    :param dies: CPUs of each die
    :param packages: CPUs of each package (socket)
    :param nodes: CPUs of each NUMA node
    :param unknown: descriptions of facts that could not be read.  Each CPU
        is a core of its own if the cores are unknown; all CPUs share an
        unknown die, package or node
    :raises ValueError: if a partition does not have each CPU exactly once, if
        a cache has an unknown CPU, or if caches of one level overlap
    """

    cores: Partition
    caches: tuple[SharedCache, ...] | None
    dies: Partition
    packages: Partition
    nodes: Partition
    unknown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ('dies', 'packages', 'nodes', 'cores'):
            seen = [cpu for part in getattr(self, name) for cpu in part]
            if len(seen) != len(set(seen)) or set(seen) != self.cpus:
                raise ValueError(f'{name} must have each CPU exactly once')
            if not all(getattr(self, name)):
                raise ValueError(f'{name} must have no empty part')
        levels: dict[int, set[int]] = {}
        for cache in self.caches or ():
            known = levels.setdefault(cache.level, set())
            if not cache.cpus <= self.cpus or known & cache.cpus:
                raise ValueError(f'level {cache.level} caches must have known '
                                 'CPUs, each at most once')
            known |= cache.cpus

    @functools.cached_property
    def cpus(self) -> Cpus:
        """All CPUs."""
        return frozenset[int]().union(*self.cores)

    @functools.cached_property
    def cache_domains(self) -> Partition:
        """CPUs of each last-level cache, in order of their lowest CPU.

        The last level is the highest one that a CPU shares.  A CPU without a
        shared cache is a domain of its own.

        Where caches are not known, the CPUs of a package on the same NUMA node
        count as sharing one.  A guess of smaller domains would predict no harm
        where there is some, and keep guests on single CPUs.
        """
        if self.caches is None:
            return tuple(sorted((
                package & node for package in self.packages
                for node in self.nodes if package & node), key=min))
        found: list[Cpus] = []
        seen: set[int] = set()
        for cache in sorted(self.caches, key=lambda one: -one.level):
            rest = cache.cpus - seen
            if rest:
                found.append(rest)
                seen |= rest
        found.extend(frozenset({cpu}) for cpu in self.cpus - seen)
        return tuple(sorted(found, key=min))

    def restrict(self, cpus: Iterable[int]) -> 'Topology':
        """Return the topology of some of the CPUs."""
        some = frozenset(cpus)
        return Topology(
            _restrict(self.cores, some),
            None if self.caches is None else tuple(
                SharedCache(one.level, one.cpus & some)
                for one in self.caches if len(one.cpus & some) > 1),
            _restrict(self.dies, some), _restrict(self.packages, some),
            _restrict(self.nodes, some), self.unknown)

    def describe(self) -> str:
        """Return a description of one line."""
        parts = [f'{_count(self.cpus, "CPU")} on '
                 f'{_count(self.cores, "core")}']
        caches = self.caches or ()
        levels = sorted({one.level for one in caches})
        parts.extend(f'{sum(one.level == level for one in caches)} '
                     f'shared L{level}' for level in levels)
        parts.append(_count(self.dies, 'die'))
        parts.append(_count(self.packages, 'package'))
        parts.append(_count(self.nodes, 'NUMA node'))
        if self.unknown:
            parts.append('unknown: ' + '; '.join(self.unknown))
        return ', '.join(parts)


def _restrict(parts: Partition, cpus: Cpus) -> Partition:
    return tuple(part & cpus for part in parts if part & cpus)


def _count(parts: Iterable[object], name: str) -> str:
    number = len(list(parts))
    return f'{number} {name}{"s" * (number != 1)}'


def singletons(cpus: Iterable[int]) -> Partition:
    """Return a partition with each CPU on its own."""
    return tuple(frozenset({cpu}) for cpu in sorted(cpus))


def usable_cpus(topology: Topology, first: Cpus, dedicated: Cpus) -> Cpus:
    """Return the CPUs on which a secondary may run.

    :param first: its own set before anything was written
    :param dedicated: CPUs that primaries have for themselves
    :returns: CPUs of the topology; none if primaries have them all.  The
        secondary may then run nowhere, and takes the floor
    """
    return (first & topology.cpus) - dedicated
