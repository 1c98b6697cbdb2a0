"""Time in which all servers of a lease were observed to run."""

import dataclasses

#: Steps, in seconds, in which the present stretch is written to the database.
_STEP_S = 60.0


@dataclasses.dataclass
class Served:
    """Observed running time of a lease, in seconds.

    ``closed`` is the sum of the stretches that are over.  In the present one
    each look from ``since`` to ``until`` found all servers running; without
    one ``since`` is None.  ``excused`` is the time in which the owner kept
    servers from running: it is not served, and the lease does not stay longer
    for it.
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

    def observe(self, now: float, running: bool, excused: bool) -> None:
        """Take in one look at the servers.

        A stretch ends at the last look that found all of them running, not at
        the first that did not.

        :param running: whether all servers of the lease run.
        :param excused: whether the owner keeps one of them from running.
        """
        if running:
            self.since = now if self.since is None else self.since
            self.until = now
        elif self.since is not None:
            self.closed += self.until - self.since
            self.since = None
        if excused and self.looked_at is not None:
            self.excused += now - self.looked_at
        self.looked_at = now

    def resume(self, looked_at: float) -> None:
        """Go on after a restart of the engine.

        A stretch that is not over in the database was not over when an engine
        looked last, or that look would have ended it.
        """
        if self.since is not None:
            self.until = max(self.until, looked_at)

    def reset(self) -> None:
        """Forget all: the work of the lease is lost."""
        self.closed, self.since, self.excused = 0.0, None, 0.0

    def to_json(self) -> list[float | None]:
        """Return what outlives the engine.

        The present stretch is kept in whole minutes, so that leases that run
        undisturbed are not written with each look.
        """
        until = self.until
        if self.since is not None:
            until -= (until - self.since) % _STEP_S
        return [self.closed, self.since, until, self.excused]
