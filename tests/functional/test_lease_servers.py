# SPDX-License-Identifier: Apache-2.0

"""A lease's servers have what their owner asks for, on Nova's own harness.

``nova_leases.py`` runs in a process of its own.
"""

import tempfile
import unittest

from tests.functional import test_stock_behaviour


class LeaseServersTest(unittest.TestCase):

    def test_a_batch_job_of_a_new_user(self):
        with tempfile.TemporaryDirectory() as directory:
            ran = test_stock_behaviour.run(
                'Leases.test_a_batch_job', 0, directory, 'nova_leases.py',
                'Leases.test_a_network_has_to_be_named')
            output = ran.communicate(
                timeout=test_stock_behaviour.PATIENCE)[0]
        self.assertEqual(0, ran.returncode, output[-5000:])
