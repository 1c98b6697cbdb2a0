# SPDX-License-Identifier: Apache-2.0

"""Lease types (Sotomayor 2010, section 3.2.1)."""

import enum


class LeaseKind(enum.StrEnum):
    """The type of a lease."""

    BEST_EFFORT = 'best-effort'
    DEADLINE = 'deadline'
    RESERVATION = 'reservation'
    IMMEDIATE = 'immediate'


def derive(duration: int, start: int | None, deadline: int | None,
           immediate: bool) -> LeaseKind:
    """Derive the type of a lease from its terms, in whole seconds.

    A start is exact without a deadline, or if the deadline leaves no slack.
    """
    if immediate:
        return LeaseKind.IMMEDIATE
    if deadline is not None and (start is None
                                 or deadline > start + duration):
        return LeaseKind.DEADLINE
    return LeaseKind.BEST_EFFORT if start is None else LeaseKind.RESERVATION
