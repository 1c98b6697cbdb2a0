# SPDX-License-Identifier: Apache-2.0

"""Nova's own objects, filled by hand."""

import datetime
import time
import uuid as uuids

from nova import objects
from nova.scheduler import host_manager
from oslo_config import fixture as config_fixture

from secondary_scheduler.model import reports, vocabulary
from secondary_scheduler.nova import settings
from secondary_scheduler.policies import language

objects.register_all()

POLICY = 'cpu <= 90% for 10s'


def uuid(number):
    return str(uuids.UUID(int=number))


def moment(seconds):
    return (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
            + datetime.timedelta(seconds=seconds))


def configure(case, **options):
    """Set our options for one test."""
    fixture = config_fixture.Config(settings.CONF)
    fixture.setUp()
    case.addCleanup(fixture.cleanUp)
    settings.CONF([], default_config_files=[], project='nova')
    fixture.config(group='secondary_scheduler',
                   **{'policy': [POLICY], **options})
    return fixture


def flavor(vcpus=1, ram=256, disk=0, extra_specs=None, ephemeral_gb=0,
           swap=0):
    return objects.Flavor(
        id=1, flavorid='1', name='flavor', vcpus=vcpus, memory_mb=ram,
        root_gb=disk, ephemeral_gb=ephemeral_gb, swap=swap,
        extra_specs=extra_specs or {}, rxtx_factor=1.0, vcpu_weight=0,
        disabled=False, is_public=True, description=None, created_at=None,
        updated_at=None, deleted_at=None, deleted=False)


def secondary_flavor(vcpus=1, ram=256, disk=0, **more):
    specs = vocabulary.secondary_extra_specs(
        vcpus, ram, disk, vocabulary.SecondaryMark())
    specs.update(more)
    return flavor(vcpus, ram, disk, specs)


def spec(of, image=None, image_id=None, **fields):
    """A request for an instance of a flavor."""
    return objects.RequestSpec(
        flavor=of, num_instances=1,
        image=objects.ImageMeta(properties=objects.ImageMetaProps(
            **(image or {})), **({'id': image_id} if image_id else {})),
        **{'instance_uuid': uuid(99), 'numa_topology': None,
           'pci_requests': None,
           'requested_resources': None, 'scheduler_hints': {},
           'instance_group': None, 'requested_destination': None, **fields})


def instance(number, of=None, **fields):
    """An instance as the scheduler knows it; without flavor if of=None."""
    made = objects.Instance(uuid=uuid(number), **fields)
    if of is not None:
        made.flavor = of
    return made


def host(name='node1', vcpus=8, ram=16384, disk=100, instances=(),
         updated=0, hypervisor='QEMU', **stats):
    """A host with the numbers its resource tracker would report."""
    state = host_manager.HostState(name, name, uuid(7777))
    flavors = [i.flavor for i in instances if 'flavor' in i]
    state.uuid = str(uuids.uuid5(uuids.NAMESPACE_DNS, name))
    state.hypervisor_type = hypervisor
    state.vcpus_total = vcpus
    state.cpu_allocation_ratio = 1.0
    state.vcpus_used = sum(f.vcpus for f in flavors)
    state.total_usable_ram_mb = ram
    state.free_ram_mb = ram - sum(f.memory_mb for f in flavors)
    state.total_usable_disk_gb = disk
    state.disk_mb_used = sum(f.root_gb for f in flavors) * 1024
    state.free_disk_mb = disk * 1024 - state.disk_mb_used
    if hypervisor == 'fake':
        state.free_disk_mb = min(0, state.free_disk_mb)
    state.stats = {'num_instances': len(instances), 'io_workload': 0,
                   'failed_builds': 0, **stats}
    state.num_instances = int(state.stats['num_instances'])
    state.num_io_ops = int(state.stats['io_workload'])
    state.failed_builds = int(state.stats['failed_builds'])
    state.updated = moment(updated)
    state.instances = {i.uuid: i for i in instances}
    return state


def report(host='node1', seq=1, primary=20.0, threshold=90.0, instances=0,
           state=reports.PolicyState.HELD, **fields):
    return reports.HostReport(**{
        'host': host, 'incarnation': 'a', 'seq': seq, 'time': time.time(),
        'policies_hash': language.fingerprint(settings.policies()),
        'admission': True, 'reason': '', 'cpus': 4.0, 'memory_mb': 8192,
        'cpu_total': 50.0, 'cpu_primary': primary,
        'policies': (reports.PolicyReport(
            policy=POLICY, resource='cpu', threshold=threshold,
            timelimit=10, usage=50.0, failed=0, state=state),),
        'instances': tuple(reports.InstanceReport(
            uuid=uuid(n), priority=5, cpu=1.0, cap=None,
            floored=False) for n in range(instances)),
        **fields})
