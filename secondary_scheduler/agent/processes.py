"""Finding the QEMU process of a guest, and never another one."""

import contextlib
import ctypes
import os
import threading

#: Nothing that libvirt writes is near this; what is, is not read.
_CMDLINE_BYTES = 1 << 20
#: Number of the system call process_mrelease(2), on all architectures.
_MRELEASE = 448


def start_time(pid: int, proc: str = '/proc') -> int | None:
    """Return when a process started, in clock ticks; None if it is gone.

    A process id and its start time together are never used twice.
    """
    try:
        with open(f'{proc}/{pid}/stat', 'rb') as file:
            fields = file.read().rpartition(b')')[2].split()
        return None if fields[0] in (b'Z', b'X') else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def is_over(pid: int, started: int, proc: str = '/proc') -> bool:
    """Tell whether nothing is left of a process, its memory included.

    Where threads are still ending, the process counts as a dead one already
    (``start_time``), but the last of them gives the memory back.
    """
    try:
        with open(f'{proc}/{pid}/stat', 'rb') as file:
            fields = file.read().rpartition(b')')[2].split()
        return int(fields[19]) != started or (
            fields[0] in (b'Z', b'X')
            and len(os.listdir(f'{proc}/{pid}/task')) <= 1)
    except (OSError, ValueError, IndexError):
        return True


def age(started: int, proc: str = '/proc') -> float | None:
    """Return how many seconds ago a process started, None if unknown.

    ``started`` is in clock ticks since the boot, as ``start_time`` has it.
    """
    try:
        with open(f'{proc}/uptime') as file:
            uptime = float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, uptime - started / os.sysconf('SC_CLK_TCK'))


def is_guest(pid: int, uuid: str, name: str, proc: str = '/proc') -> bool:
    """Tell whether a process is the QEMU of a guest, by its command line.

    Both must be said as libvirt says them: ``-uuid UUID`` and
    ``-name guest=NAME``.
    """
    try:
        with open(f'{proc}/{pid}/cmdline', 'rb') as file:
            words = file.read(_CMDLINE_BYTES).decode(
                errors='surrogateescape').split('\0')
    except OSError:
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
        with open(os.path.join(run_dir, name + '.pid')) as file:
            pid = int(file.read(32))
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
