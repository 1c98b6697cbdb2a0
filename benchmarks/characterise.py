# SPDX-License-Identifier: Apache-2.0

"""Slow-downs of five kinds of guests beside each other, measured twice.

On a bare host of two CPUs ``secondary-agent characterise --pairs`` measures
guests that compute, move memory (1 and 8 MiB), write to a disk and send to a
network.  Their work is counted by themselves; of the last one the host counts
bytes.  The command runs twice, and the slow-downs are compared.  Then it is
interrupted (SIGTERM) and killed at random instants, and the control files of
all guests are compared with those before.

    python3 tools/box bare --cpus 2 benchmarks/characterise.py [--output FILE]
"""

import argparse
from collections.abc import Iterator, Sequence
import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time
import typing

import rig as rigs

from benchmarks import forms
import devices
import hosts
import layout
from shell import say, wait_for

CPUS = 2
SEED = 40
#: Kinds of guests, and their work.
KINDS = {'compute': 'cpu', 'memory-1m': 'dirty:1', 'memory-8m': 'dirty:8',
         'disk': 'disk', 'network': f'net:{devices.SINK}'}
#: Two values agree if the larger one is so many times the smaller at most.
AGREE = 1.1
#: Seconds in which the command ends after a signal.
_ENDS_S = 60

#: Prints the units of work of the guest ARGV[1]; a file says where they are.
_UNITS = '''
import json, pathlib, sys
sys.path.append({tools!r})
import guest
console = json.loads(pathlib.Path({consoles!r}).read_text())[sys.argv[1]]
if console:
    print(guest.last_units(pathlib.Path(console))[1])
else:
    line, = (one for one in open('/proc/net/dev') if 'test-tap:' in one)
    print(line.partition(':')[2].split()[0])
'''


class Trial:
    """The five guests, and the command."""

    def __init__(self, rig: rigs.Rig, disk: str) -> None:
        self._rig = rig
        self._config = rig.configure(own=devices.options(disk))
        xml = {'disk': devices.DISK_XML.format(disk=disk),
               'network': devices.LINK_XML}
        self.guests = {kind: rig.boot(1, work, devices=xml.get(kind, ''))[0]
                       for kind, work in KINDS.items()}
        consoles = rig.state / 'consoles.json'
        consoles.write_text(json.dumps({
            one.domain.UUIDString(): kind != 'network' and str(one.console)
            for kind, one in self.guests.items()}))
        self._units = rig.state / 'units.py'
        self._units.write_text(_UNITS.format(
            tools=str(layout.HERE), consoles=str(consoles)))
        rig.release(self._config)

    @contextlib.contextmanager
    def characterise(self, output: pathlib.Path, *options: str,
                     **streams: typing.Any) -> Iterator[subprocess.Popen]:
        """Run the command for all guests."""
        command = [
            *hosts.agent(rigs.HOST, 'characterise', configs=(self._config,)),
            *(f'{one.domain.UUIDString()}={kind}'
              for kind, one in self.guests.items()), '--pairs', '--units',
            f'{sys.executable} {self._units} {{uuid}}', '--output', output,
            *options]
        with subprocess.Popen(list(map(str, command)), **streams) as process:
            yield process

    def fingerprint(self) -> dict[str, str]:
        """Return the control files of all guests that limit or confine."""
        found = {}
        for controller in ('cpu', 'cpuset', 'blkio', 'memory'):
            for one in self.guests.values():
                for path in one.group(controller).rglob('*'):
                    if path.name in _FILES or 'throttle' in path.name:
                        with contextlib.suppress(OSError):
                            found[str(path)] = path.read_text()
        return found

    def interrupt(self, number: signal.Signals, instant: float) -> bool:
        """End the command; return whether the host is as before.

        A killed one restores nothing: ``release`` does.
        """
        before = self.fingerprint()
        assert before
        with self.characterise(self._rig.state / 'none.json', '--seconds=1',
                               '--settle=0', stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL) as process:
            wait_for('the first change', lambda: self.fingerprint() != before
                     or process.poll() is not None)
            time.sleep(instant)
            os.kill(rigs.inside_pid('secondary-agent'), number)
            code = process.wait(_ENDS_S)
        assert code, 'it ended before it was interrupted'
        changed = self.fingerprint() != before
        if number == signal.SIGKILL:
            assert changed, 'nothing was to be restored'
            self._rig.release(self._config)
        return self.fingerprint() == before


#: Files that limit or confine a group, of both versions of control groups.
_FILES = {'cpu.cfs_quota_us', 'cpu.cfs_period_us', 'cpu.shares', 'cpu.max',
          'cpu.weight', 'cpuset.cpus', 'cpuset.mems', 'io.max', 'io.weight',
          'memory.limit_in_bytes', 'memory.max', 'memory.high'}


def entries(profiles: dict) -> dict[tuple[str, str, str], float]:
    """Return the known slow-downs: matrix, victim, neighbour."""
    return {(name, victim, neighbour): value
            for name in ('time_sharing', 'space_sharing')
            for victim, row in zip(profiles['classes'], profiles[name] or (),
                                   strict=False)
            for neighbour, value in zip(profiles['classes'], row, strict=True)
            if value is not None}


def compare(first: dict, second: dict) -> dict:
    """Return how much the slow-downs of two runs differ."""
    one, other = entries(first), entries(second)
    ratios = {key: max(one[key], other[key]) / min(one[key], other[key])
              for key in one.keys() & other.keys()}
    return {
        'slowdowns': len(ratios), 'one_only': len(one.keys() ^ other.keys()),
        'agree': sum(ratio <= AGREE for ratio in ratios.values()),
        'median_ratio': round(statistics.median(ratios.values()), 3),
        'largest_ratio': round(max(ratios.values()), 3),
        'differ': {'/'.join(key): [one[key], other[key]]
                   for key, ratio in sorted(ratios.items()) if ratio > AGREE}}


def interrupted(trial: Trial, count: int, longest: float) -> dict[str, int]:
    """Interrupt and kill the command in turn; return what was restored."""
    draw = random.Random(SEED)
    numbers: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL)
    restored = 0
    for number in range(count):
        restored += trial.interrupt(numbers[number % 2],
                                    draw.uniform(0, longest))
    return {'interrupted': count, 'restored': restored}


def main() -> None:
    """Measure, compare, interrupt, print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=int, default=8, metavar='N',
                        help='of each run (default %(default)s)')
    parser.add_argument('--repeats', type=int, default=3, metavar='N',
                        help='of all runs (default %(default)s)')
    parser.add_argument('--interrupts', type=int, default=20, metavar='N',
                        help='instants (default %(default)s)')
    parser.add_argument('--output', metavar='FILE',
                        help='keep the profiles of the first run')
    forms.add_quick(parser, seconds=2, repeats=1, interrupts=2)
    options = parser.parse_args()
    with (rigs.quiet(CPUS) as rig, devices.disk() as disk,
          devices.link(rigs.HOST)):
        trial = Trial(rig, disk)
        profiles = []
        for number in (1, 2):
            output = rig.state / f'profiles{number}.json'
            say(f'measurement {number} of 2')
            with trial.characterise(output, f'--seconds={options.seconds}',
                                    f'--repeats={options.repeats}') as running:
                pass
            if running.returncode:
                raise SystemExit(running.returncode)
            profiles.append(json.loads(output.read_text()))
        if options.output:
            pathlib.Path(options.output).write_text(
                (rig.state / 'profiles1.json').read_text())
        found = {**compare(*profiles), **interrupted(
            trial, options.interrupts, 10 * options.seconds / 8)}
    print(json.dumps({**found, 'host': f'{CPUS} CPUs of {os.cpu_count()}, '
                      f'{rigs.cpu_model()}', 'kernel': os.uname().release}))


if __name__ == '__main__':
    main()
