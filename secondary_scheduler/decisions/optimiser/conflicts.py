# SPDX-License-Identifier: Apache-2.0

"""Smallest sets of leases and hosts that exclude each other."""

from collections.abc import Callable, Collection, Sequence
import dataclasses

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser.problem import SwitchProblem
from secondary_scheduler.decisions.packing import PackingError, sticky_target
from secondary_scheduler.model.configuration import MemberState, natural_key


def find_conflict(problem: SwitchProblem, budget: Budget) -> tuple[str, ...]:
    """Return leases that cannot run together, and the hosts that they need.

    The others fit without any one of these leases, or if any one of these
    hosts had room without limit.  A spent budget leaves more in the set.

    :returns: names with the words ``lease`` or ``host`` before them; no hosts
        if the cluster as a whole is too small
    """
    leases = sorted({
        one.lease for one in problem.sample.members.values()
        if one.state is MemberState.RUNNING and not one.fixed},
        key=natural_key)
    leases = _shrink(leases, lambda kept: not _fit(problem, kept, ()), budget)
    hosts = _shrink(
        sorted(problem.hosts, key=natural_key),
        lambda kept: not _fit(problem, leases, set(problem.hosts) - set(kept)),
        budget)
    if len(hosts) == len(problem.hosts):
        hosts = []
    return (*(f'lease {lease}' for lease in leases),
            *(f'host {host}' for host in hosts))


def _shrink(names: Sequence[str], fails: Callable[[list[str]], bool],
            budget: Budget) -> list[str]:
    """Return a smallest part of the names that still fails.

    Blocks of names are left out, of half the length in each round.
    """
    kept = list(names)
    size = max(1, len(kept) // 2)
    while True:
        first = 0
        while first < len(kept):
            if not budget.spend():
                return kept
            fewer = kept[:first] + kept[first + size:]
            if fails(fewer):
                kept = fewer
            else:
                first += size
        if size == 1:
            return kept
        size //= 2


def _fit(problem: SwitchProblem, leases: Collection[str],
         unlimited: Collection[str]) -> bool:
    """Return whether leases fit while all others of the sample are down."""
    current = problem.current
    if unlimited:
        most = tuple(
            sum(one.demand[number] for one in current.members.values())
            for number in range(len(current.dimensions)))
        current = dataclasses.replace(current, capacity={
            host: tuple(map(sum, zip(amounts, most, strict=True)))
            if host in unlimited else amounts
            for host, amounts in current.capacity.items()})
    kept = frozenset(leases)
    states = {lease: members[0].state
              for lease, members in problem.sample.leases.items()}
    states = {lease: state if state is not MemberState.RUNNING
              or lease in kept else MemberState.SUSPENDED
              for lease, state in states.items()}
    try:
        sticky_target(current, states)
    except PackingError:
        return False
    return True
