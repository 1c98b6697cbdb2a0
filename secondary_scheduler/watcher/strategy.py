# SPDX-License-Identifier: Apache-2.0

"""Strategy: from the state of the cluster to the actions of a solution."""

from collections import Counter
import dataclasses
import functools
import textwrap
import time
from typing import Any, cast

from oslo_config import cfg
from oslo_log import log
from stevedore import driver
from watcher.decision_engine.strategy.strategies import base

from secondary_scheduler.decisions import base as decisions
from secondary_scheduler.estimation import durations, room
from secondary_scheduler.leases import drivers
from secondary_scheduler.model import cluster as model
from secondary_scheduler.model import lease_order, vocabulary
from secondary_scheduler.plans import checker, operations
from secondary_scheduler.watcher import cluster_collector, goal, stages
from secondary_scheduler.watcher.cloud_errors import CloudError
from secondary_scheduler.watcher.cluster_state import ClusterState
from secondary_scheduler.watcher.history import ACTION_PREFIX, AuditHistory
from secondary_scheduler.watcher.scope import ResolvedScope, resolve_scope
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

#: The driver that decides unless an audit names another.
DECISION = 'guided'
#: Kinds of decisions for each request, in the order in which they are tried.
KINDS: dict[str, tuple[decisions.RequestKind, ...]] = {
    'auto': ('preempt', 'return'), 'preempt': ('preempt',),
    'return': ('return',), 'drain': ('drain',)}


def within_breaker(plan: operations.Plan, allowed: int) -> operations.Plan:
    """Return the plan with at most ``allowed`` preemptions.

    Leases are counted in the order of the plan.  A lease with more preemptions
    than are left is dropped as a whole, as are the leases whose operations
    wait for one of its operations.
    """
    by_lease: dict[str, int] = {}
    for operation in plan.operations:
        if operation.kind in operations.PREEMPTIONS:
            by_lease[operation.lease] = by_lease.get(operation.lease, 0) + 1
    dropped: set[str] = set()
    for lease, count in by_lease.items():
        if count > allowed:
            dropped.add(lease)
        else:
            allowed -= count
    if not dropped:
        return plan
    gone = {o.id for o in plan.operations if o.lease in dropped}
    while True:
        more = {o.id for o in plan.operations if set(o.after) & gone} - gone
        if not more:
            break
        # An operation that waits for a dropped one drops its whole lease.
        leases = {o.lease for o in plan.operations if o.id in more}
        gone |= more | {o.id for o in plan.operations if o.lease in leases}
    return dataclasses.replace(plan, operations=tuple(
        o for o in plan.operations if o.id not in gone))


def breaker_limit(options: Any, secondaries: int) -> int:
    """Return the number of preemptions that a period may have on a scope."""
    return max(int(options.breaker_minimum),
               int(secondaries * options.breaker_percent / 100))


def load_decision(name: str, limits: room.LoadLimits,
                  lasting: durations.DurationModel,
                  order: lease_order.QueueOrder) -> decisions.Decision:
    """Return a decision driver by its name."""
    loaded: Any = driver.DriverManager(
        decisions.NAMESPACE, name, invoke_on_load=True,
        invoke_kwds={'limits': limits, 'durations': lasting,
                     'order': order}).driver
    return cast(decisions.Decision, loaded)


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
        return {
            '$schema': 'http://json-schema.org/draft-04/schema#',
            'type': 'object',
            'properties': {
                'request': {
                    'description': 'preempt: end the violations of hosts; '
                                   'return: bring back what was preempted or '
                                   'moved away; drain: clear hosts of '
                                   'running secondaries; auto: preempt if '
                                   'that is needed, else return.',
                    'type': 'string',
                    'enum': ['auto', 'preempt', 'return', 'drain'],
                    'default': 'auto'},
                'hosts': {
                    'description': 'Hosts the request is about; empty means '
                                   'all in the scope that need it, and none '
                                   'for drain.',
                    'type': 'array', 'items': {'type': 'string'},
                    'default': []},
                'decision': {
                    'description': 'Driver in the entry point namespace '
                                   'secondary_scheduler.decisions.',
                    'type': 'string', 'default': DECISION},
                'leases': {
                    'description': 'Of a CONTINUOUS audit: run the leases of '
                                   'the lease service on its scope.',
                    'type': 'boolean', 'default': False},
                'batch': {
                    'description': 'Set by the leader: the violations this '
                                   'audit handles.',
                    'type': ['string', 'null']},
                'switch': {
                    'description': 'Set by the leader: the CONTINUOUS audit '
                                   'on whose behalf this one runs.',
                    'type': ['string', 'null']},
            }}

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
        cluster = state.cluster(scope, history.locks())
        # Targets are inside this scope; drained instances may leave it.
        targets = on if request == 'drain' else on & scope.hosts
        cluster = self._open_only(cluster, targets)
        if not hosts and request != 'drain':    # a drain names its hosts
            hosts = scope.hosts
        asked = tuple(sorted(set(hosts or ()) & scope.hosts))
        kind, plan = self._decide(cluster, request, asked)
        stages.mark(batch, stages.DECIDED)
        if kind == 'preempt':
            plan = self._breaker(history, cluster, scope, plan)
        for place in plan.unresolved:
            LOG.warning('Not all instances could leave %s.'
                        if request == 'drain'
                        else 'The violation on %s is left to its agent.'
                        if place in cluster.hosts
                        else 'The policy of %s stays violated.', place)
        faults = checker.check(cluster, plan, self._limits.lanes)
        if faults:
            LOG.error('The plan is not carried out: %s', '; '.join(faults))
            return
        if self._must_wait(audit):      # a batch may have begun meanwhile
            return
        self._add_actions(plan, kind, batch)
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

    def _decide(self, cluster: model.Cluster, request: str,
                asked: tuple[str, ...]) -> tuple[str, operations.Plan]:
        """Return the first plan that is not empty, and its kind."""
        decision = load_decision(
            self.input_parameters.get('decision') or DECISION, self._limits,
            self.cluster_state.durations, drivers.load(
                'order', CONF.secondary_leases.order, CONF.secondary_leases))
        units = CONF.secondary_watcher.decision_budget
        kind, plan, unresolved = request, operations.Plan(), set[str]()
        for kind in KINDS[request] if asked else ():
            plan = decision.decide(
                cluster, decisions.DecisionRequest(kind, asked),
                decisions.Budget(units))
            unresolved.update(plan.unresolved)
            if plan:
                self._log_decision(kind, cluster, plan)
                break
        # A return does not resolve the violations that a preemption left.
        return kind, dataclasses.replace(
            plan, unresolved=tuple(sorted(unresolved)))

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

    @staticmethod
    def _breaker(history: AuditHistory, cluster: model.Cluster,
                 scope: ResolvedScope,
                 plan: operations.Plan) -> operations.Plan:
        if not any(o.kind in operations.PREEMPTIONS
                   for o in plan.operations):
            return plan
        options = CONF.secondary_watcher
        inside = {uuid for uuid, i in cluster.instances.items()
                  if i.host in scope.hosts or i.host is None}
        lately = len(history.preempted_lately() & inside)
        limit = breaker_limit(options, len(inside))
        kept = within_breaker(plan, max(0, limit - lately))
        if kept is not plan:
            left = set(plan.operations) - set(kept.operations)
            sources = {o.source for o in left} & cluster.hosts.keys()
            violated = {place for host in sources
                        for place in cluster.places(host)
                        if cluster.at(place).violated}
            kept = dataclasses.replace(kept, unresolved=tuple(
                sorted(violated.union(plan.unresolved))))
            LOG.error(
                'Circuit breaker: %(lately)d preemptions in the last '
                '%(period)d s of at most %(limit)d; %(left)d operations are '
                'left out, and only the agents protect primaries.', {
                    'lately': lately, 'period': options.breaker_period,
                    'limit': limit, 'left': len(left)})
        return kept

    def _add_actions(self, plan: operations.Plan, kind: str,
                     batch: str) -> None:
        for operation in plan.operations:
            parameters = {
                'operation_id': operation.id,
                'after': list(operation.after),
                'lease': operation.lease,
                'source': operation.source,
                'target': operation.target,
                'request': kind,
                'batch': batch}
            # Watcher's Action object takes no parameter that is None.
            self.solution.add_action(
                action_type=ACTION_PREFIX + operation.kind.value,
                resource_id=operation.instance,
                input_parameters={name: value for name, value
                                  in parameters.items()
                                  if value is not None})
