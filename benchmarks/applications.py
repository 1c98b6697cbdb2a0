# SPDX-License-Identifier: Apache-2.0

"""Generator of instances in the manner of BtrPlace's benchmark.

A data centre has nodes in racks, and applications of three tiers with 2 to 10
VMs each (Hermenier, Lawall and Muller, BtrPlace, IEEE TDSC 2013).  Sizes and
loads are those of the published instances.  Two families of events:

* ``li``: a tenth of the applications want more CPU.
* ``nr``: a twentieth of the nodes fail, and their VMs are to run elsewhere.

With ``spread``, VMs of a tier are on different nodes.  With ``among``, those
of the last tier, a database, are in one rack.  The placement keeps all
constraints.  The result is a document for the reader in ``btrplace.py``.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
import dataclasses
import itertools
import operator
import random
import typing

from secondary_scheduler.reading.values import InputError

FAMILIES = ('li', 'nr')
KINDS = ('spread', 'among')

NODE_CPU, NODE_MEMORY = 200, 1600
RACK = 250
TIERS = 3
TIER_SIZES = range(2, 11)
TEMPLATE_CPU = (30, 40, 50, 60)
TEMPLATE_MEMORY = (100, 200, 300)
#: CPU that a VM uses, as a part of its template's.
USED = (0.25, 0.8)
#: Parts of applications that want more CPU, and of nodes that fail.
WANTING, FAILING = 0.10, 0.05
#: CPU that they want, as a multiple of their use.
MORE = 1.57
#: Nodes that are drawn for a VM before an instance is given up.
DRAWS = 10_000


@dataclasses.dataclass
class _Vm:
    number: int
    cpu: int
    most: int
    memory: int
    node: int


def make_document(family: str, ratio: int, hosts: int, kinds: Collection[str],
                  seed: int) -> dict[str, typing.Any]:
    """Return an instance as a document in BtrPlace's JSON format.

    The same seed gives the same VMs and events with and without constraints.

    :param family: ``li`` or ``nr``
    :param ratio: VMs for each node
    :param hosts: number of nodes
    :param kinds: constraints of each application, of ``KINDS``
    :raises InputError: the nodes are too few for these VMs
    """
    rng = random.Random(seed)
    racks = [list(range(first, min(first + RACK, hosts)))
             for first in range(0, hosts, RACK)]
    applications = _draw_applications(rng, ratio * hosts)
    _place(rng, applications, racks, kinds)
    vms = [vm for application in applications for tier in application
           for vm in tier]
    listed = [*_placement_constraints(applications, racks, kinds)]
    failed: set[int] = set()
    if family == 'li':
        wanting = rng.sample(applications, max(
            1, round(WANTING * len(applications))))
        listed += ({'id': 'preserve', 'vm': vm.number, 'rc': 'uCpu',
                    'amount': min(vm.most, round(MORE * vm.cpu))}
                   for application in wanting for tier in application
                   for vm in tier)
    else:
        failed.update(rng.sample(range(hosts), max(
            1, round(FAILING * hosts))))
        listed += ({'id': 'running', 'vm': vm.number} for vm in vms
                   if vm.node in failed)
        listed += ({'id': 'offline', 'node': node}
                   for node in sorted(failed))
    return {'model': _model(vms, hosts, failed), 'constraints': listed}


def _draw_applications(rng: random.Random, vms: int
                       ) -> list[list[list[_Vm]]]:
    """Return applications as lists of tiers, with as many VMs in all."""
    numbers = itertools.count()
    found: list[list[list[_Vm]]] = []
    left = vms
    while left:
        used = rng.uniform(*USED)
        application = []
        for _tier in range(TIERS):
            size = min(left, rng.choice(TIER_SIZES))
            left -= size
            most = rng.choice(TEMPLATE_CPU)
            memory = rng.choice(TEMPLATE_MEMORY)
            application.append([
                _Vm(next(numbers), round(used * most), most, memory, -1)
                for _vm in range(size)])
        found.append([tier for tier in application if tier])
    return found


def _place(rng: random.Random, applications: list[list[list[_Vm]]],
           racks: Sequence[Sequence[int]], kinds: Collection[str]) -> None:
    """Set the node of each VM."""
    cpu: dict[int, int] = defaultdict(int)
    memory: dict[int, int] = defaultdict(int)
    nodes = [node for rack in racks for node in rack]
    for tier, is_last in ((tier, tier is application[-1])
                          for application in applications
                          for tier in application):
        near = rng.choice(racks)
        choice = near if is_last and 'among' in kinds else nodes
        taken: set[int] = set()
        for vm in tier:
            for _draw in range(DRAWS):
                node = rng.choice(choice)
                if (node not in taken
                        and cpu[node] + vm.cpu <= NODE_CPU
                        and memory[node] + vm.memory <= NODE_MEMORY):
                    break
            else:
                raise InputError('no node for a VM: expected more hosts, or a '
                                 'smaller ratio')
            vm.node = node
            cpu[node] += vm.cpu
            memory[node] += vm.memory
            if 'spread' in kinds:
                taken.add(node)


def _placement_constraints(
        applications: list[list[list[_Vm]]], racks: Sequence[Sequence[int]],
        kinds: Collection[str]) -> typing.Iterator[dict[str, typing.Any]]:
    for application in applications:
        for tier in application:
            vms = [vm.number for vm in tier]
            if 'spread' in kinds and len(vms) > 1:
                yield {'id': 'spread', 'vms': vms, 'continuous': True}
        if 'among' in kinds:
            yield {'id': 'among', 'vms': vms, 'parts': racks,
                   'continuous': True}


def _model(vms: Sequence[_Vm], hosts: int, failed: Collection[int]
           ) -> dict[str, typing.Any]:
    online: dict[str, dict[str, list[int]]] = {
        str(node): {'runningVMs': [], 'sleepingVMs': []}
        for node in range(hosts) if node not in failed}
    ready = []
    for vm in vms:
        if vm.node in failed:
            ready.append(vm.number)
        else:
            online[str(vm.node)]['runningVMs'].append(vm.number)
    return {
        'mapping': {'readyVMs': ready, 'offlineNodes': sorted(failed),
                    'onlineNodes': online},
        'attributes': {},
        'views': [
            {'id': 'shareableResource', 'rcId': name,
             'defCapacity': capacity, 'defConsumption': 0, 'nodes': {},
             'vms': {str(vm.number): amount(vm) for vm in vms}}
            for name, capacity, amount in (
                ('uCpu', NODE_CPU, operator.attrgetter('cpu')),
                ('memory', NODE_MEMORY, operator.attrgetter('memory')))]}
