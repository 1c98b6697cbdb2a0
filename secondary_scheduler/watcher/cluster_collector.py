"""The plug-in through which Watcher holds our knowledge of the cloud."""

import os
import threading
from typing import Any
import uuid

from oslo_config import cfg
from oslo_log import log
from watcher.decision_engine.model import model_root
from watcher.decision_engine.model.collector import base

from secondary_scheduler.reports import report_messages
from secondary_scheduler.watcher import cloud as clouds
from secondary_scheduler.watcher import cluster_state, leader, policy_watch
from secondary_scheduler.watcher import history as histories
from secondary_scheduler.watcher import scope as scopes
from secondary_scheduler.watcher.leases import runner
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

NAME = 'secondary'


class SecondaryCollector(base.BaseClusterDataModelCollector):
    """Process singleton with reports, snapshot and the leader's thread.

    Watcher constructs it before it forks its worker, and calls
    ``synchronize`` for the first time in the worker: only then does
    anything listen or run.  Watcher's own model stays empty; the strategy
    asks the ``observer``.
    """

    def __init__(self, config: Any, osc: Any = None) -> None:
        super().__init__(config, osc)
        self.observer = cluster_state.ClusterState(
            CONF, clouds.shared, histories.AuditHistory(CONF))
        self._started_in: int | None = None
        self._starting = threading.Lock()

    @classmethod
    def get_config_opts(cls) -> list[cfg.Opt]:
        """Options of [watcher_cluster_data_model_collectors.secondary]."""
        return [cfg.IntOpt(
            'period', default=30, min=1,
            help="""
Seconds between two complete looks at compute services, aggregates,
inventories and servers. The servers on the hosts of a decision are asked for
before it as well, unless they were 15 seconds ago at most and the host's agent
sees the same ones run.
""")]

    @property
    def notification_endpoints(self) -> list[Any]:
        """None: what we learn comes by reports and by asking."""
        return []

    def get_audit_scope_handler(self, audit_scope: Any,
                                ) -> scopes.SecondaryScope:
        """Return a handler that leaves Watcher's model as it is."""
        return scopes.SecondaryScope(audit_scope, self.config)

    def execute(self) -> model_root.ModelRoot:
        """Refresh the snapshot; Watcher's own model stays empty."""
        self.start()
        try:
            self.observer.refresh()
        except clouds.CloudError as exc:
            LOG.warning('The collector could not look at the cloud: %s', exc)
        try:
            self.observer.learn()
        except Exception as exc:    # the last estimates stay
            LOG.warning('Nothing was learned of durations: %s', exc)
        return model_root.ModelRoot()

    def start(self) -> None:
        """Listen and watch, once in this process."""
        with self._starting:
            if self._started_in == os.getpid():
                return
            self._started_in = os.getpid()
        report_messages.ReportListener(
            CONF, self.observer.accept,
            f'watcher-{CONF.host}-{os.getpid()}-{uuid.uuid4().hex[:8]}',
            describe=self.observer.describe_host).start()
        policy_watch.Watch(CONF, self.observer, leader.shared()).start()
        runner.LeaseRunner(CONF, self.observer, leader.shared()).start()
