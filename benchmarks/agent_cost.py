# SPDX-License-Identifier: Apache-2.0

"""Cost of the agent on a host: CPU, CPU caused elsewhere, and memory.

With 6, 12 and 24 guests that work on one bare host, for a minute each, at the
default periods: the CPU time of the agent by thread, and that of libvirtd,
which has no other load.  The agent reports to a RabbitMQ; it has
no Placement.  What 50 guests would cost is a line through the three.
``set_changes`` are changes of CPU sets meanwhile.

    python3 tools/box bare benchmarks/agent_cost.py [--seconds 60]

``--periods`` measures something else: the agent of the unit tests' host of
files runs through so many control periods, one after the other, and its
memory is looked at on the way (needs no host: TMPDIR=/dev/shm PYTHONPATH=.
python ...).
"""

import argparse
import json
import pathlib
import resource
import shutil
import time

from benchmarks import forms

GUESTS = (6, 12, 24)
EXTRAPOLATED = 50
#: What the memory may grow by, in percent, after a twentieth of the periods.
GROWTH_PERCENT = 2.0


def threads(pid: int) -> dict[str, float]:
    """Return the CPU seconds of a process's threads so far, by name."""
    found: dict[str, float] = {}
    for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
        try:
            name = (task / 'comm').read_text().strip()
            seconds = int((task / 'schedstat').read_text().split()[0]) / 1e9
        except OSError:
            continue    # it has just ended
        found[name] = found.get(name, 0.0) + seconds
    return found


def rss_mib(pid: int | str = 'self') -> float:
    """Return a process's resident memory in MiB."""
    pages = int(pathlib.Path(f'/proc/{pid}/statm').read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def measure(agent: int, libvirtd: int, seconds: float) -> dict:
    """Return what a running agent costs, in percent of a core, and MiB."""
    before, asked = threads(agent), sum(threads(libvirtd).values())
    began = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    after, answered = threads(agent), sum(threads(libvirtd).values())
    each = {name: 100 * (value - before.get(name, 0.0)) / passed
            for name, value in after.items()}
    libvirt = 100 * (answered - asked) / passed
    return {'percent': round(sum(each.values()) + libvirt, 3),
            'libvirtd': round(libvirt, 3),
            'threads': {name: round(value, 3) for name, value in sorted(
                each.items(), key=lambda one: -one[1])},
            'rss_mib': round(rss_mib(agent), 1)}


def set_changes(status: dict) -> int:
    """Return how often an agent has changed CPU sets so far."""
    return int(status.get('affinity', {}).get('moves', 0))


def line(points: dict[int, float], x: float) -> float:
    """Return where the least-squares line through some points is."""
    mean_x = sum(points) / len(points)
    mean_y = sum(points.values()) / len(points)
    slope = (sum((a - mean_x) * (b - mean_y) for a, b in points.items())
             / sum((a - mean_x) ** 2 for a in points))
    return mean_y + slope * (x - mean_x)


def on_a_host(options: argparse.Namespace) -> dict:
    """Measure beside guests that work."""
    import rig as rigs

    import control
    import layout
    from shell import say
    control.start_service('rabbitmq')
    control.wait_service('rabbitmq')
    found: dict[int, dict] = {}
    with rigs.quiet() as rig:
        for count in options.guests:
            rig.boot(count - max(found, default=0), options.work)
            # As many as there are must have their least share on one CPU.
            with rig.agent(f'cpu <= 90% for 15s on host:{rigs.HOST}',
                           shared=['minimum_share = 1'],
                           own=options.set, broker=layout.BROKER) as agent:
                agent.wait_control(count)
                time.sleep(options.settle)
                before = set_changes(agent.status())
                found[count] = measure(agent.pid, rigs.inside_pid('libvirtd'),
                                       options.seconds) | {
                    'set_changes': set_changes(agent.status()) - before}
            say(f'{count} guests: {found[count]}')
    costs = {count: one['percent'] for count, one in found.items()}
    if len(costs) < 2:
        return {'guests': found}    # there is no line through one point
    extrapolated = line(costs, EXTRAPOLATED)
    return {'guests': found, 'extrapolated': {
        'guests': EXTRAPOLATED, 'percent': round(extrapolated, 3),
        'percent_per_10': round(extrapolated / EXTRAPOLATED * 10, 3)}}


def through_periods(count: int) -> dict:
    """Run an agent on a host of files; return its memory on the way."""
    from tests.unit.agent.base import AgentTestCase

    class Loop(AgentTestCase):
        """Three guests of two vCPUs, of which one comes and goes."""

        def runTest(self) -> None:
            """Nothing: it is only set up."""

    loop = Loop()
    loop.setUp()
    try:
        agent = loop.make()
        for number in range(3):
            loop.host.guest(number)
        agent.parts.domains.refresh()
        seen, began, pid = [], time.process_time(), 1002
        for period in range(count):
            busy = 5 + period % 7
            loop.spend(busy * 10, **{f'g{n}': busy for n in range(3)})
            agent.step()
            if not period % 20:
                agent.check()
                agent.reporter.build_report()
            if not period % 100:    # one ends, and is started anew
                shutil.rmtree(loop.host.path('proc', str(pid)))
                pid = 10_000 + period
                loop.host.guest(2, pid=pid, started=period, listed=False)
                agent.parts.domains.refresh()
            if not period % max(1, count // 20):
                seen.append(round(rss_mib(), 2))
        passed = time.process_time() - began
    finally:
        loop.doCleanups()
    growth = 100 * (seen[-1] / seen[1] - 1) if len(seen) > 2 else 0.0
    return {'periods': count, 'rss_mib': seen,
            'growth_percent': round(growth, 2),
            'cpu_ms_per_period': round(1000 * passed / count, 3)}


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=float, default=60,
                        help='of each measurement (default %(default)g)')
    parser.add_argument('--guests', type=int, nargs='+', default=GUESTS,
                        metavar='N', help='numbers of guests, in order '
                        '(default 6 12 24)')
    parser.add_argument('--work', default='cpu', choices=('cpu', 'idle'),
                        help='what guests do (default %(default)s)')
    parser.add_argument('--settle', type=float, default=10, metavar='N',
                        help='seconds before it (default %(default)g)')
    parser.add_argument('--set', nargs='*', default=[], metavar='OPTION=VALUE',
                        help='options of [secondary_agent], as '
                             'cpu_affinity=pool')
    parser.add_argument('--periods', type=int, metavar='N',
                        help='run through periods instead, and end with 1 if '
                             f'memory grows by {GROWTH_PERCENT:g} %%')
    forms.add_quick(parser, seconds=5, guests=[1, 2])
    options = parser.parse_args()
    found = (through_periods(options.periods) if options.periods
             else on_a_host(options))
    print(json.dumps(found))
    if found.get('growth_percent', 0.0) > GROWTH_PERCENT:
        raise SystemExit(1)


if __name__ == '__main__':
    main()
