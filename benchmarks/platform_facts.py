"""What Nova and Placement do with secondaries, tried on the box.

Each line is one operation on a real secondary of a real host: what Nova says
afterwards, how long it took, and what its allocation holds on the child
providers and on the roots.  The results are in doc/source/platform.rst.

    python3 tools/box script benchmarks/platform_facts.py
"""

import json
import time

from keystoneauth1 import adapter
import openstack

import hosts as box_hosts
import layout
from secondary_scheduler.model import vocabulary
import seed
import shell

NAME = 'platform-facts'


class Facts:
    """One server, and the operations tried on it."""

    def __init__(self) -> None:
        self.cloud = openstack.connect()
        self.placement = adapter.Adapter(
            session=self.cloud.session, service_type='placement',
            region_name='RegionOne', default_microversion='1.36')
        self.rows: list[dict] = []
        self.server = None

    def allocation(self) -> dict[str, dict[str, int]]:
        """Return the server's allocation by provider name."""
        names = {p['uuid']: p['name'] for p in self.placement.get(
            '/resource_providers').json()['resource_providers']}
        found = self.placement.get(
            f'/allocations/{self.server.id}').json()['allocations']
        roots = {vocabulary.child_provider_name(uuid): name + ' (child)'
                 for uuid, name in names.items()}
        return {roots.get(names[uuid], names[uuid]): value['resources']
                for uuid, value in found.items()}

    def wait(self, states, seconds: float = 90) -> str:
        """Wait until Nova is done with the server; return its status."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.server = self.cloud.compute.get_server(self.server.id)
            if self.server.status in (*states, 'ERROR') and (
                    not self.server.task_state):
                break
            time.sleep(0.2)
        return (f'{self.server.status}'
                + (f'/{self.server.task_state}' if self.server.task_state
                   else ''))

    def attempt(self, what: str, action, *states: str) -> None:
        """Do something, wait, and keep what was seen."""
        began, before = time.monotonic(), self.server.compute_host
        try:
            action()
            time.sleep(0.3)
            outcome = self.wait(states)
        except Exception as problem:
            outcome = f'{type(problem).__name__}: {str(problem)[:160]}'
        row = {'operation': what, 'outcome': outcome,
               'seconds': round(time.monotonic() - began, 1),
               'host': f'{before} -> {self.server.compute_host}',
               'allocation': self.allocation()}
        self.rows.append(row)
        print(f"{what:44} {outcome:24} {row['seconds']:6} s  {row['host']}\n"
              f"    {json.dumps(row['allocation'])}", flush=True)

    def boot(self) -> None:
        """Boot a secondary, as soon as a host admits one."""
        compute = self.cloud.compute
        for _ in range(20):
            self.server = compute.create_server(
                name=NAME, networks='none',
                image_id=self.cloud.image.find_image('worker-cpu').id,
                flavor_id=compute.find_flavor('secondary').id)
            if self.wait(('ACTIVE',)) == 'ACTIVE':
                return
            compute.delete_server(self.server.id)
            time.sleep(3)
        raise SystemExit('no host admitted a secondary')

    def restart_compute(self) -> None:
        """Restart nova-compute of the server's host, as a crash would."""
        host = self.server.compute_host
        shell.stop(f'nova-compute-{host}', timeout=0)
        box_hosts.start_compute(host)
        time.sleep(25)

    def inventories(self) -> str:
        """Return the child inventories of all hosts, as the CLI says."""
        return shell.run([layout.BIN / 'secondary-scheduler', 'host',
                          'list'], env=layout.credentials()).stdout


def main() -> None:
    """Try everything."""
    facts = Facts()
    compute = facts.cloud.compute
    for old in compute.servers(all_projects=True, name=NAME):
        compute.delete_server(old.id)
        compute.wait_for_delete(old)
    seed.demo_objects(facts.cloud)
    facts.boot()
    time.sleep(8)
    print(facts.inventories())
    facts.attempt('nova-compute killed and started', facts.restart_compute,
                  'ACTIVE')
    print(facts.inventories())
    server = facts.server.id
    facts.attempt('shelve', lambda: compute.shelve_server(server),
                  'SHELVED_OFFLOADED')
    facts.attempt('unshelve', lambda: compute.unshelve_server(server),
                  'ACTIVE')
    facts.attempt('soft reboot', lambda: compute.reboot_server(
        server, 'SOFT'), 'ACTIVE')
    facts.attempt('hard reboot', lambda: compute.reboot_server(
        server, 'HARD'), 'ACTIVE')
    host = facts.server.compute_host
    service = next(s for s in compute.services(binary='nova-compute')
                   if s.host == host)
    facts.attempt('its compute service disabled', lambda:
                  compute.disable_service(service), 'ACTIVE')
    facts.attempt('... live migration away', lambda:
                  compute.live_migrate_server(server, block_migration='auto'),
                  'ACTIVE')
    compute.enable_service(service)
    other = facts.server.compute_host
    print(f'live migration went from {host} to {other}')
    compute.delete_server(server)
    print(json.dumps(facts.rows))


if __name__ == '__main__':
    main()
