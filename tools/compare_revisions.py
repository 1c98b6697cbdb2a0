#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Compare the results of two revisions of this repository.

Runs every experiment of the simulator in its quick form, the benchmark of
easy decisions and a small trace of jobs with the code of both revisions, and
compares the JSON documents, except for times, sizes and the commit.  A change
that is to change no behaviour passes when no difference is left.

Run it with the interpreter of an environment in which the package and its
simulator can be imported, for instance the one of ``tools/box``:

    /var/tmp/secondary-box/venv/bin/python tools/compare_revisions.py main HEAD
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import typing

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: Public traces that some experiments read, beside the repository.
DATA = ROOT.parent / 'shared/data'
#: Keys of measured times and sizes, and of the commit, beside ``cpu_*``.
MEASURED = frozenset({'check_cpu_s', 'convert_cpu_s',
                      'rss_mib', 'git', 'seconds', 'wall_s'})
TRACE = ''.join(f'{number} {number * 30} 0 {60 + number % 7 * 40} '
                f'{1 + number % 4} -1 -1 {1 + number % 4} 600 -1 1 1 1 1 1 '
                '-1 -1 -1\n' for number in range(1, 121))
PROGRAM = ('import sys; from secondary_scheduler.cmd import manage; '
           'sys.exit(manage.main())')


class Revision:
    """A checkout of one revision in a folder of its own."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        """Check the revision out and write its entry points.

        :raises CalledProcessError: if there is no such revision.
        """
        self.name, self.folder = name, folder
        subprocess.run(['git', 'worktree', 'add', '--quiet', '--detach',
                        folder, name], cwd=ROOT, check=True)
        subprocess.run([sys.executable, 'setup.py', '-q', 'egg_info'],
                       cwd=folder, check=True, stderr=subprocess.DEVNULL)

    def run(self, *arguments: str) -> str:
        """Run Python in the checkout and return what it prints.

        :raises CalledProcessError: if it fails; its errors were printed.
        """
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, check=True,
            text=True, stdout=subprocess.PIPE,
            env={**os.environ, 'PYTHONPATH': str(self.folder)}).stdout

    def remove(self) -> None:
        """Remove the checkout."""
        subprocess.run(['git', 'worktree', 'remove', '--force', self.folder],
                       cwd=ROOT, check=True)


def commands(revision: Revision, trace: pathlib.Path
             ) -> dict[str, tuple[str, ...]]:
    """Return the commands to compare, by a name for each."""
    listed = revision.run('-c', PROGRAM, 'simulate', 'list')
    names = [line.split()[0] for line in listed.splitlines() if line.strip()]
    found = {f'simulate run {name}': (
        '-c', PROGRAM, 'simulate', 'run', name, '--quick', '--format',
        'json', '--data', str(DATA)) for name in names}
    found['simulate swf'] = ('-c', PROGRAM, 'simulate', 'swf', str(trace),
                             '--format', 'json')
    for more in ((), ('--unequal',)):
        found[' '.join(('decisions easy', *more))] = (
            'benchmarks/decisions.py', 'easy', '--quick', *more)
    return found


def strip(value: typing.Any) -> typing.Any:
    """Return a JSON value without what is measured."""
    if isinstance(value, dict):
        return {key: strip(one) for key, one in value.items()
                if key not in MEASURED and not key.startswith('cpu_')}
    if isinstance(value, list):
        return [strip(one) for one in value]
    return value


def differences(old: typing.Any, new: typing.Any, place: str = ''
                ) -> list[str]:
    """Return the places in which two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [one for key in sorted({*old, *new})
                for one in differences(old.get(key), new.get(key),
                                       f'{place}/{key}')]
    return [] if old == new else [f'{place}: {old!r} became {new!r}']


def main() -> int:
    """Compare two revisions; return 1 if their results differ."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('old', help='revision whose results are expected')
    parser.add_argument('new', help='revision that is compared with it')
    parser.add_argument('--only', metavar='TEXT', default='',
                        help='run only commands whose name contains TEXT; '
                        'without ../shared/data, name experiments that need '
                        'no data')
    options = parser.parse_args()
    failed = compared = 0
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / 'small.swf'
        trace.write_text('; MaxProcs: 16\n' + TRACE)
        both: list[Revision] = []
        try:
            for side, name in (('old', options.old), ('new', options.new)):
                both.append(Revision(name, pathlib.Path(folder) / side))
            for name, command in commands(both[0], trace).items():
                if options.only not in name:
                    continue
                old, new = (strip(json.loads(one.run(*command)))
                            for one in both)
                found = differences(old, new)
                compared += 1
                failed += bool(found)
                print(f'{name}: {"different" if found else "identical"}',
                      flush=True)
                for line in found[:20]:
                    print(f'  {line}')
        finally:
            for one in both:
                one.remove()
    print(f'{compared} results compared, {failed} differ')
    return int(failed > 0 or not compared)


if __name__ == '__main__':
    sys.exit(main())
