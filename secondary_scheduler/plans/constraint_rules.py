# SPDX-License-Identifier: Apache-2.0

"""Rules of an operator, which become placement constraints.

An entry is an object with one name, the kind of the constraint::

    {"spread": {"leases": ["b9c1...:7f3e..."]}}
    {"fence": {"instances": ["3d0a..."], "hosts": ["n1", "n2"]}}
    {"among": {"leases": ["..."], "groups": [["n1"], ["n2", "n3"]]}}
    {"split": {"groups": [{"leases": ["..."]}, {"instances": ["..."]}]}}
    {"quarantine": {"hosts": ["n1"]}}

``gather``, ``lonely`` and ``root`` have the fields of ``spread``, and ``ban``
those of ``fence``.  Servers of a lease may not exist yet, and names may be
wrong.  So rules are read first, and resolved with the facts of each round.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
import dataclasses

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
    UnknownConstraintError,
)
from secondary_scheduler.reading.fields import DocumentError, Fields

_OF_MEMBERS = {one.kind: one for one in (Spread, Gather, Lonely, Root)}


@dataclasses.dataclass(frozen=True)
class NamedMembers:
    """UUIDs of instances, and ids of leases of which all instances count."""

    instances: tuple[str, ...] = ()
    leases: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ConstraintRule:
    """A constraint whose names are not resolved yet.

    :param number: of the entry, from 1, for messages
    :param parts: groups of members of a split
    :param groups: groups of hosts of an among
    """

    number: int
    kind: str
    members: NamedMembers = NamedMembers()
    hosts: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    parts: tuple[NamedMembers, ...] = ()


@dataclasses.dataclass(frozen=True)
class KnownNames:
    """Names that rules may use.

    :param leases: UUIDs of the instances of each lease
    """

    instances: Collection[str]
    leases: Mapping[str, Collection[str]]
    hosts: Collection[str]


def read_rule(number: int, entry: Fields) -> ConstraintRule:
    """Read an entry.

    :param number: of the entry, from 1
    :raises DocumentError: naming the field and the expected value
    """
    kind = next((one for one in entry.names if one in KINDS), None)
    if kind is None:
        entry.done(tuple(KINDS))
        raise DocumentError(f'{entry.path}: expected one of '
                            + ', '.join(KINDS))
    fields = entry.object(kind)
    entry.done((kind,))
    rule = ConstraintRule(number, kind)
    if kind not in (Split.kind, Quarantine.kind):
        rule = dataclasses.replace(rule, members=_read_members(fields))
    if kind in (Ban.kind, Fence.kind, Quarantine.kind):
        rule = dataclasses.replace(rule, hosts=_names(
            fields, 'hosts', fields.items('hosts')))
    if kind == Among.kind:
        rule = dataclasses.replace(rule, groups=tuple(_read_groups(fields)))
    if kind == Split.kind:
        rule = dataclasses.replace(rule, parts=tuple(
            _read_members(one, done=True) for one in fields.objects('groups')))
        if len(rule.parts) < 2:
            fields.wrong('groups', 'at least two groups of instances', [])
    fields.done()
    return rule


def _read_members(fields: Fields, done: bool = False) -> NamedMembers:
    found = NamedMembers(tuple(fields.texts('instances')),
                         tuple(fields.texts('leases')))
    if not (found.instances or found.leases):
        fields.wrong('instances', 'a list of UUIDs, here or in "leases"', [])
    if done:
        fields.done()
    return found


def _read_groups(fields: Fields) -> Iterator[tuple[str, ...]]:
    """Read disjoint groups of hosts."""
    seen: set[str] = set()
    for number, value in enumerate(fields.items('groups')):
        name = f'groups[{number}]'
        if not isinstance(value, list):
            fields.wrong(name, 'a list of host names', value)
        group = _names(fields, name, value)
        if not seen.isdisjoint(group):
            fields.wrong(name, 'hosts that are in no other group', value)
        seen.update(group)
        yield group
    if not seen:
        fields.wrong('groups', 'at least one list of host names', [])


def _names(fields: Fields, name: str, values: list[object]
           ) -> tuple[str, ...]:
    if not values:
        fields.wrong(name, 'at least one host name', values)
    for number, value in enumerate(values):
        if not isinstance(value, str) or not value:
            fields.wrong(f'{name}[{number}]', 'a host name', value)
    return tuple(map(str, values))


def fence_in(members: Collection[str], hosts: Collection[str]) -> Constraint:
    """Return a fence, or a root if there is no host to go to."""
    return (Fence(frozenset(members), frozenset(hosts)) if hosts
            else Root(frozenset(members)))


class RuleResolver:
    """Turns rules into constraints on the instances and hosts of a cloud.

    :ivar problems: messages on unknown names, and on instances in two parts
        of a split
    """

    def __init__(self, known: KnownNames) -> None:
        self._known = known
        self.problems: list[str] = []

    def resolve(self, rules: Iterable[ConstraintRule]
                ) -> tuple[Constraint, ...]:
        """Return the constraints; unknown names are left out of them."""
        return tuple(found for rule in rules
                     for found in self._constraint(rule))

    def _constraint(self, rule: ConstraintRule) -> Iterator[Constraint]:
        """Yield the constraint of a rule, unless it concerns nothing."""
        if rule.kind == Quarantine.kind:
            hosts = self._hosts(rule, rule.hosts)
            if hosts:
                yield Quarantine(hosts)
            return
        if rule.kind == Split.kind:
            parts = tuple(filter(None, self._parts(rule)))
            if len(parts) > 1:
                yield Split(parts)
            return
        members = self._members(rule, rule.members)
        hosts = self._hosts(rule, rule.hosts)
        groups = tuple(filter(None, (
            self._hosts(rule, one) for one in rule.groups)))
        if not members:
            return
        if rule.kind in _OF_MEMBERS:
            yield _OF_MEMBERS[rule.kind](members)
        elif rule.kind == Fence.kind:
            yield fence_in(members, hosts)
        elif rule.kind == Among.kind:
            yield Among(members, groups) if groups else Root(members)
        elif rule.kind != Ban.kind:
            raise UnknownConstraintError(
                f'rules of the kind {rule.kind} are not known here')
        elif hosts:
            yield Ban(members, hosts)

    def _parts(self, rule: ConstraintRule) -> Iterator[frozenset[str]]:
        seen: set[str] = set()
        for part in rule.parts:
            members = self._members(rule, part)
            for one in sorted(members & seen):
                self._note(rule, f'instance {one} is in two groups, and '
                           'counts in the first')
            yield members - seen
            seen |= members

    def _members(self, rule: ConstraintRule, named: NamedMembers
                 ) -> frozenset[str]:
        found: set[str] = set()
        for one in named.instances:
            if one in self._known.instances:
                found.add(one)
            else:
                self._note(rule, f'instance {one} is not known')
        for one in named.leases:
            if one in self._known.leases:
                found.update(self._known.leases[one])
            else:
                self._note(rule, f'lease {one} has no instances')
        return frozenset(found)

    def _hosts(self, rule: ConstraintRule, names: Iterable[str]
               ) -> frozenset[str]:
        found = set()
        for one in names:
            if one in self._known.hosts:
                found.add(one)
            else:
                self._note(rule, f'host {one} is not known')
        return frozenset(found)

    def _note(self, rule: ConstraintRule, problem: str) -> None:
        self.problems.append(f'entry {rule.number}, {rule.kind}: {problem}')
