# SPDX-License-Identifier: Apache-2.0

"""Module paths of the release before, which deployed files may name."""

import ast
import importlib
import importlib.util
import pathlib
import subprocess
import sys
import unittest

from secondary_scheduler.leases.api import wsgi
from secondary_scheduler.leases.client import client

PACKAGE = 'secondary_scheduler'
#: New attribute by old one, below the package.
RENAMED = {
    'agent.interference.Delays': 'agent.sensors.interference.RunDelays',
    'agent.interference.Pressure':
        'agent.sensors.interference.PressureSensor',
    'agent.interference.Resctrl': 'agent.sensors.interference.ResctrlSensor',
    'agent.interference.Steal': 'agent.sensors.interference.StealSensor',
    'agent.resources.Disk': 'agent.sensors.disk.DiskSensor',
    'agent.resources.Memory': 'agent.sensors.memory.MemorySensor',
    'agent.resources.Network': 'agent.sensors.network.NetworkSensor',
    'agent.sensors.Rates': 'agent.sensors.base.CounterRates',
    'agent.sensors.Reading': 'agent.sensors.base.Reading',
    'agent.store.Store': 'agent.store.StateStore',
    'cmd.manage.CommandError': 'cmd.console.CommandError',
    'cmd.manage.Manager': 'cmd.hosts.HostCommands',
    'cmd.manage.flavor_faults': 'cmd.flavors.flavor_faults',
    'lease_client.gantt.draw': 'leases.client.gantt.draw_chart'}
#: New attribute by old one, in Watcher.
RENAMED_IN_WATCHER = {
    f'watcher.snapshot.{old}': f'watcher.cloud_snapshot.{new}'
    for old, new in (('Server', 'NovaServer'), ('Snapshot', 'CloudSnapshot'),
                     ('ComputeHost', 'ComputeHost'))}
#: Paths in nova.conf, which have not changed.
NOVA_PATHS = ('secondary_scheduler.nova.filters:all_filters',
              'secondary_scheduler.nova.filters:SecondaryPolicyFilter',
              'secondary_scheduler.nova.weights:all_weighers',
              'secondary_scheduler.nova.weights:SecondaryHeadroomWeigher')


def import_anew(name):
    """Import a module as if for the first time."""
    sys.modules.pop(name, None)
    return importlib.import_module(name)


def renamed_attributes():
    """Return the paths of all attributes that ``find_renamed`` finds."""
    root = pathlib.Path(importlib.import_module(PACKAGE).__path__[0])
    found = set()
    for path in root.rglob('*.py'):
        module = '.'.join(path.relative_to(root).with_suffix('').parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if (isinstance(node, ast.Call)
                    and ast.unparse(node.func) == 'deprecated.find_renamed'):
                found |= {f'{module.removesuffix(".__init__")}.{one.value}'
                          for one in node.args[1].keys}
    return found


class DeprecatedPathsTest(unittest.TestCase):

    def test_all_renamed_attributes_are_tested(self):
        self.assertEqual(renamed_attributes(),
                         RENAMED.keys() | RENAMED_IN_WATCHER.keys())

    def test_wsgi_module_is_found_with_a_warning(self):
        name = 'secondary_scheduler.lease_api.wsgi'
        with self.assertWarnsRegex(DeprecationWarning, 'leases.api.wsgi'), \
                self.assertLogs(name, 'WARNING') as logged:
            old = import_anew(name)
        self.assertIs(wsgi.application, old.application)
        self.assertIn('leases.api.wsgi', logged.output[0])

    def test_wsgi_server_writes_the_warning_to_stderr(self):
        done = subprocess.run(
            [sys.executable, '-c',
             'from secondary_scheduler.lease_api.wsgi import application'],
            capture_output=True, text=True, check=True)
        self.assertIn('is deprecated', done.stderr)

    def test_client_module_is_found_with_a_warning(self):
        with self.assertWarnsRegex(DeprecationWarning,
                                   'leases.client.client'):
            old = import_anew('secondary_scheduler.lease_client.client')
        for name in old.__all__:
            self.assertIs(getattr(client, name), getattr(old, name))

    def test_renamed_attributes_are_found_with_a_warning(self):
        self.check_renamed(RENAMED)

    def check_renamed(self, renamed):
        for path, new in renamed.items():
            module, _, name = path.rpartition('.')
            place, _, attribute = new.rpartition('.')
            with self.subTest(path):
                old = importlib.import_module(f'{PACKAGE}.{module}')
                with self.assertWarnsRegex(DeprecationWarning, new):
                    found = getattr(old, name)
                self.assertIs(getattr(importlib.import_module(
                    f'{PACKAGE}.{place}'), attribute), found)
                with self.assertRaisesRegex(AttributeError, 'no_such'):
                    _ = old.no_such

    def test_renamed_attributes_of_watcher_are_found_with_a_warning(self):
        if importlib.util.find_spec('watcher') is None:
            self.skipTest('Watcher is not installed')
        self.check_renamed(RENAMED_IN_WATCHER)

    def test_paths_in_nova_conf_are_found(self):
        if importlib.util.find_spec('nova') is None:
            self.skipTest('Nova is not installed')
        for path in NOVA_PATHS:
            with self.subTest(path):
                module, _, attribute = path.partition(':')
                subprocess.run(
                    [sys.executable, '-c',
                     f'from {module} import {attribute}'],
                    capture_output=True, check=True)
