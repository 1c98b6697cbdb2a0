# SPDX-License-Identifier: Apache-2.0

"""A signal of harm on a host with secondaries, some of which are its cause.

Secondaries are active in phases, each on one resource.  Those that do harm
raise the signal while they are active, and each alone makes it fail.  The
signal also has noise, and load of the primary itself.  The host reacts with
the agent's own trials, restraint and run counters.
"""

from collections import deque
from collections.abc import Sequence
import dataclasses
import random
import typing

from secondary_scheduler.agent.restraint import Restraint
from secondary_scheduler.cpu_affinity.onsets import Activities
from secondary_scheduler.cpu_affinity.suspects import (
    SignalState,
    SuspectOptions,
    Suspects,
    Verdict,
)
from secondary_scheduler.policies import language, triggers

RESOURCES = ('cpu', 'disk_in', 'net_out')
#: Policy on the signal, which is 10 without load and harm.
POLICY = 'probe:p99_ms <= 20 for 15s'
CALM = 10.0
#: Addition to the signal by a secondary that does harm, at full activity, and
#: by the primary itself.
HARM, OWN = (15.0, 40.0), 25.0
#: Mean seconds of the active and of the idle phases of a secondary.
ACTIVE_S, IDLE_S = 60.0, 90.0
#: Use of its resource by an active secondary, in percent of the host.
USE = (3.0, 20.0)
#: Part of its activity that a secondary has at the floor.
FLOOR = 0.01
#: Part of its full activity by which a secondary recovers in a second.
RECOVERY = 0.5
#: Seconds for which the signal must hold before the last resort ends.
LIFT_S = 5


@dataclasses.dataclass(frozen=True)
class HarmScenario:
    """Secondaries and the primary of a run.

    :param culprits: number of secondaries that do harm
    :param own_s: mean seconds of the phases in which the primary itself makes
        the signal fail, and of those between; 0 without
    :param lag_s: seconds until the signal shows harm
    :param noise: deviation of the logarithm of the signal
    :param unknown: part of the readings of activity that are unknown
    """

    culprits: int
    seed: int
    guests: int = 20
    own_s: float = 0.0
    lag_s: int = 1
    noise: float = 0.1
    unknown: float = 0.1
    seconds: int = 1800


class HarmOutcome(typing.NamedTuple):
    """Result of a run.

    :param named: secondaries that were confirmed
    :param first_s: seconds in which the signal failed until the first was;
        None if none was
    :param work: part of their activity that innocent secondaries could do
    :param longest_floor_s: most seconds that an innocent secondary was at the
        floor on trial
    :param failed_s: seconds in which the signal failed
    """

    named: frozenset[str]
    first_s: int | None
    work: float
    longest_floor_s: int
    failed_s: int


@dataclasses.dataclass
class _Guest:
    """Secondary of a run; ``level`` is the present part of its activity."""

    name: str
    resource: str
    use: float
    harm: float
    active: bool = False
    level: float = 0.0
    floor_s: int = 0


class HarmRun:
    """One host for some time."""

    def __init__(self, scenario: HarmScenario,
                 options: SuspectOptions | None) -> None:
        """Draw the secondaries.

        :param options: options of trials; None reacts without trials
        """
        self._scenario = scenario
        draw = random.Random(f'guests {scenario.seed} {scenario.culprits}')
        culprits = draw.sample(range(scenario.guests), scenario.culprits)
        self._guests = [
            _Guest(f'g{number:02}', draw.choice(RESOURCES),
                   draw.uniform(*USE),
                   draw.uniform(*HARM) * (number in culprits),
                   draw.random() < ACTIVE_S / (ACTIVE_S + IDLE_S))
            for number in range(scenario.guests)]
        self._draw = random.Random(f'phases {scenario.seed}')
        self._readings = random.Random(f'readings {scenario.seed}')
        self._suspects = None if options is None else Suspects(options)
        self._restraint = Restraint()
        self._trigger = triggers.Trigger(language.parse(POLICY), 1)
        self._own = False
        self._levels = deque([CALM], maxlen=scenario.lag_s + 1)
        #: Seconds for which the last resort goes on; 0 without.
        self._resort_s = 0

    @property
    def culprits(self) -> frozenset[str]:
        """Secondaries that do harm."""
        return frozenset(one.name for one in self._guests if one.harm)

    def run(self) -> HarmOutcome:
        """Run all seconds."""
        named: set[str] = set()
        floored: frozenset[str] = frozenset()
        first_s, failed_s, wanted, done = None, 0, 0.0, 0.0
        for _second in range(self._scenario.seconds):
            self._advance(floored)
            value = self._signal()
            failed_s += value > self._trigger.policy.threshold
            floored = self._react(value)
            named |= self._named()
            if named and first_s is None:
                first_s = failed_s
            for one in self._guests:
                one.floor_s += one.name in floored
                if one.active and not one.harm:
                    wanted += one.use
                    done += one.use * self._speed(one)
        return HarmOutcome(
            frozenset(named), first_s, done / wanted if wanted else 1.0,
            max((one.floor_s for one in self._guests if not one.harm
                 and one.name not in named), default=0), failed_s)

    def _named(self) -> set[str]:
        return set() if self._suspects is None else {
            guest for guest, one in self._suspects.verdicts.items()
            if one.verdict is Verdict.CONFIRMED}

    def _advance(self, floored: frozenset[str]) -> None:
        """Let phases begin and end, and activities follow limits."""
        own_s = self._scenario.own_s
        # The draws are the same whatever the reaction.
        if self._draw.random() < (1 / own_s if own_s else 0):
            self._own = not self._own
        for one in self._guests:
            mean = ACTIVE_S if one.active else IDLE_S
            if self._draw.random() < 1 / mean:
                one.active = not one.active
            limit = (FLOOR if one.name in floored or self._resort_s
                     else 1.0) * one.active
            one.level = min(limit, one.level + RECOVERY)

    def _speed(self, one: _Guest) -> float:
        """Return the part of its use that a secondary has now."""
        return one.level * (self._restraint.share
                            if one.resource == 'cpu' else 1.0)

    def _signal(self) -> float:
        """Return the value of the signal."""
        self._levels.append(CALM + OWN * self._own + sum(
            one.harm * self._speed(one) for one in self._guests))
        return self._levels[0] * self._draw.lognormvariate(
            0.0, self._scenario.noise)

    def _react(self, value: float) -> frozenset[str]:
        """React like an agent; return the secondaries on trial or confirmed.
        """
        policy = self._trigger.policy
        self._trigger.check(value, not self._resort_s)
        fails = value > policy.threshold
        floored: frozenset[str] = frozenset()
        waits = False
        if self._suspects is not None:
            activities = self._activities()
            floored, waits = self._suspects.step(
                SignalState(fails, policy.timelimit // 2
                            - self._trigger.failed), activities,
                activities.keys())
        if not waits:
            self._restraint.push(fails)
        if self._trigger.local_due:
            self._resort_s = LIFT_S
        elif self._resort_s and not fails:
            self._resort_s -= 1
        return floored

    def _activities(self) -> Activities:
        """Return the known activities of secondaries that may be on trial."""
        if self._resort_s:
            return {}
        return {one.name: {
            resource: use for resource in RESOURCES
            if (use := self._use(one, resource)) is not None}
            for one in self._guests}

    def _use(self, one: _Guest, resource: str) -> float | None:
        unknown = self._readings.random() < self._scenario.unknown
        noise = self._readings.lognormvariate(0.0, 0.2)
        if unknown:
            return None
        share = self._speed(one) if resource == one.resource else 0.05
        return one.use * share * noise


def precision(runs: Sequence[tuple[frozenset[str], HarmOutcome]]) -> float:
    """Return the part of the named secondaries that do harm.

    :param runs: secondaries that do harm, and the outcome of each run
    """
    named = sum(len(one.named) for _culprits, one in runs)
    right = sum(len(one.named & culprits) for culprits, one in runs)
    return right / named if named else 1.0


def recall(runs: Sequence[tuple[frozenset[str], HarmOutcome]]) -> float:
    """Return the part of the secondaries that do harm which are named.

    :param runs: as for ``precision``
    """
    right = sum(len(one.named & culprits) for culprits, one in runs)
    return right / sum(len(culprits) for culprits, _one in runs)
