# SPDX-License-Identifier: Apache-2.0

"""Cluster model of a decision, from Nova's facts and agents' reports."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from secondary_scheduler.estimation.durations import (
    DurationInput,
    DurationModel,
)
from secondary_scheduler.model import cluster, reports, units
from secondary_scheduler.plans import operations
from secondary_scheduler.policies import language
from secondary_scheduler.watcher.cloud_snapshot import (
    ORIGIN,
    CloudSnapshot,
    ComputeHost,
    NovaServer,
)
from secondary_scheduler.watcher.lease_facts import NO_FACTS, LeaseFacts
from secondary_scheduler.watcher.locks import Begun, Locks
from secondary_scheduler.watcher.scope import ResolvedScope
from secondary_scheduler.watcher.unlimited_use import is_held

#: Seconds that an operation which should have ended is expected to take yet.
_LEAST_S = 1.0


def host_policies(report: reports.HostReport,
                  relief: bool) -> tuple[cluster.HostPolicy, ...]:
    """Return a report's policies for decisions, without signals.

    A violated signal counts as a violation of CPU.  A signal cannot be
    attributed to an instance, so no decision can predict its effect on one.
    CPU is used as a proxy: every instance that harms a primary uses some.
    The decision moves the least that satisfies the CPU policy, confirmed
    suspects first; if the harm goes on, the agent reports it again.

    :param relief: whether the CPU policies count as violated anyway.
    """
    violated = {p.policy for p in report.violated}
    relief = relief or any(language.is_signal(p.resource)
                           for p in report.violated)
    return tuple(
        cluster.HostPolicy(
            text=p.policy, resource=p.resource, threshold=p.threshold,
            timelimit=p.timelimit, failed=p.failed,
            violated=p.policy in violated or (
                relief and p.resource == language.CPU))
        for p in report.policies if not language.is_signal(p.resource))


def _wanted_cpu(server: NovaServer, seen: reports.InstanceReport | None,
                report: reports.HostReport | None, facts: LeaseFacts
                ) -> float | None:
    """Return the CPUs that an instance wants, None if that is unknown.

    * A running instance wants what it uses.
    * One that has been limited for a while wants all of its vCPUs, and before
      that what it used without the limit.
    * An instance that is down wants what it wanted when it was preempted.
    """
    if server.state in cluster.DOWN:
        stored = server.wanted_cpu
        return (facts.default_demand / 100 * server.vcpus if stored is None
                else stored)
    if seen is None or report is None:
        return None
    if is_held(seen):
        return min(float(server.vcpus),
                   facts.unlimited.get(server.uuid, float(server.vcpus)))
    return None if seen.cpu is None else min(
        units.to_amount(max(0.0, seen.cpu), report.cpus),
        float(server.vcpus))


def _demand(seen: reports.InstanceReport, report: reports.HostReport,
            share: float) -> float | None:
    """Return the CPU use that decisions assume for an instance, in CPUs.

    It is at most ``share`` percent of the host, to which the agent can limit
    the instance.  An instance that uses all that its limit allows counts with
    ``share``, since its demand is unknown.
    """
    if seen.cpu is None:
        return None
    return units.to_amount(
        share if is_held(seen) else min(seen.cpu, share), report.cpus)


def _dirty(seen: reports.InstanceReport | None) -> cluster.DirtyMemory:
    """Return the memory that an instance writes to.

    An instance at the floor writes next to nothing.
    """
    if (seen is None or seen.dirty_1s_mb is None or seen.dirty_5s_mb is None
            or seen.floored):
        return cluster.CLEAN
    return cluster.DirtyMemory(max(0.0, seen.dirty_1s_mb),
                               max(0.0, seen.dirty_5s_mb))


def _primary_usage(report: reports.HostReport | None) -> dict[str, float]:
    return {} if report is None else {
        resource: max(0.0, use) for resource, use in report.usage.items()}


def _capacities(report: reports.HostReport | None) -> dict[str, float]:
    """Return a host's capacities of measured resources other than CPU."""
    return {} if report is None else {
        resource: size for resource in units.UNITS if resource != 'cpu'
        and (size := report.capacity(resource)) is not None}


def _expected_usage(server: NovaServer, seen: reports.InstanceReport | None,
                    report: reports.HostReport | None) -> dict[str, float]:
    """Return the use of resources that decisions assume for an instance.

    An instance that is down is expected to use all its memory as soon as it
    runs, and of links and disks what it counted with when it was preempted.
    Use is reported in percent of the host; without the host's capacity it is
    unknown, since the percentage means nothing on another host.
    """
    before = server.used if server.state in cluster.DOWN else {}
    if report is None:
        return before
    if seen is None:
        return before | ({'mem': float(server.memory_mb)}
                         if report.memory_mb > 0 else {})
    return {resource: units.to_amount(max(0.0, use), size)
            for resource, use in seen.usage.items()
            if (size := report.capacity(resource)) is not None}


def _has_failed_to_return(server: NovaServer, locks: Locks) -> bool:
    """Return whether a server is down and its return is in back-off."""
    return server.state is not cluster.InstanceState.ACTIVE and (
        server.fallen or (server.preempted
                          and server.uuid in locks.return_failed_instances))


def build_cluster(
        snapshot: CloudSnapshot, scope: ResolvedScope,
        fresh: Mapping[str, reports.HostReport], locks: Locks,
        durations: DurationModel, relief: Collection[str],
        policies_hash: str | None, share: float,
        facts: LeaseFacts = NO_FACTS) -> cluster.Cluster:
    """Build the cluster model from Nova's facts and the agents' reports.

    A host is not usable

    * outside the scope, or without inventory,
    * if it is down, disabled or switched off,
    * if its agent is silent, closed, or has other policies.

    A report counts for an instance only if Nova places it on that host (see
    reference/decisions, 7).  Claims on a host by others than its instances
    count as reserved, such as a live migration to it or a claim left behind.

    :param fresh: fresh reports by host.
    :param relief: hosts with instances at the floor for too long.
    :param policies_hash: expected policies; None if they are not compared.
    :param share: least useful share of an instance, percent of the host.
    :param facts: facts that only a decision on all leases needs.
    """
    seen = {(name, i.uuid): i
            for name, report in fresh.items() for i in report.instances}
    held: dict[str, Counter[str]] = defaultdict(Counter)
    running: dict[str, Counter[str]] = defaultdict(Counter)
    apart = snapshot.anti_affinity
    left_alone = locks.busy_instances | locks.just_failed_instances
    instances = {}
    for uuid, server in snapshot.servers.items():
        state = server.state
        origin = server.metadata.get(ORIGIN)
        reported = seen.get((server.host or '', uuid))
        report = fresh.get(server.host or '')
        instances[uuid] = one = cluster.Instance(
            uuid=uuid, lease=server.lease, host=server.host, state=state,
            vcpus=server.vcpus, memory_mb=server.memory_mb,
            disk_gb=server.disk_gb, priority=server.priority,
            preempt_policy=server.mark.preempt_policy,
            cpu=(_demand(reported, report, share)
                 if reported and report else None),
            dirty=_dirty(reported),
            usage=_expected_usage(server, reported, report),
            preempted=server.preempted,
            blocked=(uuid in left_alone or uuid in snapshot.unseen
                     or scope.excludes(uuid, server.project)),
            cooling_down=uuid in locks.cooling_down_instances,
            suspect=reported is not None and reported.suspect,
            migration_failed=uuid in locks.migration_failed_instances,
            return_failed=_has_failed_to_return(server, locks),
            preempt_failed=(state is cluster.InstanceState.ACTIVE
                            and uuid in locks.preempt_failed_instances),
            anti_affinity=apart.get(uuid),
            wanted_cpu=_wanted_cpu(server, reported, report, facts),
            running_s=_running_s(server, facts.returned.get(uuid)),
            workload_class=server.workload_class,
            origin=(origin if origin in snapshot.hosts
                    and origin != server.host else None))
        if server.host is not None:
            held[server.host].update(one.claims)
            if (state not in cluster.DOWN
                    and server.host in facts.expected_claims):
                running[server.host].update(one.claims)
    in_flight = _in_flight(locks.begun, instances, snapshot.hosts, durations)
    for flight in in_flight:
        mover = instances[flight.instance]
        if flight.target not in (None, mover.host):
            held[flight.target].update(mover.claims)
    hosts = {}
    for name, host in snapshot.hosts.items():
        report = fresh.get(name)
        inside = name in scope.hosts
        hosts[name] = cluster.Host(
            name=name,
            cpus=report.cpus if report else 1.0,
            # Placement lets claims exceed the inventory by a ratio.
            total={of: host.most_claims(of) for of in host.total},
            held=_held_for_leases(
                host, facts.expected_claims.get(name, {}), running[name]),
            reserved={of: host.most_claims(of) - host.claimable(of)
                      + max(0, host.used.get(of, 0) - held[name][of])
                      for of in host.total},
            cpu_primary=report.cpu_primary if report else None,
            usage=_primary_usage(report),
            capacities=_capacities(report),
            arrivals=report.arrivals if report else {},
            policies=(host_policies(report, name in relief)
                      if report and inside else ()),
            usable=bool(
                inside and host.up and host.total and not host.disabled
                and not host.switched_off and not host.unreachable and report
                and report.admission
                and policies_hash in (None, report.policies_hash)),
            blocked=name in locks.hosts)
    return cluster.Cluster(hosts, instances,
                           _leases(snapshot.servers, facts.guaranteed),
                           in_flight)


def _running_s(server: NovaServer, returned_s: float | None) -> float | None:
    """Return the seconds since the last boot or return, if it is known."""
    known = [seconds for seconds in (server.launched_s, returned_s)
             if seconds is not None]
    return min(known, default=None)


def _held_for_leases(host: ComputeHost, expected: Mapping[str, int],
                     running: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts kept for servers of leases that are to start soon.

    Servers that have begun to run since the lease engine's last pass count no
    more.  All amounts are claims of servers, which no allocation ratio scales.
    """
    return {name: max(0, amount - running[name])
            for name, amount in expected.items() if name in host.total}


def _leases(servers: Mapping[str, NovaServer], guaranteed: Collection[str]
            ) -> dict[str, cluster.LeaseMembers]:
    """Return all leases with instances.

    A lease has the lowest priority of its instances, whatever its size (see
    reference/errata, Boettger, priority).  It has the shortest waiting time
    of its preempted instances, and the age of its youngest one: an owner
    could add one that has been down for months.
    """
    members = defaultdict(list)
    for server in servers.values():
        members[server.lease].append(server)
    return {name: cluster.LeaseMembers(
        name, priority=min(one.priority for one in those),
        waited_s=min((one.unchanged_s for one in those if one.preempted),
                     default=0.0),
        age_s=min((one.age_s for one in those if one.age_s is not None),
                  default=None),
        guaranteed=name in guaranteed)
        for name, those in members.items()}


def _in_flight(begun: Iterable[Begun],
               instances: Mapping[str, cluster.Instance],
               hosts: Collection[str], durations: DurationModel,
               ) -> tuple[cluster.InFlight, ...]:
    """Return the operations in flight, with their expected remaining time.

    Operations that have ended or no longer fit, by Nova's facts, are left
    out; of two on one instance only the first counts.
    """
    going = {one.instance: one for one in reversed(tuple(begun))
             if one.instance in instances
             and _goes_on(one, instances[one.instance])
             and all(host is None or host in hosts
                     for host in (one.source, one.target))}
    lasting = durations.predict_all(
        [
            DurationInput(
                one.kind,
                one.source,
                one.target,
                instances[uuid].memory_mb,
                instances[uuid].dirty,
            )
            for uuid, one in going.items()
        ]
    )
    return tuple(
        cluster.InFlight(one.kind, one.instance, one.source, one.target,
                         max(_LEAST_S, seconds - one.age))
        for one, seconds in zip(going.values(), lasting, strict=True))


def _goes_on(operation: Begun, instance: cluster.Instance) -> bool:
    """Return whether an operation may still have its effect."""
    begins = (cluster.DOWN if operation.kind in operations.RETURNS
              else {cluster.InstanceState.ACTIVE})
    return (operation.source in (None, instance.host)
            and instance.state in {cluster.InstanceState.BUSY, *begins})
