# SPDX-License-Identifier: Apache-2.0

"""Base of tests of the experiments with leases."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from secondary_scheduler.cmd import manage
from secondary_scheduler.simulation.experiments import (
    haizea_reservations,
    leases,
)


def measured(document):
    return {name: one['measured']
            for name, one in document['figures'].items()}


class HaizeaTest(unittest.TestCase):

    def setUp(self):
        """Write jobs for a day of a busy site, and large reservations."""
        opened = tempfile.TemporaryDirectory()
        self.addCleanup(opened.cleanup)
        self.data = pathlib.Path(opened.name)
        folder = self.data / leases.FOLDER
        reserved = folder / 'injected_leases/30days'
        reserved.mkdir(parents=True)
        (folder / leases.TRACE).write_text('\n'.join(
            f'{job} {900 * job} 0 {600 + 997 * job % 5000} '
            f'{20 + 31 * job % 90} 0 -1 {20 + 31 * job % 90} '
            f'{1800 + 997 * job % 7200} -1 1 {job % 5} 1 1 1 1 -1 -1'
            for job in range(1, 61)))
        for name in haizea_reservations.TABLE:
            share, hours, _ = name.split('_')
            (reserved / f'work_{share}-dur_{hours}-size_2medium.lwf'
             ).write_text(''.join(
                 f'0 {start} 3600 3600 100 1 1024 0 NONE 600\n'
                 for start in range(9000, 50_000, 8000)))

    def simulate(self, name, *arguments, code=0, data=None):
        """Return the printed document, or the message of an error."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            got = manage.main(['simulate', 'run', name, '--data',
                               str(data or self.data), '--format', 'json',
                               *map(str, arguments)])
        self.assertEqual(code, got, err.getvalue())
        return err.getvalue() if code else json.loads(out.getvalue())
