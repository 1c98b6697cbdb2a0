# SPDX-License-Identifier: Apache-2.0

"""Mapping of VMs to hosts (Sotomayor 2010, section 5.1.1)."""

from collections.abc import Callable, Sequence
import dataclasses
import functools

import numpy as np

from secondary_scheduler.leases.scheduling import resource_units
from secondary_scheduler.leases.scheduling.lease import NodeSet, Terms
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.steps import compiled
from secondary_scheduler.leases.scheduling.table import (
    CapacityEntry,
    SlotTable,
)
from secondary_scheduler.leases.scheduling.types import NEVER, Bools, Ints

#: Returns some hosts, by index, in the order in which they are filled.  The
#: other arguments are, for all hosts: the number of leases, free capacity,
#: shape (resources, hosts), and seconds until the next change.
HostOrder = Callable[[Ints, Ints, Ints, Ints], Ints]


@dataclasses.dataclass(frozen=True)
class Placement:
    """VMs on each host, for each node set, and the time until they fit.

    ``slot`` is the capacity taken for the minimum time.
    """

    vms: tuple[Ints, ...]
    slot: CapacityEntry
    until: int


def total_entry(nodes: Sequence[NodeSet], vms: Sequence[Ints], start: int,
                end: int) -> CapacityEntry:
    """Return the capacity taken by placed VMs, without units."""
    hosts = np.flatnonzero(functools.reduce(np.add, vms))
    needs = np.array([one.need for one in nodes])
    return CapacityEntry(start, end, hosts,
                         needs.T @ np.array([one[hosts] for one in vms]))


def capacity_entry(site: Site, table: SlotTable, nodes: Sequence[NodeSet],
                   vms: Sequence[Ints], start: int, end: int
                   ) -> CapacityEntry:
    """Return the capacity taken by placed VMs, with units.

    It may exceed the free capacity.
    """
    whole = total_entry(nodes, vms, start, end)
    if not site.units:
        return whole
    before = table.least_free(start, end)[whole.hosts]
    left = before.copy()
    for index in _largest_first(nodes, table):
        for parts, columns in site.parts(nodes[index]):
            left[:, columns] -= resource_units.amounts_taken(
                left[:, columns], parts, vms[index][whole.hosts])
    return dataclasses.replace(whole, amounts=np.vstack((
        whole.amounts, (before - left)[:, len(site.resources):].T)))


def place_vms(site: Site, table: SlotTable, terms: Terms, start: int,
              duration: int, least: int, usable: Sequence[Bools | None],
              order: HostOrder, most: int = NEVER) -> Placement | None:
    """Place all VMs of a lease from ``start`` on; None if they do not fit.

    Each host is filled before the next (Sotomayor 2010, algorithm 1; see
    reference/errata).

    :param duration: seconds; ``order`` ignores changes after it
    :param least: seconds for which the VMs must fit
    :param usable: usable hosts of each node set (None: all)
    :param most: most VMs of the lease on one host
    """
    state: tuple[Ints, Ints, Ints] | None = None
    placed: dict[int, Ints] = {}
    taken: list[CapacityEntry] = []
    try:
        # The largest VMs fit on the fewest hosts, so they are placed first.
        for index in _largest_first(terms.nodes, table):
            one = terms.nodes[index]
            room = table.free_vms(one.need, start, start + least)
            if site.units:
                room = site.count_fitting(
                    one, room, table.least_free(start, start + least))
            mask = usable[index]
            if mask is not None:
                room = room * mask
            if most < NEVER:
                room = np.minimum(room, most - sum(placed.values()))
            if int(room.sum()) < one.number:
                return None
            if state is None:
                tenants, free, changes = table.state_at(start)
                state = (tenants, free[:len(site.resources)],
                         np.minimum(changes - start, duration))
            placed[index] = _fill(room, one.number,
                                  order(np.flatnonzero(room), *state))
            if len(terms.nodes) > 1:
                taken.append(capacity_entry(
                    site, table, (one,), (placed[index],), start,
                    start + least))
                table.take(taken[-1])
    finally:
        for one_taken in taken:
            table.give(one_taken)
    vms = tuple(placed[index] for index in range(len(terms.nodes)))
    whole = capacity_entry(site, table, terms.nodes, vms, start,
                           start + least)
    return Placement(vms, whole,
                     table.fits_until(whole.hosts, whole.amounts, start))


def place_unmoved(site: Site, table: SlotTable, terms: Terms, start: int,
                  least: int, vms: tuple[Ints, ...]) -> Placement | None:
    """Place all VMs of a lease on given hosts; None if they do not fit."""
    whole = capacity_entry(site, table, terms.nodes, vms, start,
                           start + least)
    until = table.fits_until(whole.hosts, whole.amounts, start)
    return Placement(vms, whole, until) if until >= start + least else None


def _largest_first(nodes: Sequence[NodeSet], table: SlotTable) -> list[int]:
    if len(nodes) == 1:
        return [0]
    most = np.maximum(table.capacity.max(axis=0), 1)[:len(nodes[0].need)]
    return sorted(range(len(nodes)), key=lambda index: -float(
        np.sum(np.array(nodes[index].need) / most)))


@compiled
def _fill(room: Ints, number: int, ranked: Ints) -> Ints:
    """Return the number of VMs on each host, filling hosts by rank."""
    vms = np.zeros_like(room)
    for host in ranked:
        vms[host] = min(room[host], number)
        number -= vms[host]
        if number == 0:
            break
    return vms
