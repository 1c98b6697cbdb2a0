# SPDX-License-Identifier: Apache-2.0

"""Process that decides for all leases, beside the decision engine.

Python runs one thread of a process at a time, and a thread that has waited for
an answer waits another 5 ms for its turn.  A decision on a violation makes
hundreds of requests.  So a thread of the same process that decides for all
leases would delay it by seconds.

The process reads pickled questions from its input and writes pickled answers
to its output.  Both come from this package only.  It ends with its input, and
a decision that hangs ends by an alarm, so that it does not survive the engine.
"""

import math
import os
import pickle  # nosec B403
import signal
import subprocess  # nosec B404
import sys
import threading
import typing

from secondary_scheduler.decisions.base import (
    Budget,
    Decision,
    DecisionRequest,
)
from secondary_scheduler.model.cluster import Cluster
from secondary_scheduler.plans.operations import Plan

#: Niceness of the process: decisions on violations come first.
_NICENESS = 5
#: Seconds after which the process counts as hanging, and is killed.  The
#: largest decisions that were measured take some tens of seconds.
_LONGEST_S = 600.0


class DecisionFailed(Exception):
    """Decision that ended with an error, or with the end of its process."""


class DecisionProcess:
    """Process for decisions, started at the first one; safe for threads.

    Questions are answered one by one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def decide(self, decision: Decision, cluster: Cluster,
               request: DecisionRequest, units: int) -> Plan:
        """Let the process decide.

        :param units: budget of the decision
        :raises DecisionFailed: if the decision raises an error, or if the
            process ends.  The next decision starts another one
        """
        with self._lock:
            try:
                answer = self._ask((decision, cluster, request, units))
            except (OSError, EOFError, pickle.UnpicklingError) as exc:
                code = self._end()
                raise DecisionFailed(
                    'the process that decides for all leases did not answer '
                    f'within {_LONGEST_S:.0f} s, or ended (exit code {code}): '
                    'see whether the host is out of memory') from exc
        if isinstance(answer, BaseException):
            raise DecisionFailed(f'{type(answer).__name__}: {answer}'
                                 ) from answer
        return typing.cast('Plan', answer)

    def _ask(self, question: object) -> object:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(   # nosec B603
                [sys.executable, '-m', __name__], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, 'PYTHONSAFEPATH': '1',
                     'PYTHONPATH': os.pathsep.join(filter(None, sys.path))})
        process = self._process
        assert process.stdin and process.stdout     # nosec B101
        # Nothing is sent of a question that cannot be pickled.
        text = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        watchdog = threading.Timer(_LONGEST_S, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            process.stdin.write(text)
            process.stdin.flush()
            return _load(process.stdout)
        finally:
            watchdog.cancel()

    def _end(self) -> int | None:
        """End the process; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                try:
                    pipe.close()
                except OSError:
                    continue    # what was not sent is lost with the process
        return process.wait()


def main() -> None:
    """Answer questions until the input ends."""
    os.nice(_NICENESS)
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    while True:
        try:
            decision, cluster, request, units = _load(sys.stdin.buffer)
        except EOFError:
            return
        answer: Plan | Exception
        # An engine that was killed does not end a decision that hangs.
        signal.alarm(math.ceil(_LONGEST_S))
        try:
            answer = decision.decide(cluster, request, Budget(units))
        except Exception as exc:
            answer = exc
        signal.alarm(0)
        answers.write(_pickled(answer))
        answers.flush()


def _load(pipe: typing.IO[bytes]) -> typing.Any:
    """Return what the other side has sent.

    :raises EOFError: if it has ended
    """
    return pickle.load(pipe)    # noqa: S301  # nosec B301


def _pickled(answer: Plan | Exception) -> bytes:
    try:
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except Exception as exc:    # an error may hold anything
        # Classes of this module have another name in the other process.
        return pickle.dumps(RuntimeError(
            f'{type(answer).__name__}: {answer} ({exc})'))


if __name__ == '__main__':
    main()
