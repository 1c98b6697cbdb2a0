# SPDX-License-Identifier: Apache-2.0

"""Placement constraints of model documents.

Each has a ``kind`` and lists of names::

    {"kind": "spread", "instances": ["vm1", "vm2"]}
    {"kind": "fence", "instances": ["vm1"], "hosts": ["n1", "n2"]}
    {"kind": "among", "instances": ["vm1"], "groups": [["n1"], ["n2", "n3"]]}
    {"kind": "split", "groups": [["vm1"], ["vm2", "vm3"]]}
    {"kind": "quarantine", "hosts": ["n1"]}

``gather``, ``lonely`` and ``root`` have the fields of ``spread``, and ``ban``
those of ``fence``.  Groups have no names in common.
"""

from collections.abc import Collection, Iterable, Sequence

from secondary_scheduler.model.constraints import (
    KINDS,
    Among,
    Ban,
    Constraint,
    Fence,
    Gather,
    Lonely,
    Quarantine,
    Root,
    Split,
    Spread,
    check_kinds,
)
from secondary_scheduler.reading.fields import Fields

_OF_INSTANCES = {one.kind: one for one in (Spread, Gather, Lonely, Root)}
_WITH_HOSTS = {one.kind: one for one in (Ban, Fence)}


def read_constraint(fields: Fields, hosts: Collection[str],
                    instances: Collection[str]) -> Constraint:
    """Read a constraint.

    :param hosts: names of all hosts
    :param instances: names of all instances
    :raises DocumentError: naming the field and the expected value
    """
    kind = fields.choice('kind', tuple(KINDS))
    found: Constraint
    if kind in _OF_INSTANCES:
        found = _OF_INSTANCES[kind](_names(fields, 'instances', instances))
    elif kind in _WITH_HOSTS:
        found = _WITH_HOSTS[kind](_names(fields, 'instances', instances),
                                  _names(fields, 'hosts', hosts))
    elif kind == Among.kind:
        found = Among(_names(fields, 'instances', instances),
                      _groups(fields, 'hosts', hosts))
    elif kind == Split.kind:
        found = Split(_groups(fields, 'instances', instances))
    else:
        found = Quarantine(_names(fields, 'hosts', hosts))
    fields.done()
    return found


def _names(fields: Fields, name: str, known: Collection[str]
           ) -> frozenset[str]:
    return _known(fields, name, fields.items(name), name, known)


def _groups(fields: Fields, what: str, known: Collection[str]
            ) -> tuple[frozenset[str], ...]:
    """Read disjoint groups of hosts or of instances."""
    groups: list[frozenset[str]] = []
    for number, value in enumerate(fields.items('groups')):
        name = f'groups[{number}]'
        if not isinstance(value, list):
            fields.wrong(name, f'a list of names of {what}', value)
        group = _known(fields, name, value, what, known)
        if not group.isdisjoint(set().union(*groups)):
            fields.wrong(name, f'{what} that are in no other group', value)
        groups.append(group)
    if not groups:
        fields.wrong('groups', f'at least one group of {what}', groups)
    return tuple(groups)


def _known(fields: Fields, name: str, values: Sequence[object], what: str,
           known: Collection[str]) -> frozenset[str]:
    """Check that values are names of hosts or of instances."""
    if not values:
        fields.wrong(name, f'the name of at least one of {what}', values)
    for number, value in enumerate(values):
        if not isinstance(value, str) or value not in known:
            fields.wrong(f'{name}[{number}]', f'a name in {what}', value)
    return frozenset(map(str, values))


def write_constraints(constraints: Iterable[Constraint]
                      ) -> list[dict[str, object]]:
    """Return constraints as JSON."""
    return [_write(one) for one in constraints]


def _write(constraint: Constraint) -> dict[str, object]:
    check_kinds([constraint], (Spread, Gather, Ban, Fence, Among, Lonely,
                               Split, Root, Quarantine))
    written: dict[str, object] = {'kind': constraint.kind}
    if constraint.named and not isinstance(constraint, Split):
        written['instances'] = sorted(constraint.named)
    if isinstance(constraint, (Ban, Fence, Quarantine)):
        written['hosts'] = sorted(constraint.hosts)
    if isinstance(constraint, (Among, Split)):
        written['groups'] = [sorted(one) for one in constraint.groups]
    return written
