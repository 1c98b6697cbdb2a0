# SPDX-License-Identifier: Apache-2.0

"""The primary's work and what is seen of it: pgbench and samples of usage.

Each host runs a PostgreSQL server of its own, outside Nova's control.  Its
clients are pgbench processes on the box's "clients" machines, with a rate
schedule (Poisson arrivals from a seed, so two runs get the same arrivals).
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time

import cgroups
import guest
import layout
import shell

#: One transaction reads 30,000 rows: about 5 ms of CPU.
TRANSACTION = '''\
\\set first random(1, 60000)
select sum(abalance) from pgbench_accounts
 where aid between :first and :first + 30000;
'''
#: What the primary needs of its host, alone, in percent.  A burst violates the
#: policy with the secondaries at their minimum shares, while its own peaks do
#: not saturate the host: beside busy guests a transaction takes longer, and a
#: limit, unlike a CPU, does not know priorities.
CALM_PERCENT = 12
BURST_PERCENT = 50
#: A client never waits for a CPU, as on a machine of its own: a wait would
#: count as the primary's latency.  (Where real time is refused, it
#: waits.)
AT_ONCE = 'chrt -r -p 1 $$ 2> /dev/null; exec "$@"'
#: Seconds within which an emulated guest boots with a CPU of its own.
BOOT_S = 120
#: About the period (microseconds) in which an agent limits a guest.
GUEST_PERIOD_US = 20_000
#: Seconds of one measurement of what a transaction costs.
CALIBRATION_S = 8


@dataclasses.dataclass(frozen=True)
class Rates:
    """Transactions per second on a calm and on the busy host."""

    calm: int
    burst: int


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of the schedule; the burst is at one host only."""

    name: str
    seconds: int
    burst: bool = False


def schedule(quick: bool) -> tuple[Phase, ...]:
    """Return the phases: calm, burst on one host, calm again."""
    if quick:
        return (Phase('b', 20), Phase('c', 50, True), Phase('d', 45))
    return (Phase('b', 60), Phase('c', 75, True), Phase('d', 65))


def pgbench() -> str:
    """Return the path of the newest pgbench."""
    return str(sorted(pathlib.Path('/usr/lib/postgresql').glob(
        '*/bin/pgbench'))[-1])


def prepare(hosts: list[str]) -> None:
    """Fill each primary's tables once."""
    for host in hosts:
        shell.once(f'tables of the primary on {host}', shell.run, [
            pgbench(), '-h', layout.host_address(host), '-U', 'postgres',
            '-i', '-s', '1', '-q', 'postgres'])


class Clients:
    """The clients of all primaries through one run of the schedule."""

    def __init__(self, directory: pathlib.Path, phases, hosts, burst_host,
                 seed: int, rates: Rates) -> None:
        self.directory, self.rates = directory, rates
        self.phases, self.hosts = phases, hosts
        self.burst_host, self.seed = burst_host, seed
        directory.mkdir(parents=True, exist_ok=True)
        (directory / 'transaction.sql').write_text(TRANSACTION)

    def _command(self, phase: Phase, number: int, host: str) -> list[str]:
        burst = phase.burst and host == self.burst_host
        return cgroups.inside('clients', [
            'sh', '-c', AT_ONCE, 'sh', pgbench(),
            '-h', layout.host_address(host), '-U', 'postgres',
            '-n', '-f', str(self.directory / 'transaction.sql'),
            '-M', 'prepared', '-c', '8', '-j', '1',
            '-R', str(self.rates.burst if burst else self.rates.calm),
            '-T', str(phase.seconds), '-l',
            '--log-prefix', str(self.directory / f'{phase.name}-{host}'),
            f'--random-seed={self.seed * 1000 + number * 10 + int(burst)}',
            'postgres'])

    def run(self, at_phase) -> dict[str, float]:
        """Run the schedule; return when each phase began (s, epoch)."""
        for old in self.directory.glob('[bcd]-*'):
            old.unlink()
        began = {}
        for number, phase in enumerate(self.phases):
            began[phase.name] = time.time()
            at_phase(phase)
            end = time.monotonic() + phase.seconds
            clients = [subprocess.Popen(
                self._command(phase, number, host),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for host in self.hosts]
            for client in clients:
                client.wait()
            time.sleep(max(0.0, end - time.monotonic()))
        began['end'] = time.time()
        return began

    def latencies(self, phase: str, host: str, since: float = 0.0):
        """Return (time finished, latency in ms) of a phase's transactions.

        A latency counts from the instant at which the transaction was due,
        so waiting for a busy server is in it.
        """
        rows = []
        for path in self.directory.glob(f'{phase}-{host}.*'):
            for line in path.read_text().splitlines():
                fields = line.split()
                ended = int(fields[4]) + int(fields[5]) / 1e6
                if fields[2].isdigit() and ended >= since:
                    rows.append((ended, int(fields[2]) / 1000))
        return rows


def left_on_others(hosts: list[str]) -> float:
    """Return how many CPUs the policy leaves to secondaries when calm.

    That is on all hosts but the first.
    """
    return (sum(map(cgroups.host_cpus, hosts[1:]))
            * (layout.THRESHOLD - CALM_PERCENT) / 100)


@contextlib.contextmanager
def neighbours(hosts: list[str]) -> Iterator[None]:
    """Run guests of no host on the CPUs of all hosts but the first.

    They do the secondaries' work, one on each CPU, and have as much of them
    as the other hosts' guests.  What they cost the first host's primary no
    plug-in can spare it: they are on the same machine, as guests of another
    real host never are.
    """
    cpus = layout.cpus(layout.load_settings()['wide'])[1]
    limit = left_on_others(hosts)
    group = cgroups.path('cpu', cgroups.NEIGHBOURS)
    with tempfile.TemporaryDirectory() as directory:
        consoles = [pathlib.Path(directory) / str(cpu) for cpu in cpus]
        processes = [subprocess.Popen(cgroups.inside(cgroups.NEIGHBOURS, [
            'taskset', '-c', str(cpu), *guest.emulated('cpu', console)]))
            for cpu, console in zip(cpus, consoles, strict=True)]
        try:
            shell.wait_for('a neighbour', lambda: all(
                console.exists() and 'UNITS' in console.read_text()
                for console in consoles), timeout=BOOT_S)
            cgroups.limit(group, int(limit * GUEST_PERIOD_US), GUEST_PERIOD_US)
            yield
        finally:
            cgroups.limit(group, None)
            for process in processes:
                process.kill()
                process.wait()


def calibrate(directory: pathlib.Path, host: str) -> Rates:
    """Measure a transaction's CPU on this machine and choose the rates.

    So the schedule asks for the same part of a host on any machine.  A busy
    host's caches are warmer and its clock is higher: each rate is chosen by
    what a transaction costs near that rate.
    """
    def share(rate: int = 0) -> float:
        """Return the primary's share of its host, in percent.

        The median of the seconds: one in which the machine itself was held
        up says nothing of a transaction.
        """
        sampler = Sampler([host])
        sampler.start()
        if rate:
            Clients(directory, (Phase('b', CALIBRATION_S),), [host], host, 0,
                    Rates(rate, rate)).run(lambda phase: None)
        else:
            time.sleep(CALIBRATION_S)
        return statistics.median(row[host][0] for row in sampler.stop())

    idle = share()

    def rate_for(percent: float, guess: int) -> int:
        return round(percent * guess / (share(guess) - idle))

    calm = rate_for(CALM_PERCENT, 20)
    burst = rate_for(BURST_PERCENT, round(calm * BURST_PERCENT / CALM_PERCENT))
    return Rates(calm, rate_for(BURST_PERCENT, burst))


class Sampler(threading.Thread):
    """Each second: how busy each host is, by its primary and in all.

    Shares are percent of the host's CPUs, from the cgroups' own counters:
    what is not under the guests' group is the primary and its system.
    """

    def __init__(self, hosts: list[str], period: float = 1.0) -> None:
        super().__init__(daemon=True)
        self.hosts, self.period = hosts, period
        self.rows: list[dict] = []
        self._ended = threading.Event()

    @staticmethod
    def _counters(host: str) -> tuple[int, int]:
        group = cgroups.path('cpuacct', f'hosts/{host}')
        guests = group / 'machine'
        return (cgroups.usage_ns(group),
                cgroups.usage_ns(guests) if guests.exists() else 0)

    def run(self) -> None:
        """Sample until stopped."""
        before, then = {h: self._counters(h) for h in self.hosts}, time.time()
        while not self._ended.wait(self.period):
            now = time.time()
            row: dict = {'t': now}
            for host in self.hosts:
                current = self._counters(host)
                scale = 100 / (
                    (now - then) * 1e9 * cgroups.host_cpus(host))
                total = (current[0] - before[host][0]) * scale
                guests = max(0.0, current[1] - before[host][1]) * scale
                row[host] = (total - guests, guests)
                before[host] = current
            then = now
            self.rows.append(row)

    def stop(self) -> list[dict]:
        """End the thread and return its rows."""
        self._ended.set()
        self.join()
        return self.rows


def mean_usage(rows: list[dict], hosts: list[str], begin: float,
               end: float) -> float:
    """Return the mean usage of all hosts in percent over an interval."""
    values = [sum(row[host]) for row in rows for host in hosts
              if begin <= row['t'] <= end]
    return sum(values) / len(values) if values else 0.0
