# SPDX-License-Identifier: Apache-2.0

"""Evaluation of policies under a set of steps, as a what-if.

It applies the feasibility estimator to a cluster: to its instances and
policies, to ongoing operations, and to the times of a decision's steps.

An item is evaluated as a single host.  A migration among its hosts neither
leaves it nor arrives there.
"""

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
import enum
import math

from secondary_scheduler.decisions import ordering
from secondary_scheduler.decisions.draft import Step
from secondary_scheduler.estimation.durations import (
    DurationInput,
    DurationModel,
)
from secondary_scheduler.estimation.feasibility import (
    Estimator,
    GuestLoad,
    Overheads,
    TimedOperation,
)
from secondary_scheduler.estimation.room import RUNNING, LoadLimits
from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    Place,
)
from secondary_scheduler.model.lazy import Lazy
from secondary_scheduler.plans.operations import RETURNS, Operation

_EPSILON = 1e-6


class Feasibility(enum.IntEnum):
    """Feasibility of a set of steps on a host; false if infeasible.

    ``ALWAYS_FEASIBLE`` does not depend on the times of the steps, nor on the
    plans of other hosts.
    """

    INFEASIBLE = 0
    FEASIBLE_AS_SCHEDULED = 1
    ALWAYS_FEASIBLE = 2


class WhatIf:
    """Predicts the state of hosts under steps of a draft."""

    def __init__(self, cluster: Cluster, limits: LoadLimits,
                 durations: DurationModel, schedule: 'Schedule',
                 overheads: Overheads | None = None) -> None:
        self.cluster = cluster
        self.limits = limits
        self.durations = durations
        self._schedule = schedule
        self.overheads = overheads or Overheads()
        self.ongoing = [
            TimedOperation(one.kind, one.instance, one.source, one.target,
                           end_s=one.remaining_s) for one in cluster.in_flight]
        self._coming = {one.instance for one in cluster.in_flight
                        if one.kind in RETURNS}
        self._ongoing_at = Lazy(self._ongoing_seen_from)
        self._ongoing_around = Lazy(self._ongoing_on)
        self.guests = Lazy(self._guest)
        self._running = Lazy(self._runners)
        self._policies = Lazy(self._static_first)
        self._of_hosts = Estimator(
            Lazy(self._primary), self.guests, self.overheads, self._running,
            capacity=cluster.capacity, least=self._least(1.0))
        self._of_items = Lazy(self._of_item)
        self._arranged: tuple[tuple[Step, ...], tuple[Operation, ...]] = (
            (), ())

    def _guest(self, uuid: str) -> GuestLoad:
        instance = self.cluster.instances[uuid]
        usage = {**instance.usage, 'slots': 1.0,
                 'cores': float(instance.vcpus),
                 'memory': float(instance.memory_mb)}
        if instance.cpu is not None:
            usage['cpu'] = instance.cpu
        runs = uuid not in self._coming and instance.state in RUNNING
        return GuestLoad(instance.host if runs else None, usage)

    def _least(self, part: float) -> Mapping[str, float]:
        """Return the least counted use of a running instance.

        The agent may have throttled it, but never below the minimum share
        (Boettger 2012, section 4.4.4.1).
        """
        return {'cpu': part * self.limits.minimum_share}

    def _of_item(self, name: str) -> Estimator:
        """Return the estimator of an item, in percent of the item."""
        item = self.cluster.items[name]
        # Use by primaries is derived with the estimator itself.
        primaries: dict[str, Mapping[str, float]] = {}
        found = Estimator(
            primaries, self.guests, self.overheads.of_part(item.part),
            self._running, capacity=self.cluster.capacity,
            least=self._least(item.part))
        primaries[name] = self._others(item, found, True)
        return found

    def _estimator(self, place: str) -> Estimator:
        return (self._of_items[place] if place in self.cluster.items
                else self._of_hosts)

    def _seen_from(self, place: str,
                   works: Iterable[TimedOperation]) -> list[TimedOperation]:
        """Return the operations on a place.

        Hosts of an item are replaced by the item.
        """
        hosts = self.cluster.hosts_of(place)
        here = [work for work in works
                if work.source in hosts or work.target in hosts]
        if place not in self.cluster.items:
            return here
        return [work._replace(
            source=place if work.source in hosts else work.source,
            target=place if work.target in hosts else work.target)
            for work in here]

    def _ongoing_seen_from(self, place: str) -> list[TimedOperation]:
        return self._seen_from(place, self.ongoing)

    def _ongoing_on(self, places: tuple[str, ...]) -> list[TimedOperation]:
        hosts = {host for place in places
                 for host in self.cluster.hosts_of(place)}
        return [work for work in self.ongoing
                if work.source in hosts or work.target in hosts]

    def _runners(self, place: str) -> list[str]:
        return [one.uuid for one in self.cluster.residents(place)
                if self.guests[one.uuid].host is not None]

    def _static_first(self, place: str) -> list[HostPolicy]:
        return sorted(self.cluster.at(place).policies,
                      key=lambda policy: not policy.static)

    def _primary(self, name: str) -> dict[str, float]:
        """Return use by primaries, by resource in percent.

        A trigger that has fired proves that the use exceeds the threshold
        now, whatever the mean values are.  The part that instances do not
        explain is then attributed to primaries.
        """
        host = self.cluster.hosts.get(name)
        return {} if host is None else self._others(
            host, self._of_hosts, not host.blocked)

    def _others(self, place: Place, estimator: Estimator, settled: bool
                ) -> dict[str, float]:
        uses: dict[str, float] = {}
        for policy in place.policies:
            resource, use = policy.resource, place.primary_use(policy.resource)
            if policy.static or use is None:
                continue
            if policy.violated and settled:
                use = max(use, self.limit(policy) + _EPSILON - sum(
                    estimator.use(uuid, resource, place.name)
                    for uuid in self._running[place.name]))
            uses[resource] = max(use, uses.get(resource, use))
        return uses

    def use(self, uuid: str, resource: str, host: str) -> float:
        """Return the estimated use of a host by an instance.

        It is in percent, or in the unit of a static resource.
        """
        return self._of_hosts.use(uuid, resource, host)

    def limit(self, policy: HostPolicy) -> float:
        """Return the planned limit of use under a policy.

        The margin applies to CPU only (as in ``estimation.room``).
        """
        margin = self.limits.margin if policy.resource == 'cpu' else 0.0
        return policy.threshold - margin

    def works(self, steps: Sequence[Step]) -> list[TimedOperation]:
        """Return the operations with their times, ongoing ones included."""
        return [*self.ongoing, *self._schedule(self, steps)]

    def operations(self, steps: Sequence[Step]) -> tuple[Operation, ...]:
        """Return the operations of a plan of some steps.

        The last result is cached, since the last steps that were judged are
        often those of the plan.
        """
        asked, found = self._arranged
        if len(asked) != len(steps) or any(
                one is not other for one, other
                in zip(asked, steps, strict=True)):
            found = ordering.arrange_steps(self.cluster, steps, self.limits,
                                           self.durations)
            self._arranged = tuple(steps), found
        return found

    def outcome(self, steps: Iterable[Step],
                *places: str) -> list[TimedOperation]:
        """Return the operations on places as if all had ended at once.

        Ongoing operations there follow unchanged.
        """
        hosts = {host for place in places
                 for host in self.cluster.hosts_of(place)}
        return [*(_work(step, 0.0, 0.0) for step in steps
                  if step.old.host in hosts or step.new.host in hosts),
                *self._ongoing_around[places]]

    def excess(self, place: str, policy: HostPolicy,
               works: Iterable[TimedOperation]) -> float:
        """Return the final excess over a policy's limit.

        It is in the resource's unit, 0 or negative if the policy will hold.
        """
        if self.holds(place, policy, math.inf, works):
            return 0.0
        return self._estimator(place).demand(
            policy.resource, place, math.inf, self._seen_from(
                place, works)) - self.limit(policy)

    def holds(self, place: str, policy: HostPolicy, at_s: float = math.inf,
              works: Iterable[TimedOperation] = (),
              only: Collection[str] | None = None) -> bool:
        """Return whether a policy of a place will hold at a time."""
        return self._estimator(place).holds(
            policy.resource, self.limit(policy), place, at_s,
            self._seen_from(place, works), only)

    def allow(self, host: str, works: Iterable[TimedOperation]) -> bool:
        """Return whether all policies of a host and its items finally hold."""
        works = list(works)
        return all(self.holds(place, policy, math.inf, works)
                   for place in self.cluster.places(host)
                   for policy in self.cluster.at(place).policies)

    def known(self, host: Host) -> bool:
        """Return whether a host has policies, all with known use."""
        return bool(host.policies) and all(
            policy.static or item.primary_use(policy.resource) is not None
            for item in map(self.cluster.at, self.cluster.places(host.name))
            for policy in item.policies)

    def spoils(self, host: str, works: Sequence[TimedOperation]) -> bool:
        """Return whether operations would make a policy of a host fail.

        Policies that are already violated are not judged, nor are failures
        that would also occur without the operations.  A policy must hold
        (Boettger 2012, sections 4.4.2 and 4.4.3):

        * at the earliest firing of its trigger after each operation's start,
        * after all operations have ended,
        * at the end of each start and resume.

        An operation cannot wait for an ongoing one.  So an ongoing departure
        still counts under a static policy.
        """
        for place, policy, mine in self._judged(host, works):
            if self._holds_always(place, policy, mine):
                continue
            wait = max(1, policy.sensitivity - policy.failed)
            times = {work.start_s + wait for work in mine} | {math.inf}
            times |= {work.end_s for work in mine
                      if work.kind in RETURNS and work.target == place}
            if any(self._worse(place, policy, at_s, mine) for at_s in times):
                return True
        return False

    def feasibility(self, host: str, steps: Sequence[Step]) -> Feasibility:
        """Return whether steps make no policy of a host fail.

        The steps are scheduled only if the answer depends on their times.
        """
        looks = [look for look in self._judged(
            host, self.outcome(steps, *self.cluster.places(host)))
            if not self._holds_always(*look)]
        if not looks:
            return Feasibility.ALWAYS_FEASIBLE
        if (any(self._worse(place, policy, math.inf, mine)
                for place, policy, mine in looks)
                or self.spoils(host, self.works(steps))):
            return Feasibility.INFEASIBLE
        return Feasibility.FEASIBLE_AS_SCHEDULED

    def _holds_always(self, place: str, policy: HostPolicy,
                      works: list[TimedOperation]) -> bool:
        """Return whether a policy will hold whatever the times are."""
        return self._estimator(place).bound(
            policy.resource, place, works) <= self.limit(policy)

    def _judged(self, host: str, works: Sequence[TimedOperation]
                ) -> Iterator[tuple[str, HostPolicy, list[TimedOperation]]]:
        """Yield places, their policies that hold, and operations to judge.

        Places are the host and its items.
        """
        for place in self.cluster.places(host):
            here = self._seen_from(place, works)
            ongoing = self._ongoing_at[place]
            for policy in self._policies[place]:
                if not policy.violated:
                    yield place, policy, [work for work in here if not (
                        policy.static and work.departs(place)
                        and work in ongoing)]

    def _worse(self, place: str, policy: HostPolicy, at_s: float,
               works: list[TimedOperation]) -> bool:
        """Return whether operations make a policy fail at a time.

        They are given as its place sees them.
        """
        estimator = self._estimator(place)
        ask = policy.resource, self.limit(policy), place, at_s
        if estimator.holds(*ask, works):
            return False
        ongoing = self._ongoing_at[place]
        use = [estimator.demand(policy.resource, place, at_s, those)
               for those in (works, ongoing)]
        return use[0] > use[1] or estimator.holds(*ask, ongoing)


#: Gives steps their times, considering the ongoing operations.
Schedule = Callable[[WhatIf, Sequence[Step]], list[TimedOperation]]


def _work(step: Step, start_s: float, end_s: float) -> TimedOperation:
    return TimedOperation(step.kind, step.old.uuid, step.old.host,
                          step.target, start_s, end_s)


def at_once(preview: WhatIf, steps: Sequence[Step]) -> list[TimedOperation]:
    """Begin all steps now, in parallel (Boettger 2012, section 4.4.5.1)."""
    durations = preview.durations.predict_all(
        [step.job for step in steps],
        [DurationInput(one.kind, one.source, one.target)
         for one in preview.ongoing])
    return [_work(step, 0.0, duration)
            for step, duration in zip(steps, durations, strict=True)]


def in_order(preview: WhatIf, steps: Sequence[Step]) -> list[TimedOperation]:
    """Begin each step after those it depends on, as in the plan."""
    return [_work(step, one.start_s, one.start_s + one.duration_s)
            for step, one in zip(steps, preview.operations(steps),
                                 strict=True)]
