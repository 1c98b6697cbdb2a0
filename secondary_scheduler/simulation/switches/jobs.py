# SPDX-License-Identifier: Apache-2.0

"""Jobs of Entropy's cluster: phases in which some members are busy.

The jobs are those of Hermenier 2009, section 5.2: applications of the NAS
Grid Benchmarks with nine virtual machines each.  Lengths are those of figure
12.  The publication does not say how many members are busy at once; here it
follows from the graph of tasks of each application.
"""

from collections.abc import Sequence
import dataclasses
import random
import typing

#: Members of a job.
SIZE = 9
#: Members that are busy at once, by application.
WIDTHS = {'ED': 9, 'HC': 1, 'VP': 3, 'MB': 3}
#: Jobs in the order of the queue, with their seconds on hosts of their own.
LENGTHS_S = {'VP.A': 984, 'ED.W': 689, 'VP.W': 966, 'HC.A': 346,
             'MB.A': 640, 'ED.A': 682, 'HC.W': 344, 'MB.W': 775}
#: Memory of a member in MB, by variant; drawn evenly.
MEMORIES_MB = {'small': (512,), 'mixed': (512, 512, 512, 1024),
               'large': (512, 1024, 2048)}


class BusyMember(typing.NamedTuple):
    """Member of a job, by the name of its instance."""

    name: str
    memory_mb: int


@dataclasses.dataclass(frozen=True)
class PhasedJob:
    """Job whose members are busy in turns.

    :param length_s: seconds that it takes while all that is busy has a
        processing unit
    :param width: number of members that are busy at once
    """

    name: str
    length_s: float
    width: int
    members: tuple[BusyMember, ...]

    @property
    def phases(self) -> int:
        """Number of phases; in each other members are busy."""
        return len(self.members) // self.width

    @property
    def work(self) -> float:
        """Seconds of processing units that it takes."""
        return self.length_s * self.width

    def phase(self, progress_s: float) -> int:
        """Return the number of the phase after some seconds of progress."""
        return min(int(progress_s * self.phases / self.length_s + 1e-9),
                   self.phases - 1)

    def phase_end(self, progress_s: float) -> float:
        """Return the progress at which the present phase ends."""
        return (self.phase(progress_s) + 1) * self.length_s / self.phases

    def busy(self, progress_s: float) -> tuple[BusyMember, ...]:
        """Return the members that are busy after some progress."""
        first = self.phase(progress_s) * self.width
        return self.members[first:first + self.width]


def draw_jobs(seed: int, memory: str) -> tuple[PhasedJob, ...]:
    """Return the jobs of the publication, in the order of their queue.

    :param memory: variant of their memory, a key of ``MEMORIES_MB``
    """
    rng = random.Random(seed)
    return tuple(PhasedJob(name, length_s, WIDTHS[name.partition('.')[0]],
                           tuple(BusyMember(f'{name}-{number}', rng.choice(
                               MEMORIES_MB[memory]))
                                 for number in range(1, SIZE + 1)))
                 for name, length_s in LENGTHS_S.items())


def least_makespan(jobs: Sequence[PhasedJob], units: int) -> float:
    """Return a lower bound of the time in which all jobs can end.

    It is the larger of the longest job and of all work on all units.
    """
    return max(max(one.length_s for one in jobs),
               sum(one.work for one in jobs) / units)


def fluid_makespan(jobs: Sequence[PhasedJob], units: int) -> float:
    """Return the time in which all jobs end if operations take no time.

    At each instant the jobs run that fit, in the order of the queue; units
    belong to no host.
    """
    rest = {one.name: one.length_s for one in jobs}
    now = 0.0
    while rest:
        free = units
        running = []
        for one in jobs:
            if one.name in rest and one.width <= free:
                free -= one.width
                running.append(one.name)
        step = min(rest[name] for name in running)
        now += step
        for name in running:
            rest[name] -= step
            if rest[name] <= 1e-9:
                del rest[name]
    return now
