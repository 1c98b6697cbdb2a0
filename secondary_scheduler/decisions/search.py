"""The guided search for a set of operations that ends violations.

Boettger 3.6 in its corrected form (X1 to X3).  The leases that contribute to
a violation are settled one after the other, the highest priority first; each
may migrate, at the expense of lower leases if need be, and gives way itself
only if no sacrifice of lower ones helps.  Lower leases are tried in the order
LOW, and each set of them with the actions of LOWACTION, the gentlest first.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
import enum
import functools
import itertools
import math
import typing

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.violations import CostProfile, Violation
from secondary_scheduler.decisions.what_if import WhatIf
from secondary_scheduler.estimation.feasibility import TimedOperation
from secondary_scheduler.model.cluster import Host, Instance, InstanceState
from secondary_scheduler.plans.operations import OperationKind

Item = typing.TypeVar('Item')


class Action(enum.StrEnum):
    """What is done to a lease.

    ``MIG`` moves the instances that violate a policy; ``SUSP`` preempts all
    in their flavors' way, which keeps their work where the flavor does;
    ``STOP`` stops all: the quickest, and the least gentle.
    """

    MIG = 'Mig'
    SUSP = 'Susp'
    STOP = 'Stop'


class BranchVerdict(enum.StrEnum):
    """What the check of a branch says.

    ``RESOURCE``: another policy would be violated, or there is no room;
    ``TIME``: a violated policy would become invalid.
    """

    RESOURCE = 'RESOURCE'
    TIME = 'TIME'
    OK = 'OK'


#: Actions on leases, in the order in which they were chosen.
Branch = tuple[tuple[str, Action], ...]


class Tried(typing.NamedTuple):
    """A branch below what had been chosen before, and what became of it."""

    branch: Branch
    verdict: BranchVerdict


def low_order(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Yield all non-empty subsets of items that are in ascending order.

    Binary counting, bit i being the i-th lowest (X2), one by one: nobody
    waits for the power set.
    """
    for mask in range(1, 1 << len(items)):
        yield tuple(item for bit, item in enumerate(items) if mask >> bit & 1)


def low_actions(count: int) -> Iterator[tuple[Action, ...]]:
    """Yield the actions for a subset of ``count`` leases, ascending.

    From all suspended to all stopped; the highest lease is the most
    significant bit and suspending is 1, so that the lowest is the first to be
    stopped (X3).
    """
    for code in reversed(range(1 << count)):
        yield tuple(Action.SUSP if code >> bit & 1 else Action.STOP
                    for bit in range(count))


def _needs(instance: Instance, home: Host | None) -> tuple[object, ...]:
    """Return all on which it depends whether a host has room for it."""
    sizes = () if home is None else (
        home.cpus, *sorted(home.capacities.items()))
    return (sizes, instance.vcpus, instance.memory_mb, instance.disk_gb,
            instance.cpu, tuple(sorted(instance.usage.items())),
            instance.anti_affinity)


class Search:
    """One search; ``trace`` tells all it tried, ``chosen`` its result.

    The operations are ``draft.steps``.  ``elapsed`` returns the seconds since
    the decision began: they are gone from every deadline, and with them
    deadlines that were to be kept may be lost, which ends the search
    (Boettger R32).
    """

    def __init__(self, draft: Draft, preview: WhatIf,
                 violations: Sequence[Violation], profile: CostProfile,
                 budget: Budget,
                 elapsed: Callable[[], float] = lambda: 0.0) -> None:
        self.draft = draft
        self.preview = preview
        self.violations = tuple(violations)
        self.trace: list[Tried] = []
        self.chosen: Branch = ()
        self._profile = profile
        self._budget = budget
        self._elapsed = elapsed
        self._judged: set[str] = set()
        self.lost: set[Violation] = set()
        self._unfit: set[tuple[object, ...]] = set()
        self._at: dict[str, list[Violation]] = {}
        for one in self.violations:
            self._at.setdefault(one.place, []).append(one)

    @functools.cached_property
    def _targets(self) -> list[Host]:
        hosts = self.preview.cluster.hosts
        return [hosts[name] for name in sorted(hosts)
                if self._takes(hosts[name])]

    @functools.cached_property
    def _lowest(self) -> list[str]:
        return self.draft.leases()[::-1]

    def _takes(self, host: Host) -> bool:
        return (host.usable and not host.blocked and not host.violated
                and host.name not in self._at
                and self.preview.known(host))

    def _on(self, host: object) -> list[Violation]:
        """Return the violations of a host and of what it shares."""
        return [one for place in self.preview.cluster.places(str(host))
                for one in self._at.get(place, ())]

    def run(self) -> None:
        """Search until no lease contributes to a violation any more."""
        if self._profile.moves_first:
            self._shed()
        near = {one.lease for host in self._failing_hosts()
                for one in self.draft.rooms.residents(host).values()}
        order = sorted(near, key=self.draft.ranks.__getitem__)
        high = [lease for lease in order if self.contributes(lease)]
        for place, lease in enumerate(high):
            # A hard case leaves the others their part of the budget.
            floor = self._budget.units - self._budget.units // (
                2 * (len(high) - place))
            if self.contributes(lease) and not self._settle(lease, floor):
                break
        for lease in high:
            if self.contributes(lease) and lease not in self._touched():
                self._sacrifice(lease)

    def contributes(self, lease: str) -> bool:
        """Tell whether a lease has its part in a violation, as things are.

        That is so if one of its instances runs on a host where the policy
        fails for good under the steps so far.  One that is busy or in a state
        of its owner's making is beyond reach: the others on its host have
        to make up for it.
        """
        here = {one.host for one in self.draft.members(lease)
                if one.state is InstanceState.ACTIVE}
        return any(self._fails(one) for host in here
                   for one in self._on(host))

    def failing(self) -> list[Violation]:
        """Return the violations that the steps so far do not end."""
        return [one for one in self.violations if self._fails(one)]

    def _failing_hosts(self) -> set[str]:
        return {host for one in self.failing()
                for host in self.preview.cluster.hosts_of(one.place)}

    def _fails(self, violation: Violation) -> bool:
        return not self.preview.holds(
            violation.place, violation.policy, math.inf,
            self.preview.outcome(self.draft.steps, violation.place))

    def late(self, works: Sequence[TimedOperation]) -> list[Violation]:
        """Return the violations that operations end too late, if at all.

        Only instances of leases that are settled count, and those that are
        operated on: the others' turn is still to come (X1 c).
        """
        judged = self._judged | {work.instance for work in works}
        spent = self._elapsed()
        return [one for one in self.violations if one not in self.lost
                and not self.preview.holds(
                    one.place, one.policy, one.deadline_s - spent, works,
                    judged)]

    # what several hosts may hold together

    def _shed(self) -> None:
        """End what binds several hosts by a count: the lowest leases go.

        Whoever goes makes the same room there, so that no other choice
        spares a higher lease; each moves elsewhere if it can.
        """
        items = self.preview.cluster.items
        for violation in self.violations:
            if violation.place not in items or not violation.policy.static:
                continue
            hosts = items[violation.place].hosts
            for lease in self._lowest:
                here = [
                    one
                    for one in self.draft.members(lease)
                    if one.state is InstanceState.ACTIVE and one.host in hosts
                ]
                if not here or not self._may_preempt(lease):
                    continue
                if not self._fails(violation) or not self._budget.spend():
                    break
                self._leave(lease, here, hosts)

    def _leave(self, lease: str, members: Sequence[Instance],
               hosts: Collection[str]) -> None:
        """Move members of a lease off hosts, or preempt it as a whole.

        Nobody is operated on twice: those that are in the way elsewhere move
        as well, or all go down.
        """
        begun = len(self.draft.steps)
        for instance in members:
            target = (self._find_target(instance, hosts)
                      if self.draft.is_movable(instance) else None)
            if target is None:
                break
            self.draft.migrate(instance, target)
        else:
            if self._migrate(lease) and not self.contributes(lease):
                self._settled(lease, Action.MIG, begun)
                return
        for action in (Action.SUSP, Action.STOP):
            self.draft.rewind(begun)
            self._preempt(lease, action)
            if not self.late(self.preview.works(self.draft.steps)):
                break
        self._settled(lease, action, begun)

    def _settled(self, lease: str, action: Action, begun: int) -> None:
        """Note what became of a lease by the steps since then."""
        self._judged |= {step.old.uuid for step in self.draft.steps[begun:]}
        self.chosen += ((lease, action),)
        self.lost |= set(self.late(self.preview.works(self.draft.steps)))

    # one lease

    def _settle(self, lease: str, floor: int) -> bool:
        """Find a branch by which a lease contributes no longer.

        With less than ``floor`` units left it is the lease's own turn to
        give way.  False if the search must end here, since there is no budget
        left or what was chosen before would come too late (the meta-check).
        """
        self._give_up_what_is_lost()
        members = {one.uuid for one in self.draft.members(lease)
                   if one.state is InstanceState.ACTIVE}
        for subset in self._attempts(lease, floor):
            for actions in low_actions(len(subset)):
                if self._overtaken() or not self._budget.spend():
                    return False
                branch = tuple(zip(subset, actions, strict=True))
                verdict = self._try(lease, branch, members)
                if verdict is BranchVerdict.OK:
                    self._judged |= members
                    return True
                if verdict is BranchVerdict.RESOURCE:
                    break
        if self._budget.truncated:
            return False
        self._sacrifice(lease)
        return True

    def _attempts(self, lease: str, floor: int
                  ) -> Iterator[tuple[str, ...]]:
        """Yield the sets of leases to preempt: none, lower ones, itself."""
        if self._hopeless(lease):
            return
        yield ()
        touched = self._touched()
        rank = self.draft.priority(lease)
        lower = (one for one in self._lowest
                 if self.draft.priority(one) < rank and one not in touched
                 and self._may_preempt(one))
        yield from itertools.takewhile(
            lambda _subset: self._budget.units >= floor, low_order(list(
                itertools.islice(lower, self._profile.subset_leases))))
        if self._may_preempt(lease):
            yield (lease,)

    def _try(self, lease: str, branch: Branch,
             members: set[str]) -> BranchVerdict:
        """Add a branch to the draft, and take it back unless it is OK."""
        begun = len(self.draft.steps)
        for one, action in branch:
            self._preempt(one, action)
        room = True
        if lease not in dict(branch) and self.contributes(lease):
            branch += ((lease, Action.MIG),)
            room = self._migrate(lease)
        verdict = (self._verdict(begun, members)
                   if room and not self.contributes(lease)
                   else BranchVerdict.RESOURCE)
        self.trace.append(Tried(branch, verdict))
        if verdict is BranchVerdict.OK:
            self.chosen += branch
        else:
            self.draft.rewind(begun)
        return verdict

    def _verdict(self, begun: int, members: set[str]) -> BranchVerdict:
        works = self.preview.works(self.draft.steps)
        touched = {host for step in self.draft.steps[begun:]
                   for host in (step.old.host, step.destination)}
        if any(self.preview.spoils(host, works)
               for host in sorted(touched - {None}, key=str) if host):
            return BranchVerdict.RESOURCE
        before = self._judged
        self._judged = before | members
        late = self.late(works)
        self._judged = before
        return BranchVerdict.TIME if late else BranchVerdict.OK

    # operations

    def _touched(self) -> set[str]:
        return {step.old.lease for step in self.draft.steps}

    def _may_preempt(self, lease: str) -> bool:
        """Tell whether a whole lease can be preempted now.

        Not if a member is busy or to be left alone (Boettger 3.7: locked).
        """
        members = self.draft.members(lease)
        return (any(one.state is InstanceState.ACTIVE for one in members)
                and not any(one.state is InstanceState.BUSY
                            or not self.draft.is_free(one)
                            for one in members))

    def _preempt(self, lease: str, action: Action) -> None:
        kind = OperationKind.STOP if action is Action.STOP else None
        for one in self.draft.members(lease):
            if one.state is InstanceState.ACTIVE:
                self.draft.preempt(one, kind)

    def _sacrifice(self, lease: str) -> None:
        """Stop a lease, in time or not, if that is of any use.

        What comes too late by that is lost, and held against nobody else.
        Where agents hold policies there is no hurry, and work is kept.
        """
        begun = len(self.draft.steps)
        if not self._may_preempt(lease):
            return
        hosts = self._failing_hosts()
        if not any(one.state is InstanceState.ACTIVE and one.host in hosts
                   for one in self.draft.members(lease)):
            return
        action = Action.SUSP if self._profile.agents_hold else Action.STOP
        self._preempt(lease, action)
        self._settled(lease, action, begun)

    def _migrate(self, lease: str) -> bool:
        """Migrate what violates a policy; False if there is no room."""
        for instance in self._leavers(lease):
            target = self._find_target(instance)
            if target is None:
                return False
            self.draft.migrate(instance, target)
        return True

    def _leavers(self, lease: str) -> list[Instance]:
        """Return as many instances as must leave, the largest first."""
        movable = sorted(
            filter(self.draft.is_movable, self.draft.members(lease)),
            key=lambda one: (-one.vcpus, one.uuid))
        leavers: list[Instance] = []
        for instance in movable:
            gone = [
                TimedOperation(OperationKind.MIGRATE, one.uuid, one.host, None)
                for one in leavers
            ]
            if not all(self.preview.holds(
                    one.place, one.policy, math.inf, self.preview.outcome(
                        self.draft.steps, one.place) + gone)
                       for one in self._on(instance.host)):
                leavers.append(instance)
        return leavers

    def _find_target(self, instance: Instance,
                     avoid: Collection[str] = ()) -> str | None:
        """Return the first host, of none to avoid, that takes it in time.

        If all that have room would take too long, the first of them: the
        branch then fails for want of time, not of room.
        """
        slow: str | None = None
        changes: dict[str, tuple[str, ...]] = defaultdict(tuple)
        places = self.preview.cluster.places
        needs = _needs(instance, self.draft.hosts.get(instance.host or ''))
        for step in self.draft.steps:
            for name in {place for host in {step.old.host, step.new.host}
                         - {None} for place in places(str(host))}:
                changes[name] += (step.kind, step.old.uuid)
        for host in self._targets:
            look = (host.name, tuple(changes[place] for place in places(
                host.name)), needs)
            if (host.name == instance.host or host.name in avoid
                    or look in self._unfit):
                continue
            if not self._budget.spend():
                return None
            if not self._fits(host, instance):
                self._unfit.add(look)
                continue
            begun = len(self.draft.steps)
            self.draft.migrate(instance, host.name)
            works = self.preview.works(self.draft.steps)
            self.draft.rewind(begun)
            if self.preview.spoils(host.name, works):
                continue
            if all(work.end_s <= self._deadline(work.source)
                   for work in works if work.target == host.name):
                return host.name
            slow = slow or host.name
            if len([1 for work in works
                    if host.name in (work.source, work.target)]) == 1:
                break   # nowhere is less going on
        return slow

    def _fits(self, host: Host, instance: Instance) -> bool:
        """Tell whether a host will have room for an instance in the end.

        The quick part of the check, without any times.
        """
        cluster = self.preview.cluster
        if any(cluster.at(place).violated
               and instance.host not in cluster.hosts_of(place)
               for place in cluster.places(host.name)):
            return False
        works = self.preview.outcome(
            self.draft.steps, *cluster.places(host.name))
        works.append(
            TimedOperation(
                OperationKind.MIGRATE, instance.uuid, instance.host, host.name
            )
        )
        return (
            self.draft.rooms.has_inventory(host.name, instance)
            and self.draft.rooms.satisfies_anti_affinity(host.name, instance)
            and self.preview.allow(host.name, works)
        )

    # time

    def _deadline(self, host: str | None) -> float:
        """Return what is left for a host, its lost violations aside."""
        return min((one.deadline_s for one in self._on(host)
                    if one not in self.lost),
                   default=math.inf) - self._elapsed()

    def _quickest(self) -> float:
        return self.preview.durations.of(OperationKind.STOP)

    def _hopeless(self, lease: str) -> bool:
        """Tell whether not even a lone stop would end in time."""
        return any(
            one.deadline_s - self._elapsed() < self._quickest()
            for one in self.failing()
            if any(member.host in self.preview.cluster.hosts_of(one.place)
                   and member.state is InstanceState.ACTIVE
                   for member in self.draft.members(lease)))

    def _give_up_what_is_lost(self) -> None:
        self.lost |= {one for one in self.violations
                      if one.deadline_s - self._elapsed()
                      < self._quickest()}

    def _overtaken(self) -> bool:
        """Tell whether what is chosen would by now come too late."""
        return bool(self._elapsed() and self.chosen and self.late(
            self.preview.works(self.draft.steps)))
