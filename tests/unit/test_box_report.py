# SPDX-License-Identifier: Apache-2.0

"""Report of the demo, also on a machine that was held up."""

import contextlib
import importlib
import io
import os
import pathlib
import random
import sys
import unittest
from unittest import mock

BOX = pathlib.Path(__file__).parents[2] / 'tools/box'


#: Stages of batches, with the time from the first window to the first call
#: of the API, and the number of windows without a call.
CASES = [
    ([], (None, 0)),
    ([{'strategy': 1.0, 'first_api_call': 5.0}], (None, 0)),
    ([{'first_api_call': 1.0},
      {'report': 4.0, 'window': 4.1, 'first_api_call': 4.7}], (0.6, 0)),
    # A round of the CONTINUOUS audit was faster.
    ([{'strategy': 3.9, 'first_api_call': 4.9},
      {'report': 4.0, 'window': 4.1}], (0.8, 0)),
    # The first found the policy held again.
    ([{'report': 4.0, 'window': 4.1},
      {'report': 9.0, 'window': 9.1, 'first_api_call': 9.5}], (0.4, 1)),
    # The first is slow, and the second did not ask for what it does.
    ([{'report': 4.0, 'window': 4.1, 'first_api_call': 9.6},
      {'report': 9.0, 'window': 9.1, 'first_api_call': 9.5}], (5.5, 0)),
    ([{'report': 4.0, 'window': 4.1}], (None, 1))]


def said(*, p99=10.0, tps=24.0, held_up=0.0, alone=0.0):
    """Return the lines on phase c, by the figure's name."""
    phases = {'b': (10.0, 24.0, 0.0), 'c': (p99, tps, held_up)}
    figures = {
        'usage_with': 50.0, 'usage_alone': 20.0, 'invalidations': 0,
        'work_units_lost': 0, 'returned': 1.0, 'operations': {},
        'seconds_window_to_first_api_call': None, 'windows_without_call': 0,
        'primary_p99_with_to': {
            phase: {'alone': [0.9 * value / 10, 1.1 * value / 10]}
            for phase, (value, _, _) in phases.items()},
        'primary_p99_ms': {phase: {'alone': 10.0, 'with': value}
                           for phase, (value, _, _) in phases.items()},
        'primary_tps': {phase: {'alone': 24.0, 'with': value}
                        for phase, (_, value, _) in phases.items()},
        'machine_held_up': {phase: {'alone': alone, 'with': value}
                            for phase, (_, _, value) in phases.items()}}
    return {line['promise'].split()[0]: line
            for line in importlib.import_module('report')._promises(figures)
            if '(c)' in line['promise']}


def promises(**measured):
    """Return whether the lines on phase c hold, by the figure's name."""
    return {name: line['holds']
            for name, line in said(**measured).items()}


class ReportTest(unittest.TestCase):

    def setUp(self):
        patch = mock.patch.object(sys, 'path', [str(BOX), *sys.path])
        patch.start()
        self.addCleanup(patch.stop)

    def test_figures_of_a_running_machine_hold_or_not(self):
        self.assertEqual({'p99': True, 'tps': True}, promises())
        assert promises(p99=90.0, tps=22.0, held_up=.002) == {
            'p99': False, 'tps': False}

    def test_figures_of_a_machine_held_up_are_unknown(self):
        self.assertIsNone(promises(p99=90.0, held_up=.01)['p99'])
        self.assertIsNone(promises(tps=22.0, held_up=.04)['tps'])
        self.assertIs(False, promises(tps=18.0, held_up=.04)['tps'])

    def test_comparison_with_a_run_held_up_is_unknown(self):
        self.assertIsNone(promises(alone=.01)['p99'])
        self.assertIs(False, promises(p99=90.0, alone=.01)['p99'])

    def test_pauses_are_left_out_where_watching_is_not_allowed(self):
        assert 'held up 4.0 % (alone 0.5 %)' in said(
            held_up=.04, alone=.005)['p99']['noise']
        line = said(held_up=None, alone=None)['p99']
        self.assertIs(True, line['holds'])
        self.assertNotIn('held up', line['noise'])

    def test_the_latency_is_of_the_host_that_shares_no_core(self):
        class Clients:
            def latencies(self, phase, host, since):
                assert since == {'b': 0.0, 'c': 60.0 + 10}[phase]
                took = {'box1': 4.0, 'box2': 9.0, 'box3': 8.0}[host]
                return [(since + n, took) for n in range(20)]

        found = importlib.import_module('report')._primary(
            {'began': {'b': 0.0, 'c': 60.0, 'end': 90.0},
             'clients': Clients(), 'pauses': None},
            ['box1', 'box2', 'box3'], 'box1', random.Random(1))
        self.assertEqual([1.0, 3.0], [found[phase]['tps'] for phase in 'bc'])
        assert found['b']['p50_ms'] == found['c']['p99_ms'] == 4.0
        self.assertEqual({4.0}, set(found['c']['p99_resampled']))
        self.assertEqual(9.0, found['b']['other_p99_ms'])

    def test_operations_are_listed_with_their_parents(self):
        def action(name, kind, uuid, **more):
            return {'kind': kind, 'state': 'SUCCEEDED', 'parameters': {
                'action': name, 'resource_id': uuid, **more}}

        assert importlib.import_module('report')._carried_out([
            action('2', 'migrate', 'b', source='h', target='x', parents=['1']),
            action('1', 'suspend', 'a', source='x', target='x')],
            {'a': 'one'}) == [
                {'operation': 'migrate', 'server': 'b', 'from': 'h', 'to': 'x',
                 'state': 'SUCCEEDED', 'after': ['suspend one']},
                {'operation': 'suspend', 'server': 'one', 'from': 'x',
                 'to': 'x', 'state': 'SUCCEEDED', 'after': []}]

    def test_pauses_within_a_time(self):
        held_up = importlib.import_module('pauses').held_up
        pauses = [(1.0, 5.0), (2.0, 0.5), (9.0, 0.5)]
        self.assertEqual(1, held_up(pauses, 1.0, 9.0))
        self.assertEqual(6, held_up(pauses))

    def test_the_watch_of_this_machine(self):
        watch = importlib.import_module('pauses').Pauses()
        # There is no other writer now: it has ended as where it is refused.
        watch._watch.kill()
        watch._watch.wait()
        os.ftruncate(watch._out.fileno(), 0)
        os.pwrite(watch._out.fileno(), b'5.000 1.500\n', 0)
        self.assertEqual([(5.0, 1.5 / os.cpu_count())], watch.read())
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertIsNone(watch.stop())
        self.assertIn('does not show whether it is held up', output.getvalue())

    def test_the_first_call_may_belong_to_any_decision(self):
        first_call = importlib.import_module('report').first_call
        for stages, seconds in CASES:
            with self.subTest(stages):
                self.assertEqual(seconds, first_call(stages))
