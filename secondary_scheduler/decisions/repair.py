# SPDX-License-Identifier: Apache-2.0

"""Repair: end violations by as few migrations as possible.

It precedes the search over leases, since a migration costs no work.  A host
is relieved completely or not at all; other violations are left to the search.

It is an anytime search.  The first round yields a plan at once: for each host
it takes the smallest set of instances whose departure ends the violation, and
moves each to the host with the most room, or, if agents predict slow-downs, to
the one with room and the lowest of them.  If no host has room, it first moves
an instance away from there (an ejection).  Further rounds begin with the hosts
that needed more than the least number of moves, or found none (squeaky wheel
optimization, Joslin and Clements 1999).  The best round counts.  A unit of the
budget is one look for a target.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
import itertools
import math
import typing

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.loads import Loads
from secondary_scheduler.decisions.violations import Violation
from secondary_scheduler.decisions.what_if import WhatIf
from secondary_scheduler.estimation.feasibility import TimedOperation
from secondary_scheduler.model.cluster import Instance, InstanceState
from secondary_scheduler.model.lazy import Lazy

#: Rounds at most, the first included.
ROUNDS = 6
#: Most moves beyond the least number for one host.
EXTRA = 3
#: Most sets of instances of one size that are made, and that are tried.
SETS_MADE, SETS_TRIED = 2000, 24
#: Most hosts that are tried for an ejection.
NEARLY = 24

#: Less than the excess of a violation that only its trigger shows.
_EPSILON = 1e-9


class Move(typing.NamedTuple):
    """A migration, and the violated host that it relieves."""

    uuid: str
    source: str
    target: str
    relieves: str


class Burden:
    """Excess use of a violated host, and sets of instances that end it.

    ``excess`` is by resource in its unit, ``use`` the same of each movable
    instance.  At least ``least`` of them must leave.  ``sets`` has sets of
    instances that suffice, by their number.
    """

    def __init__(self, host: str, violations: Sequence[Violation],
                 draft: Draft, preview: WhatIf,
                 size: Callable[[str], float]) -> None:
        self._size = size
        self.excess: dict[str, float] = {}
        for one in violations:
            resource = one.policy.resource
            self.excess[resource] = max(
                self.excess.get(resource, 0.0),
                preview.excess(host, one.policy, preview.outcome((), host)))
        there = draft.rooms.residents(host).values()
        self.running = sum(
            preview.guests[one.uuid].host is not None for one in there)
        self.use = {
            one.uuid: {resource: preview.use(one.uuid, resource, host)
                       for resource in self.excess}
            for one in there if draft.is_movable(one)}
        self._suspects = {one.uuid for one in there if one.suspect}
        self.least = max(map(self._fewest, self.excess))
        self.sets = Lazy(self._sets)

    def _fewest(self, resource: str) -> int:
        uses = sorted((use[resource] for use in self.use.values()),
                      reverse=True)
        sums = itertools.accumulate(uses, initial=0.0)
        enough = self.excess[resource] - _EPSILON
        return next((count for count, total in enumerate(sums)
                     if total >= enough), self.running)

    def _sets(self, count: int) -> list[tuple[str, ...]]:
        """Return sufficient sets with few resources, the smallest first.

        Sets with suspects precede others.  Instances that relieve the host
        most are combined first.  Each set begins with its largest instance,
        which is the hardest to place.
        """
        size = self._size
        order = sorted(self.use, key=lambda uuid: (
            uuid not in self._suspects, -sum(
            use / max(self.excess[resource], _EPSILON)
            for resource, use in self.use[uuid].items()), uuid))
        found = filter(self._enough, itertools.islice(
            itertools.combinations(order, count), SETS_MADE))
        ranked = sorted((-len(self._suspects.intersection(uuids)),
                         sum(map(size, uuids)), uuids) for uuids in found)
        return [tuple(sorted(uuids, key=lambda uuid: (-size(uuid), uuid)))
                for _suspects, _size, uuids in ranked[:SETS_TRIED]]

    def _enough(self, uuids: Sequence[str]) -> bool:
        """Return whether the departure of instances ends the violations.

        It does if no instance remains, whatever the primary uses (Boettger
        2012, section 4.3.5).
        """
        return len(uuids) == self.running or all(
            sum(self.use[uuid][resource] for uuid in uuids)
            >= amount - _EPSILON for resource, amount in self.excess.items())


class Repair:
    """Adds migrations to a draft without steps.

    They end violations of hosts, not of items.

    :param leases: a search over leases follows; instances of leases that run
        on hosts which remain violated are then not moved
    """

    def __init__(self, draft: Draft, preview: WhatIf,
                 violations: Sequence[Violation], budget: Budget,
                 leases: bool) -> None:
        self.draft = draft
        self.preview = preview
        self.moves: list[Move] = []
        self._budget = budget
        self._leases = leases
        self._of_host: dict[str, list[Violation]] = defaultdict(list)
        self._shared: list[Violation] = []
        for one in violations:
            (self._of_host[one.place] if one.place in draft.hosts
             else self._shared).append(one)
        self.loads = Loads(preview, self._of_host)
        self._burdens = {host: Burden(
            host, those, draft, preview, self.loads.size)
            for host, those in self._of_host.items()}
        self._floor = 0

    def run(self) -> None:
        """Relieve as many hosts as possible in time, with few moves."""
        hosts = self._wanting()
        while hosts:
            self._improve(hosts)
            unfit = self._unfit()
            if not unfit:
                return
            hosts = [host for host in hosts if host not in unfit]
        self._undo(0)

    def _wanting(self) -> list[str]:
        """Return the hosts that instances must leave, urgent ones first."""
        return sorted(
            (host for host in self._of_host if self._burdens[host].least),
            key=lambda host: (min(one.deadline_s
                                  for one in self._of_host[host]), host))

    def _improve(self, hosts: list[str]) -> None:
        """Add the moves of the best of some rounds."""
        best: tuple[int, int] | None = None
        chosen: list[Move] = []
        for _round in range(ROUNDS):
            self._undo(0)
            left, costly = [], []
            for place, host in enumerate(hosts):
                begun = len(self.moves)
                # No host takes more than a fair part of the budget.
                self._floor = self._budget.units - math.ceil(
                    self._budget.units / (2 * (len(hosts) - place)))
                if not self._relieve(host):
                    left.append(host)
                elif len(self.moves) - begun > self._burdens[host].least:
                    costly.append(host)
            score = len(left), len(self.moves)
            if best is None or score < best:
                best, chosen = score, list(self.moves)
            squeaky = left + costly
            order = squeaky + [one for one in hosts if one not in squeaky]
            if order == hosts:
                break
            hosts = order
        self._undo(0)
        for move in chosen:
            self._move(*move)

    def _relieve(self, host: str) -> bool:
        """Relieve a host with as few moves as can be found."""
        burden = self._burdens[host]
        for extra in range(EXTRA + 1):
            for more in range(extra + 1):
                for uuids in burden.sets[burden.least + more]:
                    if self._place_all(uuids, host, extra - more):
                        return True
        return False

    def _place_all(self, uuids: Sequence[str], host: str,
                   ejections: int) -> bool:
        begun = len(self.moves)
        for uuid in uuids:
            used = self._place(uuid, host, ejections)
            if used is None:
                self._undo(begun)
                return False
            ejections -= used
        return True

    def _place(self, uuid: str, relieves: str, ejections: int) -> int | None:
        """Move an instance; return its ejections, None if there is no host."""
        if self._budget.units <= self._floor:
            return None
        self._budget.spend()
        instance = self.draft.instances[uuid]
        source = str(instance.host)
        for target in self.draft.cluster.prefer_predicted(
                self.loads.takers(uuid), instance, self.draft.newcomers):
            if self._accepts(target, instance):
                self._move(uuid, source, target, relieves)
                return 0
        if not ejections:
            return None
        begun = len(self.moves)
        for target in self.loads.nearly(uuid, NEARLY // ejections):
            for other in self._blockers(uuid, target):
                used = self._place(other, relieves, ejections - 1)
                # The other instance's ejection may have filled this host.
                if (used is not None and self.loads.fits(uuid, target)
                        and self._accepts(target, instance)):
                    self._move(uuid, source, target, relieves)
                    return used + 1
                self._undo(begun)
        return None

    def _accepts(self, host: str, instance: Instance) -> bool:
        """Return whether a host is a valid target, apart from its room."""
        rooms = self.draft.rooms
        return (host != instance.host
                and rooms.satisfies_constraints(host, instance)
                and rooms.admits(host, instance))

    def _blockers(self, uuid: str, host: str) -> Iterator[str]:
        """Yield instances whose departure makes room, small ones first."""
        moved = {move.uuid for move in self.moves}
        there = self.draft.rooms.residents(host)
        for one in sorted(there, key=lambda one: (
                self.loads.size(one), one)):
            if (one not in moved and self.draft.is_movable(there[one])
                    and self.loads.fits(uuid, host, without=one)):
                yield one

    def _move(self, uuid: str, source: str, target: str,
              relieves: str) -> None:
        self.draft.migrate(self.draft.instances[uuid], target)
        self.loads.move(uuid, source, target)
        self.moves.append(Move(uuid, source, target, relieves))

    def _undo(self, length: int) -> None:
        self.draft.rewind(length)
        while len(self.moves) > length:
            move = self.moves.pop()
            self.loads.move(move.uuid, move.target, move.source)

    def _unfit(self) -> set[str]:
        """Return the relieved hosts whose moves are not acceptable.

        Their relief comes too late, or makes a policy of another host fail,
        or moves an instance of a lease that must stay.
        """
        works = self.preview.works(self.draft.steps)
        places = self.preview.cluster.places
        here: dict[str, list[TimedOperation]] = defaultdict(list)
        for work in works:
            for place in {place for host in (work.source, work.target)
                          if host is not None for place in places(host)}:
                here[place].append(work)
        concerned: dict[str, set[str]] = defaultdict(set)
        for move in self.moves:
            concerned[move.source].add(move.relieves)
            concerned[move.target].add(move.relieves)
        relieved = {move.relieves for move in self.moves}
        unfit = {host for host in relieved if not all(
            self.preview.holds(host, one.policy, one.deadline_s, here[host])
            for one in self._of_host[host])}
        for host, those in concerned.items():
            near = dict.fromkeys(itertools.chain.from_iterable(
                here[place] for place in places(host)))
            if self.preview.spoils(host, list(near)):
                unfit |= those
        if self._leases:
            unfit |= self._of_leases_left(relieved)
        return unfit

    def _of_leases_left(self, relieved: set[str]) -> set[str]:
        """Return relieved hosts with moves of leases that must stay."""
        left = set(self._wanting()) - relieved
        for one in self._shared:
            if not self.preview.holds(
                    one.place, one.policy, works=self.preview.outcome(
                        self.draft.steps, one.place)):
                left.update(self.preview.cluster.hosts_of(one.place))
        leases = {one.lease for host in left
                  for one in self.draft.rooms.residents(host).values()
                  if one.state is InstanceState.ACTIVE}
        return {move.relieves for move in self.moves
                if self.draft.instances[move.uuid].lease in leases}
