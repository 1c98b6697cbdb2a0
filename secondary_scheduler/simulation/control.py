"""The usage controllers: the agent's own law, compiled for all hosts.

Compiled code works on one host at a time, since that is how the law reads.
"""

import typing

import numpy as np

from secondary_scheduler.agent import controller
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.world import (
    Bools,
    Floats,
    Ints,
    compiled,
    inlined,
)

_integrate = inlined(controller.integrate)
split = inlined(controller.split)


class Law(typing.NamedTuple):
    """What of a profile the controller of a host follows."""

    least: float
    gain: float
    slack: float
    probe: float
    proportional: bool

    @classmethod
    def of(cls, profile: Profile) -> 'Law':
        """Return a profile's."""
        return cls(profile.minimum_share, profile.gain, profile.slack,
                   profile.probe, profile.proportional)


@inlined
def control(share, total, set_point, law, use, most, weights, caps):
    """Set the caps of a host's guests after one period, in place.

    ``use`` and ``total`` were measured in the period, ``weights`` are by
    which what is more than the minimum is split; they are used up.  All but
    the first four are (guests,).

    :returns: the new common share.
    """
    floor = used = 0.0
    for one in range(len(caps)):
        caps[one] = min(law.least, most[one])
        floor += caps[one]
        used += use[one]
    share = _integrate(share, total, used, set_point, floor, law.gain,
                       law.slack)
    if law.proportional:    # by present use, with a floor (Boettger 3.9)
        for one in range(len(caps)):
            part = use[one] / used if used > 0 else 1 / len(caps)
            caps[one] = max(caps[one], share * part)
    else:
        split(share - floor, weights, most, caps)
    return share


@compiled
def by_host(host: Ints, which: Bools, hosts: int) -> tuple[Ints, Ints]:
    """Return some instances in the order of their hosts.

    :returns: where each host's begin (hosts + 1,), and the numbers.
    """
    first = np.zeros(hosts + 1, dtype=np.int64)
    for one in range(len(host)):
        if which[one]:
            first[host[one] + 1] += 1
    for number in range(hosts):
        first[number + 1] += first[number]
    place = first.copy()
    order = np.empty(first[hosts], dtype=np.int64)
    for one in range(len(host)):
        if which[one]:
            order[place[host[one]]] = one
            place[host[one]] += 1
    return first, order


class Agents(typing.NamedTuple):
    """What the controllers of all hosts remember between two periods.

    ``shares`` is (H,); of each instance (N,) ``caps`` has its cap, and
    ``member`` the host on which it took part the last time.
    """

    shares: Floats
    caps: Floats
    member: Ints

    @classmethod
    def fresh(cls, hosts: int, instances: int) -> 'Agents':
        """Return those that have seen nothing yet."""
        return cls(np.zeros(hosts), np.zeros(instances),
                   np.full(instances, -1))


@compiled
def control_hosts(agents: Agents, totals: Floats, set_points: Floats,
                  law: Law, use: Floats, most: Floats, host: Ints,
                  which: Bools) -> None:
    """Control a resource on all hosts for one period.

    ``totals`` and ``set_points`` are (H,), the others (N,); ``which`` guests
    take part.  Of the others caps stay as they are.
    """
    first, order = by_host(host, which, len(totals))
    used, top, caps, weights = use[order], most[order], use[order], use[order]
    for place in range(len(order)):
        known = agents.member[order[place]] == host[order[place]]
        weights[place] = used[place] + law.probe if known else 0.0
    for number in range(len(totals)):
        begin, end = first[number], first[number + 1]
        agents.shares[number] = control(
            agents.shares[number], totals[number], set_points[number], law,
            used[begin:end], top[begin:end], weights[begin:end],
            caps[begin:end])
    agents.caps[order] = caps
    for one in range(len(which)):
        agents.member[one] = host[one] if which[one] else -1
