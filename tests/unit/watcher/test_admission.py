# SPDX-License-Identifier: Apache-2.0

"""Admission of hosts as operators see it."""

import unittest

from secondary_scheduler.watcher import admission
from tests.unit.watcher import fakes


def find_admission(report=None, expected=None, **changes):
    return admission.find_admission(fakes.host('h1', **changes), report,
                                    expected)


class AdmissionTest(unittest.TestCase):

    def test_open_host_has_no_reason(self):
        for expected in (None, 'x'):
            self.assertEqual(('open', ''), find_admission(
                fakes.report('h1'), expected))

    def test_first_reason_is_the_one_to_act_on(self):
        report = fakes.report('h1', admission=False, reason='full')
        for state, says, found in (
                ('closed', 'host enable h1', find_admission(
                    report, disabled=True)),
                ('closed', 'CONTINUOUS', find_admission(
                    report, switched_off=True)),
                ('unknown', 'does not answer Nova', find_admission(
                    report, 'y', unreachable=True, up=False)),
                ('closed', 'host enable h1', find_admission(
                    report, unreachable=True, disabled=True)),
                ('closed', 'nova-compute', find_admission(None, up=False)),
                ('unknown', 'no fresh report', find_admission()),
                ('closed', 'other policies', find_admission(report, 'y')),
                ('closed', 'full', find_admission(report, 'x')),
                ('closed', 'Placement', find_admission(
                    fakes.report('h1'), reserved=fakes.TOTAL))):
            with self.subTest(says):
                self.assertEqual(state, found[0])
                self.assertIn(says, found[1])
