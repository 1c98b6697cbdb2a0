# SPDX-License-Identifier: Apache-2.0

"""Mounts of control group hierarchies, as the kernel lists them."""

import dataclasses
import os
import re

from secondary_scheduler.agent import kernel_files

#: Blank, tab, line feed and backslash in a field of mountinfo.
_ESCAPED = re.compile(r'\\([0-3][0-7]{2})')


@dataclasses.dataclass(frozen=True)
class Mount:
    """One mount of a hierarchy.

    ``root`` is the group that the mount point ``point`` shows.
    """

    controllers: frozenset[str]
    root: str
    point: str
    version: int

    def directory(self, path: str) -> str | None:
        """Return the directory of a group, None if this mount hides it.

        :param path: the group as /proc/PID/cgroup names it.
        """
        if '..' in path.split('/'):
            return None     # outside of this process's cgroup namespace
        root = self.root.rstrip('/')
        if path != root and not path.startswith(root + '/'):
            return None
        return os.path.normpath(self.point + '/' + path[len(root):])


def _unescape(field: str) -> str:
    """Return a field of mountinfo without its escapes."""
    return os.fsdecode(re.sub(
        _ESCAPED.pattern.encode(), lambda m: bytes([int(m[1], 8)]),
        os.fsencode(field)))


def read_mounts(text: str) -> tuple[list[Mount], list[str]]:
    """Return the control group mounts listed in a mountinfo file.

    :returns: the mounts, and for each unusable one the reason.
    """
    found, unusable = [], []
    for line in text.split('\n'):
        left, _, right = line.partition(' - ')
        before, after = left.split(' '), right.split(' ')
        if len(before) < 5 or len(after) < 3 or after[0] not in (
                'cgroup', 'cgroup2'):
            continue
        root, point = _unescape(before[3]), _unescape(before[4])
        if after[0] == 'cgroup':
            names, version = frozenset(after[2].split(',')), 1
        else:
            try:
                names = frozenset(kernel_files.read_text(
                    point + '/cgroup.controllers').split())
            except (OSError, ValueError) as exc:    # ValueError: bad path
                unusable.append(kernel_files.explain(exc))
                continue
            version = 2
        found.append(Mount(names, root, point, version))
    return found, unusable


def is_empty(mount: Mount) -> bool:
    """Return whether a mount is one of version 1 without any file."""
    try:
        return mount.version == 1 and not os.listdir(mount.point)
    except (OSError, ValueError):
        return True
