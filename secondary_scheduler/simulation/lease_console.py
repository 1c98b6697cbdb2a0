"""``secondary-scheduler simulate swf``: any trace of jobs, run as leases."""

from collections.abc import Sequence
import dataclasses
import pathlib
import resource
import time

import numpy as np

from secondary_scheduler.leases.lease import TermsError
from secondary_scheduler.leases.site import Site
from secondary_scheduler.simulation import lease_figures, lease_profiles
from secondary_scheduler.simulation.console import Progress, print_document
from secondary_scheduler.simulation.experiments.base import Figure
from secondary_scheduler.simulation.inputs import (
    InputError,
    open_for_writing,
    pair,
)
from secondary_scheduler.simulation.leasing import LeaseSimulation
from secondary_scheduler.simulation.workloads import lwf, swf
from secondary_scheduler.simulation.workloads.requests import (
    Request,
    WorkloadError,
)

RESOURCES = ('CPU', 'Memory')
_UNITS = {'cpu_s': 's', 'rss_mib': 'MiB'}


def simulate_swf(file: str, reservations: Sequence[str], nodes: int,
                 memory: int, profile: str, changes: Sequence[str],
                 style: str, leases: str | None) -> int:
    """Run a trace and print its figures."""
    need = (lwf.CPU_UNIT, memory)
    begun = time.process_time()
    try:
        chosen = lease_profiles.read(profile, [pair(one) for one in changes])
        requests = chosen.jobs(swf.read(pathlib.Path(file), need))
        for path in reservations:
            requests += _reservations(pathlib.Path(path), need)
        site = Site(RESOURCES, np.tile(np.array(need, dtype=np.int64),
                                       (nodes, 1)))
        simulation = LeaseSimulation(site, chosen.settings, requests)
    except (WorkloadError, TermsError, lease_profiles.ProfileError) as exc:
        raise InputError(str(exc)) from exc
    progress = Progress()
    outcomes = simulation.run(lambda share: progress(
        f'{chosen.name}: {pathlib.Path(file).name}', share))
    cpu = time.process_time() - begun
    found = lease_figures.figures(outcomes) | {
        'cpu_s': round(cpu, 2), 'rss_mib': resource.getrusage(
            resource.RUSAGE_SELF).ru_maxrss / 1024}
    if leases is not None:
        with open_for_writing(leases) as opened:
            lease_figures.write(outcomes, opened)
    print_document(style, 'swf', chosen.name, cpu, {
        'file': file, 'reservations': list(reservations), 'nodes': nodes,
        'memory': memory, 'set': list(changes)},
        {name: Figure(value, 0.0, None, None, _UNITS.get(
            name, 's' if name.endswith('_s') else ''), (value,))
         for name, value in found.items()})
    return 0


def _reservations(path: pathlib.Path, need: tuple[int, ...]
                  ) -> list[Request]:
    """Read what is to be injected; its ids tell the file."""
    if not lwf.is_xml(path):
        return lwf.read_text(path, f'{path.stem}-')
    workload = lwf.read(path)
    if workload.site.resources != RESOURCES:
        raise WorkloadError(f'{path}: its resources are '
                            + ' '.join(workload.site.resources) + ', not '
                            + ' '.join(RESOURCES))
    return [dataclasses.replace(one, id=f'{path.stem}-{one.id}')
            for one in workload.requests]
