# SPDX-License-Identifier: Apache-2.0

"""Run counters, which decide whether a policy is violated or invalid.

One ``Trigger`` counts one policy on one host, one check a second (Boettger
2012, sections 4.3.5, 4.4.3.1 and 4.4.4.2; see reference/errata, Boettger, run
counters).  With time limit TL and sensitivity s, ``failed`` checks in a row
mean::

    failed >= s       violated: the cloud is asked for help
    failed >= TL - 1  local trigger: the host helps itself
    failed >  TL      invalid: the policy is broken
"""

from collections import deque
from collections.abc import Mapping
import math

from secondary_scheduler.model.reports import PolicyState
from secondary_scheduler.policies import language


class FailureRuns:
    """Lengths of runs of failed checks that ended without an operation.

    Most runs end by the agent's controller, or with a short burst of the
    primary, before any operation could take effect.  A trigger that waits for
    these runs fires only if an operation is needed (Boettger 2012 names
    adaptation from history, and leaves it open).
    """

    #: Most runs that are remembered, and least that are needed.
    SIZE, FEWEST = 40, 8
    #: Fraction of the runs that a trigger waits for.
    QUANTILE = 0.9
    #: Checks after the trigger in which no operation can take effect.
    UNTOUCHED = 2

    def __init__(self) -> None:
        self._runs: deque[int] = deque(maxlen=self.SIZE)

    def note(self, failed: int, sensitivity: int) -> None:
        """Remember a run, unless an operation may have ended it."""
        if 0 < failed < sensitivity + self.UNTOUCHED:
            self._runs.append(failed)

    def sensitivity(self, otherwise: int, timelimit: int) -> int:
        """Return the number of failed checks from which to ask for help.

        It is at most half of the time limit; operations have the other half.

        :param otherwise: the number if too few runs are known
        """
        if len(self._runs) < self.FEWEST:
            return otherwise
        rank = math.ceil(self.QUANTILE * len(self._runs))
        return max(1, min(sorted(self._runs)[rank - 1] + 1, timelimit // 2))


class Trigger:
    """The run counter of one policy on one host."""

    def __init__(self, policy: language.Policy, sensitivity: int,
                 history: FailureRuns | None = None) -> None:
        """Start with no failed check.

        :param sensitivity: number of failed checks from which the policy is
            violated; kept within 1 and timelimit - 1, and 1 for a static
            policy
        :param history: adapts the sensitivity of a dynamic policy after each
            run
        """
        self.policy = policy
        self.given = self.sensitivity = 1 if policy.static else max(
            1, min(int(sensitivity), policy.timelimit - 1))
        self.history = None if policy.static else history
        self.failed = 0
        self._unknown = False

    def check(self, usage: float | None, contributing: bool) -> PolicyState:
        """Check once (a second), and return the new state of the policy.

        Unknown use while a secondary contributes counts as a failed check up
        to the local trigger.  So a host without a sensor takes its
        secondaries to the floor in time, at no loss.  Unknown use alone makes
        a policy neither violated nor invalid.

        :param usage: in the policy's unit, None if it could not be measured
        :param contributing: whether any secondary of the host uses the
            resource; without one the check holds, whatever the use (Boettger
            2012, section 4.3.5)
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
        """Whether the policy has failed for longer than its time limit."""
        return self.failed > self.policy.timelimit and not self._unknown

    @property
    def state(self) -> PolicyState:
        """State of the policy after the last check."""
        if self._unknown:
            return PolicyState.UNKNOWN
        if self.invalid:
            return PolicyState.INVALID
        if self.violated:
            return PolicyState.VIOLATED
        return PolicyState.FAILING if self.failed else PolicyState.HELD


def sensitivity_for(timelimit: int, table: Mapping[str, str]
                    | Mapping[int, int]) -> int:
    """Return the number of failed checks from which a policy is violated.

    Between two time limits of the table the number is interpolated, outside
    the nearest is taken.  The result is within 1 and timelimit - 1.

    :param table: numbers of checks by time limits (Boettger 2012, Table 6.3),
        as the option trigger_sensitivity gives it
    :raises ValueError: for a table that is empty or has no whole numbers
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
