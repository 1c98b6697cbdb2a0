# SPDX-License-Identifier: Apache-2.0

"""Runs the tests: what needs no cloud first, then those on the box.

    tests/unit         fast, no service, no root; a process for each CPU
    tests/functional   several parts together, no service
    tests/box          on the one-machine cloud, which is brought up
    -m soak            the long ones, only by "box soak", which also feeds
                       five times as much to the tests in test_fuzz.py
"""

import os
import subprocess

import layout
import shell


def _pytest(*arguments: str, netns: bool = False, **more: str) -> int:
    command = [str(layout.BIN / 'python'), '-m', 'pytest', *arguments]
    if netns:
        command = shell.inside_netns(command)
    return subprocess.run(
        command, cwd=layout.SOURCE,
        env={**os.environ, **layout.credentials(),
             'PYTHONPATH': str(layout.HERE),
             'PYTHONWARNINGS': 'ignore', **more}).returncode


def _fuzz() -> int:
    return _pytest('-q', *map(str, sorted(layout.SOURCE.glob(
        'tests/unit/*/test_fuzz.py'))), HYPOTHESIS_PROFILE='search')


def run_tests(arguments, up, soak: bool) -> int:
    """Run the chosen tests; return the worst of pytest's exit codes.

    Each directory gets processes of its own: Nova and Watcher, which the unit
    tests import, both fill the one global configuration.
    """
    up(arguments)
    together = [] if soak else ['-n', 'logical']
    sessions = [[*together, 'tests/functional'], ['tests/box']]
    if arguments.tests:
        sessions = [arguments.tests]
    elif not soak:
        # Files of few tests, which may be long, would come last.
        sessions.insert(0, [*together, '--dist', 'loadfile',
                            '--no-loadscope-reorder', 'tests/unit'])
    with shell.in_use():
        codes = [_pytest('-q', '--durations=15', '-m',
                         'soak' if soak else 'not soak', *chosen,
                         netns=True) for chosen in sessions]
        if soak and not arguments.tests:
            codes.append(_fuzz())
    return max(codes)
