"""Small JSON files that are either whole or absent."""

from collections.abc import Mapping
import json
import os
import threading
import typing

from oslo_log import log as logging

LOG = logging.getLogger(__name__)


class Store:
    """The files in the agent's state directory.

    One that is read-only (for a dry run) pretends to save.
    """

    def __init__(self, directory: str, read_only: bool = False) -> None:
        self.directory = directory
        self._read_only = read_only

    def path(self, name: str) -> str:
        """Return the path of a file of ours."""
        return os.path.join(self.directory, name)

    def load(self, name: str) -> dict[str, typing.Any]:
        """Return what was saved last; nothing if it cannot be read."""
        try:
            with open(self.path(name)) as file:
                data = json.load(file)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as exc:
            LOG.error('Cannot read %(path)s, going on without: %(reason)s',
                      {'path': self.path(name), 'reason': exc})
            return {}
        return data if isinstance(data, dict) else {}

    def save(self, name: str, data: Mapping[str, typing.Any]) -> bool:
        """Replace a file in one step; a full disk is logged, not raised.

        Nothing is flushed to the disk: what these files tell of (processes
        and their cgroups) does not outlive the kernel either.
        """
        if self._read_only:
            return True
        path = self.path(name)
        # Threads must not share a temporary file.
        scratch = f'{path}.{os.getpid()}-{threading.get_ident()}'
        try:
            fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
                         0o600)
            with os.fdopen(fd, 'w') as file:
                json.dump(data, file)
            os.replace(scratch, path)
        except (OSError, TypeError, ValueError) as exc:
            LOG.error('Cannot write %(path)s: %(reason)s',
                      {'path': path, 'reason': exc})
            return False
        return True
