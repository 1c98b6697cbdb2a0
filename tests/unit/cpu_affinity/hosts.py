# SPDX-License-Identifier: Apache-2.0

"""Hosts and guests of tests."""

from hypothesis import strategies

from secondary_scheduler.cpu_affinity import base
from secondary_scheduler.model.topology import (
    SharedCache,
    Topology,
    singletons,
)
from secondary_scheduler.simulation.affinity import thesis_host

ALL = tuple(thesis_host.CLASSES)
OPTIONS = base.AffinityOptions()
THESIS = base.AffinityOptions(resource_tie_break='thesis')


def one_socket(count):
    """Return a topology of single cores that share a cache."""
    cpus = frozenset(range(count))
    return Topology(singletons(cpus), (SharedCache(3, cpus),)[:count > 1],
                    (cpus,), (cpus,), (cpus,))


def guests(classes, usable, **values):
    """Return a guest of each class, named by its place."""
    return tuple(base.AffinityGuest(str(place), one, frozenset(usable),
                                    **values)
                 for place, one in enumerate(classes))


def view(classes, topology=thesis_host.TOPOLOGY, now_s=0.0, **values):
    """Return a host with a running guest of each class."""
    return base.AffinityView(now_s, topology,
                             guests(classes, topology.cpus), **values)


def chosen(decision):
    """Return the one CPU of each guest, in order of their numbers."""
    found = []
    for name in sorted(decision.sets, key=int):
        (cpus,) = decision.sets[name]
        (cpu,) = cpus
        found.append(cpu)
    return found


def split(cpus, sizes):
    """Return consecutive parts of CPUs; the last size repeats."""
    parts, rest = [], sorted(cpus)
    for place in range(len(rest)):
        size = sizes[min(place, len(sizes) - 1)]
        if rest:
            parts.append(frozenset(rest[:size]))
            rest = rest[size:]
    return tuple(parts)


@strategies.composite
def topologies(draw, most_cpus=256, caches=((), (3,), (2, 3))):
    """Draw a topology, by default of 1 to 256 CPUs, not always regular.

    :param caches: levels of shared caches to choose from; None is unknown
    """
    count = draw(strategies.integers(1, most_cpus))
    cpus = frozenset(range(count))
    # Siblings are neighbours, or half of the CPUs apart, as on real machines.
    order = list(range(count))
    if draw(strategies.booleans()):
        order = [cpu for low in range((count + 1) // 2)
                 for cpu in (low, low + (count + 1) // 2) if cpu < count]
    cores, at = [], 0
    threads = draw(strategies.lists(strategies.integers(1, 8), min_size=1,
                                    max_size=4))
    while at < count:
        size = threads[min(len(cores), len(threads) - 1)]
        cores.append(frozenset(order[at:at + size]))
        at += size

    def grouped():
        sizes = draw(strategies.lists(strategies.integers(1, len(cores)),
                                      min_size=1, max_size=4))
        return tuple(frozenset().union(*(cores[one] for one in part))
                     for part in split(range(len(cores)), sizes))

    levels = draw(strategies.sampled_from(caches))
    shared = None if levels is None else tuple(
        SharedCache(level, part) for level in levels
        for part in grouped() if len(part) > 1)
    return Topology(tuple(cores), shared, grouped(), grouped(),
                    draw(strategies.sampled_from([grouped(), (cpus,)])))


@strategies.composite
def views(draw, most_guests=16):
    """Draw a host with guests, some of unknown class, and primaries."""
    topology = draw(topologies(caches=((), (3,), (2, 3), None)))
    cpus = sorted(topology.cpus)
    some = strategies.sets(strategies.sampled_from(cpus), max_size=8)
    dedicated = frozenset(draw(some)) - {cpus[-1]}
    rest = sorted(topology.cpus - dedicated)
    present = []
    for number in range(draw(strategies.integers(0, most_guests))):
        usable = frozenset(draw(strategies.sets(
            strategies.sampled_from(rest), min_size=1, max_size=6))
            if draw(strategies.integers(0, 3)) == 0 else rest)
        present.append(base.AffinityGuest(
            str(number), draw(strategies.sampled_from(
                [*ALL, None, 'other'])), usable,
            draw(strategies.sampled_from([0.0, 2.4, 2.5, 40.0, 100.0])),
            draw(strategies.sampled_from([1, 1, 1, 2, 4]))))
    return base.AffinityView(
        draw(strategies.floats(0, 1e6)), topology, tuple(present),
        draw(strategies.sampled_from([0.0, 0.5, 1.0, 7.3, float('inf')])),
        {cpu: base.PrimaryUse(draw(strategies.floats(0, 1)),
                              draw(strategies.sampled_from([*ALL, None])))
         for cpu in sorted(draw(some))}), dedicated
