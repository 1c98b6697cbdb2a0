# SPDX-License-Identifier: Apache-2.0

"""Problems of guests: listed at once, logged only if they last."""

from collections.abc import Callable, Iterable
import time

#: Seconds that libvirt may need for the groups and files of a guest that
#: starts or ends.  A problem that is over by then needs no log message.
LOG_DELAY_S = 3.0


class Problems:
    """Present problem of each guest, by UUID; not safe for threads."""

    def __init__(self, log: Callable[[str, str], object],
                 clock: Callable[[], float] = time.monotonic) -> None:
        """Start without problems.

        :param log: called with UUID and problem, once for each problem that
            has lasted for ``LOG_DELAY_S``.
        """
        self._log = log
        self._clock = clock
        #: Problem, time at which it was first noted, whether it was logged.
        self._known: dict[str, tuple[str, float, bool]] = {}

    def note(self, uuid: str, why: str) -> None:
        """Set the present problem of a guest."""
        now = self._clock()
        known, since, logged = self._known.get(uuid, ('', now, False))
        if known != why:
            since, logged = now, False
        if not logged and now - since >= LOG_DELAY_S:
            self._log(uuid, why)
            logged = True
        self._known[uuid] = why, since, logged

    def clear(self, uuid: str) -> None:
        """Clear the problem of a guest."""
        self._known.pop(uuid, None)

    def forget_others(self, uuids: Iterable[str]) -> None:
        """Forget all guests but these."""
        for uuid in self._known.keys() - set(uuids):
            del self._known[uuid]

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._known

    def present(self) -> dict[str, str]:
        """Return the problem of each guest that has one."""
        return {uuid: why for uuid, (why, _, _) in self._known.items()}
