# SPDX-License-Identifier: Apache-2.0

"""Usage controller: the share of the CPU for each secondary of a host.

Pure arithmetic without clock or I/O.  All CPU figures are percent of the
host's capacity.  An integral controller (Boettger 2012, section 4.4.4.1) keeps
the host's use at the set point.  Its output is split among the secondaries.

``integrate`` and ``split`` take plain numbers, because the simulator compiles
them: agent and simulator run the same lines.
"""

from collections.abc import MutableSequence, Sequence
import dataclasses
import math

#: Percent of the host; see ``integrate``.
SLACK = 10.0

_EPSILON = 1e-9


@dataclasses.dataclass(frozen=True)
class Load:
    """Use of one secondary since the last step, and the most it can use.

    ``usage`` is None if it was not measured.  ``most`` is the capacity of its
    vCPUs.
    """

    uuid: str
    priority: int
    usage: float | None
    most: float = 100.0


def integrate(share: float, total: float, used: float, set_point: float,
              floor: float, gain: float, slack: float) -> float:
    """Return the common share ``u`` of all secondaries after one period.

    The law is ``u(k+1) = u(k) + K (w - y)``, with ``u`` from ``floor`` to
    ``w`` (Boettger 2012, section 4.4.4.1).

    The range alone leaves windup: while guests use less than their shares,
    ``u`` would rise to ``w``.  It would take seconds to fall when the primary
    needs the CPU.  So ``u`` may exceed the room beside the primary,
    ``w - (y - used)``, by at most ``slack``.  The slack lets the integral part
    compensate for limits that guests do not use fully.

    CPU time withheld by unused limits appears as idle time.  So the slack is
    at most the idle time, ``100 - y``, and zero on a saturated host.  There
    ``u`` is correct in the second step after a burst of the primary.  Without
    this rule it would not be, because a saturated host shows an error of at
    most ``100 - w``.

    :param share: ``u`` before this period.
    :param total: ``y``, use of the whole host.
    :param used: use by all secondaries.
    :param set_point: ``w``.
    :param floor: sum of the minimum shares.
    :param gain: ``K``.
    :param slack: in percent of the host; infinite disables its rule.
    """
    u = min(share + gain * (set_point - total), set_point)
    if slack < math.inf:
        room = set_point - max(0.0, total - used)
        u = min(u, room + min(slack, max(0.0, 100.0 - total)))
    return max(floor, u)


def split(rest: float, weights: MutableSequence[float],
          most: Sequence[float], caps: MutableSequence[float]) -> None:
    """Distribute ``rest`` in proportion to ``weights``, up to ``most``.

    This is water-filling: the part that one entry cannot take goes to the
    others.  Entries of weight 0 get nothing.

    :param weights: changed in place; saturated entries get weight 0.
    :param most: upper limit of each cap.
    :param caps: changed in place; the parts are added to them.
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
    """State of the loop: the common share ``u`` and the secondaries in it."""

    def __init__(self, gain: float = 1.0, probe: float = 2.0,
                 slack: float = SLACK) -> None:
        self._gain = gain
        self._probe = probe
        self._slack = slack
        self._members: frozenset[str] = frozenset()
        self.share = 0.0

    def step(self, total: float | None, loads: Sequence[Load],
             set_point: float, minimum: float) -> dict[str, float]:
        """Return each instance's cap after one period, by UUID.

        Each instance gets the minimum.  The rest is split in proportion to
        priority times (use + probing share); the probing share lets an idle
        instance recover.  An instance that was not in the last step gets the
        minimum only.  The sum of the caps is at most
        ``max(set_point, minimum * len(loads))``.

        :param total: use of the whole host.  None means unknown, and reduces
            all caps to the minimum at once.
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
