# SPDX-License-Identifier: Apache-2.0

"""Tests of ``secondary-scheduler-status upgrade check``."""

import contextlib
import io
import json
import os
import tempfile
import unittest

from oslo_upgradecheck import upgradecheck

from secondary_scheduler.cmd import status
from secondary_scheduler.model import vocabulary
from tests.unit.cmd import fakes

GOOD = """
[secondary_scheduler]
policy = cpu <= 90% for 10s
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
available_filters = secondary_scheduler.nova.filters.all_filters
enabled_filters = ComputeFilter,SecondaryPolicyFilter
weight_classes = secondary_scheduler.nova.weights.all_weighers
"""


class StatusTest(unittest.TestCase):

    def setUp(self):
        self.cloud = fakes.Cloud()
        self.cloud.placement.add(
            'child', parent=self.cloud.root,
            uid=vocabulary.child_provider_uuid(self.cloud.root))

    def check(self, text=GOOD, connect=None):
        """Return the exit code and {check: (result, details)}."""
        with tempfile.NamedTemporaryFile('w', suffix='.conf',
                                         delete=False) as config:
            config.write(text)
        self.addCleanup(os.unlink, config.name)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = status.main(
                ['--config-file', config.name, 'upgrade', 'check', '--json'],
                connect=connect or (lambda: self.cloud))
        return code, {
            one['check']: (one['result'], one['details'] or '')
            for one in json.loads(out.getvalue())['checks']}

    def found(self, check, code, words, *arguments, **options):
        worst, results = self.check(*arguments, **options)
        self.assertEqual(code, results[check][0], results)
        self.assertGreaterEqual(worst, int(code))
        self.assertIn(words, results[check][1])

    def test_applier_with_few_workers_is_a_failure(self):
        for text, code, words in (
                ('', 0, 'Not checked'),
                ('[watcher_applier]\nworkers = 3\n', 0, ''),
                ('[watcher_applier]\nworkers = 2\n', 2, 'Set it to 3'),
                ('[watcher_applier]\nworkers = many\n', 2, 'many'),
                ('[watcher_applier]\nworkflow_engine = secondary\n', 2,
                 'workers is "1",')):
            self.found('Workers of the applier', upgradecheck.Code(code),
                       words, GOOD + text)

    def test_unreadable_placement_constraints_are_a_failure(self):
        with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
            option = f'[secondary_watcher]\nconstraints_file = {file.name}\n'
            for text, code in (('- root: {leases: [a]}', 0), ('- sp: {}', 2)):
                file.seek(0)
                file.truncate()
                file.write(text)
                file.flush()
                self.found('Placement constraints', upgradecheck.Code(code),
                           'entry 1.sp: is not known' if code else '',
                           GOOD + option)

    def test_all_checks_succeed(self):
        code, results = self.check()
        self.assertEqual(0, code, results)
        self.assertEqual(10, len(results))

    def test_faulty_or_missing_policies_are_reported(self):
        self.found('Policies', upgradecheck.Code.FAILURE, 'column 8',
                   GOOD.replace('90%', 'lots'))
        self.found('Policies', upgradecheck.Code.WARNING, 'no policy',
                   GOOD.replace('policy =', 'other ='))

    def test_missing_filter_is_a_failure(self):
        self.found('Filter', upgradecheck.Code.FAILURE, 'enabled_filters',
                   GOOD.replace(',SecondaryPolicyFilter', ''))
        self.found('Filter', upgradecheck.Code.FAILURE, 'available_filters',
                   GOOD.replace('secondary_scheduler.nova.filters', 'x'))

    def test_missing_weighers_are_a_failure(self):
        self.found('Weighers', upgradecheck.Code.FAILURE, 'weight_classes',
                   GOOD.replace('weight_classes', 'x'))
        self.found('Weighers', upgradecheck.Code.WARNING, 'true',
                   GOOD + 'track_instance_changes = false\n')

    def test_deprecated_option_names_are_listed(self):
        for text, words in (
                ('[secondary_watcher]\nfloored_bound = 9\n',
                 'line 10: [secondary_watcher] floored_bound is now '
                 '[secondary_watcher] floor_time_limit.'),
                ('[secondary_watcher]\nagents-first: true\n',
                 'agents-first is now [secondary_watcher] '
                 'leave_dynamic_policies_to_agents.')):
            with self.subTest(text):
                self.found('Option names', upgradecheck.Code.WARNING, words,
                           GOOD + text)

    def test_only_set_options_of_ours_count_as_deprecated(self):
        for text in ('[secondary_watcher]\n#floored_bound = 9\n',
                     '[secondary_watcher]\nfloor_time_limit = 9\n',
                     '[other]\nfloored_bound = 9\n',
                     '[other]\nvalue = a\n floored_bound = 9\n'):
            with self.subTest(text):
                code, results = self.check(GOOD + text)
                self.assertEqual(0, code, results)

    def test_every_deprecated_name_is_listed(self):
        renamed = status.deprecated_names()
        self.assertLessEqual({('secondary_watcher', 'floored_bound'),
                              ('secondary_watcher', 'agents_first')},
                             renamed.keys())
        text = ''.join(f'[{group}]\n{name} = 1\n'
                       for group, name in renamed)
        _, results = self.check(GOOD + text)
        details = results['Option names'][1]
        for (group, name), new in renamed.items():
            self.assertIn(f'[{group}] {name} is now {new}', details)

    def test_ill_formed_flavor_is_a_failure(self):
        self.cloud.compute.add('half',
                               extra_specs={vocabulary.MARKER: 'true'})
        self.found('Flavors', upgradecheck.Code.FAILURE, 'half')

    def test_missing_providers_are_a_warning(self):
        self.cloud.placement.providers.popitem()
        self.found('Resource providers', upgradecheck.Code.WARNING,
                   'host enable')

    def test_hosts_with_dedicated_cpus_only_are_named(self):
        for name, inventories, named in (
                ('pinned.example', {'PCPU': (8, 0)}, True),
                ('both.example', {'PCPU': (8, 0), 'VCPU': (8, 0)}, False),
                ('shared.example', {'VCPU': (8, 0)}, False),
                ('empty.example', {'PCPU': (8, 0), 'VCPU': (0, 0)}, True)):
            root = self.cloud.placement.add(name, **inventories)
            self.cloud.placement.add(
                name + '_secondary', parent=root,
                uid=vocabulary.child_provider_uuid(root))
            _, results = self.check()
            code, details = results['Dedicated CPUs']
            self.assertEqual(named, name in details)
            self.assertEqual(upgradecheck.Code.WARNING, code)

    def test_cpu_affinity_on_hosts_with_dedicated_cpus_only_is_named(self):
        root = self.cloud.placement.add('pinned.example', PCPU=(8, 0))
        self.cloud.placement.add(
            'pinned_secondary', parent=root,
            uid=vocabulary.child_provider_uuid(root))
        for option, named in (('cpu-affinity = pool', True),
                              ('cpu_affinity = none', False), ('', False)):
            _, results = self.check(f'{GOOD}[secondary_agent]\n{option}\n')
            self.assertIs(named, 'affinity "pool"'
                          in results['Dedicated CPUs'][1])

    def test_unreadable_workload_profiles_are_a_failure(self):
        option = '[secondary_agent]\ncpu_affinity_profiles = '
        with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
            for value, words in ((2.0, ''), (0.5, 'time_sharing[a][a]')):
                file.seek(0)
                file.truncate()
                json.dump({'classes': ['a'], 'uses': {'a': {'cpu': 50}},
                           'time_sharing': [[value]]}, file)
                file.flush()
                self.found('Workload profiles', upgradecheck.Code(
                    2 if words else 0), words, GOOD + option + file.name)
        self.found('Workload profiles', upgradecheck.Code.FAILURE,
                   '/missing.json', GOOD + option + '/missing.json')

    def test_dedicated_cpus_of_hosts_not_enabled_do_not_count(self):
        self.cloud.placement.add('other.example', PCPU=(8, 0))
        code, results = self.check()
        self.assertEqual(0, code, results)

    def test_checks_that_need_an_unreachable_cloud_are_warnings(self):
        def connect():
            raise OSError('no route')
        for check in ('Flavors', 'Resource providers', 'Dedicated CPUs'):
            self.found(check, upgradecheck.Code.WARNING, 'no route',
                       connect=connect)
