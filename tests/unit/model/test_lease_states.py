# SPDX-License-Identifier: Apache-2.0

"""Lease states and their transitions."""

import unittest

from secondary_scheduler.model.lease_states import (
    FINAL,
    FOLLOWS,
    IllegalTransitionError,
    LeaseState,
    check_transition,
)


class LeaseStateTest(unittest.TestCase):
    def test_final_states_have_no_successor(self):
        self.assertTrue(all(not FOLLOWS[state] for state in FINAL))
        self.assertTrue(
            all(FOLLOWS[state] for state in LeaseState if state not in FINAL)
        )

    def test_every_state_but_the_engines_can_be_reached(self):
        reached, new = set(), {LeaseState.NEW}
        while new:
            reached |= new
            new = {
                after for state in new for after in FOLLOWS[state]
            } - reached
        # The others are reported only by the engine.
        self.assertEqual(
            {LeaseState.STARTING, LeaseState.INTERRUPTED, LeaseState.UNKNOWN,
             LeaseState.ENDING, LeaseState.ERROR},
            set(LeaseState) - reached,
        )

    def test_illegal_transitions_are_refused(self):
        for before, after in (
            (LeaseState.NEW, LeaseState.ACTIVE),
            (LeaseState.NEW, LeaseState.CANCELLED),
            (LeaseState.QUEUED, LeaseState.ACTIVE),
            (LeaseState.PENDING, LeaseState.FAILED),
            (LeaseState.ACTIVE, LeaseState.SUSPENDED_PENDING),
            (LeaseState.ACTIVE, LeaseState.SCHEDULED),
            (LeaseState.SUSPENDING, LeaseState.ACTIVE),
            (LeaseState.DONE, LeaseState.QUEUED),
        ):
            with self.subTest(before=before, after=after):
                with self.assertRaisesRegex(
                    IllegalTransitionError,
                    f'lease 7 cannot become {after}: it is {before}',
                ):
                    check_transition('7', before, after)
