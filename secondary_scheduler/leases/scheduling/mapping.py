"""On which hosts the VMs of a lease go (Haizea 4.2 and 4.3)."""

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
from secondary_scheduler.leases.scheduling.types import Bools, Ints

#: From the indices of some hosts, and of all hosts leases on each, what is
#: free there, shape (resources, hosts), and for how long nothing changes, to
#: the order of these.
Order = Callable[[Ints, Ints, Ints, Ints], Ints]


@dataclasses.dataclass(frozen=True)
class Placement:
    """For each node set the VMs on each host, and until when they fit.

    ``slot`` is what they hold for as long as they have to.
    """

    vms: tuple[Ints, ...]
    slot: CapacityEntry
    until: int


def slot(nodes: Sequence[NodeSet], vms: Sequence[Ints], start: int, end: int
         ) -> CapacityEntry:
    """Return what VMs that are so placed hold of each resource as a whole."""
    hosts = np.flatnonzero(functools.reduce(np.add, vms))
    needs = np.array([one.need for one in nodes])
    return CapacityEntry(start, end, hosts,
                         needs.T @ np.array([one[hosts] for one in vms]))


def held(site: Site, table: SlotTable, nodes: Sequence[NodeSet],
         vms: Sequence[Ints], start: int, end: int) -> CapacityEntry:
    """Return what VMs that are so placed hold, and of which instances.

    They may have too little room there.
    """
    whole = slot(nodes, vms, start, end)
    if not site.instances:
        return whole
    before = table.least(start, end)[whole.hosts]
    left = before.copy()
    for index in _largest_first(nodes, table):
        for parts, columns in site.parts(nodes[index]):
            left[:, columns] -= resource_units.takes(
                left[:, columns], parts, vms[index][whole.hosts])
    return dataclasses.replace(whole, amounts=np.vstack((
        whole.amounts, (before - left)[:, len(site.resources):].T)))


def place(site: Site, table: SlotTable, terms: Terms, start: int,
          duration: int, least: int, usable: Sequence[Bools | None],
          order: Order) -> Placement | None:
    """Place all VMs of a lease from ``start`` on; None if they do not fit.

    They fit for at least ``least`` seconds, and the hosts are preferred on
    which nothing changes for ``duration``; ``usable`` tells, for each node
    set, which hosts it may use (None: all).  Each host is filled before the
    next (Algorithm 1, with what DEF-2 and DEF-3 put right).
    """
    state: tuple[Ints, Ints, Ints] | None = None
    placed: dict[int, Ints] = {}
    taken: list[CapacityEntry] = []
    try:
        # The largest have the least choice, so they choose first.
        for index in _largest_first(terms.nodes, table):
            one = terms.nodes[index]
            room = table.room(one.need, start, start + least)
            if site.instances:
                room = site.fitting(one, room,
                                    table.least(start, start + least))
            mask = usable[index]
            if mask is not None:
                room = room * mask
            if int(room.sum()) < one.number:
                return None
            if state is None:
                tenants, free, changes = table.at(start)
                state = (tenants, free[:len(site.resources)],
                         np.minimum(changes - start, duration))
            placed[index] = _fill(room, one.number,
                                  order(np.flatnonzero(room), *state))
            if len(terms.nodes) > 1:
                taken.append(held(site, table, (one,), (placed[index],),
                                  start, start + least))
                table.take(taken[-1])
    finally:
        for one_taken in taken:
            table.give(one_taken)
    vms = tuple(placed[index] for index in range(len(terms.nodes)))
    whole = held(site, table, terms.nodes, vms, start, start + least)
    return Placement(vms, whole,
                     table.until(whole.hosts, whole.amounts, start))


def booking(site: Site, table: SlotTable, terms: Terms, start: int, least: int,
            vms: tuple[Ints, ...]) -> Placement | None:
    """Place all VMs of a lease where they are; None if they do not fit."""
    whole = held(site, table, terms.nodes, vms, start, start + least)
    until = table.until(whole.hosts, whole.amounts, start)
    return Placement(vms, whole, until) if until >= start + least else None


def _largest_first(nodes: Sequence[NodeSet], table: SlotTable) -> list[int]:
    if len(nodes) == 1:
        return [0]
    most = np.maximum(table.capacity.max(axis=0), 1)[:len(nodes[0].need)]
    return sorted(range(len(nodes)), key=lambda index: -float(
        np.sum(np.array(nodes[index].need) / most)))


@compiled
def _fill(room: Ints, number: int, ranked: Ints) -> Ints:
    """Return how many VMs go on each host, the first in rank being filled."""
    vms = np.zeros_like(room)
    for host in ranked:
        vms[host] = min(room[host], number)
        number -= vms[host]
        if number == 0:
            break
    return vms
