# SPDX-License-Identifier: Apache-2.0

"""Daemon threads that go on after an error."""

from collections.abc import Callable
import threading
import time

from oslo_log import log as logging

from secondary_scheduler.agent import processes

LOG = logging.getLogger(__name__)


def log_errors(function: Callable[[], object]) -> Callable[[], None]:
    """Wrap a function: its exceptions are logged and not raised."""
    def call() -> None:
        try:
            function()
        except Exception:
            LOG.exception('A thread of the agent goes on after an error')
    return call


def start_thread(function: Callable[[], object], name: str) -> None:
    """Run a function on a daemon thread, whose name the system shows."""
    def run() -> None:
        processes.show_thread_name()
        function()

    threading.Thread(target=run, name=name, daemon=True).start()


def start_periodic(period: float, function: Callable[[], object], name: str,
                   stop: threading.Event) -> None:
    """Call a function each period on a thread, even after exceptions.

    A late call is not made up for.

    :param period: in seconds.
    :param stop: ends the thread when it is set.
    """
    call = log_errors(function)

    def loop() -> None:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            call()
            due = max(due + period, time.monotonic())

    start_thread(loop, name)
