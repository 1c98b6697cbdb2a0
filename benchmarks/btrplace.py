# SPDX-License-Identifier: Apache-2.0

"""Reader of instances of BtrPlace's benchmark, with their constraints.

A document is what BtrPlace's JSON converters write: a model with nodes, VMs
and resources, and constraints.  Each VM is a lease of its own.

* Memory and CPU are bounded on each node.  The demand of a VM is what
  ``preserve`` wants it to have.
* VMs that are ready wait for a place, unless ``ready`` keeps them so.
* Nodes that are offline stay so, and have no part in the cluster.
* The nine placement constraints that this project knows too are taken over.
  A discrete one becomes a continuous one, which is stricter: it holds at
  every instant, and so in the end.
* All other constraints are counted as ignored.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
import pathlib
import typing

from benchmarks.clusters import static_host
from secondary_scheduler.model import constraints
from secondary_scheduler.model.cluster import (
    Cluster,
    Instance,
    InstanceState,
    LeaseMembers,
)
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.reading import fields, files
from secondary_scheduler.reading.values import InputError

#: Resources of the benchmark that are taken over.
CPU, MEMORY = 'uCpu', 'memory'


class Loaded(typing.NamedTuple):
    """Cluster of a document.

    :param ignored: number of constraints without a counterpart, by their id
    """

    cluster: Cluster
    ignored: dict[str, int]


def read_file(path: pathlib.Path) -> Loaded:
    """Read an instance from a file, which may be compressed.

    :raises InputError: naming the file, the field and the expected value
    """
    text = files.read_document(path)
    try:
        return read_document(fields.load(text))
    except InputError as exc:
        raise InputError(f'{path}: {exc}') from None


def read_document(document: fields.Fields) -> Loaded:
    """Return the cluster of a document.

    :raises InputError: naming the field and the expected value
    """
    reader = _Reader()
    reader.read_mapping(document.object('model'))
    for one in document.objects('constraints'):
        reader.read_constraint(one)
    return Loaded(reader.build(), dict(reader.ignored))


class _Reader:
    """What is known of a document so far; names are the ids as texts."""

    def __init__(self) -> None:
        self.online: dict[str, None] = {}
        self.offline: set[str] = set()
        self.states: dict[str, tuple[InstanceState, str | None]] = {}
        self.queued: dict[str, None] = {}
        self.capacity: dict[str, dict[str, int]] = {}
        self.demand: dict[str, dict[str, int]] = {}
        self.constraints: dict[constraints.Constraint, None] = {}
        self.ignored: Counter[str] = Counter()
        self._sets: dict[tuple[object, ...], frozenset[str]] = {}
        self._groups: dict[tuple[int, ...], tuple[frozenset[str], ...]] = {}

    def read_mapping(self, model: fields.Fields) -> None:
        """Read the nodes, the VMs and their resources."""
        mapping = model.object('mapping')
        self.offline.update(map(str, mapping.wholes('offlineNodes')))
        for vm in mapping.wholes('readyVMs'):
            self.states[str(vm)] = InstanceState.SHELVED, None
            self.queued[str(vm)] = None
        online = mapping.object('onlineNodes')
        for node in online.names:
            self.online[node] = None
            there = online.object(node)
            for name, state in (('runningVMs', InstanceState.ACTIVE),
                                ('sleepingVMs', InstanceState.SUSPENDED)):
                for vm in there.wholes(name):
                    self.states[str(vm)] = state, node
        for view in model.objects('views'):
            if 'rcId' in view.names:
                self._read_resource(view)
        for name in (CPU, MEMORY):
            if name not in self.demand:
                raise InputError(f'model.views: expected the resource {name}')

    def _read_resource(self, view: fields.Fields) -> None:
        name = view.text('rcId')
        for all_names, attribute, default in (
                (self.online, 'nodes', 'defCapacity'),
                (self.states, 'vms', 'defConsumption')):
            usual = view.whole(default, default=0)
            given = view.object(attribute)
            amounts = {one: given.whole(one, default=usual)
                       for one in all_names}
            (self.capacity if attribute == 'nodes'
             else self.demand)[name] = amounts

    def read_constraint(self, one: fields.Fields) -> None:
        """Read a constraint, or count it as ignored."""
        kind = one.text('id')
        if kind in PLACEMENT:
            self.constraints[PLACEMENT[kind](self, one)] = None
        elif kind == 'preserve':
            self._preserve(one)
        elif not (kind in _STATES and _STATES[kind](self, one)):
            self.ignored[kind] += 1

    def _preserve(self, one: fields.Fields) -> None:
        vm, resource = self.vm(one), one.text('rc')
        amount = one.whole('amount')
        if resource in (CPU, MEMORY):
            self.demand[resource][vm] = amount
        else:
            self.ignored['preserve'] += 1

    def vm(self, one: fields.Fields) -> str:
        """Take the VM of a constraint."""
        return _known(one, 'vm', one.whole('vm'), self.states)

    def vms(self, one: fields.Fields) -> frozenset[str]:
        """Take the VMs of a constraint, which may be a single one."""
        if 'vm' in one.names:
            return frozenset({self.vm(one)})
        return self._set(one, 'vms', one.items('vms'), self.states)

    def node(self, one: fields.Fields) -> str:
        """Take the node of a constraint."""
        value = one.whole('node')
        return (str(value) if str(value) in self.offline
                else _known(one, 'node', value, self.online))

    def nodes(self, one: fields.Fields) -> frozenset[str]:
        """Take the nodes of a constraint, which may be a single one."""
        if 'node' in one.names:
            return frozenset({self.node(one)})
        return self._set(one, 'nodes', one.items('nodes'), self.online)

    def parts(self, one: fields.Fields, known: Mapping[str, object]
              ) -> tuple[frozenset[str], ...]:
        """Take the disjoint parts of a constraint.

        Equal parts are one object, since thousands of constraints have them.
        """
        found: list[frozenset[str]] = []
        parts = one.items('parts')
        for number, value in enumerate(parts):
            if not isinstance(value, list):
                one.wrong(f'parts[{number}]', 'a list of numbers', value)
            found.append(self._set(one, f'parts[{number}]', value, known))
        key = tuple(map(id, found))
        if key not in self._groups:
            if sum(map(len, found)) > len(frozenset().union(*found)):
                one.wrong('parts', 'parts without a common element', parts)
            self._groups[key] = tuple(found)
        return self._groups[key]

    def _set(self, one: fields.Fields, name: str, values: list[object],
             known: Mapping[str, object]) -> frozenset[str]:
        key = (known is self.states, *map(str, values))
        if key not in self._sets:
            offline = self.offline if known is self.online else ()
            self._sets[key] = frozenset(
                _known(one, f'{name}[{number}]', value, known)
                for number, value in enumerate(values)
                if str(value) not in offline)
        return self._sets[key]

    def build(self) -> Cluster:
        """Return the cluster."""
        instances = {vm: Instance(
            vm, f'lease-{vm}', host, state, cores, self.demand[MEMORY][vm], 0,
            cpu=float(cores), wanted_cpu=float(cores))
            for vm, (state, host) in self.states.items()
            for cores in (self.demand[CPU][vm],)}
        used: dict[str, Counter[str]] = defaultdict(Counter)
        for one in instances.values():
            if one.host is not None and one.state is InstanceState.ACTIVE:
                used[one.host] += Counter(cores=one.vcpus,
                                          memory=one.memory_mb)
        return Cluster(
            {node: static_host(node, self.capacity[CPU][node],
                               self.capacity[MEMORY][node], used[node])
             for node in self.online},
            instances,
            {lease: LeaseMembers(lease, state=LeaseState.QUEUED)
             for lease in (f'lease-{vm}' for vm in self.queued)},
            constraints=tuple(self.constraints))


def _known(one: fields.Fields, name: str, value: object,
           known: Mapping[str, object]) -> str:
    if isinstance(value, bool) or str(value) not in known:
        one.wrong(name, 'the number of an element of the model', value)
    return str(value)


def _is_running(reader: _Reader, one: fields.Fields) -> bool:
    vm = reader.vm(one)
    if reader.states[vm][0] is not InstanceState.ACTIVE:
        reader.queued[vm] = None
    return True


def _is_ready(reader: _Reader, one: fields.Fields) -> bool:
    vm = reader.vm(one)
    reader.queued.pop(vm, None)
    return reader.states[vm][0] is InstanceState.SHELVED


def _is_sleeping(reader: _Reader, one: fields.Fields) -> bool:
    return reader.states[reader.vm(one)][0] is InstanceState.SUSPENDED


def _is_online(reader: _Reader, one: fields.Fields) -> bool:
    return reader.node(one) in reader.online


def _is_offline(reader: _Reader, one: fields.Fields) -> bool:
    return reader.node(one) in reader.offline


#: Constraints on states: they are true, or will be if the VM finds a place.
_STATES: Mapping[str, Callable[[_Reader, fields.Fields], bool]] = {
    'running': _is_running, 'ready': _is_ready, 'sleeping': _is_sleeping,
    'online': _is_online, 'offline': _is_offline}

PLACEMENT: Mapping[
    str, Callable[[_Reader, fields.Fields], constraints.Constraint]] = {
    'spread': lambda reader, one: constraints.Spread(reader.vms(one)),
    'gather': lambda reader, one: constraints.Gather(reader.vms(one)),
    'lonely': lambda reader, one: constraints.Lonely(reader.vms(one)),
    'root': lambda reader, one: constraints.Root(reader.vms(one)),
    'ban': lambda reader, one: constraints.Ban(
        reader.vms(one), reader.nodes(one)),
    'fence': lambda reader, one: constraints.Fence(
        reader.vms(one), reader.nodes(one)),
    'quarantine': lambda reader, one: constraints.Quarantine(
        reader.nodes(one)),
    'among': lambda reader, one: constraints.Among(
        reader.vms(one), reader.parts(one, reader.online)),
    'split': lambda reader, one: constraints.Split(
        reader.parts(one, reader.states))}
