# SPDX-License-Identifier: Apache-2.0

"""Distortion of a primary by the bandwidth limit of its box host.

For each period of the limit, and with or without a burst, the latency of the
PostgreSQL primary of one host at a third of its capacity: alone, and beside a
process in the guests' group with the lowest priority and 40 % of the host.
"No limit" is the reference: the same load on the host without a limit.

Run it on a box that is up and holds no instances:

    python3 tools/box script benchmarks/host_distortion.py [--seconds 15]
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

from benchmarks import forms
import cgroups
import report
import workload

HOST = 'box1'
SHARE = 0.4
PERIODS_US = (2000, 5000, 20000, 50000, 100000)


def limit(size: float, period: int | None, burst: bool) -> None:
    """Set the host's bandwidth limit, ``size`` CPUs, or take it off."""
    group = cgroups.path('cpu', f'hosts/{HOST}')
    if period is None:
        cgroups.limit(group, None)
        return
    # The kernel refuses a quota below 1 ms.
    quota = max(int(size * period), 1000)
    cgroups.limit(group, quota, max(period, 2500), quota if burst else 0)


def burner(size: float, seconds: int) -> subprocess.Popen:
    """Start a process that wants a whole CPU and may have 40 % of a host."""
    name = f'hosts/{HOST}/machine/burner'
    cgroups.make(name)
    group = cgroups.path('cpu', name)
    # As the agent does while only secondaries are in it.
    (group.parent / 'cpu.idle').write_text('1')
    cgroups.limit(group, int(SHARE * size * 20000), 20000)
    return subprocess.Popen(cgroups.inside(name, [
        'timeout', str(seconds), 'sh', '-c', 'while :; do :; done']))


def measure(directory: str, seconds: int, rate: int) -> dict[str, float]:
    """Return the latencies of one run, in ms."""
    clients = workload.Clients(
        pathlib.Path(directory), (workload.Phase('b', seconds),), [HOST],
        HOST, 1, workload.Rates(rate, rate))
    clients.run(lambda phase: None)
    found = [latency for _, latency in clients.latencies('b', HOST)]
    return {f'p{q}': round(report.percentile(found, q / 100), 2)
            for q in (50, 95, 99)}


def main() -> None:
    """Measure every way, print a table and JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=int, default=15,
                        help='of each measurement (default %(default)s)')
    forms.add_quick(parser, seconds=2)
    options = parser.parse_args()
    ways = [(None, False)] + [(period, burst) for period in PERIODS_US
                              for burst in (False, True)]
    if options.quick:
        ways = [ways[0], ways[-1]]
    size = cgroups.host_cpus(HOST)
    workload.prepare([HOST])
    try:
        rows = try_all(ways, size, options.seconds)
    finally:
        cgroups.resize_host(HOST, size)
        for path in cgroups.groups(f'hosts/{HOST}/machine/burner'):
            os.rmdir(path)
        # An agent leaves what it has not set, and primaries would be last.
        (cgroups.path('cpu', f'hosts/{HOST}/machine') / 'cpu.idle'
         ).write_text('0')
    print(json.dumps(rows))


def try_all(ways, size: float, seconds: int) -> list[dict]:
    """Measure under each limit, (period, burst), of a host of ``size`` CPUs.
    """
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        rate = workload.calibrate(pathlib.Path(directory), HOST).calm
        for period, burst in ways:
            limit(size, period, burst)
            alone = measure(directory, seconds, rate)
            process = burner(size, seconds + 1)
            beside = measure(directory, seconds, rate)
            process.wait()
            rows.append({'period_us': period, 'burst': burst,
                         'alone': alone, 'beside': beside})
            print(f"{period or 'no limit':>9} us, burst {burst!s:5}: "
                  f'alone {alone}, beside {beside}', flush=True)
    return rows


if __name__ == '__main__':
    main()
