# SPDX-License-Identifier: Apache-2.0

"""Cost of our filter and weighers when Nova places a primary.

Nova's own ``SchedulerManager.select_destinations`` runs in this process, once
with Nova's filters and weighers and once with ours as an operator installs
them, in turn, on the same cloud.  See README.md for what is in the figures.
"""

import argparse
from collections.abc import Callable, Iterator
import contextlib
import datetime
import gc
import json
import logging
import random
import statistics
import sys
import tempfile
import time
import typing
from unittest import mock
import uuid

from nova import context as nova_context
from nova import objects
from nova.db.main import api as db
from nova.db.main import models
from nova.scheduler import manager
from oslo_db.sqlalchemy import enginefacade
from oslo_utils import timeutils
import sqlalchemy as sa

from benchmarks import forms
from secondary_scheduler.model import vocabulary
from secondary_scheduler.nova import report_books
from secondary_scheduler.nova.settings import CONF

objects.register_all()

STOCK = {
    'available_filters': ['nova.scheduler.filters.all_filters'],
    'enabled_filters': [
        'ComputeFilter', 'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
        'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter'],
    'weight_classes': ['nova.scheduler.weights.all_weighers'],
}
OURS = {
    'available_filters': [
        *STOCK['available_filters'],
        'secondary_scheduler.nova.filters.all_filters'],
    'enabled_filters': [*STOCK['enabled_filters'], 'SecondaryPolicyFilter'],
    'weight_classes': ['secondary_scheduler.nova.weights.all_weighers'],
}

#: The parts of a decision that are timed on their own.
PARTS = {'states': 'get_host_states_by_uuids',
         'filters': 'get_filtered_hosts', 'weighers': 'get_weighed_hosts'}


def flavor(vcpus: int, ram: int, disk: int, secondary: bool = False
           ) -> objects.Flavor:
    """Return a flavor of Nova's."""
    specs = vocabulary.secondary_extra_specs(
        vcpus, ram, disk, vocabulary.SecondaryMark()) if secondary else {}
    return objects.Flavor(
        id=1, flavorid='1', name='flavor', vcpus=vcpus, memory_mb=ram,
        root_gb=disk, ephemeral_gb=0, swap=0, extra_specs=specs,
        rxtx_factor=1.0, vcpu_weight=0, disabled=False, is_public=True,
        description=None, created_at=None, updated_at=None, deleted_at=None,
        deleted=False)


class Cloud:
    """Hosts with instances: rows in Nova's database, and what computes tell
    the scheduler of their instances.

    :param share: the part of the instances that is secondary, 0 to 1.
    """

    def __init__(self, hosts: int, instances: int, share: float) -> None:
        self.chance = random.Random(1)
        self.cell = objects.CellMapping(
            uuid=str(uuid.uuid4()), name='cell1', disabled=False,
            transport_url='fake://', database_connection='sqlite://')
        self.flavors = {False: flavor(2, 4096, 20),
                        True: flavor(2, 2048, 10, secondary=True)}
        self.names = [f'node{n:05d}' for n in range(hosts)]
        self.uuids = {name: str(uuid.uuid4()) for name in self.names}
        self.information: dict[str, typing.Any] = {}
        self.moment = timeutils.utcnow().replace(microsecond=0)
        self.instances = instances
        rows = [self._host(name, instances, share) for name in self.names]
        with db.context_manager.writer.get_engine().begin() as connection:
            models.BASE.metadata.create_all(connection)
            connection.execute(sa.insert(models.ComputeNode), rows)
            connection.execute(sa.insert(models.Service), [
                {'host': name, 'binary': 'nova-compute', 'topic': 'compute',
                 'report_count': 1, 'disabled': False, 'deleted': 0,
                 'forced_down': False,
                 'version': objects.service.SERVICE_VERSION,
                 'created_at': self.moment, 'uuid': str(uuid.uuid4()),
                 'last_seen_up': self.moment}
                for name in self.names])
        self.placement = self._candidates()

    def _host(self, name: str, instances: int, share: float
              ) -> dict[str, typing.Any]:
        kinds = [n < round(share * instances) for n in range(instances)]
        self.information[name] = {'updated': True, 'instances': {
            one.uuid: one for one in (objects.Instance(
                uuid=str(uuid.uuid4()), flavor=self.flavors[kind],
                image_ref='image', created_at=None, launched_at=None)
                for kind in kinds)}}
        # No two hosts alike, as after some weeks.
        total = (self.chance.choice((48, 64, 96)),
                 1024 * self.chance.randrange(192, 384),
                 self.chance.randrange(1000, 3000))
        used = [sum(getattr(self.flavors[kind], what) for kind in kinds)
                for what in ('vcpus', 'memory_mb', 'root_gb')]
        return {
            'uuid': self.uuids[name], 'host': name, 'deleted': 0,
            'hypervisor_hostname': name, 'hypervisor_type': 'QEMU',
            'hypervisor_version': 8000000, 'cpu_info': '{}',
            'created_at': self.moment, 'updated_at': self.moment,
            'vcpus': total[0], 'vcpus_used': used[0],
            'memory_mb': total[1], 'memory_mb_used': used[1],
            'free_ram_mb': total[1] - used[1], 'local_gb': total[2],
            'local_gb_used': used[2], 'free_disk_gb': total[2] - used[2],
            'disk_available_least': total[2] - used[2],
            'running_vms': instances, 'current_workload': 0,
            'host_ip': '127.0.0.1', 'metrics': '[]', 'mapped': 1,
            'supported_instances': '[["x86_64", "kvm", "hvm"]]',
            'cpu_allocation_ratio': 4.0, 'ram_allocation_ratio': 1.0,
            'disk_allocation_ratio': 1.0, 'stats': self._stats()}

    def _stats(self) -> str:
        # What Nova's resource tracker sends from a host with two projects.
        return json.dumps({
            'num_instances': str(self.instances), 'io_workload': '0',
            'failed_builds': '0', 'num_vm_active': str(self.instances),
            'num_task_None': str(self.instances),
            'num_os_type_None': str(self.instances),
            **{f'num_proj_{n}': str(self.instances) for n in range(2)}})

    def _candidates(self) -> str:
        """Return Placement's answer, as text."""
        return json.dumps([
            [{'allocations': {root: {'resources': {
                'VCPU': 2, 'MEMORY_MB': 4096, 'DISK_GB': 20}}},
              'mappings': {'': [root]}} for root in self.uuids.values()],
            {root: {'resources': {}, 'traits': []}
             for root in self.uuids.values()}, '1.36'])

    def age(self, number: int) -> None:
        """Let some hosts send their periodic update."""
        self.moment += datetime.timedelta(seconds=1)
        with db.context_manager.writer.get_engine().begin() as connection:
            connection.execute(
                sa.update(models.ComputeNode).where(
                    models.ComputeNode.host.in_(
                        self.chance.sample(self.names, number))),
                {'updated_at': self.moment})


class Placement:
    """A client that answers what Placement would, from memory."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def get_allocation_candidates(self, *_: typing.Any) -> typing.Any:
        """Parse the answer, as the real client does."""
        return tuple(json.loads(self._answer))

    def claim_resources(self, *_: typing.Any, **__: typing.Any) -> bool:
        """Claim."""
        return True


class Scheduler(manager.SchedulerManager):
    """Nova's scheduler without its message bus.

    ``spent`` holds the CPU seconds of the parts of the last decision.
    """

    placement_client = None     # a property otherwise

    def __init__(self, cloud: Cloud, options: dict[str, list[str]]) -> None:
        for name, value in options.items():
            CONF.set_override(name, value, 'filter_scheduler')
        self.host_manager = manager.host_manager.HostManager()
        self.host_manager._instance_info = cloud.information
        self.notifier = mock.Mock()
        self.placement_client = Placement(cloud.placement)
        self.spent: dict[str, float] = {}
        for part, name in PARTS.items():
            setattr(self.host_manager, name, self._timed(
                part, getattr(self.host_manager, name)))

    def _timed(self, part: str, function: Callable[..., typing.Any]
               ) -> Callable[..., typing.Any]:
        def timed(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
            start = time.process_time()
            found = function(*args, **kwargs)
            if part != 'weighers':
                found = list(found)     # a generator would run later
            self.spent[part] = time.process_time() - start
            return found
        return timed


def decide(scheduler: Scheduler, cloud: Cloud) -> dict[str, float]:
    """Place one primary; return CPU seconds by part."""
    context = nova_context.get_admin_context()
    spec = objects.RequestSpec(
        flavor=cloud.flavors[False], instance_uuid=str(uuid.uuid4()),
        project_id='project', user_id='user', num_instances=1,
        image=objects.ImageMeta(properties=objects.ImageMetaProps()),
        numa_topology=None, pci_requests=None, requested_resources=[],
        request_level_params=objects.RequestLevelParams(),
        scheduler_hints={}, instance_group=None, requested_destination=None,
        ignore_hosts=None, force_hosts=None, force_nodes=None, retry=None,
        availability_zone=None, limits=objects.SchedulerLimits(),
        security_groups=objects.SecurityGroupList(objects=[]),
        requested_networks=objects.NetworkRequestList(objects=[]),
        is_bfv=False)
    scheduler.spent.clear()
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        chosen = scheduler.select_destinations(
            context, spec_obj=spec, instance_uuids=[spec.instance_uuid],
            return_objects=True, return_alternates=True)
        whole = time.process_time() - start
    finally:
        gc.enable()
    assert chosen[0][0].service_host in cloud.uuids
    spent = {**scheduler.spent, 'select_destinations': whole}
    spent['filters_and_weighers'] = spent['filters'] + spent['weighers']
    return spent


@contextlib.contextmanager
def nova(directory: str) -> Iterator[objects.CellMappingList]:
    """Have Nova's database in a directory, and no message bus.

    :returns: the list of cells, to be filled.
    """
    CONF([], default_config_files=[], project='nova')
    CONF.set_override('service_down_time', 86400)
    facade = enginefacade.transaction_context()
    facade.configure(connection=f'sqlite:///{directory}/nova.sqlite')

    @contextlib.contextmanager
    def same_cell(context: typing.Any, cell: typing.Any
                  ) -> Iterator[typing.Any]:
        yield context

    silent = report_books.ReportBooks()
    cells = objects.CellMappingList(objects=[])
    with contextlib.ExitStack() as stack:
        for patch in (
                mock.patch.object(db, 'context_manager', facade),
                mock.patch.object(nova_context, 'target_cell', same_cell),
                mock.patch.object(objects.CellMappingList, 'get_all',
                                  return_value=cells),
                mock.patch.object(objects.AggregateList, 'get_all',
                                  return_value=[]),
                mock.patch.object(manager.host_manager.HostManager,
                                  '_init_instance_info'),
                mock.patch.object(manager.compute_utils,
                                  'notify_about_scheduler_action'),
                mock.patch.object(report_books, '_books', silent),
                mock.patch.object(silent, '_listen', mock.Mock())):
            stack.enter_context(patch)
        yield cells


def run(arguments: argparse.Namespace) -> dict[str, typing.Any]:
    """Return the figures."""
    logging.disable(logging.INFO)   # Nova's default level is INFO
    with (tempfile.TemporaryDirectory() as directory,
          nova(directory) as cells):
        cloud = Cloud(arguments.hosts, arguments.instances,
                      arguments.secondaries)
        cells.objects.append(cloud.cell)
        schedulers = {'stock': Scheduler(cloud, STOCK),
                      'ours': Scheduler(cloud, OURS)}
        gc.freeze()
        spent: dict[str, list[dict[str, float]]] = {
            name: [] for name in schedulers}
        for turn in range(-1, arguments.repeat):
            cloud.age(arguments.changed)
            for name in sorted(schedulers, reverse=turn % 2 == 0):
                found = decide(schedulers[name], cloud)
                if turn >= 0:   # the first one warms caches
                    spent[name].append(found)
        db.context_manager.writer.get_engine().dispose()
    return figures(arguments, spent)


def figures(arguments: argparse.Namespace,
            spent: dict[str, list[dict[str, float]]]) -> dict[str, typing.Any]:
    """Return medians in milliseconds, and ratios of medians."""
    parts = list(spent['stock'][0])
    medians = {name: {part: statistics.median(
        1000 * one[part] for one in turns) for part in parts}
        for name, turns in spent.items()}
    pairs = {part: [ours[part] / stock[part] for stock, ours in zip(
        spent['stock'], spent['ours'], strict=True)] for part in parts}
    return {
        'hosts': arguments.hosts, 'instances': arguments.instances,
        'secondaries': arguments.secondaries, 'changed': arguments.changed,
        'repeat': arguments.repeat, 'unit': 'CPU ms, medians',
        **{name: {part: round(value, 3) for part, value in of.items()}
           for name, of in medians.items()},
        'ratio': {part: round(statistics.median(of), 4)
                  for part, of in pairs.items()},
        'ratio_quartiles': {
            part: [round(q, 4) for q in statistics.quantiles(of, n=4)[::2]]
            for part, of in pairs.items()} if arguments.repeat > 1 else {}}


def main() -> int:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--instances', type=int, default=20,
                        help='instances on each host (default: 20)')
    parser.add_argument('--secondaries', type=float, default=0.25,
                        help='part of them that is secondary (0.25)')
    parser.add_argument('--changed', type=int, default=17,
                        help='hosts that sent an update since the last '
                        'decision (17: 1,000 hosts, one decision a second)')
    parser.add_argument('--repeat', type=int, default=101,
                        help='decisions of each kind (%(default)s)')
    forms.add_quick(parser, hosts=20, changed=2, repeat=5)
    print(json.dumps(run(parser.parse_args()), indent=2))
    return 0


if __name__ == '__main__':
    sys.exit(main())
