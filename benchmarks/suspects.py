# SPDX-License-Identifier: Apache-2.0

"""Time until the secondary that harms a primary is named.

On one bare host a primary writes 4 KiB to a disk of 20 MiB/s up to fifty times
a second, and a probe returns the median time of the last second in ms.  Of
four guests three compute, and one writes to the same disk as fast as it can.
The policy on the probe is halfway between both, by its logarithm.

In a ``guest`` run the writing guest is held still while the agent starts and
for 40 s, in which it learns how often the signal fails by itself, and then let
go.  In a ``primary`` run it remains still, and the primary itself writes as
fast as it can, in phases of random length.  The agent must name the guest in
the former and none in the latter.

    python3 tools/box bare benchmarks/suspects.py [--runs 10] [--own 20]
"""

import argparse
from collections.abc import Iterator
import contextlib
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

import rig as rigs

from benchmarks import forms
import cgroups
import devices
from shell import say, wait_for

COMPUTING = 3
CPU_POLICY = f'cpu <= 90% for 15s on host:{rigs.HOST}'
CALM_S, RUN_S = 40, 60
#: Named in time, and the part of their CPU that innocent guests keep.
NAMED_S, KEPT = 30, 0.9
#: Phases of the primary's own load, from and to.
PHASES_S = 5.0, 20.0

#: Writes to ARGV[1]; keeps the median time of each second in ARGV[2].
#: While its input says 1, it also writes as fast as it can.
_PRIMARY = '''
import mmap, os, select, sys, threading, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
block, large = mmap.mmap(-1, 4096), mmap.mmap(-1, 1 << 18)
loaded = threading.Event()
def load():
    while loaded.wait():
        os.pwrite(fd, large, 96 << 20)
threading.Thread(target=load, daemon=True).start()
took, until = [], time.monotonic() + 1
while True:
    began = time.monotonic()
    os.pwrite(fd, block, 64 << 20)
    took.append(time.monotonic() - began)
    if time.monotonic() >= until:
        until = time.monotonic() + 1
        with open(sys.argv[2] + '.new', 'w') as file:
            file.write(f'{1000 * sorted(took)[len(took) // 2]:.3f}')
        os.replace(sys.argv[2] + '.new', sys.argv[2])
        took = []
    if select.select([0], [], [], 0.02)[0]:
        line = sys.stdin.readline()
        if not line:
            break
        loaded.set() if line.strip() == '1' else loaded.clear()
'''


class Primary:
    """The process that writes, and its last median."""

    def __init__(self, process: subprocess.Popen[str], file: pathlib.Path
                 ) -> None:
        self._process = process
        self.file = file

    def load(self, full: bool) -> None:
        """Let it write as fast as it can, or not."""
        assert self._process.stdin
        self._process.stdin.write(f'{int(full)}\n')

    def levels(self, seconds: int) -> list[float]:
        """Return its medians in some seconds."""
        found = []
        for _ in range(seconds):
            time.sleep(1)
            found.append(float(self.file.read_text()))
        return found


@contextlib.contextmanager
def primary(rig: rigs.Rig, disk: str) -> Iterator[Primary]:
    """Run the process in the group of the host's services."""
    cgroups.make(rigs.PRIMARY)
    file = rig.state / 'latency'
    process = subprocess.Popen(
        cgroups.inside(rigs.PRIMARY, [sys.executable, '-u', '-c', _PRIMARY,
                                      disk, str(file)]),
        stdin=subprocess.PIPE, text=True, bufsize=1)
    try:
        wait_for('the primary', file.exists)
        yield Primary(process, file)
    finally:
        process.kill()
        process.wait()
        file.unlink(missing_ok=True)


class Trial:
    """The agent's host, for several runs."""

    def __init__(self, rig: rigs.Rig, disk: str, writes: Primary) -> None:
        self._rig = rig
        self._disk = disk
        self._primary = writes
        self._innocent = rig.boot(COMPUTING, 'cpu')
        (self._writer,) = rig.boot(
            1, 'disk', devices=devices.DISK_XML.format(disk=disk))
        self.limit_ms = 0.0

    @staticmethod
    def _group(one: rigs.Guest) -> str:
        return f'{rigs.MACHINE}/{one.group().name}'

    def calibrate(self, seconds: int) -> dict[str, float]:
        """Set the limit of the policy; return both levels in ms.

        A primary that is hardly slower beside the guest shows nothing here.
        """
        with self._rig.agent(CPU_POLICY) as agent:
            agent.wait_control(COMPUTING + 1)
            with cgroups.held(self._group(self._writer)):
                alone = statistics.median(self._primary.levels(seconds))
            beside = statistics.median(self._primary.levels(seconds))
        self.limit_ms = math.sqrt(alone * beside)
        return {'alone_ms': alone, 'beside_ms': beside}

    def run(self, own: bool, seconds: int) -> dict:
        """Run the agent once; return how it went."""
        policies = (CPU_POLICY,
                    f'probe:latency <= {self.limit_ms:.3f} for 15s on '
                    f'host:{rigs.HOST}')
        with contextlib.ExitStack() as stack:
            held = stack.enter_context(contextlib.ExitStack())
            held.enter_context(cgroups.held(self._group(self._writer)))
            agent = stack.enter_context(self._rig.agent(*policies, own=[
                'suspects = true',
                f'probe = latency = cat {self._primary.file}',
                *devices.options(self._disk)]))
            agent.wait_control(COMPUTING + 1)
            watch = stack.enter_context(rigs.watch(
                *map(self._group, self._innocent), period=0.1))
            time.sleep(CALM_S)
            begun = time.monotonic()
            calm = sum(watch.percent(begun - CALM_S / 2, begun))
            if not own:
                held.close()
            found = self._observe(agent, own, seconds)
            end = time.monotonic()
            kept = sum(watch.percent(begun, end)) / calm
            self._primary.load(False)
        return {**found, 'kept': round(kept, 3)}

    def _observe(self, agent: rigs.Agent, own: bool, seconds: int) -> dict:
        """Watch the status of the agent each second."""
        writer = self._writer.domain.UUIDString()
        draw = random.Random()  # noqa: S311  # nosec B311
        named: dict[str, float] = {}
        floored: dict[str, int] = {}
        phase, until, loaded = time.monotonic(), 0.0, False
        for second in range(seconds):
            if own and time.monotonic() >= until:
                loaded = not loaded
                self._primary.load(loaded)
                until = time.monotonic() + draw.uniform(*PHASES_S)
            time.sleep(max(0.0, phase + second + 1 - time.monotonic()))
            status = agent.status()
            for uuid, one in status.get('suspects', {}).items():
                if one['verdict'] == 'confirmed':
                    named.setdefault(uuid, time.monotonic() - phase)
            for uuid, reasons in status.get('floors', {}).items():
                floored[uuid] = floored.get(uuid, 0) + bool(reasons)
        return {
            'named_s': round(named[writer], 1) if writer in named else None,
            'others_named': len(named.keys() - {writer}),
            'longest_floor_s': max((count for uuid, count in floored.items()
                                    if uuid != writer), default=0)}


def judge(guest: list[dict], own: list[dict]) -> dict:
    """Return the figures of all runs."""
    return {
        'named_in_time': sum(
            one['named_s'] is not None and one['named_s'] <= NAMED_S
            and not one['others_named'] for one in guest),
        'guest_runs': len(guest),
        'kept_enough': sum(one['kept'] >= KEPT for one in guest),
        'longest_floor_s': max((one['longest_floor_s'] for one in guest),
                               default=None),
        'unnamed': sum(one['named_s'] is None and not one['others_named']
                       for one in own),
        'own_runs': len(own)}


def main() -> None:
    """Measure, judge, print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--runs', type=int, default=10,
                        help='in which a guest does harm (default '
                             '%(default)s)')
    parser.add_argument('--own', type=int, default=20,
                        help='in which the primary harms itself (default '
                             '%(default)s)')
    parser.add_argument('--seconds', type=int, default=RUN_S, metavar='N',
                        help='of a run (default %(default)s)')
    parser.add_argument('--out', metavar='FILE', help='write all runs')
    forms.add_quick(parser, runs=1, own=1, seconds=30)
    options = parser.parse_args()
    with (rigs.quiet() as rig, devices.slow_disk() as disk,
          primary(rig, disk) as writes):
        trial = Trial(rig, disk, writes)
        levels = trial.calibrate(options.seconds // 3)
        say(f'median time of a write: {levels}, limit '
            f'{trial.limit_ms:.3f} ms')
        rows: dict[str, list[dict]] = {'guest': [], 'own': []}
        for kind, count in (('guest', options.runs), ('own', options.own)):
            for number in range(count):
                rows[kind].append(trial.run(kind == 'own', options.seconds))
                say(f'{kind} {number + 1} of {count}: {rows[kind][-1]}')
    found = {**levels, 'limit_ms': trial.limit_ms,
             **judge(rows['guest'], rows['own']), 'cpus': os.cpu_count()}
    print(json.dumps(found))
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(
            {**found, 'rows': rows}, indent=2) + '\n')


if __name__ == '__main__':
    main()
