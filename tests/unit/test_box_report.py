"""What the demo's report says, also of a machine that was held up."""

import importlib
import os
import pathlib
import random

import pytest

BOX = pathlib.Path(__file__).parents[2] / 'tools/box'


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(str(BOX))
    return importlib.import_module


def said(load, *, p99=10.0, tps=24.0, held_up=0.0, alone=0.0):
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
            for line in load('report')._promises(figures)
            if '(c)' in line['promise']}


def promises(load, **measured):
    """Return whether the lines on phase c hold, by the figure's name."""
    return {name: line['holds']
            for name, line in said(load, **measured).items()}


def test_a_machine_that_ran_shows_what_it_shows(load):
    assert promises(load) == {'p99': True, 'tps': True}
    assert promises(load, p99=90.0, tps=22.0, held_up=.002) == {
        'p99': False, 'tps': False}


def test_one_that_was_held_up_cannot_show_it(load):
    assert promises(load, p99=90.0, held_up=.01)['p99'] is None
    assert promises(load, tps=22.0, held_up=.04)['tps'] is None
    assert promises(load, tps=18.0, held_up=.04)['tps'] is False


def test_next_to_one_that_was_held_up_all_looks_well(load):
    assert promises(load, alone=.01)['p99'] is None
    assert promises(load, p99=90.0, alone=.01)['p99'] is False


def test_pauses_are_left_out_where_watching_is_not_allowed(load):
    assert 'held up 4.0 % (alone 0.5 %)' in said(
        load, held_up=.04, alone=.005)['p99']['noise']
    line = said(load, held_up=None, alone=None)['p99']
    assert line['holds'] is True
    assert 'held up' not in line['noise']


def test_the_latency_is_of_the_host_that_shares_no_core(load):
    class Clients:
        def latencies(self, phase, host, since):
            assert since == {'b': 0.0, 'c': 60.0 + 10}[phase]
            return [(since + n, {'box1': 4.0, 'box2': 9.0, 'box3': 8.0}[host])
                    for n in range(20)]

    found = load('report')._primary(
        {'began': {'b': 0.0, 'c': 60.0, 'end': 90.0}, 'clients': Clients(),
         'pauses': None}, ['box1', 'box2', 'box3'], 'box1', random.Random(1))
    assert [found[phase]['tps'] for phase in 'bc'] == [1.0, 3.0]
    assert found['b']['p50_ms'] == found['c']['p99_ms'] == 4.0
    assert set(found['c']['p99_resampled']) == {4.0}
    assert found['b']['other_p99_ms'] == 9.0


def test_what_waited_for_what(load):
    def action(name, kind, uuid, **more):
        return {'kind': kind, 'state': 'SUCCEEDED', 'parameters': {
            'action': name, 'resource_id': uuid, **more}}

    assert load('report')._carried_out([
        action('2', 'migrate', 'b', source='h', target='x', parents=['1']),
        action('1', 'suspend', 'a', source='x', target='x')],
        {'a': 'one'}) == [
            {'operation': 'migrate', 'server': 'b', 'from': 'h', 'to': 'x',
             'state': 'SUCCEEDED', 'after': ['suspend one']},
            {'operation': 'suspend', 'server': 'one', 'from': 'x', 'to': 'x',
             'state': 'SUCCEEDED', 'after': []}]


def test_pauses_within_a_time(load):
    held_up = load('pauses').held_up
    pauses = [(1.0, 5.0), (2.0, 0.5), (9.0, 0.5)]
    assert held_up(pauses, 1.0, 9.0) == 1
    assert held_up(pauses) == 6


def test_the_watch_of_this_machine(load, capsys):
    watch = load('pauses').Pauses()
    # Nobody else writes now, and it has ended as where it is refused.
    watch._watch.kill()
    watch._watch.wait()
    os.ftruncate(watch._out.fileno(), 0)
    os.pwrite(watch._out.fileno(), b'5.000 1.500\n', 0)
    assert watch.read() == [(5.0, 1.5 / os.cpu_count())]
    assert watch.stop() is None
    assert 'does not show whether it is held up' in capsys.readouterr().out


@pytest.mark.parametrize(('stages', 'seconds'), [
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
    ([{'report': 4.0, 'window': 4.1}], (None, 1))])
def test_the_first_call_may_belong_to_any_decision(load, stages, seconds):
    assert load('report').first_call(stages) == seconds
