# SPDX-License-Identifier: Apache-2.0

"""Parts of an agent, made from the configuration and connected."""

from collections.abc import Callable, Iterable
import dataclasses
import os
import threading
import time
import typing

from oslo_config import cfg

from secondary_scheduler.agent import (
    cgroups,
    forecasts,
    host_capacity,
    memory_guard,
    processes,
)
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.actuator import Actuator
from secondary_scheduler.agent.balloon import Balloon
from secondary_scheduler.agent.control import Control, ControlOptions
from secondary_scheduler.agent.controller import Controller
from secondary_scheduler.agent.cpu_affinity import CpuAffinity
from secondary_scheduler.agent.dedicated_cpus import DedicatedCpus
from secondary_scheduler.agent.domains import Domains, Secondary
from secondary_scheduler.agent.floors import Floors
from secondary_scheduler.agent.gauges import Gauges
from secondary_scheduler.agent.killed_instances import Killed
from secondary_scheduler.agent.libvirt_connection import libvirt_opener
from secondary_scheduler.agent.local_trigger import (
    LocalTrigger,
    TriggerOptions,
    earlier_runs,
)
from secondary_scheduler.agent.memory import MemoryMeter
from secondary_scheduler.agent.memory_guard import (
    Demand,
    GuardOptions,
    MemoryGuard,
)
from secondary_scheduler.agent.policy_source import HostPolicies, PolicySource
from secondary_scheduler.agent.primary_use import RecentPrimaryUse
from secondary_scheduler.agent.rates import RateControl, RateOptions
from secondary_scheduler.agent.sensors.base import load_sensors
from secondary_scheduler.agent.sensors.cpu import CpuMeter
from secondary_scheduler.agent.suspect_control import (
    SuspectControl,
    read_suspect_options,
    wanted_resources,
)
from secondary_scheduler.agent.throttles import Throttles
from secondary_scheduler.policies import language

if typing.TYPE_CHECKING:
    from secondary_scheduler.agent.inventory import Inventory

#: File in the state directory with the agent's last status.
STATUS = 'status.json'

#: Longest time in seconds that one measurement of memory takes.
_MEASURING_S = 10.0

Connect = Callable[[], typing.Any]


def open_store(conf: cfg.ConfigOpts, read_only: bool = False
               ) -> agent_store.StateStore:
    """Open the state directory, and create it if it does not exist."""
    path = conf.secondary_agent.state_path
    if not read_only:
        os.makedirs(path, mode=0o700, exist_ok=True)
    return agent_store.StateStore(path, read_only)


def make_actuator(conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy,
                  store: agent_store.StateStore, dry_run: bool = False
                  ) -> Actuator:
    """Make an actuator from the configuration."""
    options = conf.secondary_agent
    return Actuator(hierarchy, store, options.quota_period_ms * 1000,
                    options.service_quota_ms * 1000, options.cpu_idle,
                    dry_run, options.floor_period_ms * 1000)


def make_dedicated_cpus(actuator: Actuator, hierarchy: cgroups.Hierarchy,
                        store: agent_store.StateStore, dry_run: bool = False
                        ) -> DedicatedCpus:
    """Make the part that keeps secondaries off the CPUs of primaries."""
    return DedicatedCpus(hierarchy, store, actuator.controllers, dry_run)


def make_throttles(conf: cfg.ConfigOpts, connect: Connect | None = None,
                   reread: Callable[[], object] = lambda: None,
                   dry_run: bool = False) -> Throttles:
    """Make the part that limits disks and interfaces through libvirt."""
    return Throttles(connect or libvirt_opener(
        conf.secondary_agent.libvirt_uri), reread, dry_run)


def make_balloon(conf: cfg.ConfigOpts,
                 guests: Callable[[], Iterable[Secondary]],
                 pressing: Callable[[], bool] = lambda: False,
                 connect: Connect | None = None) -> Balloon:
    """Make the part that fills balloons while ``pressing``, else empties them.
    """
    options = conf.secondary_agent
    return Balloon(
        connect or libvirt_opener(options.libvirt_uri), guests, pressing,
        options.balloon_minimum)


class LastResort:
    """Takes a secondary to the floor, or kills it.

    ``news`` is set when a secondary was killed.
    """

    def __init__(self, actuator: Actuator, floors: Floors, killed: Killed,
                 news: threading.Event) -> None:
        self._actuator = actuator
        self._floors = floors
        self._killed = killed
        self._news = news

    def floor_guest(self, guest: Secondary) -> None:
        """Write the floor, but not for emulator threads that Nova needs."""
        self._actuator.floor(
            guest, emulator=not self._floors.operated(guest.uuid))

    def kill_guest(self, guest: Secondary, reason: str) -> bool:
        """Kill a secondary and record it; return False if that failed."""
        done = self._actuator.kill(guest)
        if done:
            self.note_killed(guest, reason)
        return done

    def note_killed(self, guest: Secondary, reason: str) -> None:
        """Record a killed secondary, and report it at once."""
        self._killed.note(guest, reason)
        self._news.set()


@dataclasses.dataclass
class Parts:
    """Parts of the agent of one host."""

    conf: cfg.ConfigOpts
    host: str
    store: agent_store.StateStore
    #: Set when there is something that a report should tell at once.
    news: threading.Event
    policies: PolicySource
    domains: Domains
    actuator: Actuator
    floors: Floors
    killed: Killed
    last_resort: LastResort
    dedicated_cpus: DedicatedCpus
    affinity: CpuAffinity
    control: Control
    gauges: Gauges
    trigger: LocalTrigger
    memory_guard: MemoryGuard
    balloon: Balloon
    memory_meter: MemoryMeter
    throttles: Throttles
    rates: RateControl
    primary_cpu: RecentPrimaryUse
    primary_memory: RecentPrimaryUse
    #: The inventory in Placement, None while the agent does not keep it.
    inventory: 'Inventory | None' = None
    #: Trials of secondaries, None while the agent makes none.
    suspects: SuspectControl | None = None


def make_parts(conf: cfg.ConfigOpts, store: agent_store.StateStore,
               hierarchy: cgroups.Hierarchy, connect: Connect | None = None,
               dry_run: bool = False,
               domains_changed: Callable[[], None] = lambda: None) -> Parts:
    """Make all parts of an agent.

    :param connect: returns a connection to libvirt, instead of
        ``libvirt_uri``.
    :param dry_run: log changes of limits instead of writing them.
    :param domains_changed: called after each listing of domains.
    :raises PolicyError: if a policy cannot be parsed.
    :raises CgroupError: if control groups are missing.
    :raises ValueError: if a sensor, a forecast or a driver cannot be loaded.
    """
    options = conf.secondary_agent
    host = options.host
    sensors = load_sensors(conf, hierarchy)
    host_memory = host_capacity.HostMemory(hierarchy)
    policies = PolicySource(
        conf, host, store,
        memory_guard.policy(conf, host, host_memory.read()[0])
        if any(language.MEMORY in one.resources for one in sensors.values())
        else ())
    news = threading.Event()
    actuator = make_actuator(conf, hierarchy, store, dry_run)
    floors = Floors(changed=news.set, is_limited=actuator.is_limited)
    killed = Killed(store)
    last_resort = LastResort(actuator, floors, killed, news)
    domains = Domains(
        connect or libvirt_opener(options.libvirt_uri, read_only=True),
        store, options.libvirt_run_dir, options.domain_period,
        hierarchy.proc, domains_changed)

    def current_policies() -> HostPolicies:
        return policies.current

    def make_meter() -> CpuMeter:
        return CpuMeter(
            host_capacity.HostCpu(hierarchy), actuator.usage_ns,
            lambda guest: processes.age(guest.started, hierarchy.proc))

    demand = Demand(domains.others, hierarchy.proc)
    gauges = Gauges(
        sensors, lambda: wanted_resources(
            policies.current, options.suspects),
        domains.secondaries, coming={
            language.MEMORY:
            lambda: 100.0 * demand.read() / host_memory.read()[0]})
    guard = MemoryGuard(
        host_capacity.HostMemory(hierarchy).read, demand, domains.secondaries,
        actuator, floors, last_resort.floor_guest, last_resort.kill_guest,
        last_resort.note_killed, lambda: GuardOptions.read(conf),
        hierarchy.proc)
    dedicated_cpus = make_dedicated_cpus(actuator, hierarchy, store, dry_run)
    affinity = CpuAffinity(conf, hierarchy, store, dedicated_cpus,
                           domains.others)
    throttles = make_throttles(conf, connect, domains.reread, dry_run)
    forecast = forecasts.load_forecast(conf)
    return Parts(
        conf=conf, host=host, store=store, news=news, policies=policies,
        domains=domains, actuator=actuator, floors=floors, killed=killed,
        last_resort=last_resort,
        dedicated_cpus=dedicated_cpus, affinity=affinity,
        control=Control(
            current_policies, domains.secondaries, make_meter(), actuator,
            Controller(options.controller_gain, options.probe_share), floors,
            lambda: ControlOptions.read(conf), affinity.most_cpus),
        gauges=gauges,
        trigger=LocalTrigger(
            current_policies, domains.secondaries, make_meter(), gauges,
            floors, last_resort.floor_guest, last_resort.kill_guest,
            lambda: TriggerOptions.read(conf),
            earlier_runs(store.load(STATUS), time.monotonic())),
        memory_guard=guard,
        balloon=make_balloon(conf, lambda: [
            guest for guest in domains.secondaries()
            if not floors.operated(guest.uuid)],
            lambda: guard.pressing, connect),
        memory_meter=MemoryMeter(
            connect or libvirt_opener(options.libvirt_uri), lambda: [
                guest for guest in domains.secondaries()
                if not guest.paused and not floors.operated(guest.uuid)
                and not floors.floored(guest.uuid)],
            3 * options.dirty_rate_interval + _MEASURING_S),
        throttles=throttles,
        rates=RateControl(
            current_policies, domains.secondaries, gauges, throttles, floors,
            lambda: Controller(options.controller_gain, options.probe_share,
                               slack=0.0),
            lambda: RateOptions.read(conf)),
        primary_cpu=RecentPrimaryUse(forecast),
        primary_memory=RecentPrimaryUse(forecast),
        suspects=SuspectControl(
            read_suspect_options(conf), domains.secondaries, gauges, floors,
            last_resort.floor_guest) if options.suspects else None)
