"""What a consumer is promised, which follows from the terms (Haizea 2.3)."""

import enum


class Kind(enum.StrEnum):
    """The type of a lease."""

    BEST_EFFORT = 'best-effort'
    DEADLINE = 'deadline'
    RESERVATION = 'reservation'
    IMMEDIATE = 'immediate'


def derive(duration: int, start: int | None, deadline: int | None,
           immediate: bool) -> Kind:
    """Return the kind of a lease; times in whole seconds.

    A start is exact if the deadline leaves no choice, or if there is none.
    """
    if immediate:
        return Kind.IMMEDIATE
    if deadline is not None and (start is None
                                 or deadline > start + duration):
        return Kind.DEADLINE
    return Kind.BEST_EFFORT if start is None else Kind.RESERVATION
