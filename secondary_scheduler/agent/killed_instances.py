# SPDX-License-Identifier: Apache-2.0

"""Secondaries that were killed on this host, with the reasons.

To Nova they look as if their owners had stopped them.  Therefore the agent
reports them until they run again, and Watcher queues them for their return.
"""

from collections.abc import Collection, Iterable, Mapping
import threading

from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.domains import Secondary

STATE = 'killed.json'

#: Most entries kept: without Placement the agent does not learn which of the
#: instances were deleted.
_MOST = 64


class Killed:
    """The secondaries killed here; saved on disk, safe for threads."""

    def __init__(self, store: agent_store.StateStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        #: Reason, PID and start time of the process, by UUID; oldest first.
        self._known: dict[str, tuple[str, int, int]] = {}
        for uuid, entry in store.load(STATE).items():
            try:
                reason, pid, started = entry
                self._known[uuid] = str(reason), int(pid), int(started)
            except (TypeError, ValueError):
                continue    # the file was damaged

    def note(self, guest: Secondary, reason: str) -> None:
        """Record a killed guest with the reason."""
        with self._lock:
            self._known.pop(guest.uuid, None)
            self._known[guest.uuid] = reason, guest.pid, guest.started
            for uuid in list(self._known)[:-_MOST]:
                del self._known[uuid]
            self._save()

    def forget_running(self, guests: Iterable[Secondary]) -> None:
        """Forget guests that run again, in another process."""
        with self._lock:
            again = [guest.uuid for guest in guests
                     if guest.uuid in self._known
                     and self._known[guest.uuid][1:] != (guest.pid,
                                                         guest.started)]
            for uuid in again:
                del self._known[uuid]
            if again:
                self._save()

    def forget(self, uuids: Collection[str]) -> None:
        """Forget these guests: they were deleted, or have moved away."""
        with self._lock:
            gone = self._known.keys() & set(uuids)
            for uuid in gone:
                del self._known[uuid]
            if gone:
                self._save()

    @property
    def reasons(self) -> Mapping[str, str]:
        """Reasons of the kills, by UUID."""
        with self._lock:
            return {uuid: entry[0] for uuid, entry in self._known.items()}

    def _save(self) -> None:
        self._store.save(STATE, self._known)
