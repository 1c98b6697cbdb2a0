"""The leader's thread that runs leases, where an audit says so."""

import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_log import log
from oslo_utils import uuidutils

from secondary_scheduler.leases.engine.values import Postponed
from secondary_scheduler.model import holds
from secondary_scheduler.reports import hold_messages
from secondary_scheduler.watcher import cluster_state, leader
from secondary_scheduler.watcher import history as histories

LOG = log.getLogger(__name__)


class LeaseRunner:
    """Does a pass every few seconds while this decision engine leads.

    What it needs beyond that is loaded when the first audit wants leases:
    the extra ``lease-engine`` brings it.
    """

    def __init__(self, conf: cfg.ConfigOpts, seen: cluster_state.ClusterState,
                 coordination: leader.Coordination) -> None:
        self._conf: Any = conf
        self._seen = seen
        self._coordination = coordination
        self._made: tuple[Any, Any] | None = None
        self._trouble = ''
        self._sender = hold_messages.HoldSender(conf)
        self._incarnation = uuidutils.generate_uuid()
        self._seq = 0
        self._held = False

    def start(self) -> None:
        """Run for the rest of the process's life."""
        threading.Thread(target=self._run, daemon=True,
                         name='secondary-leases').start()

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            self.tick()
            left = self._conf.secondary_leases.engine_interval - (
                time.monotonic() - began)
            time.sleep(max(0.1, left))

    def tick(self) -> None:
        """Do a pass, if leases are to be run and it is ours to run them."""
        try:
            switches = [one for one in self._seen.history.switches()
                        if one.on and one.leases]
            if switches and self._coordination.am_i_leader():
                self._pass(switches)
            elif self._made is not None:
                # Whoever goes on with them will have changed much.
                self._made[0].forget()
            self._trouble = ''
        except (Postponed, db_exception.DBConnectionError) as exc:
            # What a database says goes on with where to read about it.
            trouble = str(exc).partition('\n')[0]
            if trouble != self._trouble:
                LOG.warning('Leases wait: %s', trouble)
            self._trouble = trouble
        except Exception:
            LOG.exception('Running leases met a problem.')

    def _pass(self, switches: list[histories.Switch]) -> None:
        if self._made is None:
            self._made = self._make()
        engine, cloud = self._made
        cloud.switches = switches
        engine.run()
        self._tell(engine.holds)

    def _tell(self, hosts: dict[str, holds.Hold]) -> None:
        """Let schedulers know what is held; once if nothing is any more."""
        if hosts or self._held:
            self._seq += 1
            self._sender.send(holds.Holds(self._incarnation, self._seq,
                                          time.time(), hosts))
        self._held = bool(hosts)

    def _make(self) -> tuple[Any, Any]:
        from secondary_scheduler.leases.engine import making
        from secondary_scheduler.watcher.leases import (
            action_plans,
        )
        from secondary_scheduler.watcher.leases import (
            cloud as lease_cloud,
        )
        cloud = lease_cloud.LeaseCloud(
            self._seen, action_plans.LeaseHistory(self._seen.history))
        return making.engine(self._conf, cloud), cloud
