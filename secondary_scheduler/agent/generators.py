# SPDX-License-Identifier: Apache-2.0

"""Generators of load for characterisation: processes of stress-ng."""

from collections.abc import Iterator
import contextlib
import os
import shutil
import signal
import subprocess  # nosec B404: stress-ng, without a shell

from secondary_scheduler.agent import processes
from secondary_scheduler.cpu_affinity.characterisation import Generator

PROGRAM = 'stress-ng'


class GeneratorError(Exception):
    """A generator that cannot be started, or that has ended early."""


def find_program() -> str:
    """Return the path of stress-ng.

    :raises GeneratorError: if it is not installed; the text names its package
    """
    path = shutil.which(PROGRAM)
    if path is None:
        raise GeneratorError(
            f'{PROGRAM} is not installed: install the package {PROGRAM} '
            f'("apt-get install {PROGRAM}" or "dnf install {PROGRAM}"), or '
            'use --pairs, which needs no generators')
    return path


@contextlib.contextmanager
def running(generator: Generator, cpu: int, seconds: float) -> Iterator[None]:
    """Run a generator on a CPU.

    :param seconds: time after which it ends in any case
    :raises GeneratorError: if it cannot be started, or is not running at the
        end
    """
    command = [find_program(), *generator.arguments, '--quiet',
               '--timeout', f'{int(seconds) + 1}s']
    try:
        process = subprocess.Popen(  # noqa: S603  # nosec B603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd='/', start_new_session=True,
            preexec_fn=processes.dying_with_parent({cpu}))
    except (OSError, subprocess.SubprocessError) as exc:
        raise GeneratorError(f'{generator.name}: {exc}') from exc
    try:
        yield
        if process.poll() is not None:
            raise GeneratorError(f'{generator.name}: {" ".join(command)} has '
                                 f'ended with code {process.returncode}')
    finally:
        if process.returncode is None:
            # It was not waited for, so its number is not used again yet.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
