# SPDX-License-Identifier: Apache-2.0

"""Counts and durations of a decision engine since its start."""

import collections
from collections.abc import Iterable, Mapping
import threading
import time

from secondary_scheduler.model import measures
from secondary_scheduler.watcher import per_process
from secondary_scheduler.watcher.terms import WaitingOperations


class DecisionMeasures:
    """Measures of decisions, operations and passes of the lease engine.

    All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Decisions by request; "none" if no plan was needed.
        self.decisions: collections.Counter[tuple[str]] = (
            collections.Counter())
        self.decision_seconds = measures.make_histograms()
        #: Planned operations by kind.
        self.planned: collections.Counter[tuple[str]] = collections.Counter()
        self.unresolved = 0
        #: Operations that the circuit breaker has left out.
        self.stopped = 0
        #: Operations that have ended, by kind and state.
        self.ended: collections.Counter[tuple[str, str]] = (
            collections.Counter())
        self.operation_seconds = measures.make_histograms()
        #: Passes of the lease engine by result.
        self.passes: collections.Counter[tuple[str]] = collections.Counter(
            {('done',): 0, ('failed',): 0})
        self.pass_seconds = measures.make_histograms()
        #: Time of the last complete pass, in seconds since 1970.
        self.last_pass: float | None = None
        #: Leases that are not over, by state; None unless this engine runs
        #: them.
        self.leases: Mapping[str, int] | None = None
        #: Operations that wait to begin; None unless this engine leads.
        self.waiting: WaitingOperations | None = None
        #: Servers of leases that the database does not know, likewise.
        self.unknown_servers: int | None = None
        #: Leases that cannot be read, likewise.
        self.unreadable_leases: int | None = None

    def note_decision(self, request: str, seconds: float,
                      kinds: Iterable[str], unresolved: int) -> None:
        """Note a decision.

        :param request: its request; "none" if there is no plan.
        :param kinds: kinds of the planned operations.
        :param unresolved: violated hosts that the plan does not relieve.
        """
        with self._lock:
            self.decisions[request,] += 1
            self.decision_seconds[()].note(seconds)
            self.planned.update((kind,) for kind in kinds)
            self.unresolved += unresolved

    def note_breaker(self, operations: int) -> None:
        """Note operations that the circuit breaker has left out."""
        with self._lock:
            self.stopped += operations

    def note_operation(self, kind: str, state: str, seconds: float | None
                       ) -> None:
        """Note an operation that has ended.

        :param seconds: its duration, None if that was not measured.
        """
        with self._lock:
            self.ended[kind, state] += 1
            if seconds is not None:
                self.operation_seconds[kind,].note(seconds)

    def note_pass(self, seconds: float, leases: Mapping[str, int] | None,
                  unknown_servers: int, unreadable_leases: int) -> None:
        """Note a pass of the lease engine.

        :param leases: number of leases by state; None if the pass failed.
        :param unknown_servers: servers of leases that the database does not
            know.
        :param unreadable_leases: leases in quarantine.
        """
        with self._lock:
            self.passes['failed' if leases is None else 'done',] += 1
            self.pass_seconds[()].note(seconds)
            if leases is not None:
                self.leases, self.last_pass = leases, time.time()
                self.unknown_servers = unknown_servers
                self.unreadable_leases = unreadable_leases

    def forget_leases(self) -> None:
        """Note that another engine runs the leases from now on."""
        self.leases = self.last_pass = self.unknown_servers = None
        self.unreadable_leases = None


#: The measures of this process.
shared = per_process.PerProcess(DecisionMeasures)
