# SPDX-License-Identifier: Apache-2.0

"""Tests of ``secondary-scheduler plan``: decide and check on files."""

import configparser
import contextlib
import copy
import functools
import importlib
import io
import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from secondary_scheduler.cmd import manage
from secondary_scheduler.decisions import base, guided, violations
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.plans import model_documents
from secondary_scheduler.policies import language
from tests.unit.decisions import worked_example

SETUP = pathlib.Path(__file__).parents[3] / 'setup.cfg'


def drivers():
    """Return the decision drivers in setup.cfg, by name."""
    config = configparser.ConfigParser()
    config.read(SETUP)
    lines = config['entry_points'][base.NAMESPACE].strip().splitlines()
    found = {}
    for line in lines:
        name, _equals, path = line.partition(' = ')
        module, _colon, attribute = path.partition(':')
        found[name] = getattr(importlib.import_module(module), attribute)
    return found


class PlanTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.world = worked_example.cluster()
        self.model = self.write(
            'model.json', model_documents.write_model(self.world))
        patch = mock.patch(
            'secondary_scheduler.cmd.plan.algorithms', drivers)
        patch.start()
        self.addCleanup(patch.stop)

    def write(self, name, document):
        path = self.folder / name
        path.write_text(json.dumps(document))
        return str(path)

    def run_plan(self, code, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            got = manage.main(('plan', *arguments), connect=self.fail)
        self.assertEqual(code, got, out.getvalue() + err.getvalue())
        return out.getvalue() if code < 2 else err.getvalue()

    def decided(self, *more, algorithm='guided'):
        return json.loads(self.run_plan(
            0, 'decide', self.model, '--algorithm', algorithm, *more))

    def test_plans_of_every_algorithm_pass_the_check(self):
        self.assertEqual({'context-switch', 'guided', 'provisioning'},
                         set(drivers()))
        for name, driver in drivers().items():
            self.assertTrue(issubclass(driver, base.Decision))
            for request in 'preempt', 'return':
                made = self.decided('--request', request, algorithm=name)
                again = self.decided('--request', request, algorithm=name)
                self.assertEqual(made, again)
                self.assertIn('good', self.run_plan(
                    0, 'check', self.model, self.write('p.json', made)))

    def test_violation_of_every_resource_is_relieved(self):
        for resource in language.MODELLED:
            counted = resource in language.STATIC
            most = 1 if counted else 90
            usage = {'cpu': 10, **({} if counted else {resource: 30})}
            world = {
                'schema': 1,
                'policies': [f'{resource} <= {most}'
                             + ('' if counted else '% for 10s'),
                             'cpu <= 90% for 10s'],
                'hosts': [
                    {'name': name, 'capacity': {'vcpus': 9, 'slots': 9},
                     'usage': {'cpu': used,
                               **({} if counted else {resource: used})}}
                    for name, used in (('full', 50), ('free', 20))],
                'instances': [
                    {'name': name, 'host': 'full', 'state': 'active',
                     'usage': usage} for name in 'ab']}
            for algorithm in 'guided', 'context-switch':
                with self.subTest(resource=resource, algorithm=algorithm):
                    model = self.write('m', world)
                    made = self.run_plan(0, 'decide', model, '--algorithm',
                                         algorithm)
                    self.assertEqual(
                        [('migrate', 'free')],
                        [(one['kind'], one['to']) for one in json.loads(
                            made)['operations']])
                    pathlib.Path(self.folder / 'p').write_text(made)
                    self.run_plan(0, 'check', model, str(self.folder / 'p'))

    def sized(self, *hosts, instances):
        """Write a model of hosts: (CPUs, percent used by primaries)."""
        return self.write('sizes.json', {
            'schema': 1, 'policies': ['cpu <= 90% for 60s'],
            'hosts': [{'name': f'n{cpus}', 'usage': {'cpu': used},
                       'capacity': {'cpus': cpus, 'vcpus': 99, 'slots': 9,
                                    'memory_mb': 9999}}
                      for cpus, used in hosts],
            'instances': [{'name': 'v', 'host': host, 'state': 'active',
                           'usage': {'cpu': used}}
                          for host, used in instances.items()]})

    def test_usage_is_converted_between_hosts_of_different_size(self):
        # 8 % of 64 CPUs are 128 % of 4; 45 % of 4 are 2.8 % of 64.
        for hosts, instances, kind, good in (
                (((64, 85), (4, 10)), {'n64': 8}, ('suspend', None), False),
                (((4, 60), (64, 50)), {'n4': 45}, ('migrate', 'n64'), True)):
            model = self.sized(*hosts, instances=instances)
            for algorithm in 'guided', 'context-switch':
                made = self.run_plan(0, 'decide', model, '--algorithm',
                                     algorithm)
                one, = json.loads(made)['operations']
                self.assertEqual(kind, (one['kind'], one['to']))
                pathlib.Path(self.folder / 'p').write_text(made)
                self.run_plan(0, 'check', model, str(self.folder / 'p'))
            one |= {'kind': 'migrate', 'to': f'n{hosts[1][0]}'}
            text = self.run_plan(0 if good else 1, 'check', model, self.write(
                'moves', {'schema': 1, 'operations': [one]}))
            self.assertIn('The plan is good' if good else (
                'leaves 3.2 CPUs on host n4, of which instances from hosts '
                'of another size use 5.12 CPUs'), text)

    def test_strict_limits_on_hosts_of_different_size(self):
        strict = functools.partial(
            guided.GuidedDecision, LoadLimits(0.0, 0.0, 0.0),
            profile=violations.CostProfile(preempts=False))
        with mock.patch('secondary_scheduler.cmd.plan.algorithms',
                        lambda: {'strict': strict}):
            for hosts, instances, target in (
                    (((4, 60), (64, 50)), {'n4': 45}, ['n64']),
                    (((64, 85), (4, 10)), {'n64': 8}, [])):
                made = json.loads(self.run_plan(
                    0, 'decide', self.sized(*hosts, instances=instances),
                    '--algorithm', 'strict'))
                self.assertEqual(
                    target, [one['to'] for one in made['operations']])

    def test_models_of_an_external_folder(self):
        folder = pathlib.Path(os.environ.get('SECONDARY_TEST_INPUTS', '/-'))
        if not folder.is_dir():
            self.skipTest('SECONDARY_TEST_INPUTS names no folder')
        for name, kinds in (
                ('B17-satisfied', []), ('B17-hotspot', ['migrate'] * 8),
                ('B17-three-hosts', ['migrate']),
                ('B17-two-moves', ['migrate'] * 2),
                ('B18-group-of-one', ['migrate'] * 2),
                ('B18-group-of-four', ['suspend']),
                ('N06-model', ['migrate'])):
            with self.subTest(name):
                model = str(folder / f'{name}.json')
                made = self.run_plan(0, 'decide', model, '--algorithm',
                                     'guided')
                self.assertEqual(kinds, [one['kind'] for one in json.loads(
                    made)['operations']])
                pathlib.Path(self.folder / 'p').write_text(made)
                self.run_plan(0, 'check', model, str(self.folder / 'p'))

    def test_exhausted_budget_truncates_the_plan(self):
        self.assertFalse(self.decided()['truncated'])
        self.assertTrue(self.decided('--budget', '1')['truncated'])

    def test_first_fault_is_printed_in_words(self):
        made = self.decided()
        bad = copy.deepcopy(made)
        bad['operations'][0]['instance'] = 'VM99'
        text = self.run_plan(1, 'check', self.model, self.write('p', bad))
        self.assertEqual(1, text.count('\n'))
        self.assertIn('the instance is unknown', text)

    def test_unknown_algorithm_names_the_known_ones(self):
        text = self.run_plan(2, 'decide', self.model, '--algorithm', 'magic')
        self.assertIn('no algorithm magic', text)
        self.assertIn('context-switch, guided, provisioning', text)

    def test_bad_input_is_explained(self):
        self.assertIn('No such file', self.run_plan(
            2, 'decide', '/nowhere/x.json', '--algorithm', 'guided'))
        self.assertIn('hosts: is missing', self.run_plan(
            2, 'decide', self.write('x', {'schema': 1, 'instances': []}),
            '--algorithm', 'guided'))
        self.assertIn('operations: is missing', self.run_plan(
            2, 'check', self.model, self.write('p', {'schema': 1})))
        path = self.folder / 'latin'
        path.write_bytes(b'{"\xe4": 1}')
        self.assertIn('UTF-8', self.run_plan(2, 'check', str(path), str(path)))

    def test_model_is_read_from_standard_input(self):
        text = pathlib.Path(self.model).read_text()
        with mock.patch('sys.stdin', io.TextIOWrapper(
                io.BufferedReader(io.BytesIO(text.encode())))):
            self.assertTrue(json.loads(self.run_plan(
                0, 'decide', '-', '--algorithm', 'guided'))['operations'])

    def batch(self, **hosts):
        """Write a model of three hosts with one lease too many."""
        return self.write('batch.json', {
            'schema': 1, 'policies': ['cpu <= 100% for 10s'],
            'hosts': [{'name': name, 'usage': {'cpu': 0}, 'usable': usable,
                       'capacity': {'cpus': 1.1, 'vcpus': 9, 'slots': 9,
                                    'memory_mb': 2048}}
                      for name, usable in {'n1': True, 'n2': True,
                                           'n3': True, **hosts}.items()],
            'leases': [{'name': 'j1', 'priority': 9},
                       {'name': 'j2', 'priority': 8}],
            'instances': [
                {'name': name, 'host': host, 'lease': lease, 'wanted': 1,
                 'state': 'active', 'demand': {'memory_mb': 512}}
                for name, host, lease in (
                    ('a', 'n1', 'j1'), ('b', 'n2', 'j1'),
                    ('c', 'n3', 'j2'), ('d', 'n3', 'j2'))]})

    def optimised(self, model, *arguments):
        return json.loads(self.run_plan(0, 'optimise', model, *arguments))

    def test_optimised_plan_states_its_cost_and_passes_the_check(self):
        model = self.batch()
        for objective, cost in (('cost', 1024), ('span', 512),
                                ('memory', 1024), ('time', 4)):
            made = self.optimised(model, '--objective', objective)
            self.assertEqual(
                ['suspend'] * 2, [one['kind'] for one in made['operations']])
            self.assertEqual(cost, made['switch']['value'])
            self.assertIn(made['switch']['status'], ('optimal', 'within'))
            self.assertEqual(made['switch']['bound'], made['score']['bound'])
            self.assertIn('good', self.run_plan(
                0, 'check', model, self.write('p.json', made)))

    def test_optimised_drain_clears_unusable_hosts(self):
        made = self.optimised(self.batch(n1=False), '--request', 'drain')
        self.assertEqual({'c', 'd', 'a'}, {
            one['instance'] for one in made['operations']})
        self.assertEqual([], made['unresolved'])

    def test_cheaper_plan_to_the_same_states(self):
        model = self.batch()
        made = self.optimised(model)
        given = self.write('p.json', made)
        self.assertEqual(made['operations'], self.optimised(
            model, '--plan', given)['operations'])
        made = {'schema': 1, 'operations': [
            {'id': 1, 'kind': 'suspend', 'instance': 'c', 'lease': 'j2',
             'from': 'n3', 'start_s': 0, 'duration_s': 3, 'after': []}]}
        self.assertIn('half of lease j2', self.run_plan(
            1, 'optimise', model, '--plan', self.write('bad.json', made)))
        made['operations'] = [
            {'id': number, 'kind': 'stop', 'instance': one, 'lease': 'j2',
             'from': 'n3', 'start_s': 2 * number, 'duration_s': 2,
             'after': []} for number, one in enumerate('cd')]
        self.assertIn('loses work', self.run_plan(
            2, 'optimise', model, '--plan', self.write('stop.json', made)))

    def test_unknown_objective_names_the_known_ones(self):
        self.assertIn('there are: cost, span, memory, time', self.run_plan(
            2, 'optimise', self.batch(), '--objective', 'best'))

    def test_bad_arguments_end_with_code_2(self):
        for arguments in (('decide',), ('check', self.model), (
                'decide', self.model, '--algorithm', 'guided', '--budget',
                '-1'), ()):
            with self.assertRaises(SystemExit) as ended, \
                    contextlib.redirect_stderr(io.StringIO()):
                manage.main(('plan', *arguments))
            self.assertEqual(2, ended.exception.code)

    def test_help_describes_models_and_plans(self):
        for arguments in ((), ('decide',), ('optimise',), ('check',)):
            out = io.StringIO()
            with self.assertRaises(SystemExit) as ended, \
                    contextlib.redirect_stdout(out):
                manage.main(('plan', *arguments, '--help'))
            self.assertEqual(0, ended.exception.code)
            self.assertGreater(len(out.getvalue()), 400)


class InstalledTest(unittest.TestCase):

    def test_algorithms_are_the_installed_drivers(self):
        from secondary_scheduler.cmd import plan
        self.assertIn('guided', plan.algorithms())
