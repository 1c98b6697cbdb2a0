# SPDX-License-Identifier: Apache-2.0

"""``secondary-scheduler simulate swf``: run a trace of jobs as leases."""

from collections.abc import Sequence
import dataclasses
import pathlib
import resource
import sys
import time

import numpy as np

from secondary_scheduler.leases.scheduling.lease import TermsError
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.simulation.console import Progress, print_document
from secondary_scheduler.simulation.experiments.base import Figure
from secondary_scheduler.simulation.inputs import open_for_writing, parse_pair
from secondary_scheduler.simulation.leases import figures, profiles
from secondary_scheduler.simulation.leases.run import LeaseSimulation, Outcome
from secondary_scheduler.simulation.workloads import lwf, swf
from secondary_scheduler.simulation.workloads.requests import TraceRequest

RESOURCES = ('CPU', 'Memory')
_UNITS = {'cpu_s': 's', 'rss_mib': 'MiB'}


#: Default number of nodes, if neither option nor trace has one.
NODES = 144
#: Largest number of rejected leases to name.
_NAMED = 10


def simulate_swf(file: str, reservations: Sequence[str], nodes: int | None,
                 memory: int, profile: str, changes: Sequence[str],
                 style: str, leases: str | None) -> int:
    """Run a trace and print its figures.

    :raises InputError: if a file or an option is invalid.
    """
    need = (lwf.CPU_UNIT, memory)
    begun = time.process_time()
    chosen = profiles.read_profile(
        profile, [parse_pair(one) for one in changes])
    trace = swf.read_trace(pathlib.Path(file), need)
    nodes = nodes or trace.nodes or NODES
    site = Site(RESOURCES, np.tile(np.array(need, dtype=np.int64),
                                   (nodes, 1)))
    requests = chosen.jobs(trace.requests)
    for path in reservations:
        requests += _reservations(pathlib.Path(path), site)
    for note in trace.notes:
        print(f'{file}: {note}', file=sys.stderr)
    simulation = LeaseSimulation(site, chosen.settings, requests)
    progress = Progress()
    outcomes = simulation.run(lambda share: progress(
        f'{chosen.name}: {pathlib.Path(file).name}', share))
    rejected = _rejected(outcomes, site)
    cpu = time.process_time() - begun
    found = figures.figures(outcomes) | {
        'too_large': rejected, 'cpu_s': round(cpu, 2),
        'rss_mib': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if leases is not None:
        with open_for_writing(leases) as opened:
            figures.write_table(outcomes, opened)
    print_document(style, 'swf', chosen.name, cpu, {
        'file': file, 'reservations': list(reservations), 'nodes': nodes,
        'memory': memory, 'set': list(changes)},
        {name: Figure(value, 0.0, None, None, _UNITS.get(
            name, 's' if name.endswith('_s') else ''), (value,))
         for name, value in found.items()})
    return 0


def _rejected(outcomes: Sequence[Outcome], site: Site) -> int:
    """Print and count the leases that an empty site cannot hold."""
    number = 0
    for one in outcomes:
        if one.lease.state is not LeaseState.REJECTED:
            continue
        try:
            site.check_terms(one.lease.terms)
        except TermsError as exc:
            number += 1
            if number <= _NAMED:
                print(f'rejected: lease {one.lease.id}: {exc}',
                      file=sys.stderr)
    if number > _NAMED:
        print(f'rejected: {number - _NAMED} more leases that the site cannot '
              'hold', file=sys.stderr)
    return number


def _reservations(path: pathlib.Path, site: Site) -> list[TraceRequest]:
    """Read a file of reservations; ids begin with its name.

    :raises InputError: if the file is invalid.
    """
    if not lwf.is_xml(path):
        return lwf.read_text(path, f'{path.stem}-')
    return [dataclasses.replace(one, id=f'{path.stem}-{one.id}')
            for one in lwf.read_workload(path, site).requests]
