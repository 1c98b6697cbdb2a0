"""A lease runs as a whole or not at all, whatever Nova makes of a member."""

import pytest

import layout
from tests.box import services
from tests.box.services import wait_until

PAIR = ('test-pair-1', 'test-pair-2')
ENGINE_LOG = 'watcher-engine-1-service.log'


@pytest.mark.soak
def test_half_a_lease_goes_down_again_until_the_other_half_can_run(
        owner, calm_fleet, hosts):
    """The disk of a suspended member is away when it is to be resumed."""
    fleet = calm_fleet
    of_name = {name: uuid for uuid, name in fleet.servers.items()}
    whole, broken = (of_name[name] for name in PAIR)
    disk = layout.SHARED / 'instances' / broken / 'disk'
    began = services.log_size(ENGINE_LOG)

    def seen():
        found = fleet.look()
        return {uuid: (one.status, one.preempted) if one.task is None
                else None for uuid, one in found.items()}

    def wait_for(of_whole, of_broken, timeout):
        wait_until(lambda: [seen().get(one) for one in (whole, broken)] == [
            of_whole, of_broken], timeout, lambda: str(fleet.look()))

    away = disk.with_suffix('.away')
    try:
        with services.another_policy(
                f'slots <= {len(fleet.servers) - 2} in aggregate:secondary',
                'nova-scheduler', 'watcher-engine-1',
                *(f'secondary-agent-{host}' for host in hosts)):
            wait_for(('SUSPENDED', True), ('SUSPENDED', True), 180)
            disk.rename(away)
        # Nova has tried: the other one runs now, and goes down again.
        wait_until(lambda: seen().get(broken) == ('ERROR', True), 180,
                   lambda: f'one cannot be resumed: {fleet.look()}')
        wait_for(('SUSPENDED', True), ('ERROR', True), 180)
        told = services.log_since(ENGINE_LOG, began)
        assert told.count(f'{broken} was preempted and is in ERROR') == 1, told
    finally:
        if away.exists():
            away.rename(disk)
        if fleet.look()[broken].status == 'ERROR':
            owner.compute.reboot_server(broken, 'HARD')
    fleet.wait_all_run(240)
