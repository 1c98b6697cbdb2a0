# SPDX-License-Identifier: Apache-2.0

"""Instances of our actions in Watcher, by their types and parameters.

An action has one instance, or several members of one lease.  The parameters of
the latter list the members, each with its instance and hosts; ``resource_id``
is the first of them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from secondary_scheduler.plans.operations import OperationKind

#: Prefix of our action types in Watcher.
ACTION_PREFIX = 'secondary_'
#: Suffix of the types of actions with several members.
LEASE_SUFFIX = '_lease'
#: Kinds of operations that one action carries out for several members.
GROUPED = (OperationKind.SUSPEND, OperationKind.RESUME)
#: Seconds between the starts of two members' operations (Hermenier 2009,
#: section 4.1).
START_INTERVAL_S = 1.0


def action_type(kind: OperationKind, members: int = 1) -> str:
    """Return the type of an action for some members of a lease."""
    return ACTION_PREFIX + kind.value + (LEASE_SUFFIX if members > 1 else '')


def kind_of(name: str) -> str:
    """Return the kind of operation of an action type."""
    return name.removeprefix(ACTION_PREFIX).removesuffix(LEASE_SUFFIX)


def members_of(parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parameters of each member's operation."""
    shared = {name: value for name, value in parameters.items()
              if name != 'members'}
    for member in parameters.get('members') or ({},):
        yield shared | member


def single_operations(actions: Iterable[Any]
                      ) -> Iterator[tuple[Any, str, Any]]:
    """Yield each action, its kind and the parameters of each member."""
    for action in actions:
        for parameters in members_of(action.input_parameters):
            yield action, kind_of(action.action_type), parameters


def instances_of(actions: Iterable[Any],
                 kinds: Collection[str] | None = None) -> frozenset[str]:
    """Return the instances of actions, of some kinds if any are given."""
    return frozenset(parameters['resource_id']
                     for _, kind, parameters in single_operations(actions)
                     if kinds is None or kind in kinds)


def hosts_of(actions: Iterable[Any]) -> frozenset[str]:
    """Return the sources and targets of actions."""
    return frozenset(
        host for _, _, parameters in single_operations(actions)
        for host in (parameters.get('source'), parameters.get('target'))
        if host)
