# SPDX-License-Identifier: Apache-2.0

"""Interface of the drivers that choose the CPUs of secondaries.

Drivers are stevedore entry points in ``secondary_scheduler.cpu_affinity``.
They are constructed with profiles and options, and keep no state: the last
decision is an argument of the next one.
"""

import abc
from collections.abc import Mapping
import dataclasses
import math

from secondary_scheduler.cpu_affinity.workload_profiles import (
    WorkloadProfiles,
)
from secondary_scheduler.model.topology import Cpus, Topology
from secondary_scheduler.reading.values import InputError, shown

NAMESPACE = 'secondary_scheduler.cpu_affinity'

TIE_BREAKS = ('least-loaded', 'thesis')
FORMULAS = ('thesis', 'normalised')


@dataclasses.dataclass(frozen=True)
class AffinityGuest:
    """Secondary for which CPUs are chosen.

    :param name: its UUID, or another unique name
    :param workload_class: its class; None if it has none
    :param usable: CPUs on which it may run; never empty
    :param cpu_pct: mean use of CPU of a vCPU in the last window, in percent
        of one CPU
    :param vcpus: number of its vCPUs
    """

    name: str
    workload_class: str | None
    usable: Cpus
    cpu_pct: float = 100.0
    vcpus: int = 1


@dataclasses.dataclass(frozen=True)
class PrimaryUse:
    """Use of a CPU, or of several, by primaries.

    :param cpus: mean use, in CPUs
    :param workload_class: class of the primaries there; None if it is unknown
    """

    cpus: float
    workload_class: str | None = None


@dataclasses.dataclass(frozen=True)
class AffinityView:
    """State of a host at a decision.

    :param now_s: time in seconds on any clock that only goes forward
    :param guests: all secondaries, in order of their arrival
    :param share_cpus: CPU time that the controller leaves to all secondaries,
        in CPUs; infinite if nothing limits them
    :param primaries: use by primaries of each CPU that they use
    :param floating: use by primaries that may run on all CPUs, by class, in
        CPUs together.  It is part of ``primaries``, too
    """

    now_s: float
    topology: Topology
    guests: tuple[AffinityGuest, ...]
    share_cpus: float = math.inf
    primaries: Mapping[int, PrimaryUse] = dataclasses.field(
        default_factory=dict)
    floating: tuple[PrimaryUse, ...] = ()


@dataclasses.dataclass(frozen=True)
class AffinityDecision:
    """CPUs of all secondaries of a host.

    :param pool: CPUs that secondaries may use together
    :param sets: a set of CPUs for each vCPU, by name of the guest
    :param idle: names of the idle guests
    :param changed_s: time of the last change of the sets of each guest
    :param placed: number of vCPUs that ``round-robin`` has placed so far
    :param homes: the CPU for which ``pool`` predicted the slow-down of each
        vCPU, by name of the guest; those of an idle guest are the last ones
    :param settled_for: the state of the host for which ``pool`` found that no
        guest should move; None if one may
    """

    pool: Cpus
    sets: Mapping[str, tuple[Cpus, ...]]
    idle: frozenset[str]
    changed_s: Mapping[str, float]
    placed: int = 0
    homes: Mapping[str, tuple[int, ...]] = dataclasses.field(
        default_factory=dict)
    settled_for: object = None

    @property
    def running(self) -> frozenset[str]:
        """Names of the guests that are not idle."""
        return frozenset(self.sets) - self.idle


@dataclasses.dataclass(frozen=True)
class AffinityOptions:
    """Thresholds of the drivers.

    :param idle_below_pct: a guest with a lower use of CPU is idle (Kaffes
        2015, section 3.2).  Idle guests share one CPU and count as no load.
        A low value lets guests keep their CPUs through short pauses; a high
        one puts guests that still work on the CPU of the idle ones
    :param resource_threshold_pct: load of a resource, in percent, above which
        ``resource`` looks for another CPU (section 3.2.2).  The thesis chose
        120 from measurements of its own eight workloads; a lower value uses
        more CPUs
    :param resource_tie_break: CPU that ``resource`` chooses of those whose
        load grows equally: ``least-loaded`` the one with the lowest use of
        CPU, ``thesis`` the first.  Above the threshold load grows equally
        everywhere, so that ``thesis`` puts all further guests on the first
        CPU (reference/errata, Kaffes, ties of the resource-based scheduler)
    :param interference_threshold: slow-down from which on ``interference``
        looks for another CPU; below it, a CPU is shared (section 3.2.3)
    :param interference_formula: combination of slow-downs beside several
        neighbours: ``thesis`` the mean of their sum and their product, with
        which three guests never stay below 1.5; ``normalised`` the mean of 1
        and the sum of their excesses over 1, and of their product
    :param least_residence_s: seconds for which ``pool`` leaves a guest on its
        CPUs.  A guest that wakes, or whose CPUs are taken away, does not wait.
        Each move costs the warm caches of a guest
    :param most_moves: guests that ``pool`` moves at most in one decision, on
        top of those that must move; 0 moves none for the sake of speed
    :param least_gain: predicted gain in mean performance, as a part of it,
        below which ``pool`` moves nothing.  Predictions err by some percent,
        and a move for less than their error is a move for nothing
    :param widening_loss: predicted loss of mean performance, as a part of it,
        that ``pool`` accepts for a wider set of CPUs.  Guests that may use
        several CPUs leave none idle beside a busy one
    :param keeps_node: whether ``pool`` leaves a guest that ran before on its
        NUMA node, where its memory is.  Without it, guests may have their
        memory far away
    :param cache_weight: weight of the predicted slow-down of secondaries
        through a shared cache when ``pool`` places them, from 0 to 1.  With 1
        the placement is bad on a host whose caches matter less than those of
        the measured host; 0.5 is near the best on both (contributor/simulator,
        t1 and t2).  The slow-down of primaries always has the weight 1
    :param primary_weight: weight of a CPU of primaries beside a vCPU of
        secondaries in the predictions of ``pool``
    :raises InputError: with the name of an invalid option
    """

    idle_below_pct: float = 2.5
    resource_threshold_pct: float = 120.0
    resource_tie_break: str = 'least-loaded'
    interference_threshold: float = 1.5
    interference_formula: str = 'thesis'
    least_residence_s: float = 60.0
    most_moves: int = 4
    least_gain: float = 0.02
    widening_loss: float = 0.005
    keeps_node: bool = True
    cache_weight: float = 0.5
    primary_weight: float = 5.0

    def __post_init__(self) -> None:
        for name, least, most in (
                ('idle_below_pct', 0.0, 100.0),
                ('resource_threshold_pct', 1.0, 10_000.0),
                ('interference_threshold', 1.0, 1000.0),
                ('least_residence_s', 0.0, 86_400.0),
                ('most_moves', 0, 10_000),
                ('least_gain', 0.0, 1.0), ('widening_loss', 0.0, 1.0),
                ('cache_weight', 0.0, 1.0), ('primary_weight', 0.0, 1e6)):
            if not least <= getattr(self, name) <= most:
                raise InputError(f'{name}: expected a number from {least:g} '
                                 f'to {most:g}, not '
                                 f'{shown(getattr(self, name))}')
        for name, known in (('resource_tie_break', TIE_BREAKS),
                            ('interference_formula', FORMULAS)):
            if getattr(self, name) not in known:
                raise InputError(f'{name}: expected {" or ".join(known)}, not '
                                 f'{shown(getattr(self, name))}')


class CpuAffinityDriver(abc.ABC):
    """Driver that chooses the CPUs of secondaries.

    :param profiles: profiles of workload classes
    :param options: thresholds
    """

    def __init__(self, profiles: WorkloadProfiles,
                 options: AffinityOptions) -> None:
        self.profiles = profiles
        self.options = options

    @abc.abstractmethod
    def decide(self, view: AffinityView,
               previous: AffinityDecision | None) -> AffinityDecision:
        """Choose the CPUs of each vCPU of all guests.

        Each set has at least one CPU, and only CPUs that its guest may use.
        With ``previous`` and an unchanged view the sets do not change.

        :param previous: the last decision; None if there is none
        :returns: a decision with sets for exactly the guests of the view
        :raises InputError: if a guest may use no CPU
        """

    def is_idle(self, guest: AffinityGuest) -> bool:
        """Return whether a guest is idle (Kaffes 2015, section 3.2)."""
        return guest.cpu_pct < self.options.idle_below_pct


def check_guests(view: AffinityView) -> None:
    """Check that each guest can be given a CPU.

    :raises InputError: with the name of a guest that may use none of the CPUs
        of the topology, that has no vCPU, or whose name is not unique
    """
    names: set[str] = set()
    for guest in view.guests:
        if guest.name in names:
            raise InputError(f'{guest.name}: two guests have this name')
        names.add(guest.name)
        if guest.vcpus < 1:
            raise InputError(f'{guest.name}: expected at least one vCPU, not '
                             f'{guest.vcpus}')
        if not guest.usable:
            raise InputError(f'{guest.name}: it may use no CPU')
        if not guest.usable <= view.topology.cpus:
            raise InputError(f'{guest.name}: it may use CPUs that the '
                             'topology does not have')
