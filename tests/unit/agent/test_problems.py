# SPDX-License-Identifier: Apache-2.0

import unittest

from secondary_scheduler.agent import problems


class ProblemsTest(unittest.TestCase):
    def setUp(self):
        self.now, self.logged = 0.0, []
        self.problems = problems.Problems(
            lambda uuid, why: self.logged.append((uuid, why)),
            lambda: self.now)

    def note(self, why, after):
        self.now += after
        self.problems.note('one', why)

    def test_short_problem_is_not_logged(self):
        self.note('no group', 0)
        self.assertEqual({'one': 'no group'}, self.problems.present())
        self.problems.clear('one')
        self.note('no group', problems.LOG_DELAY_S)
        self.assertEqual([], self.logged)

    def test_lasting_problem_is_logged_once(self):
        for after in (0, 1, problems.LOG_DELAY_S, 1, 60):
            self.note('no group', after)
        self.assertEqual([('one', 'no group')], self.logged)
        for after in (1, problems.LOG_DELAY_S):
            self.note('no controller', after)
        self.assertEqual(('one', 'no controller'), self.logged[-1])

    def test_other_guests_are_forgotten(self):
        self.note('no group', 0)
        self.problems.forget_others(['two'])
        self.assertNotIn('one', self.problems)
        self.assertEqual({}, self.problems.present())
