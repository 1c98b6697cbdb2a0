import unittest

from secondary_scheduler.model.reports import PolicyState
from secondary_scheduler.policies import language, triggers

MID = {'25': '7', '20': '6', '15': '5', '10': '4', '8': '3', '6': '2'}


def trigger(text='cpu <= 90% for 10s', sensitivity=4):
    return triggers.Trigger(language.parse(text), sensitivity)


class TestTrigger(unittest.TestCase):

    def test_a_run_of_failed_checks(self):
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

    def test_one_good_check_resets(self):
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

    def test_unknown_use_leads_to_the_local_trigger_only(self):
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

    def test_known_use_ends_the_unknown(self):
        one = trigger()
        for _second in range(5):
            one.check(None, True)
        self.assertEqual(PolicyState.HELD, one.check(10.0, True))
        self.assertEqual(0, one.failed)


class TestSensitivity(unittest.TestCase):

    def test_the_table(self):
        for timelimit, checks in MID.items():
            self.assertEqual(int(checks), triggers.sensitivity_for(
                int(timelimit), MID))

    def test_between_and_outside(self):
        wanted = {3: 2, 12: 4, 13: 5, 23: 7, 100: 7}
        self.assertEqual(wanted, {
            one: triggers.sensitivity_for(one, MID) for one in wanted})

    def test_always_before_the_local_trigger(self):
        for timelimit in range(3, 40):
            for table in (MID, {5: 90}, {5: 0}, {5: -3, 9: 4}):
                self.assertTrue(1 <= triggers.sensitivity_for(
                    timelimit, table) <= timelimit - 1)

    def test_a_table_that_cannot_be_read(self):
        for table in ({}, {'ten': '4'}, {'10': 'four'}, {'10': None}):
            with self.assertRaisesRegex(ValueError, 'trigger_sensitivity'):
                triggers.sensitivity_for(10, table)
