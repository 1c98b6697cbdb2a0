# SPDX-License-Identifier: Apache-2.0

"""Fuzz tests of all readers: valid values, or an error that names a fault."""

import contextlib
import gzip
import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import hypothesis
from hypothesis import example, given
from hypothesis import strategies as st
from oslo_config import cfg

from secondary_scheduler.cmd import clouds
from secondary_scheduler.conf import lease_api, policy
from secondary_scheduler.leases.api import policies
from secondary_scheduler.leases.api.db import urls
from secondary_scheduler.leases.client import gantt
from secondary_scheduler.plans import model_documents, plan_documents
from secondary_scheduler.reading import answers, files, options
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation import traces
from secondary_scheduler.simulation.workloads import lwf, swf
from tests.unit import fuzzing
from tests.unit.decisions import worked_example
from tests.unit.simulation.workloads.samples import JOBS, XML

#: Settings of tests that take longer than other fuzz tests.
FEWER = hypothesis.settings(
    max_examples=max(200, hypothesis.settings().max_examples // 10))

HEADER = '; MaxProcs: 8\n;MaxNodes : 4\n'
TEXT = "0 9415 3438 3000 16 1 1024 0 'NONE.img' 600\n# a comment\n"
PODS = ('name,cpu_milli,memory_mib,qos,creation_time,deletion_time\n'
        'a,4152,1024,BE,5,65.5\n')
CONFIGURATION = '''[DEFAULT]
[secondary_scheduler]
policy = cpu <= 90% for 10s
[secondary_lease_api]
database_url = sqlite:////tmp/leases.sqlite
quota_leases = 7
'''
CLOUDS = '''clouds:
  my:
    auth: {auth_url: "https://127.0.0.1:1/v3", username: u}
    cacert: /nowhere.pem
'''
RULES = '''"secondary_lease:list": "role:reader"
"secondary_lease:show": ["role:admin"]
'''
MODEL = model_documents.write_model(worked_example.cluster())
PLAN = {'schema': 1, 'operations': [{
    'id': 1, 'kind': 'migrate', 'instance': 'i1', 'lease': 'l1',
    'from': 'n1', 'to': 'n2', 'start_s': 0, 'duration_s': 5, 'after': []}]}
WORDS = ('\0', '\ud800', '\r', '\r\n', '\t', '\ufeff', ';', '"', '<', '>',
         '&lol;', '<!DOCTYPE a [<!ENTITY b "c">]>', 'encoding="foo"',
         '{', '[[[[', '- ', '*x', '&x ', '$', '$x', '%', '=', '1e999', ',',
         '99:99:99:99')


def packed(data):
    """Return a strategy for data as it is, compressed or damaged."""
    whole = gzip.compress(data, mtime=0)
    return st.one_of(
        st.sampled_from([data, whole, whole + whole, whole + b'garbage',
                         b'\xef\xbb\xbf' + data]),
        st.integers(0, len(whole)).map(lambda at: whole[:at]),
        st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)).map(
            lambda one: whole[:one[0]] + bytes([one[1]])
            + whole[one[0] + 1:]),
        st.sampled_from(['utf-16', 'utf-32', 'latin-1']).map(
            lambda name: data.decode('utf-8', 'replace').encode(
                name, 'replace')))


def damaged(text):
    """Return a strategy for the bytes of a text with damages."""
    return fuzzing.spoilt(text, WORDS).map(
        lambda one: one.encode('utf-8', 'surrogatepass')).flatmap(packed)


class FileCase(unittest.TestCase):
    """Test case with a file; errors name the file."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, 'file')

    def read(self, data, *readers):
        """Call readers on a file; an error names the file."""
        self.path.write_bytes(data)
        for reader in readers:
            try:
                reader(self.path)
            except InputError as exc:
                self.check_message(str(exc))

    def check_message(self, text):
        self.assertIn(str(self.path), text)
        text.encode('utf-8')
        self.assertLess(len(text), 2000)


class ReadersTest(FileCase):

    @fuzzing.fuzzed
    @given(damaged(HEADER + JOBS))
    def test_swf(self, data):
        self.read(data, lambda path: swf.read_trace(path, (100, 1024)))

    @fuzzing.fuzzed
    @given(damaged(XML) | damaged(TEXT))
    @example(XML.replace('?>', ' encoding="shift_jis"?>', 1).encode())
    @example(b'<a>' * 100_000)
    def test_lwf(self, data):
        self.read(data, lwf.is_xml, lwf.read_workload, lwf.read_text)

    @fuzzing.fuzzed
    @given(damaged(PODS) | st.binary(max_size=50))
    def test_csv(self, data):
        self.read(data, traces.read_openb, traces.read_planetlab)

    @fuzzing.fuzzed
    @given(st.data())
    def test_documents(self, data):
        whole = data.draw(st.sampled_from([MODEL, PLAN]))
        text = data.draw(fuzzing.changed(whole).map(json.dumps)
                         | fuzzing.spoilt(json.dumps(whole), WORDS))
        for reader in model_documents.read_model, plan_documents.read_plan:
            with contextlib.suppress(InputError):
                reader(text)

    @fuzzing.fuzzed
    @given(damaged(CONFIGURATION))
    def test_configuration(self, data):
        def read(path):
            conf = cfg.ConfigOpts()
            lease_api.register_opts(conf)
            policy.register_opts(conf)
            options.load_options(conf, [], project='any',
                                 default_config_files=[str(path)],
                                 default_config_dirs=[])

        self.read(data, read)

    @fuzzing.fuzzed
    @given(damaged(CLOUDS) | st.binary(max_size=50))
    def test_clouds(self, data):
        self.path.write_bytes(data)
        with mock.patch.dict(os.environ, {
                'OS_CLIENT_CONFIG_FILE': str(self.path)}):
            self.assertTrue(clouds.explain_error('my', ValueError('x')))

    @FEWER
    @given(damaged(RULES))
    def test_policy_file(self, data):
        conf = cfg.ConfigOpts()
        conf([], project='any', default_config_files=[])

        def read(path):
            policies.make_enforcer(conf)

        self.path.write_bytes(b'')
        policies.make_enforcer(conf)     # knows the options of oslo.policy
        conf.set_override('policy_file', str(self.path), 'oslo_policy')
        self.read(data, read)

    @FEWER
    @given(fuzzing.spoilt('mysql+pymysql://user:secret@host:3306/name?a=b',
                          ('sqlite:///', '@', ':', '%', 'postgresql')))
    @example('$mysql+pymysql://user:secret@host:3306/name')
    def test_database_url(self, text):
        conf = cfg.ConfigOpts()
        lease_api.register_opts(conf)
        conf([], project='any', default_config_files=[])
        conf.set_override('database_url', text, 'secondary_lease_api')
        try:
            urls.check_url(conf)
        except InputError as exc:
            if not text.startswith('sqlite'):
                self.assertNotIn('secret', str(exc))
            self.assertIn('database_url', str(exc))

    @fuzzing.fuzzed
    @given(fuzzing.values.map(json.dumps) | st.text())
    def test_answers(self, text):
        answer = mock.Mock(text=text, content=text.encode(
            'utf-8', 'surrogatepass'), json=lambda: json.loads(text))
        with contextlib.suppress(InputError):
            found = answers.read_answer(answer, 'Placement', {'a': list})
            self.assertIsInstance(found['a'], list)

    @fuzzing.fuzzed
    @given(st.integers(-5, 300) | st.integers(), st.text(max_size=30),
           st.none() | st.integers(), st.none() | st.integers(),
           st.integers(0, 1 << 33), st.datetimes().map(
               lambda one: one.isoformat(timespec='seconds') + 'Z'),
           st.none() | st.datetimes().map(
               lambda one: one.isoformat(timespec='seconds') + 'Z'),
           st.sampled_from(['run', 'suspend', 'other', '']))
    def test_timeline(self, width, name, begin, end, now, first, last, what):
        slot = {'lease_id': 'a', 'begin': max(first, '1970-01-02'),
                'end': last, 'what': what, 'nodes': 1}
        with contextlib.suppress(InputError):
            gantt.draw_chart([slot], {'a': name}, width, begin=begin, end=end,
                       now=now)


class FilesTest(FileCase):

    def test_gzip_members_are_joined_and_garbage_is_an_error(self):
        whole = gzip.compress(b'a\n')
        for data, lines in ((whole + whole, ['a\n', 'a\n']),
                            (whole + b'\0' * 9, ['a\n']), (b'', [])):
            self.path.write_bytes(data)
            self.assertEqual(lines, [line for _number, line
                                     in files.read_lines(self.path)])
        self.read(whole + b'garbage', lambda path: list(
            files.read_lines(path)), files.read_document)

    def test_too_large_files_are_refused(self):
        self.path.write_bytes(gzip.compress(b'\0' * (1 << 20)))
        with self.assertRaisesRegex(InputError, 'line 1: expected at most'):
            list(files.read_lines(self.path))
        with mock.patch.object(files, 'LARGEST_DOCUMENT', 1 << 19), \
                self.assertRaisesRegex(InputError, 'expected at most 0 MiB'):
            files.read_document(self.path)
        with mock.patch.object(files, 'LARGEST_FILE', 3), \
                self.assertRaisesRegex(InputError, 'expected at most'):
            self.path.write_bytes(b'a\nb\nc\n')
            list(files.read_lines(self.path))

    def test_missing_file_is_an_input_error(self):
        for path in (self.path, self.path.parent, 'a\0b'):
            with self.subTest(path), self.assertRaises(InputError):
                list(files.read_lines(path))

    def test_encodings_are_recognized(self):
        for encoding in ('utf-8', 'utf-8-sig', 'utf-16', 'utf-32'):
            self.path.write_bytes('é;\r\n1'.encode(encoding))
            with self.subTest(encoding):
                self.assertEqual('é;\r\n1', files.read_document(self.path))
                self.assertEqual([(1, 'é;\n'), (2, '1')],
                                 list(files.read_lines(self.path)))
