# SPDX-License-Identifier: Apache-2.0

"""Restraint: the part of their room that secondaries may use after harm.

Use of a resource has a set point that a controller can keep.  A signal of harm
has none, because the effect of the secondaries' CPU use on it is unknown.  So
the agent searches for the largest use without harm, like congestion control in
a network: additive increase, multiplicative decrease (Chiu and Jain 1989).  A
second with harm halves the part, a second without increases it a little.  It
converges to the use that the primary tolerates, and most harm ends before the
floor is needed.
"""


class Restraint:
    """Usable part, 0 to 1, of the room below the set point."""

    #: Factor of the share after a second with harm.
    LEFT = 0.5
    #: Increase of the share in a second without harm; from 0 to 1 it takes
    #: 50 s.
    BACK = 0.02

    def __init__(self) -> None:
        self.share = 1.0

    def push(self, harmed: bool) -> None:
        """Note, once a second, whether the primary is harmed."""
        self.share = (self.share * self.LEFT if harmed
                      else min(1.0, self.share + self.BACK))

    def bound(self, set_point: float, primary: float | None) -> float:
        """Return the reduced set point in percent of the host.

        :param primary: use by the primary, None if unknown; then the
            controller reduces all secondaries to their minimum anyway.
        """
        if primary is None:
            return set_point
        return set_point - (1.0 - self.share) * max(0.0, set_point - primary)
