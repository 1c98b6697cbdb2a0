# SPDX-License-Identifier: Apache-2.0

"""Pricing policies, loaded as stevedore drivers.

Sotomayor 2010, sections 8.1 and 8.2.  A rate is an amount of money per node
and second; a price is rate times duration and nodes, and is fixed once set.
A user accepts any rate up to an *acceptable* one, which a site learns only
from accepted and refused rates.
"""

import dataclasses
import math
from random import Random as SeededRandom
import typing

from secondary_scheduler.leases.scheduling.lease import Terms


class Pricing(typing.Protocol):
    """Policy that sets the rate of a lease."""

    def rate(self, terms: Terms) -> float:
        """Return the rate at which a lease is offered now."""

    def observe(self, user: str, rate: float, accepted: bool) -> None:
        """Learn from a rate that a user has accepted or refused.

        Not called for leases without room.
        """

    def learned(self) -> typing.Any:
        """Return the learned state as JSON values; None: nothing."""

    def recall(self, learned: typing.Any) -> None:
        """Replace the learned state; None: nothing was learned."""


def price(terms: Terms, rate: float) -> float:
    """Return the price of a lease at a rate."""
    return rate * terms.duration * sum(terms.numbers)


class _FixedPricing:
    """A policy that learns nothing."""

    def observe(self, user: str, rate: float, accepted: bool) -> None:
        """Ignore the rate."""

    def learned(self) -> typing.Any:
        """Return None."""

    def recall(self, learned: typing.Any) -> None:
        """Ignore the state."""


class Constant(_FixedPricing):
    """The same rate for all leases."""

    def __init__(self, rate: float = 1.0) -> None:
        self._rate = rate

    def rate(self, terms: Terms) -> float:
        """Return the constant rate."""
        return self._rate


class Random(_FixedPricing):
    """A random rate for each lease, uniform between two limits."""

    def __init__(self, least: float = 0.1, most: float = 10.0, seed: int = 1
                 ) -> None:
        self._least, self._most = least, most
        self._random = SeededRandom(seed)

    def rate(self, terms: Terms) -> float:
        """Draw a rate."""
        return self._random.uniform(self._least, self._most)


class Maximum(_FixedPricing):
    """The highest rate each user accepts; an upper bound for experiments."""

    def rate(self, terms: Terms) -> float:
        """Return the highest rate accepted, 0 if unknown."""
        return terms.max_rate or 0.0


@dataclasses.dataclass
class _Known:
    """The highest rate a user has accepted, and the lowest refused."""

    accepted: float | None = None
    refused: float | None = None
    estimate: float = 0.0
    settled: bool = False

    def estimate_rate(self, up: float, down: float) -> float:
        """Return an estimate of the acceptable rate."""
        if self.accepted is None:
            assert self.refused is not None
            return self.refused * down
        if self.refused is None:
            return self.accepted * up
        return (self.refused + self.accepted) / 2


class Adaptive:
    """One rate for all leases, learned from accepted and refused rates.

    Sotomayor 2010, algorithm 7.  The rate is the ``quantile`` of the users'
    estimated acceptable rates.  An estimate is ``up`` times the highest
    accepted rate, ``down`` times the lowest refused one, or the mean of both.
    """

    def __init__(self, rate: float = 1.0, up: float = 1.5, down: float = 0.5,
                 quantile: float = 0.5) -> None:
        self._first = self._rate = rate
        self._up, self._down, self._quantile = up, down, quantile
        self._users: dict[str, _Known] = {}

    def rate(self, terms: Terms) -> float:
        """Return the present rate."""
        return self._rate

    def observe(self, user: str, rate: float, accepted: bool) -> None:
        """Learn from a user's decision and update the rate."""
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
                one.estimate = one.estimate_rate(self._up, self._down)
        estimates = sorted(one.estimate for one in self._users.values())
        self._rate = estimates[min(int(len(estimates) * self._quantile),
                                   len(estimates) - 1)]

    def learned(self) -> typing.Any:
        """Return the present rate and the rates known of users."""
        if not self._users:
            return None
        return {'rate': self._rate, 'users': {
            user: dataclasses.asdict(known)
            for user, known in self._users.items()}}

    def recall(self, learned: typing.Any) -> None:
        """Replace the learned state; None: start again."""
        state = learned or {'rate': self._first, 'users': {}}
        self._rate = state['rate']
        self._users = {user: _Known(**known)
                       for user, known in state['users'].items()}


# The drivers, made from the options of [secondary_leases].

def constant(options: typing.Any) -> Pricing:
    """Return a policy with the constant ``rate``."""
    return Constant(options.rate)


def uniform(options: typing.Any) -> Pricing:
    """Return a policy with random rates, ``rate_min`` to ``rate_max``."""
    return Random(options.rate_min, options.rate_max)


def maximum(options: typing.Any) -> Pricing:
    """Return the policy with the highest accepted rates."""
    return Maximum()


def adaptive(options: typing.Any) -> Pricing:
    """Return a policy that starts with ``rate`` and learns."""
    return Adaptive(options.rate, quantile=options.rate_quantile)


def free(options: typing.Any) -> None:
    """Return no policy: leases are free."""
