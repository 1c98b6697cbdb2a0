# SPDX-License-Identifier: Apache-2.0

"""Trials that find the secondaries which make a signal of harm fail.

A signal of harm names no culprit.  So the likeliest secondary is taken to the
floor.  If the signal then holds, the secondary is released after some seconds.
If the signal fails again, it is taken to the floor again, and so on.  It is
confirmed when the signal has followed it so often that chance is not the
cause, and acquitted when the signal does not follow it (sequential probability
ratio test, Wald 1945).  So a primary that harms itself now and then makes
trials longer, but names no secondary.

Confirmed secondaries go to the floor as soon as the signal fails.

The state machine has neither clock nor I/O: one step is one second.  The agent
and the simulator run the same lines.
"""

from collections.abc import Collection, Iterable
import dataclasses
import enum
import math
import typing

from secondary_scheduler.cpu_affinity.onsets import Activities, OnsetWindow
from secondary_scheduler.cpu_affinity.signal_evidence import (
    OLD_WEIGHT,
    SignalEvidence,
    SignalRates,
)
from secondary_scheduler.reading.values import InputError, shown

#: Failed seconds in a row before a trial, since one may be noise.
_ONSET_S = 2
#: A release lasts so many times as long as a floor: a released secondary needs
#: some seconds to be as active as before.
_RELEASE = 2
#: Likelihood ratio that confirms, times the number of trials of late: of so
#: many trials of innocent secondaries at most one confirms (Wald's bound).
_CONFIRMS = 200.0
#: Seconds for which a signal must hold before the secondary on trial is
#: released, one after the other.  They differ, so that a signal with a period
#: of its own does not keep in step.
_HOLDS_S = (3, 2, 4)
#: Most releases in a trial; a signal that changes too often decides nothing.
_MOST_RELEASES = 8
#: Seconds until a secondary that was acquitted may be on trial again.
_ACQUITTED_S = 120
#: Seconds for which the signal must hold before a confirmed secondary leaves
#: the floor.  They double each time that it fails again.
_HOLD_S = 10


class SignalState(typing.NamedTuple):
    """State of the signals of harm of a host in one second.

    :param fails: whether one is above its limit; None if that is unknown
    :param spare_s: seconds for which a reaction that concerns all secondaries
        may yet wait; below 0 if it must not
    """

    fails: bool | None
    spare_s: int


class Verdict(enum.StrEnum):
    """Result of the trial of a secondary so far."""

    TRIAL = 'trial'
    CONFIRMED = 'confirmed'
    ACQUITTED = 'acquitted'


class Suspicion(typing.NamedTuple):
    """Verdict on a secondary.

    :param left_s: seconds until the verdict ends; 0 for a trial
    :param resource: the resource whose use resembles the signal most, '' if
        no use was known
    """

    verdict: Verdict
    left_s: int
    resource: str = ''


class Reaction(typing.NamedTuple):
    """Reaction to the signals of one second.

    :param floored: secondaries that should be at the floor
    :param waits: whether a reaction that concerns all secondaries should wait
    """

    floored: frozenset[str]
    waits: bool


@dataclasses.dataclass(frozen=True)
class SuspectOptions:
    """Options of trials.

    :param trial_s: seconds in which the signal must answer to a floor
    :param trials: most trials without an answer while the signal fails
    :param confirmed_s: seconds for which a confirmation lasts
    :raises InputError: with the name of an invalid option
    """

    trial_s: int = 4
    trials: int = 3
    confirmed_s: int = 600

    def __post_init__(self) -> None:
        for one in dataclasses.fields(SuspectOptions):
            value = getattr(self, one.name)
            if not 1 <= value <= 86_400:
                raise InputError(f'{one.name}: expected a number from 1 to '
                                 f'86400, not {shown(value)}')


@dataclasses.dataclass
class _Trial:
    """Trial of one secondary.

    :param floored: whether it is at the floor, or released
    :param waited_s: seconds since then in which the signal did not follow
    :param held_s: seconds since then in which the signal held at the floor
    :param seen: states of the signal in two successive seconds each
    """

    guest: str
    resource: str
    evidence: SignalEvidence = dataclasses.field(
        default_factory=SignalEvidence)
    floored: bool = True
    waited_s: int = 0
    held_s: int = 0
    releases: int = 0
    seen: list[tuple[bool, bool]] = dataclasses.field(default_factory=list)

    def move(self) -> None:
        """Release the secondary, or take it to the floor again."""
        self.releases += self.floored
        self.floored = not self.floored
        self.waited_s = self.held_s = 0


@dataclasses.dataclass
class _Confirmation:
    """Confirmed secondary; it begins at the floor."""

    resource: str
    left_s: int
    hold_s: int = _HOLD_S
    held_s: int = 0
    floored: bool = True


class Suspects:
    """Trials and verdicts of the secondaries of one host."""

    def __init__(self, options: SuspectOptions) -> None:
        self._options = options
        self._rates = SignalRates()
        self._window = OnsetWindow()
        self._trial: _Trial | None = None
        self._confirmed: dict[str, _Confirmation] = {}
        #: Seconds until an acquittal ends.
        self._acquitted: dict[str, int] = {}
        self._before: bool | None = None
        self._failing_s = 0
        #: Trials without an answer since the signal has held.
        self._trials = 0
        #: All trials of late; old ones count less and less.
        self._tried = 0.0
        #: Seconds in which the signal may answer to confirmed secondaries.
        self._unsettled_s = 0

    @property
    def verdicts(self) -> dict[str, Suspicion]:
        """Verdict on each secondary that was on trial lately."""
        found = {guest: Suspicion(Verdict.ACQUITTED, left_s)
                 for guest, left_s in self._acquitted.items()}
        found |= {guest: Suspicion(Verdict.CONFIRMED, one.left_s,
                                   one.resource)
                  for guest, one in self._confirmed.items()}
        if self._trial is not None:
            found[self._trial.guest] = Suspicion(Verdict.TRIAL, 0,
                                                 self._trial.resource)
        return found

    def step(self, signal: SignalState, guests: Activities,
             running: Collection[str]) -> Reaction:
        """React to one second.

        :param guests: activity of the secondaries that may be on trial.  If
            the one on trial is missing, its trial ends without a verdict.
        :param running: all secondaries that run here.  For a confirmed one
            that does not, nothing waits
        """
        self._age()
        self._note(signal.fails, guests)
        if self._trial is not None and (signal.fails is None
                                        or self._trial.guest not in guests):
            self._trial = None
        if signal.fails is None:
            return Reaction(self._floored(), False)
        if self._trial is not None:
            self._judge(self._trial, signal.fails)
        confirmed = [one for guest, one in self._confirmed.items()
                     if guest in running]
        self._keep(confirmed, signal.fails)
        waits = signal.fails and self._react(guests, confirmed)
        return Reaction(self._floored(), waits and signal.spare_s >= 0)

    def _floored(self) -> frozenset[str]:
        found = {guest for guest, one in self._confirmed.items()
                 if one.floored}
        if self._trial is not None and self._trial.floored:
            found.add(self._trial.guest)
        return frozenset(found)

    def _age(self) -> None:
        """Let one second of each verdict pass."""
        self._tried *= OLD_WEIGHT
        self._unsettled_s = max(0, self._unsettled_s - 1)
        self._acquitted = {guest: left_s - 1 for guest, left_s
                           in self._acquitted.items() if left_s > 1}
        for one in self._confirmed.values():
            one.left_s -= 1
        self._confirmed = {guest: one for guest, one
                           in self._confirmed.items() if one.left_s > 0}

    def _note(self, fails: bool | None, guests: Activities) -> None:
        """Count the state of the signal, unless a reaction may be its cause.
        """
        before, self._before = self._before, fails
        begins = False
        if before is not None and fails is not None:
            if self._trial is not None:
                self._trial.seen.append((before, fails))
                self._trial.evidence.push(
                    self._trial.floored, self._trial.waited_s, before, fails,
                    self._rates.rate(before))
            elif not self._unsettled_s:
                self._rates.push(before, fails)
                begins = fails and not before
        self._window.push(begins, guests)
        self._failing_s = self._failing_s + 1 if fails else 0
        if fails is False:
            self._trials = 0

    def _judge(self, trial: _Trial, fails: bool) -> None:
        """Confirm or acquit the secondary on trial, or continue the trial."""
        follows = fails is not trial.floored
        trial.waited_s += not follows
        trial.held_s += follows
        if trial.evidence.log_ratio >= math.log(
                _CONFIRMS * max(1.0, self._tried)):
            self._trial = None
            self._confirmed[trial.guest] = _Confirmation(
                trial.resource, self._options.confirmed_s)
            self._unsettled_s = self._options.trial_s
        elif (trial.waited_s >= self._options.trial_s * (
                1 if trial.floored else _RELEASE)
                or trial.releases > _MOST_RELEASES):
            self._acquit(trial)
        elif follows and (not trial.floored or trial.held_s >= _HOLDS_S[
                trial.releases % len(_HOLDS_S)]):
            trial.move()

    def _acquit(self, trial: _Trial) -> None:
        """End a trial; the signal has changed by itself in it."""
        self._trial = None
        self._acquitted[trial.guest] = _ACQUITTED_S
        for before, fails in trial.seen:
            self._rates.push(before, fails)

    def _keep(self, confirmed: Iterable[_Confirmation], fails: bool) -> None:
        """Release confirmed secondaries, one a second, if the signal holds."""
        floored = [one for one in confirmed if one.floored]
        for one in floored:
            one.held_s = 0 if fails else one.held_s + 1
        due = [one for one in floored if one.held_s >= one.hold_s]
        if due and self._trial is None:
            due[0].floored = False
            self._unsettled_s = _RELEASE * self._options.trial_s

    def _react(self, guests: Activities, confirmed: Iterable[_Confirmation]
               ) -> bool:
        """React to a signal that fails; return whether it has time to answer.
        """
        released = [one for one in confirmed if not one.floored]
        for one in released:
            one.floored, one.held_s, one.hold_s = True, 0, 2 * one.hold_s
        if released:
            self._unsettled_s = self._options.trial_s
        if self._trial is not None or self._unsettled_s:
            return True
        candidates = (guests.keys() - self._confirmed.keys()
                      - self._acquitted.keys())
        if not candidates or self._trials >= self._options.trials:
            return False
        if self._failing_s >= _ONSET_S:
            self._begin_trial(candidates)
        return True

    def _begin_trial(self, candidates: Collection[str]) -> None:
        """Begin the trial of the likeliest of some secondaries."""
        self._trials += 1
        self._tried += 1
        likeness = {one: self._window.likeness(one) for one in candidates}
        guest = max(candidates, key=lambda one: (likeness[one].score, one))
        self._trial = _Trial(guest, likeness[guest].resource)
