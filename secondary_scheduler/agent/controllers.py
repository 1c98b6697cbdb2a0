# SPDX-License-Identifier: Apache-2.0

"""Enabling of cgroup controllers for secondaries, where they are missing.

A group of version 2 has the files of a controller only if all groups above it
enable it for their children (``cgroup.subtree_control``).  libvirt enables
controllers when it makes a guest's groups, but a ``daemon-reload`` of systemd
may disable them again.  Each group changed here is saved on disk first, so
that ``disable_controllers`` can undo it.
"""

from collections.abc import Callable, Iterator
import os
import threading
import time

from oslo_log import log as logging

from secondary_scheduler.agent import cgroup_handles, cgroups, kernel_files
from secondary_scheduler.agent import store as agent_store

LOG = logging.getLogger(__name__)

STATE = 'controllers.json'
SUBTREE_FILE = 'cgroup.subtree_control'

#: Seconds between two attempts for the same guest.
_RETRY_S = 5.0
#: The only controllers that are ever enabled.
_CONTROLLERS = frozenset({'cpu', 'cpuset'})


class Controllers:
    """Enables controllers for groups of verified secondaries.

    Safe for threads.  With ``dry_run`` it enables nothing.
    """

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 store: agent_store.StateStore, dry_run: bool = False,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._hierarchy = hierarchy
        self._store = store
        self._dry_run = dry_run
        self._clock = clock
        self._lock = threading.Lock()
        self._tried: dict[tuple[str, str], float] = {}
        saved = store.load(STATE).get('handed_on', [])
        #: Groups in which an agent has enabled a controller, the topmost
        #: first: directory and name of the controller.
        self._done = [(path, name) for path, name in map(
            _pair, saved if isinstance(saved, list) else [])
            if name in _CONTROLLERS and self._is_below(path, name)]

    def _is_below(self, path: str, controller: str) -> bool:
        try:
            root = self._hierarchy.root(controller)
        except cgroups.CgroupError:
            return False
        return os.path.normpath(path) == path and (
            path == root or path.startswith(root.rstrip('/') + '/'))

    def enable_controller(self, base: str, controller: str) -> bool:
        """Enable a controller for the thread groups of a guest.

        Each guest is tried at most once in a few seconds.

        :param base: parent directory of the verified guest's vcpuN groups.
        :returns: whether anything has changed.
        """
        with self._lock:
            return self._try(base, controller)

    def _try(self, base: str, controller: str) -> bool:
        tried = self._tried.get((base, controller))
        now = self._clock()
        if (self._dry_run or controller not in _CONTROLLERS
                or tried is not None and now - tried < _RETRY_S):
            return False
        self._tried[base, controller] = now
        try:
            if self._hierarchy.version_of(controller) != 2:
                return False
            return any([self._enable(path, controller)
                        for path in self._path_to(base, controller)])
        except (OSError, ValueError, cgroups.CgroupError) as exc:
            LOG.warning('Cannot enable the controller %(name)s for '
                        '%(path)s: %(reason)s', {
                            'name': controller, 'path': base,
                            'reason': kernel_files.explain(exc)})
            return False

    def _path_to(self, base: str, controller: str) -> Iterator[str]:
        """Yield the groups from the topmost to a guest's, both included.

        :raises CgroupError: if the guest's is not below the topmost.
        """
        path = self._hierarchy.root(controller)
        if not self._is_below(base, controller):
            raise cgroups.CgroupError(f'{base} is not below {path}')
        yield path
        for part in os.path.relpath(base, path).split('/'):
            path = os.path.join(path, part)
            yield path

    def _enable(self, path: str, controller: str) -> bool:
        """Enable a controller for the children of one group.

        :returns: whether it was not enabled before.
        """
        group = cgroups.Group(path)
        try:
            if controller in group.read(SUBTREE_FILE).split():
                return False
            if (path, controller) not in self._done:
                self._done.append((path, controller))
                self._save()
            cgroup_handles.put(group, SUBTREE_FILE, f'+{controller}')
            LOG.warning('Enabled the missing controller %(name)s in %(path)s',
                        {'path': path, 'name': controller})
            return True
        finally:
            group.close()

    def disable_controllers(self, below: str = '') -> bool:
        """Disable the controllers that were enabled here.

        :param below: only in this group and those below it; '' for all.
        :returns: False if the kernel refuses, because another group uses the
            controller now.
        """
        with self._lock:
            return self._disable(below)

    def _disable(self, below: str) -> bool:
        done = True
        ours = [(path, controller) for path, controller in self._done
                if path == below or path.startswith(below.rstrip('/') + '/')]
        for path, controller in reversed(ours):
            try:
                group = cgroups.Group(path)
            except cgroups.CgroupError:
                self._done.remove((path, controller))   # group is gone
                continue
            try:
                cgroup_handles.put(group, SUBTREE_FILE, f'-{controller}')
                self._done.remove((path, controller))
            except OSError as exc:
                done = False
                LOG.warning('Cannot disable the controller %(name)s in '
                            '%(path)s: %(reason)s', {
                                'path': path, 'name': controller,
                                'reason': exc})
            finally:
                group.close()
        if ours:
            self._save()
        return done

    def _save(self) -> None:
        self._store.save(STATE, {'handed_on': self._done})


def _pair(entry: object) -> tuple[str, str]:
    """Return an entry of the state file, two empty strings if damaged."""
    if isinstance(entry, list | tuple) and len(entry) == 2 and all(
            isinstance(one, str) for one in entry):
        return entry[0], entry[1]
    return '', ''
