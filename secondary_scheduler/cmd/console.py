"""Output and end that all commands have in common."""

from collections.abc import Callable
import functools
import os
import sys
import typing

#: As a shell reports a program that was interrupted.
INTERRUPTED = 130

Arguments = typing.ParamSpec('Arguments')


def command(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """Let a command print any text, and end early, without traceback.

    Characters that the terminal's encoding lacks are printed as escapes.  An
    output that is closed early (by "head", say), a full disk or an interrupt
    end the command.
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
    """Keep the interpreter from printing again, at its end, what failed."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
