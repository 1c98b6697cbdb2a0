# SPDX-License-Identifier: Apache-2.0

"""Record of a run: sums for the figures, and the log of events.

A ``Tally`` adds up a simulation or the log of one; both give the same figures.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import json
import typing

import numpy as np

from secondary_scheduler.estimation.durations import DurationInput
from secondary_scheduler.estimation.learning import Observed
from secondary_scheduler.simulation.world import Floats, Shape, compiled

Event = dict[str, typing.Any]

#: Values of a sample for each host; see ``Sample``.
VALUES = ('load', 'main', 'ops', 'vm', 'able', 'floored', 'net_load',
          'net_main')

#: Reasons for unused CPU below the threshold: guests are throttled, they are
#: at the floor, or there are none.
UNUSED = ('held', 'frozen', 'absent')


@dataclasses.dataclass(frozen=True)
class Sample:
    """One second of all hosts, in percent of a host or its link.

    ``values`` are (H,), by name:

    * ``load``, ``main``: CPU demand and use of primaries;
    * ``ops``, ``vm``: CPU use of operations, and of guests for their work;
    * ``able``, ``floored``: most CPU that guests above the floor, and at the
      floor, can use by their size;
    * ``net_load``, ``net_main``: demand and use of primaries for sending.

    ``limit`` is the lowest CPU threshold, (H,).  ``capped`` and ``frozen``
    (C,) are the numbers of guests under control, and of those with no CPU.
    """

    values: Mapping[str, Floats]
    limit: Floats
    capped: Floats
    frozen: Floats


class Tally:
    """Sums over a run of C clusters, one row each."""

    def __init__(self, shape: Shape, series: bool = False) -> None:
        """Start at zero; ``series`` keeps load and use of each second."""
        clusters = shape.clusters
        self.shape = shape
        self.seconds = 0
        #: Host-seconds in percent.
        names = (*VALUES, 'exploitable', 'used', *UNUSED)
        self._sums = np.zeros((len(names), clusters))
        self.sums = dict(zip(names, self._sums, strict=True))
        self.capped = np.zeros(clusters)
        self.frozen = np.zeros(clusters)
        self.counts: list[Counter[str]] = [
            Counter() for _one in range(clusters)]
        self.lost = np.zeros(clusters)
        #: Successful operations (hosts by number), and their estimates in
        #: seconds.
        self.durations: list[list[tuple[Observed, float]]] = [
            [] for _one in range(clusters)]
        self.last_operation_s = np.zeros(clusters)
        self.series: list[tuple[Floats, Floats]] | None = (
            [] if series else None)

    def sample(self, one: Sample) -> None:
        """Add a second."""
        rows = np.stack([one.values[name] for name in VALUES])
        _add_up(self._sums, rows, one.limit)
        self.capped += one.capped
        self.frozen += one.frozen
        self.seconds += 1
        if self.series is not None:
            self.series.append((one.values['load'], np.sum(
                [one.values[name] for name in ('main', 'ops', 'vm')], axis=0)))

    def event(self, cluster: int, kind: str, event: Event) -> None:
        """Count an event."""
        counts = self.counts[cluster]
        if kind == 'operation':
            self.last_operation_s[cluster] = max(
                self.last_operation_s[cluster], event['issued'])
            counts[event['kind'] if event['ok'] else 'failed'] += 1
            if event['ok']:
                self.durations[cluster].append((Observed(
                    DurationInput(event['kind'], event['from'], event['to']),
                    event['started'], event['ended']), event['estimate_s']))
        elif kind == 'trigger':
            counts[event['kind']] += 1
        elif kind == 'work_lost':
            self.lost[cluster] += event['core_s']
        else:
            counts[kind] += 1

    def core_s(self, *names: str) -> Floats:
        """Return the total of some sums in core-seconds, (C,)."""
        total = np.sum([self.sums[name] for name in names], axis=0)
        return np.asarray(total * self.shape.cores / 100)

    @property
    def kept(self) -> Floats:
        """Work that was not lost, in core-seconds, (C,)."""
        return self.core_s('vm') - self.lost

    @property
    def host_seconds(self) -> int:
        """Host-seconds of each cluster."""
        return self.seconds * self.shape.hosts


@compiled
def _add_up(sums: Floats, rows: Floats, limit: Floats) -> None:
    """Add a second to ``sums``, (names, C).

    ``rows`` are the values of a sample in the order of ``VALUES``.
    """
    each = rows.shape[1] // sums.shape[1]
    for host in range(rows.shape[1]):
        total = sums[:, host // each]
        for name in range(len(rows)):
            total[name] += rows[name, host]
        main, ops, vm = rows[1, host], rows[2, host], rows[3, host]
        able, floored = rows[4, host], rows[5, host]
        exploitable = max(0.0, limit[host] - main)
        # Highest possible use, reason by reason.
        used = min(vm + ops, exploitable)
        there = max(used, min(able, exploitable))
        free = max(there, min(able + floored, exploitable))
        for place, value in enumerate((
                exploitable, used, there - used, free - there,
                exploitable - free)):
            total[len(rows) + place] += value


class Recorder:
    """Writer of a tally, and of a log if there is one."""

    def __init__(self, shape: Shape, runs: Sequence[str],
                 log: typing.TextIO | None = None, series: bool = False
                 ) -> None:
        """Start a tally; ``runs`` are the names of clusters in the log."""
        self.tally = Tally(shape, series)
        self.runs = tuple(runs)
        self._log = log

    @property
    def logs(self) -> bool:
        """Whether events are written to a log."""
        return self._log is not None

    def sample(self, time: int, sample: Sample,
               shares: typing.Callable[[int], tuple[
                   Mapping[str, float], Mapping[str, float]]]) -> None:
        """Record a second; ``shares(host)`` returns use and caps by name."""
        self.tally.sample(sample)
        if not self.logs:
            return
        hosts = self.tally.shape.hosts
        for host in range(len(sample.limit)):
            vm, cap = shares(host)
            self._write(host // hosts, 'sample', {
                't': time, 'host': host % hosts,
                'limit': float(sample.limit[host]),
                **{name: float(values[host])
                   for name, values in sample.values.items()},
                'work': float(sample.values['vm'][host]), 'vm': vm,
                'cap': cap})

    def event(self, cluster: int, event: str, **fields: typing.Any) -> None:
        """Record an event."""
        self.tally.event(cluster, event, fields)
        if self.logs:
            self._write(cluster, event, fields)

    def _write(self, cluster: int, event: str, fields: Event) -> None:
        json.dump({'event': event, 'run': self.runs[cluster], **fields},
                  typing.cast(typing.TextIO, self._log))
        typing.cast(typing.TextIO, self._log).write('\n')


def replay(lines: Iterator[str], shape: Shape, series: bool = False
           ) -> dict[str, Tally]:
    """Return the tally of each run in a log."""
    shape = dataclasses.replace(shape, clusters=1)
    tallies: dict[str, Tally] = {}
    seconds: dict[str, list[Event]] = {}
    for line in lines:
        event = json.loads(line)
        run, kind = event.pop('run'), event.pop('event')
        tally = tallies.setdefault(run, Tally(shape, series))
        if kind != 'sample':
            tally.event(0, kind, event)
            continue
        rows = seconds.setdefault(run, [])
        rows.append(event)
        if len(rows) == shape.hosts:
            tally.sample(_joined(rows))
            rows.clear()
    return tallies


def _joined(rows: list[Event]) -> Sample:
    values = {name: np.array([row['work' if name == 'vm' else name]
                              for row in rows]) for name in VALUES}
    caps = [cap for row in rows for cap in row['cap'].values()]
    return Sample(
        values, np.array([row['limit'] for row in rows]),
        np.array([float(len(caps))]), np.array([float(caps.count(0.0))]))
