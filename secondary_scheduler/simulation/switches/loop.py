# SPDX-License-Identifier: Apache-2.0

"""Control loop of a cluster with jobs: observe, decide, switch, wait.

Hermenier 2009, section 3: no decision is made while a switch goes on, nor
before measurements are new.
"""

from collections.abc import Callable
import dataclasses
import typing

from secondary_scheduler.estimation import switch_times
from secondary_scheduler.model.configuration import (
    Configuration,
    MemberState,
    Switch,
)
from secondary_scheduler.model.operation_kinds import OperationKind
from secondary_scheduler.simulation.switches.profiles import SwitchProfile
from secondary_scheduler.simulation.switches.world import JobWorld, Timed

#: Latest end of a simulation; jobs that have not ended then starve.
LATEST_S = 20_000.0


class StarvationError(RuntimeError):
    """Jobs that make no progress in the simulated time."""


class Round(typing.NamedTuple):
    """Result of a decision that changes something.

    :param displaced: jobs that it suspends, with the seconds for which all
        members of each ran before
    :param viable: whether hosts had room for all that was wanted; otherwise
        jobs are suspended in any case
    """

    decided_s: float
    ended_s: float
    switch: Switch
    times: tuple[Timed, ...]
    displaced: tuple[tuple[str, float], ...]
    viable: bool


class UseSample(typing.NamedTuple):
    """Units wanted and used, and whether more are wanted than there are."""

    second: float
    wanted: int
    used: float


#: Returns the switch from a configuration, for a queue of jobs; the last
#: argument has the seconds for which each running job runs.
Decider = Callable[[Configuration, tuple[str, ...], dict[str, float]], Switch]


@dataclasses.dataclass
class ControlLoop:
    """Control loop with all that is recorded of it."""

    world: JobWorld
    profile: SwitchProfile
    decide: Decider
    rounds: list[Round] = dataclasses.field(default_factory=list)
    samples: list[UseSample] = dataclasses.field(default_factory=list)
    mixed: int = 0

    def run(self) -> None:
        """Run until all jobs have ended and their members are deleted.

        :raises StarvationError: if the jobs do not end
        """
        world = self.world
        decided = -self.profile.period_s
        ready = 0.0
        while not world.finished:
            self._wait(max(decided + self.profile.period_s, ready))
            if world.now > LATEST_S:
                raise StarvationError(', '.join(world.queue))
            decided = world.now
            ready = self._switch()

    def _switch(self) -> float:
        """Decide, and carry out the switch; return when the next may be."""
        world = self.world
        current = world.observe()
        switch = self.decide(current, world.queue, {
            name: world.now - one.up_s for name, one in world.jobs.items()
            if one.up_s is not None})
        if not switch.moves:
            return world.now
        begun = world.now
        times = self._times(current, switch, begun)
        displaced = self._displaced(switch, begun)
        self._carry_out(times)
        self.mixed += len(world.mixed())
        self.rounds.append(Round(begun, world.now, switch, times, displaced,
                                 current.is_viable()))
        return world.now + self.profile.collect_s

    def _times(self, current: Configuration, switch: Switch, begun: float
               ) -> tuple[Timed, ...]:
        seconds = self.profile.seconds
        found = (switch_times.graph_times(current, switch.pools, seconds)
                 if self.profile.graph
                 else switch_times.pool_times(switch.pools, seconds))
        return tuple(Timed(move, begun + start, begun + end)
                     for move, start, end in found)

    def _displaced(self, switch: Switch, now: float
                   ) -> tuple[tuple[str, float], ...]:
        """Return the jobs that a switch suspends, other than to bypass."""
        found = {}
        for move in switch.moves:
            state = self.world.jobs[move.lease]
            if (move.kind is OperationKind.SUSPEND and not move.bypass
                    and state.up_s is not None):
                found[move.lease] = now - state.up_s
        return tuple(found.items())

    def _carry_out(self, times: tuple[Timed, ...]) -> None:
        """Let the moves start and end, in the order of time.

        Ends come before starts of the same instant, and moves without a
        duration end after their start.
        """
        events = sorted(
            [(one.end_s, one.end_s <= one.start_s, number, one, False)
             for number, one in enumerate(times)]
            + [(one.start_s, True, number - len(times), one, True)
               for number, one in enumerate(times)],
            key=lambda event: event[:3])
        for second, _late, _number, one, starts in events:
            self._wait(second)
            if starts:
                self.world.begin(one)
            else:
                self.world.end(one)

    def _wait(self, until: float) -> None:
        """Let time pass; samples are taken at each change."""
        world = self.world
        self._sample()
        while world.now < until:
            world.advance(min(until, world.next_change()))
            self._sample()

    def _sample(self) -> None:
        """Record the units wanted and used at this instant."""
        world = self.world
        found = UseSample(world.now, world.wanted(), world.used())
        if self.samples and self.samples[-1].second == found.second:
            self.samples.pop()
        self.samples.append(found)


def finish_ended(current: Configuration, queue: tuple[str, ...],
                 target: Configuration) -> Configuration:
    """Return the target with the members of ended jobs deleted."""
    return target.with_members(
        dataclasses.replace(one, state=MemberState.ENDED, host=None)
        for one in current.members.values()
        if one.lease not in queue and one.state is not MemberState.ENDED)
