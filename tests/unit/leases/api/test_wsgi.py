# SPDX-License-Identifier: Apache-2.0

"""Tests of the entry points of the service."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).parents[4]


class EntryPointTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = pathlib.Path(directory.name, 'lease.conf')
        self.file.write_text(
            '[secondary_lease_api]\nauth_strategy = noauth\n'
            f'database_url = sqlite:///{directory.name}/l.sqlite\n')

    def test_development_server_answers(self):
        process = subprocess.Popen(
            [sys.executable, '-m', 'secondary_scheduler.cmd.lease_api',
             '--port', '0', '--sync', '--config-file', self.file], cwd=ROOT,
            stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        url = next(line for line in process.stdout
                   if line.startswith('secondary-lease-api: ')).split()[1]
        with urllib.request.urlopen(urllib.request.Request(
                f'{url}/leases', headers={'X-Auth-Token': 'a:p'})) as answer:
            self.assertEqual(b'{"leases": [], "leases_links": []}',
                             answer.read())

    def test_wsgi_module_is_sufficient_and_light(self):
        # The service does not import packages of the scheduler.
        done = subprocess.run(
            [sys.executable, '-c', '''
import sys, webob
from secondary_scheduler.leases.api import wsgi
print(webob.Request.blank('/').get_response(wsgi.application).status,
      sorted({'numpy', 'nova', 'watcher', 'openstack'} & set(sys.modules)))
'''], cwd=ROOT, capture_output=True, text=True,
            env={'OS_SECONDARY_LEASE_CONFIG': str(self.file),
                 'PYTHONPATH': ':'.join(sys.path)})
        self.assertEqual('200 OK []\n', done.stdout, done.stderr)
