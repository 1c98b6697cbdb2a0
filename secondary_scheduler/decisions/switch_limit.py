# SPDX-License-Identifier: Apache-2.0

"""Limit of the operations of one plan, which cuts between leases only."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from secondary_scheduler.decisions.draft import Step


def choose_leases(queue: Iterable[str],
                  awaited: Mapping[str, Collection[str]],
                  steps: Iterable[Step], most: int) -> Collection[str]:
    """Return the leases that a plan of limited size changes.

    Each lease comes with all leases that free its room, in the order of the
    queue.  Leases that are only suspended come last.  The first lease is
    never left out, however large it is: it would wait for ever.

    :param awaited: leases that each lease waits for
    :param most: largest number of steps
    """
    sizes: Counter[str] = Counter()
    arriving: set[str] = set()
    for step in steps:
        sizes[step.old.lease] += 1
        if step.target is not None:
            arriving.add(step.old.lease)
    kept: set[str] = set()
    for lease in sorted(filter(sizes.__contains__, queue),
                        key=lambda lease: lease not in arriving):
        more = _closure(lease, awaited) | kept
        if not kept or sum(sizes[one] for one in more) <= most:
            kept = more
    return kept


def _closure(lease: str, awaited: Mapping[str, Collection[str]]
             ) -> set[str]:
    """Return a lease and all leases that it waits for."""
    found: set[str] = set()
    rest = [lease]
    while rest:
        one = rest.pop()
        if one not in found:
            found.add(one)
            rest += awaited.get(one, ())
    return found
