"""``secondary-scheduler simulate``: experiments by name, on no cloud."""

import argparse
from collections.abc import Callable, Mapping
import gc
import sys
import typing

from secondary_scheduler.reading import values

DESCRIPTION = """\
Run an experiment in a simulator that drives the code by which agents and
Watcher decide, and compare what comes out with published figures and with an
oracle. No cloud is asked. "secondary-scheduler simulate list" names the
experiments.
"""

RUN = """\
Run an experiment and print its figures: measured (the mean of the runs),
published, and those of an oracle that starts everything at once, never moves
anything and knows the load of each instant. The same seed gives the same
figures. A published value that is missed is no error: the exit code is 0, and
2 only for input that is not right.

  secondary-scheduler simulate run hlt
  secondary-scheduler simulate run hlt --set profile=thesis --runs 1
  secondary-scheduler simulate run efficiency --quick --format json
  secondary-scheduler simulate run hlt --set margin=2 --set freeze=off

"--set profile=NAME" chooses thesis (its algorithms and constants), ours (the
default) or oracle; "--set algorithm=oracle" is the same as the last. Any other
"--set KEY=VALUE" changes one knob of the profile; a wrong key prints them all.
The experiments haizea-* compare profiles of leases with each other; there
"--set KEY=VALUE" changes an option of [secondary_leases] in all of them, and
the oracle's column has what Haizea itself or an independent simulation gave.
"""

SWF = """\
Run a trace of jobs in the Standard Workload Format (.swf or .swf.gz, as in the
Parallel Workloads Archive) as leases on a site of nodes that are alike, each
processor being one node, and print what comes out. Reservations are injected
from files in Haizea's Lease Workload Format.

  secondary-scheduler simulate swf 30days.swf
  secondary-scheduler simulate swf 30days.swf --profile novm-nosr
  secondary-scheduler simulate swf 30days.swf --leases leases.csv \\
      --reservations work_30-dur_1h-size_2medium.lwf

A profile is a configuration file with the options of [secondary_leases]; those
of Haizea's thesis come with the simulator: novm-nosr (jobs that cannot be
suspended), novm-sr (jobs that can, the default), vm-predeploy (jobs in VMs).
"--set KEY=VALUE" changes one of its options.
"""

#: The experiment, the option or the file is not right.
BAD_INPUT = 2


def add_parser(groups: typing.Any) -> None:
    """Add the command group to the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    simulate = groups.add_parser(
        'simulate', help='experiments in a simulator',
        description=DESCRIPTION, formatter_class=raw).add_subparsers(
            required=True, metavar='list|run|swf')
    simulate.add_parser('list', help='name the experiments').set_defaults(
        action='simulate_list')
    run = simulate.add_parser('run', help='run an experiment',
                              description=RUN, formatter_class=raw)
    run.add_argument('name', metavar='NAME')
    run.add_argument('--set', action='append', default=[], dest='changes',
                     metavar='KEY=VALUE', help='profile, or a knob of it')
    run.add_argument('--seed', type=_from(0), default=1, metavar='N',
                     help='of the first run; the others count on from it '
                          '(default %(default)s)')
    run.add_argument('--runs', type=_from(1, 10_000), metavar='N',
                     help='number of runs (default: the experiment\'s)')
    run.add_argument('--quick', action='store_true',
                     help='a smaller experiment, for a first look')
    run.add_argument('--format', choices=('table', 'json'), default='table',
                     dest='style', help='(default %(default)s)')
    run.add_argument('--plot', metavar='DIR',
                     help='also draw plots into this directory')
    run.add_argument('--events', metavar='FILE',
                     help='also write what happened, as JSON lines')
    run.add_argument('--leases', metavar='FILE.csv',
                     help='also write a table of the leases of all runs; '
                          'for the experiments haizea-*')
    run.add_argument('--data', metavar='DIR', default='.',
                     help='folder of public traces (default: this one); '
                          'for real-day planetlab/DAY.csv.gz of CloudSim\'s '
                          'copy of the CoMon data and alibaba-openb/openb_pod_'
                          'list_default.csv.gz, for haizea-* haizea/traces/'
                          'blue of Haizea\'s repository')
    run.set_defaults(action='simulate_run')
    swf = simulate.add_parser('swf', help='run a trace of jobs as leases',
                              description=SWF, formatter_class=raw)
    swf.add_argument('file', metavar='FILE', help='the trace')
    swf.add_argument('--reservations', action='append', default=[],
                     metavar='LWF', help='leases to inject (text or XML); '
                     'may be given more than once')
    swf.add_argument('--nodes', type=_from(1, 10**6), metavar='N',
                     help='nodes of the site (default: MaxProcs, or else '
                     'MaxNodes, of the trace\'s header, or else 144)')
    swf.add_argument('--memory', type=_from(1, 10**12), default=1024,
                     metavar='MB',
                     help='memory of a node (default %(default)s)')
    swf.add_argument('--profile', default='novm-sr', metavar='NAME|FILE',
                     help='how leases are scheduled (default %(default)s)')
    swf.add_argument('--set', action='append', default=[], dest='changes',
                     metavar='KEY=VALUE', help='an option of the profile')
    swf.add_argument('--format', choices=('table', 'json'), default='table',
                     dest='style', help='(default %(default)s)')
    swf.add_argument('--leases', metavar='FILE.csv',
                     help='also write a table of leases')
    swf.set_defaults(action='simulate_swf')


def _from(least: int, most: int = values.MOST) -> Callable[[str], int]:
    def number(text: str) -> int:
        return values.parse_whole(text, least, most)

    number.__name__ = f'whole number from {least} to {most}'
    return number


COMMANDS = frozenset({'simulate_list', 'simulate_run', 'simulate_swf'})


def run(action: str, options: Mapping[str, typing.Any]) -> int:
    """Run one of the commands; return its exit code.

    The simulator is loaded here: who manages hosts needs no NumPy.
    """
    try:
        from secondary_scheduler.simulation import console
        from secondary_scheduler.simulation.leases import (
            console as lease_console,
        )
    except ImportError as exc:
        print(f'secondary-scheduler: the simulator needs {exc.name}: pip '
              'install "secondary_scheduler[simulator]"', file=sys.stderr)
        return BAD_INPUT
    # Decisions make many small objects, few of them in circles, beside the
    # many of the world that stay: looking for circles took a tenth of a run.
    gc.set_threshold(50_000, 20, 50)
    try:
        module = lease_console if action == 'simulate_swf' else console
        return int(getattr(module, action)(**options))
    except values.InputError as exc:
        print(f'secondary-scheduler: {exc}', file=sys.stderr)
        return BAD_INPUT
