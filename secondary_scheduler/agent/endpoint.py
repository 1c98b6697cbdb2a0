# SPDX-License-Identifier: Apache-2.0

"""Calls that Watcher's actions make to the agent over RPC."""

import typing

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.floors import Reason
from secondary_scheduler.agent.reporter import Reporter
from secondary_scheduler.agent.wiring import Parts
from secondary_scheduler.model.cluster import CLEAN

#: Longest time in seconds for which a guest waits for its lease.
LONGEST_WAIT_S = 300.0
_UUID_LENGTH = 36


class AgentCalls:
    """Answers of one agent to calls over RPC."""

    def __init__(self, parts: Parts, reporter: Reporter) -> None:
        self._parts = parts
        self._reporter = reporter

    def hand_over(self, uuid: str, migrates: bool = False
                  ) -> dict[str, typing.Any]:
        """Prepare a secondary for an operation of Nova.

        Suspend and migration run in the emulator and I/O threads, so these
        are not limited for ``operation_grace`` seconds.  The vCPUs go to the
        floor if a policy fails, or if a live migration would not end
        otherwise.

        :param uuid: UUID of the instance.
        :param migrates: whether the operation is a live migration.
        :returns: ``ok`` (false with a ``reason`` if the instance cannot be
            prepared), ``floored``, ``dirty_mb`` (memory written in 1 s and
            5 s, or None), ``save_free_mb``.  ``killed`` is true for an
            instance that this agent has killed: Nova takes it for active for
            some seconds, and its operation would fail.
        """
        parts = self._parts
        # The value comes from the bus, and need not be hashable.
        for killed, reason in parts.killed.reasons.items():
            if killed == uuid:
                return {'ok': False, 'floored': False, 'killed': True,
                        'reason': reason}
        guest = self._find_guest(uuid)
        if guest is None:
            return {'ok': False, 'floored': False,
                    'reason': f'no secondary {uuid} runs on {parts.host}'}
        needed_s = parts.memory_meter.floor_s(uuid) if migrates else 0.0
        parts.floors.operate(uuid, max(
            needed_s, parts.conf.secondary_agent.operation_grace))
        dirty = parts.memory_meter.dirty(uuid)
        if parts.trigger.failing or needed_s:
            parts.floors.add(uuid, Reason.OPERATION)
        ok = (parts.actuator.floor(guest, emulator=False)
              if parts.floors.floored(uuid)
              else parts.actuator.lift_emulator(guest))
        floored = parts.floors.reached(uuid)
        return {'ok': ok, 'floored': floored,
                'dirty_mb': CLEAN if floored else dirty,
                'save_free_mb': self._reporter.save_free_mb,
                'reason': '' if ok else 'its cgroup could not be written'}

    def thaw_hint(self, uuid: str) -> None:
        """Note the end of an operation; the guest's floor for it ends."""
        if self._find_guest(uuid) is not None:
            self._parts.floors.end_operation(uuid)

    def await_lease(self, uuid: str, seconds: float) -> None:
        """Keep a secondary that resumes at the floor until its lease runs.

        :param uuid: UUID of the instance, which need not run here yet.
        :param seconds: longest time, at most ``LONGEST_WAIT_S``; 0 ends it.
        """
        # Values come from the bus.  The floor harms no primary, but the
        # number of waiting instances is bounded.
        if (isinstance(uuid, str) and len(uuid) == _UUID_LENGTH
                and isinstance(seconds, int | float)
                and 0 <= seconds <= LONGEST_WAIT_S):
            self._parts.floors.await_lease(uuid, seconds)

    def get_status(self) -> dict[str, typing.Any]:
        """Return the status that ``secondary-agent status`` shows."""
        return self._reporter.status()

    def _find_guest(self, uuid: str) -> Secondary | None:
        return next((guest for guest in self._parts.domains.secondaries()
                     if guest.uuid == uuid), None)
