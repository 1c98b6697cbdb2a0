# SPDX-License-Identifier: Apache-2.0

"""Time for which this machine itself was held up, as by its hypervisor.

On each CPU a thread of the highest priority (SCHED_FIFO) sleeps for a moment,
again and again.  If it wakes late, no work of this machine is the reason: the
virtual machine did not run.
"""

import math
import os
import subprocess
import sys
import tempfile
import threading
import time

from shell import say

#: Seconds of one sleep, and from when on waking up is late.
NAP_S = 0.02
LATE_S = 0.03


class Pauses:
    """Watches from its making to ``stop``.

    In a process of its own: this one's threads wait for each other.
    """

    def __init__(self) -> None:
        self._out = tempfile.TemporaryFile('w+')
        self._watch = subprocess.Popen(
            [sys.executable, __file__], stdout=self._out,
            stderr=subprocess.DEVNULL)

    def read(self) -> list[tuple[float, float]]:
        """Return the pauses so far as (end, seconds), as means over all CPUs.
        """
        # Not by seeking: both processes have one position in the file.
        number = self._out.fileno()
        text = os.pread(number, os.fstat(number).st_size, 0).decode()
        cpus = os.cpu_count() or 1
        return [(float(end), float(late) / cpus)
                for end, late in map(str.split, text.splitlines())]

    def stop(self) -> list[tuple[float, float]] | None:
        """End watching; return the pauses, None if watching is not allowed."""
        refused = self._watch.poll() is not None
        if refused:
            say('this machine does not show whether it is held up')
        self._watch.terminate()
        self._watch.wait()
        with self._out:
            return None if refused else self.read()


def held_up(pauses: list[tuple[float, float]], begin: float = 0.0,
            end: float = math.inf) -> float:
    """Return for how many seconds of a time the machine was held up."""
    return sum(late for t, late in pauses if begin < t <= end)


def _nap(cpu: int, parent: int) -> None:
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    before = time.monotonic()
    while os.getppid() == parent:
        time.sleep(NAP_S)
        now = time.monotonic()
        late = now - before - NAP_S
        if late > LATE_S:
            os.write(1, f'{time.time():.3f} {late:.3f}\n'.encode())
        before = now


if __name__ == '__main__':
    naps = [threading.Thread(target=_nap, args=(cpu, os.getppid()))
            for cpu in os.sched_getaffinity(0)]
    for nap in naps:
        nap.start()
