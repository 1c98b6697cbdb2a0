# SPDX-License-Identifier: Apache-2.0

"""Files as people really have them, through the commands that read them."""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from oslo_config import cfg

from secondary_scheduler.cmd import agent, lease_api, manage, status
from secondary_scheduler.leases.api import app
from secondary_scheduler.leases.client import gantt
from secondary_scheduler.plans import (
    checker,
    model_documents,
    plan_documents,
)
from secondary_scheduler.reading.values import InputError
from tests.unit.agent.base import AgentTestCase

INPUTS = pathlib.Path(__file__).parents[3] / 'shared/inputs'

#: By file: the exit code, and words on standard error.
TRACES = {
    'B01-partial.swf': (0, '3 lines are parts of jobs'),
    'B02-half.swf': (0, '5 of 10 jobs have no requested time'),
    'B02-no-requested-time.swf': (0, '5 of 5 jobs have no requested time'),
    'B03-more-columns.swf': (0, 'columns after the 18th are ignored'),
    'B05-wider-than-site.swf': (0, ''),
    'B06-damaged.swf.gz': (2, 'B06-damaged.swf.gz, after line'),
    'B06-truncated.swf.gz': (2, 'B06-truncated.swf.gz, after line 1489'),
    'N01-1e999.swf': (2, 'line 1: field 6, average CPU time: expected a'),
    'N01-digits5000.swf': (2, 'line 1: field 1, job number: expected a'),
    'N01-requested-20-digits.swf': (
        2, 'line 1: field 9, requested time: expected a number'),
    'N01-submit-unknown.swf': (2, 'its submit time is unknown: job 1'),
    'N02-bom.swf': (0, ''), 'N02-latin1-comment.swf': (0, '')}
RESERVATIONS = {
    'B07-no-site.lwf': (0, ''), 'B07-other-order.lwf': (0, ''),
    'N03-amount-25-digits.lwf': (2, 'line 1: <res>: amount: expected a'),
    'N03-arrival-20-digits.lwf': (2, 'line 1: <lease-request>: arrival: exp'),
    'N03-duration-20-digits.lwf': (2, 'line 1: <duration>: time: expected a'),
    'N03-unknown-encoding.lwf': (2, 'line 1: the encoding')}
MODELS = {
    'N06-model.json': (0, ''),
    'N06-model-digits5000.json': (
        2, 'hosts[0].capacity.memory_mb: expected a whole number'),
    'N06-model-vcpus-1e400.json': (
        2, 'hosts[1].capacity.vcpus: expected a whole number'),
    'N06-model-misspelt-usage.json': (
        2, 'hosts[0].usage.CPU: is not known; expected only cpu')}
PLANS = {
    'N06-plan-deadline.json': (2, 'operations[0].deadline_s: expected a'),
    'N06-plan-digits5000.json': (2, 'operations[0].duration_s: expected a'),
    'N06-plan-surrogate.json': (2, 'operations[0].instance: expected a text')}
#: By file: the operations that a plan needs, by kind.
DECISIONS = {
    'B17-satisfied.json': {}, 'B17-hotspot.json': {'migrate': 8},
    'B17-three-hosts.json': {'migrate': 1},
    'B17-two-moves.json': {'migrate': 2},
    'B18-group-of-one.json': {'migrate': 2},
    'B18-group-of-four.json': {'suspend': 1}}
CONFIGURATION = {
    'B16-latin1.conf': 'line 1: expected text in UTF-8',
    'N08-no-section.conf': 'line 1: Section must be started',
    'N08-undefined.conf': 'line 2: [secondary_scheduler] policy: expected $$'}
DATABASES = {
    'B21-mysql.conf': 'pip install mysqlclient',
    'N10-no-database.conf': 'there is no /nonexistent',
    'N10-port-text.conf': 'it is not a URL of a database'}
CLOUDS = {
    'N07-clouds-auth-text.yaml': 'line 3: clouds.my.auth: expected a mapping',
    'N07-clouds-cacert.yaml': 'no file /nonexistent.pem'}


def run(main, *arguments, **named):
    """Return (exit code, standard output, standard error) of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(one) for one in arguments], **named)
    return code, out.getvalue(), err.getvalue()


def serve(arguments):
    """Start the lease service, on options that are its own."""
    cfg.CONF.reset()
    with mock.patch.object(app.logging, 'setup'):
        return lease_api.main(arguments)


@unittest.skipUnless(INPUTS.is_dir(), f'needs the inputs in {INPUTS}')
class FilesTest(unittest.TestCase):

    def check(self, name, right, main, *arguments, **named):
        """Run a command on a file; return what it prints."""
        with self.subTest(name):
            code, out, err = run(main, *arguments, **named)
            self.assertEqual(right[0], code, err)
            self.assertIn(right[1], err)
            self.assertNotIn('Traceback', out + err)
            if code:
                self.assertEqual('', out)
                self.assertIn(name, err)
            return out
        return ''

    def figures(self, name, right, *more):
        out = self.check(name, right, manage.main, 'simulate', 'swf', *more,
                         '--format', 'json')
        return {} if right[0] else {
            'nodes': json.loads(out)['config']['nodes'],
            **{one: figure['measured'] for one, figure
               in json.loads(out)['figures'].items()}}

    def test_traces(self):
        found = {name: self.figures(name, right, INPUTS / name)
                 for name, right in TRACES.items()}
        # 300 s, and the second job's 60 s from then on.
        self.assertEqual(360, found['B01-partial.swf']['all_best_effort_s'])
        self.assertEqual(4, found['B01-partial.swf']['nodes'])
        self.assertEqual(160, found['B02-half.swf']['all_best_effort_s'])
        wide = found['B05-wider-than-site.swf']
        self.assertEqual((1024, 0), (wide['nodes'], wide['too_large']))

    def test_job_wider_than_the_site_is_named_and_rejected(self):
        name = 'B05-wider-than-site.swf'
        found = self.figures(
            name, (0, 'rejected: lease 2: 512 nodes'), INPUTS / name,
            '--nodes', 100)
        self.assertEqual(1, found['too_large'])

    def test_reservations(self):
        for name, right in RESERVATIONS.items():
            found = self.figures(name, right, INPUTS / 'one.swf',
                                 '--reservations', INPUTS / name)
            if not right[0] and name.startswith('B07-no'):
                self.assertEqual(1, found['reservations_accepted'])

    def test_models(self):
        for name, right in MODELS.items():
            self.check(name, right, manage.main, 'plan', 'decide',
                       INPUTS / name)

    def test_plans(self):
        for name, right in PLANS.items():
            self.check(name, right, manage.main, 'plan', 'check',
                       INPUTS / 'N06-model.json', INPUTS / name)

    def test_decisions(self):
        for name, right in DECISIONS.items():
            with self.subTest(name):
                code, out, _err = run(manage.main, 'plan', 'decide',
                                      INPUTS / name)
                self.assertEqual(0, code)
                plan = plan_documents.read_plan(out)
                score = {kind: number for kind, number
                         in plan_documents.score(plan).items()
                         if number and kind != 'makespan_s'}
                self.assertEqual(right, score)
                model = model_documents.read_model(
                    (INPUTS / name).read_text())
                self.assertEqual((), tuple(checker.check(model, plan)))
                self.assertEqual((), plan.unresolved)

    def test_configuration(self):
        for name, words in CONFIGURATION.items():
            given = '--config-file', INPUTS / name
            self.check(name, (2, words), status.main, *given, 'upgrade',
                       'check')
            self.check(name, (2, words), agent.main, 'status', *given)
            if name != 'N08-undefined.conf':    # of no option that they have
                self.check(name, (2, words), serve, *given)
                self.check(name, (2, words), manage.main, 'lease-db',
                           'version', *given)

    def test_databases(self):
        for name, words in DATABASES.items():
            for main, command in ((serve, ()), (
                    manage.main, ('lease-db', 'version'))):
                with self.subTest(name, command=command):
                    code, _out, err = run(main, *command, '--config-file',
                                          INPUTS / name)
                    self.assertEqual(2, code, err)
                    self.assertIn(words, err)
                    self.assertIn('database_url', err)
                    self.assertNotIn('Traceback', err)
        for name in 'B21-postgresql.conf', 'B21-pymysql.conf':
            with self.subTest(name):
                code, _out, err = run(
                    manage.main, 'lease-db', 'version', '--config-file',
                    INPUTS / name)
                self.assertEqual(2, code, err)
                self.assertIn('database_url', err)

    def test_policy_file(self):
        path = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()), 'lease.conf')
        path.write_text(
            '[secondary_lease_api]\nauth_strategy = noauth\n'
            'database_url = sqlite://\n[oslo_policy]\n'
            f'policy_file = {INPUTS}/N11-policy-tab.yaml\n')
        self.check('N11-policy-tab.yaml', (2, 'line 2: expected YAML'),
                   serve, '--config-file', path)

    def test_clouds(self):
        for name, words in CLOUDS.items():
            with mock.patch.dict(os.environ, {
                    'OS_CLIENT_CONFIG_FILE': str(INPUTS / name)}):
                self.check(name, (1, words), manage.main, '--os-cloud', 'my',
                           'host', 'list')

    def test_programs(self):
        """Those that recreate an object, with what they print."""
        for name, words in (
                ('B24-swap.py', ()),
                ('B25-fqdn.py', ('proxy 200 html: rc 1', 'this address does '
                                 'not answer as Placement does')),
                ('N12-timeline.py', ('a (1) ????', 'width: expected'))):
            with self.subTest(name):
                done = subprocess.run(
                    [sys.executable, '-W', 'ignore', name], cwd=INPUTS,
                    capture_output=True, text=True, timeout=120,
                    env={**os.environ, 'PYTHONDONTWRITEBYTECODE': '1',
                         'PYTHONPATH': os.pathsep.join(
                             ('.', *sys.path))})
                said = done.stdout + done.stderr
                self.assertEqual(0, done.returncode, said)
                self.assertNotRegex(said, 'Traceback|TRACEBACK')
                for one in words:
                    self.assertIn(one, said)
                for line in said.splitlines():
                    if line.startswith('swap'):
                        placement, model = re.findall(r'(\d+) *(?:\||$)',
                                                      line)[-2:]
                        self.assertEqual(placement, model)


class ReloadTest(AgentTestCase):
    """A running agent keeps what it has, and says why."""

    version = 2

    def reload(self, data):
        """Change the file; return the agent and what its status says."""
        self.host.guest(0)
        running = self.make()
        running.step()
        self.steps(running, 6, 20.0, g0=10.0)
        path = pathlib.Path(self.file)
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        running.reload()
        self.steps(running, 3, 20.0, g0=10.0)
        running.write_status()
        return running, running.parts.store.load('status.json')

    def test_good_change(self):
        running, said = self.reload(
            b'[secondary_scheduler]\npolicy = cpu <= 80% for 10s\n'
            b'[secondary_agent]\nhost = node1\n')
        self.assertEqual(79.0, running.reporter.status()['set_point'])
        self.assertEqual('', said['configuration'])

    def test_bad_files_change_nothing(self):
        for data, words in (
                (b'# Z\xfcrich\n[secondary_scheduler]\npolicy = cpu <= 50% '
                 b'for 10s\n', 'line 1: expected text in UTF-8'),
                (b'policy = cpu <= 50% for 10s\n', 'line 1: Section must be'),
                (b'[secondary_scheduler]\npolicy = cpu <= 50% for $x\n',
                 'line 2: [secondary_scheduler] policy: expected $$'),
                (b'[secondary_scheduler]\npolicy = cpu <= 50% for 10s\n'
                 b'[secondary_agent]\ndomain_period = soon\n',
                 'line 4: [secondary_agent] domain_period: expected a'),
                (None, 'agent.conf')):
            with self.subTest(words):
                self.setUp()
                running, said = self.reload(data)
                now = running.reporter.status()
                self.assertEqual((89.0, True),
                                 (now['set_point'], now['admission']))
                self.assertIn(words, said['configuration'])


class TimelineTest(unittest.TestCase):

    def slot(self, lease='a', begin='2027-01-31T08:00:00Z',
             end='2027-01-31T12:00:00Z', what='run'):
        return {'lease_id': lease, 'begin': begin, 'end': end, 'what': what,
                'nodes': 1}

    def test_columns_are_those_of_the_screen(self):
        lines = gantt.draw_chart([self.slot('a'), self.slot('b')], {
            'a': 'nightly', 'b': '夜間バッチ処理'}, 60)
        self.assertTrue(lines[2].startswith('nightly (1)        #'))
        self.assertTrue(lines[3].startswith('夜間バッチ処理 (1) #'))

    def test_unknown_kind_of_slot(self):
        lines = gantt.draw_chart([self.slot(what='hold')], {}, 46)
        self.assertIn('a (1) ????', lines[2])

    def test_bad_values_are_refused(self):
        for bad in ({'width': 0}, {'width': -100}, {'width': 10**7},
                    {'begin': 0, 'end': 253402300799}, {'begin': -1},
                    {'begin': 5, 'end': 1}):
            with self.subTest(bad), self.assertRaises(InputError):
                gantt.draw_chart([self.slot()], {}, **bad)

    def test_thousands_of_years(self):
        for begin, end in (('1970-01-01T00:00:00Z', '9998-12-31T23:59:59Z'),
                           ('2027-01-31T08:00:00Z', None),
                           ('9999-12-31T23:00:00Z', None)):
            for width in 1, 20, 80, 300:
                gantt.draw_chart([self.slot(begin=begin, end=end)], {}, width)
