# SPDX-License-Identifier: Apache-2.0

"""Time in which all servers of a lease were observed to run."""

import dataclasses

#: Steps, in seconds, in which the present stretch is written to the database.
_STEP_S = 60.0


@dataclasses.dataclass
class ServedTime:
    """Observed running time of a lease, in seconds.

    :param closed: sum of the stretches that are over.
    :param since: begin of the present stretch, None if there is none.
    :param until: last observation of the present stretch.
    :param excused: time in which the owner kept servers from running.  It is
        not served, and does not extend the lease.
    """

    closed: float = 0.0
    since: float | None = None
    until: float = 0.0
    excused: float = 0.0
    looked_at: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds served so far."""
        return self.closed + (0.0 if self.since is None
                              else self.until - self.since)

    def observe(self, now: float, running: bool | None, excused: bool
                ) -> None:
        """Account for one observation of the servers.

        A stretch ends at the last observation that found all of them running,
        not at the first that did not.  It goes on over a time in which that
        was unknown, if they run afterwards.

        :param running: all servers of the lease run; None if it is unknown.
        :param excused: the owner keeps one of them from running.
        """
        if running:
            self.since = now if self.since is None else self.since
            self.until = now
        elif running is not None:
            self.end_stretch()
        if excused and self.looked_at is not None:
            self.excused += now - self.looked_at
        self.looked_at = now

    def end_stretch(self) -> None:
        """End the present stretch at the last observation of it."""
        if self.since is not None:
            self.closed += self.until - self.since
            self.since = None

    def resume(self, looked_at: float) -> None:
        """Continue a stretch after a restart of the engine.

        A stretch that is open in the database lasted until the last heartbeat
        at least; the observation of an interruption would have closed it.
        """
        if self.since is not None:
            self.until = max(self.until, looked_at)

    def reset(self) -> None:
        """Start from zero: the work of the lease is lost."""
        self.closed, self.since, self.excused = 0.0, None, 0.0

    def to_json(self) -> list[float | None]:
        """Return the part that is stored.

        The end of the present stretch is rounded down to whole minutes, so
        that an undisturbed lease is not written on each pass.
        """
        until = self.until
        if self.since is not None:
            until -= (until - self.since) % _STEP_S
        return [self.closed, self.since, until, self.excused]
