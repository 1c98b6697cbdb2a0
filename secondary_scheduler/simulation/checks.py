# SPDX-License-Identifier: Apache-2.0

"""Run counters of all policies on all hosts at once.

A test compares them with ``policies.triggers``.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
import functools

import numpy as np

from secondary_scheduler.policies import language, triggers
from secondary_scheduler.simulation.world import Bools, Floats

#: Failed checks before the global trigger (Boettger 2012, Table 6.3, "Mid").
SENSITIVITY: Mapping[int, int] = {25: 7, 20: 6, 15: 5, 10: 4, 8: 3, 6: 2}


class PolicyChecks:
    """Thresholds and failed checks of policies on hosts, (P, H)."""

    def __init__(self, policies: Sequence[language.Policy], hosts: int,
                 offset: int = 0, adapts: bool = False) -> None:
        """Start with no failed checks.

        ``offset`` is added to the sensitivity of dynamic policies.  With
        ``adapts`` the sensitivity follows the length of failures on each host.
        """
        self.policies = tuple(policies)
        self.threshold = np.repeat(
            [[one.threshold] for one in policies], hosts, axis=1)
        self.failed = np.zeros((len(policies), hosts), dtype=np.int64)
        self.timelimit = np.array([[one.timelimit] for one in policies])
        self.dynamic = np.array([[not one.static] for one in policies])
        self.sensitivity = np.repeat([[
            triggers.Trigger(one, offset + triggers.sensitivity_for(
                one.timelimit, SENSITIVITY)).sensitivity]
            for one in policies], hosts, axis=1)
        self._given = self.sensitivity[:, 0].tolist()
        self._histories: (
            Mapping[tuple[int, int], triggers.FailureRuns] | None
        ) = defaultdict(triggers.FailureRuns) if adapts else None

    def count(self, use: Mapping[str, Floats],
              contributing: Mapping[str, Bools]) -> None:
        """Check all policies; both arguments are (H,) by resource."""
        for number, policy in enumerate(self.policies):
            over = use[policy.resource] > self.threshold[number] + 1e-9
            if self._histories is not None and not policy.static:
                for host in np.flatnonzero(~over & contributing[
                        policy.resource] & (self.failed[number] > 0)):
                    self._learn(number, int(host), self._histories)
            self.failed[number] = np.where(
                contributing[policy.resource] & over,
                self.failed[number] + 1, 0)

    def _learn(self, number: int, host: int, histories: Mapping[
            tuple[int, int], triggers.FailureRuns]) -> None:
        """Adapt the sensitivity after a run of failed checks."""
        history, place = histories[number, host], (number, host)
        history.note(int(self.failed[place]), int(self.sensitivity[place]))
        self.sensitivity[place] = history.sensitivity(
            self._given[number], self.policies[number].timelimit)

    @property
    def fired(self) -> Bools:
        """Policies and hosts whose global trigger fires at this check."""
        return np.asarray(self.failed == self.sensitivity)

    @property
    def violated(self) -> Bools:
        """Policies and hosts whose global trigger has fired."""
        return np.asarray(self.failed >= self.sensitivity)

    @property
    def local(self) -> Bools:
        """Policies and hosts whose local trigger is due."""
        return np.asarray(self.failed >= self.timelimit - 1)

    @property
    def broken(self) -> Bools:
        """Policies and hosts that become invalid at this check."""
        return np.asarray(self.failed == self.timelimit + 1)

    def set_point(self, resource: str, margin: float) -> Floats:
        """Return the lowest threshold less a margin; 100 without any."""
        rows = [row for row, one in enumerate(self.policies)
                if one.resource == resource]
        if not rows:
            return np.full(self.failed.shape[1], 100.0)
        lowest = functools.reduce(np.minimum, self.threshold[rows])
        return np.asarray(lowest - margin)
