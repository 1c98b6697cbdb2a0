# SPDX-License-Identifier: Apache-2.0

"""Memory that guests write, and its effect on a migration."""

from oslo_config import cfg
import pytest

import layout
import secondaries
from secondary_scheduler.conf import policy
from secondary_scheduler.reports import agent_rpc
from tests.box import primaries
from tests.box.services import agent_status, wait_until

#: Two measurements of an agent, or what a slow machine makes of one.
MEASURED_S = 180


def seen(host, uuid):
    """Return what a host's agent says of a secondary."""
    return next((one for one in agent_status(host).get('instances', ())
                 if one['uuid'] == uuid), {})


def agents(host):
    """Return a client of the agents, with a host's own account.

    oslo.messaging wants the process's own configuration for its tracing.
    """
    conf = cfg.CONF
    policy.register_opts(conf)
    conf(['--config-file',
          str(layout.ETC / 'secondary_scheduler/policies.conf'),
          '--config-file', str(layout.ETC / f'hosts/{host}/agent.conf')],
         project='secondary', default_config_files=[])
    return agent_rpc.AgentClient(conf)


def migrate(cloud, uuid, target):
    """Have Nova migrate a server, as its operator would without Watcher."""
    cloud.compute.post(f'/servers/{uuid}/action', microversion='2.30', json={
        'os-migrateLive': {'host': target, 'block_migration': 'auto',
                           'force': False}})

    def there():
        server = cloud.compute.get_server(uuid)
        return (server.compute_host, server.status,
                server.task_state) == (target, 'ACTIVE', None)
    wait_until(there, 120, f'{uuid} is on {target}')


@pytest.mark.soak
def test_guest_that_writes_too_fast_is_floored_to_migrate(
        cloud, owner, calm_fleet):
    """Nobody tells the agent what its guest does: QEMU and libvirt do."""
    uuid, = secondaries.boot(owner, [('test-dirty', 'secondary', None)],
                             image='worker-dirty-24')
    try:
        host = primaries.wait_active(cloud, uuid).compute_host
        wait_until(lambda: seen(host, uuid).get('dirty_1s_mb'), MEASURED_S,
                   lambda: f'its writing is measured: {agent_status(host)}')
        target = next(name for name in calm_fleet.hosts if name != host)
        calm_fleet.delete(calm_fleet.on(target))
        wait_until(lambda: agent_status(target).get('admission'), 120,
                   lambda: f'{target} is open: {agent_status(target)}')
        migrate(cloud, uuid, target)
        wait_until(lambda: agent_status(target).get('migration_mb_s')
                   and seen(target, uuid).get('dirty_1s_mb'), MEASURED_S,
                   lambda: f'it is known there: {agent_status(target)}')
        client = agents(target)
        answer = client.hand_over(target, uuid)
        assert answer['ok'] and not answer['floored'], answer
        answer = client.hand_over(target, uuid, migrates=True)
        assert answer['ok'] and answer['floored'], answer
        client.thaw_hint(target, uuid)
        wait_until(lambda: seen(target, uuid).get('floored') is False, 30,
                   'it is let run again')
    finally:
        primaries.delete(cloud, uuid)
