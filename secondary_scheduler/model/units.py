# SPDX-License-Identifier: Apache-2.0

"""Units of measured resources, and the conversion from and to percent.

An instance keeps the *amount* that it uses when it moves, so the model holds
amounts: CPUs, MiB of memory, MB/s (10^6 bytes a second) of links and disks.
Policies, shares of an instance and the use of primaries are in percent of
one host and never leave it. The use of an instance in percent always refers
to a given host, whose capacity is 100 %.

A resource that is missing in ``UNITS``, such as ``pressure`` (a share of
time), has percentages as its amounts, the same on each host.
"""

from secondary_scheduler.model import resources

UNITS = resources.UNITS

#: Capacity of a host of which only percentages are known.
WHOLE = 100.0

#: Percentage of an amount on a host that has nothing of the resource.  It is
#: finite, so that sums can be subtracted from again.
BEYOND = 1e12

#: Decimals of a percentage that is computed from an amount.  A percentage of
#: a configuration or a report so remains the same after conversion to an
#: amount and back, and use that is exactly at a limit stays there.
DIGITS = 9


def to_amount(percent: float, capacity: float) -> float:
    """Return a percentage of a host in the resource's unit."""
    return percent if capacity == WHOLE else percent * capacity / WHOLE


def to_percent(amount: float, capacity: float) -> float:
    """Return an amount in percent of a host.

    Any amount is more than a host without that resource can give.
    """
    if capacity == WHOLE:
        return amount
    if capacity == 0:
        return BEYOND if amount else 0.0
    return round(WHOLE * amount / capacity, DIGITS)


def are_alike(one: float | None, other: float | None) -> bool:
    """Return whether one percent of two capacities is the same amount.

    Unknown capacities count as equal.
    """
    return one is None or other is None or one == other


def describe_amount(resource: str, amount: float) -> str:
    """Return an amount with its unit, for messages."""
    return f'{amount:.4g} {UNITS.get(resource, "%")}'
