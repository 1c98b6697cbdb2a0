# SPDX-License-Identifier: Apache-2.0

"""Trials of secondaries, against signals whose cause is known."""

import collections
import random
import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.cpu_affinity import onsets
from secondary_scheduler.cpu_affinity.signal_evidence import (
    SignalEvidence,
    SignalRates,
)
from secondary_scheduler.cpu_affinity.suspects import (
    Reaction,
    SignalState,
    SuspectOptions,
    Suspects,
    Verdict,
)
from secondary_scheduler.reading.values import InputError

NAMES = tuple('abcdefgh')


class Host:
    """Guests, and a signal that fails as ``harmed`` says.

    :param uses: use of disks by each guest
    """

    def __init__(self, uses=None, spare_s=7, **options):
        self.suspects = Suspects(SuspectOptions(**options))
        self.uses = dict(uses or dict.fromkeys(NAMES, 1.0))
        self.spare_s = spare_s
        self.reaction = Reaction(frozenset(), False)
        self.floored_s = collections.Counter()
        self.waited_s = 0
        self.named = {}
        self.second = 0

    def seconds(self, count, harmed):
        """Let seconds pass; ``harmed(second, floored)`` is the signal."""
        for _ in range(count):
            self.second += 1
            fails = harmed(self.second, self.reaction.floored)
            self.reaction = self.suspects.step(
                SignalState(fails, self.spare_s), {
                    name: {'disk_in': use * (0.01 if name
                                             in self.reaction.floored else 1)}
                    for name, use in self.uses.items()}, self.uses)
            self.floored_s.update(self.reaction.floored)
            self.waited_s += self.reaction.waits
            for name, one in self.suspects.verdicts.items():
                if one.verdict is Verdict.CONFIRMED:
                    self.named.setdefault(name, self.second)
        return self

    def verdict(self, name):
        return self.suspects.verdicts[name].verdict


def calm(second, floored):
    return False


def failing(second, floored):
    return True


def caused_by(*names):
    """Return a signal that fails while one of some guests is not floored."""
    return lambda second, floored: bool(set(names) - floored)


class TestTrials(unittest.TestCase):

    def test_culprit_is_named_soon_and_the_innocent_are_left_alone(self):
        for calm_s in (0, 60):
            for name in NAMES:
                with self.subTest(calm_s=calm_s, name=name):
                    host = Host().seconds(calm_s, calm)
                    host.uses[name] = 30.0
                    host.seconds(30, caused_by(name))
                    self.assertEqual({name}, host.named.keys())
                    self.assertEqual({name}, host.floored_s.keys())

    def test_wrong_suspect_is_acquitted_after_the_time_of_a_trial(self):
        host = Host({'a': 1.0, 'b': 30.0}).seconds(60, calm)
        host.seconds(10, caused_by('a'))
        self.assertEqual(4, host.floored_s['b'])
        self.assertIs(Verdict.ACQUITTED, host.verdict('b'))
        self.assertIs(Verdict.TRIAL, host.verdict('a'))
        host.seconds(25, caused_by('a'))
        self.assertEqual({'a'}, host.named.keys())
        self.assertEqual(4, host.floored_s['b'])

    def test_recovery_by_chance_confirms_nothing(self):
        # The signal recovers in the trial, and does not fail again.
        host = Host().seconds(60, calm).seconds(3, failing)
        (tried,) = host.reaction.floored
        host.seconds(20, calm)
        self.assertIs(Verdict.ACQUITTED, host.verdict(tried))
        self.assertGreaterEqual(6, host.floored_s[tried])
        self.assertEqual({}, host.named)

    def test_load_of_the_primary_names_nobody(self):
        host = Host(trials=2).seconds(60, calm).seconds(300, failing)
        self.assertEqual({}, host.named)
        # One failed second before, and two trials of 4 s.
        self.assertEqual(2, len(host.floored_s))
        self.assertGreaterEqual(10, host.waited_s)

    def test_random_load_of_the_primary_names_nobody(self):
        wrong = 0
        for mean_s in (3, 5, 10, 20, 60):
            for seed in range(20):
                draw = random.Random(f'{mean_s} {seed}')
                state = [False]

                def harmed(second, floored, mean_s=mean_s, draw=draw,
                           state=state):
                    state[0] ^= draw.random() < 1 / mean_s
                    return state[0]

                host = Host().seconds(60, calm).seconds(300, harmed)
                wrong += bool(host.named)
        self.assertGreaterEqual(5, wrong)

    def test_confirmed_secondary_goes_to_the_floor_when_the_signal_fails(self):
        host = Host().seconds(60, calm)
        host.uses['c'] = 30.0
        host.seconds(30, caused_by('c'))
        while 'c' in host.reaction.floored:
            host.seconds(1, caused_by('c'))
        host.seconds(1, caused_by('c'))
        self.assertEqual(Reaction(frozenset('c'), True), host.reaction)
        self.assertEqual(host.suspects.verdicts['c'].resource, 'disk_in')
        # It returns less and less often, until the confirmation ends.
        host.floored_s.clear()
        host.seconds(300, caused_by('c'))
        self.assertLess(280, host.floored_s['c'])
        self.assertEqual({'c'}, host.floored_s.keys())

    def test_confirmation_ends(self):
        host = Host(confirmed_s=50).seconds(60, calm)
        host.uses['c'] = 30.0
        host.seconds(30, caused_by('c')).seconds(50, calm)
        self.assertNotIn('c', host.suspects.verdicts)
        self.assertEqual(frozenset(), host.reaction.floored)

    def test_second_culprit_is_found_beside_a_confirmed_one(self):
        host = Host().seconds(60, calm)
        host.uses['c'] = 30.0
        host.seconds(30, caused_by('c'))
        host.uses['f'] = 30.0
        host.seconds(60, caused_by('c', 'f'))
        self.assertEqual({'c', 'f'}, host.named.keys())

    def test_other_reactions_wait_only_within_the_budget(self):
        host = Host(spare_s=-1).seconds(60, calm)
        host.uses['c'] = 30.0
        host.seconds(30, caused_by('c'))
        self.assertEqual(0, host.waited_s)
        self.assertEqual({'c'}, host.named.keys())

    def test_confirmed_secondary_that_has_gone_delays_nothing(self):
        host = Host({'a': 1.0, 'b': 30.0}).seconds(60, calm)
        host.seconds(40, caused_by('b'))
        self.assertIs(Verdict.CONFIRMED, host.verdict('b'))
        gone = host.uses.pop('b')
        host.seconds(20, calm).seconds(2, failing)
        self.assertIn('a', host.reaction.floored)
        self.assertIs(Verdict.TRIAL, host.verdict('a'))
        # Back within the time of its confirmation, as after a reboot.
        host.seconds(10, calm)
        host.uses['b'] = gone
        host.seconds(1, failing)
        self.assertIs(Verdict.CONFIRMED, host.verdict('b'))

    def test_trial_ends_without_verdict_if_its_secondary_is_gone(self):
        host = Host().seconds(60, calm).seconds(2, failing)
        (tried,) = host.reaction.floored
        del host.uses[tried]
        host.seconds(1, failing)
        self.assertNotIn(tried, host.suspects.verdicts)

    def test_unknown_signal_ends_the_trial_and_nothing_waits(self):
        host = Host().seconds(60, calm).seconds(2, failing)
        host.seconds(1, lambda second, floored: None)
        self.assertEqual(Reaction(frozenset(), False), host.reaction)
        self.assertEqual({}, host.suspects.verdicts)

    def test_invalid_option_is_named(self):
        for name in ('trial_s', 'trials', 'confirmed_s'):
            with self.assertRaisesRegex(InputError, f'{name}: expected'):
                SuspectOptions(**{name: 0})

    @given(st.lists(st.tuples(
        st.sampled_from((True, True, False, None)),
        st.sets(st.sampled_from(NAMES[:4])), st.integers(-1, 3)),
        max_size=150))
    def test_any_signal(self, seconds):
        suspects, run, last = Suspects(SuspectOptions()), {}, frozenset()
        for fails, present, spare_s in seconds:
            found = suspects.step(SignalState(fails, spare_s), {
                name: {} for name in present}, NAMES)
            verdicts = suspects.verdicts
            tried = {name for name, one in verdicts.items()
                     if one.verdict is Verdict.TRIAL}
            self.assertLessEqual(len(tried), 1)
            self.assertLessEqual(tried, present)
            if not fails:
                self.assertLessEqual(found.floored, last)
            for name in found.floored:
                self.assertIsNot(Verdict.ACQUITTED, verdicts[name].verdict)
            # Four seconds without an answer, and three in which it holds.
            run = {name: run.get(name, 0) + 1
                   for name in found.floored & tried}
            self.assertGreaterEqual(7, max(run.values(), default=0))
            if found.waits:
                self.assertTrue(fails and spare_s >= 0)
            last = found.floored


class TestOnsets(unittest.TestCase):

    def window(self, *seconds, onset=None):
        found = onsets.OnsetWindow()
        for number, one in enumerate(seconds):
            found.push(number == onset, one)
        return found

    def test_activity_that_grew_before_the_onset_is_likest(self):
        seconds = [{'a': {'cpu': 20.0}, 'b': {'cpu': 1.0}}] * 8 + [
            {'a': {'cpu': 20.0}, 'b': {'cpu': 19.0}}] * 4
        found = self.window(*seconds, onset=10)
        self.assertGreater(found.likeness('b').score,
                           found.likeness('a').score)
        # Three quarters of the pairs grew: the first second after the start
        # of the comparison was still idle.
        self.assertEqual('cpu', found.likeness('b').resource)

    def test_unknown_activity_is_not_zero(self):
        known = self.window(*[{'a': {'cpu': 5.0}}] * 12, onset=10)
        gaps = self.window(*[{'a': {'cpu': 5.0}}, {'a': {}}] * 6, onset=10)
        self.assertEqual(known.likeness('a'), gaps.likeness('a'))
        self.assertEqual(onsets.Likeness(0.0, ''), gaps.likeness('z'))

    def test_small_part_of_little_activity_means_nothing(self):
        found = self.window({'a': {'disk_in': 0.1}, 'b': {'cpu': 40.0}})
        self.assertLess(found.likeness('a').score, 0.05)
        self.assertEqual('cpu', found.likeness('b').resource)
        self.assertAlmostEqual(40 / 45, found.likeness('b').score)


class TestEvidence(unittest.TestCase):

    def test_rates_count_changes_by_state(self):
        rates = SignalRates()
        self.assertAlmostEqual(1 / 5, rates.rate(True))
        self.assertAlmostEqual(1 / 20, rates.rate(False))
        for _ in range(30):
            rates.push(False, False)
        self.assertLess(rates.rate(False), 1 / 45)
        self.assertAlmostEqual(1 / 5, rates.rate(True))
        rates.push(True, False)
        self.assertAlmostEqual(2 / 6, rates.rate(True))

    def test_evidence_is_a_likelihood_ratio(self):
        evidence = SignalEvidence()
        self.assertAlmostEqual(0.0, evidence.log_ratio)
        # By hand: 0.3 against 0.9 x 0.1 + 0.1 x 0.3.
        evidence.push(True, 0, True, False, 0.1)
        self.assertAlmostEqual(0.9163, evidence.log_ratio, places=4)
        # 0.3 x 0.98 against 0.9 x 0.1 x 0.9 + 0.1 x 0.3 x 0.7.
        evidence.push(True, 0, False, False, 0.1)
        self.assertAlmostEqual(1.0586, evidence.log_ratio, places=4)

    def test_signal_that_follows_after_the_same_time_is_more_evidence(self):
        """A guest that needs three seconds after a release, six times."""
        gains = []
        evidence = SignalEvidence()
        for _ in range(6):
            before = evidence.log_ratio
            for second in range(4):
                evidence.push(False, second, False, second == 3, 0.05)
            gains.append(evidence.log_ratio - before)
        # By hand: 0.7 x 0.55 x 0.5 x 0.6 against 0.9 x 0.95 ** 3 x 0.05
        # + 0.1 x 0.7 ** 3 x 0.3.
        self.assertAlmostEqual(0.8601, gains[0], places=4)
        for later in gains[1:]:
            self.assertGreater(later, 2 * gains[0])

    def test_signal_that_does_not_follow_is_evidence_against(self):
        evidence = SignalEvidence()
        for second in range(3):
            evidence.push(True, second, True, True, 0.05)
        # 0.7 x 0.55 x 0.5 against 0.9 x 0.95 ** 3 + 0.1 x 0.7 ** 3.
        self.assertAlmostEqual(-1.4319, evidence.log_ratio, places=4)
