# SPDX-License-Identifier: Apache-2.0

"""Conversion between a cluster and the configuration of a switch.

A cluster-wide context switch decides for whole leases.  A lease takes part if
operations on all of its members are allowed; all others are fixed members.  A
host with unknown demand, or without policies, has no capacity that counts,
and all instances there are fixed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
import dataclasses

from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.selection import QueuedLease
from secondary_scheduler.decisions.waiting import rank_lease
from secondary_scheduler.estimation.demand import UNLIMITED, Ledgers, add
from secondary_scheduler.estimation.room import RUNNING, LoadLimits
from secondary_scheduler.model.cluster import (
    DOWN,
    Cluster,
    Instance,
    InstanceState,
)
from secondary_scheduler.model.configuration import (
    Amounts,
    Configuration,
    Member,
    MemberState,
    Move,
    natural_key,
)
from secondary_scheduler.model.constraints import Spread
from secondary_scheduler.model.lease_order import QueueOrder
from secondary_scheduler.model.lease_states import QUEUED
from secondary_scheduler.model.operation_kinds import OperationKind
from secondary_scheduler.model.vocabulary import PreemptPolicy


@dataclasses.dataclass(frozen=True)
class SwitchModel:
    """Configuration of a cluster, and the queue of its leases.

    :param queue: leases that take part, the first to be served first
    :param growth: returns by how many thousandths of a CPU the demand of each
        member can still grow
    """

    configuration: Configuration
    queue: tuple[QueuedLease, ...]
    growth: Callable[[], Mapping[str, int]]

    @property
    def leases(self) -> tuple[str, ...]:
        """Names of the leases in the queue."""
        return tuple(lease.name for lease in self.queue)

    @property
    def all_run(self) -> bool:
        """Whether all leases of the queue run."""
        return all(one.fixed or one.state is MemberState.RUNNING
                   for one in self.configuration.members.values())

    def has_reached(self, sample: Configuration) -> bool:
        """Return whether nothing has to change for a sample.

        All members are in its states, and no limit or constraint is broken.
        """
        current = self.configuration
        if not all(one.state is sample.members[name].state
                   for name, one in current.members.items()):
            return False
        hosts = {name: (one.host,) for name, one in current.members.items()
                 if one.host is not None}
        return current.is_viable() and not any(
            one.broken(hosts) for one in current.constraints)


class SwitchModelBuilder:
    """Builds the configuration of a cluster.

    :param scope: hosts that the switch is about; no instance is brought to
        another one, and leases there are left alone
    :param order: ranks the leases, by their priority and arrival
    """

    def __init__(self, cluster: Cluster, scope: Collection[str],
                 limits: LoadLimits, order: QueueOrder) -> None:
        self._cluster = cluster
        self._scope = frozenset(scope)
        self._order = order
        self._ledgers = Ledgers(cluster, limits)

    def build(self, displaces: bool = True,
              drained: Collection[str] = ()) -> SwitchModel:
        """Return the configuration, and the queue of leases.

        :param displaces: False if each running instance keeps its place
        :param drained: hosts from which all instances have to go; no lease
            starts then
        """
        cluster = self._cluster
        held, unknown = self._held()
        capacity = self._capacity(held, unknown, drained)
        closed = {name for name in cluster.hosts
                  if name not in capacity or name in drained
                  or name not in self._scope
                  or not cluster.is_open(name, calm=True)}
        closed |= self._keep_free(capacity, held)
        moving = self._moving(capacity, closed, displaces, bool(drained))
        members = {one.uuid: self._member(
            one, held[one.uuid], one.uuid not in moving)
            for _uuid, one in sorted(cluster.instances.items())}
        self._allow_fixed(capacity, members.values())
        used = {members[uuid].host for uuid in moving}
        configuration = Configuration(
            self._ledgers.dimensions,
            {name: tuple(amounts) for name, amounts in capacity.items()
             if name not in closed or name in used},
            members, frozenset(closed & used), resumes_in_place=True,
            constraints=(*cluster.constraints, *self._groups()))
        if drained:
            configuration = _without_running(configuration, drained)
        return SwitchModel(configuration, self._queue(
            {cluster.instances[uuid].lease for uuid in moving}, members),
            self._growth)

    def _capacity(self, held: Mapping[str, Amounts], unknown: Collection[str],
                  drained: Collection[str]) -> dict[str, list[int]]:
        """Return the capacity of the hosts of which all is known.

        Of drained hosts it does not matter.
        """
        capacity: dict[str, list[int]] = {}
        for name in sorted(self._cluster.hosts, key=natural_key):
            amounts = ([UNLIMITED] * len(self._ledgers.dimensions)
                       if name in drained else self._ledgers.capacity(
                           self._cluster.hosts[name]))
            if amounts is not None and name not in unknown:
                capacity[name] = amounts
        taken = self._taken(held)
        for name in self._ledgers.share_items(capacity, taken):
            capacity.pop(name, None)
        for flight in self._cluster.in_flight:
            mover = self._cluster.instances[flight.instance]
            if flight.target in capacity and flight.target != mover.host:
                add(capacity[flight.target],
                    self._ledgers.demand(mover) or held[mover.uuid], -1)
        return capacity

    def _held(self) -> tuple[dict[str, Amounts], set[str]]:
        """Return what instances take now, and hosts with unknown demand."""
        held: dict[str, Amounts] = {}
        unknown: set[str] = set()
        for uuid, one in self._cluster.instances.items():
            if one.state not in RUNNING:
                held[uuid] = self._ledgers.claim(one)
                continue
            demand = self._ledgers.demand(one)
            if demand is None:
                unknown.add(str(one.host))
                demand = self._ledgers.claim(one)
            held[uuid] = demand
        return held, unknown

    def _taken(self, held: Mapping[str, Amounts]) -> dict[str, list[int]]:
        """Return the amounts that instances take on each host."""
        width = len(self._ledgers.dimensions)
        taken = {name: [0] * width for name in self._cluster.hosts}
        for one in self._cluster.instances.values():
            if one.host in taken:
                add(taken[one.host], held[one.uuid])
        return taken

    def _keep_free(self, capacity: dict[str, list[int]],
                   held: Mapping[str, Amounts]) -> set[str]:
        """Subtract what the lease schedule holds.

        It displaces nothing, since the lease engine itself preempts what is
        in the way of its servers.

        :returns: hosts without room for it, which take no instance
        """
        crowded: set[str] = set()
        for name, amounts in capacity.items():
            host = self._cluster.hosts[name]
            if not host.held:
                continue
            kept = self._ledgers.kept_free(host)
            taken = [0] * len(amounts)
            for one in self._cluster.by_host.get(name, ()):
                add(taken, held[one.uuid])
            if any(least and most - least < now for most, least, now
                   in zip(amounts, kept, taken, strict=True)):
                crowded.add(name)
            else:
                add(amounts, kept, -1)
        return crowded

    @staticmethod
    def _allow_fixed(capacity: dict[str, list[int]],
                     members: Iterable[Member]) -> None:
        """Raise capacities to what fixed members take in any case."""
        least = {name: [0] * len(amounts)
                 for name, amounts in capacity.items()}
        for member in members:
            if member.fixed and member.host in least and member.held:
                add(least[member.host], member.held)
        for name, amounts in capacity.items():
            amounts[:] = map(max, amounts, least[name])

    def _moving(self, capacity: Collection[str], closed: Collection[str],
                displaces: bool, drains: bool) -> set[str]:
        """Return the instances that operations may change."""
        found: set[str] = set()
        leases: dict[str, list[Instance]] = defaultdict(list)
        for one in self._cluster.instances.values():
            leases[one.lease].append(one)
        for name, instances in leases.items():
            those = self._taking_part(name, instances, capacity, closed,
                                      displaces)
            if not drains or all(one.state not in DOWN for one in those):
                found.update(one.uuid for one in those)
        return found

    def _taking_part(self, name: str, instances: list[Instance],
                     capacity: Collection[str], closed: Collection[str],
                     displaces: bool) -> list[Instance]:
        """Return the instances of a lease that operations may change.

        Members in other states, and those that their owner has stopped,
        neither change nor protect their peers.  Running members of a lease
        that must not be displaced are left out, but others may return to
        them.
        """
        known = self._cluster.leases.get(name)
        queued = known is not None and known.state in QUEUED
        up, down = [], []
        for one in instances:
            if (one.state is InstanceState.BUSY or one.blocked
                    or one.cooling_down or one.return_failed
                    or one.preempt_failed):
                return []
            if one.state is InstanceState.ACTIVE:
                if one.host not in capacity or one.host not in self._scope:
                    return []
                up.append(one)
            elif one.state in DOWN and (queued or one.preempted):
                # Only a shelved instance may go to another host at once.
                if one.host in closed or (one.host is None
                                          and one.anti_affinity):
                    return []
                down.append(one)
        stays = (not displaces or known is not None and known.guaranteed
                 or any(one.preempt_policy is not PreemptPolicy.SUSPEND
                        for one in up))
        return down if stays else up + down

    def _member(self, one: Instance, held: Amounts, fixed: bool) -> Member:
        runs = one.state in RUNNING
        state = (MemberState.RUNNING if runs else MemberState.WAITING
                 if one.host is None else MemberState.SUSPENDED)
        claim = self._ledgers.claim(one)
        demand = held if runs else self._ledgers.demand(one) or claim
        return Member(
            one.uuid, one.lease, state, one.host, demand, claim,
            one.memory_mb, fixed, migratable=not one.migration_failed,
            floor=self._ledgers.floor(demand))

    def _groups(self) -> Iterator[Spread]:
        """Yield the hard anti-affinity groups as constraints."""
        found: dict[str, set[str]] = defaultdict(set)
        for uuid, one in self._cluster.instances.items():
            if one.anti_affinity is not None:
                found[one.anti_affinity].add(uuid)
        return (Spread(frozenset(members)) for members in found.values()
                if len(members) > 1)

    def _growth(self) -> dict[str, int]:
        """Return by how much demand can still grow, by instance."""
        return {uuid: self._ledgers.growth(one)
                for uuid, one in self._cluster.instances.items()}

    def _queue(self, leases: Iterable[str], members: Mapping[str, Member]
               ) -> tuple[QueuedLease, ...]:
        """Return leases in the order in which they are served.

        Among equals, leases that run come first.
        """
        ranks = {name: (
            rank_lease(self._cluster, name, self._order),
            any(members[one.uuid].state is not MemberState.RUNNING
                for one in self._cluster.members(name)),
            natural_key(name)) for name in leases}
        return tuple(
            QueuedLease(name, -ranks[name][0][0], self._run_s(name))
            for name in sorted(ranks, key=ranks.__getitem__))

    def _run_s(self, lease: str) -> float | None:
        """Return the time for which a lease has run, by its last member."""
        return min((one.running_s for one in self._cluster.members(lease)
                    if one.state is InstanceState.ACTIVE
                    and one.running_s is not None), default=None)


def _without_running(configuration: Configuration,
                     drained: Collection[str]) -> Configuration:
    """Return a configuration in which no member may run on drained hosts.

    They get no capacity in one more dimension, in which all running members
    take one.  Fixed members may stay.
    """
    fixed = Counter(one.host for one in configuration.members.values()
                    if one.fixed and one.state is MemberState.RUNNING)
    return dataclasses.replace(
        configuration, dimensions=(*configuration.dimensions, 'running'),
        capacity={name: (*amounts, fixed[name] if name in drained
                         else UNLIMITED)
                  for name, amounts in configuration.capacity.items()},
        members={name: dataclasses.replace(
            one, demand=(*one.demand, 1), claim=(*one.claim, 0),
            floor=None if one.floor is None else (*one.floor, 1))
            for name, one in configuration.members.items()})


def add_steps(draft: Draft, moves: Iterable[Move]) -> None:
    """Append the moves of a switch to a draft as steps."""
    for move in moves:
        instance = draft.instances[move.member]
        if move.kind is OperationKind.MIGRATE:
            draft.migrate(instance, str(move.target))
        elif move.kind is OperationKind.SUSPEND:
            draft.preempt(instance, OperationKind.SUSPEND)
        else:   # a boot of a member is an unshelve here
            draft.activate(instance, str(move.target))


def with_demand(cluster: Cluster, limits: LoadLimits) -> Cluster:
    """Return a cluster in which use is demand, and holds are reserved.

    Operations so wait for room that an instance wants, not only for room that
    it uses while it is throttled.
    """
    ledgers = Ledgers(cluster, limits)
    instances = {}
    for uuid, one in cluster.instances.items():
        wanted = ledgers.cpu(one)
        instances[uuid] = (one if wanted == one.cpu
                           else dataclasses.replace(one, cpu=wanted))
    hosts = {name: one if not one.held else dataclasses.replace(
        one, reserved={
            of: one.reserved.get(of, 0) + one.held.get(of, 0)
            for of in {**one.reserved, **one.held}})
        for name, one in cluster.hosts.items()}
    return dataclasses.replace(cluster, hosts=hosts, instances=instances)
