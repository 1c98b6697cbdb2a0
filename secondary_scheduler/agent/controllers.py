"""Controllers of version 2 for the groups of guests, where they are missing.

A group of version 2 has the files of a controller only if all groups above it
hand it on (``cgroup.subtree_control``).  libvirt sees to that when it makes a
guest's groups; a ``daemon-reload`` of systemd may take it back.  What was
handed on here is noted on disk first, and taken back by ``release``.
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
HANDED_ON = 'cgroup.subtree_control'

#: Seconds until a group that refused is tried again.
_AGAIN_S = 5.0
#: All that is ever handed on.
_CONTROLLERS = frozenset({'cpu', 'cpuset'})


class Controllers:
    """Hands controllers on to groups of verified secondaries.

    Safe for threads.  With ``dry_run`` it writes nothing.
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
        #: Where we hand a controller on, outermost first: directory and name.
        saved = store.load(STATE).get('handed_on', [])
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

    def hand_on(self, base: str, controller: str) -> bool:
        """Have the groups in a guest's group have a controller.

        :param base: directory of the verified guest that holds vcpuN.
        :returns: whether anything has changed.
        """
        with self._lock:
            return self._try(base, controller)

    def _try(self, base: str, controller: str) -> bool:
        tried = self._tried.get((base, controller))
        now = self._clock()
        if (self._dry_run or controller not in _CONTROLLERS
                or tried is not None and now - tried < _AGAIN_S):
            return False
        self._tried[base, controller] = now
        try:
            if self._hierarchy.version_of(controller) != 2:
                return False
            return any([self._hand_on(path, controller)
                        for path in self._above(base, controller)])
        except (OSError, ValueError, cgroups.CgroupError) as exc:
            LOG.warning('The controller %(name)s cannot be handed on to '
                        '%(path)s: %(reason)s', {
                            'name': controller, 'path': base,
                            'reason': kernel_files.explain(exc)})
            return False

    def _above(self, base: str, controller: str) -> Iterator[str]:
        """Yield the groups from the topmost to a guest's, both included."""
        path = self._hierarchy.root(controller)
        if not self._is_below(base, controller):
            raise cgroups.CgroupError(f'{base} is not below {path}')
        yield path
        for part in os.path.relpath(base, path).split('/'):
            path = os.path.join(path, part)
            yield path

    def _hand_on(self, path: str, controller: str) -> bool:
        group = cgroups.Group(path)
        try:
            if controller in group.read(HANDED_ON).split():
                return False
            if (path, controller) not in self._done:
                self._done.append((path, controller))
                self._save()
            cgroup_handles.put(group, HANDED_ON, f'+{controller}')
            LOG.warning('%(path)s hands on the controller %(name)s again', {
                'path': path, 'name': controller})
            return True
        finally:
            group.close()

    def take_back(self, below: str = '') -> bool:
        """Undo what was done in a group and those below it, or everywhere.

        False if the kernel refuses: another group uses it by now.
        """
        with self._lock:
            return self._take_back(below)

    def _take_back(self, below: str) -> bool:
        done = True
        ours = [(path, controller) for path, controller in self._done
                if path == below or path.startswith(below.rstrip('/') + '/')]
        for path, controller in reversed(ours):
            try:
                group = cgroups.Group(path)
            except cgroups.CgroupError:
                self._done.remove((path, controller))   # it is gone
                continue
            try:
                cgroup_handles.put(group, HANDED_ON, f'-{controller}')
                self._done.remove((path, controller))
            except OSError as exc:
                done = False
                LOG.warning('%(path)s goes on handing on the controller '
                            '%(name)s: %(reason)s', {
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
    """Return an entry of the state file; what is spoilt names nothing."""
    if isinstance(entry, list | tuple) and len(entry) == 2 and all(
            isinstance(one, str) for one in entry):
        return entry[0], entry[1]
    return '', ''
