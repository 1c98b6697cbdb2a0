# SPDX-License-Identifier: Apache-2.0

"""Random texts as policies."""

import unittest

from hypothesis import example, given
from hypothesis import strategies as st

from secondary_scheduler.policies import language
from tests.unit import fuzzing

#: Words of the language, and wrong ones.
WORDS = (*language.MODELLED, '<=', '<', '90%', '3', 'for', '10s', '60 s',
         'on', 'in', 'aggregate:', 'host:', 'aggregate:a b', 'host:node1',
         '٣%', '\0', '\ud800', '\n')


class Text(unittest.TestCase):

    def check(self, texts):
        try:
            policies = language.parse_all(texts)
        except language.PolicyError as exc:
            self.assertIn(exc.text, texts)
            self.assertLessEqual(exc.column, len(exc.text) + 1)
            language.parse(exc.example)
            str(exc).encode(errors='surrogatepass')
            return
        language.fingerprint(policies)
        for policy in policies:
            self.assertEqual(policy.text, language.parse(policy.text).text)
            self.assertIn(policy.timelimit, range(3, 3601))
            self.assertTrue(0 <= policy.threshold < 1e9)

    @fuzzing.fuzzed
    @given(st.lists(st.text(alphabet='cpuslotf nrgahe:<=%.0129s\t\n')
                    | st.text(), max_size=3))
    def test_any_text_is_parsed_or_rejected(self, texts):
        self.check(texts)

    @fuzzing.fuzzed
    @given(st.lists(st.sampled_from(sorted(language.EXAMPLES.values())
                                    ).flatmap(lambda text: fuzzing.spoilt(
                                        text, WORDS)),
                    min_size=1, max_size=2))
    @example(['slots <= ' + '9' * 5000])
    @example(['slots <= ' + '9' * 400])
    @example(['slots <= 3 for ' + '9' * 5000 + 's'])
    @example(['cpu <= ' + '9' * 5000 + '% for 10s'])
    @example(['slots <= 3 on aggregate:\ud800'])
    def test_spoilt_examples_are_parsed_or_rejected(self, texts):
        self.check(texts)

    @fuzzing.fuzzed
    @given(st.lists(st.sampled_from(WORDS) | st.text(max_size=5),
                    max_size=8).map(' '.join))
    def test_sequences_of_words_are_parsed_or_rejected(self, text):
        self.check([text])
