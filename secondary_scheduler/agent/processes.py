"""Finding the QEMU process of a guest, and never another one."""

import contextlib
import ctypes
import os
import threading

from secondary_scheduler.agent import kernel_files

#: Number of the system call process_mrelease(2), on all architectures.
_MRELEASE = 448


_PAGE = os.sysconf('SC_PAGE_SIZE')


def _stat(path: str) -> list[str]:
    """Return what a stat file says after the name, state first.

    The name may hold blanks and parentheses.

    :raises OSError: if the process is gone.
    :raises Damaged: if it says less than what is asked for here.
    """
    text = kernel_files.read(path)
    fields = text.rpartition(')')[2].split()
    if len(fields) < 20:
        raise kernel_files.Damaged(path, text, 'a line of 22 fields')
    return fields


def start_time(pid: int, proc: str = '/proc') -> int | None:
    """Return when a process started, in clock ticks; None if it is gone.

    A process id and its start time together are never used twice.
    """
    path = f'{proc}/{pid}/stat'
    try:
        fields = _stat(path)
        return None if fields[0] in 'ZX' else kernel_files.parse_count(
            fields[19], path)
    except (OSError, ValueError):
        return None


def is_over(pid: int, started: int, proc: str = '/proc') -> bool:
    """Tell whether nothing is left of a process, its memory included.

    Where threads are still ending, the process counts as a dead one already
    (``start_time``), but the last of them gives the memory back.
    """
    path = f'{proc}/{pid}/stat'
    try:
        fields = _stat(path)
        return kernel_files.parse_count(fields[19], path) != started or (
            fields[0] in 'ZX' and len(os.listdir(f'{proc}/{pid}/task')) <= 1)
    except (OSError, ValueError):
        return True


def age(started: int, proc: str = '/proc') -> float | None:
    """Return how many seconds ago a process started, None if unknown.

    ``started`` is in clock ticks since the boot, as ``start_time`` has it.
    """
    path = f'{proc}/uptime'
    try:
        seconds, _, hundredths = kernel_files.read(path).split()[0].partition(
            '.')
        uptime = (kernel_files.parse_count(seconds, path)
                  + kernel_files.parse_count(hundredths or '0', path) / 100)
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, uptime - started / os.sysconf('SC_CLK_TCK'))


def resident(pid: int, proc: str) -> int | None:
    """Return the memory that a process holds in bytes, None if unknown."""
    try:
        return kernel_files.read_counts(f'{proc}/{pid}/statm', 2)[1] * _PAGE
    except (OSError, ValueError):
        return None


def is_guest(pid: int, uuid: str, name: str, proc: str = '/proc') -> bool:
    """Tell whether a process is the QEMU of a guest, by its command line.

    Both must be said as libvirt says them: ``-uuid UUID`` and
    ``-name guest=NAME``.
    """
    try:
        words = kernel_files.read(f'{proc}/{pid}/cmdline').split('\0')
    except (OSError, ValueError):
        return False
    pairs = list(zip(words, words[1:], strict=False))
    # In QEMU's options a comma within a value is written twice.
    guest = 'guest=' + name.replace(',', ',,')
    return ('-uuid', uuid) in pairs and any(
        option == '-name' and (value == guest
                               or value.startswith(guest + ','))
        for option, value in pairs)


def find(run_dir: str, uuid: str, name: str,
         proc: str = '/proc') -> tuple[int, int] | None:
    """Return (pid, start time) of a guest's QEMU, None if not sure."""
    if '/' in name or name.startswith('.'):
        return None
    try:
        pid = kernel_files.read_count(os.path.join(run_dir, name + '.pid'))
    except (OSError, ValueError):
        return None
    started = start_time(pid, proc)
    if started is None or not is_guest(pid, uuid, name, proc):
        return None
    # The same process before and after its command line was read?
    return (pid, started) if start_time(pid, proc) == started else None


def take_memory(pidfd: int) -> None:
    """Take the memory of a process that was killed, on a thread of its own.

    Otherwise its own threads give it back, whenever they run.  Linux 5.15 can
    do that; where it cannot, they do.  A gigabyte takes some 0.2 s.
    """
    try:
        own = os.dup(pidfd)
    except OSError:
        return      # too many are open

    def take() -> None:
        show_thread_name()
        try:
            ctypes.CDLL(None).syscall(_MRELEASE, own, 0)
        finally:
            os.close(own)

    threading.Thread(target=take, name='take-memory', daemon=True).start()


def show_thread_name() -> None:
    """Let the kernel know this thread by its name: ``top -H`` shows it."""
    with (contextlib.suppress(OSError),
          open(f'/proc/self/task/{threading.get_native_id()}/comm',
               'w') as file):
        file.write(threading.current_thread().name)
