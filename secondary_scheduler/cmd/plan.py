# SPDX-License-Identifier: Apache-2.0

"""``secondary-scheduler plan``: decide and check on documents, not a cloud."""

import argparse
from collections.abc import Callable, Mapping
import json
import sys
import typing

import stevedore

from secondary_scheduler.cmd.arguments import Groups
from secondary_scheduler.decisions import base
from secondary_scheduler.estimation.switch_costs import OBJECTIVES
from secondary_scheduler.plans import (
    checker,
    model_documents,
    plan_documents,
)
from secondary_scheduler.reading import files
from secondary_scheduler.reading.fields import DocumentError
from secondary_scheduler.reading.values import InputError, parse_whole

DESCRIPTION = """\
Make and check plans for a model of a cloud; both are JSON files. No cloud is
used or changed, so that a decision can be examined, repeated, and compared
with that of other tools. "secondary-scheduler plan decide --help" describes
the content of a model.
"""

DECIDE = """\
Print the plan that an algorithm makes for a model. By default it ends the
violations in the model; with "--request return" it returns preempted instances
and starts waiting leases. The same model gives the same plan, since the search
is bounded by work units, not by time. A unit is one examined assignment of an
instance to a host. When the units are used up the plan says "truncated", and
the remaining violations are ended by means that need no search.

A model has the lists "hosts" (each with its name, the capacity secondaries
may hold, and the usage by everything else in percent), "instances" (name,
host, lease, state, demand, usage, priority, group), "leases", "policies"
(as in the configuration: "cpu <= 90% for 10s", but with all the resources
below), "items", "in_flight" and "constraints". An item is shared by several
hosts, for example a switch. It has a name, its hosts, the share of it that the
full capacity of one host takes, the usage by everything else, and its
policies. A policy "in aggregate:NAME" instead of "on" applies to the hosts of
the aggregate together. A policy that fails in the model counts as violated
from now on, unless the host gives its counters. An unknown or wrong field is
an error that names it; nothing is ignored.

A constraint has a "kind" and what it is about: spread, gather, lonely and root
have "instances"; ban and fence "instances" and "hosts"; among "instances" and
"groups" of hosts; split "groups" of instances; quarantine "hosts". It holds at
each instant of a plan.

Resources are cpu, mem, net_in, net_out, disk_in, disk_out and pressure, in
percent, and slots and cores, which are counted. The usage of an instance is in
percent of the host on which it was measured; the amount stays the same on a
host of another size. A host's capacity defines 100 %: cpus, mem (MiB; by
default memory_mb), net_in, net_out, disk_in and disk_out (MB/s). A capacity
that no host gives is equal on all hosts. A host with 0 CPUs or memory takes no
instance, and a policy in percent of them is unknown there. A rate must be
above 0.
"""

OPTIMISE = """\
Print the cheapest plan that is found for a cluster-wide context switch: the
leases of the model run by their demand, in the order of the queue, each as a
whole or not at all. "wanted" of an instance is the CPUs that it would use
without limits; without it, an instance wants what it uses, or all of its
vCPUs if it is down. "age_s" of a lease is the time since it arrived.

With "--request drain" the hosts whose "usable" is false are cleared of running
instances, and no lease starts. With "--plan" the states after a given plan are
reached by the cheapest way; if that is not cheaper, the given plan is printed.

The score of the plan has its cost, a lower bound of the cost of all plans
that suspend first, and a status:

  nothing_to_do  all is as wanted
  optimal        the cost is the bound
  within         the bound tells how good the cost is
  feasible       no bound is known
  infeasible     nothing is done; "conflict" names leases and hosts that
                 exclude each other

Otherwise "conflict" names the leases that no operations bring to the state
that is wanted. They remain as they are, and displace no others.

The objective "cost" is the memory (MiB) that each operation copies, and the
largest of each group of operations that it waits for. "span" adds the largest
of each group, "memory" is all memory that is copied, "time" is in seconds.
"""

CHECK = """\
Replay a plan on a model step by step, by rules that share no code with the
algorithms. Checked are:

  - each operation is possible,
  - each host has room for arriving instances at each instant, also if
    operations take longer than expected,
  - deadlines are kept,
  - no lease is split.

The exit code is 0 if the plan is good, 1 if it is not (the first fault is
printed), and 2 if a file is not a model or a plan.
"""

#: Exit code for an unreadable file or an unknown algorithm.
BAD_INPUT = 2


def algorithms() -> Mapping[str, Callable[[], base.Decision]]:
    """Return the installed decision drivers, by name."""
    found = stevedore.ExtensionManager(base.NAMESPACE)
    return {one.name: one.plugin for one in found}


def add_parser(groups: Groups) -> None:
    """Add the command group to the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    plans = groups.add_parser(
        'plan', help='plans for a model in a file', description=DESCRIPTION,
        formatter_class=raw).add_subparsers(
            required=True, metavar='decide|optimise|check')
    decide = plans.add_parser('decide', help='make a plan for a model',
                              description=DECIDE, formatter_class=raw)
    decide.add_argument('model', metavar='MODEL.json',
                        help='file with a model; - reads standard input')
    decide.add_argument('--algorithm', metavar='NAME', default='guided',
                        help='decision driver, an entry point in '
                             f'{base.NAMESPACE} (default %(default)s)')
    decide.add_argument('--budget', type=_units, metavar='N',
                        default=base.Budget().units,
                        help='work units (default %(default)s)')
    decide.add_argument('--request',
                        choices=('preempt', 'return', 'select'),
                        default='preempt',
                        help='purpose of the plan (default %(default)s)')
    decide.set_defaults(action='plan_decide')
    _add_optimise(plans.add_parser(
        'optimise', help='make the cheapest plan of a context switch',
        description=OPTIMISE, formatter_class=raw))
    check = plans.add_parser('check', help='find the faults of a plan',
                             description=CHECK, formatter_class=raw)
    check.add_argument('model', metavar='MODEL.json')
    check.add_argument('plan', metavar='PLAN.json')
    check.set_defaults(action='plan_check')


def _add_optimise(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('model', metavar='MODEL.json',
                        help='file with a model; - reads standard input')
    parser.add_argument('--request', choices=('select', 'drain'),
                        default='select',
                        help='purpose of the plan (default %(default)s)')
    parser.add_argument('--plan', metavar='PLAN.json',
                        help='a plan to the states that are wanted')
    parser.add_argument('--objective', metavar='NAME', default='cost',
                        help=f'one of {", ".join(OBJECTIVES)} '
                             '(default %(default)s)')
    parser.add_argument('--budget', type=_units, metavar='N',
                        default=base.Budget().units,
                        help='work units (default %(default)s)')
    parser.set_defaults(action='plan_optimise')


def _units(text: str) -> int:
    return parse_whole(text)


_units.__name__ = 'whole number from 0'


def plan_decide(model: str, algorithm: str, budget: int,
                request: base.RequestKind) -> int:
    """Print the plan that an algorithm makes for a model."""
    drivers = algorithms()
    if algorithm not in drivers:
        raise InputError(f'there is no algorithm {algorithm}; there are: '
                         + ', '.join(sorted(drivers)))
    cluster = _read_file(model, model_documents.read_model)
    plan = drivers[algorithm]().decide(
        cluster, base.DecisionRequest(request), base.Budget(budget))
    print(json.dumps(plan_documents.write_plan(plan), indent=2))
    return 0


def plan_optimise(model: str, request: str, plan: str | None,
                  objective: str, budget: int) -> int:
    """Print the cheapest plan of a context switch for a model."""
    if objective not in OBJECTIVES:
        raise InputError(f'there is no objective {objective}; there are: '
                         + ', '.join(OBJECTIVES))
    # Decisions need numpy, which an installation of the commands may lack.
    from secondary_scheduler.cmd import optimised_plans

    cluster = _read_file(model, model_documents.read_model)
    options = base.SwitchOptions(objective, minimum_run_s=0.0)
    units = base.Budget(budget)
    if plan is not None:
        given = _read_file(plan, plan_documents.read_plan)
        faults = checker.check(cluster, given)
        if faults:
            print(faults[0])
            return 1
        made = optimised_plans.improve_plan(cluster, given, options, units)
    elif request == 'drain':
        made = optimised_plans.drain_unusable_hosts(cluster, options, units)
    else:
        made = optimised_plans.select_leases(cluster, options, units)
    faults = checker.check(cluster, made)
    if faults:
        print(f'the plan that was found is not valid: {faults[0]}')
        return 1
    print(json.dumps(plan_documents.write_plan(made), indent=2))
    if made.switch is not None and made.switch.solver_missing:
        print('secondary-scheduler: there is no solver, so the plan may not '
              'be the cheapest; pip install "secondary_scheduler[optimiser]"',
              file=sys.stderr)
    return 0


def plan_check(model: str, plan: str) -> int:
    """Print the first fault of a plan, or that it is good."""
    cluster = _read_file(model, model_documents.read_model)
    faults = checker.check(cluster, _read_file(plan, plan_documents.read_plan))
    if faults:
        print(faults[0])
        return 1
    print('The plan is good.')
    return 0


Document = typing.TypeVar('Document')


def _read_file(path: str, reader: Callable[[str], Document]) -> Document:
    text = files.read_document(path)
    try:
        return reader(text)
    except DocumentError as exc:
        raise InputError(f'{files.name_of(path)}: {exc}') from exc


COMMANDS: Mapping[str, Callable[..., int]] = {
    'plan_decide': plan_decide, 'plan_optimise': plan_optimise,
    'plan_check': plan_check}


def run(action: str, options: Mapping[str, typing.Any]) -> int:
    """Run one of the commands; return its exit code."""
    try:
        return COMMANDS[action](**options)
    except InputError as exc:
        print(f'secondary-scheduler: {exc}', file=sys.stderr)
        return BAD_INPUT
