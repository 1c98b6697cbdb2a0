# SPDX-License-Identifier: Apache-2.0

"""Time until a primary that gets busy has the CPU that it asks for.

On one bare host of one CPU whose secondaries take all they may, a primary
steps from 30 % of the host to 100 %, and from 30 % to 60 %: once it is a
service of the host, and once a guest.  The agent works as shipped
(``priority``), by quota only (``quota``: cpu_idle = false), or not at all
(``off``).  Last, how long it takes to write the floor of ten secondaries,
with libvirtd running and with libvirtd stopped.

    python3 tools/box bare benchmarks/agent_reaction.py [--steps 10]
"""

import argparse
from collections.abc import Iterator
import contextlib
import json
import os
import random
import subprocess
import time

import rig as rigs

from benchmarks import forms
import cgroups
import hosts
from shell import say

THRESHOLD, MARGIN = 90, 2
POLICY = f'cpu <= {THRESHOLD}% for 15s on host:{rigs.HOST}'
PERIOD_S = 0.5
CALM, BURST, SHORT = 30.0, 100.0, 60.0
SECONDARIES = 4
WAYS = {'priority': (), 'quota': ('cpu_idle = false',), 'off': None}
#: It has what it asks for when 50 ms give it this part of that.
SERVED, WINDOW_S = 0.95, 0.05


@contextlib.contextmanager
def controlled(rig: rigs.Rig, way: str) -> Iterator[None]:
    """Have the host's secondaries controlled in one of the ways."""
    options = WAYS[way]
    if options is None:
        yield
        return
    with rig.agent(POLICY, shared=[f'set_point_margin = {MARGIN}'],
                   own=[f'control_period = {PERIOD_S}', *options]) as agent:
        agent.wait_control(SECONDARIES)
        time.sleep(4)
        yield


def step(primary: rigs.Service | rigs.Machine, percent: float
         ) -> dict[str, float]:
    """Let a primary step once; return how it went, in ms and percent."""
    primary.ask(CALM)
    # At any instant within a period of the controller.
    time.sleep(3 + random.random())  # noqa: S311  # nosec B311
    with rigs.watch(primary.group, f'hosts/{rigs.HOST}',
                    rigs.MACHINE) as watch:
        time.sleep(0.6)
        at = time.monotonic()
        primary.ask(percent)
        time.sleep(2.6)
    primary.ask(CALM)
    calm = watch.percent(at - 0.5, at)
    ticks = [at + 0.01 * number for number in range(240)]
    served = next((tick for tick in ticks if watch.percent(
        tick, tick + WINDOW_S)[0] >= SERVED * percent), at + 2.5)
    # The first period that is as full as it should be, but for noise.
    settled = next((tick for tick in ticks[:-50] if watch.percent(
        tick, tick + PERIOD_S)[1] <= THRESHOLD - MARGIN + 1), at + 2.5)
    return {'served_ms': 1000 * (served - at),
            'first_100_ms': watch.percent(at, at + 0.1)[0] / percent * 100,
            'settled_ms': 1000 * (settled - at),
            'calm_total': calm[1],
            'after_two_periods': watch.percent(
                at + 2 * PERIOD_S, at + 2.4)[1]}


def reaction(primary: rigs.Service | rigs.Machine, percent: float,
             steps: int) -> dict[str, dict[str, float]]:
    """Let a primary step several times."""
    rows = [step(primary, percent) for _ in range(steps)]
    return {name: rigs.spread([row[name] for row in rows])
            for name in rows[0]}


def floor_ms(rig: rigs.Rig, count: int, stopped: bool) -> dict[str, float]:
    """Return how long it takes to write the floor of all secondaries.

    ``spread_ms`` is from the first guest at the floor to the last one, when
    a policy is about to be invalid; ``command_ms`` is all of ``secondary-agent
    floor``, which loads Python and starts without knowing anything.
    """
    guests = rig.boot(count, 'cpu')
    files = [one.group() / 'vcpu0' for one in guests]
    found: dict[str, float] = {}
    with rigs.service() as primary, rig.agent(
            f'cpu <= {THRESHOLD}% for 3s on host:{rigs.HOST}',
            own=['floor_lift_delay = 600']) as agent:
        agent.wait_control(count)
        with _stopped_libvirtd() if stopped else contextlib.nullcontext():
            primary.ask(100)
            when: dict[int, float] = {}
            deadline = time.monotonic() + 60
            while len(when) < count and time.monotonic() < deadline:
                for number, path in enumerate(files):
                    if number not in when and cgroups.limit_of(path) == (
                            1000, 100_000):
                        when[number] = time.monotonic()
            if len(when) < count:
                raise SystemExit('the floor was not seen')
            found['spread_ms'] = round(
                1000 * (max(when.values()) - min(when.values())), 1)
            primary.ask(0)
    with _stopped_libvirtd() if stopped else contextlib.nullcontext():
        began = time.monotonic()
        subprocess.run([*hosts.enter(rigs.HOST),
                        str(rigs.layout.BIN / 'secondary-agent'), 'floor',
                        '--config-file', str(rig.state / 'agent.conf')],
                       check=True, stdout=subprocess.DEVNULL)
        found['command_ms'] = round(1000 * (time.monotonic() - began), 1)
        if any(cgroups.limit_of(path) != (1000, 100_000) for path in files):
            raise SystemExit('the command left one above the floor')
    rig.clear()
    return found


@contextlib.contextmanager
def _stopped_libvirtd() -> Iterator[None]:
    """Stop libvirtd as a deadlock would."""
    kill = [*hosts.enter(rigs.HOST), 'sh', '-c']
    subprocess.run([*kill, 'kill -STOP $(cat /run/libvirtd.pid)'], check=True)
    try:
        yield
    finally:
        subprocess.run([*kill, 'kill -CONT $(cat /run/libvirtd.pid)'],
                       check=True)


def main() -> None:
    """Measure every way, print tables and JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--steps', type=int, default=10,
                        help='of each kind (default %(default)s)')
    parser.add_argument('--ways', nargs='+', choices=WAYS, default=list(WAYS),
                        help='how the agent works (default: all)')
    forms.add_quick(parser, steps=1, ways=['priority'])
    options = parser.parse_args()
    found: dict[str, dict] = {}
    with rigs.quiet() as rig:
        for kind in ('service', 'guest'):
            for way in options.ways:
                rig.boot(SECONDARIES, 'cpu')
                with contextlib.ExitStack() as stack:
                    primary: rigs.Service | rigs.Machine = (
                        stack.enter_context(rigs.service())
                        if kind == 'service' else
                        rigs.Machine(rig.boot(1, 'cpu', False)[0]))
                    primary.ask(CALM)
                    stack.enter_context(controlled(rig, way))
                    for percent in (BURST, SHORT):
                        name = f'{kind} {way} to {percent:.0f} %'
                        found[name] = reaction(primary, percent,
                                               options.steps)
                        say(f'{name}: ' + ', '.join(
                            f'{key} {value["median"]} (max {value["max"]})'
                            for key, value in found[name].items()))
                rig.clear()
        for stopped in (False, True):
            name = 'floor of 10' + (', libvirtd stopped' if stopped else '')
            found[name] = floor_ms(rig, 10, stopped)
            say(f'{name}: {found[name]}')
    print(json.dumps({'cpus': os.cpu_count(), 'figures': found}))


if __name__ == '__main__':
    main()
