# SPDX-License-Identifier: Apache-2.0

import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.policies import language


class TestParse(unittest.TestCase):

    def test_cpu_on_an_aggregate(self):
        policy = language.parse('cpu <= 90% for 10s on aggregate:secondary')
        self.assertEqual(
            ('cpu', 90.0, 10, 'aggregate', 'secondary'),
            (policy.resource, policy.threshold, policy.timelimit,
             policy.scope_kind, policy.scope_name))
        self.assertFalse(policy.static)

    def test_cpu_everywhere(self):
        policy = language.parse('cpu <= 87.5% for 3600s')
        self.assertEqual((87.5, 3600, 'all', None),
                         (policy.threshold, policy.timelimit,
                          policy.scope_kind, policy.scope_name))

    def test_slots_have_a_default_timelimit(self):
        policy = language.parse('slots <= 3 on host:node1')
        self.assertEqual(('slots', 3.0, 60, 'host', 'node1'),
                         (policy.resource, policy.threshold,
                          policy.timelimit, policy.scope_kind,
                          policy.scope_name))
        self.assertTrue(policy.static)
        self.assertEqual(10, language.parse('slots <= 0 for 10s').timelimit)

    def test_name_of_an_aggregate_may_hold_blanks(self):
        policy = language.parse('cpu <= 90% for 10s on aggregate:rack 1 ')
        self.assertEqual('rack 1', policy.scope_name)

    def test_text_is_canonical(self):
        texts = {language.parse(text).text for text in (
            'cpu<=90%for 10s', '  cpu  <=  90.0 %  for  10 s ')}
        self.assertEqual({'cpu <= 90% for 10s'}, texts)
        self.assertEqual('slots <= 3 for 60s on host:n',
                         language.parse('slots <= 3 on host:n').text)

    def test_canonical_text_reads_back(self):
        for text in (*language.EXAMPLES.values(), 'cpu <= 12.25% for 3s'):
            policy = language.parse(text)
            self.assertEqual(policy, language.parse(policy.text))

    def test_unsupported_resources_are_rejected(self):
        for resource, static in (
                *((one, False) for one in ('mem', 'net_in', 'net_out',
                                           'disk_in', 'disk_out', 'steal',
                                           'pressure')), ('cores', True)):
            text = language.EXAMPLES[resource]
            policy = language.parse(text)
            self.assertEqual((resource, static),
                             (policy.resource, policy.static))
            with self.assertRaisesRegex(language.PolicyError,
                                        'column 1: .*cpu or slots'):
                language.parse(text, ('cpu', 'slots'))

    def test_probe_has_a_name_and_its_own_unit(self):
        policy = language.parse('probe:p99_ms<=20.50 for 5s on host:x')
        self.assertEqual(
            ('probe:p99_ms', 20.5, 5, 'host', 'x', False,
             'probe:p99_ms <= 20.5 for 5s on host:x'),
            (policy.resource, policy.threshold, policy.timelimit,
             policy.scope_kind, policy.scope_name, policy.static,
             policy.text))
        # The canonical text keeps all digits.
        self.assertEqual('probe:n <= 123456789.25 for 5s', language.parse(
            'probe:n <= 123456789.25 for 5s').text)
        self.assertEqual('probe:n <= 0.00001 for 5s', language.parse(
            'probe:n <= 0.000010 for 5s').text)

    @given(st.decimals(0, 10**14, places=7), st.from_regex(
        language.PROBE_NAME, fullmatch=True))
    def test_any_probe_reads_back(self, limit, name):
        policy = language.parse(f'probe:{name} <= {limit:f} for 5s')
        self.assertEqual(float(limit), policy.threshold)
        self.assertEqual(policy, language.parse(policy.text))

    def test_signals_are_no_used_resources(self):
        for resource in ('pressure', 'steal', 'membw', 'llc', 'probe:cpu'):
            self.assertTrue(language.is_signal(resource))
        for resource in language.USED:
            self.assertFalse(language.is_signal(resource))

    def test_policy_may_bind_several_hosts_together(self):
        text = 'slots <= 40 for 60s in aggregate:rack 1'
        policy = language.parse(text)
        self.assertEqual((True, 'aggregate', 'rack 1', text),
                         (policy.total, policy.scope_kind, policy.scope_name,
                          policy.text))
        self.assertFalse(language.parse(
            'slots <= 40 on aggregate:rack 1').total)
        with self.assertRaisesRegex(language.PolicyError, 'column 21'):
            language.parse(text, totals=())
        with self.assertRaisesRegex(language.PolicyError,
                                    'one host is bound by "on"'):
            language.parse('slots <= 3 in host:node1')

    def test_use_of_several_hosts_is_bound_in_models_only(self):
        text = 'cpu <= 70% for 30s in aggregate:rack1'
        with self.assertRaisesRegex(language.PolicyError,
                                    'column 20: only slots'):
            language.parse(text)
        self.assertTrue(language.parse(
            text, totals=language.MODELLED).total)

    def test_same_policy_twice_counts_once(self):
        both = language.parse_all(
            ['cpu <= 90% for 10s', 'slots <= 1', 'cpu <=  90% for 10s'])
        self.assertEqual(['cpu', 'slots'], [p.resource for p in both])


class TestErrors(unittest.TestCase):

    CASES = (
        ('', 1, 'a resource'),
        ('pressure <= 9 for 10s', 13, 'a percentage'),
        ('probe <= 9 for 10s', 7, 'name of a probe'),
        ('probe: <= 9 for 10s', 6, 'name of a probe'),
        ('probe:p-99 <= 9 for 10s', 8, '"<="'),
        ('probe:p99 <= 20% for 10s', 14, 'unit of the probe'),
        ('probe:p99 <= 20.5.1 for 10s', 14, 'unit of the probe'),
        ('probe:p99 <= -1 for 10s', 14, 'unit of the probe'),
        ('probe:p99 <= 1000000000000000 for 9s', 14, 'below 1e+15'),
        ('mem <= 90', 8, 'a percentage'),
        ('cores <= 3%', 10, 'whole number of CPUs'),
        ('cpus <= 90% for 10s', 1, 'a resource'),
        ('cpu < 90% for 10s', 5, '"<="'),
        ('cpu <= 90 for 10s', 8, 'a percentage'),
        ('cpu <= 101% for 10s', 8, 'at most 100%'),
        ('cpu <= 90%', 11, '"for"'),
        ('cpu <= 90% for ten s', 16, 'whole seconds'),
        ('cpu <= 90% for 10', 16, 'whole seconds'),
        ('cpu <= 90% for 1.5s', 16, 'whole seconds'),
        ('cpu <= 90% for 2s', 16, 'from 3s'),
        ('cpu <= 90% for 3601s', 16, '3600s'),
        ('cpu <= 90% for 10s at noon', 20, '"on" or the end'),
        ('cpu <= 90% for 10s on node1', 23, '"aggregate:" or "host:"'),
        ('cpu <= 90% for 10s on host:', 28, 'host\'s name'),
        ('cpu <= 90% for 10s on aggregate:', 33, 'aggregate\'s name'),
        ('cpu <= 90% for 10s on host:a b', 30, 'the end'),
        ('slots <= 3%', 10, 'whole number'),
        ('slots <= 2.5', 10, 'whole number'),
        ('slots <= -1', 10, 'whole number'),
        ('slots <= 3 please', 12, '"for", "on"'),
    )

    def test_error_names_column_and_reason(self):
        for text, column, words in self.CASES:
            with self.subTest(text):
                with self.assertRaises(language.PolicyError) as caught:
                    language.parse(text)
                self.assertEqual(column, caught.exception.column)
                self.assertIn(words, caught.exception.message)

    def test_message_names_option_column_and_example(self):
        with self.assertRaises(language.PolicyError) as caught:
            language.parse('slots <= 3%')
        self.assertEqual(
            "[secondary_scheduler] policy = 'slots <= 3%': column 10: "
            'expected a whole number of secondaries. A correct example: '
            'policy = slots <= 3 on host:node1', str(caught.exception))

    def test_every_example_is_correct(self):
        for text, _column, _words in self.CASES:
            with self.assertRaises(language.PolicyError) as caught:
                language.parse_all([text])
            language.parse(caught.exception.example)


class TestScope(unittest.TestCase):

    def test_policy_without_scope_applies_to_all_hosts(self):
        policy = language.parse('cpu <= 90% for 10s')
        self.assertTrue(policy.applies_to('node1', ()))

    def test_host_scope_applies_to_one_host(self):
        policy = language.parse('cpu <= 90% for 10s on host:node1')
        self.assertTrue(policy.applies_to('node1', None))
        self.assertFalse(policy.applies_to('node10', None))

    def test_aggregate_scope_applies_to_its_hosts(self):
        policy = language.parse('cpu <= 90% for 10s on aggregate:a')
        self.assertTrue(policy.applies_to('node1', {'a', 'b'}))
        self.assertFalse(policy.applies_to('node1', {'b'}))
        self.assertFalse(policy.applies_to('node1', ()))

    def test_policy_applies_if_aggregates_are_unknown(self):
        policy = language.parse('cpu <= 90% for 10s on aggregate:a')
        self.assertTrue(policy.applies_to('node1', None))


class TestFingerprint(unittest.TestCase):

    def test_order_and_spelling_do_not_matter(self):
        one = language.parse_all(['cpu <= 90% for 10s', 'slots <= 3'])
        other = language.parse_all(['slots <= 3 for 60s',
                                    'cpu<=90% for 10s'])
        self.assertEqual(language.fingerprint(one),
                         language.fingerprint(other))

    def test_different_policies_have_different_fingerprints(self):
        prints = {language.fingerprint(language.parse_all(texts))
                  for texts in ([], ['slots <= 3'], ['slots <= 4'],
                                ['slots <= 3', 'slots <= 4'])}
        self.assertEqual(4, len(prints))
        for one in prints:
            self.assertRegex(one, '^[0-9a-f]{16}$')
