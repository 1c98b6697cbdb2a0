# SPDX-License-Identifier: Apache-2.0

"""States of hosts for operators, from reports, Placement and Nova.

The fields are those of ``leases.api.record_schemas.CAPACITY``.
"""

import collections
from collections.abc import Iterable, Mapping
from typing import Any

from secondary_scheduler.leases.api.db.host_states import ObservedHost
from secondary_scheduler.model import resources, vocabulary
from secondary_scheduler.model.cluster import InstanceState
from secondary_scheduler.model.reports import HostReport, InstanceReport
from secondary_scheduler.policies import language
from secondary_scheduler.watcher import admission
from secondary_scheduler.watcher.cloud_snapshot import ComputeHost, NovaServer
from secondary_scheduler.watcher.cluster_state import ClusterState

_UNITS = {vocabulary.VCPU: 'vCPU', vocabulary.MEMORY_MB: 'MiB',
          vocabulary.DISK_GB: 'GiB', vocabulary.SLOT: 'slots'}
_PERCENT = '%'


def describe_hosts(state: ClusterState) -> dict[str, ObservedHost]:
    """Return the present state of each host that takes secondaries."""
    fresh, snapshot = state.book.hosts(), state.snapshot
    expected = state.policies_hash
    running = collections.defaultdict(list)
    for one in snapshot.servers.values():
        if one.host is not None and one.state is InstanceState.ACTIVE:
            running[one.host].append(one)
    found = {}
    for name, host in snapshot.hosts.items():
        if not host.total:
            continue
        last = state.book.last_received(name)
        found[name] = ObservedHost(
            _describe_host(host, fresh.get(name), expected,
                           running[name], snapshot.servers),
            None if last is None else int(last))
    return found


def _describe_host(
    host: ComputeHost,
    report: HostReport | None,
    policies_hash: str | None,
    running: Iterable[NovaServer],
    servers: Mapping[str, NovaServer],
) -> dict[str, Any]:
    admitted, reason = admission.find_admission(host, report, policies_hash)
    found: dict[str, Any] = {
        'aggregates': sorted(host.place.aggregates),
        'availability_zone': host.place.zone,
        'known': report is not None,
        'admission': admitted, 'reason': reason,
        'inventory': [
            {'resource_class': name, 'unit': _UNITS[name],
             'used': int(host.used.get(name, 0)),
             'allowed': host.runnable(name), 'total': host.most_runnable(name)}
            for name in vocabulary.RESOURCE_CLASSES if name in host.total]}
    if report is None:
        return found | {
            'cpus': None, 'memory_mb': None, 'use': [], 'policies': [],
            'at_floor': None, 'secondaries': [
                _describe_secondary(one.uuid, one.priority, one, None)
                for one in running]}
    return found | {
        'cpus': report.cpus, 'memory_mb': report.memory_mb,
        'use': _describe_use(report),
        'policies': [
            {'policy': one.policy, 'resource': one.resource,
             'unit': _unit(one.resource), 'usage': one.usage,
             'threshold': one.threshold, 'time_limit': one.timelimit,
             'failed_checks': one.failed, 'state': str(one.state)}
            for one in report.policies],
        'at_floor': sum(one.floored for one in report.instances),
        'secondaries': [
            _describe_secondary(one.uuid, one.priority, servers.get(one.uuid),
                                one) for one in report.instances]}


def _unit(resource: str) -> str:
    """Return the unit in which policies on a resource are; '' for probes."""
    if language.kind_of(resource) == language.PROBE:
        return ''
    if resource in resources.STATIC:
        return resources.BY_NAME[resource].unit or ''
    return _PERCENT


def _describe_use(report: HostReport) -> list[dict[str, Any]]:
    """Return the use of cpu and of each measured resource with a policy."""
    names = dict.fromkeys([language.CPU, *(
        one.resource for one in report.policies
        if language.kind_of(one.resource) in language.USED
        and one.resource not in resources.STATIC)])
    return [{'resource': name, 'unit': _PERCENT,
             'primary': (report.cpu_primary if name == language.CPU
                         else report.usage.get(name)),
             'secondary': _sum_use(name, report.instances),
             'limit': min((one.threshold for one in report.policies
                           if one.resource == name), default=None)}
            for name in names]


def _sum_use(resource: str, instances: Iterable[InstanceReport]
             ) -> float | None:
    """Return the use by all secondaries; None if that of one is unknown."""
    uses = [one.cpu if resource == language.CPU else one.usage.get(resource)
            for one in instances]
    known = [one for one in uses if one is not None]
    return round(sum(known), 2) if len(known) == len(uses) else None


def _describe_secondary(
    uuid: str,
    priority: int,
    server: NovaServer | None,
    report: InstanceReport | None,
) -> dict[str, Any]:
    return {
        'server_id': uuid, 'priority': priority,
        'name': server and server.name, 'project_id': server
        and server.project,
        'lease_id': server and (server.lease.partition(':')[2] or None),
        'cpu': report and report.cpu, 'limit': report and report.cap,
        'at_floor': report and report.floored,
        'paused': report and report.paused,
        'problem': report.problem if report else ''}
