# SPDX-License-Identifier: Apache-2.0

"""``secondary-scheduler simulate swf``."""

import contextlib
import csv
import io
import json
import pathlib
import re
import tempfile
import unittest

from secondary_scheduler.cmd import manage
from secondary_scheduler.simulation.leases.figures import COLUMNS

#: Two nodes: 1 runs for 100 s of 200, 2 needs both, 3 fits beside 1.
JOBS = '\n'.join(
    f'{job} {submit} 0 {runs} {nodes} 0 -1 {nodes} {asked} -1 1 1 1 1 1 1 -1'
    ' -1'
    for job, submit, runs, nodes, asked in (
        (1, 0, 100, 1, 200),
        (2, 10, 30, 2, 50),
        (3, 20, 150, 1, 180),
    )
)
XML = """<lease-workload><site><resource-types names="CPU Memory"/>
<nodes><node-set><res type="CPU" amount="100"/></node-set></nodes></site>
<lease-requests><lease-request arrival="00:00:00"><lease id="1">
<nodes><node-set><res type="CPU" amount="100"/></node-set></nodes>
<start><exact time="01:00:00"/></start><duration time="00:01:00"/>
</lease></lease-request></lease-requests></lease-workload>"""
RESERVED = "0 400 100 100 2 1 1024 0 'NONE.img' 600\n"


class SimulateSwfTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / 'jobs.swf').write_text(JOBS)
        (self.folder / 'some.lwf').write_text(RESERVED)

    def simulate(self, *arguments):
        """Return the output and the messages of ``simulate swf``."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = manage.main(['simulate', 'swf', *map(str, arguments)])
        failed = err.getvalue().startswith('secondary-scheduler:')
        self.assertEqual(2 if failed else 0, code)
        return out.getvalue(), err.getvalue()

    def test_figures_and_table_of_leases(self):
        out, _ = self.simulate(
            self.folder / 'jobs.swf',
            '--nodes',
            2,
            '--format',
            'json',
            '--reservations',
            self.folder / 'some.lwf',
            '--profile',
            'novm-nosr',
            '--leases',
            self.folder / 'leases.csv',
        )
        document = json.loads(out)
        self.assertEqual(
            ('swf', 'novm-nosr'), (document['experiment'], document['profile'])
        )
        found = {
            name: one['measured'] for name, one in document['figures'].items()
        }
        # Lease 3 overtakes 2, which has a planned start at 200.
        self.assertEqual(200, found['all_best_effort_s'])
        self.assertAlmostEqual(
            (0 + 160 + 0) / 3,
            found['wait_mean_s'],
            delta=1e-6 * abs((0 + 160 + 0) / 3),
        )
        self.assertAlmostEqual(
            (1 + 190 / 30 + 1) / 3,
            found['bounded_slowdown_mean'],
            delta=1e-6 * abs((1 + 190 / 30 + 1) / 3),
        )
        self.assertEqual(1, found['reservations_accepted'])
        self.assertEqual(found['suspends'], found['reservations_late'])
        self.assertEqual(0, found['suspends'])
        with open(self.folder / 'leases.csv') as opened:
            rows = list(csv.DictReader(opened))
        self.assertEqual(COLUMNS, tuple(rows[0]))
        self.assertEqual(
            [
                ('1', 'best-effort', '0', '100', '0'),
                ('some-1', 'reservation', '400', '500', '0 1'),
                ('2', 'best-effort', '170', '200', '0 1'),
                ('3', 'best-effort', '20', '170', '1'),
            ],
            [
                (
                    row['lease_id'],
                    row['kind'],
                    row['start'],
                    row['end'],
                    row['hosts'],
                )
                for row in rows
            ],
        )

    def test_trace_and_reservations_may_have_the_same_ids(self):
        """Each runs for as long as it does, and the table tells them apart."""
        (self.folder / 'more.lwf').write_text(XML)
        self.simulate(
            self.folder / 'jobs.swf',
            '--nodes',
            2,
            '--reservations',
            self.folder / 'more.lwf',
            '--leases',
            self.folder / 'leases.csv',
        )
        with open(self.folder / 'leases.csv') as opened:
            ran = {
                row['lease_id']: row['ran_s'] for row in csv.DictReader(opened)
            }
        self.assertEqual(
            {'1': '100', '2': '30', '3': '150', 'more-1': '60'}, ran
        )

    def test_figures_are_printed_as_a_table(self):
        out, _ = self.simulate(self.folder / 'jobs.swf', '--nodes', 2)
        self.assertIn('all_best_effort_s', out)

    def test_invalid_input_names_the_valid_one(self):
        for arguments, says in (
            (
                ('--profile', 'unknown'),
                'there are: .*novm-nosr, novm-sr, .*predeploy',
            ),
            (
                ('--set', 'suspension=maybe'),
                "suspension: Unexpected boolean value",
            ),
            (
                ('--set', 'preemption=x'),
                'there are: least-run, most-slack, none',
            ),
            (('--set', 'x=3'), 'there is no option x; there are: backfilling'),
            (('--set', 'x'), '--set takes KEY=VALUE'),
            (('--reservations', 'nowhere.lwf'), 'nowhere.lwf: .*No such file'),
            (('--leases', '/nowhere/leases.csv'), 'No such file'),
        ):
            with self.subTest(arguments=arguments, says=says):
                _, err = self.simulate(self.folder / 'jobs.swf', *arguments)
                self.assertTrue(re.search(says, err), err)

    def test_missing_trace_is_named(self):
        _, err = self.simulate('nowhere.swf')
        self.assertIn('nowhere.swf', err)
