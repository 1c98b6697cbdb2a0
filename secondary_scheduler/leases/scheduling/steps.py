# SPDX-License-Identifier: Apache-2.0

"""Compiled loops of the slot table over hosts and steps.

The future of a host is a sequence of *steps*: from ``edges[k, host]`` to the
next edge it has ``tenants[k, host]`` leases, and ``free[k, host]`` is free of
each resource.  ``lengths[host]`` steps are in use; the last has no end.
"""

from collections.abc import Callable
import typing

import numba
import numpy as np

from secondary_scheduler.leases.scheduling.types import NEVER, Ints

Function = typing.TypeVar('Function', bound=Callable[..., typing.Any])


def compiled(function: Function) -> Function:
    """Compile a function, cached on disk if possible."""
    try:
        return typing.cast(Function, numba.njit(function, cache=True))
    except RuntimeError:    # no directory for the cache is writable
        return typing.cast(Function, numba.njit(function))


@compiled
def _insert(edges: Ints, tenants: Ints, free: Ints, lengths: Ints, host: int,
            time: int) -> int:
    """Return the step that begins at a time, after splitting if needed."""
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
    """Remove past steps."""
    past = 0
    while past + 1 < lengths[host] and edges[past + 1, host] <= now:
        past += 1
    if past:
        _remove(edges, tenants, free, lengths, host, 0, past)


@compiled
def has_spare_steps(edges: Ints, tenants: Ints, free: Ints, lengths: Ints,
                    hosts: Ints, now: int) -> bool:
    """Return whether two more steps can be stored for each host."""
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
        # Merge steps between which nothing changes.
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
def _step_at(edges: Ints, lengths: Ints, host: int, time: int) -> int:
    """Return the step that contains a time."""
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
                return 0    # the most frequent case, without a division
            most = min(most, left // need[resource])
    return most


@compiled
def free_vms(edges: Ints, free: Ints, lengths: Ints, need: Ints, start: int,
             end: int, found: Ints) -> None:
    """Find how many VMs fit on each host for all of [start, end)."""
    for host in range(len(lengths)):
        step = _step_at(edges, lengths, host, start)
        least = _vms(free, host, step, need)
        step += 1
        while step < lengths[host] and edges[step, host] < end and least > 0:
            least = min(least, _vms(free, host, step, need))
            step += 1
        found[host] = least


@compiled
def vm_end_times(edges: Ints, free: Ints, lengths: Ints, need: Ints,
                 time: int) -> Ints:
    """Return the end of each place for a VM at a time."""
    total = 0
    for host in range(len(lengths)):
        total += _vms(free, host, _step_at(edges, lengths, host, time), need)
    found = np.empty(total, dtype=np.int64)
    count = 0
    for host in range(len(lengths)):
        step = _step_at(edges, lengths, host, time)
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
def fits_until(edges: Ints, free: Ints, lengths: Ints, hosts: Ints,
               amounts: Ints, start: int) -> int:
    """Return how long amounts, shape (resources, hosts), fit on all hosts.

    An amount of 0 fits even if the resource is overdrawn.
    """
    latest = NEVER
    for index in range(len(hosts)):
        host = hosts[index]
        step = _step_at(edges, lengths, host, start)
        while step < lengths[host] and edges[step, host] < latest:
            for resource in range(free.shape[2]):
                if 0 < amounts[resource, index] > free[step, host, resource]:
                    latest = min(latest, edges[step, host])
            step += 1
    return max(latest, start)


@compiled
def least_free(edges: Ints, free: Ints, lengths: Ints, start: int, end: int,
               found: Ints) -> None:
    """Find the least free capacity of hosts in [start, end)."""
    for host in range(len(lengths)):
        step = _step_at(edges, lengths, host, start)
        found[host] = free[step, host]
        step += 1
        while step < lengths[host] and edges[step, host] < end:
            for resource in range(free.shape[2]):
                found[host, resource] = min(found[host, resource],
                                            free[step, host, resource])
            step += 1


@compiled
def state_at(edges: Ints, tenants: Ints, free: Ints, lengths: Ints, time: int,
             here: Ints, left: Ints, changes: Ints) -> None:
    """Find leases, free capacity (resources, hosts) and the next change."""
    for host in range(len(lengths)):
        step = _step_at(edges, lengths, host, time)
        here[host] = tenants[step, host]
        for resource in range(free.shape[2]):
            left[resource, host] = free[step, host, resource]
        changes[host] = (edges[step + 1, host] if step + 1 < lengths[host]
                         else NEVER)


@compiled
def find_places(edges: Ints, free: Ints, lengths: Ints, need: Ints,
                duration: int, ready: Ints, until: int
                ) -> tuple[Ints, Ints, Ints]:
    """Return places for VMs: first and last time to begin, and how many.

    The VMs that fit on a host are a stack of places: the last to appear is
    the first to disappear.  Places that appear and disappear together are one
    entry.  Places that last for less than ``duration`` are left out, and all
    are taken to end at ``until``.
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
def first_start(number: int, starts: Ints, lasts: Ints, places: Ints) -> int:
    """Return the first time with ``number`` places at once, or NEVER.

    The other arguments are those that ``find_places`` returns.
    """
    if len(starts) == 0:
        return NEVER
    soonest, standing = starts.min(), 0
    for entry in range(len(starts)):
        if starts[entry] == soonest:
            standing += places[entry]
    if standing >= number:
        return int(soonest)     # the most frequent case, without sorting
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
    """Return the first change of any host after a time."""
    found = NEVER
    for host in range(len(lengths)):
        for step in range(lengths[host]):
            if edges[step, host] > time:
                found = min(found, edges[step, host])
                break
    return found
