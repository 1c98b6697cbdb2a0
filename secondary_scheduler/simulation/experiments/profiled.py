# SPDX-License-Identifier: Apache-2.0

"""Common parts of experiments that have profiles of their own.

Runs are independent, and use all processors.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
import contextlib
import dataclasses
import json
import os
import statistics
import typing

from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.experiments.base import (
    Asked,
    ExperimentOptions,
    Figure,
    Ran,
    Values,
)
from secondary_scheduler.simulation.inputs import (
    change_fields,
    open_for_writing,
)
from secondary_scheduler.simulation.plots import Drawing

Item = typing.TypeVar('Item')
Result = typing.TypeVar('Result')


class NamedProfile(typing.Protocol):
    """Parameters of a run; a dataclass with a name."""

    @property
    def name(self) -> str:
        """Name of the profile."""


OwnProfile = typing.TypeVar('OwnProfile', bound=NamedProfile)


@dataclasses.dataclass(frozen=True)
class ProfiledContext(Asked, typing.Generic[OwnProfile]):
    """Profile, options and outputs of a run of an experiment.

    ``bounds`` has the oracle's values of figures.
    """

    profile: OwnProfile
    asked: ExperimentOptions
    log: typing.TextIO | None = None
    charts: list[Drawing] = dataclasses.field(default_factory=list)
    bounds: Values = dataclasses.field(default_factory=dict)

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]
            ) -> Iterable[tuple[Item, Result]]:
        """Yield each item with its result, in order."""
        with futures.ProcessPoolExecutor(
                min(len(items), len(os.sched_getaffinity(0)))) as pool:
            for number, (item, result) in enumerate(zip(
                    items, pool.map(work, items), strict=True), 1):
                self.asked.progress(self.profile.name, number / len(items))
                yield item, result

    def write_event(self, event: Mapping[str, typing.Any]) -> None:
        """Write an event, if events are asked for."""
        if self.log is not None:
            self.log.write(json.dumps(event) + '\n')


@dataclasses.dataclass(frozen=True)
class ProfiledExperiment(typing.Generic[OwnProfile]):
    """Experiment with profiles of its own, and its published figures.

    ``default`` is the profile without --set.
    """

    name: str
    summary: str
    measure: Callable[[ProfiledContext[OwnProfile]], Values]
    published: Mapping[str, float]
    units: Callable[[str], str]
    profiles: Mapping[str, OwnProfile]
    default: str
    runs: int = 1
    fewest: int = 1

    def run(self, asked: ExperimentOptions) -> Ran:
        """Run the experiment; --set changes the profile or a field of it."""
        if asked.leases is not None:
            raise InputError(f'{self.name} has no table of leases; --events '
                             'FILE writes what happens in it')
        changes = dict(asked.changes)
        name = changes.pop('profile', self.default)
        if changes.pop('algorithm', name) == 'oracle':
            name = 'oracle'
        if name not in self.profiles:
            raise InputError(f'there is no profile {name}; there are: '
                             + ', '.join(self.profiles))
        profile = change_fields(self.profiles[name], changes)
        with contextlib.ExitStack() as stack:
            context = ProfiledContext(
                profile, asked, None if asked.events is None
                else stack.enter_context(open_for_writing(asked.events)))
            values = self.measure(context)
        config = dataclasses.asdict(typing.cast('typing.Any', profile))
        del config['name']
        return Ran(name, config, {
            one: Figure.of_runs(
                per_run, self.published.get(one),
                statistics.fmean(context.bounds[one])
                if one in context.bounds else None, self.units(one))
            for one, per_run in values.items()}, context.charts)
