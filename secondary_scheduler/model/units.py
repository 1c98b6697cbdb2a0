"""Units of measured resources, and the conversion from and to percent.

An instance keeps the *amount* that it uses when it moves, so the model holds
amounts: CPUs, MiB of memory, MB/s (10^6 bytes a second) of links and disks.
Policies, shares of an instance and the use of primaries are in percent of
one host and never leave it. A percentage of an instance's use exists only
against the host that is asked about, whose capacity is 100 %.

A resource that is missing in ``UNITS`` is a share by nature, as ``pressure``
(a share of time): its amount is a percentage, on each host the same.
"""

from secondary_scheduler.model import resources

UNITS = resources.UNITS

#: Capacity of a host of which nothing but percentages is known.
WHOLE = 100.0

#: Digits after the point of a percentage that was made of an amount: those
#: of a configuration or a report are the same again, so that what is exactly
#: at a limit stays there.
DIGITS = 9


def to_amount(percent: float, capacity: float) -> float:
    """Return what a percentage of a host is, in the resource's unit."""
    return percent if capacity == WHOLE else percent * capacity / WHOLE


def to_percent(amount: float, capacity: float) -> float:
    """Return what an amount is of a host, in percent."""
    return (amount if capacity == WHOLE
            else round(WHOLE * amount / capacity, DIGITS))


def are_alike(one: float | None, other: float | None) -> bool:
    """Tell whether a share of two capacities is the same amount.

    Capacities that are not known are taken to be alike.
    """
    return one is None or other is None or one == other


def describe_amount(resource: str, amount: float) -> str:
    """Return an amount with its unit, for messages."""
    return f'{amount:.4g} {UNITS.get(resource, "%")}'
