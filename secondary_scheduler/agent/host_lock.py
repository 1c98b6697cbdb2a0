# SPDX-License-Identifier: Apache-2.0

"""Lock that keeps a second agent off a host."""

import contextlib
import fcntl
import os
import typing

from secondary_scheduler.agent import store as agent_store


class AlreadyRunning(Exception):
    """Another agent controls this host."""


def acquire_host_lock(store: agent_store.StateStore) -> typing.IO[str]:
    """Acquire the lock of this host.

    :returns: the lock file; the lock is held as long as it is open.
    :raises AlreadyRunning: if another process holds the lock.
    """
    file = open(store.path('lock'), 'a+')
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        file.seek(0)
        owner = file.read().strip() or 'unknown'
        file.close()
        raise AlreadyRunning(
            f'another secondary-agent (process {owner}) controls this host: '
            f'it holds {store.path("lock")}. Stop it first.') from exc
    # The process number is only for the message, so a full disk is ignored.
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), str(os.getpid()).encode())
    return file
