# SPDX-License-Identifier: Apache-2.0

"""Period of control on all hosts: sharing, use, work and caps."""

import typing

import numpy as np

from secondary_scheduler.simulation.control import (
    Agents,
    Law,
    by_host,
    control,
    split,
)
from secondary_scheduler.simulation.loads import STEPS
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.sharing import share_host
from secondary_scheduler.simulation.world import (
    Bools,
    Floats,
    Ints,
    compiled,
)


class Rules(typing.NamedTuple):
    """Parameters of a profile for a period.

    ``weights`` are those of primaries, operations and guests.  ``core_s`` is
    the core-seconds of one percent of a host in a period.
    """

    law: Law
    weights: tuple[float, float, float]
    core_s: float
    controls: bool
    foresees: bool
    throttles_boot: bool

    @classmethod
    def of_profile(cls, profile: Profile, cores: int) -> 'Rules':
        """Return the parameters of a profile, for hosts of some cores."""
        return cls(Law.of_profile(profile),
                   (float(cores), 1.0, profile.weight),
                   cores / 100 / STEPS,
                   profile.local_control and not profile.clairvoyant,
                   profile.clairvoyant, profile.throttles_boot)


class Guests(typing.NamedTuple):
    """Instances as consumers of CPU; all (N,).

    ``inside`` marks the instances that run or boot above the floor.  ``boot``
    and ``most`` are the CPU that each can use while it boots and later, in
    percent.  ``links`` is the CPU cap that limits its traffic.  ``work`` is
    increased, in core-seconds.
    """

    inside: Bools
    host: Ints
    booting: Bools
    boot: Floats
    most: Floats
    links: Floats
    work: Floats


class CpuUse(typing.NamedTuple):
    """CPU use in percent of the host, summed over periods.

    ``main`` is of primaries, ``ops`` of operations and boots, ``vm`` of guests
    for their work, all (H,).  ``guests`` is of each guest with its boot, (N,).
    """

    main: Floats
    ops: Floats
    vm: Floats
    guests: Floats

    @classmethod
    def none(cls, hosts: int, instances: int) -> 'CpuUse':
        """Return a use of zero."""
        return cls(*(np.zeros(size) for size in (
            hosts, hosts, hosts, instances)))


@compiled
def period(rules: Rules, wanted: Floats, burden: Floats, set_points: Floats,
           watched: Bools, guests: Guests, agents: Agents, use: CpuUse,
           now: Floats) -> None:
    """Simulate a period, and add its CPU use to ``use``.

    ``now`` (N,) is set to the use of each guest in this period.  ``wanted``
    and ``burden`` are the demand of primaries and operations.  On hosts that
    are not ``watched`` the limits stay in force, and the agent starts anew
    when it is back.
    """
    first, order = by_host(guests.host, guests.inside, len(wanted))
    for one in range(len(agents.caps)):
        if not guests.inside[one]:
            agents.caps[one], agents.member[one] = 0.0, -1
    size = np.diff(first).max()
    most, got, weights, caps = (np.empty(size), np.empty(size),
                                np.empty(size), np.empty(size))
    for number in range(len(wanted)):
        here = order[first[number]:first[number + 1]]
        count = len(here)
        for place in range(count):
            one = here[place]
            most[place] = guests.most[one]
            if guests.booting[one]:
                most[place] = guests.boot[one] * rules.throttles_boot
            caps[place], got[place] = agents.caps[one], most[place]
            if rules.controls:
                got[place] = min(most[place], caps[place])
        if rules.foresees:
            for place in range(count):
                caps[place], weights[place] = 0.0, 1.0
            split(max(0.0, set_points[number] - wanted[number]
                      - burden[number]), weights[:count], most[:count],
                  caps[:count])
            for place in range(count):
                got[place] = caps[place]
        main, ops = share_host(wanted[number], burden[number], got[:count],
                               rules.weights)
        vm = 0.0
        for place in range(count):
            one = here[place]
            now[one] = got[place]
            use.guests[one] += got[place]
            if guests.booting[one]:
                ops += got[place]
            else:
                vm += got[place]
                guests.work[one] += got[place] * rules.core_s
            # A new guest has the minimum at first.
            weights[place] = 0.0
            if agents.member[one] == number:
                weights[place] = got[place] + rules.law.probe
            agents.member[one] = number if watched[number] else -1
        use.main[number] += main
        use.ops[number] += ops
        use.vm[number] += vm
        agents.shares[number] = control(
            agents.shares[number], main + ops + vm, set_points[number],
            rules.law, got[:count], most[:count], weights[:count],
            caps[:count]) if rules.controls and watched[number] else 0.0
        for place in range(count):
            one = here[place]
            agents.caps[one] = min(caps[place], guests.links[one])


@compiled
def presence(guests: Guests, floored: Bools, caps: Floats, foresees: bool,
             hosts: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the guests of each host, summed up; all (H,).

    A guest is under control from its second period on.

    :returns: the CPU that guests above the floor could use by their size, and
        that of guests at the floor, in percent; the number of guests under
        control, and of those with no CPU.
    """
    able, idle, controlled, nothing = (np.zeros(hosts), np.zeros(hosts),
                                       np.zeros(hosts), np.zeros(hosts))
    for one in range(len(caps)):
        at = guests.host[one]
        most = guests.boot[one] if guests.booting[one] else guests.most[one]
        if floored[one]:
            idle[at] += most
        elif guests.inside[one]:
            able[at] += most
        if floored[one] or (guests.inside[one]
                            and (foresees or caps[one] > 0.0)):
            controlled[at] += 1
            nothing[at] += floored[one] or caps[one] == 0.0
    return able, idle, controlled, nothing
