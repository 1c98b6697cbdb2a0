"""Run counters: when a policy fails, is violated, and is invalid.

One ``Trigger`` counts one policy on one host (Boettger 3.3, errata X5), one
check a second.  With timelimit TL and sensitivity s, ``failed`` checks in a
row mean::

    failed >= s       violated: the cloud is asked for help   (R16, R17)
    failed >= TL - 1  local trigger: the host helps itself    (R18)
    failed >  TL      invalid: the promise is broken          (R15)
"""

from collections import deque
from collections.abc import Mapping
import math

from secondary_scheduler.model.reports import PolicyState
from secondary_scheduler.policies import language


class FailureRuns:
    """How long runs of failed checks last that end by themselves.

    The agent's controller, and a primary that was busy for a moment, end most
    runs before any operation could.  A trigger that waits for these fires
    where only an operation helps (Boettger names adaptation from history, and
    leaves it open).
    """

    #: Runs that are remembered, and those without which nothing is known.
    SIZE, FEWEST = 40, 8
    #: Part of the runs that is waited for.
    PATIENCE = 0.9
    #: No operation has an effect within so many checks of the trigger.
    UNTOUCHED = 2

    def __init__(self) -> None:
        self._runs: deque[int] = deque(maxlen=self.SIZE)

    def note(self, failed: int, sensitivity: int) -> None:
        """Remember a run that has ended, if nobody else has ended it."""
        if 0 < failed < sensitivity + self.UNTOUCHED:
            self._runs.append(failed)

    def sensitivity(self, otherwise: int, timelimit: int) -> int:
        """Return after how many failed checks to ask for help.

        At most after half the timelimit: operations have the other half.
        """
        if len(self._runs) < self.FEWEST:
            return otherwise
        rank = math.ceil(self.PATIENCE * len(self._runs))
        return max(1, min(sorted(self._runs)[rank - 1] + 1, timelimit // 2))


class Trigger:
    """The run counter of one policy on one host."""

    def __init__(self, policy: language.Policy, sensitivity: int,
                 history: FailureRuns | None = None) -> None:
        """Start with no failed check.

        ``sensitivity`` is the number of failed checks from which the policy
        is violated; it is kept within 1 and timelimit - 1, and is 1 for a
        static policy.  With a ``history`` it is what a dynamic one starts
        with, and adapts after each run.
        """
        self.policy = policy
        self.given = self.sensitivity = 1 if policy.static else max(
            1, min(int(sensitivity), policy.timelimit - 1))
        self.history = None if policy.static else history
        self.failed = 0
        self._unknown = False

    def check(self, usage: float | None, contributing: bool) -> PolicyState:
        """Check once (a second), and say how the policy stands.

        ``usage`` is in the policy's unit, None if it could not be measured;
        ``contributing`` tells whether any secondary of the host uses the
        resource: without one the check holds, whatever the use (R14).

        Use that is unknown while a secondary contributes counts as a failed
        check up to the local trigger, so that a host without a sensor takes
        its secondaries to the floor in time, at no loss.  It goes no
        further: what was not measured neither changes the cloud
        (``violated``) nor counts as a broken promise (``invalid``).
        """
        self._unknown = contributing and usage is None
        if not contributing:
            self.failed = 0
        elif usage is None:
            self.failed = max(self.failed,
                              min(self.failed + 1, self.policy.timelimit - 1))
        elif usage <= self.policy.threshold:
            if self.failed and self.history is not None:
                self.history.note(self.failed, self.sensitivity)
                self.sensitivity = self.history.sensitivity(
                    self.given, self.policy.timelimit)
            self.failed = 0
        else:
            self.failed += 1
        return self.state

    @property
    def local_due(self) -> bool:
        """Whether the host must help itself now, one second before TL."""
        return self.failed >= self.policy.timelimit - 1

    @property
    def violated(self) -> bool:
        """Whether the global trigger has fired."""
        return self.failed >= self.sensitivity and not self._unknown

    @property
    def invalid(self) -> bool:
        """Whether the policy was overrun for longer than its timelimit."""
        return self.failed > self.policy.timelimit and not self._unknown

    @property
    def state(self) -> PolicyState:
        """How the policy stands after the last check."""
        if self._unknown:
            return PolicyState.UNKNOWN
        if self.invalid:
            return PolicyState.INVALID
        if self.violated:
            return PolicyState.VIOLATED
        return PolicyState.FAILING if self.failed else PolicyState.HELD


def sensitivity_for(timelimit: int, table: Mapping[str, str]
                    | Mapping[int, int]) -> int:
    """Return after how many failed checks a policy is violated.

    ``table`` maps timelimits to numbers of checks (Boettger Table 6.3), as
    the option trigger_sensitivity gives it; between two timelimits the number
    is interpolated, outside the nearest is taken, and the result is within 1
    and timelimit - 1.

    :raises ValueError: for a table that is empty or has no whole numbers.
    """
    try:
        points = sorted((int(key), int(value))
                        for key, value in table.items())
    except (TypeError, ValueError):
        points = []
    if not points:
        raise ValueError(
            '[secondary_scheduler] trigger_sensitivity must be pairs of whole '
            f'numbers like 25:7,10:4, not {dict(table)!r}')
    below = [point for point in points if point[0] <= timelimit]
    above = [point for point in points if point[0] >= timelimit]
    left, low = below[-1] if below else above[0]
    right, high = above[0] if above else below[-1]
    share = (timelimit - left) / (right - left) if right > left else 0.0
    return max(1, min(round(low + share * (high - low)), timelimit - 1))
