# SPDX-License-Identifier: Apache-2.0

"""Reference model: a variable for each virtual machine and host.

Hermenier 2009, section 4.3, models the hosts of virtual machines like this.
The model shows what the project's own optimiser saves, and confirms the
memory moved that it finds.  It says nothing about the order of operations.
"""

import importlib.util
import time
import typing

from secondary_scheduler.model.configuration import Configuration, MemberState

#: Limit of the solver in units of its own time, which are about seconds.
MOST_UNITS = 600.0


class NamedResult(typing.NamedTuple):
    """Least memory moved in MB, and CPU seconds to build and solve a model.

    :param memory_mb: None if the solver did not prove an optimum
    """

    memory_mb: int | None
    cpu_s: float
    variables: int


def has_solver() -> bool:
    """Return whether OR-Tools is installed."""
    return importlib.util.find_spec('ortools') is not None


def least_memory(current: Configuration, sample: Configuration
                 ) -> NamedResult:
    """Return the least memory moved of configurations with given states.

    :param sample: configuration with the states of all members
    """
    from ortools.sat.python import cp_model
    begun = time.process_time()
    model = cp_model.CpModel()
    fixed_mb, saved = 0, []
    hosts = list(current.capacity)
    on: dict[str, list[tuple[str, typing.Any]]] = {
        host: [] for host in hosts}
    for name, member in current.members.items():
        runs = sample.members[name].state is MemberState.RUNNING
        places = {host: model.NewBoolVar('') for host in hosts}
        model.Add(sum(places.values()) == int(runs))
        for host, variable in places.items():
            on[host].append((name, variable))
        if not runs:
            fixed_mb += member.memory_mb * (
                member.state is MemberState.RUNNING
                and sample.members[name].state is MemberState.SUSPENDED)
        elif member.host is not None:
            copies = 1 if member.state is MemberState.RUNNING else 2
            fixed_mb += copies * member.memory_mb
            saved.append(member.memory_mb * places[member.host])
    for host, capacity in current.capacity.items():
        for number, most in enumerate(capacity):
            model.Add(sum(current.members[name].demand[number] * variable
                          for name, variable in on[host]) <= most)
    model.Maximize(sum(saved))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = MOST_UNITS
    proved = solver.Solve(model) == cp_model.OPTIMAL
    return NamedResult(
        fixed_mb - round(solver.ObjectiveValue()) if proved else None,
        time.process_time() - begun, len(current.members) * len(hosts))
