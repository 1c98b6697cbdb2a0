# SPDX-License-Identifier: Apache-2.0

"""Fuzz tests of the commands: damaged files give no traceback."""

import contextlib
import io
import json
import os
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.cmd import agent, manage, status
from secondary_scheduler.decisions.base import Budget
from tests.unit import fuzzing
from tests.unit.reading.test_fuzz import (
    CLOUDS,
    CONFIGURATION,
    FEWER,
    HEADER,
    MODEL,
    PLAN,
    TEXT,
    FileCase,
    damaged,
)
from tests.unit.simulation.workloads.samples import JOBS, XML

PROFILES = {
    'classes': ['a', 'b'], 'uses': {'a': {'cpu': 59}, 'b': {'cpu': None}},
    'time_sharing': [[1.25, 1.2], [None, 2]],
    'space_sharing': [[1, 1], [1.5, 1.1]],
    'measurement': {
        'cpu_model': 'EPYC', 'kernel': '6.1', 'metric': 'units',
        'seconds': 10, 'unknown': ['SMT sibling'], 'slowdowns': [{
            'victim': 'a', 'neighbour': 'b', 'place': 'same CPU',
            'median': 1.2, 'values': [1.2], 'cpu_values': []}]}}


class CommandsTest(FileCase):
    """Exit code 0, 1 or 2 and no traceback for any content of a file."""

    def command(self, main, *arguments, **named):
        out, err = io.BytesIO(), io.BytesIO()
        with contextlib.redirect_stdout(io.TextIOWrapper(out, 'utf-8')), \
                contextlib.redirect_stderr(io.TextIOWrapper(err, 'utf-8')):
            code = main([str(one) for one in arguments], **named)
        self.assertIn(code, (0, 1, 2))
        return code

    @FEWER
    @given(damaged(HEADER + JOBS))
    def test_simulate_swf(self, data):
        self.path.write_bytes(data)
        self.command(manage.main, 'simulate', 'swf', self.path)

    @FEWER
    @given(damaged(XML) | damaged(TEXT))
    def test_simulate_reservations(self, data):
        trace = self.path.with_name('jobs.swf')
        trace.write_text(HEADER + JOBS)
        self.path.write_bytes(data)
        self.command(manage.main, 'simulate', 'swf', trace, '--reservations',
                     self.path)

    @FEWER
    @given(fuzzing.changed(MODEL), st.sampled_from(['preempt', 'return']))
    def test_plan_decide(self, model, request):
        self.path.write_text(json.dumps(model))
        self.command(manage.main, 'plan', 'decide', self.path, '--budget',
                     Budget().units // 100, '--request', request)

    @FEWER
    @given(fuzzing.changed(PLAN), fuzzing.changed(MODEL) | st.just(MODEL))
    def test_plan_check(self, plan, model):
        self.path.write_text(json.dumps(plan))
        path = self.path.with_name('model.json')
        path.write_text(json.dumps(model))
        self.command(manage.main, 'plan', 'check', path, self.path)

    @FEWER
    @given(damaged(CONFIGURATION))
    def test_upgrade_check(self, data):
        self.path.write_bytes(data)
        self.command(status.main, '--config-file', self.path, 'upgrade',
                     'check', connect=mock.Mock(side_effect=OSError))

    @FEWER
    @given(fuzzing.changed({'time': 1.0, 'host': 'h'}).map(json.dumps)
           | st.text(max_size=20))
    def test_agent_status(self, text):
        self.path.write_text(
            '[secondary_scheduler]\npolicy = cpu <= 90% for 10s\n'
            f'[secondary_agent]\nstate_path = {self.path.parent}\n')
        self.path.with_name('status.json').write_bytes(
            text.encode('utf-8', 'surrogatepass'))
        self.assertEqual(1, self.command(
            agent.main, 'status', '--config-file', self.path))

    @FEWER
    @given(fuzzing.changed(PROFILES).map(json.dumps) | st.text(max_size=20),
           st.sampled_from(['list', 'merge', 'check']))
    def test_profiles(self, text, action):
        self.path.write_bytes(text.encode('utf-8', 'surrogatepass'))
        self.command(agent.main, 'profiles', action, self.path, self.path)

    @FEWER
    @given(damaged(CLOUDS))
    def test_clouds(self, data):
        self.path.write_bytes(data)
        with mock.patch.dict(os.environ, {
                'OS_CLIENT_CONFIG_FILE': str(self.path)}):
            code = self.command(manage.main, '--os-cloud', 'my', 'host',
                                'list')
        self.assertEqual(1, code)
