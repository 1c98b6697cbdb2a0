# SPDX-License-Identifier: Apache-2.0

"""Random clusters to reconfigure, and an independent replay of a switch."""

import dataclasses
import random

from hypothesis import strategies as st

from secondary_scheduler.model import constraints
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
)
from secondary_scheduler.model.operation_kinds import OperationKind

RUNNING, SUSPENDED, WAITING, ENDED = MemberState
MEMORY = (256, 512, 1024, 2048)
CAPACITY = (2, 4096, 6144)


@st.composite
def switches(draw, fixed=0.0, closed=0.0, in_place=None):
    """Draw a cluster and a viable configuration to reach.

    :param in_place: whether members resume on their own hosts only, None for
        either
    :param fixed: fraction of members that no operation may touch, or that
        may not be migrated
    :param closed: fraction of hosts that no member may be brought to
    """
    chance = draw(st.randoms(use_true_random=False))
    if in_place is None:
        in_place = draw(st.booleans())
    current = draw_cluster(chance, in_place, fixed, closed)
    return current, draw_target(chance, current)


@st.composite
def ruled_switches(draw):
    """Draw a cluster with constraints, and a configuration to reach."""
    current, target = draw(switches())
    chance = draw(st.randoms(use_true_random=False))
    rules = tuple(draw_rule(chance, current)
                  for _ in range(chance.randint(1, 3)))
    return (dataclasses.replace(current, constraints=rules),
            dataclasses.replace(target, constraints=rules))


def draw_rule(chance, current):
    """Return a constraint on some members and hosts."""
    members = frozenset(chance.sample(sorted(current.members),
                                      chance.randint(2, 4)))
    hosts = frozenset(chance.sample(sorted(current.capacity), 2))
    others = frozenset(current.capacity) - hosts
    first = frozenset(sorted(members)[:1])
    return chance.choice((
        constraints.Spread(members), constraints.Gather(members),
        constraints.Ban(members, hosts), constraints.Fence(members, others),
        constraints.Among(members, (hosts, others)),
        constraints.Lonely(members),
        constraints.Split((first, members - first)),
        constraints.Root(members), constraints.Quarantine(hosts)))


def draw_cluster(chance, in_place, fixed=0.0, closed=0.0):
    """Return a cluster that may be overloaded.

    Hosts have 2 units and 4,096 MiB, and 6,144 MiB for claims.
    """
    hosts = [f'h{number}' for number in range(chance.randint(3, 8))]
    claims = in_place and chance.random() < 0.5
    members = {}
    for lease in range(chance.randint(2, 7)):
        state = chance.choice((RUNNING, RUNNING, SUSPENDED, WAITING))
        for number in range(chance.randint(2, 4)):
            memory = chance.choice(MEMORY)
            name = f'l{lease}m{number}'
            members[name] = Member(
                name, f'l{lease}', state,
                None if state is WAITING else chance.choice(hosts),
                (chance.randint(0, 1), memory, memory * claims),
                (0, 0, memory * claims), memory,
                fixed=chance.random() < fixed,
                migratable=chance.random() >= fixed)
    return Configuration(
        ('units', 'memory_mb', 'claims_mb'), dict.fromkeys(hosts, CAPACITY),
        members, frozenset(one for one in hosts if chance.random() < closed),
        in_place)


def draw_target(chance, current):
    """Return a viable configuration with whole leases on any hosts."""
    free = {host: list(amounts) for host, amounts in current.capacity.items()}
    changed = {}
    leases = list(current.leases)
    chance.shuffle(leases)
    for lease in leases:
        members = current.leases[lease]
        for one in members:     # may be suspended instead
            if one.host is not None:
                _take(free, one.host, one.claim)
    for lease in leases:
        members = current.leases[lease]
        for one in members:
            changed[one.name] = one
            if one.state is RUNNING:
                changed[one.name] = dataclasses.replace(one, state=SUSPENDED)
        if chance.random() < 0.1:
            for one in members:
                changed[one.name] = dataclasses.replace(
                    one, state=ENDED, host=None)
            continue
        found = _place(chance, free, members)
        for name, host in found.items():
            changed[name] = dataclasses.replace(
                current.members[name], state=RUNNING, host=host)
    return current.with_members(changed.values())


def _place(chance, free, members):
    before = {host: list(amounts) for host, amounts in free.items()}
    found = {}
    stays = chance.choice((0.0, 0.5, 0.9))
    for one in members:
        hosts = chance.sample(sorted(free), len(free))
        if one.host is not None:
            _take(free, one.host, [-amount for amount in one.claim])
            if chance.random() < stays:
                hosts.insert(0, one.host)
        host = next((host for host in hosts if fits(one.demand, free[host])),
                    None)
        if host is None:
            free.update(before)
            return {}
        _take(free, host, one.demand)
        found[one.name] = host
    return found


def _take(free, host, amounts):
    free[host] = [most - amount for most, amount
                  in zip(free[host], amounts, strict=True)]


def fits(need, free):
    """Return whether a need fits; what is not needed may be overdrawn."""
    return all(amount == 0 or amount <= most
               for amount, most in zip(need, free, strict=True))


class Replay:
    """The state of each member while pools run, with independent rules."""

    def __init__(self, current):
        self.current = current
        self.state = {name: (one.state, one.host)
                      for name, one in current.members.items()}

    def free(self):
        """Return the free amounts of each host."""
        free = {host: list(amounts)
                for host, amounts in self.current.capacity.items()}
        for name, (state, host) in self.state.items():
            one = self.current.members[name]
            if state is RUNNING:
                _take(free, host, one.demand)
            elif state is SUSPENDED:
                _take(free, host, one.claim)
        return free

    def errors(self, pool):
        """Return what forbids the moves of a pool at its start."""
        found = []
        free = self.free()
        if len({move.member for move in pool}) != len(pool):
            found.append('a member has two moves in a pool')
        for move in pool:
            found += self._move_errors(move)
            if move.target is None:
                continue
            one = self.current.members[move.member]
            need = list(one.demand)
            if self.state[move.member] == (SUSPENDED, move.target):
                need = [amount - held for amount, held
                        in zip(need, one.claim, strict=True)]
            if not fits(need, free[move.target]):
                found.append(f'no room: {move}')
            _take(free, move.target, need)
        return found

    def _move_errors(self, move):
        one = self.current.members[move.member]
        state, host = self.state[move.member]
        wanted = {OperationKind.MIGRATE: RUNNING,
                  OperationKind.SUSPEND: RUNNING,
                  OperationKind.RESUME: SUSPENDED,
                  OperationKind.BOOT: WAITING}.get(move.kind)
        if wanted is not None and state is not wanted:
            yield f'member is {state}: {move}'
        if move.source != host:
            yield f'member is on {host}: {move}'
        if (move.lease, move.memory_mb) != (one.lease, one.memory_mb):
            yield f'another lease or memory: {move}'
        if one.fixed:
            yield f'member is fixed: {move}'
        if move.kind is OperationKind.MIGRATE and (
                not one.migratable or host == move.target):
            yield f'member cannot be migrated: {move}'
        if move.target in self.current.closed:
            yield f'target is closed: {move}'
        if move.kind in (OperationKind.SUSPEND, OperationKind.DELETE):
            if move.target is not None:
                yield f'target for a departure: {move}'
        elif move.target not in self.current.capacity:
            yield f'unknown target: {move}'
        if (move.kind is OperationKind.RESUME and self.current.resumes_in_place
                and move.target != host):
            yield f'resumes elsewhere: {move}'

    def run(self, pool):
        """Run the moves of a pool."""
        for move in pool:
            host = self.state[move.member][1]
            self.state[move.member] = {
                OperationKind.SUSPEND: (SUSPENDED, host),
                OperationKind.DELETE: (ENDED, None),
            }.get(move.kind, (RUNNING, move.target))


def has_serial_order(current, reached):
    """Return whether needed moves alone have an order, by exhaustion.

    All resumes of a lease are one step.
    """
    steps = _steps(current, reached)
    ends = [(), set()]

    def search(done, replay):
        if len(done) == len(steps):
            return True
        if done in ends[1]:
            return False
        ends[1].add(done)
        for number, step in enumerate(steps):
            if number in done or not _is_next(step, replay):
                continue
            if _has_room(replay, step):
                after = Replay(current)
                after.state = dict(replay.state)
                for name, state, host in step:
                    after.state[name] = (state, host)
                if search(done | {number}, after):
                    return True
        return False

    start = Replay(current)
    return search(frozenset(), start)


def _steps(current, reached):
    steps, resumes = [], {}
    for name, old in current.members.items():
        new = reached.members[name]
        if (old.state, old.host) == (new.state, new.host):
            continue
        if old.state is SUSPENDED and new.state is RUNNING:
            place = old.host if current.resumes_in_place else new.host
            resumes.setdefault(old.lease, []).append((name, RUNNING, place))
            if place != new.host:
                steps.append([(name, RUNNING, new.host)])
        else:
            steps.append([(name, new.state, new.host)])
    return steps + list(resumes.values())


def _is_next(step, replay):
    """Return whether a migration after a resume has to wait for it."""
    for name, state, host in step:
        there, here = replay.state[name]
        if there is SUSPENDED and state is RUNNING and (
                replay.current.resumes_in_place and here != host):
            return False
    return True


def _has_room(replay, step):
    free = replay.free()
    for name, state, host in step:
        if state is RUNNING:
            one = replay.current.members[name]
            need = list(one.demand)
            if replay.state[name] == (SUSPENDED, host):
                need = [amount - held for amount, held
                        in zip(need, one.claim, strict=True)]
            if not fits(need, free[host]):
                return False
            _take(free, host, need)
    return True


def seeded(seed, fixed=0.0, closed=0.0):
    """Return a cluster and a configuration to reach, by a seed."""
    chance = random.Random(seed)
    current = draw_cluster(chance, chance.random() < 0.5, fixed, closed)
    return current, draw_target(chance, current)


def is_whole(configuration):
    """Return whether all free members of each lease are in one state."""
    return all(
        len({one.state for one in several if not one.fixed}) <= 1
        for several in configuration.leases.values())


def positions_in_pools(switch, kind):
    """Return the pools in which each lease has moves of a kind."""
    found = {}
    for number, pool in enumerate(switch.pools):
        for move in pool:
            if move.kind is kind:
                found.setdefault(move.lease, []).append((number, move.member))
    return found
