"""What a decision engine knows: the agents' reports and Nova's facts."""

from collections.abc import Callable
import dataclasses
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log

from secondary_scheduler.model import cluster, reports
from secondary_scheduler.policies import language
from secondary_scheduler.reports import book
from secondary_scheduler.watcher import cloud as clouds
from secondary_scheduler.watcher import history as histories
from secondary_scheduler.watcher import scope as scopes
from secondary_scheduler.watcher import snapshot as snapshots
from secondary_scheduler.watcher import violations

LOG = log.getLogger(__name__)

#: Most servers that are looked up one by one in a refresh.
_LOOK_UPS = 20


class Observer:
    """Holds reports and a snapshot, and makes the cluster model of them.

    :param connect: returns this process's ``cloud.Cloud``.
    :param clock: monotonic seconds.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 connect: Callable[[], clouds.Cloud],
                 history: histories.History,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._conf: Any = conf
        self.connect = connect
        self.history = history
        self.clock = clock
        self.book = book.HostBook(
            lambda: conf.secondary_scheduler.report_stale_after)
        self.window = violations.Window()
        self.arrived = threading.Event()
        self.snapshot = snapshots.Snapshot()
        self._switched_on: frozenset[str] | None = None
        self._strangers: set[str] = set()   # reported, but no secondaries
        self._lock = threading.Lock()

    # Reports

    def accept(self, report: reports.HostReport) -> None:
        """Take in a report of a host that Nova knows (risks.md F21)."""
        known = self.snapshot.hosts
        if known and report.host not in known:
            LOG.debug('Ignored a report of unknown host %s.', report.host)
            return
        if self.book.accept(report):
            self.window.note(report, self.clock())
            self.arrived.set()

    def describe_host(self, name: str) -> dict[str, Any]:
        """Answer an agent that asks who its host is.

        ``admission`` tells whether the feature is switched on there; it and
        everything else is missing while unknown.
        """
        host = self.snapshot.hosts.get(name)
        if host is None:
            return {}
        answer: dict[str, Any] = {
            'aggregates': sorted(host.place.aggregates),
            'total': dict(host.total)}
        if self._switched_on is not None:
            answer['admission'] = name in self._switched_on
        return answer

    # Snapshot

    def refresh(self) -> None:
        """Ask Nova and Placement for everything.

        :raises CloudError: if they do not answer; the old facts stay.
        """
        cloud = self.connect()
        hosts, groups = cloud.hosts(), cloud.anti_affinity()
        with self._lock:
            self.snapshot = dataclasses.replace(
                self.snapshot, hosts=hosts, groups=groups,
                hosts_time=self.clock())
            self._strangers.clear()
        self.refresh_servers()
        self._switched_on = self.switched_on(self.history.switches())

    def refresh_servers(self) -> None:
        """Ask Nova for the servers, as before each decision.

        :raises CloudError: if it does not answer.
        """
        cloud = self.connect()
        asked = self.clock()
        servers = cloud.servers()
        reported = {i.uuid for report in self.book.hosts().values()
                    for i in report.instances}
        unknown = sorted(reported - set(servers) - self._strangers)[:_LOOK_UPS]
        extra = clouds.look_up(cloud, unknown)
        servers.update(extra)
        with self._lock:
            self._strangers |= set(unknown) - set(extra)
            self.snapshot = dataclasses.replace(
                self.snapshot, servers=servers, servers_time=asked)

    def switched_on(self, switches: list[histories.Switch],
                    ) -> frozenset[str]:
        """Return the hosts on which the feature is switched on."""
        return frozenset().union(*(
            scopes.resolve(s.scope, self.snapshot.places).hosts
            for s in switches if s.on))

    # The cluster

    def relief_due(self) -> dict[str, float]:
        """Return hosts with instances too long at the floor, since when."""
        return self.window.relief(
            self._conf.secondary_watcher.floored_bound, self.clock())

    def _policies_hash(self) -> str | None:
        texts = self._conf.secondary_scheduler.policy
        if not texts:
            return None
        try:
            return language.fingerprint(language.parse_all(texts))
        except language.PolicyError as exc:
            LOG.critical('A policy cannot be read, no host takes '
                         'secondaries: %s', exc)
            return 'unreadable'

    def cluster(self, scope: scopes.Resolved,
                locks: histories.Locks) -> cluster.Cluster:
        """Build the cluster for a decision.

        :raises CloudError: if the facts of hosts are missing or too old.
        """
        snapshot = self.snapshot
        limit = self._conf.secondary_watcher.snapshot_stale_after
        if (snapshot.hosts_time is None
                or self.clock() - snapshot.hosts_time > limit):
            raise clouds.CloudError('What is known of the hosts is too old')
        fresh = self.book.hosts()
        expected = self._policies_hash()
        for name, report in fresh.items():
            if expected not in (None, report.policies_hash):
                LOG.warning('The agent on %s follows other policies than '
                            'this service: the host is closed.', name)
        return snapshots.build(
            snapshot, scope, fresh, blocked_hosts=locks.hosts,
            blocked_instances=locks.instances, relief=self.relief_due(),
            policies_hash=expected)
