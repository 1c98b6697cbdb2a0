"""How much of their room secondaries may use while the primary is harmed.

Use has a set point that a controller can keep.  A signal of harm has none:
nobody knows how much less CPU of the secondaries' is how much less harm.  So
the agent looks for it, as a sender does for what a network carries: a second
with harm halves what they may use, a second without gives a little back
(additive increase, multiplicative decrease: Chiu and Jain 1989).  It ends up
around what the primary bears, and most harm has gone before the floor.
"""


class Restraint:
    """The part, 0 to 1, of the room under the set point that may be used."""

    #: What is left of the share after a second with harm.
    LEFT = 0.5
    #: What is given back in a second without: all of it takes 50 s.
    BACK = 0.02

    def __init__(self) -> None:
        self.share = 1.0

    def push(self, harmed: bool) -> None:
        """Note, once a second, whether the primary is harmed."""
        self.share = (self.share * self.LEFT if harmed
                      else min(1.0, self.share + self.BACK))

    def bound(self, set_point: float, primary: float | None) -> float:
        """Return the set point as it is bounded now, percent of the host.

        ``primary`` is the primary's use, None while it is not known: the
        controller takes nobody's measure then anyway.
        """
        if primary is None:
            return set_point
        return set_point - (1.0 - self.share) * max(0.0, set_point - primary)
