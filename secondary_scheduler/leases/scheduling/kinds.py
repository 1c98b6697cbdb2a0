"""What a consumer is promised, which follows from the terms (Haizea 2.3)."""

import enum


class LeaseKind(enum.StrEnum):
    """The type of a lease."""

    BEST_EFFORT = 'best-effort'
    DEADLINE = 'deadline'
    RESERVATION = 'reservation'
    IMMEDIATE = 'immediate'


def derive(duration: int, start: int | None, deadline: int | None,
           immediate: bool) -> LeaseKind:
    """Return the kind of a lease; times in whole seconds.

    A start is exact if the deadline leaves no choice, or if there is none.
    """
    if immediate:
        return LeaseKind.IMMEDIATE
    if deadline is not None and (start is None
                                 or deadline > start + duration):
        return LeaseKind.DEADLINE
    return LeaseKind.BEST_EFFORT if start is None else LeaseKind.RESERVATION
