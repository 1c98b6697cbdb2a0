# SPDX-License-Identifier: Apache-2.0

"""Gate for lists of servers, which wait for each cell of Nova.

Nova waits up to 60 s for a cell with a silent database, and then answers
without its servers.  Each such request keeps a worker thread of Nova's API
occupied until the database answers, and Nova has five by default.  So after
one list that took too long no other is requested for a while.
"""

from collections.abc import Callable, Iterator
import contextlib
import time

from oslo_log import log

from secondary_scheduler.watcher.cloud_errors import TimedOut

LOG = log.getLogger(__name__)

#: Seconds for which no list is requested after one that took too long.
_CLOSED_S = 120.0
#: Seconds after which an answer without the facts of a cell has waited for it.
PROMPT_S = 2.0


class ListGate:
    """Knows whether lists of servers are answered in time.

    :param longest_s: longest time that an answer may take.
    :param clock: returns monotonic seconds.
    """

    def __init__(self, longest_s: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._longest_s = longest_s
        self._clock = clock
        self._closed_until = clock()

    @property
    def closed(self) -> bool:
        """Whether a list would wait for a silent cell."""
        return self._clock() < self._closed_until

    @contextlib.contextmanager
    def list(self) -> Iterator[None]:
        """Request a list in the block; close the gate if that times out.

        :raises TimedOut: if the gate is closed; nothing is requested then.
        """
        if self.closed:
            raise TimedOut('a cell of Nova does not answer, and lists of '
                           'servers would wait for it')
        try:
            yield
        except TimedOut:
            self.close()
            raise

    def close(self) -> None:
        """Note that a request to all cells took too long."""
        if not self.closed:
            LOG.warning('A cell of Nova answers too late or not at all: '
                        'servers are requested one by one meanwhile.')
        self._closed_until = self._clock() + _CLOSED_S

    def note_answer(self, seconds: float, complete: bool) -> None:
        """Note how long Nova took for an answer with facts of all cells.

        :param complete: all cells have answered.  Otherwise Nova has waited
            for one, unless its database refuses connections.
        """
        if seconds > (self._longest_s if complete else PROMPT_S):
            self.close()
        else:
            self._closed_until = self._clock()
