# SPDX-License-Identifier: Apache-2.0

"""Switches of which the cost is known to be the smallest without a search."""

from collections.abc import Callable

from secondary_scheduler.decisions.optimiser import Optimised
from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.model.configuration import (
    Configuration,
    MemberState,
    Pool,
)


def find_minimal_switch(current: Configuration, sample: Configuration,
                        measure: Callable[[tuple[Pool, ...]], float]
                        ) -> Optimised | None:
    """Return the switch to a sample if no other one can cost less.

    That is so if only members whose state changes have an operation, each
    where it is, and all operations are in the first pool.  Then the cost is
    the same in every equivalent switch, for each objective.  No host may be
    overloaded in the end, and no constraint broken.

    :returns: None if a search is needed
    """
    for name, old in current.members.items():
        new = sample.members[name]
        if new.state is MemberState.RUNNING and new.host != old.host and (
                old.state is not MemberState.WAITING):
            return None
    hosts = {name: (one.host,) for name, one in sample.members.items()
             if one.host is not None}
    if not sample.is_viable() or any(
            one.broken(hosts) for one in current.constraints):
        return None
    switch = sequence(current, sample)
    if len(switch.pools) != 1 or switch.kept or any(
            move.bypass for move in switch.moves):
        return None
    value = measure(switch.pools)
    return Optimised(sample, switch, value, value, 'optimal')
