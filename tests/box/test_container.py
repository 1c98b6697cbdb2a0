# SPDX-License-Identifier: Apache-2.0

"""Agent with the rights of a container (doc/source/install/kolla.rst)."""

import contextlib
import time

import pytest

import cgroups
import hosts
import layout
import shell
from tests.box import services
from tests.box.observer import vcpu_limits
from tests.box.services import wait_until

#: All other capabilities go.
CAPABILITIES = 'dac_override,kill,sys_ptrace'


def contained(host, command):
    """Return a command of the agent as it runs with a container's rights."""
    plain = hosts.agent(host, command)
    place = plain.index('env')
    state = hosts.directory(host) / 'agent'
    script = (
        'mount --make-rprivate /; '
        f'mount --bind {state} {state}; '
        f'mount --bind {layout.LOG} {layout.LOG}; '
        'mount -o remount,bind,ro /; exec "$@"')
    drop = ','.join(f'+{name}' for name in CAPABILITIES.split(','))
    return [*plain[:place], 'unshare', '-m', 'sh', '-c', script, 'sh',
            'setpriv', '--no-new-privs', f'--bounding-set=-all,{drop}',
            f'--inh-caps=-all,{drop}', *plain[place:]]


@contextlib.contextmanager
def agent_in_a_container(host):
    """Have one host's agent run like that for a while."""
    name = f'secondary-agent-{host}'
    services.kill(name)
    shell.start(name, contained(host, 'run'))
    try:
        yield
    finally:
        shell.stop(name, timeout=5)
        services.start(name)


@pytest.mark.soak
def test_agent_limits_reports_and_releases(calm_fleet):
    fleet = calm_fleet
    host = fleet.busiest()
    began = time.time()
    with agent_in_a_container(host):
        wait_until(lambda: (status := services.agent_status(host)) and (
            status['time'] > began and status['libvirt']
            and status['instances'] and not status['problems']), 30,
            lambda: f'it controls: {services.agent_status(host)}')
        wait_until(lambda: all(
            one['cap'] is not None and one['cpu'] is not None
            for one in services.agent_status(host)['instances']), 30,
            'all are inside')
        limits = vcpu_limits(host)
        assert all(quota is not None for vcpus in limits.values()
                   for quota, _ in vcpus.values())
        machine = cgroups.path('cpu', f'hosts/{host}/machine')
        assert (machine / 'cpu.idle').read_text().strip() == '1'
        # What it may not write to it did not miss.
        log = (layout.LOG / f'agent-{host}.log').read_text()
        assert 'Read-only file system' not in log
        assert 'Operation not permitted' not in log
        shell.stop(f'secondary-agent-{host}', timeout=5)
        shell.run(contained(host, 'release'))
        assert all(quota is None for vcpus in vcpu_limits(host).values()
                   for quota, _ in vcpus.values())
    fleet.wait_all_run(240)
