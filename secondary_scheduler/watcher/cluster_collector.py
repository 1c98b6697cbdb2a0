# SPDX-License-Identifier: Apache-2.0

"""Collector plug-in: state of the cloud in Watcher's decision engine."""

import os
import threading
from typing import Any
import uuid

from oslo_config import cfg
from oslo_log import log
from watcher.decision_engine.model import model_root
from watcher.decision_engine.model.collector import base

from secondary_scheduler.reports import report_messages
from secondary_scheduler.watcher import (
    cloud_connections,
    cluster_state,
    decision_measures,
    leader,
    metrics,
    policy_watch,
)
from secondary_scheduler.watcher.cloud_errors import CloudError
from secondary_scheduler.watcher.history import AuditHistory
from secondary_scheduler.watcher.leases import recorder, runner
from secondary_scheduler.watcher.scope import SecondaryScope
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

NAME = 'secondary'


class SecondaryCollector(base.BaseClusterDataModelCollector):
    """Process singleton with the cluster state and the leader's threads.

    Watcher constructs it before it forks its worker, and calls
    ``synchronize`` for the first time in the worker.  Listener and threads
    start with that call.  Watcher's own model stays empty; the strategy
    uses ``cluster_state``.
    """

    def __init__(self, config: Any, osc: Any = None) -> None:
        super().__init__(config, osc)
        self.cluster_state = cluster_state.ClusterState(
            CONF, cloud_connections.shared, AuditHistory(CONF))
        self._started_in: int | None = None
        self._starting = threading.Lock()

    @classmethod
    def get_config_opts(cls) -> list[cfg.Opt]:
        """Return the options of the collector's section in watcher.conf."""
        return [cfg.IntOpt(
            'period', default=30, min=1,
            help="""
Seconds between two complete refreshes of compute services, aggregates,
inventories and servers. Before a decision the servers on its hosts are
refreshed as well. A host is left out if its servers were listed at most 15
seconds ago and its agent reports the same ones as running.
""")]

    @property
    def notification_endpoints(self) -> list[Any]:
        """Return none: facts come by reports and by requests to Nova."""
        return []

    def get_audit_scope_handler(self, audit_scope: Any) -> SecondaryScope:
        """Return a handler that leaves Watcher's model unchanged."""
        return SecondaryScope(audit_scope, self.config)

    def execute(self) -> model_root.ModelRoot:
        """Refresh the snapshot; Watcher's own model stays empty."""
        self.start()
        try:
            self.cluster_state.refresh()
        except CloudError as exc:
            LOG.warning('The snapshot could not be refreshed: %s', exc)
        try:
            self.cluster_state.learn_durations()
        except Exception as exc:    # the last estimates stay
            LOG.warning('Durations were not learned: %s', exc)
        return model_root.ModelRoot()

    def start(self) -> None:
        """Start the listener and the threads, once in this process."""
        with self._starting:
            if self._started_in == os.getpid():
                return
            self._started_in = os.getpid()
        report_messages.ReportListener(
            CONF, self.cluster_state.accept,
            f'watcher-{CONF.host}-{os.getpid()}-{uuid.uuid4().hex[:8]}',
            describe=self.cluster_state.describe_host).start()
        coordination = leader.shared()
        coordination.start()
        policy_watch.PolicyWatch(
            CONF, self.cluster_state, coordination).start()
        runner.LeaseRunner(CONF, self.cluster_state, coordination).start()
        recorder.Recorder(CONF, self.cluster_state, coordination).start()
        metrics.start_metrics(CONF, self.cluster_state,
                              decision_measures.shared(), coordination)
