"""What the secondaries of a calm box do to the latency of its primaries.

The demo's calm load of the primaries, over and over, in conditions that take
turns, so that what drifts on the machine drifts for all of them:

    alone      the guests of all hosts are held still
    again      the same once more: what two equal runs differ by
    own        only the first host's guests run; latency of that host
    others     only the other hosts' guests run; latency of the first host
    all        all guests run; latency of all hosts, as in the demo's (b)
    core       the guests are held still, the first host is bound to one CPU
               of the machine, and a guest of no host runs on the other CPU;
               latency of the first host
    core_free  the same without that guest: what "core" is to be held against
    machine    the guests are held still, and guests of no host compete as
               the other hosts' do; latency of all hosts

"throttled" is in how many periods of 100 ms the limits of the watched hosts
held them up.  With --burst the first host's load is three times as high, and
the only one that is watched.

Run it on a box that is up; it boots the demo's secondaries if there are none:

    python3 tools/box script benchmarks/primary_latency.py --rounds 5
"""

import argparse
from collections.abc import Iterator
import contextlib
import json
import os
import pathlib
import statistics
import tempfile
import time

import openstack

import cgroups
import demo
import layout
import report
import secondaries
import seed
from shell import say
import workload

CONDITIONS = ('alone', 'own', 'again', 'others', 'core_free', 'all', 'core',
              'machine')
FIGURES = ('p50', 'p95', 'p99')
#: So many times as many transactions: with all guests the policy still holds.
BURST = 3
#: Seconds after a change of condition that do not count.
SETTLE = 3


@contextlib.contextmanager
def bound(host: str, cpus: str) -> Iterator[None]:
    """Bind all that runs on a host's system.slice to CPUs."""
    top = cgroups.path('cpuset', f'hosts/{host}/system.slice')
    below = sorted((path for path in top.rglob('*') if path.is_dir()),
                   reverse=True)
    before = (top / 'cpuset.cpus').read_text()
    for group in (*below, top):
        (group / 'cpuset.cpus').write_text(cpus)
    try:
        yield
    finally:
        for group in (top, *reversed(below)):
            (group / 'cpuset.cpus').write_text(before)


def load(directory: str, hosts: list[str], phase: workload.Phase,
         rate: int, watched: list[str]) -> dict[str, float]:
    """Run the load; return what was seen of the watched hosts."""
    clients = workload.Clients(
        pathlib.Path(directory), (phase,), hosts, hosts[0], 1,
        workload.Rates(rate, BURST * rate))
    groups = [cgroups.path('cpu', f'hosts/{host}') for host in watched]
    before = sum(map(cgroups.throttled, groups))
    began = time.time()
    clients.run(lambda phase: None)
    found = [latency for host in watched for _, latency
             in clients.latencies(phase.name, host, began + SETTLE)]
    return {**{f'p{q}': report.percentile(found, q / 100)
               for q in (50, 95, 99)},
            'throttled': sum(map(cgroups.throttled, groups)) - before}


def measure(condition: str, directory: str, hosts: list[str],
            phase: workload.Phase, rate: int) -> dict[str, float]:
    """Return the figures of one condition."""
    still = {'own': hosts[1:], 'others': hosts[:1], 'all': []}
    watched = (hosts[:1] if phase.burst or condition not in (
        'alone', 'again', 'all', 'machine') else hosts)
    foreign = {'core': ([1], 1.0),
               'machine': (range(os.cpu_count() or 1),
                           workload.left_on_others(hosts))}
    with contextlib.ExitStack() as stack:
        stack.enter_context(cgroups.held(*(
            f'hosts/{host}/machine' for host in still.get(condition,
                                                          hosts))))
        if condition.startswith('core'):
            stack.enter_context(bound(hosts[0], '0'))
        if condition in foreign:
            stack.enter_context(workload.neighbours(*foreign[condition]))
        return load(directory, hosts, phase, rate, watched)


def table(rows: list[dict], against: dict[str, str]) -> str:
    """Return the ratios of each condition to the one it is held against."""
    lines = ['ratio to the run without, per round (median):']
    for name, base in against.items():
        if not {name, base} <= set(rows[0]):
            continue
        for figure in FIGURES:
            ratios = [row[name][figure] / row[base][figure] for row in rows]
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
    parser.add_argument('--conditions', nargs='+', choices=CONDITIONS,
                        metavar='NAME', default=CONDITIONS,
                        help='only these (default: all)')
    options = parser.parse_args()
    if os.cpu_count() == 1:
        parser.error('this machine has one CPU; two are needed')
    hosts = layout.host_names(layout.load_settings())
    cloud = openstack.connect()
    demo.remove(cloud)
    seed.demo_objects(cloud)
    workload.prepare(hosts)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        rate = workload.calibrate(pathlib.Path(directory), hosts[0]).calm
        say('booting the secondaries')
        secondaries.wait_working(secondaries.boot(openstack.connect(
            username='demo', project_name='demo'), demo.FLEET))
        try:
            for number in range(options.rounds):
                say(f'round {number + 1} of {options.rounds}')
                phase = workload.Phase('b', options.seconds, options.burst)
                rows.append({name: measure(name, directory, hosts, phase,
                                           rate)
                             for name in options.conditions})
                say(str({name: {figure: round(value, 2)
                                for figure, value in figures.items()}
                         for name, figures in rows[-1].items()}))
        finally:
            demo.remove(cloud)
    print(table(rows, {'again': 'alone', 'own': 'alone', 'others': 'alone',
                       'all': 'alone', 'core': 'core_free',
                       'machine': 'alone'}))
    print(json.dumps({'rate': rate, 'rounds': rows}))


if __name__ == '__main__':
    main()
