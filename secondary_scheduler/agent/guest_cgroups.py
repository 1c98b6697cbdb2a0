# SPDX-License-Identifier: Apache-2.0

"""Verified control groups of secondaries, and the writing of their files.

A direct write takes a tenth of a millisecond and needs neither libvirtd nor
its job lock.  ``GuestCgroups.write`` accepts groups of verified secondaries,
and ``cpu.*`` files of the group opened by ``open_slice``.  ``Priority`` opens
libvirt's machine slice with that, and nothing else.

Two other modules write control files: ``dedicated_cpus`` writes CPU sets of
verified secondaries.  ``controllers`` enables controllers in the groups of
verified secondaries and in all groups above.

Callers record the original value of a file in ``originals`` and ``save()`` it
before its first ``write``, so that any later agent can restore it.
"""

from collections.abc import Iterable
import functools
import os
import re
import threading

from oslo_log import log as logging

from secondary_scheduler.agent import cgroups
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.cgroup_handles import (
    EMULATOR,
    VCPU,
    CgroupHandles,
    NotSecondary,
    key_of,
    lives,
    open_handles,
    process_key,
    set_file,
)
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.kernel_files import explain
from secondary_scheduler.agent.problems import Problems

LOG = logging.getLogger(__name__)

STATE = 'limits.json'

#: The freezer of version 2; it needs no controller.
FREEZE_FILE = 'cgroup.freeze'
OOM_FILE = 'oom_score_adj'

#: The kernel's OOM killer chooses processes with this score first, regardless
#: of their size.
FIRST_FOR_OOM_KILLER = '1000'

#: Files that may be written, by path below a group.
_WRITABLE = re.compile(
    r'((vcpu\d+|emulator|iothread\d+)/'
    r'(cpu\.cfs_quota_us|cpu\.cfs_period_us|cpu\.max))'
    r'|cpu\.idle|cpu\.shares|cpu\.weight|oom_score_adj'
    r'|memory\.(soft_limit_in_bytes|high)|cgroup\.freeze')


class GuestCgroups:
    """Open groups of secondaries, and the original values of their files.

    Callers hold ``lock`` while they use it.  With ``dry_run``, writes are
    logged instead of made.
    """

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 store: agent_store.StateStore, dry_run: bool = False
                 ) -> None:
        self.hierarchy = hierarchy
        self.v1 = hierarchy.version == 1
        self.dry_run = dry_run
        self.lock = threading.RLock()
        self.problems = Problems(functools.partial(
            LOG.error, 'Cannot limit %s: %s'))
        self._store = store
        self._open_handles: dict[tuple[str, int, int], CgroupHandles] = {}
        self._slice: cgroups.Group | None = None
        state = store.load(STATE)
        guests = state.get('guests', {})
        #: Original value of each file written, by process key and file.
        self.originals: dict[str, dict[str, str]] = {
            guest: {name: value for name, value in _texts(files).items()
                    if _is_original(name, value)}
            for guest, files in guests.items()} if isinstance(
                guests, dict) else {}
        #: Path and original weight of the slice given the lowest priority.
        self.idle_slice = _texts(state.get('slice', {}))
        if not self.idle_slice.keys() >= {'path', 'weight'}:
            self.idle_slice = {}
        if state and state != {'guests': self.originals,
                               'slice': self.idle_slice}:
            LOG.error('Parts of %s cannot be read and are ignored: guests '
                      'may keep limits of this agent', store.path(STATE))
        #: Keys of killed processes; they need CPU time to exit.
        self.killed: set[str] = set()
        #: Paths of groups in which threads of former secondaries exit.
        self.exiting: set[str] = set()

    # -- the only write ----------------------------------------------------
    def write(self, group: cgroups.Group, name: str, value: str) -> None:
        """Write a file of a known group, unless it has this value already.

        :raises NotSecondary: if the group is neither of a verified secondary
            nor the open slice, or if no such file may be written.
        :raises OSError: if the kernel refuses the write, or if the file has
            another value afterwards.
        """
        of_secondary = any(
            group in (handles.scope, handles.base, handles.process,
                      handles.memory)
            for handles in self._open_handles.values())
        if not (of_secondary
                or (group is self._slice and name.startswith('cpu.'))):
            raise NotSecondary(f'refused to write {name} of {group.path}')
        if not _WRITABLE.fullmatch(name):
            raise NotSecondary(f'refused to write the file {name}')
        if group.read(name) == value:
            return
        if self.dry_run:
            LOG.info('Would write %(value)s to %(path)s/%(name)s', {
                'value': value, 'path': group.path, 'name': name})
            return
        set_file(group, name, value)

    # -- groups of a guest -------------------------------------------------
    def handles_of(self, guest: Secondary) -> CgroupHandles | None:
        """Return the open groups of a guest, None if they are not verified.

        The reason is then in ``problems``.
        """
        key = guest.uuid, guest.pid, guest.started
        with self.lock:
            if key not in self._open_handles:
                try:
                    self._open_handles[key] = open_handles(
                        self.hierarchy, guest)
                    self.problems.clear(guest.uuid)
                    self._assume_originals(self._open_handles[key])
                except cgroups.CgroupError as exc:
                    self.problems.note(guest.uuid, explain(exc))
                    return None
            return self._open_handles[key]

    def opened(self) -> Iterable[CgroupHandles]:
        """Return the groups of all guests, as far as they are open."""
        return self._open_handles.values()

    def _assume_originals(self, handles: CgroupHandles) -> None:
        """Assume default original values if the saved ones are lost.

        The OOM score of the process shows that an agent has limited it.  The
        present limits must not be saved as the original ones, or the guest
        would never exceed them again.
        """
        key = key_of(handles.guest)
        try:
            if (key in self.originals
                    or handles.process.read(OOM_FILE)
                    != FIRST_FOR_OOM_KILLER):
                return
        except OSError:
            return
        LOG.warning('The original limits of %s are not on disk any more; '
                    'assuming that it had none', handles.guest.uuid)
        self.originals[key] = {
            'oom': '0', 'weight': '1024' if self.v1 else '100',
            **dict.fromkeys(threads(handles, VCPU)
                            + threads(handles, EMULATOR),
                            cgroups.format_limit(
                                (None, cgroups.LONG_PERIOD_US)))}
        self.save()

    def forget(self, alive: Iterable[Secondary]) -> None:
        """Close the groups of all guests but these.

        Original values are kept while the process of their guest lives.  A
        guest may have started after the caller listed them, and limits
        written for it must never be saved as original values.
        """
        keep = {(guest.uuid, guest.pid, guest.started) for guest in alive}
        with self.lock:
            gone = [key for key in self._open_handles if key not in keep]
            if gone:
                self.note_exiting()
            for key in gone:
                self._open_handles.pop(key).close()
            over = [name for name in
                    set(self.originals) - {process_key(*key) for key in keep}
                    if not self.lives(name)]
            if over:
                for name in over:
                    del self.originals[name]
                self.killed.difference_update(over)
                self.save()
            self.problems.forget_others(key[0] for key in keep)

    def note_exiting(self) -> None:
        """Note the groups in which only threads of dead secondaries are left.

        At the floor it may take such threads seconds to exit.
        """
        paths = self.exiting | {
            handles.scope.path
            for handles in self._open_handles.values()
            if not self.lives(key_of(handles.guest))
        }
        self.exiting = {
            path for path in paths if os.path.isdir(path)
            and not cgroups.is_deserted(path, self.hierarchy.version)}

    def lives(self, name: str) -> bool:
        """Return whether the process with this key is alive."""
        return lives(name, self.hierarchy.proc)

    # -- the machine slice -------------------------------------------------
    def open_slice(self, path: str) -> cgroups.Group:
        """Return the group of this path, of which ``cpu.*`` may be written.

        :raises CgroupError: if it cannot be opened.
        """
        if self._slice is not None and (self._slice.path != path
                                        or not self._slice.is_current()):
            self._slice.close()
            self._slice = None
        if self._slice is None:
            self._slice = cgroups.Group(path)
        return self._slice

    # -- original values ---------------------------------------------------
    def save(self) -> None:
        """Save the original values on disk."""
        self._store.save(STATE, {'guests': self.originals,
                                 'slice': self.idle_slice})


def threads(handles: CgroupHandles, kind: re.Pattern[str]) -> list[str]:
    """Return the names of a guest's thread groups of one kind."""
    try:
        return [name for name in handles.base.children()
                if kind.fullmatch(name)]
    except OSError:
        return []


def _texts(data: object) -> dict[str, str]:
    """Return those values of a JSON object that are ASCII text."""
    if not isinstance(data, dict):
        return {}
    return {name: value for name, value in data.items()
            if isinstance(value, str) and value.isascii()}


def _is_original(name: str, value: str) -> bool:
    """Return whether a file can have had this original value."""
    if not (VCPU.fullmatch(name) or EMULATOR.fullmatch(name)):
        return True
    try:
        cgroups.parse_limit(value)
    except ValueError:
        return False
    return True
