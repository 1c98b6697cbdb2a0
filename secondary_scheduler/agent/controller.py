"""The usage controller: how much CPU the secondaries of a host may use.

Pure arithmetic without clock or I/O.  All CPU figures are percent of the
host's capacity.  An integral controller (Boettger 3.9) keeps the host's use at
the set point; its output is split among the secondaries.

The law is functions of plain numbers, which the simulator compiles: both run
the same lines.
"""

from collections.abc import MutableSequence, Sequence
import dataclasses
import math

#: Percent of the host; see ``integrate``.
SLACK = 10.0

_EPSILON = 1e-9


@dataclasses.dataclass(frozen=True)
class Load:
    """One secondary: its use since the last step, and what it can use.

    ``usage`` None means not measured; ``most`` is what its vCPUs amount to.
    """

    uuid: str
    priority: int
    usage: float | None
    most: float = 100.0


def integrate(share: float, total: float, used: float, set_point: float,
              floor: float, gain: float, slack: float) -> float:
    """Return the common share ``u`` after one period.

    The law is ``u(k+1) = u(k) + K (w - y)``, clamped to at least ``floor``
    and at most ``w``.  The clamp alone leaves windup: while guests use less
    than they may, ``u`` would rise to ``w``, and a primary's burst would meet
    a share that takes seconds to come down.  So ``u`` is also kept within
    ``slack`` of the room that the primary leaves, ``w - (y - used)``; the
    slack lets the integral part make up for limits that are not used to the
    full.  What they kept from guests the host had idle, so on a full host
    there is none, and ``u`` is right at the second step after a primary's: a
    full host alone shows no more of that than ``100 - w``.  With an infinite
    ``slack`` it is the law with its clamp and no more.
    """
    u = min(share + gain * (set_point - total), set_point)
    if slack < math.inf:
        room = set_point - max(0.0, total - used)
        u = min(u, room + min(slack, max(0.0, 100.0 - total)))
    return max(floor, u)


def split(rest: float, weights: MutableSequence[float],
          most: Sequence[float], caps: MutableSequence[float]) -> None:
    """Add a rest to caps by weight, in place, up to what each can use.

    What one cannot use goes to the others.  Who has no weight gets nothing;
    who is full loses its weight.
    """
    unit = 0.0
    full = True
    while full and rest > _EPSILON:
        total = 0.0
        for weight in weights:
            total += weight
        if total <= 0.0:
            return
        unit = rest / total
        full = False
        for one in range(len(caps)):
            if weights[one] > 0.0 and (
                    caps[one] + unit * weights[one] >= most[one]):
                rest -= most[one] - caps[one]
                caps[one] = most[one]
                weights[one] = 0.0
                full = True
    if not full:
        for one in range(len(caps)):
            caps[one] += unit * weights[one]


class Controller:
    """State of the loop: the common share ``u`` and who takes part in it."""

    def __init__(self, gain: float = 1.0, probe: float = 2.0,
                 slack: float = SLACK) -> None:
        self._gain = gain
        self._probe = probe
        self._slack = slack
        self._members: frozenset[str] = frozenset()
        self.share = 0.0

    def step(self, total: float | None, loads: Sequence[Load],
             set_point: float, minimum: float) -> dict[str, float]:
        """Return each instance's cap after one period.

        ``total`` is the use of the whole host; unknown takes everybody to
        the minimum at once.  Each has the minimum, and the rest is split by
        priority times present use plus a probing share, by which an idle
        instance recovers.  An instance that was not there in the last step
        enters at the minimum.  The caps sum up to at most
        ``max(set_point, minimum * len(loads))``.
        """
        most = [load.most for load in loads]
        caps = [min(minimum, one) for one in most]
        used = [max(0.0, load.usage or 0.0) for load in loads]
        floor = sum(caps)
        self.share = floor if total is None else integrate(
            self.share, total, sum(used), set_point, floor, self._gain,
            self._slack)
        split(self.share - floor, [
            load.priority * (use + self._probe)
            if load.uuid in self._members else 0.0
            for load, use in zip(loads, used, strict=True)], most, caps)
        self._members = frozenset(load.uuid for load in loads)
        return {load.uuid: cap
                for load, cap in zip(loads, caps, strict=True)}
