# SPDX-License-Identifier: Apache-2.0

"""Thread of the leader that runs the lease engine."""

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
from secondary_scheduler.watcher import (
    cluster_state,
    decision_measures,
    leader,
)
from secondary_scheduler.watcher.history import Switch
from secondary_scheduler.watcher.lease_facts import LeaseFacts

LOG = log.getLogger(__name__)


class LeaseRunner:
    """Runs a pass of the engine every few seconds while this process leads.

    The engine is imported when the first audit enables leases, since its
    requirements come with the extra ``lease-engine``.
    """

    def __init__(self, conf: cfg.ConfigOpts, seen: cluster_state.ClusterState,
                 coordination: leader.Coordination) -> None:
        self._conf: Any = conf
        self._seen = seen
        self._coordination = coordination
        self._parts: tuple[Any, Any] | None = None
        self._trouble = ''
        self._sender = hold_messages.HoldSender(conf)
        self._incarnation = uuidutils.generate_uuid()
        self._seq = 0
        self._held = False
        self._measures = decision_measures.shared()

    def start(self) -> None:
        """Start the thread; it runs as long as the process."""
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
        """Run a pass if an audit enables leases and this process leads."""
        try:
            switches = [one for one in self._seen.history.switches()
                        if one.on and one.leases]
            if switches and self._coordination.am_i_leader():
                self._pass(switches, self._coordination.term)
            elif self._parts is not None:
                # Another engine changes leases from now on.
                self._parts[0].drop_state()
                self._seen.note_schedule(None)
                self._measures.forget_leases()
            self._trouble = ''
        except (Postponed, db_exception.DBConnectionError) as exc:
            # Lines after the first one tell where to read about the error.
            trouble = str(exc).partition('\n')[0]
            if trouble != self._trouble:
                LOG.warning('Leases wait: %s', trouble)
            self._trouble = trouble
        except Exception:
            LOG.exception('A pass of the lease engine failed.')

    def _pass(self, switches: list[Switch], term: int) -> None:
        if self._parts is None:
            self._parts = self._build()
        engine, cloud = self._parts
        cloud.lead(switches, term)
        began = time.monotonic()
        done = False
        try:
            engine.run_pass(term)
            done = True
        finally:
            self._measures.note_pass(
                time.monotonic() - began,
                engine.count_leases() if done else None,
                engine.count_unknown_servers(),
                engine.count_unreadable_leases())
        self._seen.note_schedule(LeaseFacts(
            expected_claims={host: one.claims for host, one
                             in engine.expected.items()},
            guaranteed=engine.guaranteed_leases()))
        self._send_holds(engine.holds)

    def _send_holds(self, hosts: dict[str, holds.Hold]) -> None:
        """Send the holds to schedulers; when there are none left, once."""
        if hosts or self._held:
            self._seq += 1
            self._sender.send(holds.Holds(self._incarnation, self._seq,
                                          time.time(), hosts))
        self._held = bool(hosts)

    def _build(self) -> tuple[Any, Any]:
        from secondary_scheduler.watcher.leases import wiring
        return wiring.build_engine(self._conf, self._seen)
