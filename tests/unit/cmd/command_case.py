# SPDX-License-Identifier: Apache-2.0

"""Base class of tests of the operator's commands, on a cloud in memory."""

import contextlib
import io
import unittest
from unittest import mock

from secondary_scheduler.cmd import manage
from secondary_scheduler.model import vocabulary
from tests.unit.cmd import fakes


class CommandCase(unittest.TestCase):
    """Runs commands on a cloud in memory."""

    def setUp(self):
        self.cloud = fakes.Cloud()
        self.child = vocabulary.child_provider_uuid(self.cloud.root)
        patch = mock.patch('time.sleep')
        patch.start()
        self.addCleanup(patch.stop)

    def run_command(self, *arguments, connect=None):
        """Run a command; return its exit code and its output."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(out):
            code = manage.main(arguments, connect=connect
                               or (lambda **options: self.cloud))
        return code, out.getvalue()

    def good(self, *arguments):
        """Run a command that succeeds; return its output."""
        code, text = self.run_command(*arguments)
        self.assertEqual(0, code, text)
        return text

    def bad(self, *arguments):
        """Run a command that fails; return its output."""
        code, text = self.run_command(*arguments)
        self.assertEqual(1, code, text)
        return text

    @property
    def provider(self):
        return self.cloud.placement.providers.get(self.child)

    def inventory(self, name):
        one = self.provider['inventories'][name]
        return one['total'], one['reserved']

    def open(self, **allowed):
        """Open amounts of the inventory, as an agent does."""
        for name, amount in allowed.items():
            one = self.provider['inventories'][getattr(vocabulary, name)]
            one['reserved'] = one['total'] - amount
