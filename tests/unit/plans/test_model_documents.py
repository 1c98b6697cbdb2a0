# SPDX-License-Identifier: Apache-2.0

"""Models of clusters as JSON documents."""

import copy
import dataclasses
import json
import unittest

from hypothesis import given

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    InFlight,
    InstanceState,
    LeaseMembers,
)
from secondary_scheduler.model.constraints import (
    Among,
    Ban,
    Fence,
    Gather,
    Lonely,
    Quarantine,
    Root,
    Split,
    Spread,
)
from secondary_scheduler.plans import model_documents
from tests.unit.decisions import worlds
from tests.unit.plans.documents import WrongDocument

MODEL = {
    'schema': 1,
    'hosts': [
        {'name': 'n1', 'usage': {'cpu': 80, 'net_out': 3.5},
         'aggregates': ['a'],
         'capacity': {'cpus': 2, 'vcpus': 4, 'memory_mb': 4096,
                      'disk_gb': 40, 'slots': 4}},
        {'name': 'n2', 'capacity': {'vcpus': 3}, 'reserved': {'vcpus': 1},
         'policies': [{'text': 'cpu <= 50% for 10s', 'failed': 2}]}],
    'policies': ['slots <= 1 for 10s', 'cpu <= 90% for 10s on aggregate:a'],
    'instances': [
        {'name': 'v1', 'host': 'n1', 'lease': 'l', 'state': 'active',
         'demand': {'vcpus': 1, 'memory_mb': 512}, 'usage': {'cpu': 11}},
        {'name': 'v2', 'host': 'n1', 'lease': 'm', 'state': 'busy',
         'demand': {'vcpus': 2}, 'priority': 7, 'group': 'g'}],
    'leases': [{'name': 'l', 'priority': 2.5},
               {'name': 'm', 'owner_priority': 6, 'waited_s': 3}],
    'in_flight': [{'kind': 'migrate', 'instance': 'v2', 'from': 'n1',
                   'to': 'n2', 'remaining_s': 2}]}

CONSTRAINTS = [
    {'kind': 'spread', 'instances': ['v1', 'v2']},
    {'kind': 'gather', 'instances': ['v1']},
    {'kind': 'lonely', 'instances': ['v1', 'v2']},
    {'kind': 'root', 'instances': ['v1']},
    {'kind': 'ban', 'instances': ['v1'], 'hosts': ['n2']},
    {'kind': 'fence', 'instances': ['v1', 'v2'], 'hosts': ['n1']},
    {'kind': 'among', 'instances': ['v1', 'v2'],
     'groups': [['n1'], ['n2']]},
    {'kind': 'split', 'groups': [['v1'], ['v2']]},
    {'kind': 'quarantine', 'hosts': ['n2']}]


def model(text):
    return model_documents.read_model(json.dumps(text))


class TestModel(unittest.TestCase):

    def test_all_fields_are_read(self):
        world = model(MODEL)
        n1, n2 = world.hosts.values()
        self.assertEqual((2, 80, {'net_out': 3.5}),
                         (n1.cpus, n1.cpu_primary, n1.usage))
        self.assertEqual(4096, n1.total[vocabulary.MEMORY_MB])
        self.assertEqual((3, None), (n2.cpus, n2.cpu_primary))
        self.assertEqual(0, n2.total[vocabulary.SLOT])
        self.assertEqual({vocabulary.VCPU: 1}, n2.reserved)
        v1, v2 = world.instances.values()
        self.assertEqual(('l', 2.5, 1, 512, 0.22),
                         (v1.lease, v1.priority, v1.vcpus, v1.memory_mb,
                          v1.cpu))
        self.assertEqual((InstanceState.BUSY, 7, 'g', None),
                         (v2.state, v2.priority, v2.anti_affinity, v2.cpu))
        self.assertEqual(
            {
                'l': LeaseMembers('l', 2.5),
                'm': LeaseMembers('m', None, 6, waited_s=3),
            },
            world.leases,
        )
        self.assertEqual((InFlight('migrate', 'v2', 'n1', 'n2', 2),),
                         world.in_flight)

    def test_policies_apply_by_scope_with_derived_counters(self):
        n1, n2 = model(MODEL).hosts.values()
        self.assertEqual(
            [('slots', 1, True, 1), ('cpu', 4, True, 4)],
            [(p.resource, p.failed, p.violated, p.sensitivity)
             for p in n1.policies])
        self.assertEqual(
            [('cpu <= 50% for 10s', 2, False, 4)],
            [(p.text, p.failed, p.violated, p.sensitivity)
             for p in n2.policies])
        fired = copy.deepcopy(MODEL)
        fired['hosts'][1]['policies'][0]['failed'] = 4
        self.assertTrue(model(fired).hosts['n2'].violated)
        calm = copy.deepcopy(MODEL)
        del calm['hosts'][0]['usage'], calm['instances'][1]
        del calm['in_flight']
        self.assertFalse(model(calm).hosts['n1'].violated)

    def test_omitted_fields_have_defaults(self):
        world = model({'schema': 1, 'hosts': [{'name': 'h', 'capacity': {}}],
                       'instances': [{'name': 'v', 'state': 'shelved'}]})
        one = world.instances['v']
        self.assertEqual((None, 'lease-v', 1, 5),
                         (one.host, one.lease, one.vcpus, one.priority))
        self.assertEqual((), world.hosts['h'].policies)

    def test_old_flags_are_read_as_states(self):
        whole = copy.deepcopy(MODEL)
        flags = {'resting': True, 'pinned': True, 'stuck': True}
        whole['instances'][0] |= flags
        whole['instances'][1] |= {'state': 'suspended', **flags}
        del whole['in_flight']
        self.assertEqual(
            [(True, True, False, True), (True, True, True, False)],
            [(one.cooling_down, one.migration_failed, one.return_failed,
              one.preempt_failed) for one in model(whole).instances.values()])

    def test_items_and_policies_on_sums(self):
        whole = copy.deepcopy(MODEL)
        whole['hosts'][0]['aggregates'] = ['a', 'b']
        whole['hosts'][1]['aggregates'] = ['b']
        whole['hosts'][1].setdefault('usage', {})['net_out'] = 40.5
        whole['policies'] += ['net_out <= 20% for 6s in aggregate:b',
                              'slots <= 9 in aggregate:a']
        whole['items'] = [{
            'name': 'uplink', 'hosts': ['n2', 'n1'], 'part': 0.1,
            'usage': {'net_out': 30}, 'policies': [
                'net_out <= 80% for 15s',
                {'text': 'slots <= 3', 'failed': 2}]}]
        world = model(whole)
        uplink, total, count = world.items.values()
        self.assertEqual(
            ('uplink', ('n1', 'n2'), 0.1, {'net_out': 30}, [False, True]),
            (uplink.name, uplink.hosts, uplink.part, uplink.usage,
             [policy.violated for policy in uplink.policies]))
        # Primaries use 3.5 and 40.5, 22 on average.
        self.assertEqual(
            ('net_out <= 20% for 6s in aggregate:b', ('n1', 'n2'), 0.5,
             {'net_out': 22.0}, True),
            (total.name, total.hosts, total.part, total.usage,
             total.violated))
        self.assertEqual((('n1',), {}, False),
                         (count.hosts, count.usage, count.violated))
        self.assertEqual(('n2', total.name, 'uplink'), world.places('n2'))
        self.assertEqual(world.items, model(
            model_documents.write_model(world)).items)

    def test_fields_of_a_context_switch_are_read_and_written(self):
        whole = copy.deepcopy(MODEL)
        whole['hosts'][0]['held'] = {'vcpus': 1, 'slots': 2}
        whole['instances'][0] |= {'wanted': 1.5, 'running_s': 60}
        whole['leases'][0] |= {'age_s': 90, 'guaranteed': True}
        world = model(whole)
        self.assertEqual({vocabulary.VCPU: 1, vocabulary.SLOT: 2},
                         world.hosts['n1'].held)
        v1, v2 = world.instances.values()
        self.assertEqual((1.5, 60, None, None), (
            v1.wanted_cpu, v1.running_s, v2.wanted_cpu, v2.running_s))
        self.assertEqual(
            [(90, True), (None, False)],
            [(one.age_s, one.guaranteed) for one in world.leases.values()])
        again = model(model_documents.write_model(world))
        self.assertEqual(
            (world.hosts['n1'].held, world.instances, world.leases),
            (again.hosts['n1'].held, again.instances, again.leases))

    def test_predictions_are_read_and_written(self):
        whole = copy.deepcopy(MODEL)
        whole['hosts'][0]['arrivals'] = {'web': {'slowdown': 1.5,
                                                 'harm': 0.25}}
        whole['instances'][0]['workload_class'] = 'web'
        world = model(whole)
        self.assertEqual({'web': (1.5, 0.25)}, world.hosts['n1'].arrivals)
        self.assertEqual('web', world.instances['v1'].workload_class)
        again = model(model_documents.write_model(world))
        self.assertEqual((world.hosts, world.instances),
                         (again.hosts, again.instances))

    def test_constraints_are_read_and_written(self):
        world = model({**MODEL, 'constraints': CONSTRAINTS})
        both, v1 = frozenset({'v1', 'v2'}), frozenset({'v1'})
        n1, n2 = frozenset({'n1'}), frozenset({'n2'})
        self.assertEqual(
            (Spread(both), Gather(v1), Lonely(both), Root(v1), Ban(v1, n2),
             Fence(both, n1), Among(both, (n1, n2)),
             Split((v1, frozenset({'v2'}))), Quarantine(n2)),
            world.constraints)
        self.assertEqual(
            CONSTRAINTS, model_documents.write_model(world)['constraints'])

    @given(worlds.clusters())
    def test_written_model_is_read_back(self, world):
        text = json.dumps(model_documents.write_model(world))
        again = model_documents.read_model(text)
        full = dataclasses.replace(world, hosts={
            name: dataclasses.replace(host, total={
                one: host.total.get(one, 0)
                for one in vocabulary.RESOURCE_CLASSES})
            for name, host in world.hosts.items()})
        self.assertEqual(full, again)
        self.assertEqual(text, json.dumps(model_documents.write_model(again)))

    def test_use_is_an_amount_of_the_measured_host(self):
        sizes = {'large': {'cpus': 64, 'memory_mb': 8192, 'net_out': 1250},
                 'small': {'vcpus': 4, 'memory_mb': 1024, 'mem': 2048,
                           'net_out': 125}}
        world = model({
            'schema': 1, 'policies': [
                'cpu <= 50% for 10s', 'net_out <= 50% for 9s in aggregate:a',
                'disk_in <= 15% for 9s'],
            'hosts': [{'name': name, 'capacity': capacity,
                       'aggregates': ['a'], 'usage': {
                           'cpu': 40, 'net_out': used, 'disk_in': 9}}
                      for (name, capacity), used in zip(
                          sizes.items(), (40, 95), strict=True)],
            'instances': [
                {'name': f'v{place}', 'host': place, 'state': (
                    'shelved' if place is None else 'active'), 'usage': {
                        'cpu': 11, 'mem': 25, 'net_out': 1, 'disk_in': 8,
                        'pressure': 5}} for place in (*sizes, None)]})
        alike = {'disk_in': 8, 'pressure': 5}
        self.assertEqual(
            [(7.04, {'mem': 2048, 'net_out': 12.5, **alike}),
             (0.44, {'mem': 512, 'net_out': 1.25, **alike}),
             (7.04, {'mem': 2048, 'net_out': 12.5, **alike})],
            [(one.cpu, one.usage) for one in world.instances.values()])
        self.assertEqual([True, True], [
            [policy.violated for policy in host.policies] == [True, True]
            for host in world.hosts.values()])
        total, = world.items.values()
        # Primaries use 500 and 118.75 MB/s of 1375.
        self.assertEqual((45.0, 1375.0), (
            total.usage['net_out'], world.capacity(total.name, 'net_out')))
        self.assertFalse(total.violated)
        again = model(model_documents.write_model(world))
        self.assertEqual((world.hosts, world.instances, world.items),
                         (again.hosts, again.instances, again.items))

    def test_hosts_without_sizes_are_equal(self):
        world = model({'schema': 1, 'instances': [
            {'name': 'v', 'host': 'a', 'state': 'active',
             'usage': {'cpu': 30}}], 'hosts': [
                 {'name': name, 'capacity': {}} for name in 'ab']})
        self.assertEqual(30.0, world.percent(
            'b', 'cpu', world.instances['v']))

    def test_written_leases_are_read_back(self):
        world = model(MODEL)
        again = model(model_documents.write_model(world))
        self.assertEqual(world.instances, again.instances)
        self.assertEqual(world.leases, again.leases)
        self.assertEqual(world.in_flight, again.in_flight)
        some = dataclasses.replace(world, leases={'l': LeaseMembers('l')})
        self.assertEqual(LeaseMembers('m', 7), model(
            model_documents.write_model(some)).leases['m'])


class TestWrong(WrongDocument):
    """Errors name the field and the expected value."""

    def test_each_fault_is_named(self):
        host, vm = ('hosts', 0), ('instances', 0)
        for path, value, *words in (
                (('schema',), 2, 'schema: expected the version 1, not 2'),
                ((*host, 'capacity', 'net_in'), 125,
                 'hosts[1].capacity.net_in: is missing', 'MB/s'),
                ((*host, 'capacity', 'mem'), -1, 'capacity.mem: expected'),
                (('schema',), None, 'schema: is missing'),
                (('hosts',), {}, 'hosts: expected a list, not {}'),
                (('hosts',), None, 'hosts: is missing'),
                (('colour',), 'red', 'colour: is not known', 'hosts'),
                ((*host, 'name'), '', 'hosts[0].name: expected a text'),
                ((*host, 'name'), 'n2', 'hosts[1].name', 'own', '"n2"'),
                ((*host, 'capacity'), None, 'hosts[0].capacity: is missing'),
                ((*host, 'capacity', 'vcpus'), '4',
                 'hosts[0].capacity.vcpus: expected a whole number', '"4"'),
                ((*host, 'capacity', 'gpus'), 4,
                 'hosts[0].capacity.gpus: is not known', 'vcpus'),
                ((*host, 'capacity', 'cpus'), True, 'a number from 0'),
                (('hosts', 1, 'reserved', 'vcpus'), -1, 'from 0 to', 'not -1'),
                (('hosts', 1, 'reserved', 'ram'), 1, 'reserved.ram: is not'),
                ((*host, 'usage', 'cpu'), 101, 'usage.cpu', '0 to 100'),
                ((*host, 'usage', 'CPU'), 10,
                 'hosts[0].usage.CPU: is not known; expected only cpu, mem'),
                ((*host, 'usage', 'slots'), 1, 'usage.slots: is not known'),
                ((*host, 'name'), 'n\ud800', 'hosts[0].name', '\\ud800'),
                ((*host, 'n\ud800'), 1, 'hosts[0].n\\ud800: is not known'),
                ((*host, 'capacity', 'vcpus'), 10**400, '1000000000000, not'),
                ((*vm, 'usage', 'disk'), 1, 'instances[0].usage.disk'),
                ((*host, 'usable'), 1, 'true or false'),
                (('items',), [{'name': 'n1', 'hosts': ['n1']}],
                 'items[0].name: expected a name that no host has'),
                (('items',), [{'name': 's', 'hosts': ['n9']}],
                 'items[0].hosts: expected names of hosts'),
                (('items',), [{'name': 's', 'hosts': [], 'policies': ['x']}],
                 'items[0].policies[0]: column 1'),
                ((*host, 'aggregates'), [1], 'hosts[0].aggregates[0]'),
                ((*host, 'policies'), [{'text': 'cpu'}],
                 'hosts[0].policies[0].text: column', 'cpu <= 90%'),
                ((*host, 'policies'), [{'text': 'slots <= 1', 'fail': 1}],
                 'hosts[0].policies[0].fail: is not known'),
                ((*host, 'policies'), ['cpu <= 90% for 9s'], 'an object'),
                (('policies', 1), 'net <= 3', 'policies[1]: column 1',
                 'cpu, mem, net_in'),
                (('policies', 0), 3, 'policies[0]: expected a text'),
                ((*vm, 'state'), 'up', 'instances[0].state', 'active'),
                ((*vm, 'host'), 'n9', 'instances[0].host', 'n9'),
                ((*vm, 'lease'), 'k', 'instances[0].lease', 'in leases'),
                ((*vm, 'demand', 'vcpus'), 1.5, 'demand.vcpus', 'whole'),
                ((*vm, 'demand', 'cpus'), 1, 'demand.cpus: is not known'),
                ((*vm, 'preempt_policy'), 'kill', 'suspend, shelve'),
                ((*vm, 'colour'), 1, 'instances[0].colour: is not known'),
                ((*vm, 'name'), 'v2', 'instances[1].name', 'again'),
                (('leases', 0, 'owner_priority'), 11, '1 to 10'),
                (('leases', 0, 'size'), 2, 'leases[0].size: is not known'),
                (('leases', 1, 'name'), 'l', 'leases[1].name'),
                (('in_flight', 0, 'instance'), 'v1', 'busy'),
                (('in_flight', 0, 'instance'), 'v9', 'in instances'),
                (('in_flight', 0, 'to'), 'n9', 'in_flight[0].to', 'hosts'),
                (('in_flight', 0, 'kind'), 'move', 'migrate')):
            self.rejects(model, MODEL, path, value, *words)

    def test_each_fault_of_constraints_is_named(self):
        whole = {**MODEL, 'constraints': CONSTRAINTS}
        ban, among, split = (('constraints', one) for one in (4, 6, 7))
        for path, value, *words in (
                (('constraints',), {}, 'constraints: expected a list'),
                ((*ban, 'kind'), 'affinity', 'constraints[4].kind',
                 'spread, gather, ban, fence, among, lonely, split, root, '
                 'quarantine'),
                ((*ban, 'instances'), None,
                 'constraints[4].instances: is missing'),
                ((*ban, 'instances'), [], 'constraints[4].instances',
                 'at least one'),
                ((*ban, 'instances'), ['v9'],
                 'constraints[4].instances[0]: expected a name in instances',
                 'v9'),
                ((*ban, 'hosts'), ['n1', 7],
                 'constraints[4].hosts[1]: expected a name in hosts, not 7'),
                ((*ban, 'groups'), [['n1']],
                 'constraints[4].groups: is not known', 'hosts'),
                ((*among, 'groups'), [['n1'], 'n2'],
                 'constraints[6].groups[1]: expected a list of names of '
                 'hosts'),
                ((*among, 'groups'), [['n1'], ['v1']],
                 'constraints[6].groups[1][0]: expected a name in hosts'),
                ((*among, 'groups'), [['n1'], ['n2', 'n1']],
                 'constraints[6].groups[1]: expected hosts that are in no '
                 'other group'),
                ((*split, 'groups'), [], 'constraints[7].groups',
                 'at least one group of instances'),
                ((*split, 'groups'), [[]], 'constraints[7].groups[0]',
                 'at least one of instances'),
                ((*split, 'instances'), ['v1'],
                 'constraints[7].instances: is not known')):
            self.rejects(model, whole, path, value, *words)

    def test_each_fault_of_a_context_switch_is_named(self):
        for path, value, *words in (
                (('hosts', 0, 'held'), {'ram': 1},
                 'hosts[0].held.ram: is not known', 'vcpus'),
                (('hosts', 0, 'held'), {'vcpus': -1},
                 'hosts[0].held.vcpus: expected a whole number'),
                (('instances', 0, 'wanted'), '1', 'instances[0].wanted'),
                (('instances', 0, 'running_s'), -1, 'instances[0].running_s'),
                (('leases', 0, 'age_s'), True, 'leases[0].age_s'),
                (('leases', 0, 'guaranteed'), 1, 'leases[0].guaranteed',
                 'true or false')):
            self.rejects(model, MODEL, path, value, *words)

    def test_other_texts_are_rejected(self):
        self.rejects_other_texts(model_documents.read_model)
