# SPDX-License-Identifier: Apache-2.0

"""Small JSON files that are replaced as a whole."""

from collections.abc import Mapping
import contextlib
import json
import os
import threading
import typing

from oslo_log import log as logging

from secondary_scheduler import deprecated

LOG = logging.getLogger(__name__)

if not typing.TYPE_CHECKING:
    __getattr__ = deprecated.find_renamed(__name__, {
        'Store': 'secondary_scheduler.agent.store.StateStore'})


class StateStore:
    """Files in the agent's state directory; safe for threads.

    A file that cannot be written, for example because the disk is full, is
    kept in memory until ``catch_up`` can write it.  A read-only store, for a
    dry run, saves nothing.
    """

    def __init__(self, directory: str, read_only: bool = False) -> None:
        self.directory = directory
        self._read_only = read_only
        self._lock = threading.Lock()
        #: Texts yet to be written, by file.
        self._owed: dict[str, str] = {}

    def path(self, name: str) -> str:
        """Return the path of a file."""
        return os.path.join(self.directory, name)

    def load(self, name: str) -> dict[str, typing.Any]:
        """Return the object saved last, empty if it cannot be read."""
        try:
            with open(self.path(name)) as file:
                data = json.load(file)
            if not isinstance(data, dict):
                raise ValueError('it contains no JSON object')
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as exc:
            LOG.error('Cannot read %(path)s, going on without: %(reason)s',
                      {'path': self.path(name), 'reason': exc})
            return {}
        return data

    def save(self, name: str, data: Mapping[str, typing.Any]) -> bool:
        """Replace a file in one step; errors are logged, not raised.

        The file is not flushed to the disk.  The processes and groups that it
        describes do not survive a crash of the kernel either.

        :returns: whether the file was written.
        """
        if self._read_only:
            return True
        try:
            text = json.dumps(data)
        except (TypeError, ValueError) as exc:
            LOG.error('Cannot write %(path)s: %(reason)s',
                      {'path': self.path(name), 'reason': exc})
            return False
        with self._lock:
            return self._write(name, text)

    def catch_up(self) -> bool:
        """Write files that could not be written before.

        :returns: whether all of them were written.
        """
        with self._lock:
            return all([self._write(name, text)
                        for name, text in list(self._owed.items())])

    def _write(self, name: str, text: str) -> bool:
        path = self.path(name)
        scratch = f'{path}.{os.getpid()}'
        try:
            try:
                fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
                             0o600)
                with os.fdopen(fd, 'w') as file:
                    file.write(text)
                os.replace(scratch, path)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(scratch)
                raise
        except OSError as exc:
            if name not in self._owed:  # log it once
                LOG.error('Cannot write %(path)s, will try again: %(reason)s',
                          {'path': path, 'reason': exc})
            self._owed[name] = text
            return False
        if self._owed.pop(name, None) is not None:
            LOG.warning('%s can be written again', path)
        return True
