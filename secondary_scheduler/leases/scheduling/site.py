"""The hosts that leases can have."""

from collections.abc import Mapping
import dataclasses
import functools

import numpy as np

from secondary_scheduler.leases.scheduling import resource_units
from secondary_scheduler.leases.scheduling.lease import (
    NodeSet,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.scheduling.types import Bools, Ints


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """Hosts, what they have, and what they are like.

    ``capacity`` has the shape (hosts, resources); ``memory`` is the name of
    the resource that a suspension saves, in MB.  ``instances`` tells, by
    their indices, of which resources hosts have several instances, and of how
    much each is, shape (hosts, instances), 0 where a host has fewer (Haizea
    2.1).
    """

    resources: tuple[str, ...]
    capacity: Ints
    attributes: tuple[Mapping[str, str], ...] = ()
    memory: str = 'Memory'
    instances: Mapping[int, Ints] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.resources)) < len(self.resources):
            raise TermsError('a host has a resource only once: '
                             + ', '.join(self.resources))
        if self.capacity.shape[1] != len(self.resources):
            raise TermsError(f'{self.capacity.shape[1]} amounts for '
                             f'{len(self.resources)} resources')
        if self.attributes and len(self.attributes) != len(self.capacity):
            raise TermsError(f'attributes of {len(self.attributes)} hosts for '
                             f'{len(self.capacity)}')
        for index, amounts in self.instances.items():
            if (amounts.sum(axis=1) != self.capacity[:, index]).any():
                raise TermsError(f'the instances of {self.resources[index]} '
                                 'are together not what hosts have of it')

    @functools.cached_property
    def columns(self) -> Ints:
        """What the slot table counts of each host, shape (hosts, columns).

        Each resource, by which it is found where there may be room, and then
        each instance of those that have several, which tell whether there is.
        """
        return np.hstack((self.capacity, *self.instances.values()))

    @functools.cached_property
    def _columns_of(self) -> Mapping[int, slice]:
        """Where the instances of each resource are in the columns."""
        found = {index: slice(index, index + 1)
                 for index in range(len(self.resources))}
        first = len(self.resources)
        for index, amounts in self.instances.items():
            found[index] = slice(first, first + amounts.shape[1])
            first += amounts.shape[1]
        return found

    def parts(self, one: NodeSet) -> list[tuple[Ints, slice]]:
        """Return what a VM takes of instances, and in which columns they are.

        The most first, for each resource of which it or a host has several.
        """
        return [(np.array(sorted(one.parts(index), reverse=True)),
                 self._columns_of[index])
                for index in sorted({*self.instances, *one.instances})
                if one.need[index]]

    def fitting(self, one: NodeSet, room: Ints, left: Ints) -> Ints:
        """Return how many VMs fit on the instances of each host.

        ``room``, shape (hosts,), is how many would if resources had no
        instances, and ``left``, shape (hosts, columns), what there is.
        """
        for parts, columns in self.parts(one):
            room = resource_units.fitting(left[:, columns], parts, room)
        return room

    @functools.cached_property
    def _memory(self) -> int | None:
        names = self.resources
        return names.index(self.memory) if self.memory in names else None

    def memory_of(self, terms: Terms) -> tuple[int, ...]:
        """Return how many MB each VM of a node set has."""
        return tuple(0 if self._memory is None else one.need[self._memory]
                     for one in terms.nodes)

    def usable(self, nodes: NodeSet) -> Bools | None:
        """Return which hosts have the attributes asked for (None: all)."""
        if not nodes.attributes:
            return None
        wanted = nodes.attributes.items()
        return np.array([wanted <= have.items() for have in self.attributes
                         or [{}] * len(self.capacity)])

    def check(self, terms: Terms) -> None:
        """Raise TermsError if not even an empty site could hold a lease."""
        for one in terms.nodes:
            if len(one.need) != len(self.resources):
                raise TermsError(f'a node tells {len(one.need)} amounts of '
                                 f'{len(self.resources)} resources')
            fits = self.fitting(one, np.min([
                self.capacity[:, index] // amount
                for index, amount in enumerate(one.need) if amount], axis=0),
                self.columns)
            mask = self.usable(one)
            most = int((fits if mask is None else fits * mask).sum())
            if most < one.number:
                raise TermsError(
                    f'{one.number} nodes of '
                    + ', '.join(
                        f'{name} ' + ' + '.join(map(str, one.parts(index)))
                        for index, name in enumerate(self.resources))
                    + f' do not fit: the site has room for {most}')
