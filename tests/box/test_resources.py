# SPDX-License-Identifier: Apache-2.0

"""Policies on what is not CPU: measured, reported, and kept by operations."""

import contextlib

import pytest

import cgroups
from tests.box import services
from tests.box.services import agent_status, wait_until

#: How much of its memory a host is short of, as part of what one guest holds.
SHORT = 0.5
#: What the host's memory is, as a multiple of what is in use.
SIZE = 1.5


def report_on(host, resource):
    """Return how a host's policy on a resource stands."""
    return next((one for one in agent_status(host).get('policies', ())
                 if one['resource'] == resource), {})


@contextlib.contextmanager
def limited(host):
    """Let a host have little more memory than it uses; yield both in bytes."""
    group = cgroups.path('memory', f'hosts/{host}')
    v2 = (group / 'cgroup.controllers').exists()
    limit = group / ('memory.max' if v2 else 'memory.limit_in_bytes')
    used = int((group / ('memory.current' if v2 else 'memory.usage_in_bytes')
                ).read_text())
    stat = dict(line.split() for line in
                (group / 'memory.stat').read_text().splitlines())
    used -= int(stat.get('total_inactive_file', stat.get('inactive_file')))
    size = int(SIZE * used)
    limit.write_text(str(size))
    try:
        yield used, size
    finally:
        limit.write_text('max' if v2 else '-1')


@pytest.mark.soak
def test_a_host_that_is_short_of_memory_gives_some_back(calm_fleet, hosts):
    fleet = calm_fleet
    host = fleet.busiest()
    there = fleet.on(host)
    agents = [f'secondary-agent-{name}' for name in hosts]
    with limited(host) as (used, size):
        share = 100.0 * used / size
        with services.another_policy(
                f'mem <= {share + 20:.1f}% for 20s on host:{host}',
                'nova-scheduler', 'watcher-engine-1', *agents):
            seen = wait_until(
                lambda: report_on(host, 'mem').get('usage'), 30,
                lambda: f'memory is measured: {agent_status(host)}')
            assert abs(seen - share) < 5, (seen, share)
            status = agent_status(host)
            held = {one['uuid']: one['usage']['mem']
                    for one in status['instances'] if 'mem' in one['usage']}
            assert set(held) == there, status
            assert report_on(host, 'mem')['state'] == 'held', status
        threshold = seen - SHORT * min(held.values())
        with services.another_policy(
                f'mem <= {threshold:.1f}% for 60s on host:{host}',
                'nova-scheduler', 'watcher-engine-1', *agents):
            wait_until(lambda: report_on(host, 'mem').get('state')
                       == 'violated', 60, lambda: agent_status(host))
            wait_until(lambda: report_on(host, 'mem').get('state')
                       == 'held', 120, lambda: str(fleet.look()))
            counters = agent_status(host)['counters']
            assert not counters['invalidations'], counters
            # One was enough, and it has lost nothing.
            running = {uuid for uuid, one in fleet.look().items()
                       if one.host == host and one.status == 'ACTIVE'}
            assert len(there - running) == 1, fleet.look()
    fleet.wait_all_run(300)
