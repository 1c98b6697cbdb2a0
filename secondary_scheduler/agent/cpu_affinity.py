# SPDX-License-Identifier: Apache-2.0

"""CPU affinity of secondaries: from measurements to a set for each vCPU.

The driver decides (``secondary_scheduler.cpu_affinity``), ``dedicated_cpus``
writes.  The share of the CPU that the controller leaves to secondaries bounds
the pool, and the pool bounds what each secondary can use.
"""

from collections.abc import Callable, Mapping, Sequence
import math
import threading
import time
import typing

from oslo_config import cfg
from oslo_log import log as logging
import stevedore

from secondary_scheduler.agent import cgroups, cpu_topology, kernel_files
from secondary_scheduler.agent.affinity_views import AffinityViews, HostUse
from secondary_scheduler.agent.cgroup_handles import key_of
from secondary_scheduler.agent.cpu_model import read_cpu_model
from secondary_scheduler.agent.cpu_sets import AssignedCpus
from secondary_scheduler.agent.dedicated_cpus import DedicatedCpus
from secondary_scheduler.agent.domains import Primary, Secondary
from secondary_scheduler.agent.pins import Cpus
from secondary_scheduler.agent.profile_files import read_profiles
from secondary_scheduler.agent.store import StateStore
from secondary_scheduler.agent.workload_classes import WorkloadClasses
from secondary_scheduler.cpu_affinity import base
from secondary_scheduler.cpu_affinity.host_prediction import HostPredictor
from secondary_scheduler.cpu_affinity.profile_learning import (
    ObservedSlowdown,
)
from secondary_scheduler.cpu_affinity.workload_profiles import (
    UNPROFILED,
    WorkloadProfiles,
)
from secondary_scheduler.model.arrivals import Arrival
from secondary_scheduler.model.topology import Topology
from secondary_scheduler.reading.values import InputError

LOG = logging.getLogger(__name__)

#: Name of the option's value without a driver.
NONE = 'none'
#: Seconds between two observations from which classes are learned.
_LEARN_S = 600.0
#: Use of a CPU by primaries, in CPUs, below which it does not disturb that.
_QUIET_CPUS = 0.02


def load_driver(conf: cfg.ConfigOpts, profiles: WorkloadProfiles
                ) -> base.CpuAffinityDriver | None:
    """Load the driver that the option ``cpu_affinity`` names.

    :returns: None for ``none``.
    :raises ValueError: if there is no such driver; the error lists all.
    """
    options = conf.secondary_agent
    name = options.cpu_affinity
    if name == NONE:
        return None
    try:
        found: base.CpuAffinityDriver = stevedore.DriverManager(
            base.NAMESPACE, name, invoke_on_load=True, invoke_args=(
                profiles, base.AffinityOptions(
                    idle_below_pct=options.cpu_affinity_idle_below,
                    least_residence_s=options.cpu_affinity_residence,
                    most_moves=options.cpu_affinity_moves,
                    least_gain=options.cpu_affinity_gain))).driver
    except Exception as exc:
        known = sorted({NONE, *stevedore.ExtensionManager(
            base.NAMESPACE).names()})
        raise ValueError(
            f'[secondary_agent] cpu_affinity = {name}: expected one of '
            f'{", ".join(known)}: {exc}') from exc
    return found


class CpuAffinity:
    """Sets of CPUs for the vCPUs of all secondaries; safe for threads.

    :param others: returns the running primaries
    """

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy,
                 store: StateStore, dedicated: DedicatedCpus,
                 others: Callable[[], Sequence[Primary]],
                 clock: Callable[[], float] = time.monotonic,
                 sysfs: str = cpu_topology.SYSFS) -> None:
        options = conf.secondary_agent
        self._options = options
        #: Why the profiles are not used; '' if they are.
        self.profile_problem = ''
        self._classes = WorkloadClasses(
            self._read_profiles(options.cpu_affinity_profiles),
            read_cpu_model(hierarchy.proc), store)
        self._driver = load_driver(conf, self._classes.profiles)
        self._dedicated = dedicated
        self._views = AffinityViews(hierarchy, dedicated, self._classes,
                                    others, options.cpu_affinity_period,
                                    clock, sysfs)
        self._learned_at = clock()
        self._lock = threading.Lock()
        self._view: base.AffinityView | None = None
        self._decision: base.AffinityDecision | None = None
        self._problem = ''
        self._predictor = self._make_predictor()
        self._arrivals: Mapping[str, Arrival] = {}
        #: Predicted slow-downs of running secondaries with the last decision.
        self._predicted: Mapping[str, float] = {}
        #: Time since which each secondary has its sets.
        self._since: dict[str, float] = {}
        #: Number of times that a running secondary got other CPUs.
        self.moves = 0

    def _read_profiles(self, path: str | None) -> WorkloadProfiles:
        try:
            return read_profiles(path) if path else UNPROFILED
        except InputError as exc:
            self.profile_problem = f'cpu_affinity_profiles: {exc}'
            LOG.error('The profiles of workload classes are not used: %s',
                      exc)
            return UNPROFILED

    def _make_predictor(self) -> HostPredictor | None:
        """Return a predictor of slow-downs, None without profiles."""
        if self._driver is None or not self._classes.are_known:
            return None
        return HostPredictor(self._classes.profiles, self._driver.options)

    @property
    def enabled(self) -> bool:
        """Whether there is a driver."""
        return self._driver is not None

    # -- decisions ---------------------------------------------------------
    def step(self, guests: Sequence[Secondary], use: HostUse | None) -> bool:
        """Measure, and decide if it is time to; called each second.

        An error ends the sets of all guests, until a decision succeeds.

        :param use: None while the use of the host is not known; then only
            guests that have come or gone are a reason to decide.
        :returns: whether there is another decision than before
        """
        if self._driver is None:
            return False
        before = self._decision
        try:
            view = self._views.observe(guests, use, self._view)
            self._follow_profiles()
            if view is not None and self._is_due(view):
                self._decide(view)
                self._learn(guests, view)
        except Exception as exc:
            problem = str(exc) or type(exc).__name__
            if problem != self._problem:    # the next second tries again
                LOG.exception('No CPUs were chosen; secondaries keep their '
                              'first sets')
            with self._lock:
                self._view = self._decision = None
                self._predicted, self._arrivals = {}, {}
                self._problem = problem
        return self._decision is not before

    def _decide(self, view: base.AffinityView) -> None:
        """Ask the driver."""
        assert self._driver is not None     # nosec B101
        before = self._decision
        decision = self._driver.decide(view, before)
        predicted: Mapping[str, float] = {}
        arrivals: Mapping[str, Arrival] = {}
        if self._predictor is not None:
            predicted = self._predictor.predict_guests(view, decision)
            if not self._options.cpu_affinity_advice:
                arrivals = self._predictor.predict_arrivals(
                    view, decision, self._usable(view.topology))
        self._since = {
            name: self._since[name] if before is not None
            and before.sets.get(name) == sets else view.now_s
            for name, sets in decision.sets.items()}
        with self._lock:
            self._view, self._decision, self._problem = view, decision, ''
            self._predicted, self._arrivals = predicted, arrivals
            if before is not None and not self._options.cpu_affinity_advice:
                self.moves += sum(
                    decision.sets[name] != before.sets[name]
                    for name in decision.running & before.running)

    def _follow_profiles(self) -> None:
        """Let driver and predictions use profiles that were learned."""
        profiles = self._classes.profiles
        if self._driver is not None and profiles is not self._driver.profiles:
            self._driver = type(self._driver)(profiles, self._driver.options)
            self._predictor = self._make_predictor()

    def _learn(self, guests: Sequence[Secondary], view: base.AffinityView
               ) -> None:
        """Correct profiles by slow-downs of guests on one CPU each.

        Only there it is known which guests slow each other down, only where
        primaries hardly run, and only while the sets are in force.
        """
        decision = self._decision
        if (decision is None or self._options.cpu_affinity_advice
                or view.now_s - self._learned_at < _LEARN_S):
            return
        self._learned_at = view.now_s
        classes = {one.name: one.workload_class or '' for one in view.guests}
        refusals = self._dedicated.refusals
        confined = {guest.uuid for guest in guests
                    if key_of(guest) not in refusals}
        alone = {name: sets[0] for name, sets in decision.sets.items()
                 if name in decision.running & confined and len(sets) == 1
                 and view.now_s - self._since[name]
                 >= self._options.cpu_affinity_period
                 and len(sets[0]) == 1 and all(
                     cpu not in view.primaries
                     or view.primaries[cpu].cpus < _QUIET_CPUS
                     for cpu in sets[0])}
        found = []
        for guest in guests:
            own = alone.get(guest.uuid)
            slowdown = self._views.slowdown(guest)
            shared = [name for name in decision.running
                      if name != guest.uuid and own is not None and any(
                          own & one for one in decision.sets[name])]
            if own and slowdown and set(shared) <= alone.keys():
                found.append(ObservedSlowdown(
                    classes[guest.uuid],
                    tuple(classes[name] for name in shared), (), slowdown))
        self._classes.observe(found)

    def _is_due(self, view: base.AffinityView) -> bool:
        """Return whether to decide now.

        Guests that come, go or wake, and CPUs that come and go, do not wait
        for the end of the period.  Neither does the first measurement of the
        host's use, because decisions before it are not limited.
        """
        before, last = self._decision, self._view
        if before is None or last is None or self._driver is None:
            return True
        return (view.now_s - last.now_s >= self._options.cpu_affinity_period
                or (math.isinf(last.share_cpus)
                    and not math.isinf(view.share_cpus))
                or view.topology != last.topology
                or [(one.name, one.usable, one.vcpus) for one in view.guests]
                != [(one.name, one.usable, one.vcpus) for one in last.guests]
                or any(one.name in before.idle
                       and not self._driver.is_idle(one)
                       for one in view.guests))

    # -- what follows ------------------------------------------------------
    def assigned(self, guest: Secondary, operated: bool = False
                 ) -> AssignedCpus | None:
        """Return the CPUs that a guest is to have.

        :param operated: whether Nova operates on it; then its emulator and
            I/O threads have their first set
        :returns: None if it keeps its first sets
        """
        with self._lock:
            decision = self._decision
        if (decision is None or self._options.cpu_affinity_advice
                or guest.uuid not in decision.sets):
            return None
        return AssignedCpus(decision.sets[guest.uuid],
                            None if operated else decision.pool)

    def most_cpus(self, guest: Secondary) -> float:
        """Return how many CPUs a guest can use at once."""
        assigned = self.assigned(guest)
        vcpus = max(1, guest.vcpus)
        if assigned is None:
            return vcpus
        return min(vcpus, len(frozenset[int]().union(*assigned.vcpus)))

    def _usable(self, topology: Topology) -> Cpus:
        """Return the CPUs on which one more secondary may run.

        They are those that Nova has given to the present ones, or else all of
        the host, without those that primaries have for themselves.
        """
        return ((self._views.shared & topology.cpus or topology.cpus)
                - (self._dedicated.own or frozenset()))

    def count_usable(self) -> int | None:
        """Return how many CPUs secondaries can use; None if unknown."""
        topology = self._views.topology
        if not self.enabled or topology is None:
            return None
        return len(self._usable(topology))

    def arrivals(self) -> Mapping[str, Arrival]:
        """Return predictions for one more secondary of each known class.

        :returns: nothing without a driver, without profiles, or with advice
        """
        with self._lock:
            return self._arrivals

    def status(self, guests: Sequence[Secondary]) -> dict[str, typing.Any]:
        """Return what ``secondary-agent status`` shows."""
        with self._lock:
            decision, topology = self._decision, self._views.topology
            predicted, problem = self._predicted, self._problem
        refusals = self._dedicated.refusals
        return {
            'driver': self._options.cpu_affinity,
            'advice': self._options.cpu_affinity_advice,
            'problems': list(filter(None, (
                problem, self.profile_problem, self._classes.problem))),
            'topology': topology.describe() if topology else '',
            'pool': kernel_files.format_cpus(decision.pool) if decision
            else '',
            'moves': self.moves,
            'guests': {
                guest.uuid: self._describe(guest, decision, refusals) | {
                    'predicted': _rounded(predicted.get(guest.uuid))}
                for guest in guests} if self.enabled else {}}

    def _describe(self, guest: Secondary,
                  decision: base.AffinityDecision | None,
                  refusals: Mapping[str, str]) -> dict[str, typing.Any]:
        sets: Sequence[Cpus] = (decision.sets.get(guest.uuid, ())
                                if decision else ())
        reason = refusals.get(key_of(guest), '')
        if not sets and not reason:
            reason = 'no CPUs have been chosen for it'
        return {'cpus': [kernel_files.format_cpus(one) for one in sets],
                'idle': bool(decision and guest.uuid in decision.idle),
                'slowdown': _rounded(self._views.slowdown(guest)),
                'reason': reason}


def _rounded(slowdown: float | None) -> float | None:
    return None if slowdown is None else round(slowdown, 2)
