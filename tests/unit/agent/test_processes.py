# SPDX-License-Identifier: Apache-2.0

import errno
import os
import resource
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

from secondary_scheduler.agent import processes
from tests.unit.agent import fakes

_HOLDS = 64 << 20
_HOLDER = (f'held = b"x" * {_HOLDS}\nprint(1, flush=True)\n'
           'import os, signal; os.kill(os.getpid(), signal.SIGSTOP)')


def _resident(pid):
    with open(f'/proc/{pid}/statm') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


class Finding(unittest.TestCase):
    def setUp(self):
        self.host = fakes.Host(self)
        self.uuid = self.host.guest(0)

    def find(self, name='instance-00000000'):
        return processes.find_qemu(self.host.run_dir, self.uuid, name,
                              self.host.proc)

    def test_qemu_of_a_guest_is_found(self):
        self.assertEqual((1000, 77), self.find())

    def test_other_process_with_the_pid_is_not_the_guest(self):
        self.host.process(1000, 99, fakes.UUIDS[1], 'instance-00000000')
        self.assertIsNone(self.find())
        self.host.process(1000, 99, self.uuid, 'instance-000000001')
        self.assertIsNone(self.find())

    def test_bad_names_and_files_find_nothing(self):
        self.assertIsNone(self.find('../run/instance-00000000'))
        self.assertIsNone(self.find('missing'))
        self.host.write('run/instance-00000000.pid', 'x')
        self.assertIsNone(self.find())

    def test_zombie_is_gone(self):
        text = self.host.read('proc/1000/stat').replace(') S', ') Z')
        self.host.write('proc/1000/stat', text)
        self.assertIsNone(processes.start_time(1000, self.host.proc))


class FreeMemory(unittest.TestCase):
    def test_memory_of_a_living_process_is_left_alone(self):
        with subprocess.Popen([sys.executable, '-c', _HOLDER],
                              stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            fd = os.pidfd_open(holder.pid)
            processes.free_memory(fd)
            os.close(fd)
            time.sleep(0.2)
            self.assertGreater(_resident(holder.pid), _HOLDS)
            holder.kill()

    def test_failure_to_duplicate_the_descriptor_is_ignored(self):
        with mock.patch.object(os, 'dup',
                               side_effect=OSError(errno.EMFILE, '')):
            processes.free_memory(-1)

    def test_memory_of_a_killed_process_is_freed(self):
        with subprocess.Popen([sys.executable, '-c', _HOLDER],
                              stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            before = set(os.listdir('/proc/self/fd'))
            fd = os.pidfd_open(holder.pid)
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            processes.free_memory(fd)
            os.close(fd)
            self.assertEqual(-signal.SIGKILL, holder.wait(10))
            deadline = time.monotonic() + 10
            while set(os.listdir('/proc/self/fd')) != before:
                self.assertLess(time.monotonic(), deadline,
                                'a descriptor stays open')
                time.sleep(0.01)


class FileLimit(unittest.TestCase):
    def test_soft_limit_is_raised_to_the_hard_one(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        shown = subprocess.run(
            [sys.executable, '-c', (
                'import resource\n'
                'from secondary_scheduler.agent import processes\n'
                'processes.raise_file_limit()\n'
                'print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])')],
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_NOFILE, (256, hard)),
            capture_output=True, check=True, text=True)
        self.assertEqual(hard, int(shown.stdout))
