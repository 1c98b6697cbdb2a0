# SPDX-License-Identifier: Apache-2.0

"""Site: the hosts that can be leased."""

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
    """Hosts with their resources and attributes.

    ``capacity`` has the shape (hosts, resources); ``memory`` is the name of
    the resource that a suspension saves, in MB.

    ``units`` maps indices of resources of which hosts have several units
    to the size of each unit, shape (hosts, units), 0 where a host has fewer
    (Sotomayor 2010, section 3.1).
    """

    resources: tuple[str, ...]
    capacity: Ints
    attributes: tuple[Mapping[str, str], ...] = ()
    memory: str = 'Memory'
    units: Mapping[int, Ints] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.resources)) < len(self.resources):
            raise TermsError('a resource is listed only once: '
                             + ', '.join(self.resources))
        if self.capacity.shape[1] != len(self.resources):
            raise TermsError(f'{self.capacity.shape[1]} amounts for '
                             f'{len(self.resources)} resources')
        if self.attributes and len(self.attributes) != len(self.capacity):
            raise TermsError(f'attributes of {len(self.attributes)} hosts for '
                             f'{len(self.capacity)}')
        for index, amounts in self.units.items():
            if (amounts.sum(axis=1) != self.capacity[:, index]).any():
                raise TermsError(f'the units of {self.resources[index]} do '
                                 'not add up to the capacity of the hosts')

    @functools.cached_property
    def columns(self) -> Ints:
        """Columns of the slot table, shape (hosts, columns).

        First each resource, for a quick search; then the units of resources
        that have several, for the final check.
        """
        return np.hstack((self.capacity, *self.units.values()))

    @functools.cached_property
    def _columns_of(self) -> Mapping[int, slice]:
        """The columns of the units of each resource."""
        found = {index: slice(index, index + 1)
                 for index in range(len(self.resources))}
        first = len(self.resources)
        for index, amounts in self.units.items():
            found[index] = slice(first, first + amounts.shape[1])
            first += amounts.shape[1]
        return found

    def parts(self, one: NodeSet) -> list[tuple[Ints, slice]]:
        """Return the amounts a VM takes of units, and the units' columns.

        For each resource of which it or a host has several units; the largest
        amount first.
        """
        return [(np.array(sorted(one.parts(index), reverse=True)),
                 self._columns_of[index])
                for index in sorted({*self.units, *one.units})
                if one.need[index]]

    def count_fitting(self, one: NodeSet, most: Ints, left: Ints) -> Ints:
        """Return how many VMs fit on the units of each host.

        :param most: upper bounds, without regard to units, shape (hosts,)
        :param left: free capacity, shape (hosts, columns)
        """
        for parts, columns in self.parts(one):
            most = resource_units.count_fitting(left[:, columns], parts, most)
        return most

    @functools.cached_property
    def _memory(self) -> int | None:
        names = self.resources
        return names.index(self.memory) if self.memory in names else None

    def memory_of(self, terms: Terms) -> tuple[int, ...]:
        """Return the memory of a VM of each node set, in MB."""
        return tuple(0 if self._memory is None else one.need[self._memory]
                     for one in terms.nodes)

    def usable_hosts(self, nodes: NodeSet) -> Bools | None:
        """Return the hosts with the required attributes (None: all)."""
        if not nodes.attributes:
            return None
        wanted = nodes.attributes.items()
        return np.array([wanted <= have.items() for have in self.attributes
                         or [{}] * len(self.capacity)])

    def check_terms(self, terms: Terms) -> None:
        """Raise TermsError if a node set does not fit an empty site."""
        for one in terms.nodes:
            if len(one.need) != len(self.resources):
                raise TermsError(f'a node has {len(one.need)} amounts for '
                                 f'{len(self.resources)} resources')
            fits = self.count_fitting(one, np.min([
                self.capacity[:, index] // amount
                for index, amount in enumerate(one.need) if amount], axis=0),
                self.columns)
            mask = self.usable_hosts(one)
            most = int((fits if mask is None else fits * mask).sum())
            if most < one.number:
                raise TermsError(
                    f'{one.number} nodes of '
                    + ', '.join(
                        f'{name} ' + ' + '.join(map(str, one.parts(index)))
                        for index, name in enumerate(self.resources))
                    + f' do not fit: the site has room for {most}')
