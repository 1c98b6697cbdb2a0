"""Problems of guests: known at once, logged when they last."""

from collections.abc import Callable, Iterable
import time

#: Seconds that libvirt may need for the groups and files of a guest that
#: starts or ends.  Nobody has to look into what is over by then.
PATIENCE_S = 3.0


class Problems:
    """The present problem of each guest, by UUID; not safe for threads."""

    def __init__(self, log: Callable[[str, str], object],
                 clock: Callable[[], float] = time.monotonic) -> None:
        """Start without any.

        :param log: gets a guest's UUID and its problem, once for each problem
            that has lasted for ``PATIENCE_S``.
        """
        self._log = log
        self._clock = clock
        #: Problem, when it was first noted, and whether it was logged.
        self._known: dict[str, tuple[str, float, bool]] = {}

    def note(self, uuid: str, why: str) -> None:
        """Note that a guest has this problem now."""
        now = self._clock()
        known, since, logged = self._known.get(uuid, ('', now, False))
        if known != why:
            since, logged = now, False
        if not logged and now - since >= PATIENCE_S:
            self._log(uuid, why)
            logged = True
        self._known[uuid] = why, since, logged

    def solved(self, uuid: str) -> None:
        """Note that a guest has no problem now."""
        self._known.pop(uuid, None)

    def keep(self, uuids: Iterable[str]) -> None:
        """Forget all other guests."""
        for uuid in self._known.keys() - set(uuids):
            del self._known[uuid]

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._known

    def present(self) -> dict[str, str]:
        """Return the problem of each guest that has one."""
        return {uuid: why for uuid, (why, _, _) in self._known.items()}
