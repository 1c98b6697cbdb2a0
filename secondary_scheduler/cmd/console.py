"""What all commands have in common: how they end when something is amiss."""

from collections.abc import Callable
import functools
import os
import sys
import typing

#: As a shell reports a program that was interrupted.
INTERRUPTED = 130

Arguments = typing.ParamSpec('Arguments')


def command(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """Let a command print any text, and be interrupted, without traceback.

    Characters that the terminal's encoding lacks are printed as escapes.  An
    output that is closed early (by "head", say) ends the command.
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
        except BrokenPipeError:
            # Or the interpreter would try again to print what is left.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
    return run
