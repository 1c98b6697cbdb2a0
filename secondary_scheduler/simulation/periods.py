"""One period of control on all hosts: sharing, use, work and caps."""

import typing

import numpy as np

from secondary_scheduler.simulation.control import (
    Agents,
    Law,
    by_host,
    compiled,
    control,
    split,
)
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.sharing import share_host
from secondary_scheduler.simulation.world import Bools, Floats, Ints


class Rules(typing.NamedTuple):
    """What of a profile says how a period goes.

    ``weights`` are those of primaries, operations and guests.
    """

    law: Law
    weights: tuple[float, float, float]
    controls: bool
    foresees: bool
    throttles_boot: bool

    @classmethod
    def of(cls, profile: Profile, cores: int) -> 'Rules':
        """Return a profile's, for hosts of so many cores."""
        return cls(Law.of(profile), (float(cores), 1.0, profile.weight),
                   profile.local_control and not profile.clairvoyant,
                   profile.clairvoyant, profile.throttles_boot)


class Guests(typing.NamedTuple):
    """Those instances that are ``inside``, at their host's CPU; all (N,).

    ``boot`` and ``most`` is what each can use while it boots and later, in
    percent, ``links`` the cap that its traffic calls for.
    """

    inside: Bools
    host: Ints
    booting: Bools
    boot: Floats
    most: Floats
    links: Floats


class Use(typing.NamedTuple):
    """CPU in percent of the host; the last is (N,), the others are (H,).

    What primaries get, operations and boots, and guests for their work; and
    what each guest uses, its boot included.
    """

    main: Floats
    ops: Floats
    vm: Floats
    guests: Floats

    @classmethod
    def none(cls, hosts: int, instances: int) -> 'Use':
        """Return no use at all."""
        return cls(*(np.zeros(size) for size in (
            hosts, hosts, hosts, instances)))


@compiled
def period(rules: Rules, wanted: Floats, burden: Floats, set_points: Floats,
           watched: Bools, guests: Guests, agents: Agents, use: Use) -> None:
    """Let a period pass, and write down what was used in it.

    ``wanted`` and ``burden`` are what primaries and operations demand.
    Where nobody is ``watched`` (all four (H,)) the limits stay in force, and
    the agent begins anew when it is back.
    """
    first, order = by_host(guests.host, guests.inside, len(wanted))
    count = len(order)
    most, got, weights, caps = (np.empty(count), np.empty(count),
                                np.empty(count), np.empty(count))
    for place in range(count):
        one = order[place]
        caps[place] = agents.caps[one]
        most[place] = guests.most[one]
        if guests.booting[one]:
            most[place] = guests.boot[one] * rules.throttles_boot
        got[place] = most[place]
        if rules.controls:
            got[place] = min(most[place], caps[place])
    for one in range(len(agents.caps)):
        agents.caps[one] = use.guests[one] = 0.0
    for number in range(len(wanted)):
        begin, end = first[number], first[number + 1]
        if rules.foresees:
            for place in range(begin, end):
                caps[place], weights[place] = 0.0, 1.0
            split(max(0.0, set_points[number] - wanted[number]
                      - burden[number]), weights[begin:end],
                  most[begin:end], caps[begin:end])
            for place in range(begin, end):
                got[place] = caps[place]
        main, ops = share_host(wanted[number], burden[number],
                               got[begin:end], rules.weights)
        vm = 0.0
        for place in range(begin, end):
            one = order[place]
            use.guests[one] = got[place]
            if guests.booting[one]:
                ops += got[place]
            else:
                vm += got[place]
            # Who is new gets no more than the least at first.
            weights[place] = 0.0
            if agents.member[one] == number:
                weights[place] = got[place] + rules.law.probe
        use.main[number], use.ops[number], use.vm[number] = main, ops, vm
        if rules.controls and watched[number]:
            agents.shares[number] = control(
                agents.shares[number], main + ops + vm, set_points[number],
                rules.law, got[begin:end], most[begin:end],
                weights[begin:end], caps[begin:end])
        else:
            agents.shares[number] = 0.0
        for place in range(begin, end):
            agents.caps[order[place]] = min(caps[place],
                                            guests.links[order[place]])
    for one in range(len(agents.member)):
        host = guests.host[one]
        agents.member[one] = (host if guests.inside[one] and watched[host]
                              else -1)
