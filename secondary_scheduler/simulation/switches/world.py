# SPDX-License-Identifier: Apache-2.0

"""Cluster with jobs in progress, which moves change one by one."""

from collections import Counter, defaultdict
from collections.abc import Sequence
import dataclasses
import typing

from secondary_scheduler.model.configuration import (
    Amounts,
    Configuration,
    Member,
    MemberState,
    Move,
)
from secondary_scheduler.model.operation_kinds import OperationKind
from secondary_scheduler.simulation.switches.jobs import PhasedJob
from secondary_scheduler.simulation.switches.profiles import slowdown

#: Units and memory in MB of each host (Hermenier 2009, section 2.3).
HOSTS, UNITS, MEMORY_MB = 11, 2, 3584
_EPSILON = 1e-6


class Timed(typing.NamedTuple):
    """Move with the times at which it starts and ends."""

    move: Move
    start_s: float
    end_s: float


@dataclasses.dataclass
class JobState:
    """Progress of a job, and its history.

    :param started_s: time at which its application started: as soon as all
        its members ran; None before
    :param up_s: time since which all its members run; None while not all do
    """

    job: PhasedJob
    progress_s: float = 0.0
    started_s: float | None = None
    up_s: float | None = None
    ended_s: float | None = None


class JobWorld:
    """Cluster with jobs in progress.

    The state of a member changes at the end of a move.  A member that is
    suspended or deleted is paused from the start of that move.

    :param claims: multiple of the capacity of a host up to which it holds
        claims; 0 if suspended members hold none
    """

    def __init__(self, jobs: Sequence[PhasedJob], claims: float,
                 resumes_in_place: bool) -> None:
        self.now = 0.0
        self.jobs = {one.name: JobState(one) for one in jobs}
        self.hosts = tuple(f'host{number}' for number in range(1, HOSTS + 1))
        self.places: dict[str, tuple[MemberState, str | None]] = {
            member.name: (MemberState.WAITING, None)
            for one in jobs for member in one.members}
        self._claims = claims
        self._in_place = resumes_in_place
        self._paused: set[str] = set()
        self._wanted_before: dict[str, int] = {}
        self._flying: list[Timed] = []
        self.work_lost = 0.0

    # -- observation

    def observe(self) -> Configuration:
        """Return the configuration with the demand of this instant.

        A suspended member wants what it wanted when it was suspended, a
        waiting one no unit.
        """
        members = {}
        for state in self.jobs.values():
            busy = self._busy(state)
            for one in state.job.members:
                where, host = self.places[one.name]
                wanted = (self._wanted_before.get(one.name, 0)
                          if where is MemberState.SUSPENDED
                          else int(one.name in busy))
                held: Amounts = (1, one.memory_mb) if self._claims else ()
                members[one.name] = Member(
                    one.name, state.job.name, where, host,
                    (wanted, one.memory_mb, *held), (0, 0, *held),
                    one.memory_mb, floor=(0, one.memory_mb, *held))
        dimensions: tuple[str, ...] = ('cpu', 'memory')
        capacity: Amounts = (UNITS, MEMORY_MB)
        if self._claims:
            dimensions += ('claimed_cpu', 'claimed_memory')
            capacity += tuple(int(self._claims * one) for one in capacity)
        return Configuration(dimensions, dict.fromkeys(self.hosts, capacity),
                             members, resumes_in_place=self._in_place)

    @property
    def queue(self) -> tuple[str, ...]:
        """Jobs that have not ended, in their order."""
        return tuple(name for name, one in self.jobs.items()
                     if one.ended_s is None)

    @property
    def finished(self) -> bool:
        """Whether all jobs have ended and no member is left."""
        return not self.queue and all(
            state is MemberState.ENDED for state, _ in self.places.values())

    def wanted(self) -> int:
        """Return the units that jobs want whose members all run."""
        return sum(one.job.width for one in self.jobs.values()
                   if one.up_s is not None and one.ended_s is None)

    def used(self) -> float:
        """Return the units that make progress."""
        return sum(rate * self.jobs[name].job.width
                   for name, rate in self.rates().items())

    def mixed(self) -> list[str]:
        """Return the jobs of which some members run and others do not."""
        return [name for name, one in self.jobs.items()
                if len({self.places[member.name][0] is MemberState.RUNNING
                        for member in one.job.members}) > 1]

    # -- progress

    def rates(self) -> dict[str, float]:
        """Return the speed of each job in progress, 1 on hosts of its own.

        A job is as fast as its slowest busy member.  Busy members of a host
        share its units equally.
        """
        placed: dict[str, list[str]] = {}
        crowd: Counter[str] = Counter()
        for name, one in self.jobs.items():
            if one.up_s is not None and one.ended_s is None:
                placed[name] = [
                    str(self.places[member][1])
                    for member in self._busy(one)]
                crowd.update(placed[name])
        slowed: dict[str, float] = defaultdict(lambda: 1.0)
        for flight in self._flying:
            for host in {flight.move.source, flight.move.target} - {None}:
                slowed[str(host)] = max(slowed[str(host)], slowdown(
                    flight.move, str(host)))
        return {name: min(min(1.0, UNITS / crowd[host]) / slowed[host]
                          for host in hosts)
                for name, hosts in placed.items()}

    def next_change(self) -> float:
        """Return when the next phase of a job ends, at the present rates."""
        return min((self.now + (state.job.phase_end(state.progress_s)
                                - state.progress_s) / rate
                    for name, rate in self.rates().items()
                    for state in (self.jobs[name],)), default=float('inf'))

    def advance(self, until: float) -> None:
        """Let jobs progress until a time before any other change."""
        for name, rate in self.rates().items():
            state = self.jobs[name]
            state.progress_s += rate * (until - self.now)
            if state.progress_s >= state.job.length_s - _EPSILON:
                state.progress_s = state.job.length_s
                state.ended_s = until
        self.now = until

    # -- moves

    def begin(self, timed: Timed) -> None:
        """Begin a move at its start."""
        move = timed.move
        self._flying.append(timed)
        if move.kind in (OperationKind.SUSPEND, OperationKind.DELETE):
            state = self.jobs[move.lease]
            self._wanted_before[move.member] = int(
                move.member in self._busy(state))
            self._paused.add(move.member)
            self._update(move.lease)

    def end(self, timed: Timed) -> None:
        """Apply the effect of a move at its end."""
        move = timed.move
        self._flying.remove(timed)
        self._paused.discard(move.member)
        if move.kind is OperationKind.SUSPEND:
            after = MemberState.SUSPENDED, move.source
        elif move.kind is OperationKind.DELETE:
            after = MemberState.ENDED, None
            self._lose(move)
        else:
            after = MemberState.RUNNING, move.target
        self.places[move.member] = after
        self._update(move.lease)

    def _lose(self, move: Move) -> None:
        """Count the work of a job that a deleted member loses."""
        state = self.jobs[move.lease]
        if state.ended_s is None:
            self.work_lost += state.progress_s * state.job.width
            state.progress_s, state.started_s = 0.0, None

    def _update(self, name: str) -> None:
        """Start or stop the progress of a job after a change of a member."""
        state = self.jobs[name]
        running = all(
            self.places[one.name][0] is MemberState.RUNNING
            and one.name not in self._paused for one in state.job.members)
        if not running:
            state.up_s = None
        elif state.up_s is None:
            state.up_s = self.now
            if state.started_s is None:
                state.started_s = self.now

    def _busy(self, state: JobState) -> tuple[str, ...]:
        """Return the names of the members of a job that want a unit."""
        if state.started_s is None or state.ended_s is not None:
            return ()
        return tuple(one.name for one in state.job.busy(state.progress_s))
