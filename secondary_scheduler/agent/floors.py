# SPDX-License-Identifier: Apache-2.0

"""Reasons for which guests are at the floor.

Several parts of the agent take guests to the floor, each for its own reason.
A guest leaves the floor when no reason is left.
"""

from collections.abc import Callable, Collection
import enum
import threading
import time

#: Most instances that wait for their leases.
_MOST_WAITING = 1000


class Reason(enum.StrEnum):
    """Reason for which a guest is at the floor."""

    POLICY = 'policy'        # last resort: a policy was about to be invalid
    SURPLUS = 'surplus'      # it exceeds a policy on slots or cores
    ENTRY = 'entry'          # it is new and waits for room
    OPERATION = 'operation'  # its vCPUs are slowed for an operation of Nova
    SAFETY = 'safety'        # the control loop failed
    MEMORY = 'memory'        # the host is short of memory
    CPUS = 'cpus'            # it may run on dedicated CPUs of primaries
    LEASE = 'lease'          # other members of its lease do not run yet
    TRIAL = 'trial'          # it may be why a signal of harm fails
    SUSPECT = 'suspect'      # trials have confirmed that it is


class Floors:
    """Reasons by instance; safe for threads.

    ``changed`` is called when a reason is added or dropped.  ``is_limited``
    returns whether the limits of an instance are in force.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic,
                 changed: Callable[[], object] = lambda: None,
                 is_limited: Callable[[str], bool] = lambda uuid: True
                 ) -> None:
        self._clock = clock
        self._changed = changed
        self._is_limited = is_limited
        self._lock = threading.Lock()
        self._reasons: dict[str, set[Reason]] = {}
        self._until: dict[str, float] = {}
        #: End of ``Reason.LEASE``; the guest need not exist yet.
        self._lease_until: dict[str, float] = {}

    def add(self, uuid: str, reason: Reason) -> None:
        """Add a reason for an instance to be at the floor."""
        with self._lock:
            reasons = self._reasons.setdefault(uuid, set())
            new = reason not in reasons
            reasons.add(reason)
        if new:
            self._changed()

    def drop(self, uuid: str, reason: Reason) -> None:
        """Drop a reason."""
        with self._lock:
            reasons = self._reasons.get(uuid, set())
            gone = reason in reasons
            reasons.discard(reason)
            if not reasons:
                self._reasons.pop(uuid, None)
        if gone:
            self._changed()

    def reasons(self, uuid: str) -> frozenset[Reason]:
        """Return the reasons for which an instance is at the floor."""
        with self._lock:
            reasons = frozenset(self._reasons.get(uuid, ()))
            waits = self._lease_until.get(uuid, 0.0) > self._clock()
        return reasons | {Reason.LEASE} if waits else reasons

    def floored(self, uuid: str) -> bool:
        """Return whether an instance should be at the floor."""
        return bool(self.reasons(uuid))

    def reached(self, uuid: str) -> bool:
        """Return whether the floor of an instance is in force."""
        return self.floored(uuid) and self._is_limited(uuid)

    def operate(self, uuid: str, seconds: float) -> None:
        """Note that Nova operates on an instance for at most ``seconds``."""
        with self._lock:
            self._until[uuid] = self._clock() + seconds

    def await_lease(self, uuid: str, seconds: float) -> None:
        """Keep an instance at the floor until its lease runs.

        :param seconds: longest time; 0 ends it.
        """
        with self._lock:
            if seconds > 0 and (uuid in self._lease_until
                                or len(self._lease_until) < _MOST_WAITING):
                self._lease_until[uuid] = self._clock() + seconds
            elif seconds <= 0:
                self._lease_until.pop(uuid, None)
        self._changed()

    def operated(self, uuid: str) -> bool:
        """Return whether Nova is known to operate on an instance."""
        with self._lock:
            return self._until.get(uuid, 0.0) > self._clock()

    def end_operation(self, uuid: str) -> None:
        """Note that Nova's operation has ended."""
        with self._lock:
            self._until.pop(uuid, None)
        self.drop(uuid, Reason.OPERATION)

    def expire(self, present: Collection[str]) -> None:
        """Forget operations that are over and instances that are gone."""
        now = self._clock()
        with self._lock:
            over = [uuid for uuid, until in self._until.items()
                    if until <= now]
            gone = [uuid for uuid in self._reasons if uuid not in present]
            for uuid in gone:
                del self._reasons[uuid]
            self._lease_until = {
                uuid: until for uuid, until in self._lease_until.items()
                if until > now}
        for uuid in over:
            self.end_operation(uuid)
