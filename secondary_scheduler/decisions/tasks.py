# SPDX-License-Identifier: Apache-2.0

"""Tasks of a switch: moves that happen together, with the room they take.

They are the edges of the reconfiguration graph (Hermenier 2009, section 4.1).
A task takes room on hosts before it begins, and frees room when it has ended,
so a migration is charged at both ends.  All resumes of a lease are one task.

If members resume in place, a resume on another host is a resume and then a
migration.  The task of the resume names the task of the migration.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
import dataclasses

from secondary_scheduler.estimation.move_room import freed_room, taken_room
from secondary_scheduler.model.configuration import (
    Amounts,
    Configuration,
    Member,
    MemberState,
    Move,
    natural_key,
)
from secondary_scheduler.model.operation_kinds import OperationKind

#: Order in which tasks are examined and written into a pool.  Migrations come
#: before arrivals, since fewer cycles remain then.
_RANKS = {kind: number for number, kind in enumerate((
    OperationKind.SUSPEND, OperationKind.DELETE, OperationKind.MIGRATE,
    OperationKind.RESUME, OperationKind.BOOT))}

#: Rank of a task that is examined after all others.
LAST = len(_RANKS)

Room = tuple[tuple[str, Amounts], ...]
Order = tuple[int, tuple[tuple[str, int], ...], str]


@dataclasses.dataclass(eq=False, slots=True)
class Task:
    """Moves that are in one pool.

    :param order: rank among the tasks that are examined for a pool
    :param takes: amounts that it needs on each host before it begins
    :param gives: amounts that it frees when it has ended
    :param then: tasks that become possible when it has ended
    """

    order: Order
    moves: tuple[Move, ...]
    takes: Room = ()
    gives: Room = ()
    then: tuple['Task', ...] = ()

    @property
    def kind(self) -> OperationKind:
        """The kind of all its moves."""
        return self.moves[0].kind

    @property
    def passes(self) -> bool:
        """Whether members resume on hosts that they leave at once."""
        return bool(self.then) and self.kind is OperationKind.RESUME


def list_tasks(current: Configuration, target: Configuration
               ) -> list[Task]:
    """Return the tasks that lead from one configuration to another.

    :raises ValueError: an operation for a change of state does not exist
    """
    migrations, boots = [], []
    departures: dict[OperationKind, list[Member]] = defaultdict(list)
    resumes: dict[str, dict[str, str]] = defaultdict(dict)
    for name, old in current.members.items():
        new = target.members[name]
        kind = find_kind(old, new)
        if kind is OperationKind.MIGRATE:
            migrations.append(migrate_task(old, str(old.host), str(new.host)))
        elif kind is OperationKind.BOOT:
            boots.append(boot_task(old, str(new.host)))
        elif kind is OperationKind.RESUME:
            resumes[old.lease][name] = str(new.host)
        elif kind is not None:
            departures[kind].append(old)
    return [
        *(departure_task(kind, several)
          for kind, several in departures.items()),
        *migrations,
        *(resume_task(current, [current.members[name] for name in hosts],
                      hosts) for hosts in resumes.values()),
        *boots]


def find_kind(old: Member, new: Member) -> OperationKind | None:
    """Return the kind of operation for a change, None without one.

    :raises ValueError: an operation for the change does not exist
    """
    running, suspended = MemberState.RUNNING, MemberState.SUSPENDED
    if old.state is new.state:
        return (OperationKind.MIGRATE
                if old.state is running and old.host != new.host else None)
    if new.state is MemberState.ENDED:
        return None if old.host is None else OperationKind.DELETE
    kind = {(running, suspended): OperationKind.SUSPEND,
            (suspended, running): OperationKind.RESUME,
            (MemberState.WAITING, running): OperationKind.BOOT,
            }.get((old.state, new.state))
    if kind is None:
        raise ValueError(f'member {old.name!r}: no operation leads from '
                         f'{old.state} to {new.state}')
    return kind


def departure_task(kind: OperationKind, members: Iterable[Member],
                   bypass: bool = False) -> Task:
    """Return the task that suspends or deletes members."""
    return _task((
        Move(kind, one.name, one.lease, one.host, None, one.memory_mb, bypass),
        one) for one in members)


def migrate_task(member: Member, source: str, target: str,
                 bypass: bool = False, passes: bool = False) -> Task:
    """Return the task that migrates a member.

    :param passes: it resumed on its source only to be migrated
    """
    return _task([(Move(OperationKind.MIGRATE, member.name, member.lease,
                        source, target, member.memory_mb, bypass), member)],
                 {member.name} if passes else ())


def boot_task(member: Member, target: str) -> Task:
    """Return the task that boots a member."""
    return _task([(Move(OperationKind.BOOT, member.name, member.lease, None,
                        target, member.memory_mb), member)])


def resume_task(current: Configuration, members: Iterable[Member],
                hosts: Mapping[str, str],
                bypass: Collection[str] = ()) -> Task:
    """Return the task that resumes members of a lease.

    :param hosts: where the members run in the end
    :param bypass: the members whose resume belongs to a bypass
    """
    pairs, then = [], []
    for one in sorted(members, key=lambda one: natural_key(one.name)):
        home, goal = str(one.host), hosts[one.name]
        place = home if current.resumes_in_place else goal
        if place != goal:
            then.append(migrate_task(one, home, goal, passes=True))
        pairs.append((Move(
            OperationKind.RESUME, one.name, one.lease, home, place,
            one.memory_mb, one.name in bypass), one))
    task = _task(pairs, {one.moves[0].member for one in then})
    if then:
        # It soon frees the room that it takes, so others may wait for it.
        task.order = (-1, *task.order[1:])
        task.then = tuple(then)
    return task


def _task(pairs: Iterable[tuple[Move, Member]],
          passing: Collection[str] = ()) -> Task:
    """Return the task of moves and their members.

    :param passing: members that run on a host only to be migrated
    """
    moves, gives = [], []
    takes: dict[str, Amounts] = {}
    for move, member in pairs:
        moves.append(move)
        passes = move.member in passing
        taken = taken_room(move, member, passes)
        freed = freed_room(move, member, passes)
        if taken is not None:
            place = str(move.target)
            takes[place] = (_sum(takes[place], taken) if place in takes
                            else taken)
        if freed is not None:
            gives.append((str(move.source), freed))
    first = moves[0]
    order = _RANKS[first.kind], natural_key(first.member), first.member
    return Task(order, tuple(moves), tuple(takes.items()), tuple(gives))


def sort_pool(moves: Iterable[Move]) -> tuple[Move, ...]:
    """Return moves in the order of a pool.

    Operations on a lease are together, in the natural order of its members.
    """
    return tuple(sorted(moves, key=lambda move: (
        _RANKS[move.kind], natural_key(move.lease),
        natural_key(move.member))))


def apply_moves(members: Mapping[str, Member], moves: Iterable[Move]
                ) -> Iterator[Member]:
    """Yield the members that moves change, as they are afterwards."""
    changed: dict[str, Member] = {}
    for move in moves:
        member = changed.get(move.member) or members[move.member]
        if move.kind is OperationKind.SUSPEND:
            state, host = MemberState.SUSPENDED, member.host
        elif move.kind is OperationKind.DELETE:
            state, host = MemberState.ENDED, None
        else:
            state, host = MemberState.RUNNING, move.target
        changed[move.member] = dataclasses.replace(
            member, state=state, host=host)
    yield from changed.values()


def _sum(amounts: Amounts, more: Amounts) -> Amounts:
    return tuple(one + other
                 for one, other in zip(amounts, more, strict=True))
