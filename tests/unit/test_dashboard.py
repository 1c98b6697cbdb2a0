# SPDX-License-Identifier: Apache-2.0

"""Tests of the dashboard's panels, in an environment with Horizon."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Environment of "tools/box up --horizon".
BOX = pathlib.Path(os.environ.get('BOX_DIR', '/var/tmp/secondary-box'))


def horizon_python() -> str | None:
    """Return a Python that has Horizon and what the tests need."""
    if all(importlib.util.find_spec(name)
           for name in ('openstack_dashboard', 'requests_mock')):
        return sys.executable
    found = BOX / 'horizon/bin/python'
    return str(found) if found.exists() else None


class DashboardTest(unittest.TestCase):

    def test_tests_of_the_panels_pass_in_horizon(self) -> None:
        python = horizon_python()
        if python is None:
            self.skipTest('Horizon is not installed: "tox -e dashboard" and '
                          '"python3 tools/box up --horizon" install it')
        done = subprocess.run(
            [python, '-m', 'django', 'test', 'secondary_dashboard',
             '--settings=secondary_dashboard.test.settings'],
            cwd=ROOT, capture_output=True, text=True,
            env={**os.environ, 'PYTHONPATH': str(ROOT),
                 'PYTHONDONTWRITEBYTECODE': '1'})
        self.assertEqual(0, done.returncode, done.stderr[-3000:])
        self.assertIn('OK', done.stderr)


if __name__ == '__main__':
    unittest.main()
