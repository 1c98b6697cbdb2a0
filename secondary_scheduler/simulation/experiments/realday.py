# SPDX-License-Identifier: Apache-2.0

"""Day of a real cloud.

The primaries of 1,000 hosts have the CPU use of PlanetLab's machines.
Secondaries have the size and lifetime of best-effort pods of Alibaba's openb
trace.

Hosts are in aggregates, each with a storage and a reconfigurator of its own:
the thesis's storage boots one guest a second, which is not enough here.
"""

import dataclasses
import pathlib

import numpy as np

from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation import traces
from secondary_scheduler.simulation.engine import Simulation, Workload
from secondary_scheduler.simulation.experiments import testbed
from secondary_scheduler.simulation.experiments.base import (
    Context,
    Experiment,
    Values,
    columns,
    operations,
)
from secondary_scheduler.simulation.loads import Squares
from secondary_scheduler.simulation.record import VALUES, Tally
from secondary_scheduler.simulation.turnover import Arrivals
from secondary_scheduler.simulation.world import Floats, Shape

AGGREGATES, HOSTS = 10, 100
CORES, MEMORY_MB = 32, 128 * 1024
#: Places for instances by host, waiting ones included.
PLACES = 10
#: Days of PlanetLab; seeds take them in turn.
DAYS = ('20110303', '20110309', '20110322')
PODS = 'alibaba-openb/openb_pod_list_default.csv.gz'
THRESHOLD, TIMELIMIT = 90, 20
#: Work offered, in percent of the CPU idle under the threshold.
OFFERED = (30, 60, 120)
#: Bounds of the pods that are used: most CPU (cores), shortest lifetime.
MOST_CORES, LEAST_S = 16, 60
#: A boot uses 0.4 cores, as in the other experiments.
BOOT = 20.0 * testbed.CORES / CORES
#: Seconds of an interval of the plot.
EVERY_S = 300


@dataclasses.dataclass(frozen=True)
class Pods:
    """Sizes and lifetimes to draw from; all (pods,)."""

    cores: Floats
    memory_mb: Floats
    life_s: Floats

    @classmethod
    def read_pods(cls, path: pathlib.Path) -> 'Pods':
        """Return the best-effort pods of openb within the bounds.

        :raises InputError: if the file is invalid or has none.
        """
        pods = traces.read_openb(path)
        cores = pods['cpu_milli'] / 1000
        life_s = pods['deletion_time'] - pods['creation_time']
        taken = ((pods['qos'] == 'BE') & (cores > 0) & (cores <= MOST_CORES)
                 & (life_s >= LEAST_S))
        if not taken.any():
            raise InputError(f'{path}: there are no best-effort pods')
        return cls(cores[taken], pods['memory_mib'][taken], life_s[taken])

    def draw_arrivals(self, cores: float, clusters: int, seconds: float,
                      random: np.random.Generator) -> Arrivals:
        """Draw Poisson arrivals that offer work for some cores.

        The stream is stationary: the instances that an endless stream without
        waiting would have come at second 0, with the rest of their lives.
        """
        rate = cores / float(np.mean(self.cores * self.life_s))
        begun = random.poisson(rate * self.life_s.sum() / len(self.life_s))
        coming = random.poisson(rate * seconds)
        # A longer life is met more often, at any time of it.
        which = np.concatenate((
            random.choice(len(self.life_s), begun,
                          p=self.life_s / self.life_s.sum()),
            random.integers(0, len(self.life_s), coming)))
        left = np.concatenate((random.random(begun), np.ones(coming)))
        return Arrivals(
            np.concatenate((np.zeros(begun), np.sort(
                random.uniform(0, seconds, coming)))),
            random.integers(0, clusters, begun + coming), self.cores[which],
            self.memory_mb[which],
            self.cores[which] * self.life_s[which] * left)


@dataclasses.dataclass
class MeanUse:
    """Scenario that keeps the mean use of all hosts by interval."""

    tally: Tally | None = None
    sums: list[dict[str, float]] = dataclasses.field(default_factory=list)

    def __call__(self, simulation: Simulation, second: int) -> None:
        """Note the sums at the beginning of an interval."""
        self.tally = simulation.record.tally
        if second % EVERY_S == 0:
            self.note_sums()

    def note_sums(self) -> None:
        """Note the use so far."""
        assert self.tally is not None
        self.sums.append({name: float(self.tally.sums[name].sum())
                          for name in VALUES})

    def means(self, hosts: int, *names: str) -> list[float]:
        """Return the mean of some values in each interval, in percent."""
        total = [sum(one[name] for name in names) for one in self.sums]
        return (np.diff(total) / (EVERY_S * hosts)).tolist()


def _seed(context: Context, seed: int) -> tuple[Floats, Floats, int]:
    """Return means (windows, hosts), spread (hosts,) and clusters of a run.
    """
    clusters = 1 if context.quick else AGGREGATES
    day = DAYS[(seed - 1) % len(DAYS)]
    rows = traces.read_planetlab(context.data / f'planetlab/{day}.csv.gz')
    use = rows[np.arange(clusters * HOSTS) % len(rows)].T
    return use[:12] if context.quick else use, use.std(axis=0), clusters


def _in_cores(context: Context) -> Context:
    """Return the context with the shares of guests kept in cores.

    A profile has them in percent of the hosts of the other experiments.
    """
    profile, times = context.profile, testbed.CORES / CORES
    return dataclasses.replace(context, profile=dataclasses.replace(
        profile, minimum_share=profile.minimum_share * times,
        useful_share=profile.useful_share * times,
        probe=profile.probe * times))


def _run(context: Context, seed: int, offered: int) -> dict[str, float]:
    means, spread, clusters = _seed(context, seed)
    seconds = len(means) * 300
    idle = float(np.maximum(0.0, THRESHOLD - means).mean()) / 100 * (
        CORES * clusters * HOSTS)
    arrivals = Pods.read_pods(context.data / PODS).draw_arrivals(
        idle * offered / 100, clusters, seconds,
        np.random.default_rng((seed, offered, 1)))
    course = MeanUse()
    tally = _in_cores(context).simulate(Workload(
        Shape(clusters, HOSTS, CORES, (1,) * (PLACES * HOSTS), boot=BOOT,
              memory_mb=MEMORY_MB),
        (f'cpu <= {THRESHOLD}% for {TIMELIMIT}s',),
        Squares(means, spread, (seed, 2)),
        tuple((seed, offered, one) for one in range(clusters)),
        arrivals=arrivals, scenario=course),
        [f'offered={offered} seed={seed} aggregate={one}'
         for one in range(clusters)])
    course.note_sums()
    _plot(context, course, clusters * HOSTS, offered)
    wanted_s = np.minimum(arrivals.work / arrivals.cores,
                          seconds - arrivals.time_s)
    return _figures(tally) | {'offered_pct': float(
        (arrivals.cores * wanted_s).sum()) / (seconds * idle) * 100}


def _plot(context: Context, course: MeanUse, hosts: int, offered: int
          ) -> None:
    lines = {'with secondaries': course.means(hosts, 'main', 'ops', 'vm'),
             'without': course.means(hosts, 'load')}
    times = [EVERY_S * one for one in range(1, len(course.sums))]
    lines['threshold'] = [float(THRESHOLD)] * len(times)
    context.plots[f'CPU (%), {offered} % offered'] = {
        name: (times, values) for name, values in lines.items()}


def _figures(tally: Tally) -> dict[str, float]:
    hosts = tally.shape.hosts * len(tally.counts)
    sums = {name: float(values.sum()) / (tally.seconds * hosts)
            for name, values in tally.sums.items()}
    each = [operations(tally, one) for one in range(len(tally.counts))]
    total = {name: sum(one[name] for one in each) for name in each[0]}
    host_hours = tally.seconds * hosts / 3600
    return {
        'cpu_without': sums['load'],
        'cpu_with': sums['main'] + sums['ops'] + sums['vm'],
        'res_usage': sums['used'] / sums['exploitable'],
        'work_conv': float(tally.kept.sum()
                           / tally.core_s('vm', 'ops').sum()),
        'finished': float(sum(one['result'] for one in tally.counts)),
        'starts_per_host_hour': sum(
            one['start'] for one in tally.counts) / host_hours,
        'operations_per_host_hour': sum(total[kind] for kind in (
            'migrations', 'suspends', 'stops')) / host_hours,
        **total,
        'frozen_share': float(tally.frozen.sum()
                              / max(1.0, tally.capped.sum()))}


def run_real_day(context: Context) -> Values:
    """Run a day for each seed and each offered load."""
    values: Values = {}
    for offered in OFFERED[-1:] if context.quick else OFFERED:
        values |= columns([_run(context, seed, offered)
                           for seed in context.seeds], f'_{offered}')
    return values


def _unit(name: str) -> str:
    for start, unit in (('cpu', '%'), ('offered', '%'), ('res', 'share'),
                        ('work_conv', 'share'), ('work_lost', 'core-s'),
                        ('frozen', 'share'), ('finished', 'instances')):
        if name.startswith(start):
            return unit
    return 'count'


EXPERIMENTS = (Experiment(
    'real-day', 'a day of PlanetLab\'s machines with Alibaba\'s pods',
    run_real_day, {}, _unit, runs=1),)
