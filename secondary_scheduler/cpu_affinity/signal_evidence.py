# SPDX-License-Identifier: Apache-2.0

"""Likelihood that a signal of harm follows one secondary.

Three explanations of the states of a signal in a trial are compared, as Markov
chains of one second:

* it follows the secondary: it holds while the secondary is at the floor, and
  fails while it is released, each time after about as many seconds;
* it changes by itself, as often as outside of trials;
* it changes by itself as quickly as a trial does, since just now.
"""

from collections.abc import Mapping
import math

#: Weight of a second relative to the next one.
OLD_WEIGHT = 0.998
#: Chance in a second that a signal which follows a secondary still does.
_KEEPS = 0.98
#: Chance that it begins to, in the first seconds after a change and later.  A
#: probe needs its time, and so does a secondary that was released.
_BEGINS = (0.3, 0.45, 0.5, 0.6)
#: Weight of each of these chances beside the observations of a trial, in
#: observed seconds.
_PRIOR_SECONDS = 1.0
#: Chance in a second that a signal that changes quickly by itself changes, and
#: the chance that it does so from now on.
_QUICK, _QUICK_CHANCE = 0.3, 0.1


class SignalRates:
    """Frequency at which a signal begins and ceases to fail by itself.

    Old seconds count less and less.
    """

    #: Changes and seconds that are assumed before any are counted, by whether
    #: the signal fails.
    _PRIOR: Mapping[bool, tuple[float, float]] = {
        True: (1.0, 5.0), False: (1.0, 20.0)}
    def __init__(self) -> None:
        self._changes = {True: 0.0, False: 0.0}
        self._seconds = {True: 0.0, False: 0.0}

    def push(self, before: bool, fails: bool) -> None:
        """Count one second.

        :param before: whether the signal failed in the second before
        """
        self._changes[before] = (OLD_WEIGHT * self._changes[before]
                                 + (before is not fails))
        self._seconds[before] = OLD_WEIGHT * self._seconds[before] + 1

    def rate(self, fails: bool) -> float:
        """Return the chance that the signal changes by itself in a second.

        :param fails: whether it fails now
        """
        changes, seconds = self._PRIOR[fails]
        return (changes + self._changes[fails]) / (
            seconds + self._seconds[fails])


class SignalEvidence:
    """Evidence that a signal follows one secondary, from one trial."""

    def __init__(self) -> None:
        #: Logarithms of the likelihood of each explanation.
        self._follows = 0.0
        self._itself = math.log(1 - _QUICK_CHANCE)
        self._quickly = math.log(_QUICK_CHANCE)
        #: Number of times that the signal began to follow, and of seconds in
        #: which it could, by the last change and by seconds since then.
        self._began = {floored: [0] * len(_BEGINS) for floored in (
            True, False)}
        self._waited = {floored: [0] * len(_BEGINS) for floored in (
            True, False)}

    @property
    def log_ratio(self) -> float:
        """Logarithm of the likelihood ratio, for the secondary if above 0."""
        larger, smaller = sorted((self._itself, self._quickly), reverse=True)
        return self._follows - larger - math.log1p(
            math.exp(smaller - larger))

    def push(self, floored: bool, waited_s: int, before: bool, fails: bool,
             rate: float) -> None:
        """Note one second of a trial.

        :param floored: whether the secondary was at the floor
        :param waited_s: seconds since then in which the signal did not follow
        :param before: whether the signal failed in the second before
        :param rate: chance that the signal changes by itself
        """
        changed = fails is not before
        stays = (_KEEPS if before is not floored
                 else 1 - self._chance_to_begin(floored, waited_s, changed))
        self._follows += _log(1 - stays if changed else stays)
        self._itself += _log(rate if changed else 1 - rate)
        self._quickly += _log(_QUICK if changed else 1 - _QUICK)

    def _chance_to_begin(self, floored: bool, waited_s: int, begins: bool
                         ) -> float:
        """Return the chance that the signal begins to follow in this second.

        The observation is noted for later floors or releases.

        :param begins: whether the signal does begin to follow
        """
        second = min(waited_s, len(_BEGINS) - 1)
        began, waited = self._began[floored], self._waited[floored]
        chance = ((_PRIOR_SECONDS * _BEGINS[second] + began[second])
                  / (_PRIOR_SECONDS + waited[second]))
        began[second] += begins
        waited[second] += 1
        return chance


def _log(chance: float) -> float:
    """Return a logarithm; nothing is impossible."""
    return math.log(max(1e-9, chance))
