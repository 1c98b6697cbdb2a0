# SPDX-License-Identifier: Apache-2.0

"""Activity of secondaries when a signal of harm began to fail.

The activity before an onset is compared with that from shortly before it on,
by ranks, so the unit of a resource has no effect.  An activity that is not
known takes no part; it is not 0.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import statistics
import typing

#: Activity of a secondary in percent of the host, by resource.
Activity = Mapping[str, float]
#: Activity of the secondaries of a host in one second.
Activities = Mapping[str, Activity]

#: Number of onsets that are remembered.
_ONSETS = 8
#: Seconds before an onset that are compared: the earlier ones with the later
#: ones, since a signal fails some time after the activity has grown.
_EARLIER_S, _LATER_S = 5, 3
#: Seconds from an onset on that are compared with the earlier ones.
_AFTER_S = 2
#: Seconds whose mean is the present activity.
_PRESENT_S = 3
#: Percent of the host below which a part of the activity of all secondaries
#: means little.
_LEAST = 5.0


class Likeness(typing.NamedTuple):
    """Degree to which the activity of a secondary resembles a signal.

    :param score: -1 to 2; higher is likelier, 0 if nothing is known
    :param resource: the resource that resembles it most, '' if none is known
    """

    score: float
    resource: str


@dataclasses.dataclass
class _Onset:
    """Activities before and after a signal began to fail."""

    before: Sequence[Activities]
    after: list[Activities]


class OnsetWindow:
    """Activity of all secondaries around the last onsets of a signal."""

    def __init__(self) -> None:
        self._recent: deque[Activities] = deque(
            maxlen=_EARLIER_S + _LATER_S)
        self._onsets: deque[_Onset] = deque(maxlen=_ONSETS)
        self._after_s = 0

    def push(self, begins: bool, activities: Activities) -> None:
        """Note the activities of one second.

        :param begins: whether the signal has begun to fail by itself
        """
        if begins:
            recent = list(self._recent)
            self._onsets.append(_Onset(recent[:-_LATER_S],
                                       recent[-_LATER_S:]))
            self._after_s = _AFTER_S
        if self._after_s:
            self._onsets[-1].after.append(activities)
            self._after_s -= 1
        self._recent.append(activities)

    def likeness(self, guest: str) -> Likeness:
        """Return how much a secondary resembles the signal.

        The score of a resource is the rank correlation with the onsets (-1 to
        1), plus the part of the present activity of all secondaries (0 to 1).
        """
        resources = {resource for one in self._recent
                     for resource in one.get(guest, ())}
        return max((Likeness(self._rise(guest, one) + self._part(guest, one),
                             one) for one in sorted(resources)),
                   default=Likeness(0.0, ''))

    def _rise(self, guest: str, resource: str) -> float:
        """Return the mean rank correlation of activity with onsets.

        It is 1 if each value after an onset exceeds each one before it.
        """
        found = []
        for onset in self._onsets:
            before = _known(onset.before, guest, resource)
            after = _known(onset.after, guest, resource)
            signs = [(one > other) - (one < other)
                     for one in after for other in before]
            if signs:
                found.append(statistics.fmean(signs))
        return statistics.fmean(found) if found else 0.0

    def _part(self, guest: str, resource: str) -> float:
        """Return the part of the present activity of all secondaries."""
        present = list(self._recent)[-_PRESENT_S:]
        means = {name: statistics.fmean(values) for name in {
            name for one in present for name in one}
            if (values := _known(present, name, resource))}
        return means.get(guest, 0.0) / (_LEAST + sum(means.values()))


def _known(some: Iterable[Activities], guest: str, resource: str
           ) -> list[float]:
    return [value for one in some
            if (value := one.get(guest, {}).get(resource)) is not None]
