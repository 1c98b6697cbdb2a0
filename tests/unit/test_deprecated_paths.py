"""Module paths of the release before, which deployed files may name."""

import importlib
import importlib.util
import subprocess
import sys
import unittest

from secondary_scheduler.leases.api import wsgi
from secondary_scheduler.leases.client import client

#: Paths in nova.conf, which have not changed.
NOVA_PATHS = ('secondary_scheduler.nova.filters:all_filters',
              'secondary_scheduler.nova.filters:SecondaryPolicyFilter',
              'secondary_scheduler.nova.weights:all_weighers',
              'secondary_scheduler.nova.weights:SecondaryHeadroomWeigher')


def import_anew(name):
    """Import a module as if for the first time."""
    sys.modules.pop(name, None)
    return importlib.import_module(name)


class DeprecatedPathsTest(unittest.TestCase):

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
