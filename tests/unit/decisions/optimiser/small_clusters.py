# SPDX-License-Identifier: Apache-2.0

"""Small clusters, and all ways to run their members.

Nothing here shares code with the optimiser.
"""

from collections.abc import Iterator
import dataclasses
import itertools
import random

from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
    Switch,
)
from secondary_scheduler.model.constraints import (
    Ban,
    Constraint,
    Fence,
    Lonely,
    Quarantine,
    Root,
    Spread,
)

MEMORY_MB = (256, 512, 1024, 2048)


def draw_cluster(seed: int) -> tuple[Configuration, Configuration]:
    """Draw a configuration, and a viable one in other states.

    The cluster has at most 4 hosts and 6 members, and may be overloaded.
    """
    rng = random.Random(seed)
    while True:
        current = _draw_configuration(rng)
        states = {lease: _draw_state(rng, members[0].state)
                  for lease, members in current.leases.items()}
        samples = list(itertools.islice(
            list_targets(current, states), 200))
        if samples:
            return current, rng.choice(samples)


def list_targets(current: Configuration, states: dict[str, MemberState]
                 ) -> Iterator[Configuration]:
    """Yield all viable configurations with these states of the leases."""
    still = [dataclasses.replace(
        one, state=states[one.lease],
        host=None if states[one.lease] is MemberState.ENDED else one.host)
        for one in current.members.values()
        if states[one.lease] is not MemberState.RUNNING]
    moving = [one for one in current.members.values()
              if states[one.lease] is MemberState.RUNNING]
    choices = [_hosts_of(current, one) for one in moving]
    for hosts in itertools.product(*choices):
        target = dataclasses.replace(current, members={
            one.name: one for one in [*still, *(
                dataclasses.replace(one, state=MemberState.RUNNING, host=host)
                for one, host in zip(moving, hosts, strict=True))]})
        if _has_room(target):
            yield target


def list_switches(current: Configuration, sample: Configuration
                  ) -> Iterator[tuple[Configuration, Switch]]:
    """Yield the switch to each configuration with the states of a sample.

    Switches that do not reach the states are left out.
    """
    states = {one.lease: one.state for one in sample.members.values()}
    for target in list_targets(current, states):
        switch = sequence(current, target)
        reached = switch.reached
        if (all(one.state is states[one.lease]
                for one in reached.members.values())
                and _has_room(reached) and _keeps_constraints(
                    current, reached)):
            yield target, switch


def draw_plan_cost(current: Configuration, target: Configuration,
                   rng: random.Random) -> int | None:
    """Return the cost of a random plan, None if it got stuck.

    A pool has some of the feasible operations, not all; suspends and deletes
    are in the first.  Members resume on any host, those of a lease together.
    """
    used = {host: [0, 0] for host in current.capacity}
    for one in current.members.values():
        if one.state is MemberState.RUNNING:
            _add(used, one.host, one.demand, 1)
    pool: list[tuple[Member, int]] = []
    groups: dict[str, list[Member]] = {}
    for name, one in current.members.items():
        wanted = target.members[name]
        if one.state is MemberState.RUNNING is not wanted.state:
            pool.append((one, one.memory_mb * (
                wanted.state is MemberState.SUSPENDED)))
        elif wanted.state is MemberState.RUNNING and (
                one.state is not wanted.state or one.host != wanted.host):
            key = (one.lease if one.state is MemberState.SUSPENDED else name)
            groups.setdefault(key, []).append(one)
        elif (one.state is MemberState.SUSPENDED
              and wanted.state is MemberState.ENDED):
            pool.append((one, 0))
    cost = before = idle = 0
    while pool or groups:
        for key, several in rng.sample(sorted(groups.items()), len(groups)):
            if rng.random() < 0.3:
                continue
            trial = {host: list(amounts) for host, amounts in used.items()}
            for one in several:
                _add(trial, target.members[one.name].host, one.demand, 1)
            if all(trial[host][number] <= most
                   or trial[host][number] == used[host][number]
                   for host, capacity in current.capacity.items()
                   for number, most in enumerate(capacity)):
                used = trial
                del groups[key]
                pool += [(one, _copies(one, target) * one.memory_mb)
                         for one in several]
        cost += sum(before + local for _, local in pool)
        before += max((local for _, local in pool), default=0)
        for one, _ in pool:
            if one.state is MemberState.RUNNING:
                _add(used, one.host, one.demand, -1)
        idle = 0 if pool else idle + 1
        if idle > 20:
            return None
        pool = []
    return cost


def _copies(one: Member, target: Configuration) -> int:
    if one.state is MemberState.WAITING:
        return 0
    if one.state is MemberState.RUNNING:
        return 1
    return 1 + (one.host != target.members[one.name].host)


def _add(used: dict[str, list[int]], host: str | None,
         amounts: tuple[int, ...], sign: int) -> None:
    for number, amount in enumerate(amounts):
        used[str(host)][number] += sign * amount


def _draw_configuration(rng: random.Random) -> Configuration:
    hosts = rng.randint(2, 4)
    most = 6 if hosts < 4 else 5
    capacity = {f'h{number}': (rng.randint(1, 3), rng.choice((2048, 4096)))
                for number in range(hosts)}
    in_place = rng.random() < 0.5
    members: dict[str, Member] = {}
    for lease in range(rng.randint(1, 4)):
        state = rng.choice((MemberState.RUNNING, MemberState.RUNNING,
                            MemberState.SUSPENDED, MemberState.WAITING))
        for number in range(rng.randint(1, 3)):
            if len(members) == most:
                break
            memory = rng.choice(MEMORY_MB)
            name = f'l{lease}-m{number}'
            members[name] = Member(
                name, f'l{lease}', state,
                None if state is MemberState.WAITING
                else rng.choice(list(capacity)),
                (int(rng.random() < 0.6), memory),
                (0, memory if in_place and rng.random() < 0.5 else 0),
                memory, migratable=rng.random() < 0.9)
    return Configuration(
        ('cpu', 'memory'), capacity, members,
        closed=frozenset({'h0'} if rng.random() < 0.2 else ()),
        constraints=_draw_constraints(rng, list(members), list(capacity)),
        resumes_in_place=in_place)


def _draw_state(rng: random.Random, state: MemberState) -> MemberState:
    if state is MemberState.WAITING:
        return rng.choice((MemberState.RUNNING, MemberState.WAITING))
    return rng.choice((MemberState.RUNNING, MemberState.RUNNING,
                       MemberState.RUNNING, MemberState.SUSPENDED,
                       MemberState.ENDED))


def _hosts_of(current: Configuration, one: Member) -> list[str | None]:
    """Return the hosts on which a member may run."""
    is_open = [host for host in current.capacity
               if host not in current.closed]
    running = one.state is MemberState.RUNNING
    in_place = (one.state is MemberState.SUSPENDED
                and current.resumes_in_place)
    if in_place and one.host in current.closed:
        return []
    if not one.migratable and (running or in_place):
        return [one.host]
    if running and one.host not in is_open:
        is_open.append(str(one.host))
    return list(is_open)


def _draw_constraints(rng: random.Random, members: list[str],
                      hosts: list[str]) -> tuple[Constraint, ...]:
    if rng.random() < 0.5:
        return ()
    several = frozenset(rng.sample(members, min(2, len(members))))
    some_hosts = frozenset(rng.sample(hosts, len(hosts) - 1))
    return tuple(rng.sample((
        Spread(several), Ban(several, frozenset(hosts) - some_hosts),
        Fence(several, some_hosts), Root(several), Lonely(several),
        Quarantine(frozenset(rng.sample(hosts, 1)))), rng.randint(1, 2)))


def _keeps_constraints(current: Configuration,
                       reached: Configuration) -> bool:
    before, after = (
        {name: (one.host,) for name, one in configuration.members.items()
         if one.host is not None and one.state in (
             MemberState.RUNNING, MemberState.SUSPENDED)}
        for configuration in (current, reached))
    return all(one.broken(after) <= one.broken(before)
               for one in current.constraints)


def _has_room(configuration: Configuration) -> bool:
    for host, most in configuration.capacity.items():
        held = [one.demand if one.state is MemberState.RUNNING else one.claim
                for one in configuration.members.values()
                if one.host == host and one.state in (
                    MemberState.RUNNING, MemberState.SUSPENDED)]
        if any(sum(amounts) > room for amounts, room in zip(
                zip(*held, strict=True), most, strict=False)):
            return False
    return True
