# SPDX-License-Identifier: Apache-2.0

"""State of a host for the drivers of CPU affinity."""

from collections.abc import Callable, Sequence
import dataclasses
import time
import typing

from oslo_log import log as logging

from secondary_scheduler.agent import (
    cgroups,
    cpu_topology,
    kernel_files,
    processes,
)
from secondary_scheduler.agent.cgroup_handles import key_of
from secondary_scheduler.agent.dedicated_cpus import DedicatedCpus
from secondary_scheduler.agent.domains import Primary, Secondary
from secondary_scheduler.agent.pins import Cpus
from secondary_scheduler.agent.sensors.base import CounterRates
from secondary_scheduler.agent.vcpu_times import VcpuMeter
from secondary_scheduler.agent.workload_classes import WorkloadClasses
from secondary_scheduler.cpu_affinity import base
from secondary_scheduler.model.topology import Topology, usable_cpus

LOG = logging.getLogger(__name__)

#: Seconds over which the demand of a secondary is averaged that was idle.
_WAKES_S = 3.0


class HostUse(typing.NamedTuple):
    """Use of CPU on the host, in CPUs.

    :param primary: use by everything but secondaries
    :param share: what the controller leaves to all secondaries
    """

    primary: float
    share: float


class AffinityViews:
    """Measures secondaries and primaries, for one thread.

    :param window_s: seconds over which guests are measured
    :param others: returns the running primaries
    :param classes: workload classes of secondaries
    """

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 dedicated: DedicatedCpus, classes: WorkloadClasses,
                 others: Callable[[], Sequence[Primary]], window_s: float,
                 clock: Callable[[], float] = time.monotonic,
                 sysfs: str = cpu_topology.SYSFS) -> None:
        self._hierarchy = hierarchy
        self._dedicated = dedicated
        self.classes = classes
        self._others = others
        self._window_s = window_s
        self._clock = clock
        self._sysfs = sysfs
        self._meter = VcpuMeter(hierarchy, window_s, clock)
        self._primary_rates = CounterRates(clock)
        #: Topology of the host's CPUs; None before the first view.
        self.topology: Topology | None = None
        #: First CPUs of guests by process key, the time at which they were
        #: read, and the CPUs that the host had then.
        self._first: dict[str, Cpus] = {}
        self._first_at = clock()
        self._host_cpus: Cpus = frozenset()
        #: CPUs that any of the guests could use at first; none without guests.
        self.shared: Cpus = frozenset()

    def slowdown(self, guest: Secondary) -> float | None:
        """Return the slow-down of a guest by others on its CPUs, if known."""
        found = self._meter.times(guest, self._window_s)
        return found[1].slowdown if found else None

    def observe(self, guests: Sequence[Secondary], use: HostUse | None,
                last: base.AffinityView | None) -> base.AffinityView | None:
        """Measure the guests, and return the state of the host.

        :param use: None while it is not known
        :param last: the view of the last decision, whose use then counts
        :returns: None before the dedicated CPUs are known
        """
        self._meter.sample(guests)
        self.classes.update(guests)
        own = self._dedicated.own
        if own is None:
            return None
        topology = self._read_topology()
        shared = self._read_shared(guests, topology)
        self.shared = frozenset[int]().union(*shared.values())
        found = []
        for guest in sorted(guests, key=lambda one: (one.started, one.uuid)):
            usable = usable_cpus(topology, shared[guest.uuid], own)
            if usable:      # else its floor is the matter of control
                found.append(base.AffinityGuest(
                    guest.uuid, self.classes.class_of(guest), usable,
                    self._demand_pct(guest), max(1, guest.vcpus)))
        view = base.AffinityView(self._clock(), topology, tuple(found))
        if use is not None:
            primaries, floating = self._spread_primaries(topology,
                                                         use.primary)
            return dataclasses.replace(view, share_cpus=use.share,
                                       primaries=primaries, floating=floating)
        if last is not None:
            # What was known last is better than nothing.
            return dataclasses.replace(last, now_s=view.now_s,
                                       topology=topology, guests=view.guests)
        return view

    def _read_shared(self, guests: Sequence[Secondary], topology: Topology
                     ) -> dict[str, Cpus]:
        """Return the first CPUs of guests, read anew in each window."""
        now = self._clock()
        if now - self._first_at >= self._window_s or (
                topology.cpus != self._host_cpus):
            self._first, self._first_at = {}, now
            self._host_cpus = topology.cpus
        first = {key_of(guest): self._first.get(key_of(guest))
                 or self._dedicated.shared_cpus(guest) for guest in guests}
        self._first = first
        return {guest.uuid: first[key_of(guest)] for guest in guests}

    def _demand_pct(self, guest: Secondary) -> float:
        """Return the demand of a vCPU in percent; unknown counts as busy."""
        known = [pct for pct in (
            self._meter.demand_pct(guest, seconds) for seconds in (
                _WAKES_S, self._window_s))
            if pct is not None]
        return max(known, default=100.0)

    def _read_topology(self) -> Topology:
        """Return the topology of the host's CPUs, read anew if these change.
        """
        root = cgroups.Group(self._hierarchy.root('cpuset'))
        try:
            cpus = cgroups.effective_cpus(root)
        finally:
            root.close()
        if not cpus:
            cpus = kernel_files.parse_cpus(kernel_files.read_text(
                f'{self._sysfs}/online'), f'{self._sysfs}/online')
        if self.topology is None or self.topology.cpus != cpus:
            self.topology = cpu_topology.read_topology(self._sysfs, cpus)
            LOG.info('CPUs of this host: %s', self.topology.describe())
        return self.topology

    def _spread_primaries(self, topology: Topology, primary: float
                          ) -> tuple[dict[int, base.PrimaryUse],
                                     tuple[base.PrimaryUse, ...]]:
        """Return use by primaries of each CPU, and the part that floats.

        A primary guest that is confined to some CPUs uses these alike.
        Everything else may run anywhere.
        """
        cpus = dict.fromkeys(topology.cpus, 0.0)
        with self._primary_rates:
            for one in self._others():
                confined = (topology.cpus
                            & self._dedicated.pins.confined_to(one))
                if not confined or confined == topology.cpus:
                    continue
                counter = processes.cpu_time_ns(one.pid, self._hierarchy.proc)
                if counter is None:
                    continue
                rate = self._primary_rates.per_second(
                    (one.pid, one.started), counter) or 0.0
                for cpu in confined:
                    cpus[cpu] += rate / 1e9 / len(confined)
        floats = max(0.0, primary - sum(cpus.values()))
        return ({cpu: base.PrimaryUse(fixed + floats / len(cpus))
                 for cpu, fixed in cpus.items()},
                (base.PrimaryUse(floats),))
