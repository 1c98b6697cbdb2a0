"""What a lease costs (Haizea 4.11).

A rate is money for a node and a second; a price is a rate times duration and
nodes, and does not change once it is set.  A user accepts any rate up to an
*acceptable* one, of which a site learns only by what is accepted and refused.
"""

import dataclasses
import math
from random import Random as SeededRandom
import typing

from secondary_scheduler.leases.scheduling.lease import Terms


class Pricing(typing.Protocol):
    """Names the rate at which a lease is offered."""

    def rate(self, terms: Terms) -> float:
        """Return the rate at which a lease is offered now."""

    def hear(self, user: str, rate: float, accepted: bool) -> None:
        """Learn that a user has accepted or refused a rate.

        A lease that there is no room for says nothing of prices.
        """

    def learned(self) -> typing.Any:
        """Return what was learned so far, as JSON has it; None: nothing."""

    def recall(self, learned: typing.Any) -> None:
        """Know what was learned before, and nothing else; None: nothing."""


def price(terms: Terms, rate: float) -> float:
    """Return what a lease costs at a rate."""
    return rate * terms.duration * sum(terms.numbers)


class _Deaf:
    """Learns nothing."""

    def hear(self, user: str, rate: float, accepted: bool) -> None:
        """Learn nothing."""

    def learned(self) -> typing.Any:
        """Return that nothing was learned."""

    def recall(self, learned: typing.Any) -> None:
        """Know nothing."""


class Constant(_Deaf):
    """Everybody is offered the same rate."""

    def __init__(self, rate: float = 1.0) -> None:
        self._rate = rate

    def rate(self, terms: Terms) -> float:
        """Return the one rate."""
        return self._rate


class Random(_Deaf):
    """Each lease is offered a rate drawn anew between two."""

    def __init__(self, least: float = 0.1, most: float = 10.0, seed: int = 1
                 ) -> None:
        self._least, self._most = least, most
        self._random = SeededRandom(seed)

    def rate(self, terms: Terms) -> float:
        """Return a rate that is drawn for this lease."""
        return self._random.uniform(self._least, self._most)


class Maximum(_Deaf):
    """Each user is offered the most that they accept: a bound, no policy."""

    def rate(self, terms: Terms) -> float:
        """Return what would be paid at most, 0 if that is not known."""
        return terms.max_rate or 0.0


@dataclasses.dataclass
class _Known:
    """The highest rate a user has accepted, and the lowest refused."""

    accepted: float | None = None
    refused: float | None = None
    estimate: float = 0.0
    settled: bool = False

    def guess(self, up: float, down: float) -> float:
        """Return where between the two the acceptable rate may be."""
        if self.accepted is None:
            assert self.refused is not None
            return self.refused * down
        if self.refused is None:
            return self.accepted * up
        return (self.refused + self.accepted) / 2


class Adaptive:
    """One rate for all that follows what users accept (Algorithm 7).

    It is the ``quantile`` of what they are thought to accept: ``up`` times
    what they have accepted so far, ``down`` times what they have refused, or
    the middle once both are known.
    """

    def __init__(self, rate: float = 1.0, up: float = 1.5, down: float = 0.5,
                 quantile: float = 0.5) -> None:
        self._first = self._rate = rate
        self._up, self._down, self._quantile = up, down, quantile
        self._users: dict[str, _Known] = {}

    def rate(self, terms: Terms) -> float:
        """Return the present rate."""
        return self._rate

    def hear(self, user: str, rate: float, accepted: bool) -> None:
        """Learn from a user's decision, and set the rate anew."""
        known = self._users.setdefault(user, _Known())
        if not accepted:
            known.refused = min(rate, math.inf if known.refused is None
                                else known.refused)
        elif known.accepted is None:
            known.accepted = rate
        elif known.refused is not None:
            known.settled = True
        else:
            known.accepted = max(rate, known.accepted)
        for one in self._users.values():
            if not one.settled:
                one.estimate = one.guess(self._up, self._down)
        estimates = sorted(one.estimate for one in self._users.values())
        self._rate = estimates[min(int(len(estimates) * self._quantile),
                                   len(estimates) - 1)]

    def learned(self) -> typing.Any:
        """Return the present rate, and what is known of users."""
        if not self._users:
            return None
        return {'rate': self._rate, 'users': {
            user: dataclasses.asdict(known)
            for user, known in self._users.items()}}

    def recall(self, learned: typing.Any) -> None:
        """Go on with what was learned; None: begin anew."""
        said = learned or {'rate': self._first, 'users': {}}
        self._rate = said['rate']
        self._users = {user: _Known(**known)
                       for user, known in said['users'].items()}


# The drivers: what each makes of the options of [secondary_leases].

def constant(options: typing.Any) -> Pricing:
    """Offer everything at ``rate``."""
    return Constant(options.rate)


def uniform(options: typing.Any) -> Pricing:
    """Draw rates from ``rate_min`` to ``rate_max``."""
    return Random(options.rate_min, options.rate_max)


def maximum(options: typing.Any) -> Pricing:
    """Offer what is accepted just so."""
    return Maximum()


def adaptive(options: typing.Any) -> Pricing:
    """Begin with ``rate`` and learn."""
    return Adaptive(options.rate, quantile=options.rate_quantile)


def free(options: typing.Any) -> None:
    """Ask for nothing."""
