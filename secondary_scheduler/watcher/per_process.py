# SPDX-License-Identifier: Apache-2.0

"""Values that must not be shared with a forked child.

Decision engine and applier construct their plug-ins in a parent process that
then forks the worker (oslo.service on native threads): threads, sockets and
locks made before the fork are unusable or shared afterwards.
"""

from collections.abc import Callable
import os
import threading
from typing import Generic, TypeVar

T = TypeVar('T')


class PerProcess(Generic[T]):
    """Creates its value at first use, once in each process."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._held: tuple[int, T] | None = None

    def __call__(self) -> T:
        """Return the value of this process."""
        with self._lock:
            if self._held is None or self._held[0] != os.getpid():
                self._held = (os.getpid(), self._make())
            return self._held[1]
