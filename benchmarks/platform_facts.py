# SPDX-License-Identifier: Apache-2.0

"""Behaviour of Nova and Placement with secondaries, tried on the box.

Each line is one operation on a real secondary of a real host: what Nova says
afterwards, how long it took, and what its allocation holds on the child
providers and on the roots.  The results are in
doc/source/reference/platform.rst.

    python3 tools/box script benchmarks/platform_facts.py
"""

import argparse
from collections.abc import Callable
import json
import time
from typing import Any

from keystoneauth1 import adapter
import openstack

from benchmarks import forms
import cgroups
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

    def wait(self, states, seconds: float = 240) -> str:
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

    def to_the_floor(self) -> None:
        """Hold the server at the agents' floor, 1 ms in 100 ms for each vCPU.

        The agent of its host is ended, so that it stays there.
        """
        host = self.server.compute_host
        shell.stop(f'secondary-agent-{host}')
        domain = self.cloud.compute.get_server(self.server.id).instance_name
        vcpus = list(cgroups.path('cpu', f'hosts/{host}/machine').glob(
            f'qemu-*-{domain}.libvirt-qemu/vcpu*'))
        assert vcpus, f'{domain} has no vCPU on {host}'
        for group in vcpus:
            cgroups.limit(group, 1000, 100_000)

    def lifecycle(self, floor: bool = False) -> None:
        """Try what an owner or an operator does with a running server."""
        compute, server = self.cloud.compute, self.server.id

        def attempt(what: str, action: Callable[[], Any],
                    state: str = 'ACTIVE') -> None:
            if floor:
                self.to_the_floor()
            self.attempt(what + ' at the floor' * floor, action, state)

        attempt('soft reboot', lambda: compute.reboot_server(server, 'SOFT'))
        attempt('hard reboot', lambda: compute.reboot_server(server, 'HARD'))
        attempt('cold migration', lambda: compute.migrate_server(server),
                'VERIFY_RESIZE')
        self.attempt('... confirmed', lambda: compute.confirm_server_resize(
            server), 'ACTIVE')
        attempt('resize to a primary flavor', lambda: compute.resize_server(
            server, compute.find_flavor('primary').id), 'VERIFY_RESIZE')
        self.attempt('... reverted', lambda: compute.revert_server_resize(
            server), 'ACTIVE')
        attempt('shelve', lambda: compute.shelve_server(server),
                'SHELVED_OFFLOADED')
        self.attempt('unshelve', lambda: compute.unshelve_server(server),
                     'ACTIVE')
        for host in layout.host_names(layout.load_settings()):
            box_hosts.start_agent(host)

    def resize_for_good(self) -> None:
        """Make a primary of the secondary, and a secondary again."""
        compute, server = self.cloud.compute, self.server.id
        for flavor in ('primary', 'secondary'):
            self.attempt(f'resize to flavor {flavor}', lambda flavor=flavor: (
                compute.resize_server(server,
                                      compute.find_flavor(flavor).id)),
                'VERIFY_RESIZE')
            self.attempt('... confirmed', lambda: (
                compute.confirm_server_resize(server)), 'ACTIVE')

    def _service(self, host: str) -> Any:
        return next(s for s in self.cloud.compute.services(
            binary='nova-compute') if s.host == host)

    def disable(self) -> None:
        """Disable the server's host and migrate away from it."""
        compute, server = self.cloud.compute, self.server.id
        service = self._service(self.server.compute_host)
        self.attempt('its compute service disabled', lambda:
                     compute.disable_service(service), 'ACTIVE')
        self.attempt('... live migration away', lambda:
                     compute.live_migrate_server(
                         server, block_migration='auto'), 'ACTIVE')
        compute.enable_service(service)

    def evacuate(self) -> str:
        """Lose the server's host, evacuate, let the host come back."""
        compute, server = self.cloud.compute, self.server.id
        host = self.server.compute_host
        service = self._service(host)
        shell.stop(f'nova-compute-{host}', timeout=0)
        shell.run([*box_hosts.enter(host), 'virsh', 'destroy',
                   self.server.instance_name])
        compute.update_service_forced_down(service, host, 'nova-compute',
                                           True)
        self.attempt('host lost, evacuation', lambda:
                     compute.evacuate_server(server), 'ACTIVE', 'SHUTOFF')
        # Nova refuses to force a host up before its nova-compute has removed
        # what was evacuated.
        self.attempt('... and the host is back', lambda: (
            box_hosts.start_compute(host), time.sleep(25)), 'ACTIVE',
            'SHUTOFF')
        compute.update_service_forced_down(service, host, 'nova-compute',
                                           False)
        self.attempt('... and it is started', lambda: compute.start_server(
            server), 'ACTIVE')
        return host

    def delete_service(self, host: str) -> None:
        """Delete the compute service of an empty host and make it again."""
        compute = self.cloud.compute
        shell.stop(f'nova-compute-{host}', timeout=0)
        self.attempt(f'compute service of {host} (empty) deleted', lambda: (
            compute.delete_service(self._service(host))), 'ACTIVE',
            'SHUTOFF')
        print(self.inventories())
        box_hosts.start_compute(host)
        time.sleep(15)
        shell.run([layout.BIN / 'nova-manage', '--config-file',
                   layout.ETC / 'nova/nova.conf', 'cell_v2',
                   'discover_hosts'])
        time.sleep(15)
        print(self.inventories())


def two_plans() -> None:
    """Start two forced action plans at once; see whether they overlap."""
    api = seed.watcher(openstack.connect())
    audits = [api.post('/audits', json={
        'name': f'{NAME}-{time.time():.0f}-{n}', 'audit_type': 'ONESHOT',
        'goal': 'dummy', 'strategy': 'dummy', 'force': True,
        'auto_trigger': False}).json()['uuid'] for n in range(2)]

    def plans() -> list[dict[str, Any]]:
        return [plan for audit in audits for plan in seed.listed(
            api, 'action_plans', audit_uuid=audit)]

    def wait(states: set[str]) -> None:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and not (
                len(plans()) == 2 and {p['state'] for p in plans()} <= states):
            time.sleep(0.5)
    wait({'RECOMMENDED'})
    began = time.monotonic()
    for plan in plans():
        answer = api.post(f"/action_plans/{plan['uuid']}/start")
        print(f"start of plan {plan['uuid']}: {answer.status_code}")
    both = False
    while time.monotonic() < began + 90 and not {
            plan['state'] for plan in plans()} <= {'SUCCEEDED', 'FAILED'}:
        both |= [plan['state'] for plan in plans()].count('ONGOING') == 2
        time.sleep(0.3)
    print(f'two plans at once: {[plan["state"] for plan in plans()]} after '
          f'{time.monotonic() - began:.1f} s, both ONGOING at an instant: '
          f'{both}')


def main() -> None:
    """Try everything; print JSON at the end."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    forms.add_quick(parser)
    options = parser.parse_args()
    with seed.without_leases(openstack.connect()):
        if not options.quick:
            two_plans()
        rows = try_everything(Facts(), options.quick)
    print(json.dumps(rows))


def try_everything(facts: Facts, quick: bool) -> list[dict]:
    """Operate on a secondary in every way; return what was seen.

    :param quick: only with what is asked of a running server, once.
    """
    compute = facts.cloud.compute
    for old in compute.servers(all_projects=True, name=NAME):
        compute.delete_server(old.id)
        compute.wait_for_delete(old)
    seed.demo_objects(facts.cloud)
    facts.boot()
    time.sleep(8)
    print(facts.inventories())
    if quick:
        facts.lifecycle()
        compute.delete_server(facts.server.id)
        return facts.rows
    facts.attempt('nova-compute killed and started', facts.restart_compute,
                  'ACTIVE')
    facts.lifecycle()
    facts.lifecycle(floor=True)
    facts.resize_for_good()
    facts.disable()
    lost = facts.evacuate()
    facts.delete_service(lost)
    compute.delete_server(facts.server.id)
    return facts.rows


if __name__ == '__main__':
    main()
