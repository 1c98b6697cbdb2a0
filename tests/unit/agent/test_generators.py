# SPDX-License-Identifier: Apache-2.0

"""Generators of load: bound to a CPU, and gone with their parent."""

import os
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

from secondary_scheduler.agent import generators, processes
from secondary_scheduler.cpu_affinity.characterisation import Generator
from tests.unit.agent import fakes

SOME = Generator('some', ('--cpu', '1'), 100.0)
PATIENCE_S = 20.0


class GeneratorsTest(unittest.TestCase):

    def setUp(self):
        self.host = fakes.Host(self)
        self.cpu = min(os.sched_getaffinity(0))
        self.install('echo $$ > "$0.pid"; echo "$@" > "$0.words"; '
                     'sleep 60 & wait')
        self.enterContext(mock.patch.dict(
            os.environ, PATH=self.host.root + os.pathsep
            + os.environ['PATH']))

    def install(self, script):
        self.host.write(generators.PROGRAM, f'#!/bin/sh\n{script}\n')
        os.chmod(self.host.path(generators.PROGRAM), 0o700)

    def pid(self):
        """Return the process number of the generator once it runs."""
        path = self.host.path('stress-ng.words')
        self.wait_for(lambda: os.path.exists(path))
        return int(self.host.read('stress-ng.pid'))

    def wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_missing_program_is_named_with_its_package(self):
        with (mock.patch.dict(os.environ, PATH='/nonexistent'),
              self.assertRaisesRegex(generators.GeneratorError,
                                     'apt-get install stress-ng')):
            generators.find_program()

    def test_generator_runs_on_its_cpu_until_the_end(self):
        with generators.running(SOME, self.cpu, 5.0):
            pid = self.pid()
            self.assertEqual({self.cpu}, os.sched_getaffinity(pid))
            self.assertIsNotNone(processes.start_time(pid))
        self.assertIsNone(processes.start_time(pid))
        self.assertEqual('--cpu 1 --quiet --timeout 6s\n',
                         self.host.read('stress-ng.words'))

    def test_generator_that_ends_early_is_an_error(self):
        self.install('echo $$ > "$0.pid"; echo > "$0.words"; exit 3')
        with self.assertRaisesRegex(generators.GeneratorError,
                                    'some: .* ended with code 3'), (
                generators.running(SOME, self.cpu, 5.0)):
            pid = self.pid()
            self.wait_for(lambda: processes.start_time(pid) is None)

    def test_generator_that_cannot_run_on_its_cpu_is_an_error(self):
        with self.assertRaises(generators.GeneratorError), (
                generators.running(SOME, 4095, 5.0)):
            self.fail('it runs elsewhere')

    def test_generator_dies_with_a_killed_parent(self):
        code = ('import time; from secondary_scheduler.agent import '
                'generators; from secondary_scheduler.cpu_affinity.'
                'characterisation import Generator\n'
                'with generators.running(Generator("some", (), 100.0), '
                f'{self.cpu}, 50.0): time.sleep(50)')
        with subprocess.Popen([sys.executable, '-c', code]) as parent:
            pid = self.pid()
            parent.send_signal(signal.SIGKILL)
        self.wait_for(lambda: processes.start_time(pid) is None)


if __name__ == '__main__':
    unittest.main()
