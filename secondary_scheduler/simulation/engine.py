# SPDX-License-Identifier: Apache-2.0

"""Main loop: loads, sharing, control, checks and decisions of each second."""

from collections.abc import Callable, Sequence
import dataclasses
import math

import numpy as np

from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.provisioning import ProvisioningDecision
from secondary_scheduler.estimation.durations import ConcurrentDurations
from secondary_scheduler.plans import checker
from secondary_scheduler.policies import language
from secondary_scheduler.simulation.admission import AdmissionModel
from secondary_scheduler.simulation.checks import PolicyChecks
from secondary_scheduler.simulation.control import Agents
from secondary_scheduler.simulation.direct_starts import start_new_instances
from secondary_scheduler.simulation.leases.event_log import LeaseEvents
from secondary_scheduler.simulation.loads import STEPS, Course
from secondary_scheduler.simulation.losses import Damage, Loss
from secondary_scheduler.simulation.network import Links
from secondary_scheduler.simulation.observe import SimulatedObserver
from secondary_scheduler.simulation.operations import RESOURCES, Operations
from secondary_scheduler.simulation.periods import (
    CpuUse,
    Guests,
    Rules,
    period,
    presence,
)
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.record import Recorder, Sample
from secondary_scheduler.simulation.turnover import (
    NO_ARRIVALS,
    Arrivals,
    Turnover,
)
from secondary_scheduler.simulation.world import (
    Bools,
    Floats,
    Ints,
    Shape,
    World,
)

#: Resources of policies; the rest of the language is not simulated.
SIMULATED = (*RESOURCES, 'slots', 'cores')


@dataclasses.dataclass(frozen=True)
class Workload:
    """Input of a run, the same for all profiles.

    ``policies`` are on ``SIMULATED`` resources, and bind each host.
    ``load`` is the CPU demand of primaries, (steps, H) in percent of a host.
    ``net`` is the traffic of primaries each way, one value or (seconds, H).
    ``seeds`` has the seed of the random numbers of each cluster.
    With ``placed`` all instances start at once, spread over the hosts.
    With ``arrivals`` there are none at first; the shape is the largest number
    at a time.  ``losses`` are the failures to simulate.  ``scenario`` is
    called at the beginning of each second and may change thresholds.
    """

    shape: Shape
    policies: tuple[str, ...]
    load: Course
    seeds: tuple[tuple[int, ...], ...]
    net: float | Floats = 0.0
    placed: bool = False
    arrivals: Arrivals | None = None
    losses: Sequence[Loss] = ()
    scenario: 'Callable[[Simulation, int], None] | None' = None

    @property
    def seconds(self) -> int:
        """Duration of the run."""
        return len(self.load) // STEPS


class Simulation:
    """Run of one workload under one profile."""

    def __init__(self, workload: Workload, profile: Profile, record: Recorder
                 ) -> None:
        self.workload = workload
        self.profile = profile
        self.record = record
        self.world = World(workload.shape, workload.seeds)
        hosts, instances = len(self.world.block_until), len(self.world.status)
        self.checks = PolicyChecks(language.parse_all(
            workload.policies, SIMULATED, totals=()), hosts,
            profile.sensitivity_offset, profile.adapts)
        self.operations = Operations(self.world, profile, record)
        self._observer = SimulatedObserver(
            self.world, self.checks, self.operations, profile
        )
        self._turnover = Turnover(workload.arrivals or NO_ARRIVALS, self.world)
        self._damage = Damage(workload.losses, self.world, self.operations,
                              record)
        self._leases = LeaseEvents(self.world, self._turnover, record)
        self._admission = AdmissionModel(
            self.world, self.checks, self._observer, self.operations, profile
        )
        self._rules = Rules.of_profile(profile, workload.shape.cores)
        self._agents = Agents.fresh(hosts, instances)
        self._links = Links(self.world, profile)
        self._room_s = np.zeros(hosts)
        self._due = np.full(workload.shape.clusters, np.inf)
        durations = ConcurrentDurations()
        self._guided = GuidedDecision(profile.limits, durations,
                                      profile.counting)
        self._provisioner = ProvisioningDecision(
            profile.limits, durations, profile.counting,
            spreads=profile.spreads)

    def run(self, progress: Callable[[int], object] = lambda second: None
            ) -> None:
        """Run the workload; call ``progress`` after each second."""
        if self.workload.placed:
            start_new_instances(self.operations, 0.0)
        for second in range(self.workload.seconds):
            # A restarted agent counts failed checks from zero.
            self.checks.failed[:, self._damage.strike(second)] = 0
            self._turnover.arrive(second)
            if self.profile.placed:
                start_new_instances(self.operations, second)
            if self.workload.scenario is not None:
                self.workload.scenario(self, second)
            self._second(second)
            progress(second)

    # one second

    def _second(self, second: int) -> None:
        world = self.world
        hosts = len(world.block_until)
        load = np.zeros(hosts)
        use = CpuUse.none(hosts, len(world.status))
        set_point = self.checks.set_point('cpu', self.profile.margin)
        for step in range(STEPS):
            now = second + step / STEPS
            wanted = np.where(
                world.up, self.workload.load[second * STEPS + step], 0.0)
            load += wanted / STEPS
            used = self._period(wanted, set_point, use)
            self._results(now)
            self.operations.advance(1 / STEPS, used, now + 1 / STEPS)
        main, ops, vm, used = (one / STEPS for one in use)
        nets = self._nets(second)
        wanted = nets[1].copy()
        nets[1], sent = self._transfer(wanted, used)
        self._observer.add_second(np.stack([main, *nets]), used)
        self._sample(second, {'load': load, 'main': main, 'ops': ops,
                              'vm': vm, 'net_load': wanted,
                              'net_main': nets[1]}, used)
        # A guest at the floor does not contribute, nor do operations on it.
        secondary = np.where(self.operations.of_the_frozen(), vm, vm + ops)
        self._check(main + ops + vm, secondary, nets, sent)
        now = second + 1.0
        self._thaw(set_point - main, now)
        self._local_triggers(now)
        self._decide(now)
        if self.record.logs:
            self._leases.record_changes(now)

    def _period(self, wanted: Floats, set_point: Floats,
                use: CpuUse) -> Floats:
        """Simulate a period; ``wanted`` is the demand of primaries, (H,).

        :returns: the use of each guest, (N,), which is added to ``use``.
        """
        world = self.world
        used = np.zeros(len(world.status))
        period(self._rules, wanted, self.operations.burden[0],
               set_point, world.watched, self._guests, self._agents,
               use, used)
        return used

    @property
    def _inside(self) -> Bools:
        """Instances that run or boot and are not at the floor, (N,)."""
        world = self.world
        return (world.running | world.booting) & ~world.frozen

    @property
    def _guests(self) -> Guests:
        world = self.world
        return Guests(self._inside, world.host, world.booting, world.boot,
                      world.most, self._links.cpu_caps, world.work)

    def _nets(self, second: int) -> Floats:
        """Return the traffic demand of primaries, in and out, (2, H)."""
        net = self.workload.net
        return np.full((2, len(self.world.block_until)),
                       net if isinstance(net, float) else net[second])

    def _transfer(self, wanted: Floats, used: Floats
                  ) -> tuple[Floats, Floats]:
        """Share the links; return the traffic of primaries and guests."""
        world = self.world
        burden = self.operations.burden[2]
        got, sent, sums = self._links.share(wanted, burden, used)
        if self._links.controlled:
            self._links.adapt(
                got + burden + sums, sent, self.checks.set_point(
                    'net_out', self.profile.margin),
                self._inside & world.running)
        return got, sums

    def _results(self, now: float) -> None:
        """Record results: an instance has done a unit of work in one life.

        Instances of ``arrivals`` leave with their first result.
        """
        world = self.world
        for one in np.flatnonzero(world.work >= world.unit).tolist():
            unit = float(world.unit[one])
            world.work[one] -= unit
            self.record.event(int(world.cluster_of[one]), 'result', t=now,
                              instance=world.name(one), unit=unit)
            if self.workload.arrivals is not None:
                self.operations.depart(one, now)

    def _sample(self, second: int, values: dict[str, Floats], used: Floats
                ) -> None:
        world, caps = self.world, self._agents.caps
        floored = (world.running | world.booting) & world.frozen
        clairvoyant = self.profile.clairvoyant
        values['able'], values['floored'], *counts = presence(
            self._guests, floored, caps, clairvoyant, len(values['load']))

        def shares(host: int) -> tuple[dict[str, float], dict[str, float]]:
            those = np.flatnonzero((world.host == host) & (
                self._inside | floored))
            return ({world.name(one): float(used[one]) for one in those},
                    {world.name(one): 0.0 if floored[one]
                     else float(caps[one]) for one in those
                     if floored[one] or clairvoyant or caps[one] > 0})

        self.record.sample(second, Sample(
            values, self.checks.set_point('cpu', 0.0), *(
                count.reshape(world.shape.clusters, -1).sum(axis=1)
                for count in counts)), shares)

    # policies

    def _check(self, total: Floats, secondary: Floats, nets: Floats,
               sent: Floats) -> None:
        """Check all policies against the use of the second."""
        found = {'cpu': (total, secondary > 0)}
        for resource in {one.resource for one in self.checks.policies}:
            if resource in RESOURCES[1:]:
                row = RESOURCES.index(resource)
                others = self.operations.burden[row] + (
                    sent if resource == 'net_out' else 0.0)
                found[resource] = nets[row - 1] + others, others > 0
            elif resource != 'cpu':
                inside = self.world.running & ~self.world.frozen
                held = (self._admission.running() if resource == 'slots' else
                        self.world.sum_by_host(self.world.vcpus, inside))
                found[resource] = held, held > 0
        self.checks.count(*({resource: one[place] for resource, one
                             in found.items()} for place in range(2)))

    def _each(self, which: Bools) -> list[tuple[int, int]]:
        """Return the (policy, host) pairs that are marked."""
        return list(zip(*(place.tolist() for place in np.nonzero(which)),
                        strict=True))

    def _event(self, host: int, event: str, now: float, **more: object
               ) -> None:
        cluster = int(self.world.cluster_of_host[host])
        self.record.event(cluster, event, t=now,
                          host=host % self.world.shape.hosts, **more)

    def _local_triggers(self, now: float) -> None:
        policies = self.checks.policies
        for row, host in self._each(self.checks.broken):
            self._event(host, 'invalid', now, policy=policies[row].text)
        if self.record.logs:
            for row, host in self._each(self.checks.failed > 0):
                self._event(host, 'check_failed', now,
                            policy=policies[row].text,
                            f=int(self.checks.failed[row, host]))
        if not self.profile.local_trigger:
            return
        for row, host in self._each(self.checks.local & self.world.watched):
            guests = np.flatnonzero(self._inside
                                    & (self.world.host == host)).tolist()
            if self.profile.freeze and policies[row].static:
                guests = guests[int(self.checks.threshold[row, host]):]
            else:   # a boot or an arriving migration is killed as well
                guests = [one for one in sorted({
                    *guests, *self.operations.on_host(host)})
                    if not self.world.frozen[one]]
            if guests:
                self._event(host, 'trigger', now, kind='local',
                            policy=policies[row].text)
            for one in guests:
                self._last_resort(one, host, now)

    def _last_resort(self, guest: int, host: int, now: float) -> None:
        """Take a guest to the floor, or kill it without a floor."""
        world = self.world
        if self.profile.freeze:
            world.frozen[guest] = True
            world.frozen_s[guest] = 0.0
            self._event(host, 'freeze', now, instance=world.name(guest))
        elif world.running[guest] or world.busy[guest]:
            self.operations.kill(guest, now)

    def _thaw(self, room: Floats, now: float) -> None:
        """Lift the floor where there has been room for ``calm_s``.

        ``room`` is the CPU between the use of primaries and the set point.
        """
        world = self.world
        frozen = np.flatnonzero(world.frozen)
        world.frozen_s[frozen] += 1
        at = world.host[frozen]
        stuck = frozen[(at >= 0) & world.watched[at]]
        if not len(stuck):
            return
        share = self.profile.useful_share
        inside = world.count_by_host(self._inside & (world.host >= 0))
        room = room - self.operations.burden[0] - share * inside
        free = np.minimum(room // share,
                          self._admission.slots() - inside)
        self._room_s = np.where(free >= 1, self._room_s + 1, 0)
        calm = self._room_s >= self.profile.calm_s
        for one in stuck[calm[world.host[stuck]]].tolist():
            host = int(world.host[one])
            if free[host] >= 1:
                free[host] -= 1
                world.frozen[one] = False
                self._event(host, 'thaw', now, instance=world.name(one))

    # decisions

    def _decide(self, now: float) -> None:
        self._observer.update_violated()
        for row, host in self._each(self.checks.fired & self.world.watched):
            policy = self.checks.policies[row]
            self._event(host, 'trigger', now, kind='global',
                        policy=policy.text)
            wait = 0.0 if policy.static else min(
                self.profile.collect_s, (policy.timelimit - float(
                    self.checks.sensitivity[row, host])) / 4)
            cluster = int(self.world.cluster_of_host[host])
            self._due[cluster] = min(self._due[cluster],
                                     now + math.floor(wait))
        if self.profile.patient and now % self.profile.provision_s == 0:
            asking = self._observer.violated.any(axis=0)
            self._due[np.unique(self.world.cluster_of_host[asking])] = now
        if self.profile.reconfigure:
            for cluster in np.flatnonzero(self._due <= now):
                self._reconfigure(int(cluster), now)
        self._due[self._due <= now] = np.inf
        if now % self.profile.provision_s == 0 and not self.profile.placed:
            for one in self._admission.asking(now):
                self._provision(*one, now)

    def _reconfigure(self, cluster: int, now: float) -> None:
        hosts = self.world.hosts_of(cluster)
        if not self._observer.violated[:, hosts.start:hosts.stop].any():
            return
        seen = self._observer.cluster(cluster, now)
        plan = self._guided.decide(seen, DecisionRequest('preempt'), Budget())
        if self.profile.sticky:
            self._prove(checker.check(seen, plan, self.profile.lanes))
        self.operations.issue(plan, cluster, now, 'reconfigurator')

    def _provision(self, cluster: int, hosts: Ints, instances: Ints,
                   now: float) -> None:
        seen = self._observer.part(cluster, now, hosts, instances)
        plan = self._provisioner.decide(
            seen, DecisionRequest('return', tuple(seen.hosts)), Budget())
        if self.profile.sticky:
            self._prove(checker.check(seen, plan, self.profile.lanes))
        self.operations.issue(plan, cluster, now, 'provisioner')

    def _prove(self, faults: Sequence[str]) -> None:
        if faults:
            raise RuntimeError(f'invalid plan of a decision: {faults[0]}')
