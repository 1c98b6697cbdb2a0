"""Runs the tests: what needs no cloud first, then those on the box.

    tests/unit         fast, no service, no root
    tests/functional   several parts together, no service
    tests/box          on the one-machine cloud, which is brought up
    -m soak            the long ones, only by "box soak"
"""

import os
import subprocess

import layout
import shell


def _pytest(*arguments: str, netns: bool = False) -> int:
    command = [str(layout.BIN / 'python'), '-m', 'pytest', *arguments]
    if netns:
        command = shell.inside_netns(command)
    return subprocess.run(
        command, cwd=layout.SOURCE,
        env={**os.environ, **layout.credentials(),
             'PYTHONPATH': str(layout.HERE),
             'PYTHONWARNINGS': 'ignore'}).returncode


def run_tests(arguments, up, soak: bool) -> int:
    """Run the chosen tests, all in one session; return pytest's exit code.

    One session, so that its last line counts every test.
    """
    arguments.hosts = arguments.fake_hosts = arguments.engines = None
    up(arguments)
    chosen = arguments.tests or (
        ['tests/box'] if soak else
        ['tests/unit', 'tests/functional', 'tests/box'])
    return _pytest('-q', '-m', 'soak' if soak else 'not soak', *chosen,
                   netns=True)
