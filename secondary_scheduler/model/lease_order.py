"""In which order leases that wait are served.

Each is a driver that an operator chooses by name (stevedore namespace
``secondary_scheduler.lease_policies.order``).  A lease's rank never changes
while it waits, so a queue once in order stays so.
"""

import typing


class QueueOrder(typing.Protocol):
    """The order of a queue."""

    def rank(self, priority: float, since: float) -> tuple[float, float]:
        """Return a lease's rank, the lowest being served first.

        ``since`` is when it began to wait, in seconds of any clock.
        """


class FirstCome:
    """Who waits longest is served first."""

    def __init__(self, options: typing.Any = None) -> None:
        """Take no notice of options."""

    def rank(self, priority: float, since: float) -> tuple[float, float]:
        """Return since when it waits."""
        return since, -priority


class Priority(FirstCome):
    """The highest priority first, among equals who waits longest.

    Boettger R26 and R27.
    """

    def rank(self, priority: float, since: float) -> tuple[float, float]:
        """Return the priority, then since when it waits."""
        return -priority, since


#: What Boettger's scheduler does.
PRIORITY: QueueOrder = Priority()


class Aged:
    """As Priority, which grows by so many points for each hour of waiting.

    Without that the lowest may wait for ever (Boettger 3.5).
    """

    def __init__(self, points: float) -> None:
        self._points = points

    def rank(self, priority: float, since: float) -> tuple[float, float]:
        """Return what the priority was at the clock's zero, and since when.

        All grow at the same rate, so that does not change their order.
        """
        return self._points * since / 3600 - priority, since


def aged(options: typing.Any) -> QueueOrder:
    """Let priorities grow by ``ageing`` points an hour."""
    return Aged(options.ageing)
