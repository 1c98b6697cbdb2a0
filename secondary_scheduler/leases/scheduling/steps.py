"""The slot table's loops over hosts and steps, compiled.

A host's row is a number of *steps*: from ``edges[k, host]`` to the next edge
``tenants[k, host]`` leases are there and ``free[k, host]`` is left of each
resource.  ``lengths[host]`` steps are in use, of which the last never ends.
"""

from collections.abc import Callable
import typing

import numba
import numpy as np

from secondary_scheduler.leases.scheduling.types import NEVER, Ints

Function = typing.TypeVar('Function', bound=Callable[..., typing.Any])


def compiled(function: Function) -> Function:
    """Compile a function, and keep the result on disk where that can be."""
    try:
        return typing.cast(Function, numba.njit(function, cache=True))
    except RuntimeError:    # there is no place to keep it
        return typing.cast(Function, numba.njit(function))


@compiled
def _insert(edges: Ints, tenants: Ints, free: Ints, lengths: Ints, host: int,
            time: int) -> int:
    """Return the step that begins at a time, having made it begin there."""
    length = int(lengths[host])
    step = length
    while step > 0 and edges[step - 1, host] > time:
        step -= 1
    if step > 0 and edges[step - 1, host] == time:
        return step - 1
    for later in range(length, step, -1):
        edges[later, host] = edges[later - 1, host]
        tenants[later, host] = tenants[later - 1, host]
        free[later, host] = free[later - 1, host]
    edges[step, host] = time
    if step > 0:
        tenants[step, host] = tenants[step - 1, host]
        free[step, host] = free[step - 1, host]
    lengths[host] = length + 1
    return step


@compiled
def _remove(edges: Ints, tenants: Ints, free: Ints, lengths: Ints, host: int,
            first: int, last: int) -> None:
    """Remove the steps from ``first`` to before ``last``."""
    gone = last - first
    for later in range(last, lengths[host]):
        edges[later - gone, host] = edges[later, host]
        tenants[later - gone, host] = tenants[later, host]
        free[later - gone, host] = free[later, host]
    lengths[host] -= gone


@compiled
def forget(edges: Ints, tenants: Ints, free: Ints, lengths: Ints, host: int,
           now: int) -> None:
    """Remove the steps that are past."""
    past = 0
    while past + 1 < lengths[host] and edges[past + 1, host] <= now:
        past += 1
    if past:
        _remove(edges, tenants, free, lengths, host, 0, past)


@compiled
def fitting(edges: Ints, tenants: Ints, free: Ints, lengths: Ints,
            hosts: Ints, now: int) -> bool:
    """Tell whether each row has room for two steps more."""
    for host in hosts:
        if lengths[host] + 2 > edges.shape[0]:
            forget(edges, tenants, free, lengths, host, now)
            if lengths[host] + 2 > edges.shape[0]:
                return False
    return True


@compiled
def change(edges: Ints, tenants: Ints, free: Ints, lengths: Ints,
           hosts: Ints, amounts: Ints, start: int, end: int, sign: int,
           leases: int, now: int) -> None:
    """Take amounts, shape (resources, hosts), from hosts in [start, end)."""
    for index in range(len(hosts)):
        host = hosts[index]
        forget(edges, tenants, free, lengths, host, now)
        first = _insert(edges, tenants, free, lengths, host, start)
        last = lengths[host]
        if end < NEVER:
            last = _insert(edges, tenants, free, lengths, host, end)
        for step in range(first, last):
            tenants[step, host] += sign * leases
            for resource in range(free.shape[2]):
                free[step, host, resource] -= sign * amounts[resource, index]
        # Two steps between which nothing changes are one.
        for step in (last, first):
            if 0 < step < lengths[host] and (
                    tenants[step, host] == tenants[step - 1, host]):
                same = True
                for resource in range(free.shape[2]):
                    if (free[step, host, resource]
                            != free[step - 1, host, resource]):
                        same = False
                if same:
                    _remove(edges, tenants, free, lengths, host, step,
                            step + 1)


@compiled
def _at(edges: Ints, lengths: Ints, host: int, time: int) -> int:
    """Return the step in which a time is."""
    step = 0
    while step + 1 < lengths[host] and edges[step + 1, host] <= time:
        step += 1
    return step


@compiled
def _vms(free: Ints, host: int, step: int, need: Ints) -> int:
    """Return how many VMs fit in a step."""
    most = NEVER
    for resource in range(len(need)):
        if need[resource] > 0:
            left = free[step, host, resource]
            if left < need[resource]:
                return 0    # most often so, and quicker than to divide
            most = min(most, left // need[resource])
    return most


@compiled
def room(edges: Ints, free: Ints, lengths: Ints, need: Ints, start: int,
         end: int, found: Ints) -> None:
    """Find how many VMs fit on each host for all of [start, end)."""
    for host in range(len(lengths)):
        step = _at(edges, lengths, host, start)
        least = _vms(free, host, step, need)
        step += 1
        while step < lengths[host] and edges[step, host] < end and least > 0:
            least = min(least, _vms(free, host, step, need))
            step += 1
        found[host] = least


@compiled
def places(edges: Ints, free: Ints, lengths: Ints, need: Ints, time: int
           ) -> Ints:
    """Return until when each place for a VM at a time stands."""
    total = 0
    for host in range(len(lengths)):
        total += _vms(free, host, _at(edges, lengths, host, time), need)
    found = np.empty(total, dtype=np.int64)
    count = 0
    for host in range(len(lengths)):
        step = _at(edges, lengths, host, time)
        stand = _vms(free, host, step, need)
        while stand > 0:
            step += 1
            more, until = 0, NEVER
            if step < lengths[host]:
                more, until = _vms(free, host, step, need), edges[step, host]
            while stand > more:
                found[count] = until
                count += 1
                stand -= 1
    return found


@compiled
def until(edges: Ints, free: Ints, lengths: Ints, hosts: Ints, amounts: Ints,
          start: int) -> int:
    """Return until when all hosts hold amounts, shape (resources, hosts).

    Who takes nothing of a resource may be where it is overdrawn.
    """
    latest = NEVER
    for index in range(len(hosts)):
        host = hosts[index]
        step = _at(edges, lengths, host, start)
        while step < lengths[host] and edges[step, host] < latest:
            for resource in range(free.shape[2]):
                if 0 < amounts[resource, index] > free[step, host, resource]:
                    latest = min(latest, edges[step, host])
            step += 1
    return max(latest, start)


@compiled
def least(edges: Ints, free: Ints, lengths: Ints, start: int, end: int,
          found: Ints) -> None:
    """Find the least that hosts have left in [start, end)."""
    for host in range(len(lengths)):
        step = _at(edges, lengths, host, start)
        found[host] = free[step, host]
        step += 1
        while step < lengths[host] and edges[step, host] < end:
            for resource in range(free.shape[2]):
                found[host, resource] = min(found[host, resource],
                                            free[step, host, resource])
            step += 1


@compiled
def at(edges: Ints, tenants: Ints, free: Ints, lengths: Ints, time: int,
       here: Ints, left: Ints, changes: Ints) -> None:
    """Find leases, what is free, (resources, hosts), and the next change."""
    for host in range(len(lengths)):
        step = _at(edges, lengths, host, time)
        here[host] = tenants[step, host]
        for resource in range(free.shape[2]):
            left[resource, host] = free[step, host, resource]
        changes[host] = (edges[step + 1, host] if step + 1 < lengths[host]
                         else NEVER)


@compiled
def stretches(edges: Ints, free: Ints, lengths: Ints, need: Ints,
              duration: int, ready: Ints, until: int
              ) -> tuple[Ints, Ints, Ints]:
    """Return when places stand: first and last time to begin, and how many.

    The VMs that fit on a host at once are a pile of places; those that came
    last go first, and places that come and go together are one entry.  Left
    out are places that stand for less than ``duration``, and what comes
    after ``until``, when all are taken to end.
    """
    starts, lasts, places = np.empty((3, 2 * lengths.sum()), dtype=np.int64)
    since, tall = np.empty((2, edges.shape[0]), dtype=np.int64)
    count = 0
    for host in range(len(lengths)):
        if ready[host] > until - duration:
            continue
        step, time, standing, top = 0, 0, 0, -1
        while time < until:
            vms, time = 0, until
            if step < lengths[host] and edges[step, host] < until:
                vms, time = _vms(free, host, step, need), edges[step, host]
                step += 1
            if vms > standing:
                top += 1
                since[top], tall[top] = time, vms - standing
                standing = vms
            while standing > vms:
                start = max(since[top], ready[host])
                gone = min(tall[top], standing - vms)
                if start <= time - duration:
                    starts[count], lasts[count] = start, time - duration
                    places[count] = gone
                    count += 1
                standing -= gone
                tall[top] -= gone
                if tall[top] == 0:
                    top -= 1
    return starts[:count], lasts[:count], places[:count]


@compiled
def first(number: int, starts: Ints, lasts: Ints, places: Ints) -> int:
    """Return when first so many places stand at once, or NEVER.

    The arguments are what ``stretches`` returns.
    """
    if len(starts) == 0:
        return NEVER
    soonest, standing = starts.min(), 0
    for entry in range(len(starts)):
        if starts[entry] == soonest:
            standing += places[entry]
    if standing >= number:
        return int(soonest)     # most often so, and quicker than to sort
    begun, ended = np.argsort(starts), np.argsort(lasts)
    standing, gone = 0, 0
    for entry in begun:
        while lasts[ended[gone]] < starts[entry]:
            standing -= places[ended[gone]]
            gone += 1
        standing += places[entry]
        if standing >= number:
            return int(starts[entry])
    return NEVER


@compiled
def next_change(edges: Ints, lengths: Ints, time: int) -> int:
    """Return when after a time anything changes on any host."""
    found = NEVER
    for host in range(len(lengths)):
        for step in range(lengths[host]):
            if edges[step, host] > time:
                found = min(found, edges[step, host])
                break
    return found
