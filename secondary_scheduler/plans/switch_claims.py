# SPDX-License-Identifier: Apache-2.0

"""Check of the claims of a cluster-wide context switch.

* An instance may have a chain of operations: migrations through pivots, a
  resume and migrations, or in a bypassed lease a suspend and a resume.  A
  member that is down before the plan returns with such a lease.
* Suspends of a lease start together, and so do its resumes (Hermenier 2009,
  section 4.1).
* The plan ends in the states that it claims.

This is a part of the checker, which shares no code with the decisions.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
import itertools
import math
import re

from secondary_scheduler.model.cluster import Cluster, InstanceState
from secondary_scheduler.model.configuration import natural_key
from secondary_scheduler.plans.operations import (
    ClaimedState,
    Operation,
    OperationKind,
    Plan,
    SwitchClaim,
)
from secondary_scheduler.plans.orders import GROUPED, describe
from secondary_scheduler.plans.reachability import Reachability
from secondary_scheduler.plans.replay import TOLERANCE_S

#: Seconds between the starts of two members of a lease.
OFFSET_S = 1.0
#: Seconds by which the last start may exceed the number of members.
SLACK_S = 2.0

_LETTERS = {
    OperationKind.MIGRATE: 'm', OperationKind.SUSPEND: 's',
    OperationKind.STOP: 'd', OperationKind.SHELVE: 'd',
    OperationKind.RESUME: 'r', OperationKind.START: 'u',
    OperationKind.UNSHELVE: 'u'}
_CHAIN = re.compile('m+|[sd]|[ru]m*')
#: Chain of a lease that is suspended and resumed to break a cycle.
_BYPASS = re.compile('m*srm*')
#: The same for a member that is down before the plan.
_RETURN = re.compile('[ru]m*')


def check_chains(cluster: Cluster, claim: SwitchClaim,
                 reach: Reachability) -> Iterator[str]:
    """Yield chains of operations on an instance that are not allowed."""
    chains = defaultdict(list)
    for one in reach.order:
        chains[one.instance].append(one)
    suspended = set()
    for uuid, chain in chains.items():
        lease = chain[0].lease
        text = ''.join(_LETTERS[one.kind] for one in chain)
        kinds = ', '.join(one.kind for one in chain)
        if lease in claim.bypassed and text.strip('m'):
            if 's' in text:
                suspended.add(lease)
            runs = cluster.instances[uuid].state is InstanceState.ACTIVE
            if not (_BYPASS if runs else _RETURN).fullmatch(text):
                yield (f'instance {uuid} is not suspended and resumed with '
                       f'lease {lease}, but has operations {kinds}')
        elif not _CHAIN.fullmatch(text):
            yield f'instance {uuid} has several operations: {kinds}'
        for one, other in itertools.pairwise(chain):
            if not reach.precedes(one, other):
                yield (f'{describe(other)}: nothing makes it wait for '
                       f'{one.id}, which precedes it on the instance')
    for lease in claim.bypassed:
        if lease not in suspended:
            yield f'lease {lease} is not suspended and resumed, as claimed'


def check_groups(reach: Reachability) -> Iterator[str]:
    """Yield members of a lease that do not start with the others.

    Members start in the natural order of their names, at least one second
    apart, within their number plus two seconds.  All wait for the same
    operations, so that they start together at other times as well.
    """
    groups: dict[tuple[str, OperationKind], list[Operation]] = defaultdict(
        list)
    for one in reach.order:
        if one.kind in GROUPED:
            groups[one.lease, one.kind].append(one)
    for (lease, kind), several in groups.items():
        several.sort(key=lambda one: natural_key(one.instance))
        first, last = several[0], several[-1]
        for one, other in itertools.pairwise(several):
            if other.start_s < one.start_s + OFFSET_S - TOLERANCE_S:
                yield (f'{describe(other)}: starts less than '
                       f'{OFFSET_S:g} s after {one.id}, the preceding member '
                       f'of lease {lease}')
            if not reach.wait_alike(one, other):
                yield (f'{describe(other)}: waits for other operations than '
                       f'{one.id}, the preceding member of lease {lease}')
        if (last.start_s - first.start_s
                > len(several) + SLACK_S + TOLERANCE_S):
            yield (f'{kind} of lease {lease}: members do not start within '
                   f'{len(several) + SLACK_S:g} s')


def check_end(cluster: Cluster, plan: Plan, claim: SwitchClaim,
              states: Mapping[str, ClaimedState]) -> Iterator[str]:
    """Yield claims that are not true after the plan.

    :param states: states after the plan, of at least all instances with an
        operation
    """
    if not (0 <= claim.value < math.inf):
        yield f'claimed {claim.objective} {claim.value} is no cost'
    if claim.bound is not None and not (
            claim.bound <= claim.value + TOLERANCE_S):
        yield (f'claimed {claim.objective} {claim.value:g} is below its bound '
               f'{claim.bound:g}')
    if claim.status == 'optimal' and (
            claim.bound is None or claim.bound < claim.value - TOLERANCE_S):
        yield (f'claimed {claim.objective} {claim.value:g} is not optimal: '
               f'its bound is {claim.bound}')
    for uuid in sorted({one.instance for one in plan.operations}
                       - claim.states.keys()):
        yield f'the claimed end omits instance {uuid}'
    for uuid, claimed in claim.states.items():
        instance = cluster.instances.get(uuid)
        if instance is None:
            yield f'the claimed end has instance {uuid}, which is unknown'
            continue
        found = states.get(uuid, ClaimedState(instance.state, instance.host))
        if found != claimed:
            yield (f'instance {uuid} ends {found.state} on host {found.host}, '
                   f'not {claimed.state} on host {claimed.host} as claimed')
