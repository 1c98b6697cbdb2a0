# SPDX-License-Identifier: Apache-2.0

"""Clusters to reconfigure, as in Entropy's simulations.

Hermenier 2009, section 5.1, has 200 hosts of two processing units and 4 GB,
and jobs of 9 or 18 virtual machines in random states.  The initial placement
has room for the memory of all running members, not for their demand of CPU.
"""

from collections.abc import Sequence
import random
import typing

from secondary_scheduler.model.configuration import (
    Amounts,
    Configuration,
    Member,
    MemberState,
)

#: Processing units, and memory in MB.
DIMENSIONS = ('cpu', 'memory')
HOSTS, CAPACITY = 200, (2, 4096)
SIZES = (9, 18)
MEMORY_MB = (256, 512, 1024, 2048)
#: States of jobs, and how many of them run, are suspended and wait.
STATES = (MemberState.RUNNING, MemberState.SUSPENDED, MemberState.WAITING)
EVEN, MOSTLY_RUNNING = (1, 1, 1), (3, 1, 1)
#: Share of members that demand a processing unit.
BUSY, OVERLOAD = 0.6, 0.9
#: Random hosts tried before all of them are examined.
_TRIES = 50


class Drawn(typing.NamedTuple):
    """Configuration to leave, and the queue of its leases."""

    configuration: Configuration
    queue: tuple[str, ...]


def draw(seed: int, vms: int, hosts: int = HOSTS,
         capacity: Amounts = CAPACITY, mix: Sequence[int] = EVEN,
         busy: float = BUSY) -> Drawn:
    """Draw a configuration, one job after the other.

    :param vms: number of members; the last job is cut to it
    :param capacity: units and memory in MB of each host
    :param mix: weights of running, suspended and waiting jobs
    :param busy: probability with which a member demands a unit
    :returns: the configuration, and its leases in the order of the draws
    """
    rng = random.Random(seed)
    places = _Places(rng, hosts, capacity)
    members: dict[str, Member] = {}
    queue: list[str] = []
    while len(members) < vms:
        lease = f'job{len(queue) + 1}'
        queue.append(lease)
        size = min(rng.choice(SIZES), vms - len(members))
        state, = rng.choices(STATES, mix)
        for number in range(1, size + 1):
            one = places.draw_member(f'{lease}-vm{number}', lease, state, busy)
            members[one.name] = one
    return Drawn(Configuration(DIMENSIONS, places.capacity, members),
                 tuple(queue))


class _Places:
    """Hosts with the memory that is free on each."""

    def __init__(self, rng: random.Random, hosts: int,
                 capacity: Amounts) -> None:
        self._rng = rng
        self._names = tuple(f'host{number}' for number in range(1, hosts + 1))
        self.capacity = dict.fromkeys(self._names, capacity)
        self._free_mb = dict.fromkeys(self._names, capacity[1])

    def draw_member(self, name: str, lease: str, state: MemberState,
                    busy: float) -> Member:
        """Draw a member in a state, on a host with memory for it."""
        memory_mb = self._rng.choice(MEMORY_MB)
        units = int(self._rng.random() < busy)
        host: str | None = None
        if state is MemberState.RUNNING:
            host = self._host_with(memory_mb)
            if host is None:
                memory_mb = MEMORY_MB[0]
                host = (self._host_with(memory_mb)
                        or self._rng.choice(self._names))
            self._free_mb[host] -= memory_mb
        elif state is MemberState.SUSPENDED:
            host = self._rng.choice(self._names)
        return Member(name, lease, state, host, (units, memory_mb), (0, 0),
                      memory_mb)

    def _host_with(self, memory_mb: int) -> str | None:
        """Return a random host with so much memory, None if none has it."""
        for _try in range(_TRIES):
            host = self._rng.choice(self._names)
            if self._free_mb[host] >= memory_mb:
                return host
        several = [host for host in self._names
                   if self._free_mb[host] >= memory_mb]
        return self._rng.choice(several) if several else None
