# SPDX-License-Identifier: Apache-2.0

"""Haizea's reservations beside a month of jobs, as its thesis ran them.

Every file of reservations with each profile: how much later than without any
reservation the last job ends, and whether what has to hold for each file does.
README.md says what is in a row.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
import json
import pathlib
import resource
import sys
import time
import typing

import numpy as np

from benchmarks import forms
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.simulation.leases import figures, profiles
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.workloads import lwf, swf

NEED = (lwf.CPU_UNIT, 1024)
SITE = Site(('CPU', 'Memory'), np.tile(np.array(NEED, dtype=np.int64),
                                       (144, 1)))
#: What each profile may exceed the baseline by, in percent (acceptance 2).
BOUNDS = {'novm-sr': 7.0, 'vm-predeploy': 9.0}
PROFILES = ('novm-nosr', *BOUNDS)
FIGURES = ('wait_mean_trimmed_s', 'bounded_slowdown_trimmed',
           'reservations_accepted', 'reservations_rejected',
           'reservations_late', 'suspends', 'resumes', 'requeues')


def run(trace: pathlib.Path, reservations: pathlib.Path | None, name: str
        ) -> dict[str, float]:
    """Return the figures of a run, and what it took."""
    profile = profiles.read_profile(name)
    begun = time.process_time()
    requests = profile.jobs(swf.read_trace(trace, NEED).requests)
    if reservations is not None:
        requests += lwf.read_text(reservations, 'r')
    outcomes = LeaseSimulation(SITE, profile.settings, requests).run()
    return figures.figures(outcomes) | {
        'cpu_s': round(time.process_time() - begun, 2)}


def rows(trace: pathlib.Path, files: Sequence[pathlib.Path]
         ) -> Iterator[dict[str, typing.Any]]:
    """Yield a row for each file and profile."""
    baseline = run(trace, None, 'novm-nosr')['all_best_effort_s']
    yield {'file': None, 'profile': 'novm-nosr', 'all_best_effort_s': baseline}
    for path in files:
        for name in PROFILES:
            found = run(trace, path, name)
            yield {'file': path.stem, 'profile': name,
                   'all_best_effort_s': found['all_best_effort_s'],
                   'excess_percent': round(100 * (
                       found['all_best_effort_s'] / baseline - 1), 3),
                   'cpu_s': found['cpu_s'],
                   **{figure: round(found[figure], 2) for figure in FIGURES}}


def faults(found: Mapping[str, Mapping[str, typing.Any]]) -> Iterator[str]:
    """Yield what does not hold of one file, its rows by profile."""
    without = found['novm-nosr']
    for name, bound in BOUNDS.items():
        row = found[name]
        if row['excess_percent'] > bound:
            yield f'{name} exceeds {bound} %: {row["excess_percent"]}'
        if row['all_best_effort_s'] >= without['all_best_effort_s']:
            yield f'{name} ends no earlier than novm-nosr'
    for name, row in found.items():
        if row['reservations_late']:
            yield f'{name}: {row["reservations_late"]} reservations were late'
        if row['reservations_rejected'] != without['reservations_rejected']:
            yield f'{name} rejects others than novm-nosr'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('folder', type=pathlib.Path,
                        help='traces/blue of Haizea')
    parser.add_argument('--trace', default='30days', metavar='NAME',
                        help='jobs (default %(default)s)')
    parser.add_argument('--files', default='30days/*', metavar='PATTERN',
                        help='reservations, under injected_leases '
                        '(default %(default)s)')
    forms.add_quick(parser, trace='150requests',
                    files='15days/work_10-dur_2h-size_2medium-01h')
    options = parser.parse_args()
    files = sorted(options.folder.glob(
        f'injected_leases/{options.files}.lwf'))
    if not files:
        parser.error(f'{options.folder} has no injected_leases/'
                     f'{options.files}.lwf')
    of_file: dict[str, dict[str, typing.Any]] = {}
    wrong = 0
    for row in rows(options.folder / f'{options.trace}.swf', files):
        print(json.dumps(row), flush=True)
        if row['file'] is not None:
            of_file[row['profile']] = row
        if len(of_file) == len(PROFILES):
            for fault in faults(of_file):
                wrong += 1
                print(f'{row["file"]}: {fault}', file=sys.stderr)
            of_file = {}
    print(json.dumps({'files': len(files), 'faults': wrong, 'rss_mib': round(
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)}))
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
