"""The status check, from a file as an operator has it."""

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

    def test_all_is_well(self):
        code, results = self.check()
        self.assertEqual(0, code, results)
        self.assertEqual(6, len(results))

    def test_policies(self):
        self.found('Policies', upgradecheck.Code.FAILURE, 'column 8',
                   GOOD.replace('90%', 'lots'))
        self.found('Policies', upgradecheck.Code.WARNING, 'no policy',
                   GOOD.replace('policy =', 'other ='))

    def test_filter(self):
        self.found('Filter', upgradecheck.Code.FAILURE, 'enabled_filters',
                   GOOD.replace(',SecondaryPolicyFilter', ''))
        self.found('Filter', upgradecheck.Code.FAILURE, 'available_filters',
                   GOOD.replace('secondary_scheduler.nova.filters', 'x'))

    def test_weighers(self):
        self.found('Weighers', upgradecheck.Code.FAILURE, 'weight_classes',
                   GOOD.replace('weight_classes', 'x'))
        self.found('Weighers', upgradecheck.Code.WARNING, 'true',
                   GOOD + 'track_instance_changes = false\n')

    def test_flavors(self):
        self.cloud.compute.add('half',
                               extra_specs={vocabulary.MARKER: 'true'})
        self.found('Flavors', upgradecheck.Code.FAILURE, 'half')

    def test_providers(self):
        self.cloud.placement.providers.popitem()
        self.found('Resource providers', upgradecheck.Code.WARNING,
                   'host enable')

    def test_dedicated_cpus_without_shared_ones(self):
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

    def test_dedicated_cpus_of_a_host_without_secondaries(self):
        self.cloud.placement.add('other.example', PCPU=(8, 0))
        code, results = self.check()
        self.assertEqual(0, code, results)

    def test_no_cloud(self):
        def connect():
            raise OSError('no route')
        for check in ('Flavors', 'Resource providers', 'Dedicated CPUs'):
            self.found(check, upgradecheck.Code.WARNING, 'no route',
                       connect=connect)
