# SPDX-License-Identifier: Apache-2.0

"""A primary that gets busy: pgbench at a rate, or a process with a duty."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import cgroups
import hosts
import layout
from tests.box import machine
import workload

#: Burns ARGV[1] CPU seconds a second, and makes up for what it was denied,
#: as a service does whose requests wait.
_BURNER = '''
import sys, time
duty, began = float(sys.argv[1]), time.monotonic()
while True:
    while time.process_time() < duty * (time.monotonic() - began):
        sum(range(2000))
    time.sleep(0.01)
'''
#: Burns as much as is missing, each second, for the group ARGV[1] to use
#: ARGV[2] CPUs.
_REST = '''
import pathlib, sys, time
import cgroups
group, cpus = pathlib.Path(sys.argv[1]), float(sys.argv[2])
while True:
    began, before = time.monotonic(), cgroups.usage_ns(group)
    while (passed := time.monotonic() - began) < 1:
        if cgroups.usage_ns(group) - before < cpus * passed * 1e9:
            sum(range(20000))
        else:
            time.sleep(0.01)
'''


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def burst(host: str, rates: workload.Rates,
          directory: pathlib.Path) -> Iterator[None]:
    """Keep a host's primaries as busy as in the demo's burst.

    The speed of a shared machine changes by half within a minute.  What
    PostgreSQL then takes less for its transactions another process takes.
    """
    script = directory / 'transaction.sql'
    script.write_text(workload.TRANSACTION)
    group = hosts.system_group(host)
    client = cgroups.inside('clients', [
        workload.pgbench(), '-h', layout.host_address(host),
        '-U', 'postgres', '-n', '-f', str(script), '-M', 'prepared',
        '-c', '8', '-j', '1', '-R', str(rates.burst), '-T', '900',
        '--random-seed=1', 'postgres'])
    rest = cgroups.inside(group, [
        'env', f'PYTHONPATH={layout.HERE}', sys.executable, '-c', _REST,
        str(cgroups.path('cpuacct', group)),
        str(workload.BURST_PERCENT / 100 * cgroups.host_cpus(host))])
    with _running(client) as pgbench, _running(rest) as burner:
        yield
        assert burner.poll() is None, 'what makes up for PostgreSQL has ended'
        assert pgbench.poll() is None, 'pgbench ended before the burst did'


class Burner:
    """A primary process that asks for so many percent of its host.

    ``share_of_demand`` tells how much of what it asked for it has got.
    """

    def __init__(self, pid: int, duty: float) -> None:
        self._pid, self._duty = pid, duty

    def _cpu_s(self) -> float:
        stat = pathlib.Path(f'/proc/{self._pid}/stat').read_text()
        fields = stat.rpartition(')')[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def share_of_demand(self, seconds: float) -> float:
        """Measure for some seconds."""
        before, began = self._cpu_s(), machine.clock()
        time.sleep(seconds)
        return (self._cpu_s() - before) / (
            self._duty * (machine.clock() - began))


@contextlib.contextmanager
def burner(host: str, percent: float) -> Iterator[Burner]:
    """Run a primary process in a host's system.slice."""
    duty = percent / 100 * cgroups.host_cpus(host)
    with _running(cgroups.inside(
            hosts.system_group(host),
            [sys.executable, '-c', _BURNER, str(duty)])) as process:
        yield Burner(process.pid, duty)
