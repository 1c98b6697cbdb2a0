# SPDX-License-Identifier: Apache-2.0

"""Decision ``context-switch``: decide for all leases anew.

A cluster-wide context switch (Hermenier 2009) selects the leases that run by
their actual demand, in the order of the queue, and reaches them by the
cheapest plan that is found.  A lease runs as a whole or not at all.

* ``select`` may suspend running leases in favour of others.
* ``return`` is the same without that: only leases that are down change.
* ``preempt`` and ``drain`` are decided by ``guided``.

A suspension loses no work.  So a running lease with a member that its flavor
has stopped or shelved is neither displaced nor migrated by a switch.  Its
members return as all others do.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
import dataclasses
import typing

from secondary_scheduler.decisions import base, ordering, returns
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.minimal_switch import (
    find_minimal_switch,
)
from secondary_scheduler.decisions.optimiser import Optimised, optimise
from secondary_scheduler.decisions.optimiser.optimise import measure_of
from secondary_scheduler.decisions.selection import SelectionOptions
from secondary_scheduler.decisions.steady_selection import select_steadily
from secondary_scheduler.decisions.switch_improvement import (
    measure_plan,
    read_sample,
)
from secondary_scheduler.decisions.switch_limit import choose_leases
from secondary_scheduler.decisions.switch_model import (
    SwitchModel,
    SwitchModelBuilder,
    add_steps,
    with_demand,
)
from secondary_scheduler.decisions.switch_ordering import (
    arrange_switch,
    leases_awaited,
)
from secondary_scheduler.estimation.durations import DurationInput
from secondary_scheduler.estimation.room import RUNNING
from secondary_scheduler.model.cluster import (
    Cluster,
    Instance,
    InstanceState,
)
from secondary_scheduler.model.configuration import (
    Configuration,
    Move,
    Pool,
    natural_key,
)
from secondary_scheduler.model.operation_kinds import OperationKind
from secondary_scheduler.plans.operations import (
    ClaimedState,
    Plan,
    SwitchClaim,
)

#: Requests that are decided for all leases.
SWITCH_KINDS = ('select', 'return')


class Improvement(typing.NamedTuple):
    """Cost of a given plan, and the cheapest plan to the same states.

    :param found: has no claims if no such plan is found
    """

    given: float
    found: Plan


class ContextSwitchDecision(base.Decision):
    """Run the first leases of the queue that fit, and move little for it."""

    def decide(self, cluster: Cluster, request: base.DecisionRequest,
               budget: base.Budget) -> Plan:
        """Return the plan for a request (see ``base.Decision``).

        :raises ValueError: the objective is unknown
        """
        if request.kind not in SWITCH_KINDS:
            return GuidedDecision(
                self.limits, self.durations, order=self.order
            ).decide(cluster, request, budget)
        measure_of(request.switch.objective, lambda move: 0.0)
        scope = [name for name in cluster.hosts
                 if not request.hosts or name in request.hosts]
        halves = self._preempt_halves(cluster, scope)
        if halves:
            return halves
        model = SwitchModelBuilder(
            cluster, scope, self.limits, self.order
        ).build(displaces=request.kind == 'select')
        return self.switch(cluster, model, request.switch, budget)

    def _preempt_halves(self, cluster: Cluster, scope: Collection[str]
                        ) -> Plan:
        """Preempt leases with a member that cannot return yet.

        The other leases are decided for in the next round.
        """
        if not any(one.return_failed for one in cluster.instances.values()):
            return Plan()
        draft = Draft(cluster, self.limits)
        returns.preempt_partial_leases(draft, scope)
        return Plan(ordering.arrange_steps(
            cluster, draft.steps, self.limits, self.durations))

    def switch(self, cluster: Cluster, model: SwitchModel,
               options: base.SwitchOptions, budget: base.Budget) -> Plan:
        """Return the plan of a switch by the queue of a model.

        A lease without a way to its state remains as it is, and displaces no
        other one.  The plan names it as a conflict.
        """
        left: set[str] = set()
        while True:
            sample = _select(model, options, left)
            if model.has_reached(sample):
                return _with_conflict(Plan(switch=SwitchClaim(
                    options.objective, 0, 0, 'nothing_to_do', {},
                    selected=_count_running(model, cluster.instances))), left)
            plan, more = self.reach(cluster, model, sample, options, budget)
            if left.issuperset(more):
                return _with_conflict(plan, left)
            left.update(more)

    def drain_hosts(self, cluster: Cluster, hosts: Collection[str],
                    options: base.SwitchOptions, budget: base.Budget) -> Plan:
        """Return the cheapest plan that clears hosts of running instances.

        Leases that run go on where there is room, the first of the queue
        first, and no other lease starts.
        """
        model = SwitchModelBuilder(
            cluster, cluster.hosts, self.limits, self.order
        ).build(drained=hosts)
        plan = self.switch(cluster, model, options, budget)
        uuids = {one.instance for one in plan.operations
                 if one.target not in hosts}
        occupied = {host for host in hosts
                    if any(one.state in RUNNING and one.uuid not in uuids
                           for one in cluster.residents(host))}
        return dataclasses.replace(plan, unresolved=tuple(sorted(
            occupied.union(plan.unresolved))))

    def improve_plan(self, cluster: Cluster, plan: Plan,
                     options: base.SwitchOptions, budget: base.Budget
                     ) -> Improvement:
        """Look for a cheaper plan to the states that a valid plan leads to.

        :raises UnsuitablePlan: it does not consist of operations of a switch
        """
        model = SwitchModelBuilder(
            cluster, cluster.hosts, self.limits, self.order).build()
        found, left = self.reach(
            cluster, model, read_sample(model, plan), options, budget)
        return Improvement(
            measure_plan(plan, model, measure_of(
                options.objective, self._seconds(cluster))),
            Plan() if left else found)

    def reach(self, cluster: Cluster, model: SwitchModel,
              sample: Configuration, options: base.SwitchOptions,
              budget: base.Budget) -> tuple[Plan, tuple[str, ...]]:
        """Return the cheapest plan to the states of a sample.

        :returns: the plan, and the leases that it leaves as they are since no
            operations bring them to these states
        """
        seconds = self._seconds(cluster)
        measure = measure_of(options.objective, seconds)
        found = find_minimal_switch(
            model.configuration, sample, measure) or optimise(
            model.configuration, sample, options.objective, budget, seconds)
        bound: float | None = found.bound
        value, status, pools = found.value, str(found.status), (
            found.switch.pools)
        draft = self._draft(cluster, pools)
        if 0 < options.most_operations < len(draft.steps):
            kept = choose_leases(model.leases, leases_awaited(
                draft.cluster, draft.steps, self.limits), draft.steps,
                options.most_operations)
            pools = tuple(filter(None, (
                tuple(move for move in pool if move.lease in kept)
                for pool in pools)))
            value = measure(pools)
            bound, status = None, 'feasible'
            draft = self._draft(cluster, pools)
        moves = [move for pool in pools for move in pool]
        return Plan(
            arrange_switch(draft.cluster, draft.steps, self.limits,
                           self.durations),
            _overloaded(found), budget.truncated, SwitchClaim(
                options.objective, value, bound, status,
                _states_after(draft), _bypassed(moves),
                _count_running(model, draft.instances),
                sum(move.bypass for move in moves), found.conflict,
                found.solver_missing)), found.left

    def _seconds(self, cluster: Cluster) -> Callable[[Move], float]:
        """Return the function that predicts the seconds of a move."""
        def seconds(move: Move) -> float:
            kind = (OperationKind.UNSHELVE if move.kind is OperationKind.BOOT
                    else move.kind)
            return self.durations.predict_all([DurationInput(
                kind, move.source, move.target, move.memory_mb,
                cluster.instances[move.member].dirty)])[0]
        return seconds

    def _draft(self, cluster: Cluster, pools: Iterable[Pool]) -> Draft:
        draft = Draft(with_demand(cluster, self.limits), self.limits)
        add_steps(draft, (move for pool in pools for move in pool))
        return draft


def _select(model: SwitchModel, options: base.SwitchOptions,
            left: Collection[str]) -> Configuration:
    """Return a configuration in which the first leases of the queue run.

    :param left: leases that remain as they are
    """
    current = model.configuration
    if model.all_run and model.has_reached(current):
        return current
    return select_steadily(
        current, [one for one in model.queue if one.name not in left],
        SelectionOptions(options.minimum_run_s, options.displacement_margin),
        options.headroom, model.growth()).sample


def _with_conflict(plan: Plan, left: Collection[str]) -> Plan:
    """Return a plan of which the conflict names the leases it leaves."""
    if plan.switch is None or not left:
        return plan
    return dataclasses.replace(plan, switch=dataclasses.replace(
        plan.switch, conflict=tuple(dict.fromkeys((
            *plan.switch.conflict, *(f'lease {one}' for one in sorted(
                left, key=natural_key)))))))


def _states_after(draft: Draft) -> dict[str, ClaimedState]:
    """Return the states of the changed instances after a draft."""
    last = {step.old.uuid: step.new for step in draft.steps}
    return {uuid: ClaimedState(new.state, new.host)
            for uuid, new in last.items()}


def _bypassed(moves: Iterable[Move]) -> tuple[str, ...]:
    """Return the leases that a switch suspends and resumes."""
    leases: dict[OperationKind, set[str]] = {
        OperationKind.SUSPEND: set(), OperationKind.RESUME: set()}
    for move in moves:
        if move.kind in leases:
            leases[move.kind].add(move.lease)
    return tuple(sorted(set.intersection(*leases.values())))


def _overloaded(found: Optimised) -> tuple[str, ...]:
    """Return the hosts that remain overloaded."""
    reached = found.switch.reached
    return tuple(sorted(
        host for host, amounts in reached.used().items()
        if any(amount > most for amount, most in zip(
            amounts, reached.capacity[host], strict=True))))


def _count_running(model: SwitchModel,
                   instances: Mapping[str, Instance]) -> int:
    """Return the number of leases of the queue that run as a whole."""
    return sum(
        all(instances[one.name].state is InstanceState.ACTIVE
            for one in model.configuration.leases[lease] if not one.fixed)
        for lease in model.leases)
