# SPDX-License-Identifier: Apache-2.0

"""Effect of the secondaries of a calm box on the latency of its primaries.

The demo's calm load of the primaries, over and over, in conditions that take
turns, so that what drifts on the machine drifts for all of them:

    alone      the guests of all hosts are held still
    again      the same once more: what two equal runs differ by
    own        only the first host's guests run
    others     only the other hosts' guests run
    all        all guests run, as in the demo
    machine    the guests are held still, and guests of no host are where the
               other hosts' are

The first host is watched, on whose CPU of the machine no other host is.
"throttled" is in how many periods of 100 ms its limit held it up.  With
--burst its load is three times as high.

Run it on a box that is up; it boots the demo's secondaries if there are none:

    python3 tools/box script benchmarks/primary_latency.py --rounds 5
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import tempfile
import time

import openstack

from benchmarks import forms
import cgroups
import demo
import layout
import report
import secondaries
import seed
from shell import say
import workload

CONDITIONS = ('alone', 'own', 'again', 'others', 'all', 'machine')
FIGURES = ('p50', 'p95', 'p99')
#: So many times as many transactions: with all guests the policy still holds.
BURST = 3
#: Seconds after a change of condition that do not count.
SETTLE = 3


def measure(condition: str, directory: str, hosts: list[str],
            phase: workload.Phase, rate: int) -> dict[str, float]:
    """Run the load in one condition; return what was seen of the first host.
    """
    clients = workload.Clients(
        pathlib.Path(directory), (phase,), hosts, hosts[0], 1,
        workload.Rates(rate, BURST * rate))
    limited = cgroups.path('cpu', f'hosts/{hosts[0]}')
    still = {'own': hosts[1:], 'others': hosts[:1], 'all': []}
    with contextlib.ExitStack() as stack:
        stack.enter_context(cgroups.held(*(
            f'hosts/{host}/machine' for host in still.get(condition,
                                                          hosts))))
        if condition == 'machine':
            stack.enter_context(workload.neighbours(hosts))
        before = cgroups.throttled(limited)
        began = time.time()
        clients.run(lambda phase: None)
        throttled = cgroups.throttled(limited) - before
    found = [latency for _, latency
             in clients.latencies(phase.name, hosts[0], began + SETTLE)]
    return {**{f'p{q}': report.percentile(found, q / 100)
               for q in (50, 95, 99)}, 'throttled': throttled}


def table(rows: list[dict]) -> str:
    """Return the ratios of each condition to the primary alone."""
    lines = ['ratio to the primary alone, per round (median):']
    for name in CONDITIONS[1:]:
        for figure in FIGURES:
            ratios = [row[name][figure] / row['alone'][figure]
                      for row in rows]
            lines.append(f'  {name:7} {figure:7}' + ' '.join(
                f'{ratio:5.2f}' for ratio in ratios)
                + f'   ({statistics.median(ratios):.2f})')
    return '\n'.join(lines)


def main() -> None:
    """Measure, print a table and JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=int, default=25,
                        help='of each measurement (default %(default)s)')
    parser.add_argument('--burst', action='store_true',
                        help='a higher load on the first host')
    parser.add_argument('--rounds', type=int, default=5,
                        help='of all conditions (default %(default)s)')
    forms.add_quick(parser, seconds=3, rounds=1)
    options = parser.parse_args()
    hosts = layout.host_names(layout.load_settings())
    cloud = openstack.connect()
    demo.remove(cloud)
    seed.demo_objects(cloud)
    workload.prepare(hosts)
    rows = []
    with seed.without_leases(
            cloud), tempfile.TemporaryDirectory() as directory:
        rate = workload.calibrate(pathlib.Path(directory), hosts[0]).calm
        say('booting the secondaries')
        secondaries.wait_working(secondaries.boot(openstack.connect(
            username='demo', project_name='demo'),
            demo.FLEET[:3] if options.quick else demo.FLEET))
        try:
            for number in range(options.rounds):
                say(f'round {number + 1} of {options.rounds}')
                phase = workload.Phase('b', options.seconds, options.burst)
                rows.append({name: measure(name, directory, hosts, phase,
                                           rate)
                             for name in CONDITIONS})
                say(str({name: {figure: round(value, 2)
                                for figure, value in figures.items()}
                         for name, figures in rows[-1].items()}))
        finally:
            demo.remove(cloud)
    print(table(rows))
    print(json.dumps({'rate': rate, 'rounds': rows}))


if __name__ == '__main__':
    main()
