# SPDX-License-Identifier: Apache-2.0

"""Cores of a host, and what they hold beside the use of primaries."""

from collections.abc import Iterable, Sequence
import dataclasses

from secondary_scheduler.cpu_affinity.base import AffinityGuest, AffinityView
from secondary_scheduler.model.topology import Cpus


@dataclasses.dataclass(frozen=True)
class PoolCores:
    """Cores that may be in the pool.

    :param cores: their CPUs, the cheapest for primaries first
    :param needed: those without which a guest could run nowhere
    :param count: how many of them make the pool
    :param need: CPUs that the pool must hold beside the use of primaries
    :param rooms: CPUs of each core beside the use of primaries
    """

    cores: tuple[Cpus, ...]
    needed: tuple[Cpus, ...]
    count: int
    need: float
    rooms: tuple[float, ...]


def needed_cores(running: Iterable[AffinityGuest], usable: Cpus,
            order: Iterable[Cpus]) -> list[Cpus]:
    """Return cores on each of which a guest depends that may not use all."""
    found: list[Cpus] = []
    for one in running:
        if one.usable != usable and not any(core & one.usable
                                            for core in found):
            found.append(next(core for core in order if core & one.usable))
    return found


def fixed_part(view: AffinityView) -> float:
    """Return the part of the use by primaries that does not float."""
    every = sum(one.cpus for one in view.primaries.values())
    floats = sum(one.cpus for one in view.floating)
    return max(0.0, 1 - floats / every) if every else 0.0


def cpu_rooms(view: AffinityView) -> dict[int, float]:
    """Return what of each CPU primaries leave that do not float."""
    part = fixed_part(view)
    return {cpu: max(0.0, 1 - view.primaries[cpu].cpus * part)
            if cpu in view.primaries else 1.0 for cpu in view.topology.cpus}


def fewest_cores(view: AffinityView, order: Sequence[Cpus], need: float
                 ) -> int:
    """Return how many of the cores hold a use beside that of primaries.

    Floating primaries run on the CPUs outside of the pool while there are
    enough.  The number is at least one, if there is any core.
    """
    room, floats = 0.0, sum(one.cpus for one in view.floating)
    rooms = cpu_rooms(view)
    outside = sum(rooms.values())
    for count, core in enumerate(order):
        if count and room - max(0.0, floats - outside) >= need - 1e-9:
            return count
        room += sum(rooms[cpu] for cpu in core)
        outside -= sum(rooms[cpu] for cpu in core)
    return len(order)
