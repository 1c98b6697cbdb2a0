# SPDX-License-Identifier: Apache-2.0

"""A month of a large site: leases of all kinds on thousands of hosts.

Run times and arrivals are those of a grid, sizes those of a supercomputer;
README.md says how they are put together, and what is in a row.
"""

import argparse
import json
import pathlib
import resource
import sys
import time
import typing

import numpy as np

from benchmarks import forms
from secondary_scheduler.leases.scheduling.lease import NodeSet, Terms
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.simulation.console import Progress
from secondary_scheduler.simulation.leases import figures, profiles
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.workloads import lwf, swf
from secondary_scheduler.simulation.workloads.requests import TraceRequest

LEASES, HOSTS = 100_000, 10_000
NEED = (lwf.CPU_UNIT, 1024)
DAY = 24 * 3600
PERIOD = 30 * DAY
#: Of the host-seconds of the period, what is asked for.
LOAD = 0.9
#: A lease has so many nodes for each of a job of the supercomputer, at most.
NODES_EACH, NODES_MOST = 8, 1120
#: How much more time than it takes is asked for, at least and at most.
OVERESTIMATE = (1.0, 5.0)
#: What part of the leases are reservations, and their notice in seconds.
RESERVATIONS, NOTICE = 0.10, DAY
#: What part have a deadline; from arrival to it, in durations.
DEADLINES, SLACK = 0.05, (1.2, 4.0)
#: The goal for the whole of it.
WALL_S = 600.0
#: Fields of a line of a trace: when a job came, and how long it ran.
_SUBMIT, _RUN = 1, 3


def sampled(path: pathlib.Path, leases: int, rng: np.random.Generator
            ) -> tuple[Ints, Ints]:
    """Return when so many jobs of a trace came, and how long they ran.

    In the order of their arrival, which is stretched over the period.
    """
    jobs = np.loadtxt(path, dtype=np.int64, comments=';',
                      usecols=(_SUBMIT, _RUN))
    chosen = np.sort(rng.choice(len(jobs), leases,
                                replace=leases > len(jobs)))
    arrivals, runs = jobs[chosen].T
    arrivals = arrivals - arrivals[0]
    return arrivals * PERIOD // (arrivals[-1] + 1), runs


def workload(jobs: pathlib.Path, sizes: pathlib.Path, hosts: int, seed: int
             ) -> list[TraceRequest]:
    """Return the leases of the period, the same for the same seed.

    Run times are scaled by one factor to what the load is to be; a smaller
    site gets leases of fewer nodes.
    """
    rng = np.random.default_rng(seed)
    arrivals, runs = sampled(jobs, LEASES, rng)
    small = [one.terms.nodes[0].number
             for one in swf.read_trace(sizes, NEED).requests]
    nodes = np.ceil(np.minimum(rng.choice(small, LEASES) * NODES_EACH,
                               NODES_MOST) * (hosts / HOSTS)).astype(int)
    scale = LOAD * hosts * PERIOD / np.maximum(runs, 1).dot(nodes)
    runs = np.ceil(np.maximum(runs, 1) * scale).astype(int)
    asked = np.ceil(runs * rng.uniform(*OVERESTIMATE, LEASES)).astype(int)
    slack = rng.uniform(*SLACK, LEASES)
    kind = rng.random(LEASES)
    requests = []
    for number in range(LEASES):
        arrival, duration = int(arrivals[number]), int(asked[number])
        start = deadline = None
        if kind[number] < RESERVATIONS:
            start = arrival + NOTICE
        elif kind[number] < RESERVATIONS + DEADLINES:
            deadline = arrival + int(duration * slack[number])
        requests.append(TraceRequest(str(number + 1), arrival, Terms(
            (NodeSet(int(nodes[number]), NEED),), duration, start=start,
            deadline=deadline, preemptible=start is None),
            int(runs[number])))
    return requests


def described(requests: list[TraceRequest],
              hosts: int) -> dict[str, typing.Any]:
    """Return what a workload is like."""
    nodes = np.array([one.terms.nodes[0].number for one in requests])
    runs = np.array([one.runs for one in requests])
    last = requests[-1].arrival
    return {'hosts': hosts, 'leases': len(requests),
            'days': round(last / DAY, 2), 'nodes_mean': round(nodes.mean(), 1),
            'nodes_max': int(nodes.max()), 'run_s_mean': round(runs.mean()),
            'load': round(float(runs.dot(nodes)) / (hosts * max(last, 1)), 3)}


def run(requests: list[TraceRequest], hosts: int, name: str
        ) -> dict[str, typing.Any]:
    """Return the figures of a run, and what it took."""
    profile = profiles.read_profile(name)
    site = Site(('CPU', 'Memory'), np.tile(np.array(NEED, dtype=np.int64),
                                           (hosts, 1)))
    progress = Progress()
    begun, cpu = time.monotonic(), time.process_time()
    outcomes = LeaseSimulation(
        site, profile.settings, profile.jobs(requests)).run(
        lambda share: progress(name, share))
    taken = {'cpu_s': round(time.process_time() - cpu, 1),
             'wall_s': round(time.monotonic() - begun, 1),
             'rss_mib': round(resource.getrusage(
                 resource.RUSAGE_SELF).ru_maxrss / 1024)}
    return {'profile': name, **taken, 'goal_wall_s': WALL_S, **{
        figure: round(value, 2) for figure, value
        in figures.figures(outcomes).items()}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('jobs', type=pathlib.Path, help='trace that tells '
                        'arrivals and run times: LCG-2005-1 of the Parallel '
                        'Workloads Archive')
    parser.add_argument('sizes', type=pathlib.Path, help='trace that tells '
                        'numbers of nodes: traces/blue/30days.swf of Haizea')
    parser.add_argument('--hosts', type=int, default=HOSTS)
    parser.add_argument('--leases', type=int, default=LEASES, help='only the '
                        f'first so many of {LEASES}')
    parser.add_argument('--profile', default='novm-sr',
                        help='default %(default)s')
    parser.add_argument('--seed', type=int, default=1)
    forms.add_quick(parser, hosts=500, leases=300)
    options = parser.parse_args()
    requests = workload(options.jobs, options.sizes, options.hosts,
                        options.seed)[:options.leases]
    print(json.dumps({'seed': options.seed,
                      **described(requests, options.hosts)}), flush=True)
    found = run(requests, options.hosts, options.profile)
    print(json.dumps(found))
    return 1 if (found['wall_s'] > WALL_S or found['reservations_late']
                 or found['deadlines_missed']) else 0


if __name__ == '__main__':
    sys.exit(main())
