# SPDX-License-Identifier: Apache-2.0

import socket
import unittest
import urllib.request

import prometheus_client
from prometheus_client import parser

from secondary_scheduler import exposition
from secondary_scheduler.agent import metrics

UUID = '00000000-0000-4000-8000-000000000001'
STATUS = {
    'cpu_total': 80.0, 'cpu_primary': None, 'usage': {'mem': 40.0},
    'set_point': 89.0, 'restraint': 0.25,
    'room': 3, 'admission': False, 'libvirt': True,
    'priority_effective': {'vm': True, 'service': False},
    'sensors': {'disk': 'no such file'},
    'sensor_costs': {'disk': {'percent': 0.2, 'over': False},
                     'probe': {'percent': 6.0, 'over': True}},
    'rates': {UUID: {'disk_in': 25.0}}, 'rate_problems': {UUID: 'dead'},
    'dedicated_cpus': [2, 3],
    'affinity': {'pool': '0-2', 'moves': 3, 'guests': {
        UUID: {'slowdown': 1.5, 'reason': 'no such file'}}},
    'problems': {UUID: 'no such file: vcpu1/cpu.max'},
    'policies': [{'policy': 'cpu <= 90% for 10s', 'resource': 'cpu',
                  'threshold': 90.0, 'timelimit': 10, 'usage': 80.0,
                  'failed': 2, 'state': 'failing'},
                 {'policy': 'mem <= 80% for 30s', 'resource': 'mem',
                  'threshold': 80.0, 'timelimit': 30, 'usage': None,
                  'failed': 0, 'state': 'unknown'}],
    'instances': [{'uuid': UUID, 'cpu': 12.0, 'cap': None, 'floored': True}],
    'memory': {'available_mb': 5, 'headroom_mb': None, 'coming_mb': 0},
    'killed': {UUID: 'memory'},
    'counters': {'violations': 1, 'invalidations': 0, 'floors': 4,
                 'floored_s': 2.5, 'kills': 0, 'control_failures': 0,
                 'unreadable_domains': 0}}


class MetricsTest(unittest.TestCase):
    def samples(self, text):
        return {(one.name, *sorted(one.labels.values())): one.value
                for family in parser.text_string_to_metric_families(text)
                for one in family.samples}

    def test_kaf_5_known_values_become_metrics(self):
        registry = prometheus_client.CollectorRegistry(auto_describe=False)
        registry.register(exposition.FunctionCollector(
            lambda: metrics.metric_families(STATUS)))
        text = prometheus_client.generate_latest(registry).decode()
        found = self.samples(text)
        cpu, mem = (one['policy'] for one in STATUS['policies'])
        for key, value in (
                (('cpu_used_ratio', 'host'), 0.8),
                (('resource_primary_ratio', 'mem'), 0.4),
                (('cpu_set_point_ratio',), 0.89),
                (('room_share_ratio',), 0.25), (('room_instances',), 3),
                (('admission_open',), 0), (('dedicated_cpus',), 2),
                (('cpu_pool',), 3), (('cpu_set_changes_total',), 3),
                (('instance_slowdown_ratio', UUID), 1.5),
                (('instance_not_confined', UUID), 1),
                (('libvirt_answers',), 1),
                (('priority_effective', 'vm'), 1),
                (('priority_effective', 'service'), 0),
                (('instance_limit_failing', UUID,
                  'no such file: vcpu1/cpu.max'), 1),
                (('sensor_failing', 'disk'), 1),
                (('sensor_cpu_ratio', 'disk'), 0.002),
                (('sensor_over_budget', 'disk'), 0),
                (('sensor_over_budget', 'probe'), 1),
                (('policy_usage', cpu), 80), (('policy_failed', cpu), 2),
                (('policy_threshold', mem), 80),
                (('policy_state', cpu, 'failing'), 1),
                (('policy_state', cpu, 'held'), 0),
                (('policy_state', mem, 'unknown'), 1),
                (('instance_cpu_ratio', UUID), 0.12),
                (('instance_floored', UUID), 1),
                (('memory_bytes', 'available'), 5 << 20),
                (('memory_bytes', 'coming'), 0), (('killed_instances',), 1),
                (('instance_rate_ratio', UUID, 'disk_in'), 0.25),
                (('instance_rate_failing', UUID), 1),
                (('violations_total',), 1),
                (('floored_seconds_total',), 2.5)):
            self.assertEqual(value, found[metrics.PREFIX + key[0], *key[1:]])
        for key in (('memory_bytes', 'headroom'),
                    ('cpu_used_ratio', 'primary'), ('policy_usage', mem),
                    ('instance_cap_ratio', UUID)):
            self.assertNotIn((metrics.PREFIX + key[0], *key[1:]), found)

    def test_metrics_are_served_over_http(self):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        metrics.serve_metrics('127.0.0.1', port, lambda: STATUS)
        with urllib.request.urlopen(
                f'http://127.0.0.1:{port}/metrics', timeout=10) as answer:
            self.assertIn('secondary_agent_room_instances 3.0',
                          answer.read().decode())
        with self.assertRaises(OSError):
            metrics.serve_metrics('127.0.0.1', port, lambda: STATUS)
