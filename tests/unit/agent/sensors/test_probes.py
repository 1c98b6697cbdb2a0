# SPDX-License-Identifier: Apache-2.0

import contextlib
import http.server
import os
import signal
import socketserver
import sys
import threading
import time
import unittest
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.agent.sensors import probes
from tests.unit.agent import fakes
from tests.unit.agent.sensors.cases import SensorTestCase


def soon(seconds=10.0):
    return time.monotonic() + seconds


class ParseAnswerTest(unittest.TestCase):

    def test_last_line_is_the_number(self):
        for answer, number in (
                (b'20', 20.0), (b' 0.5 \r\n\n', 0.5), (b'1e-3', 0.001),
                (b'-3', -3.0), (b'.5\n', 0.5), (b'7.', 7.0),
                (b'warming up\n12\n', 12.0)):
            self.assertEqual(number, probes.parse_answer(answer))

    def test_other_answers_are_errors(self):
        for answer in (b'', b'\n', b'nan', b'inf', b'1_0', b'20 ms', b'0x10',
                       b'1,5', b'12\nno', '\u0661'.encode(), b'\xff\xfe',
                       b'7' + b' ' * probes._BYTES):
            with self.assertRaises(probes.ProbeError):
                probes.parse_answer(answer)

    @given(st.binary())
    def test_arbitrary_answer_raises_only_probe_error(self, answer):
        with contextlib.suppress(probes.ProbeError):
            self.assertIsInstance(probes.parse_answer(answer), float)

    @given(st.floats(allow_nan=False, allow_infinity=False),
           st.sampled_from(['', '\n', ' \n\n']), st.sampled_from(['', 'a\n']))
    def test_every_number_is_parsed(self, number, end, before):
        self.assertEqual(number, probes.parse_answer(
            f'{before}{number!r}{end}'.encode()))


class ParseOptionTest(unittest.TestCase):

    def test_names_commands_and_addresses_are_parsed(self):
        self.assertEqual(
            {'p99_ms': '/bin/p99 --db "a b = c"', 'q': 'http://[::1]:9/q'},
            probes.parse_probe_option(['p99_ms = /bin/p99 --db "a b = c"',
                                       'q=http://[::1]:9/q']))

    def test_invalid_settings_are_errors(self):
        for values in (['p99'], ['= a'], ['p99 ='], ['9 = a'], ['a-b = c'],
                       ['a = b', 'a = c'], ['a = "b'], ['']):
            with self.assertRaises(ValueError):
                probes.parse_probe_option(values)

    @given(st.text(alphabet='ab =\'"/\n'))
    def test_arbitrary_setting_raises_only_value_error(self, text):
        with contextlib.suppress(ValueError):
            self.assertEqual(1, len(probes.parse_probe_option([text])))


class CommandTest(unittest.TestCase):

    def ask(self, code, seconds=10.0):
        return probes.ask_probe(f'"{sys.executable}" -S -c "{code}"',
                                soon(seconds))

    def test_command_returns_its_number(self):
        self.assertEqual(12.5, self.ask('print(12.5)'))

    def test_command_runs_without_a_shell(self):
        self.assertEqual(3.0, probes.ask_probe('printf "%s" 3', soon()))
        with self.assertRaisesRegex(probes.ProbeError, 'not a number'):
            probes.ask_probe('echo $((1+1))', soon())

    def test_failed_command_is_an_error(self):
        with self.assertRaisesRegex(probes.ProbeError, 'exits with code 3'):
            self.ask('print(1); raise SystemExit(3)')
        with self.assertRaisesRegex(probes.ProbeError, 'No such file'):
            probes.ask_probe('/nowhere/at/all', soon())

    def test_endless_output_is_an_error(self):
        begun = time.monotonic()
        with self.assertRaisesRegex(probes.ProbeError, 'more than 4096'):
            probes.ask_probe('yes 1', soon(60))
        self.assertLess(time.monotonic() - begun, 30)

    def test_hanging_command_is_killed_with_its_children(self):
        folder = fakes.Host(self).root
        file = f'{folder}/child'
        code = ('import os, time; child = os.fork(); '
                f'child and open(\'{file}\', \'w\').write(str(child)); '
                'time.sleep(600)')
        with self.assertRaisesRegex(probes.ProbeError, 'in time'):
            self.ask(code, 1.5)
        with open(file) as found:
            child = int(found.read())
        for _ in range(100):
            try:
                with open(f'/proc/{child}/stat') as stat:
                    if stat.read().rpartition(')')[2].split()[0] == 'Z':
                        break
            except OSError:
                break
            time.sleep(0.05)
        else:
            os.kill(child, signal.SIGKILL)
            self.fail('a child of the probe still runs')

    def test_child_that_keeps_the_output_open_is_an_error(self):
        begun = time.monotonic()
        with self.assertRaisesRegex(probes.ProbeError, 'in time'):
            self.ask('import os, time; print(5, flush=True); '
                     'os.fork() or time.sleep(600)', 1.0)
        self.assertLess(time.monotonic() - begun, 30)


class ServiceTest(unittest.TestCase):
    """A service on its own port; ``answer`` writes the response."""

    def setUp(self):
        case = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                case.asked.append(self.path)
                case.answer(self)

            def log_message(self, *args):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        self.asked = []
        self.end = threading.Event()
        server = Server(('127.0.0.1', 0), Handler)
        server.timeout = 0.05
        self.over = False

        def serve():
            # Not serve_forever: its end is an event, which eventlet does not
            # pass between threads once Watcher has been imported.
            while not self.over:
                server.handle_request()
            server.server_close()

        self.addCleanup(setattr, self, 'over', True)
        self.addCleanup(self.end.set)
        threading.Thread(target=serve, daemon=True).start()
        self.address = f'http://127.0.0.1:{server.server_port}/p99'

    def say(self, text, status=200, **headers):
        def answer(handler):
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            with contextlib.suppress(OSError):
                handler.wfile.write(text)
        self.answer = answer

    def test_service_returns_its_number(self):
        self.say(b'17.25\n')
        self.assertEqual(17.25, probes.ask_probe(self.address, soon()))
        self.assertEqual(['/p99'], self.asked)

    def test_answer_without_number_is_an_error(self):
        for text, status, headers, error in (
                (b'', 200, {}, 'not a number'),
                (b'busy', 200, {}, 'not a number'),
                (b'1' * 5000, 200, {}, 'more than 4096'),
                (b'1', 500, {}, '500'), (b'1', 404, {}, '404'),
                (b'1', 302, {'Location': self.address}, '302'),
                (b'12', 200, {'Content-Length': '3'}, 'incomplete')):
            self.say(text, status, **headers)
            with self.subTest(status=status, text=text[:9]), (
                    self.assertRaisesRegex(probes.ProbeError, error)):
                probes.ask_probe(self.address, soon())

    def test_service_without_answer_is_an_error(self):
        self.answer = lambda handler: self.end.wait(60)
        with self.assertRaisesRegex(probes.ProbeError, 'in time'):
            probes.ask_probe(self.address, soon(0.3))

    def test_slow_answer_is_an_error(self):
        def answer(handler):
            handler.send_response(200)
            handler.end_headers()
            with contextlib.suppress(OSError):
                while not self.end.wait(0.05):
                    handler.wfile.write(b'1')
                    handler.wfile.flush()
        self.answer = answer
        begun = time.monotonic()
        with self.assertRaisesRegex(probes.ProbeError, 'in time'):
            probes.ask_probe(self.address, soon(0.5))
        self.assertLess(time.monotonic() - begun, 30)

    def test_refused_connection_is_an_error(self):
        with self.assertRaisesRegex(probes.ProbeError, 'refused'):
            probes.ask_probe('http://127.0.0.1:1/', soon())

    def test_invalid_addresses_are_errors(self):
        for address in ('http://', 'http://[::1/', 'http://a:b/',
                        'http://127.0.0.1:1/a b'):
            with self.assertRaises(probes.ProbeError):
                probes.ask_probe(address, soon(1))


class ProbeSensorTest(SensorTestCase):

    def sensor(self, *values):
        self.config(probe=list(values), probe_period=0.5)
        return self.make(probes.ProbeSensor)

    def test_each_probe_is_a_resource(self):
        sensor = self.sensor('a = echo 20', 'b = echo 0.5', 'c = false',
                             'd = sleep 60')
        self.assertEqual(('probe:a', 'probe:b', 'probe:c', 'probe:d'),
                         sensor.resources)
        self.assertEqual(0.5, sensor.period)
        # A busy machine may start a command late.
        for _ in range(20):
            found = sensor.read(())
            if found['probe:a'].total and found['probe:b'].total:
                break
        self.assertEqual((20.0, 0.5, None, None), tuple(
            found[name].total for name in sensor.resources))
        self.assertIn('exits with code 1', found['probe:c'].why)
        self.assertIn('in time', found['probe:d'].why)

    def test_hanging_probe_is_not_queried_again(self):
        asked, end = [], threading.Event()
        self.addCleanup(end.set)

        def ask(address, deadline):
            asked.append(address)
            end.wait(60)
            return 4.0

        sensor = self.sensor('a = http://127.0.0.1:1/')
        with mock.patch.object(probes, 'ask_probe', ask):
            for _ in range(2):
                found = sensor.read(())['probe:a']
                self.assertEqual((None, probes._LATE),
                                 (found.total, found.why))
        self.assertEqual(1, len(asked))
        end.set()
        for _ in range(20):
            if sensor.read(())['probe:a'].total == 4.0:
                break
        else:
            self.fail('its late answer was not used')

    def test_cost_includes_commands(self):
        sensor = self.sensor(
            f'a = "{sys.executable}" -S -c "sum(range(3000000)); print(1)"')
        begun = sensor.spent()
        sensor.read(())
        self.assertGreater(sensor.spent() - begun, 0.005)

    def test_invalid_probe_is_an_error(self):
        with self.assertRaisesRegex(ValueError, 'probe = p99: expected NAME'):
            self.sensor('p99')

    def test_no_probe_no_resource(self):
        self.assertEqual((), self.sensor().resources)

