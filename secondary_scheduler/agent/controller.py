"""The usage controller: how much CPU the secondaries of a host may use.

Pure arithmetic without clock or I/O, shared with the simulator.  All CPU
figures are percent of the host's capacity.  An integral controller (Boettger
3.9) keeps the host's use at the set point; its output is split among the
secondaries.
"""

from collections.abc import Mapping, Sequence
import dataclasses

#: Percent of the host; see ``Controller``.
SLACK = 10.0


@dataclasses.dataclass(frozen=True)
class Load:
    """One secondary: its use since the last step, and what it can use.

    ``usage`` None means not measured; ``most`` is what its vCPUs amount to.
    """

    uuid: str
    priority: int
    usage: float | None
    most: float = 100.0


class Controller:
    """State of the loop: the common share ``u`` and who takes part in it.

    The law is ``u(k+1) = u(k) + K (w - y)``, clamped to at least ``minimum``
    for each instance and at most ``w``.  The clamp alone leaves windup:
    while guests use less than they may, ``u`` would rise to ``w``, and a
    primary's burst would meet a share that takes seconds to come down.  So
    ``u`` is also kept within ``SLACK`` of the room that the primary leaves,
    ``w - (y - secondaries)``; the slack lets the integral part make up for
    limits that are not used to the full.
    """

    def __init__(self, gain: float = 1.0, probe: float = 2.0) -> None:
        self._gain = gain
        self._probe = probe
        self._members: frozenset[str] = frozenset()
        self.share = 0.0

    def step(self, total: float | None, loads: Sequence[Load],
             set_point: float, minimum: float) -> dict[str, float]:
        """Return each instance's cap after one period.

        ``total`` is the use of the whole host; unknown takes everybody to
        the minimum at once.  An instance that was not there in the last step
        enters at the minimum.  The caps sum up to at most
        ``max(set_point, minimum * len(loads))``.
        """
        least = {load.uuid: min(minimum, load.most) for load in loads}
        floor = sum(least.values())
        if total is None:
            share = floor
        else:
            used = sum(load.usage or 0.0 for load in loads)
            room = set_point - max(0.0, total - used)
            share = self.share + self._gain * (set_point - total)
            share = min(share, room + SLACK, set_point)
        self.share = max(share, floor)
        caps = self._split(loads, least)
        self._members = frozenset(least)
        return caps

    def _split(self, loads: Sequence[Load],
               least: Mapping[str, float]) -> dict[str, float]:
        """Split the share: the minimum for all, the rest by weight.

        The weight is priority times present use plus a probing share, by
        which an idle instance recovers.  What an instance cannot use goes to
        the others.
        """
        caps = dict(least)
        rest = self.share - sum(least.values())
        hungry = {load.uuid: load for load in loads
                  if load.uuid in self._members}
        while hungry and rest > 1e-9:
            weights = {uuid: load.priority * (
                max(0.0, load.usage or 0.0) + self._probe)
                for uuid, load in hungry.items()}
            unit = rest / sum(weights.values())
            full = [uuid for uuid, load in hungry.items()
                    if caps[uuid] + unit * weights[uuid] >= load.most]
            if not full:
                for uuid, weight in weights.items():
                    caps[uuid] += unit * weight
                break
            for uuid in full:
                rest -= hungry[uuid].most - caps[uuid]
                caps[uuid] = hungry.pop(uuid).most
        return caps
