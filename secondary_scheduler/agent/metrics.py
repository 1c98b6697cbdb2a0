# SPDX-License-Identifier: Apache-2.0

"""Status of the agent as metrics for Prometheus.

Values are in Prometheus's base units: ratios of the host (0 to 1) and seconds.
The endpoint is read-only, and control does not wait for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
import typing

from prometheus_client import core

from secondary_scheduler import exposition
from secondary_scheduler.agent.kernel_files import parse_cpus

PREFIX = 'secondary_agent_'

#: Help texts of the counters in a status.
_COUNTERS = {'violations': 'Policies whose global trigger fired',
             'invalidations': 'Policies that became invalid',
             'floors': 'Secondaries taken to the floor as the last resort',
             'floored_s': 'Seconds of secondaries at the floor for a policy',
             'kills': 'Secondaries killed as the last resort, by the kernel '
                      'for their memory included',
             'control_failures': 'Steps of control that failed'}

Status = Mapping[str, typing.Any]


def metric_families(status: Status) -> Iterator[core.Metric]:
    """Yield the metrics of a status (``Reporter.status``).

    Unknown values are left out.
    """
    yield _gauge('cpu_used_ratio', 'CPU in use, a part of the host', 'part', {
        'host': _ratio(status['cpu_total']),
        'primary': _ratio(status['cpu_primary'])})
    yield _gauge('resource_primary_ratio', 'Use by primaries of a resource '
                 'that a policy is on, a part of the host', 'resource', {
                     name: _ratio(use)
                     for name, use in status['usage'].items()})
    yield _single('cpu_set_point_ratio', 'Set point of the use of CPU',
                  _ratio(status['set_point']))
    yield _gauge('memory_bytes', 'Memory that is available, that is kept '
                 'free, and that new primaries have not touched yet', 'kind', {
                     name: _bytes(status['memory'][f'{name}_mb'])
                     for name in ('available', 'headroom', 'coming')})
    yield _single('killed_instances', 'Secondaries that were killed here and '
                  'have not run since', len(status['killed']))
    yield _single('room_share_ratio', 'Part of the room below the set point '
                  'that secondaries may use; below 1 after a primary was '
                  'harmed', status['restraint'])
    yield _single('room_instances', 'Secondaries that there is room for, '
                  'running ones included', status['room'])
    yield _single('dedicated_cpus', 'CPUs that are dedicated to primaries',
                  len(status['dedicated_cpus']))
    yield from _of_affinity(status['affinity'])
    yield _single('admission_open', 'Whether further secondaries are admitted',
                  status['admission'])
    yield _single('libvirt_answers', 'Whether libvirt answers',
                  status['libvirt'])
    yield _single('unreadable_domains', 'Domains that could not be read and '
                  'count as primary',
                  status['counters']['unreadable_domains'])
    yield _gauge('priority_effective', 'Whether primaries of a kind have '
                 'priority over secondaries, regardless of limits', 'primary',
                 status['priority_effective'])
    yield _gauge('sensor_failing', 'Sensors that cannot be read', 'sensor',
                 dict.fromkeys(status['sensors'], 1))
    yield _gauge('sensor_cpu_ratio', 'Part of one CPU that reading a sensor '
                 'takes, the commands of probes included', 'sensor', {
                     name: _ratio(cost['percent'])
                     for name, cost in status['sensor_costs'].items()})
    yield _gauge('sensor_over_budget', 'Whether a sensor exceeds its budget '
                 'and is read half as often', 'sensor', {
                     name: cost['over']
                     for name, cost in status['sensor_costs'].items()})
    yield from _of_policies(status['policies'])
    yield from _of_instances(status['instances'])
    family = core.GaugeMetricFamily(
        PREFIX + 'instance_rate_ratio', 'Limit of a secondary on a link or '
        'on the disks, a part of them', labels=['uuid', 'resource'])
    for uuid, caps in status['rates'].items():
        for resource, cap in caps.items():
            family.add_metric([uuid, resource], cap / 100)
    yield family
    yield _gauge('instance_rate_failing', 'Whether limits of a secondary\'s '
                 'interfaces and disks cannot be set', 'uuid',
                 dict.fromkeys(status['rate_problems'], 1))
    family = core.GaugeMetricFamily(
        PREFIX + 'instance_limit_failing', 'Secondaries that cannot be '
        'limited, and the file that is the reason', labels=['uuid', 'reason'])
    for uuid, reason in status['problems'].items():
        family.add_metric([uuid, reason], 1)
    yield family
    for name, text in _COUNTERS.items():
        yield core.CounterMetricFamily(
            PREFIX + name.replace('_s', '_seconds'), text,
            value=status['counters'][name])


def _of_affinity(affinity: Status) -> Iterator[core.Metric]:
    yield _single('cpu_pool', 'CPUs that secondaries share by the driver of '
                  'CPU affinity', len(parse_cpus(affinity['pool'], 'pool'))
                  if affinity['pool'] else None)
    yield core.CounterMetricFamily(
        PREFIX + 'cpu_set_changes', 'Secondaries that got other CPUs while '
        'they ran', value=affinity['moves'])
    yield _gauge('instance_slowdown_ratio', 'Slow-down of a secondary by '
                 'other threads on its CPUs, at least 1', 'uuid', {
                     uuid: one['slowdown']
                     for uuid, one in affinity['guests'].items()})
    yield _gauge('instance_not_confined', 'Whether a secondary lacks the CPUs '
                 'that the driver of CPU affinity has chosen', 'uuid', {
                     uuid: bool(one['reason'])
                     for uuid, one in affinity['guests'].items()})


def _of_policies(policies: Iterable[Status]) -> Iterator[core.Metric]:
    for name, text in (('usage', 'Use of a policy\'s resource, in its unit'),
                       ('threshold', 'Threshold of a policy, in its unit'),
                       ('failed', 'Failed checks in a row'),
                       ('timelimit', 'Seconds that a policy may fail')):
        yield _gauge(f'policy_{name}', text, 'policy', {
            one['policy']: one[name] for one in policies})
    family = core.StateSetMetricFamily(
        PREFIX + 'policy_state', 'State of a policy', labels=['policy'])
    for one in policies:
        family.add_metric([one['policy']], {
            state: state == one['state'] for state in (
                'held', 'failing', 'violated', 'invalid', 'unknown')})
    yield family


def _of_instances(instances: Iterable[Status]) -> Iterator[core.Metric]:
    def each(name: str) -> dict[str, typing.Any]:
        return {one['uuid']: one[name] for one in instances}

    yield _gauge('instance_cpu_ratio', 'Use of CPU by a secondary', 'uuid', {
        uuid: _ratio(use) for uuid, use in each('cpu').items()})
    yield _gauge('instance_cap_ratio', 'Limit of a secondary on CPU', 'uuid',
                 {uuid: _ratio(cap) for uuid, cap in each('cap').items()})
    yield _gauge('instance_floored', 'Whether a secondary is at the floor',
                 'uuid', each('floored'))


def _gauge(name: str, text: str, label: str,
           values: Mapping[str, float | None]) -> core.Metric:
    family = core.GaugeMetricFamily(PREFIX + name, text, labels=[label])
    for key, value in values.items():
        if value is not None:
            family.add_metric([key], float(value))
    return family


def _single(name: str, text: str, value: float | None) -> core.Metric:
    family = core.GaugeMetricFamily(PREFIX + name, text)
    if value is not None:
        family.add_metric([], float(value))
    return family


def _bytes(size_mb: float | None) -> float | None:
    return None if size_mb is None else size_mb * (1 << 20)


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def serve_metrics(address: str, port: int, status: Callable[[], Status]
                  ) -> None:
    """Serve Prometheus on a thread of its own.

    :raises OSError: if the address or the port is not available.
    """
    exposition.serve_metrics(address, port,
                             lambda: metric_families(status()))
