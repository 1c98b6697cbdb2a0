# SPDX-License-Identifier: Apache-2.0

"""Plan of the runs that characterise guests, and profiles from their results.

A guest runs alone, and then beside generators of graded pressure, or beside
each other guest (Kaffes 2015, section 5.2).  Each repeat has runs of its own
alone, so that a drift of the host's speed cancels out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import itertools
import statistics
import typing

from secondary_scheduler.cpu_affinity.measurements import (
    GENERATOR_PREFIX,
    MeasuredSlowdown,
    Place,
)
from secondary_scheduler.cpu_affinity.workload_profiles import (
    ResourceUse,
    SlowdownMatrix,
)
from secondary_scheduler.model.topology import Cpus, Partition, Topology

#: Places of the thesis's two matrices.
PAIR_PLACES = (Place.SAME_CPU, Place.SAME_CACHE)


class Generator(typing.NamedTuple):
    """Generator of load: one busy process.

    :param name: name of its pressure
    :param arguments: those of stress-ng
    :param cpu: use of a CPU alone, in percent
    """

    name: str
    arguments: tuple[str, ...]
    cpu: float

    @property
    def workload_class(self) -> str:
        """Name of its class in profiles."""
        return GENERATOR_PREFIX + self.name


#: Pressure on the CPU by use, and on caches and memory by working set.
GENERATORS = (
    *(Generator(f'cpu-{load}', ('--cpu', '1', '--cpu-load', str(load)),
                float(load)) for load in (25, 50, 100)),
    *(Generator(f'memory-{size}', ('--stream', '1', '--stream-l3-size', size),
                100.0) for size in ('1m', '8m', '64m')))


class Seats(typing.NamedTuple):
    """CPU of a measured guest, and those of its neighbours by place.

    :param unknown: descriptions of places that the host does not have
    """

    home: int
    others: Mapping[Place, int]
    unknown: tuple[str, ...]


def choose_seats(topology: Topology, usable: Cpus) -> Seats:
    """Choose the CPU whose neighbours cover most places.

    :param usable: CPUs on which all measured guests may run; at least one
    """
    found = [_seats_of(topology, usable, home)
             for home in sorted(usable & topology.cpus)]
    return max(found, key=lambda one: len(one.others))


def _seats_of(topology: Topology, usable: Cpus, home: int) -> Seats:
    core = _part_with(topology.cores, home)
    cache = (core if topology.caches is None
             else _part_with(topology.cache_domains, home))
    # Where a fact is unknown, CPUs of one cache may look like those of two.
    far = frozenset[int]() if topology.unknown else topology.cpus - cache
    candidates = {
        Place.SAME_CPU: (frozenset({home}), ''),
        Place.SIBLING: (core - {home}, 'one thread per core'),
        Place.SAME_CACHE: (cache - core, 'no cache that several cores share'),
        Place.OTHER_CACHE: (far, 'one cache for all CPUs')}
    others, unknown = {}, []
    for place, (cpus, why) in candidates.items():
        if cpus & usable:
            others[place] = min(cpus & usable)
        else:
            unknown.append(f'{place}: ' + (
                'no CPU there that the guests may use' if cpus else
                '; '.join((why, *topology.unknown))))
    return Seats(home, others, tuple(unknown))


def _part_with(parts: Partition, cpu: int) -> Cpus:
    return next(part for part in parts if cpu in part)


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of some guests and at most one generator, all others idle.

    :param repeat: number of the repeat
    :param guests: CPU of each guest that runs, by its UUID
    :param place: place of the two, None alone
    :param generator: the generator, and its CPU
    """

    repeat: int
    guests: Mapping[str, int]
    place: Place | None = None
    generator: tuple[Generator, int] | None = None

    def describe(self, classes: Mapping[str, str]) -> str:
        """Return a description of one line.

        :param classes: class of each guest
        """
        names = [classes[one] for one in self.guests]
        if self.generator:
            names.append(self.generator[0].workload_class)
        return f'{" and ".join(names)}, {self.place or "alone"}'


def plan_runs(guests: Sequence[str], seats: Seats, repeats: int, pairs: bool,
              generators: Sequence[Generator] = GENERATORS) -> list[Run]:
    """Return the runs of a characterisation.

    :param guests: UUIDs
    :param pairs: measure each pair of guests, instead of each guest beside
        generators
    """
    runs: list[Run] = []
    for repeat in range(repeats):
        for guest in guests:
            runs.append(Run(repeat, {guest: seats.home}))
            runs += [] if pairs else [
                Run(repeat, {guest: seats.home}, place, (generator, cpu))
                for generator in generators
                for place, cpu in seats.others.items()]
        for one, other in itertools.combinations(guests, 2) if pairs else ():
            runs += [Run(repeat, {one: seats.home, other: seats.others[place]},
                         place)
                     for place in PAIR_PLACES if place in seats.others]
    return runs


class Speed(typing.NamedTuple):
    """Speed of a guest in a run; None is unknown.

    :param stretch: time in which it ran or waited for a CPU, by the time in
        which it ran
    :param work: units of work per second
    """

    use: ResourceUse
    stretch: float | None
    work: float | None

    def slowdown_beside(self, shared: 'Speed', place: Place) -> float | None:
        """Return the slow-down of a run with a neighbour.

        Without a count of work, only time sharing can be seen.

        :param shared: speed beside the neighbour; this one is that alone
        """
        if self.work and shared.work:
            return self.work / shared.work
        if place is Place.SAME_CPU and self.stretch and shared.stretch:
            return shared.stretch / self.stretch
        return None

    def cpu_growth(self, shared: 'Speed') -> float | None:
        """Return CPU time for a unit of work beside a neighbour by alone."""
        alone, beside = self.use.cpu, shared.use.cpu
        if not (self.work and shared.work and alone and beside):
            return None
        return (beside / shared.work) / (alone / self.work)


#: A run, and the speed of each of its guests by UUID.
Result = tuple[Run, Mapping[str, Speed]]


def measured_slowdowns(results: Sequence[Result], classes: Mapping[str, str]
                       ) -> tuple[MeasuredSlowdown, ...]:
    """Return the slow-downs that runs have shown.

    :param classes: class of each guest by UUID
    """
    alone = {(run.repeat, guest): speed for run, speeds in results
             if run.place is None for guest, speed in speeds.items()}
    values: dict[tuple[str, str, Place], list[float]] = {}
    growths: dict[tuple[str, str, Place], list[float]] = {}
    for run, speeds in results:
        for guest, neighbour in _meetings(run, classes):
            base, place = alone.get((run.repeat, guest)), run.place
            if base is None or place is None or guest not in speeds:
                continue
            key = classes[guest], neighbour, place
            value = base.slowdown_beside(speeds[guest], place)
            growth = base.cpu_growth(speeds[guest])
            if value is not None:
                values.setdefault(key, []).append(value)
            if growth is not None:
                growths.setdefault(key, []).append(growth)
    return tuple(MeasuredSlowdown(*key, tuple(found),
                                  tuple(growths.get(key, ())))
                 for key, found in values.items())


def _meetings(run: Run, classes: Mapping[str, str]
              ) -> Iterator[tuple[str, str]]:
    """Yield each guest of a run with the class of its neighbour."""
    for guest in run.guests:
        for other in run.guests:
            if other != guest:
                yield guest, classes[other]
        if run.generator:
            yield guest, run.generator[0].workload_class


def measured_uses(results: Iterable[Result], classes: Mapping[str, str]
                  ) -> dict[str, ResourceUse]:
    """Return the use of each class and generator, from the runs alone."""
    seen: dict[str, list[ResourceUse]] = {
        name: [] for name in classes.values()}
    found: dict[str, ResourceUse] = {}
    for run, speeds in results:
        if run.generator:
            found[run.generator[0].workload_class] = ResourceUse(
                run.generator[0].cpu)
        for guest, speed in speeds.items() if run.place is None else ():
            seen[classes[guest]].append(speed.use)
    return {name: ResourceUse(*map(_median, zip(*uses, strict=True)))
            for name, uses in seen.items()} | found


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 1) if known else None


def slowdown_matrix(name: str, classes: Sequence[str],
                    slowdowns: Iterable[MeasuredSlowdown], place: Place
                    ) -> SlowdownMatrix | None:
    """Return the medians of a place as a matrix, None if none is known.

    A slow-down below 1 is noise, and counts as 1.
    """
    known = {(one.victim, one.neighbour): max(1.0, one.median)
             for one in slowdowns if one.place is place}
    if not known:
        return None
    return SlowdownMatrix(name, tuple(classes), tuple(
        tuple(float(f'{known[victim, neighbour]:.4g}')
              if (victim, neighbour) in known else None
              for neighbour in classes) for victim in classes))
