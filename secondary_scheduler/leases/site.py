"""The hosts that leases can have."""

from collections.abc import Mapping
import dataclasses
import functools

import numpy as np

from secondary_scheduler.leases.lease import NodeSet, Terms, TermsError
from secondary_scheduler.leases.types import Bools, Ints


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """Hosts, what they have, and what they are like.

    ``capacity`` has the shape (hosts, resources); ``memory`` is the name of
    the resource that a suspension saves, in MB.
    """

    resources: tuple[str, ...]
    capacity: Ints
    attributes: tuple[Mapping[str, str], ...] = ()
    memory: str = 'Memory'

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
            fits = np.min([self.capacity[:, index] // amount
                           for index, amount in enumerate(one.need)
                           if amount], axis=0)
            mask = self.usable(one)
            most = int((fits if mask is None else fits * mask).sum())
            if most < one.number:
                raise TermsError(
                    f'{one.number} nodes of '
                    + ', '.join(f'{name} {amount}' for name, amount in
                                zip(self.resources, one.need, strict=True))
                    + f' do not fit: the site has room for {most}')
