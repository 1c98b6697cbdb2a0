# SPDX-License-Identifier: Apache-2.0

"""Knowledge of a decision engine: agents' reports and Nova's facts."""

from collections.abc import Callable, Collection, Iterator
import contextlib
import dataclasses
import statistics
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log

from secondary_scheduler.estimation import learning
from secondary_scheduler.model import cluster, reports, resources
from secondary_scheduler.model.constraints import Constraint
from secondary_scheduler.policies import language
from secondary_scheduler.reports import book
from secondary_scheduler.watcher import aggregate_policies, locks, violations
from secondary_scheduler.watcher.cloud import Cloud
from secondary_scheduler.watcher.cloud_errors import CloudError
from secondary_scheduler.watcher.cloud_snapshot import (
    CloudSnapshot,
    node_of,
)
from secondary_scheduler.watcher.cluster_builder import build_cluster
from secondary_scheduler.watcher.constraint_file import ConstraintFile
from secondary_scheduler.watcher.history import AuditHistory, Switch
from secondary_scheduler.watcher.lease_facts import NO_FACTS, LeaseFacts
from secondary_scheduler.watcher.nova_constraints import find_nova_constraints
from secondary_scheduler.watcher.scope import ResolvedScope, resolve_scope
from secondary_scheduler.watcher.snapshot_keeper import SnapshotKeeper
from secondary_scheduler.watcher.unlimited_use import UnlimitedUse

LOG = log.getLogger(__name__)

#: Seconds after a decision in which its plan makes its first calls.
_FIRST_CALLS_S = 2.0
#: Seconds between two evaluations of the policies of aggregates.
_TOTALS_S = 1.0
#: Longest time in seconds for which a refresh waits for batches.
_REFRESH_DELAY_S = 10.0


class ClusterState:
    """Keeps reports and a snapshot, and builds the cluster model from them.

    :param connect: returns this process's ``cloud.Cloud``.
    :param clock: returns monotonic seconds.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 connect: Callable[[], Cloud],
                 history: AuditHistory,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._conf: Any = conf
        self.connect = connect
        self.history = history
        self.clock = clock
        self.book = book.HostBook(
            lambda: conf.secondary_scheduler.report_stale_after)
        self.window = violations.Window()
        self._unlimited = UnlimitedUse(clock)
        self.arrived = threading.Event()
        self._batches: set[str] = set()     # audits being decided
        self._acting_until = clock()
        self._keeper = SnapshotKeeper(connect, self.book, clock)
        self._texts: tuple[str, ...] = ()
        self._parsed: tuple[language.Policy, ...] | None = ()
        self._totals_due = clock()
        #: Exceeded policies of aggregates that have been logged.
        self._logged: frozenset[str] = frozenset()
        #: Hosts that stand for such a policy; see ``note_totals``.
        self._delegates: frozenset[str] = frozenset()
        self._constraint_file = ConstraintFile(
            lambda: conf.secondary_watcher.constraints_file)
        self.durations = learning.LearnedDurations()
        self._learned: tuple[list[learning.Observed], float | None] = (
            [], None)
        #: Facts of the lease engine, None unless it runs in this process.
        self._schedule: LeaseFacts | None = None

    # Reports

    def accept(self, report: reports.HostReport) -> None:
        """Take in a report, unless Nova does not know its host."""
        known = self.snapshot.hosts
        if known and report.host not in known:
            LOG.debug('Ignored a report of unknown host %s.', report.host)
            return
        if self._conf.secondary_watcher.leave_dynamic_policies_to_agents:
            report = _left_to_the_agent(report)
        if self.book.accept(report):
            self._unlimited.note(report)
            self._note(report)
            self.arrived.set()

    def _note(self, report: reports.HostReport) -> None:
        """Note violations, unless Nova cannot act on the host.

        Its agent holds the policies; the first report after its cell answers
        again is noted.
        """
        if report.host in self.snapshot.unreachable_hosts:
            report = dataclasses.replace(report, policies=(), instances=())
        self.window.note(report, self.clock(),
                         together=report.host in self._delegates)

    def note_totals(self) -> None:
        """Evaluate the policies of aggregates, at most once a second.

        One reachable host with instances stands for all hosts that exceed a
        policy together.  The others may have violations of their own, and each
        host is handled separately.
        """
        if self.clock() < self._totals_due:
            return
        self._totals_due = self.clock() + _TOTALS_S
        exceeded = self._exceeded()
        for text in exceeded.keys() - self._logged:
            LOG.warning('Violated: %(policy)s. %(running)d run.', {
                'policy': text,
                'running': len(self.book.running(exceeded[text]))})
        self._logged = frozenset(exceeded)
        known = self.book.hosts()
        away = self.snapshot.unreachable_hosts
        before, self._delegates = self._delegates, frozenset(
            next((host for host in sorted(hosts - away)
                  if host in known and known[host].instances), '')
            for hosts in exceeded.values())
        for host in (before ^ self._delegates) & known.keys():
            self._note(known[host])

    def _exceeded(self) -> dict[str, frozenset[str]]:
        policies = [one for one in self._policies() or () if one.total]
        return (
            aggregate_policies.exceeded(
                policies, self.snapshot.places, self.book.running
            )
            if policies
            else {}
        )

    def describe_host(self, name: str) -> dict[str, Any]:
        """Return aggregates and inventory of a host; empty if unknown."""
        host = self.snapshot.hosts.get(name)
        if host is None:
            return {}
        return {'aggregates': sorted(host.place.aggregates),
                'total': dict(host.total)}

    @contextlib.contextmanager
    def batch(self, audit: str) -> Iterator[None]:
        """Mark an audit as being decided; other requests wait meanwhile."""
        self._batches.add(audit)
        try:
            yield
            self._acting_until = self.clock() + _FIRST_CALLS_S
        finally:
            self._batches.discard(audit)

    @property
    def in_batch(self) -> bool:
        """Whether a batch is being decided, or makes its first calls.

        Other requests to Nova meanwhile would delay the relief of a host.
        """
        return bool(self._batches) or self.clock() < self._acting_until

    @property
    def complete(self) -> bool:
        """Whether every host that could take secondaries has reported."""
        fresh = self.book.hosts()
        return self.snapshot.hosts_time is not None and all(
            name in fresh for name, host in self.snapshot.hosts.items()
            if host.up and host.total)

    # Snapshot

    @property
    def snapshot(self) -> CloudSnapshot:
        """Facts of Nova and Placement as of the last refreshes."""
        return self._keeper.snapshot

    def refresh(self) -> None:
        """Refresh all facts from Nova and Placement, after running batches.

        :raises CloudError: if they do not answer; the old facts stay.
        """
        until = self.clock() + _REFRESH_DELAY_S
        while self.in_batch and self.clock() < until:
            time.sleep(0.1)
        self.refresh_at_once()

    def refresh_at_once(self) -> None:
        """Refresh all facts from Nova and Placement, also during a batch.

        :raises CloudError: if they do not answer; the old facts stay.
        """
        self._keeper.refresh_all()

    def refresh_hosts(self, names: Collection[str]) -> None:
        """Refresh the servers on the hosts of a decision.

        :raises CloudError: if Nova does not answer.
        """
        self._keeper.refresh_hosts(names)

    def refresh_servers(self, known: Collection[str] = ()) -> frozenset[str]:
        """Refresh all servers of secondaries.

        :param known: UUIDs of further servers to look up.
        :returns: UUIDs of servers that do not exist, or are no secondaries,
            any more.
        :raises CloudError: if Nova does not answer.
        """
        return self._keeper.refresh_servers(known)

    def learn_durations(self) -> None:
        """Fit the durations of operations to the last ones observed."""
        rates = [report.migration_mb_s for report in self.book.hosts().values()
                 if (report.migration_mb_s or 0) >= 1]  # else no rate at all
        learned = (self.history.observed(),
                   statistics.median(rates) if rates else None)
        if learned == self._learned:
            return
        self._learned = learned
        observed, bandwidth = learned
        self.durations = learning.fit(learning.points(observed),
                                      bandwidth_mb_s=bandwidth)
        LOG.info('Operations are expected to take: %s.', ', '.join(
            f'{kind} {line.base:.1f} + {line.each:.1f} x n s '
            f'({line.operations}, {line.typical_mb:.0f} MiB)'
            for kind, line in self.durations.lines.items())
            or 'the defaults, for few guests on shared storage')
        if bandwidth:
            LOG.info('Live migrations copy %.0f MiB/s.', bandwidth)

    def note_switched(self, name: str, off: bool) -> None:
        """Note that a host was switched off or on, until the next refresh."""
        self._keeper.note_switched(name, off)

    def switched_on(self, switches: list[Switch],
                    ) -> frozenset[str]:
        """Return the hosts on which the feature is switched on."""
        return frozenset().union(*(
            resolve_scope(s.scope, self.snapshot.places).hosts
            for s in switches if s.on))

    # The cluster

    def relief_due(self) -> dict[str, float]:
        """Return hosts with instances at the floor for too long.

        :returns: times (of ``clock``) since when, by host.
        """
        return self.window.relief(
            self._conf.secondary_watcher.floor_time_limit, self.clock())

    def _policies(self) -> tuple[language.Policy, ...] | None:
        """Return the configured policies, None if one cannot be parsed."""
        texts = tuple(self._conf.secondary_scheduler.policy)
        if texts != self._texts:
            try:
                self._parsed = language.parse_all(texts)
            except language.PolicyError as exc:
                LOG.critical('A policy cannot be read, no host takes '
                             'secondaries: %s', exc)
                self._parsed = None
            self._texts = texts
        return self._parsed

    @property
    def policies_hash(self) -> str | None:
        """Fingerprint of the configured policies that agents should follow.

        "unreadable" if one cannot be parsed; None if there are none.
        """
        policies = self._policies()
        return (language.fingerprint(policies) if policies
                else 'unreadable' if policies is None else None)

    def note_schedule(self, facts: LeaseFacts | None) -> None:
        """Take in the facts of a pass of the lease engine.

        :param facts: None if the engine runs in another process from now on.
        """
        self._schedule = facts

    @property
    def has_schedule(self) -> bool:
        """Whether the lease engine runs in this process."""
        return self._schedule is not None

    def lease_facts(self, minimum_run_s: float, runs_leases: bool
                    ) -> LeaseFacts:
        """Return the facts about leases for a decision on all of them.

        Without the schedule of the lease engine all of its leases count as
        guaranteed, since nothing may displace a guaranteed start.

        :param minimum_run_s: age in seconds above which a return is not
            needed.
        :param runs_leases: a lease engine runs anywhere.  Without one the
            labels of servers come from their owners only.
        """
        schedule = self._schedule or (LeaseFacts(guaranteed=frozenset(
            server.lease for server in self.snapshot.servers.values()
            if node_of(server.metadata))) if runs_leases else NO_FACTS)
        return dataclasses.replace(
            schedule, returned=self.history.returned_lately(minimum_run_s),
            default_demand=self._conf.secondary_watcher.default_demand,
            unlimited=self._unlimited.recent())

    def cluster(self, scope: ResolvedScope, held: locks.Locks,
                facts: LeaseFacts = NO_FACTS) -> cluster.Cluster:
        """Build the cluster for a decision.

        :param facts: facts that only a decision on all leases needs.
        :raises CloudError: if the facts of hosts are missing or too old.
        """
        snapshot = self.snapshot
        limit = self._conf.secondary_watcher.snapshot_stale_after
        if (snapshot.hosts_time is None
                or self.clock() - snapshot.hosts_time > limit):
            raise CloudError('The facts about hosts are too old')
        fresh = self.book.hosts()
        policies, expected = self._policies(), self.policies_hash
        for name, report in fresh.items():
            if expected not in (None, report.policies_hash):
                LOG.warning('The agent on %s follows other policies than '
                            'this service: the host is closed.', name)
        found = build_cluster(
            snapshot, scope, fresh, held, self.durations,
            relief=self.relief_due(), policies_hash=expected,
            share=self._conf.secondary_scheduler.useful_share, facts=facts)
        return dataclasses.replace(found, items=aggregate_policies.items(
            policies or (), found, snapshot.places, scope.hosts,
            self._exceeded()), constraints=self.find_constraints(snapshot, [
                name for name, host in found.hosts.items() if host.usable]))

    def find_constraints(self, snapshot: CloudSnapshot,
                         usable: Collection[str]) -> tuple[Constraint, ...]:
        """Return the placement constraints of Nova and of the operator.

        :param usable: hosts that a decision may bring an instance to
        """
        return (*find_nova_constraints(snapshot, usable),
                *self._constraint_file.find_constraints(
                    lambda: snapshot.names))


def _left_to_the_agent(report: reports.HostReport) -> reports.HostReport:
    """Return a report without violations that its agent can handle alone.

    It cannot restore a policy of a static resource.  It has failed to restore
    an invalid policy in time.
    """
    return dataclasses.replace(report, policies=tuple(
        dataclasses.replace(one, state=reports.PolicyState.FAILING)
        if one.state is reports.PolicyState.VIOLATED
        and one.resource not in resources.STATIC
        else one for one in report.policies))
