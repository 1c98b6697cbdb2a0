# SPDX-License-Identifier: Apache-2.0

"""QEMU processes of guests: find, verify, measure and kill them."""

from collections.abc import Callable, Collection
import contextlib
import ctypes
import os
import resource
import signal
import threading

from oslo_log import log as logging

from secondary_scheduler.agent import kernel_files

LOG = logging.getLogger(__name__)

#: Number of the system call process_mrelease(2), on all architectures.
_MRELEASE = 448

#: Option of prctl(2): signal to a process at the death of its parent.
_PDEATHSIG = 1

_PAGE = os.sysconf('SC_PAGE_SIZE')


def _stat(path: str) -> list[str]:
    """Return the fields of a stat file after the process name, state first.

    The name may contain blanks and parentheses.

    :raises OSError: if the process is gone.
    :raises Damaged: if fields used here are missing.
    """
    text = kernel_files.read_text(path)
    fields = text.rpartition(')')[2].split()
    if len(fields) < 20:
        raise kernel_files.Damaged(path, text, 'a line of 22 fields')
    return fields


def start_time(pid: int, proc: str = '/proc') -> int | None:
    """Return the start time of a process in clock ticks, None if it is gone.

    A process id and its start time together are never used twice.
    """
    path = f'{proc}/{pid}/stat'
    try:
        fields = _stat(path)
        return None if fields[0] in 'ZX' else kernel_files.parse_count(
            fields[19], path)
    except (OSError, ValueError):
        return None


def cpu_time_ns(pid: int, proc: str = '/proc') -> int | None:
    """Return the CPU time of a process in nanoseconds, None if it is gone.

    The kernel counts it in clock ticks.
    """
    path = f'{proc}/{pid}/stat'
    try:
        ticks = kernel_files.parse_counts(_stat(path)[11:13], 2, path)
    except (OSError, ValueError):
        return None
    return sum(ticks) * 10 ** 9 // os.sysconf('SC_CLK_TCK')


def is_over(pid: int, started: int, proc: str = '/proc') -> bool:
    """Return whether nothing is left of a process, not even its memory.

    While threads of it still exit, ``start_time`` treats the process as dead
    already, but only the last of them frees its memory.
    """
    path = f'{proc}/{pid}/stat'
    try:
        fields = _stat(path)
        return kernel_files.parse_count(fields[19], path) != started or (
            fields[0] in 'ZX' and len(os.listdir(f'{proc}/{pid}/task')) <= 1)
    except (OSError, ValueError):
        return True


def age(started: int, proc: str = '/proc') -> float | None:
    """Return the age of a process in seconds, None if unknown.

    :param started: its start time, as ``start_time`` returns it.
    """
    path = f'{proc}/uptime'
    try:
        text = kernel_files.read_text(path)
        seconds, _, hundredths = text.split()[0].partition('.')
        uptime = (kernel_files.parse_count(seconds, path)
                  + kernel_files.parse_count(hundredths or '0', path) / 100)
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, uptime - started / os.sysconf('SC_CLK_TCK'))


def resident(pid: int, proc: str) -> int | None:
    """Return the resident memory of a process in bytes, None if unknown."""
    try:
        return kernel_files.read_counts(f'{proc}/{pid}/statm', 2)[1] * _PAGE
    except (OSError, ValueError):
        return None


def is_guest(pid: int, uuid: str, name: str, proc: str = '/proc') -> bool:
    """Return whether a process is the QEMU of a guest, by its command line.

    It must have both options as libvirt writes them: ``-uuid UUID`` and
    ``-name guest=NAME``.
    """
    try:
        words = kernel_files.read_text(f'{proc}/{pid}/cmdline').split('\0')
    except (OSError, ValueError):
        return False
    pairs = list(zip(words, words[1:], strict=False))
    # In QEMU's options a comma within a value is written twice.
    guest = 'guest=' + name.replace(',', ',,')
    return ('-uuid', uuid) in pairs and any(
        option == '-name' and (value == guest
                               or value.startswith(guest + ','))
        for option, value in pairs)


def find_qemu(run_dir: str, uuid: str, name: str,
         proc: str = '/proc') -> tuple[int, int] | None:
    """Return PID and start time of a guest's QEMU, None if not verified."""
    if '/' in name or name.startswith('.'):
        return None
    try:
        pid = kernel_files.read_count(os.path.join(run_dir, name + '.pid'))
    except (OSError, ValueError):
        return None
    started = start_time(pid, proc)
    if started is None or not is_guest(pid, uuid, name, proc):
        return None
    # It must be the same process before and after the command line was read.
    return (pid, started) if start_time(pid, proc) == started else None


def kill_guest(pid: int, started: int, uuid: str, name: str,
               proc: str = '/proc') -> bool:
    """Kill the QEMU process of a guest, and never another process.

    :returns: False if the process is not this guest's, or if the kernel
        refuses.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # The descriptor refers to the process with this number now: verify
        # that it is still the guest's.
        if start_time(pid, proc) != started or (
                not is_guest(pid, uuid, name, proc)):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        free_memory(fd)
    except OSError as exc:
        LOG.error('Cannot kill the QEMU of %(uuid)s: %(reason)s',
                  {'uuid': uuid, 'reason': exc})
        return False
    finally:
        os.close(fd)
    return True


def free_memory(pidfd: int) -> None:
    """Free the memory of a killed process, on a thread of its own.

    It takes some 0.2 s for a gigabyte.  Without Linux 5.15 the threads of the
    process free it, but only as fast as they get CPU time.
    """
    try:
        own = os.dup(pidfd)
    except OSError:
        return      # too many open files

    def release() -> None:
        show_thread_name()
        try:
            ctypes.CDLL(None).syscall(_MRELEASE, own, 0)
        finally:
            os.close(own)

    threading.Thread(target=release, name='free-memory', daemon=True).start()


def show_thread_name() -> None:
    """Give this thread its name in the kernel, as ``top -H`` shows it."""
    with (contextlib.suppress(OSError),
          open(f'/proc/self/task/{threading.get_native_id()}/comm',
               'w') as file):
        file.write(threading.current_thread().name)


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit.

    The usual soft limit is 1,024, because select(2) supports no more.  This
    program does not use it, and keeps about forty files open for each guest.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def dying_with_parent(cpus: Collection[int] | None = None
                      ) -> Callable[[], None]:
    """Return a ``preexec_fn`` of a child process that dies with this one.

    It dies even if this process is killed.

    :param cpus: the only CPUs on which it may run
    """
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        if cpus is not None:
            os.sched_setaffinity(0, cpus)
        prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:      # it died before that took effect
            os._exit(1)

    return prepare
