# SPDX-License-Identifier: Apache-2.0

"""Placement constraints that Nova's own filters enforce.

Nova checks them when it places or migrates a server, so a plan that ignores
them would fail.  A constraint is made only where a usable host is refused.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
import operator

from secondary_scheduler.model.constraints import (
    Ban,
    Constraint,
    Gather,
    Root,
)
from secondary_scheduler.plans.constraint_rules import fence_in
from secondary_scheduler.watcher.cloud_snapshot import (
    CloudSnapshot,
    ComputeHost,
    NovaServer,
    ServerGroup,
)

#: Prefix of the aggregate metadata that names the only projects on a host.
_PROJECTS = 'filter_tenant_id'
#: Aggregate metadata that names the cell of a host.  Nova moves no server to
#: another cell, and its API does not tell the cells of hosts.
_CELL = 'secondary:cell'


def find_nova_constraints(snapshot: CloudSnapshot, usable: Collection[str]
                          ) -> tuple[Constraint, ...]:
    """Return the constraints by server groups, zones and aggregates.

    :param usable: hosts that a decision may bring an instance to
    """
    return (*_by_hosts(snapshot, usable),
            *(one for group in snapshot.groups
              for one in _by_group(snapshot, group)))


def _by_hosts(snapshot: CloudSnapshot, usable: Collection[str]
              ) -> Iterator[Constraint]:
    """Yield a fence for instances that Nova refuses on some usable hosts.

    As by Nova's AggregateMultiTenancyIsolation, a host is for the projects
    that its aggregates name, if they name any.  A server stays in its cell, as
    far as the operator has named it.
    """
    cells = {name: host.metadata.get(_CELL, frozenset())
             for name, host in snapshot.hosts.items()}
    owners: dict[str, set[str]] = {
        name: set().union(*(values for key, values in host.metadata.items()
                            if key.startswith(_PROJECTS)))
        for name, host in snapshot.hosts.items()}
    named: set[str] = set().union(*owners.values())
    alike: dict[tuple[object, ...], list[NovaServer]] = defaultdict(list)
    for server in snapshot.servers.values():
        alike[cells.get(server.host or '', frozenset()), server.zone,
              tuple(sorted(server.aggregate_specs.items())),
              server.project if server.project in named else None
              ].append(server)
    for (cell, *_), servers in alike.items():
        one = servers[0]
        hosts = {name for name, host in snapshot.hosts.items()
                 if (not cell or cell == cells[name])
                 and one.zone in ('', host.place.zone)
                 and (not owners[name] or one.project in owners[name])
                 and _has_metadata(host, one.aggregate_specs)}
        if not hosts.issuperset(usable):
            yield fence_in([server.uuid for server in servers], hosts)


def _has_metadata(host: ComputeHost, specs: Mapping[str, str]) -> bool:
    """Return whether the aggregates of a host have what a flavor asks for.

    As by Nova's AggregateInstanceExtraSpecsFilter.
    """
    return all(any(_matches(value, wanted)
                   for value in host.metadata.get(key, ()))
               for key, wanted in specs.items())


def _matches(value: str, wanted: str) -> bool:
    """Return whether a value of an aggregate satisfies an extra spec.

    The operators are Nova's.  Those of ``oslo_utils.specs_matcher`` differ:
    it knows others, and does not need a blank after them.
    """
    operator_name, *operands = wanted.split() or ('',)
    if operator_name == '<or>':
        return value in operands[::2]
    if operator_name == '<all-in>':
        return bool(operands) and all(one in value for one in operands)
    if operator_name not in _OPERATORS:
        return value == wanted
    try:
        return bool(operands) and _OPERATORS[operator_name](
            value, operands[0])
    except ValueError:      # no number: Nova finds no host
        return False


def _of_numbers(compare: Callable[[float, float], bool]
                ) -> Callable[[str, str], bool]:
    return lambda value, wanted: compare(float(value), float(wanted))


#: Operators of extra specs, by Nova's extra_specs_ops.
_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    '=': _of_numbers(operator.ge), '==': _of_numbers(operator.eq),
    '!=': _of_numbers(operator.ne), '>=': _of_numbers(operator.ge),
    '<=': _of_numbers(operator.le), '<in>': operator.contains,
    's==': operator.eq, 's!=': operator.ne, 's<': operator.lt,
    's<=': operator.le, 's>': operator.gt, 's>=': operator.ge}


def _by_group(snapshot: CloudSnapshot, group: ServerGroup
              ) -> Iterator[Constraint]:
    """Yield the constraints on the secondaries of a server group.

    Anti-affinity among secondaries is a property of the instances, unless a
    host may have several.  So only primaries lead to constraints.
    """
    members = group.members.intersection(snapshot.servers)
    if not members:
        return
    primaries = group.members - members
    if not primaries <= snapshot.primary_hosts.keys():
        yield Root(members)
        return
    taken = frozenset(snapshot.primary_hosts[one] for one in primaries
                      ).intersection(snapshot.hosts)
    if not group.apart:
        if len(members) > 1:
            yield Gather(members)
        if taken:
            yield fence_in(members, taken)
    elif group.most_on_host == 1:
        if taken:
            yield Ban(members, taken)
    else:
        yield from _by_numbers(snapshot, group, members)


def _by_numbers(snapshot: CloudSnapshot, group: ServerGroup,
                members: Collection[str]) -> Iterator[Constraint]:
    """Yield a ban of the full hosts for each member on another host.

    If a plan brings two members to the last place, Nova refuses the second.
    """
    hosts = {**snapshot.primary_hosts, **{
        uuid: snapshot.servers[uuid].host for uuid in members}}
    count = Counter(hosts[one] for one in group.members)
    full = frozenset(name for name in snapshot.hosts
                     if count[name] >= group.most_on_host)
    for one in sorted(members):
        if full - {hosts[one]}:
            yield Ban(frozenset({one}), full - {hosts[one]})
