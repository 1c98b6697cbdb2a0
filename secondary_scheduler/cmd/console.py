# SPDX-License-Identifier: Apache-2.0

"""Output, errors and exit codes common to all commands."""

from collections.abc import Callable
import functools
import os
import sys
import typing

#: As a shell reports a program that was interrupted.
INTERRUPTED = 130

Arguments = typing.ParamSpec('Arguments')


class CommandError(Exception):
    """An error that an operator can correct; the text names the remedy."""


def command(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """Decorate the main function of a command: no traceback on interrupt.

    Characters missing in the terminal's encoding are printed as escapes. An
    output that is closed early (for instance by "head"), a full disk or an
    interrupt ends the command.
    """
    @functools.wraps(main)
    def run(*args: Arguments.args, **named: Arguments.kwargs) -> int:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, 'reconfigure'):
                stream.reconfigure(errors='backslashreplace')
        try:
            code = main(*args, **named)
            if sys.stdout is not None:
                sys.stdout.flush()
            return code
        except KeyboardInterrupt:
            return INTERRUPTED
        except OSError as exc:
            if not isinstance(exc, BrokenPipeError):
                print(f'{os.path.basename(sys.argv[0])}: {exc}',
                      file=sys.stderr)
            _drop_output()
            return 1
    return run


def _drop_output() -> None:
    """Discard buffered output, so that no flush at exit fails again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
