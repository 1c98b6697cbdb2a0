# SPDX-License-Identifier: Apache-2.0

"""Secondaries that a test boots beside the fleet."""

import layout
import shell
from tests.box.primaries import delete
from tests.box.services import wait_until

#: Log with the reasons of nova-scheduler's refusals.
SCHEDULER_LOG = 'nova-scheduler-service.log'


def boot_secondaries(owner, count, flavor='secondary'):
    """Ask for so many at once; return their UUIDs."""
    image = owner.image.find_image('worker-idle').id
    flavor = owner.compute.find_flavor(flavor).id
    return [owner.compute.create_server(
        name=f'test-extra-{n}', networks='none', image_id=image,
        flavor_id=flavor).id for n in range(count)]


def outcomes(cloud, uuids):
    """Wait until all are built or not; return {uuid: status}."""
    def settled():
        found = {s.id: s.status for s in cloud.compute.servers(
            all_projects=True) if s.id in uuids}
        return 'BUILD' not in found.values() and found
    return wait_until(settled, 300, 'all boots have ended', period=1)


def boots_a_secondary(cloud, owner):
    """Return whether a secondary finds a host now; it is deleted again."""
    uuids = boot_secondaries(owner, 1)
    try:
        return outcomes(cloud, uuids)[uuids[0]] == 'ACTIVE'
    finally:
        delete(cloud, *uuids)


def wait_for_room(cloud, owner, when):
    """Wait until one more secondary boots; show the hosts if none does."""
    def places():
        return f'one more boots {when}:\n' + shell.run(
            [layout.BIN / 'secondary-scheduler', 'host', 'list'],
            env=layout.credentials()).stdout
    wait_until(lambda: boots_a_secondary(cloud, owner), 240, places)


def wait_status(cloud, uuid, status, host=None, period=1.0):
    """Wait until a server has a status, and no task, on a host if named."""
    def there():
        server = cloud.compute.get_server(uuid)
        assert server.status != 'ERROR', server.fault
        return (server.status == status and server.task_state is None
                and host in (None, server.compute_host))
    wait_until(there, 240, f'{uuid} is {status} on {host}', period)


def migrate(cloud, uuid, target, period=1.0):
    """Live-migrate a server and wait until it runs there."""
    def asked():
        answer = cloud.compute.post(
            f'/servers/{uuid}/action', microversion='2.30', json={
                'os-migrateLive': {'host': target, 'block_migration': 'auto',
                                   'force': False}})
        return answer.ok

    wait_until(asked, 120, f'{target} takes {uuid}', period=2)
    wait_status(cloud, uuid, 'ACTIVE', target, period)
