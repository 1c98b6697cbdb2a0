# SPDX-License-Identifier: Apache-2.0

"""Usage controllers of all hosts: the agent's own law, compiled."""

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
    """Parameters of the usage controller."""

    least: float
    gain: float
    slack: float
    probe: float
    proportional: bool

    @classmethod
    def of_profile(cls, profile: Profile) -> 'Law':
        """Return the parameters of a profile."""
        return cls(profile.minimum_share, profile.gain, profile.slack,
                   profile.probe, profile.proportional)


@inlined
def control(share, total, set_point, law, use, most, weights, caps):
    """Set the caps of a host's guests after one period, in place.

    ``use`` and ``total`` were measured in the period.  CPU above the minimum
    is split by ``weights``, which is overwritten.  All but the first four
    arguments are (guests,).

    :returns: the new common share.
    """
    floor = used = 0.0
    for one in range(len(caps)):
        caps[one] = min(law.least, most[one])
        floor += caps[one]
        used += use[one]
    share = _integrate(share, total, used, set_point, floor, law.gain,
                       law.slack)
    # By present use, with a minimum (Boettger 2012, section 4.4.4.1).
    if law.proportional:
        for one in range(len(caps)):
            part = use[one] / used if used > 0 else 1 / len(caps)
            caps[one] = max(caps[one], share * part)
    else:
        split(share - floor, weights, most, caps)
    return share


@compiled
def by_host(host: Ints, which: Bools, hosts: int) -> tuple[Ints, Ints]:
    """Return some instances in the order of their hosts.

    :returns: the place of the first of each host, (hosts + 1,), and the
        numbers of the instances.
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
    """State of the controllers of all hosts between two periods.

    ``shares`` is (H,).  ``caps`` and ``member`` are (N,): the cap of each
    instance, and the host whose controller included it in the last period.
    """

    shares: Floats
    caps: Floats
    member: Ints

    @classmethod
    def fresh(cls, hosts: int, instances: int) -> 'Agents':
        """Return the state before the first period."""
        return cls(np.zeros(hosts), np.zeros(instances),
                   np.full(instances, -1))


@compiled
def control_hosts(agents: Agents, totals: Floats, set_points: Floats,
                  law: Law, use: Floats, most: Floats, host: Ints,
                  which: Bools) -> None:
    """Control a resource on all hosts for one period.

    ``totals`` and ``set_points`` are (H,), the others (N,).  Only the guests
    of ``which`` take part; the caps of all others stay as they are.
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
