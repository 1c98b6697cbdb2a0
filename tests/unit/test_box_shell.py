# SPDX-License-Identifier: Apache-2.0

"""Commands of the one-machine cloud that would get in each other's way."""

import importlib
from unittest import mock

from tests.unit.test_box_cgroups import BoxTestCase


class UseTest(BoxTestCase):

    def test_box_in_use_is_not_stopped(self):
        shell = importlib.import_module('shell')
        path = str(self.folder / 'use.lock')
        with mock.patch.object(shell, '_use_lock', lambda: path):
            with shell.in_use(), shell.in_use(), self.assertRaisesRegex(
                    shell.BoxError, 'a demo or tests run on the box'):
                shell.check_unused()
            shell.check_unused()
