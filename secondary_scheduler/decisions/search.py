# SPDX-License-Identifier: Apache-2.0

"""Guided search for a set of operations that ends violations.

It follows Boettger 2012, section 4.4.3.2, corrected (see reference/errata,
Boettger, order of the search).  The leases that contribute to a violation are
settled one after the other, by priority.  Each may migrate, with preemption of
lower leases if needed.  It is preempted itself only if no preemption of lower
ones helps.  Sets of lower leases are tried in the order LOW, and each set with
the actions in the order LOWACTION, the gentlest first.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
import functools
import itertools
import math

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.branches import (
    Action,
    Branch,
    BranchVerdict,
    Tried,
    low_actions,
    low_order,
)
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.targets import TargetFinder
from secondary_scheduler.decisions.violations import CostProfile, Violation
from secondary_scheduler.decisions.what_if import WhatIf
from secondary_scheduler.estimation.feasibility import TimedOperation
from secondary_scheduler.model.cluster import Instance, InstanceState
from secondary_scheduler.plans.operations import OperationKind


class Search:
    """One search; its result is ``draft.steps``.

    ``trace`` has all branches that were tried, ``chosen`` the chosen actions,
    and ``lost`` the violations whose deadlines cannot be met.

    :param elapsed: returns the seconds since the decision began, which
        shorten every deadline; the search ends if the chosen actions would
        miss a deadline (Boettger 2012, section 4.4.5.2)
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
        self._at: dict[str, list[Violation]] = {}
        for one in self.violations:
            self._at.setdefault(one.place, []).append(one)
        self._targets = TargetFinder(draft, preview, budget, self._at.keys())

    @functools.cached_property
    def _lowest(self) -> list[str]:
        return self.draft.leases()[::-1]

    def _on(self, host: object) -> list[Violation]:
        """Return the violations of a host and of its items."""
        return [one for place in self.preview.cluster.places(str(host))
                for one in self._at.get(place, ())]

    def run(self) -> None:
        """Search until no lease contributes to a violation any more."""
        if self._profile.moves_first:
            self._relieve_items()
        near = {one.lease for host in self._failing_hosts()
                for one in self.draft.rooms.residents(host).values()}
        order = sorted(near, key=self.draft.ranks.__getitem__)
        high = [lease for lease in order if self.contributes(lease)]
        for place, lease in enumerate(high):
            # A hard case leaves a part of the budget to the others.
            floor = self._budget.units - self._budget.units // (
                2 * (len(high) - place))
            if self.contributes(lease) and not self._settle(lease, floor):
                break
        for lease in high:
            if self.contributes(lease) and lease not in self._touched():
                self._preempt_late(lease)

    def contributes(self, lease: str) -> bool:
        """Return whether a lease contributes to a violation after the steps.

        It does if one of its instances runs on a host where the policy finally
        fails.  Instances that are busy or in other states do not count, since
        no operation can move them.
        """
        here = {one.host for one in self.draft.members(lease)
                if one.state is InstanceState.ACTIVE}
        return any(self._fails(one) for host in here
                   for one in self._on(host))

    def failing(self) -> list[Violation]:
        """Return the violations that the steps do not end."""
        return [one for one in self.violations if self._fails(one)]

    def _failing_hosts(self) -> set[str]:
        return {host for one in self.failing()
                for host in self.preview.cluster.hosts_of(one.place)}

    def _fails(self, violation: Violation) -> bool:
        return not self.preview.holds(
            violation.place, violation.policy, math.inf,
            self.preview.outcome(self.draft.steps, violation.place))

    def late(self, works: Sequence[TimedOperation]) -> list[Violation]:
        """Return the violations that operations end too late or not at all.

        Only instances of settled leases and those with an operation count,
        since the other leases are settled later (see reference/errata,
        Boettger, order of the search).
        """
        judged = self._judged | {work.instance for work in works}
        spent = self._elapsed()
        return [one for one in self.violations if one not in self.lost
                and not self.preview.holds(
                    one.place, one.policy, one.deadline_s - spent, works,
                    judged)]

    # policies on the number of secondaries on several hosts

    def _relieve_items(self) -> None:
        """End violations of static policies on items by the lowest leases.

        Each instance that leaves makes the same room there, so no other
        choice spares a higher lease.  Leases migrate if possible.
        """
        items = self.preview.cluster.items
        for violation in self.violations:
            if violation.place not in items or not violation.policy.static:
                continue
            hosts = items[violation.place].hosts
            for lease in self._lowest:
                here = [one for one in self.draft.members(lease)
                        if one.state is InstanceState.ACTIVE
                        and one.host in hosts]
                if not here or not self._may_preempt(lease):
                    continue
                if not self._fails(violation) or not self._budget.spend():
                    break
                self._migrate_or_preempt(lease, here, hosts)

    def _migrate_or_preempt(self, lease: str, members: Sequence[Instance],
               hosts: Collection[str]) -> None:
        """Migrate members of a lease off hosts, or preempt it as a whole.

        Members that contribute to violations elsewhere migrate as well, since
        each instance has at most one operation.
        """
        begun = len(self.draft.steps)
        for instance in members:
            target = (self._targets.find_target(instance, self._deadline,
                                                hosts)
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
        """Note the action on a lease by the steps since ``begun``."""
        self._judged |= {step.old.uuid for step in self.draft.steps[begun:]}
        self.chosen += ((lease, action),)
        self.lost |= set(self.late(self.preview.works(self.draft.steps)))

    # one lease

    def _settle(self, lease: str, floor: int) -> bool:
        """Find a branch after which a lease does not contribute any more.

        :param floor: with fewer units of the budget left, no further lower
            leases are tried and the lease itself is preempted
        :returns: False if the search must end, since the budget is spent or
            the chosen actions would come too late (the meta-check)
        """
        self._note_lost_violations()
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
        self._preempt_late(lease)
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
        """Add a branch to the draft, and undo it unless it is OK."""
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
                   for host in (step.old.host, step.target)}
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
        """Return whether a whole lease can be preempted now.

        It cannot if a member is busy or excluded (Boettger 2012, section
        4.4.5.1).
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

    def _preempt_late(self, lease: str) -> None:
        """Preempt a lease, in time or not, if it is on a failing host.

        Violations that end too late by this are lost, and do not count for
        further leases.  The lease is stopped, or suspended if agents keep the
        policies meanwhile.
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
        """Migrate instances off violated places; False if there is no room."""
        for instance in self._leavers(lease):
            target = self._targets.find_target(instance, self._deadline)
            if target is None:
                return False
            self.draft.migrate(instance, target)
        return True

    def _leavers(self, lease: str) -> list[Instance]:
        """Return the instances that must leave, the largest first."""
        movable = sorted(
            filter(self.draft.is_movable, self.draft.members(lease)),
            key=lambda one: (-one.vcpus, one.uuid))
        leavers: list[Instance] = []
        for instance in movable:
            gone = [TimedOperation(OperationKind.MIGRATE, one.uuid, one.host,
                                   None) for one in leavers]
            if not all(self.preview.holds(
                    one.place, one.policy, math.inf, self.preview.outcome(
                        self.draft.steps, one.place) + gone)
                       for one in self._on(instance.host)):
                leavers.append(instance)
        return leavers

    # time

    def _deadline(self, host: str | None) -> float:
        """Return the seconds left for a host, without lost violations."""
        return min((one.deadline_s for one in self._on(host)
                    if one not in self.lost),
                   default=math.inf) - self._elapsed()

    def _quickest(self) -> float:
        return self.preview.durations.predict(OperationKind.STOP)

    def _hopeless(self, lease: str) -> bool:
        """Return whether not even a single stop would end in time."""
        return any(
            one.deadline_s - self._elapsed() < self._quickest()
            for one in self.failing()
            if any(member.host in self.preview.cluster.hosts_of(one.place)
                   and member.state is InstanceState.ACTIVE
                   for member in self.draft.members(lease)))

    def _note_lost_violations(self) -> None:
        self.lost |= {one for one in self.violations
                      if one.deadline_s - self._elapsed()
                      < self._quickest()}

    def _overtaken(self) -> bool:
        """Return whether the chosen actions would by now come too late."""
        return bool(self._elapsed() and self.chosen and self.late(
            self.preview.works(self.draft.steps)))
