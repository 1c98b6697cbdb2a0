# SPDX-License-Identifier: Apache-2.0

"""Strategy: from the state of the cluster to the actions of a solution."""

from collections import Counter
from collections.abc import Sequence
import dataclasses
import functools
import logging
import textwrap
import time
from typing import Any, cast

from oslo_config import cfg
from oslo_log import log
from stevedore import driver
from watcher.decision_engine.strategy.strategies import base

from secondary_scheduler.decisions import base as decisions
from secondary_scheduler.decisions.context_switch import (
    SWITCH_KINDS,
    ContextSwitchDecision,
)
from secondary_scheduler.estimation import durations, room
from secondary_scheduler.leases import drivers
from secondary_scheduler.model import cluster as model
from secondary_scheduler.model import lease_order, vocabulary
from secondary_scheduler.plans import checker, operations
from secondary_scheduler.watcher import (
    cluster_collector,
    decision_measures,
    goal,
    stages,
)
from secondary_scheduler.watcher.audit_parameters import (
    DECISION,
    KINDS,
    SCHEMA,
    SWITCH_DECISION,
    request_kinds,
    switch_options,
)
from secondary_scheduler.watcher.breaker import apply_breaker
from secondary_scheduler.watcher.cloud_errors import CloudError
from secondary_scheduler.watcher.cluster_state import ClusterState
from secondary_scheduler.watcher.decision_process import DecisionProcess
from secondary_scheduler.watcher.history import SELECT_REQUEST
from secondary_scheduler.watcher.lease_facts import NO_FACTS
from secondary_scheduler.watcher.locks import Locks
from secondary_scheduler.watcher.model_files import write_model_file
from secondary_scheduler.watcher.per_process import PerProcess
from secondary_scheduler.watcher.plan_actions import add_actions
from secondary_scheduler.watcher.scope import ResolvedScope, resolve_scope
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

_decision_process = PerProcess(DecisionProcess)
#: Texts that this process has logged last, by their subject.
_told: dict[str, str] = {}


def load_decision(name: str, limits: room.LoadLimits,
                  lasting: durations.DurationModel,
                  order: lease_order.QueueOrder) -> decisions.Decision:
    """Return a decision driver by its name."""
    loaded: Any = driver.DriverManager(
        decisions.NAMESPACE, name, invoke_on_load=True,
        invoke_kwds={'limits': limits, 'durations': lasting,
                     'order': order}).driver
    return cast(decisions.Decision, loaded)


def find_plan(decision: decisions.Decision, cluster: model.Cluster,
              request: decisions.DecisionRequest, units: int
              ) -> operations.Plan:
    """Return the plan for a request.

    A decision for all leases takes long, and has a process of its own.

    :param units: budget
    """
    if isinstance(decision, ContextSwitchDecision) and (
            request.kind in SWITCH_KINDS):
        return _decision_process().decide(decision, cluster, request, units)
    return decision.decide(cluster, request, decisions.Budget(units))


def why_no_switch(cluster: model.Cluster, scope: ResolvedScope, locks: Locks
                  ) -> str:
    """Return the reason for which all leases stay as they are, or ''."""
    busy = [uuid for uuid in locks.busy_instances
            if uuid in cluster.instances
            and cluster.instances[uuid].host in scope.hosts]
    if busy:
        return f'another action plan works on {len(busy)} instances'
    running = [one for one in cluster.instances.values()
               if one.state is model.InstanceState.ACTIVE
               and one.host in scope.hosts]
    silent = sorted({one.host for one in running
                     if one.host in cluster.hosts and
                     cluster.hosts[one.host].cpu_primary is None})
    if silent:
        return 'no fresh reports of ' + textwrap.shorten(
            ', '.join(silent), 200)
    unknown = sum(one.wanted_cpu is None for one in running)
    return f'the demand of {unknown} instances is unknown' if unknown else ''


class SecondaryWorkloads(goal.Displayed, base.BaseStrategy):
    """Preempt secondaries in favour of primaries, and return them later.

    A CONTINUOUS audit with this strategy switches the feature on for its
    scope.  The leader creates ONESHOT audits for violations.  Watcher's
    compute model is not used: a copy of it takes seconds at 1,000 hosts (see
    reference/decisions, 8).
    """

    def __init__(self, config: Any, osc: Any = None) -> None:
        super().__init__(config, osc)
        self.planner = 'secondary'

    @classmethod
    def get_name(cls) -> str:
        """Return the name of the strategy and of its entry point."""
        return vocabulary.STRATEGY

    @classmethod
    def get_goal_name(cls) -> str:
        """Return the goal this strategy serves."""
        return vocabulary.GOAL

    @classmethod
    def get_config_opts(cls) -> list[cfg.Opt]:
        """Return no options: no datasource is used."""
        return []

    @classmethod
    def get_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of an audit's parameters."""
        return SCHEMA

    # Execution

    @property
    def cluster_state(self) -> ClusterState:
        """State of the cluster, as this decision engine knows it."""
        state: ClusterState = (
            self.collector_manager.get_cluster_model_collector(
                cluster_collector.NAME, osc=self.osc).cluster_state)
        return state

    def pre_execute(self) -> None:
        """Do nothing: no Watcher model, hence no check of one."""

    def post_execute(self) -> None:
        """Do nothing: the indicators are set with the plan."""

    def do_execute(self, audit: Any = None) -> None:
        """Fill the solution; leave it empty after an error.

        An exception must not fail a CONTINUOUS audit, which is the switch:
        Watcher would never run it again.  It does fail a ONESHOT audit.
        """
        self._set_indicators(model.Cluster({}, {}), operations.Plan())
        if audit.audit_type != 'CONTINUOUS':
            with self.cluster_state.batch(audit.uuid):
                self._solve(audit)
            return
        try:
            if not self._must_wait(audit):
                self._solve(audit)
        except CloudError as exc:
            LOG.warning('No decision on secondaries: %s', exc)
        except Exception as exc:
            LOG.exception('No decision on secondaries: %s', exc)

    def _must_wait(self, audit: Any) -> bool:
        """Return whether a CONTINUOUS audit must wait for a batch."""
        waits = (audit.audit_type == 'CONTINUOUS'
                 and self.cluster_state.in_batch)
        if waits:
            LOG.info('A batch is being handled; this audit runs again in its '
                     'next interval.')
        return bool(waits)

    def _solve(self, audit: Any) -> None:
        parameters = self.input_parameters
        batch = parameters.get('batch') or f'{audit.uuid}-{time.time():.0f}'
        stages.mark(batch, stages.STRATEGY)
        state = self.cluster_state
        history = state.history
        if audit.audit_type == 'ONESHOT' and history.has_plan(audit.uuid):
            LOG.info('Audit %s has a plan already.', audit.uuid)
            return
        switches = history.switches()
        request = parameters.get('request') or 'auto'
        switch = parameters.get('switch')
        if switch and request != 'drain' and not any(
                s.on for s in switches if s.uuid == switch):
            LOG.info('The switch %s is off, so nothing is done.', switch)
            return
        hosts = parameters.get('hosts')
        if request == 'drain':
            # No primary waits for it, and a host that was opened a moment
            # ago may spare instances a suspension.
            state.refresh_at_once()
        else:
            state.refresh_hosts(hosts or ())
        scope = resolve_scope(self.audit_scope, state.snapshot.places)
        on = state.switched_on(switches)
        options = switch_options(self.input_parameters)
        kinds = request_kinds(request, self._decision)
        locks = history.locks()
        runs_leases = any(s.on and s.leases for s in switches)
        cluster = state.cluster(
            scope, locks, state.lease_facts(
                options.minimum_run_s, runs_leases)
            if self._decision == SWITCH_DECISION else NO_FACTS)
        # Targets are inside this scope; drained instances may leave it.
        targets = on if request == 'drain' else on & scope.hosts
        cluster = self._open_only(cluster, targets)
        if not hosts and request != 'drain':    # a drain names its hosts
            hosts = scope.hosts
        asked = tuple(sorted(set(hosts or ()) & scope.hosts))
        if SELECT_REQUEST in kinds and (why := (
                'the schedule of leases is in another decision engine'
                if runs_leases and not state.has_schedule
                else why_no_switch(cluster, scope, locks))):
            LOG.info('No context switch: %s.', why)
            # Preempted leases return all the same, where all is known.
            kinds = KINDS['auto'] if request == 'auto' else ()
        began = time.monotonic()
        kind, plan = self._decide(cluster, kinds, asked)
        decision_measures.shared().note_decision(
            kind if plan else 'none', time.monotonic() - began,
            [one.kind.value for one in plan.operations],
            len(plan.unresolved))
        stages.mark(batch, stages.DECIDED)
        if audit.audit_type == 'CONTINUOUS':    # others must not be delayed
            write_model_file(CONF.secondary_watcher.model_directory,
                             audit.uuid, cluster)
        # An operator asks for a drain; a return only preempts what is half up.
        if kind in ('preempt', SELECT_REQUEST):
            plan = apply_breaker(history, cluster, scope, plan, kind)
        for place in plan.unresolved:
            LOG.warning('Not all instances could leave %s.'
                        if request == 'drain'
                        else 'Instances on %s want more than it has.'
                        if kind == SELECT_REQUEST
                        else 'The violation on %s is left to its agent.'
                        if place in cluster.hosts
                        else 'The policy of %s stays violated.', place)
        faults = checker.check(cluster, plan, self._limits.lanes)
        if faults:
            LOG.error('The plan is not carried out: %s', '; '.join(faults))
            return
        if self._must_wait(audit):      # a batch may have begun meanwhile
            return
        servers = state.snapshot.servers
        add_actions(self.solution, cluster, plan, kind, batch,
                    lambda uuid: servers[uuid].name,
                    stores_demand=self._decision == SWITCH_DECISION)
        self._set_indicators(cluster, plan, asked)

    def _set_indicators(self, cluster: model.Cluster, plan: operations.Plan,
                        asked: tuple[str, ...] = ()) -> None:
        self.solution.set_efficacy_indicators(
            **goal.Effect(cluster, plan, asked,
                          self._limits.entry_share).indicators())

    @staticmethod
    def _open_only(cluster: model.Cluster,
                   names: frozenset[str]) -> model.Cluster:
        return dataclasses.replace(cluster, hosts={
            name: dataclasses.replace(
                host, usable=host.usable and name in names)
            for name, host in cluster.hosts.items()})

    @functools.cached_property
    def _limits(self) -> room.LoadLimits:
        """Limits of this audit, unaffected by a later reload of options."""
        options = CONF.secondary_scheduler
        return room.LoadLimits(
            minimum_share=options.minimum_share,
            useful_share=options.useful_share,
            margin=options.set_point_margin,
            lanes=CONF.secondary_watcher.operations_per_host)

    @property
    def _decision(self) -> str:
        """Name of the decision driver."""
        return str(self.input_parameters.get('decision') or DECISION)

    def _decide(self, cluster: model.Cluster,
                kinds: Sequence[decisions.RequestKind],
                asked: tuple[str, ...]) -> tuple[str, operations.Plan]:
        """Return the first plan that is not empty, and its kind."""
        decision = load_decision(
            self._decision, self._limits,
            self.cluster_state.durations, drivers.load(
                'order', CONF.secondary_leases.order, CONF.secondary_leases))
        units = (self.input_parameters.get('budget')
                 or CONF.secondary_watcher.decision_budget)
        kind, plan, unresolved = '', operations.Plan(), set[str]()
        for kind in kinds if asked else ():
            plan = find_plan(decision, cluster, decisions.DecisionRequest(
                kind, asked, switch_options(self.input_parameters)), units)
            if plan.switch is not None:
                self._log_switch(plan.switch)
            unresolved.update(plan.unresolved)
            if plan:
                self._log_decision(kind, cluster, plan)
                break
        # A return does not resolve the violations that a preemption left.
        return kind, dataclasses.replace(
            plan, unresolved=tuple(sorted(unresolved)))

    @staticmethod
    def _log_switch(claim: operations.SwitchClaim) -> None:
        """Log the result of a decision for all leases, unless it is the last.

        Rounds with the same result would fill the log.
        """
        if claim.solver_missing and 'solver' not in _told:
            _told['solver'] = 'missing'
            LOG.warning('Plans of context switches are not optimised further: '
                        'the solver is missing. Install it by "pip install '
                        'secondary-scheduler[optimiser]".')
        text = (f'{claim.status}, {claim.objective} {claim.value:g}, at least '
                f'{claim.bound}; {claim.selected} leases are to run')
        if claim.conflict:
            text += textwrap.shorten(
                '; because of ' + ', '.join(claim.conflict), 500)
        if _told.get('switch') != text:
            _told['switch'] = text
            LOG.log(logging.WARNING if claim.conflict else logging.INFO,
                    'Context switch: %s.', text)

    @staticmethod
    def _log_decision(kind: str, cluster: model.Cluster,
                      plan: operations.Plan) -> None:
        count = Counter(str(one.kind) for one in plan.operations)
        closed = sorted(name for name in cluster.hosts
                        if not cluster.is_open(name))
        LOG.info('Decision %(kind)s: %(plan)s; hosts that take no instance at '
                 'the moment: %(closed)s.', {
                     'kind': kind, 'plan': ', '.join(
                         f'{number} x {one}' for one, number in count.items()),
                     'closed': textwrap.shorten(' '.join(closed), 200)
                     or 'none'})
