# SPDX-License-Identifier: Apache-2.0

import unittest

from secondary_scheduler.model.reports import PolicyState
from secondary_scheduler.policies import language, triggers

MID = {'25': '7', '20': '6', '15': '5', '10': '4', '8': '3', '6': '2'}


def trigger(text='cpu <= 90% for 10s', sensitivity=4):
    return triggers.Trigger(language.parse(text), sensitivity)


class TestTrigger(unittest.TestCase):

    def test_states_of_a_run_of_failed_checks(self):
        one = trigger()
        seen = [(str(one.check(95.0, True)), one.local_due)
                for _second in range(11)]
        self.assertEqual(
            [('failing', False)] * 3 + [('violated', False)] * 5
            + [('violated', True)] * 2 + [('invalid', True)], seen)
        self.assertTrue(one.invalid)
        self.assertEqual(11, one.failed)

    def test_the_threshold_itself_holds(self):
        self.assertEqual(PolicyState.HELD, trigger().check(90.0, True))

    def test_one_successful_check_resets_the_counter(self):
        one = trigger()
        for _second in range(9):
            one.check(95.0, True)
        self.assertTrue(one.violated and one.local_due)
        self.assertEqual(PolicyState.HELD, one.check(90.0, True))
        self.assertEqual((0, False, False),
                         (one.failed, one.violated, one.local_due))

    def test_primary_alone_may_use_everything(self):
        one = trigger()
        for _second in range(20):
            self.assertEqual(PolicyState.HELD, one.check(100.0, False))
        for usage in (95.0, None):
            one.check(95.0, True)
            self.assertEqual(PolicyState.HELD, one.check(usage, False))
            self.assertEqual(0, one.failed)

    def test_static_policy_is_violated_at_once(self):
        one = trigger('slots <= 2 for 10s', 4)
        self.assertEqual(PolicyState.VIOLATED, one.check(3, True))

    def test_sensitivity_is_kept_in_bounds(self):
        self.assertEqual(1, trigger(sensitivity=0).sensitivity)
        self.assertEqual(9, trigger(sensitivity=10).sensitivity)

    def test_unknown_use_fires_the_local_trigger_only(self):
        one = trigger()
        for second in range(1, 31):
            self.assertEqual(PolicyState.UNKNOWN, one.check(None, True))
            self.assertEqual(second >= 9, one.local_due)
            self.assertFalse(one.violated or one.invalid)
        self.assertEqual(9, one.failed)

    def test_unknown_use_hides_no_failure(self):
        one = trigger()
        for _second in range(10):
            one.check(95.0, True)
        one.check(None, True)
        self.assertEqual(10, one.failed)
        self.assertTrue(one.local_due)
        self.assertEqual(PolicyState.INVALID, one.check(95.0, True))

    def test_known_use_ends_a_run_of_unknown_use(self):
        one = trigger()
        for _second in range(5):
            one.check(None, True)
        self.assertEqual(PolicyState.HELD, one.check(10.0, True))
        self.assertEqual(0, one.failed)


class TestHistory(unittest.TestCase):

    def learned(self, *runs, timelimit=20, fired_after=6):
        history = triggers.FailureRuns()
        for one in runs:
            history.note(one, fired_after)
        return history.sensitivity(6, timelimit)

    def test_sensitivity_outlasts_nine_runs_in_ten(self):
        self.assertEqual(6, self.learned(*[1] * 7))     # too few
        self.assertEqual(2, self.learned(*[1] * 8))
        self.assertEqual(2, self.learned(*[1] * 9, 5))
        self.assertEqual(6, self.learned(*[1] * 8, 5, 5))

    def test_half_of_the_time_limit_is_left_to_operations(self):
        self.assertEqual(4, self.learned(*[7] * 8, timelimit=8))
        self.assertEqual(1, self.learned(*[7] * 8, timelimit=3))

    def test_runs_that_operations_may_have_ended_do_not_count(self):
        self.assertEqual(3, self.learned(*[2] * 8, *[8, 30] * 20))
        self.assertEqual(8, self.learned(*[7] * 8))

    def test_old_runs_are_forgotten(self):
        self.assertEqual(2, self.learned(*[5] * 40, *[1] * 40))

    def run_of(self, one, failed, ends_by=(80.0, True)):
        for _check in range(failed):
            one.check(95.0, True)
        one.check(*ends_by)

    def test_sensitivity_adapts_between_runs(self):
        policy = language.parse('cpu <= 90% for 20s')
        one = triggers.Trigger(policy, 3, triggers.FailureRuns())
        for _run in range(8):
            self.assertEqual(3, one.sensitivity)
            self.run_of(one, 4)
        self.assertEqual(5, one.sensitivity)
        for _run in range(9):   # ended by the departure of secondaries
            self.run_of(one, 2, (95.0, False))
        self.assertEqual(5, one.sensitivity)
        slots = triggers.Trigger(language.parse('slots <= 3'), 3,
                                 triggers.FailureRuns())
        for _run in range(9):
            slots.check(4.0, True)
            slots.check(3.0, True)
        self.assertEqual(1, slots.sensitivity)


class TestSensitivity(unittest.TestCase):

    def test_sensitivity_is_that_of_the_table(self):
        for timelimit, checks in MID.items():
            self.assertEqual(int(checks), triggers.sensitivity_for(
                int(timelimit), MID))

    def test_sensitivity_is_interpolated_between_time_limits(self):
        wanted = {3: 2, 12: 4, 13: 5, 23: 7, 100: 7}
        self.assertEqual(wanted, {
            one: triggers.sensitivity_for(one, MID) for one in wanted})

    def test_sensitivity_is_always_below_the_local_trigger(self):
        for timelimit in range(3, 40):
            for table in (MID, {5: 90}, {5: 0}, {5: -3, 9: 4}):
                self.assertTrue(1 <= triggers.sensitivity_for(
                    timelimit, table) <= timelimit - 1)

    def test_unreadable_table_is_rejected(self):
        for table in ({}, {'ten': '4'}, {'10': 'four'}, {'10': None}):
            with self.assertRaisesRegex(ValueError, 'trigger_sensitivity'):
                triggers.sensitivity_for(10, table)
