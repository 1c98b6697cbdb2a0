# SPDX-License-Identifier: Apache-2.0

"""Preparations of tests that need mirrors, which the box's network lacks."""

import os
import subprocess
import sys

import layout


def run_module(module: str, *launcher: str) -> None:
    """Run a module in the network of the process that started the tests.

    :param launcher: a command that runs the one after it.
    :raises CalledProcessError: if it fails; its errors were printed.
    """
    subprocess.run(
        ['nsenter', f'--net=/proc/{os.getppid()}/ns/net', *launcher,
         sys.executable, '-m', module], cwd=layout.SOURCE, check=True)
