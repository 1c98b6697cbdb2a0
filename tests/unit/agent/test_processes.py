"""Processes that are killed."""

import errno
import os
import signal
import subprocess
import sys
import time
from unittest import mock

from secondary_scheduler.agent import processes

_HOLDS = 64 << 20
_HOLDER = (f'held = b"x" * {_HOLDS}\nprint(1, flush=True)\n'
           'import os, signal; os.kill(os.getpid(), signal.SIGSTOP)')


def _resident(pid):
    with open(f'/proc/{pid}/statm') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def test_memory_of_who_lives_is_left_alone():
    with subprocess.Popen([sys.executable, '-c', _HOLDER],
                          stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        fd = os.pidfd_open(holder.pid)
        processes.take_memory(fd)
        os.close(fd)
        time.sleep(0.2)
        assert _resident(holder.pid) > _HOLDS
        holder.kill()


def test_without_a_descriptor_it_gives_its_memory_back_itself():
    with mock.patch.object(os, 'dup', side_effect=OSError(errno.EMFILE, '')):
        processes.take_memory(-1)


def test_a_killed_process_is_over_soon():
    with subprocess.Popen([sys.executable, '-c', _HOLDER],
                          stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        before = set(os.listdir('/proc/self/fd'))
        fd = os.pidfd_open(holder.pid)
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        processes.take_memory(fd)
        os.close(fd)
        assert holder.wait(10) == -signal.SIGKILL
        deadline = time.monotonic() + 10
        while set(os.listdir('/proc/self/fd')) != before:
            assert time.monotonic() < deadline, 'a descriptor stays open'
            time.sleep(0.01)
