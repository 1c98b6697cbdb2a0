# SPDX-License-Identifier: Apache-2.0

"""Probes: measurements by the primary itself."""

import contextlib
import re

import pytest

import hosts as compute
import layout
from tests.box import machine, services
from tests.box.services import agent_status, wait_until

POLICY = 'probe:p99_ms <= 20 for 15s'
LIMIT_S = 15
#: The probe's period, two checks, and until the status is written.
LATE_S = 4


@contextlib.contextmanager
def probe(host):
    """Let an agent have a probe that says what is in a file; yield the file.
    """
    conf = layout.ETC / f'hosts/{host}/agent.conf'
    original = conf.read_text()
    file = compute.directory(host) / 'agent/p99'
    file.write_text('12.5\n')
    conf.write_text(re.sub(r'(?m)^\[secondary_agent\]$', (
        f'[secondary_agent]\nprobe = p99_ms = cat {file}'), original))
    assert conf.read_text() != original
    try:
        with services.without(f'secondary-agent-{host}', how=services.stop):
            pass
        yield file
    finally:
        conf.write_text(original)
        with services.without(f'secondary-agent-{host}', how=services.stop):
            pass
        file.unlink()


def report_on(host, resource):
    """Return how a host's policy on a resource stands."""
    return next((one for one in agent_status(host).get('policies', ())
                 if one['resource'] == resource), {})


def floored(host):
    """Return the secondaries at the floor for a policy, and all there."""
    status = agent_status(host)
    return ({uuid for uuid, why in status.get('floors', {}).items()
             if 'policy' in why},
            {one['uuid'] for one in status.get('instances', ())})


@pytest.mark.soak
def test_a_primary_that_says_it_is_harmed(calm_fleet, hosts):
    fleet = calm_fleet
    host = fleet.busiest()
    agents = [f'secondary-agent-{name}' for name in hosts]
    with probe(host) as file, services.another_policy(
            f'{POLICY} on host:{host}', 'nova-scheduler',
            'watcher-engine-1', *agents):
        # Guests enter at the floor after the restart.
        wait_until(lambda: report_on(host, 'probe:p99_ms').get('usage') == 12.5
                   and floored(host)[1] and not agent_status(host)['floors'],
                   120, lambda: f'its guests run: {agent_status(host)}')
        assert report_on(host, 'probe:p99_ms')['state'] == 'held'
        file.write_text('31\n')
        begun = machine.clock()
        wait_until(lambda: agent_status(host)['restraint'] < 0.3, 10,
                   lambda: f'it gives way: {agent_status(host)}', 0.1)
        wait_until(lambda: floored(host)[1] and floored(host)[0]
                   == floored(host)[1], LIMIT_S + LATE_S,
                   lambda: f'all are at the floor: {agent_status(host)}', 0.1)
        print(f'at the floor after {machine.clock() - begun:.1f} s')
        assert not agent_status(host)['counters']['invalidations']
        wait_until(lambda: report_on(host, 'probe:p99_ms').get('state')
                   == 'held', 5, lambda: f'it holds: {agent_status(host)}')
        file.write_text('9\n')
        wait_until(lambda: not agent_status(host).get('floors', True), 120,
                   lambda: f'all are lifted: {agent_status(host)}')
        assert report_on(host, 'probe:p99_ms')['state'] == 'held'
        # A probe that says no number is no good news.
        file.write_text('nan\n')
        wait_until(lambda: report_on(host, 'probe:p99_ms').get('state')
                   == 'unknown', 10, lambda: f'{agent_status(host)}')
        assert 'not a number' in agent_status(host)['sensors']['probe']
        file.write_text('9\n')
    fleet.wait_all_run(300)


@pytest.mark.soak
def test_the_pressure_on_a_real_primary(calm_fleet, hosts):
    fleet = calm_fleet
    host = fleet.busiest()
    agents = [f'secondary-agent-{name}' for name in hosts]
    for resource in ('pressure', 'steal'):
        with services.another_policy(
                f'{resource} <= 100% for 60s on host:{host}',
                'nova-scheduler', 'watcher-engine-1', *agents):
            seen = wait_until(
                lambda what=resource: report_on(host, what).get('usage')
                is not None and report_on(host, what), 30,
                lambda: f'it is measured: {agent_status(host)}')
            assert 0 <= seen['usage'] <= 100 and seen['state'] == 'held', seen
            print(resource, seen['usage'],
                  agent_status(host)['sensor_costs'][resource])
