# SPDX-License-Identifier: Apache-2.0

"""Queue orders, loaded as stevedore drivers.

Namespace ``secondary_scheduler.lease_policies.order``.  The rank of a lease
does not change while it waits, so a sorted queue stays sorted.
"""

import typing


class QueueOrder(typing.Protocol):
    """Policy that ranks waiting leases."""

    def rank(self, priority: float, since: float) -> tuple[float, float]:
        """Return the rank of a lease; the lowest is served first.

        :param since: arrival of the lease, in seconds of any clock
        """


class FirstCome:
    """The lease that arrived first is served first."""

    def __init__(self, options: typing.Any = None) -> None:
        """Ignore options."""

    def rank(self, priority: float, since: float) -> tuple[float, float]:
        """Return the arrival, then the negated priority."""
        return since, -priority


class Priority(FirstCome):
    """The highest priority first; among equals, the earliest arrival.

    Boettger 2012, section 4.4.2.
    """

    def rank(self, priority: float, since: float) -> tuple[float, float]:
        """Return the negated priority, then the arrival."""
        return -priority, since


#: The default order.
PRIORITY: QueueOrder = Priority()


class Aged:
    """As Priority; a priority grows by some points per hour from arrival.

    This avoids starvation of leases with the lowest priority.
    """

    def __init__(self, points: float) -> None:
        self._points = points

    def rank(self, priority: float, since: float) -> tuple[float, float]:
        """Return the negated priority at time 0, then the arrival.

        All priorities grow at the same rate, so their order is fixed.
        """
        return self._points * since / 3600 - priority, since


def aged(options: typing.Any) -> QueueOrder:
    """Return the order in which priorities grow by ``ageing`` an hour."""
    return Aged(options.ageing)
