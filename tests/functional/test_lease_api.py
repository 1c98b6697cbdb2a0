# SPDX-License-Identifier: Apache-2.0

"""The lease service keeps to its description, as schemathesis sees it.

It tries what tests/unit/leases/api/test_fuzz.py does not: methods, headers,
media types, and sequences of requests that refer to each other.
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]


@unittest.skipUnless(importlib.util.find_spec('schemathesis'),
                     'schemathesis is not installed')
class Description(unittest.TestCase):

    def start(self, directory):
        """Start the service; return its URL."""
        file = pathlib.Path(directory, 'lease.conf')
        file.write_text(
            '[secondary_lease_api]\nauth_strategy = noauth\n'
            'quota_leases = -1\nquota_nodes = -1\nquota_quotes = -1\n'
            f'database_url = sqlite:///{directory}/leases.sqlite\n')
        server = subprocess.Popen(
            [sys.executable, '-m', 'secondary_scheduler.cmd.lease_api',
             '--port', '0', '--sync', '--config-file', file], cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        return next(line for line in server.stdout
                    if line.startswith('secondary-lease-api: ')).split()[1]

    def test_each_answer_is_as_described(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        done = subprocess.run(
            [sys.executable, '-m', 'schemathesis.cli', 'run',
             f'{self.start(directory.name)}/openapi.json',
             '-H', 'X-Auth-Token: alice:p1',
             '-H', 'OpenStack-API-Version: secondary-lease latest',
             '--checks', 'all',
             # That a start is in the future, a marker is there, and terms do
             # not contradict each other, is more than a schema can say.
             '--exclude-checks', 'positive_data_acceptance',
             # How fast requests are drawn is a matter of the machine's load.
             '--suppress-health-check', 'too_slow',
             '--max-examples', '50', '--seed', '1'],
            cwd=directory.name, capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn('Tested: 19', done.stdout)
