# SPDX-License-Identifier: Apache-2.0

"""Thread of the leader that records hosts and operations for operators."""

import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log

from secondary_scheduler.watcher import leader
from secondary_scheduler.watcher.cluster_state import ClusterState

LOG = log.getLogger(__name__)

#: Seconds between two records.
_PERIOD_S = 5.0


class Recorder:
    """Writes records every few seconds while this process leads.

    Records are written while an audit enables leases, since they are in the
    database of leases.
    """

    def __init__(self, conf: cfg.ConfigOpts, state: ClusterState,
                 coordination: leader.Coordination) -> None:
        self._conf = conf
        self._state = state
        self._coordination = coordination
        self._writer: Any = None
        self._trouble = ''

    def start(self) -> None:
        """Start the thread; it runs as long as the process."""
        threading.Thread(target=self._run, daemon=True,
                         name='secondary-recorder').start()

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            self.tick()
            time.sleep(max(0.5, _PERIOD_S - (time.monotonic() - began)))

    def tick(self) -> None:
        """Write records if an audit enables leases and this process leads."""
        try:
            if self._coordination.am_i_leader() and any(
                    one.on and one.leases
                    for one in self._state.history.switches()):
                self._write()
            self._trouble = ''
        except Exception as exc:
            # Records are for operators only: nothing else may depend on them.
            trouble = f'{type(exc).__name__}: {exc}'.partition('\n')[0]
            if trouble != self._trouble:
                LOG.warning('Hosts and operations are not recorded: %s',
                            trouble)
            self._trouble = trouble

    def _write(self) -> None:
        if self._writer is None:
            from secondary_scheduler.watcher.leases import record_writer
            self._writer = record_writer.RecordWriter(self._conf, self._state)
        self._writer.write()
