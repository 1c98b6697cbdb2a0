# SPDX-License-Identifier: Apache-2.0

"""Initial objects of the cloud of the box; runs inside the box.

    seed.py identity            users, services, endpoints (before Nova)
    seed.py cloud HOST ...      images, flavors, hosts, aggregate
    seed.py forget HOST         a host that changes its cell, and its servers
    seed.py leases              the audit that switches secondaries on and
                                runs leases

Each part may be repeated; it adds what is missing.
"""

from collections.abc import Iterator
import contextlib
import hashlib
import json
import sys
import time

from keystoneauth1 import adapter
import openstack

import cells
import guest
import layout

USERS = ('nova', 'placement', 'glance', 'neutron', 'watcher')
LEASES = 'secondary-lease'
#: What the agents' user may do is in etc/placement/policy.yaml.
AGENT, AGENT_ROLE = 'secondary-agent', 'secondary_agent'
SERVICES = (('nova', 'compute', 8774, '/v2.1'),
            ('placement', 'placement', 8778, ''),
            ('glance', 'image', 9292, ''), ('neutron', 'network', 9696, ''),
            ('watcher', 'infra-optim', 9322, ''),
            (LEASES, 'secondary-lease', 8791, ''))
WORKS = ('cpu', 'idle', 'touch', 'noise', 'dirty:24')
#: Prefix of the aggregates that name cells.
CELL = 'cell'
MEMORY_MB = 128
DISK_GB = 1


def identity(cloud) -> dict:
    """Make the service users, the demo projects, services and endpoints.

    Return the id of the user that Watcher is.
    """
    api = cloud.identity

    def user(name, project, *roles):
        account = (api.find_user(name, domain_id='default')
                   or api.create_user(name=name, password=layout.SECRET,
                                      domain_id='default',
                                      default_project_id=project.id))
        for role in roles:
            api.assign_project_role_to_user(project, account,
                                            api.find_role(role))
        return account

    def project(name):
        return (api.find_project(name, domain_id='default')
                or api.create_project(name=name, domain_id='default'))

    for name in USERS:
        user(name, project('service'), 'admin', 'service')
    user(LEASES, project('service'), 'service')
    if not api.find_role(AGENT_ROLE):
        api.create_role(name=AGENT_ROLE)
    agent = user(AGENT, project('service'), AGENT_ROLE)
    # A box of before gave it more.
    for role in ('admin', 'service'):
        api.unassign_project_role_from_user(project('service'), agent,
                                            api.find_role(role))
    for name in ('demo', 'other'):
        user(name, project(name), 'member', 'reader')
    known = {service.type: service for service in api.services()}
    have = {(point.service_id, point.interface) for point in api.endpoints()}
    for name, kind, port, path in SERVICES:
        service = known.get(kind) or api.create_service(name=name, type=kind)
        for interface in ('public', 'internal', 'admin'):
            if (service.id, interface) not in have:
                api.create_endpoint(
                    service_id=service.id, interface=interface,
                    region_id='RegionOne',
                    url=f'http://{layout.CONTROL}:{port}{path}')
    return {'watcher': api.find_user('watcher', domain_id='default').id}


def images(cloud) -> dict[str, str]:
    """Upload kernel, initramfs and one image for each kind of work.

    An image whose file has changed since is replaced.
    """
    def image(name, path, kind, **properties):
        found = cloud.image.find_image(name)
        with open(path, 'rb') as file:
            digest = hashlib.file_digest(file, 'sha512').hexdigest()
        if found is not None and found.hash_value != digest:
            cloud.image.delete_image(found)
            found = None
        if found is None:
            container = kind if kind in ('aki', 'ari') else 'bare'
            found = cloud.create_image(
                name, filename=str(path), disk_format=kind, wait=True,
                container_format=container, visibility='public',
                allow_duplicates=True, **properties)
        elif properties:
            cloud.image.update_image(found, **properties)
        return found.id

    kernel = image('box-kernel', layout.GUEST / 'vmlinuz', 'aki')
    initrd = image('box-initrd', layout.GUEST / 'initrd.gz', 'ari')
    return {work: image(
        f'worker-{work.replace(":", "-")}', layout.GUEST / 'disk.raw', 'raw',
        kernel_id=kernel, ramdisk_id=initrd,
        os_command_line=guest.COMMAND_LINE.format(work=work))
        for work in WORKS}


def cloud_objects(cloud, hosts: list[str]) -> None:
    """Make images, flavors, the aggregate; enable secondaries on the hosts."""
    images(cloud)
    compute = cloud.compute
    if not compute.find_flavor('primary'):
        compute.create_flavor(name='primary', vcpus=1, ram=MEMORY_MB,
                              disk=DISK_GB)
    wanted = set(hosts)
    deadline = time.monotonic() + 120
    while wanted - {s.host for s in compute.services(binary='nova-compute')
                    if s.state == 'up'} or wanted - {
                        h.name for h in compute.hypervisors()}:
        if time.monotonic() > deadline:
            raise SystemExit('compute services did not come up: '
                             f'{sorted(wanted)}')
        time.sleep(0.5)
    aggregate = next((a for a in compute.aggregates()
                      if a.name == 'secondary'), None)
    if aggregate is None:
        aggregate = compute.create_aggregate(name='secondary')
    for host in sorted(wanted - set(aggregate.hosts or ())):
        compute.add_host_to_aggregate(aggregate, host)
    name_cells(cloud, hosts)


def name_cells(cloud, hosts: list[str]) -> None:
    """Tell the plug-in which host is in which cell, if there are two."""
    compute = cloud.compute
    for aggregate in list(compute.aggregates()):
        if aggregate.name.startswith(CELL):
            for host in aggregate.hosts or ():
                compute.remove_host_from_aggregate(aggregate, host)
            compute.delete_aggregate(aggregate)
    second = cells.hosts_of_second(layout.load_settings())
    if not second:
        return
    for number, inside in (1, set(hosts) - set(second)), (2, set(second)):
        aggregate = compute.create_aggregate(name=f'{CELL}{number}')
        compute.set_aggregate_metadata(
            aggregate, {'secondary:cell': str(number)})
        for host in sorted(inside):
            compute.add_host_to_aggregate(aggregate, host)


def forget_host(cloud, host: str) -> None:
    """Have Nova forget a host, with all of its servers."""
    compute = cloud.compute
    for server in compute.servers(all_projects=True, compute_host=host):
        compute.delete_server(server, force=True)
        compute.wait_for_delete(server, wait=60)
    for service in compute.services(binary='nova-compute', host=host):
        compute.delete_service(service)


def demo_objects(cloud) -> None:
    """Make the flavors of the demo's secondaries beside the default one."""
    from secondary_scheduler.model import vocabulary
    compute = cloud.compute
    for name, priority in (('secondary.low', 2), ('secondary.high', 8)):
        if compute.find_flavor(name):
            continue
        flavor = compute.create_flavor(name=name, vcpus=1, ram=MEMORY_MB,
                                       disk=DISK_GB)
        compute.create_flavor_extra_specs(
            flavor, vocabulary.secondary_extra_specs(
                1, MEMORY_MB, DISK_GB, vocabulary.SecondaryMark(
                    priority=priority)))


def watcher(cloud) -> adapter.Adapter:
    """Return Watcher's API, version 1."""
    return adapter.Adapter(
        session=cloud.session, service_type='infra-optim',
        region_name='RegionOne', raise_exc=False, endpoint_override=(
            f'http://{layout.CONTROL}:9322/v1'),
        default_microversion='latest')


def listed(api: adapter.Adapter, kind: str, **params) -> Iterator[dict]:
    """Yield Watcher's objects of a kind, the newest first.

    Watcher returns a thousand at most, by default the oldest.
    """
    marker: dict = {}
    while found := api.get(f'/{kind}/detail', params={
            'sort_dir': 'desc', **params, **marker}).json()[kind]:
        yield from found
        marker = {'marker': found[-1]['uuid']}


def switch(cloud) -> str:
    """Make the CONTINUOUS audit that switches the feature on; its uuid."""
    api = watcher(cloud)
    for audit in list(listed(api, 'audits')):
        if audit['audit_type'] == 'CONTINUOUS' and audit['state'] in (
                'PENDING', 'ONGOING') and audit['goal_name'] == 'secondary':
            return audit['uuid']
        if audit['name'] == 'secondary':    # off: its name is taken
            api.delete(f"/audits/{audit['uuid']}")
    deadline = time.monotonic() + 60
    while True:
        answer = api.post('/audits', json={
            'name': 'secondary', 'audit_type': 'CONTINUOUS',
            'goal': 'secondary', 'strategy': 'secondary_workloads',
            'interval': '10', 'auto_trigger': True, 'force': True})
        if answer.ok:
            return answer.json()['uuid']
        if time.monotonic() > deadline:
            raise SystemExit(f'cannot make the switch: {answer.text}')
        time.sleep(2)


#: How many times a host's totals may be claimed where leases are run: a
#: suspended server keeps its claims, and another takes its turn.
CLAIMS = 2.0


def run_leases(cloud, wanted: bool) -> None:
    """Let the switch's audit run leases or not, and hosts have room for it.

    Servers without a lease become leases while it does, and as many may be
    on a host as its claims allow: what is about secondaries alone is tried
    without.
    """
    from secondary_scheduler.cmd import providers
    api, ratio = watcher(cloud), CLAIMS if wanted else 1.0
    answer = api.patch(f'/audits/{switch(cloud)}', json=[
        {'op': 'add', 'path': '/parameters/leases', 'value': wanted}])
    if not answer.ok:
        raise SystemExit(f'cannot change the switch: {answer.text}')
    known = providers.Providers(cloud.placement)
    for child in list(known.children()):
        if any(one['allocation_ratio'] != ratio
               for one in child.inventories.values()):
            known.enable(child.host, child.total, ratio)


@contextlib.contextmanager
def without_leases(cloud) -> Iterator[None]:
    """Have no leases run for a while."""
    run_leases(cloud, False)
    try:
        yield
    finally:
        run_leases(cloud, True)


def main() -> None:
    """Do the part named on the command line."""
    cloud, said = openstack.connect(), {'ok': True}
    if sys.argv[1] == 'identity':
        said |= identity(cloud)
    elif sys.argv[1] == 'cloud':
        cloud_objects(cloud, sys.argv[2:])
    elif sys.argv[1] == 'forget':
        forget_host(cloud, sys.argv[2])
    elif sys.argv[1] == 'leases':
        run_leases(cloud, True)
    print(json.dumps(said))


if __name__ == '__main__':
    main()
