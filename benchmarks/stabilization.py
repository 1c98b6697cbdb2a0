# SPDX-License-Identifier: Apache-2.0

"""Watcher's own strategy workload_stabilization, unchanged, on a cluster.

Only what a running cloud would give it is made up: its model of the cloud and
a data source that answers at once.
"""

from collections.abc import Sequence
import random
import time
import typing
import uuid as uuids

from oslo_config import cfg
from watcher.common import utils
from watcher.decision_engine.loading import default
from watcher.decision_engine.model import element, model_root

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import Cluster

NAME = 'workload_stabilization'


def watcher_model(cluster: Cluster) -> typing.Any:
    """Return a cluster as Watcher's collector would give it."""
    model = model_root.ModelRoot()
    for name, host in cluster.hosts.items():
        node = element.ComputeNode(
            uuid=name, hostname=name, disabled_reason=None, status='enabled',
            state='up', vcpus=int(host.cpus), vcpu_reserved=0,
            vcpu_ratio=host.total[vocabulary.VCPU] / host.cpus,
            memory=host.total[vocabulary.MEMORY_MB], memory_ratio=1.0,
            memory_mb_reserved=host.reserved.get(vocabulary.MEMORY_MB, 0),
            disk=host.total[vocabulary.DISK_GB], disk_gb_reserved=0,
            disk_ratio=1.0)
        model.add_node(node)
        for one in cluster.residents(name):
            instance = element.Instance(
                uuid=one.uuid, name=one.uuid, state='active',
                memory=one.memory_mb, disk=one.disk_gb, vcpus=one.vcpus,
                metadata={'lease': one.lease, 'priority': one.priority},
                project_id=str(uuids.UUID(int=0)), watcher_exclude=False,
                locked=False)
            model.add_instance(instance)
            model.map_instance(instance, node)
    return model


def metrics(cluster: Cluster) -> dict[str, float]:
    """Return Watcher's CPU metrics, of instances and of hosts, in percent.

    That of an instance is in percent of its own vCPUs.
    """
    found = dict.fromkeys(cluster.hosts, 0.0)
    for one in cluster.instances.values():
        host = str(one.host)
        cpus = one.cpu or 0.0
        found[host] += 100 * cpus / cluster.hosts[host].cpus
        found[one.uuid] = 100 * cpus / one.vcpus
    return found


class _Source:
    """A data source without delay."""

    def __init__(self, values: dict[str, float]) -> None:
        self._values = values

    def statistic_aggregation(self, resource: typing.Any,
                              *_query: object) -> float:
        return self._values[resource.uuid]


def decide(cluster: Cluster, model: typing.Any, seed: int
           ) -> tuple[float, Sequence[tuple[str, str]]]:
    """Return the strategy's CPU seconds and its moves, in their order.

    Parameters are Watcher's defaults.  It draws destinations from Python's
    global generator, which is seeded here.
    """
    cfg.CONF([], default_config_files=[])
    strategy = default.DefaultStrategyLoader().load(NAME, osc=object())
    parameters: dict[str, object] = {}
    utils.StrictDefaultValidatingDraft4Validator(
        strategy.get_schema()).validate(parameters)
    strategy.input_parameters = utils.Struct(parameters)
    strategy._compute_model = model
    strategy._datasource_backend = _Source(metrics(cluster))
    random.seed(seed)
    begun = time.process_time()
    strategy.pre_execute()
    strategy.do_execute()
    strategy.post_execute()
    spent = time.process_time() - begun
    return spent, [
        (action['input_parameters']['resource_id'],
         action['input_parameters']['destination_node'])
        for action in strategy.solution.actions]
