# SPDX-License-Identifier: Apache-2.0

"""``secondary-scheduler simulate``: experiments in the simulator."""

import argparse
from collections.abc import Mapping
import gc
import sys
import typing

from secondary_scheduler.cmd.arguments import Groups, whole_number
from secondary_scheduler.reading import values

DESCRIPTION = """\
Run an experiment in a simulator that uses the decision code of agents and
Watcher, and compare the results with published figures and with an oracle. No
cloud is used. "secondary-scheduler simulate list" names the experiments.
"""

RUN = """\
Run an experiment and print its figures: measured (the mean of the runs),
published, and those of an oracle that starts everything at once, never moves
anything and knows the load of each instant. The same seed gives the same
figures. A deviation from a published value is no error: the exit code is 0,
and 2 for invalid input.

  secondary-scheduler simulate run hlt
  secondary-scheduler simulate run hlt --set profile=thesis --runs 1
  secondary-scheduler simulate run efficiency --quick --format json
  secondary-scheduler simulate run hlt --set margin=2 --set freeze=off

"--set profile=NAME" chooses thesis (its algorithms and constants), ours (the
default) or oracle; "--set algorithm=oracle" is the same as the last. Any other
"--set KEY=VALUE" changes one parameter of the profile; an unknown key prints
all of them.
The experiments haizea-* compare profiles of leases with each other; there
"--set KEY=VALUE" changes an option of [secondary_leases] in all of them, and
the oracle's column has the figures of Haizea or of an independent simulation.
The experiments entropy-* and kaffes-* have parameters of their own;
entropy-cost and kaffes-* but for kaffes-primary run with profile=thesis unless
it is set.
"""

SWF = """\
Run a trace of jobs in the Standard Workload Format (.swf or .swf.gz, as in the
Parallel Workloads Archive) as leases on a site of equal nodes, one for each
processor, and print the figures. Reservations are injected from files in
Haizea's Lease Workload Format.

  secondary-scheduler simulate swf 30days.swf
  secondary-scheduler simulate swf 30days.swf --profile novm-nosr
  secondary-scheduler simulate swf 30days.swf --leases leases.csv \\
      --reservations work_30-dur_1h-size_2medium.lwf

A profile is a configuration file with the options of [secondary_leases]; those
of Haizea's thesis come with the simulator: novm-nosr (jobs that cannot be
suspended), novm-sr (jobs that can, the default), vm-predeploy (jobs in VMs).
"--set KEY=VALUE" changes one of its options.
"""

#: Exit code for an invalid experiment, option or file.
BAD_INPUT = 2


def add_parser(groups: Groups) -> None:
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
                     metavar='KEY=VALUE', help='profile, or a parameter of it')
    run.add_argument('--seed', type=whole_number(0), default=1, metavar='N',
                     help='of the first run; the others count on from it '
                          '(default %(default)s)')
    run.add_argument('--runs', type=whole_number(1, 10_000), metavar='N',
                     help='number of runs (default: the experiment\'s)')
    run.add_argument('--quick', action='store_true',
                     help='a smaller experiment, for a first look')
    run.add_argument('--format', choices=('table', 'json'), default='table',
                     dest='style', help='(default %(default)s)')
    run.add_argument('--plot', metavar='DIR',
                     help='also draw plots into this directory')
    run.add_argument('--events', metavar='FILE',
                     help='also write an event log, as JSON lines')
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
    swf.add_argument('--nodes', type=whole_number(1, 10**6), metavar='N',
                     help='nodes of the site (default: MaxProcs, or else '
                     'MaxNodes, of the trace\'s header, or else 144)')
    swf.add_argument('--memory', type=whole_number(1, 10**12), default=1024,
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


COMMANDS = frozenset({'simulate_list', 'simulate_run', 'simulate_swf'})


def run(action: str, options: Mapping[str, typing.Any]) -> int:
    """Run one of the commands; return its exit code.

    The simulator is imported here, since other commands need no NumPy.
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
    # Decisions create many small objects, few of them in reference cycles,
    # beside the many permanent ones of the simulated world. With the default
    # thresholds the garbage collector took a tenth of a run.
    gc.set_threshold(50_000, 20, 50)
    try:
        module = lease_console if action == 'simulate_swf' else console
        return int(getattr(module, action)(**options))
    except values.InputError as exc:
        print(f'secondary-scheduler: {exc}', file=sys.stderr)
        return BAD_INPUT
