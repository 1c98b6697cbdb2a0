# SPDX-License-Identifier: Apache-2.0

"""Hosts that have nothing of a resource take nothing that uses it."""

import contextlib
import dataclasses
import io
import json
import pathlib
import tempfile
import unittest

from hypothesis import given
from hypothesis import strategies as st

from benchmarks import constant_loads
from secondary_scheduler.cmd import optimised_plans, plan
from secondary_scheduler.decisions.base import (
    Budget,
    DecisionRequest,
    SwitchOptions,
)
from secondary_scheduler.decisions.context_switch import (
    ContextSwitchDecision,
)
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.provisioning import ProvisioningDecision
from secondary_scheduler.estimation.room import capacity
from secondary_scheduler.model.cluster import HostPolicy
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.model_documents import read_model, write_model
from secondary_scheduler.plans.operations import Operation, OperationKind, Plan
from secondary_scheduler.reading.fields import DocumentError
from tests.unit.decisions.worlds import (
    CAPACITIES,
    cluster,
    cpu_policy,
    host,
    vm,
)

#: Capacities in documents that may be 0.  Instances that are down hold their
#: part of the last three already where they return.
NEEDED, CLAIMED = ('cpus', 'mem', 'memory_mb'), ('vcpus', 'disk_gb', 'slots')
RATES = ('net_in', 'net_out', 'disk_in', 'disk_out')


def plans(world):
    """Yield the plans of all decisions for a cluster."""
    for decision in (GuidedDecision(), ContextSwitchDecision(),
                     ProvisioningDecision()):
        for kind in ('preempt', 'return', 'drain', 'select'):
            if kind == 'select' and not isinstance(
                    decision, ContextSwitchDecision):
                continue
            yield decision.decide(
                world, DecisionRequest(kind, tuple(world.hosts)[:1]
                                       if kind == 'drain' else ()),
                Budget(2000))
    yield optimised_plans.select_leases(
        world, SwitchOptions(minimum_run_s=0.0), Budget(2000))


def model(**lacking):
    """Return a document of a crowded host and one that lacks something."""
    instances = [{
        'name': name, 'host': 'n1', 'state': 'active',
        'demand': {'vcpus': 1, 'memory_mb': 1024},
        'usage': {'cpu': 20.0}} for name in 'ab']
    full = {'cpus': 4, 'vcpus': 8, 'memory_mb': 8192, 'disk_gb': 40,
            'slots': 8}
    return {'schema': 1, 'policies': ['cpu <= 80% for 10s'], 'hosts': [
        {'name': 'n1', 'capacity': full, 'usage': {'cpu': 75.0}},
        {'name': 'n2', 'capacity': {**full, **lacking},
         'usage': {'cpu': 0}}], 'instances': instances}


class TestProperties(unittest.TestCase):

    @given(st.integers(0, 2**32), st.sampled_from([*NEEDED, *CLAIMED]),
           st.booleans())
    def test_nothing_is_placed_where_a_capacity_is_0(
            self, seed, lacking, every):
        document = constant_loads.draw_model(seed)
        bare = set()
        for one in document['hosts'] if every else document['hosts'][:1]:
            one['capacity'][lacking] = 0
            bare.add(one['name'])
        world = read_model(json.dumps(document))
        self.assertEqual(world, read_model(json.dumps(write_model(world))))
        if lacking == 'cpus':
            self.assertFalse(any(
                policy.violated for name in bare
                for policy in world.hosts[name].policies
                if policy.resource == 'cpu'))
        for found in plans(world):
            self.assertEqual([], checker.check(world, found))
            for one in found.operations:
                if one.target in bare and (
                        lacking in NEEDED or one.source != one.target):
                    self.fail(f'{one} to a host without {lacking}')

    @given(st.integers(0, 2**32), st.sampled_from(RATES))
    def test_nothing_that_uses_a_link_is_placed_without_one(
            self, seed, lacking):
        document = constant_loads.draw_model(seed)
        document['policies'].append(f'{lacking} <= 80% for 10s')
        world = read_model(json.dumps(document))
        first = next(iter(world.hosts.values()))
        world = dataclasses.replace(world, hosts={
            **world.hosts, first.name: dataclasses.replace(
                first, capacities={**first.capacities, lacking: 0.0},
                policies=tuple(dataclasses.replace(
                    one, failed=0, violated=False)
                    if one.resource == lacking else one
                    for one in first.policies))})
        for found in plans(world):
            self.assertEqual([], checker.check(world, found))
            self.assertFalse([
                one for one in found.operations if one.target == first.name
                and world.instances[one.instance].usage.get(lacking)])


class TestZeroCapacity(unittest.TestCase):

    def decide(self, document):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, 'model.json')
            path.write_text(json.dumps(document))
            printed, said = io.StringIO(), io.StringIO()
            with (contextlib.redirect_stdout(printed),
                  contextlib.redirect_stderr(said)):
                code = plan.run('plan_decide', {
                    'model': str(path), 'algorithm': 'guided',
                    'budget': 1000, 'request': 'preempt'})
        return code, printed.getvalue(), said.getvalue()

    def test_host_without_cpus_or_memory_takes_no_instance(self):
        for name in NEEDED:
            code, printed, _said = self.decide(model(**{name: 0}))
            self.assertEqual(0, code)
            self.assertEqual(
                [('suspend', 'a'), ('suspend', 'b')],
                [(one['kind'], one['instance'])
                 for one in json.loads(printed)['operations']], name)

    def test_checker_refuses_a_host_without_cpus_or_memory(self):
        for name, missing in (('cpus', 'CPUs'), ('mem', 'memory')):
            found = checker.check(
                read_model(json.dumps(model(**{name: 0}))), Plan((Operation(
                    1, OperationKind.MIGRATE, 'a', 'lease-a', 'n1', 'n2',
                    0.0, 5.0),)))
            self.assertIn(f'host n2 has no {missing}', found[0])

    def test_rate_of_0_is_refused_by_its_name(self):
        for name in RATES:
            code, printed, said = self.decide(model(**{name: 0}))
            self.assertEqual((2, ''), (code, printed))
            self.assertIn(f'hosts[1].capacity.{name}: 0 is not above 0', said)

    def test_rate_that_only_one_host_gives_is_missing_elsewhere(self):
        with self.assertRaisesRegex(DocumentError, r'hosts\[0\]\.capacity\.'
                                    'net_in: is missing'):
            read_model(json.dumps(model(net_in=1000)))

    def test_percentage_of_nothing_is_unknown(self):
        bare = host('h', 0.0, cpus=0.0)
        world = cluster(bare, vm('v', 'h', cpu=1.0), host('other'))
        self.assertIsNone(bare.primary_use('cpu'))
        self.assertEqual(0, capacity(bare, 10.0, 1.0))
        self.assertFalse(world.is_open('h'))
        self.assertTrue(world.is_open('other'))
        found = read_model(json.dumps({
            **model(), 'hosts': [
                {'name': name, 'capacity': {'cpus': 0, 'vcpus': 8},
                 'usage': {'cpu': 90}} for name in ('n1', 'n2')]}))
        self.assertFalse(found.violated)
        self.assertIsNone(found.instances['a'].cpu)

    def test_all_of_nothing_does_not_count_as_too_much_of_a_whole(self):
        policy = HostPolicy('net_in', 'net_in', 100.0, 9)
        world = cluster(
            host('hot', 85.0, True), vm('v', 'hot', cpu=10.0, usage={
                'net_in': 1.0}),
            host('bare', 0.0, policies=(cpu_policy(), policy), usage={
                'net_in': 0.0}, capacities={**CAPACITIES, 'net_in': 0.0}))
        for found in plans(world):
            self.assertNotIn('bare', [one.target for one in found.operations])
        self.assertTrue(checker.check(world, Plan((Operation(
            1, OperationKind.MIGRATE, 'v', 'lease-v', 'hot', 'bare', 0.0,
            5.0),))))


class TestRight(unittest.TestCase):
    """Inputs that were decided rightly before."""

    def suspended(self, document):
        world = read_model(json.dumps(document))
        found = GuidedDecision().decide(
            world, DecisionRequest('preempt'), Budget())
        self.assertEqual([], checker.check(world, found))
        self.assertEqual({'suspend'}, {
            str(one.kind) for one in found.operations} or {'suspend'})
        return [one.instance for one in found.operations]

    def test_closed_overcommitted_and_reserved_hosts_are_no_targets(self):
        closed, alone, reserved, overcommitted = (model() for _one in 'abcd')
        for one in closed['hosts']:
            one['usable'] = False
        alone['hosts'].pop()
        reserved['hosts'][1]['reserved'] = {
            'memory_mb': 999999, 'vcpus': 99, 'slots': 99}
        overcommitted['hosts'][1]['capacity'] = {
            'cpus': 4, 'vcpus': 1, 'memory_mb': 512, 'slots': 1}
        overcommitted['instances'] += [
            {**one, 'name': name, 'host': 'n2'} for name, one in zip(
                'cd', overcommitted['instances'], strict=True)]
        for document in (closed, alone, reserved, overcommitted):
            self.assertEqual(['a', 'b'], self.suspended(document))

    def test_model_without_hosts_has_an_empty_plan(self):
        self.assertEqual([], self.suspended({
            'schema': 1, 'hosts': [], 'instances': [],
            'policies': ['cpu <= 80% for 10s']}))

    def test_costs_scale_with_memory_beyond_31_bits(self):
        for seed in range(4):
            costs = set()
            for unit in (512, 512 * 2**24):
                document = _scaled_model(seed, unit)
                found = optimised_plans.select_leases(
                    read_model(json.dumps(document)),
                    SwitchOptions(minimum_run_s=0.0), Budget(2000))
                costs.add((found.switch.value / unit, found.switch.status))
            self.assertEqual(1, len(costs), costs)


def _scaled_model(seed, unit):
    """Return a model whose instances have multiples of a unit of memory."""
    document = constant_loads.draw_model(seed)
    for one in document['hosts']:
        one['capacity'] |= {'memory_mb': 32 * unit, 'slots': 16}
    for number, one in enumerate(document['instances']):
        one['demand']['memory_mb'] = (1, 2, 4, 8)[number % 4] * unit
    return document
